"""ExLlamaV3's page table as a subject: releases 1.6.0 to 1.6.5.

The adapter replaces the loop of `exllamav3/generator/generator.py`:

- A request is a `Job`. A waiting job starts if enough pages are unreferenced (`iterate_start_jobs`); it then claims all
  its pages, those of its prompt by the hashes of their contents.
- A step computes the prompts of the jobs that started (`Job.prefill`) and one token of each job whose prompt is
  computed; a page that is full then gets its hash, and is given up if another page has this hash. While a job
  generates, only one other job computes its prompt in one iteration, if the release has a `prefill_cooldown`.
- A job reserves pages up to the end of a page (`max_rq_tokens`), also for as many further tokens as the configuration
  has lookahead slots. When they are full, it gives up its pages and is queued again with what it has generated. Here it
  claims its pages again at once, in `append`.
- A page that a job reserved and did not write gets its old content back (`CachePage.revert`). In the specification a
  block that is taken has lost its content. So the adapter clears such a page if a prompt could find it, as if it had
  been evicted.
- When no job is left, the pages are defragmented (`on_queue_drained`).

Real modules: `generator/pagetable.py`, `generator/job.py` and `util/tensor.py`. The page size is a constant of the
engine, 256; here it is the block size of the configuration. The number of a block is that of its page object, which
stays when the defragmentation moves the page.

The cache is a tensor of ours with one number per token, which stands for the token and all tokens before it. The model
of ours computes it from what it reads through the block table. Copies of partly matching pages and the rotations of
the defragmentation move these numbers. A step that leaves a wrong number in the table of a sequence is a failure of the
engine (`EngineFailure`).

Limits: no drafts, images, recurrent states, banned strings or forced tokens; no tier in host memory or on a disk. A
prompt is computed in one step of the judge.
"""

from itertools import takewhile
from pathlib import Path
from typing import Any

import torch

from kvproof.check.protocol.capabilities import Capabilities
from kvproof.check.protocol.fault_attribution import EngineFailure
from kvproof.check.protocol.manager import Admission, Assumption, Config, Scheduled, Unsupported
from kvproof.check.protocol.manager_adapter import ManagerAdapter
from kvproof.check.subjects.loading import EngineError, download
from kvproof.check.subjects.loading.stub_modules import StubObject, Unused, mount_real

PACKAGE = "exllamav3"
JOB, PAGE_TABLE = "generator.job", "generator.pagetable"
FIRST_IMAGE_TOKEN = 1_000_000_000
BUDGET = 2  # tokens after which, with its lookahead slots, a job is queued again; rounded up to the end of a page
NO_SLOT_BEYOND = -1  # drafts beyond the budget: without this, a prompt that fills the cache would need one token more
UNBOUNDED = 1 << 40
NOTHING = -1  # in the cache: no KV was written here
ASSUMPTIONS = (
    Assumption("asks-first", "A job starts only if enough pages are unreferenced."),
    Assumption("queued-again-at-once", "A job that is queued again claims its pages before another job starts."),
    Assumption("write-before-read", "A step writes its KV before it reads: a hit may be computed in the same step."),
    Assumption("synchronous", "A step is over before the next is scheduled; frees come between steps."),
)


def count_match_tensor(one: torch.Tensor, other: torch.Tensor, limit: int) -> int:
    """The number of tokens at the beginning of two rows that are equal; at most `limit`."""
    if not limit or one[0, 0] != other[0, 0]:
        return 0
    pairs = zip(one[0, :limit].tolist(), other[0].tolist(), strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def cache_rotate(cache: torch.Tensor, rotations: torch.Tensor, buffer: torch.Tensor) -> None:
    """Copy pages as (target, source) pairs say; -1 is the buffer."""
    numbers = rotations.tolist()
    for target, source in zip(numbers[::2], numbers[1::2], strict=True):
        (buffer if target < 0 else cache[target]).copy_(buffer if source < 0 else cache[source])


EXTENSION = StubObject(count_match_tensor=count_match_tensor, cache_rotate=cache_rotate)
STAND_INS: dict[str, dict[str, Any]] = {
    "constants": {"PAGE_SIZE": 256},
    "ext": {"exllamav3_ext": EXTENSION},
    "tokenizer.mm_embedding": {"FIRST_MM_EMBEDDING_INDEX": FIRST_IMAGE_TOKEN},
    "util": {"profile_opt": Unused},
}


def import_modules(version: str, cache: Path | None = None) -> StubObject:
    """Import from its sources what the adapter uses of a release. Raises EngineError if it was not downloaded."""
    root = download.find(PACKAGE, version, cache) / PACKAGE
    module = mount_real(PACKAGE, root, (JOB, PAGE_TABLE, "util.tensor"), STAND_INS)
    job = module(JOB)
    if not hasattr(job.Job, "hash_completed_page"):
        raise EngineError(f"ExLlamaV3 {version} is not driven; releases from 1.6.0 on are")
    text = (root / "generator" / "generator.py").read_text(encoding="utf-8")
    return StubObject(job=job, pages=module(PAGE_TABLE), defers_prompts="prefill_cooldown" in text)


class Cache:
    """The KV of all pages: for each token the number of its prefix."""

    def __init__(self, num_pages: int, page_size: int) -> None:
        self.max_num_tokens, self.page_size = num_pages * page_size, page_size
        self.kv = torch.full((num_pages, page_size), NOTHING, dtype=torch.long)
        self.model = StubObject(loaded_tp=False)
        self._numbers: dict[tuple[int, int], int] = {}

    def get_all_tensors(self) -> list[torch.Tensor]:
        return [self.kv]

    def copy_page(self, source_cache: "Cache", source: int, target: int, num_tokens: int) -> None:
        self.kv[target, :num_tokens] = source_cache.kv[source, :num_tokens]

    def number_of(self, before: int, token: int) -> int:
        """The number of the prefix that ends with this token, after the prefix `before`."""
        return self._numbers.setdefault((before, token), len(self._numbers))

    def compute(self, table: list[int], start: int, tokens: list[int]) -> None:
        """The model: write the KV of tokens that begin at position `start`, and read the one before."""
        size = self.page_size
        before = int(self.kv[table[(start - 1) // size], (start - 1) % size]) if start else NOTHING
        for position, token in enumerate(tokens, start):
            before = self.number_of(before, token)
            self.kv[table[position // size], position % size] = before

    def prefill(self, input_ids: torch.Tensor, params: dict[str, Any]) -> None:
        self.compute(params["block_table"][0].tolist(), int(params["cache_seqlens"][0]), input_ids[0].tolist())


class ExLlamaV3(ManagerAdapter):
    """ExLlamaV3's `PageTable`, with its jobs."""

    capabilities = Capabilities(
        caching=True,
        block_size_min=BUDGET,
        lookahead=True,
        admits_lookahead=True,
        reserves_once=True,
        same_step_hits=True,
        steps_are_certain=True,
        dedups_after_step=True,
        refusal_slack=1,
    )
    assumptions = ASSUMPTIONS

    def __init__(self, version: str) -> None:
        self.name = f"exllamav3 {version}"
        self._modules = import_modules(version)

    def make(self, config: Config) -> Any:
        """A new page table over a cache of ours. Returns the page table."""
        if not config.caching or config.block_size < BUDGET:
            raise Unsupported(f"pages are always cached, and have {BUDGET} tokens or more")
        self._modules.job.PAGE_SIZE = self._modules.pages.PAGE_SIZE = config.block_size
        self._cache = cache = Cache(config.num_gpu_blocks, config.block_size)
        self._generator = generator = StubObject(
            cache=cache,
            model=StubObject(caps={}, prefill=cache.prefill),
            max_total_tokens=cache.max_num_tokens,
            max_chunk_size=cache.max_num_tokens,
            max_batch_size=1,
            max_draft_tokens=NO_SLOT_BEYOND,
            num_draft_tokens=NO_SLOT_BEYOND,
            hybrid_draft_tokens=0,
            padded_vocab_size=0,
            **dict.fromkeys(("draft_cache", "draft_model", "ngram_corpus", "recurrent_cache"), None),
            **dict.fromkeys(("dflash_draft", "mtp_draft", "ngram_match_min"), False),
            enable_defrag=True,
        )
        generator.pagetable = pages = self._modules.pages.PageTable(generator, cache)
        self._ids = {id(page): number for number, page in enumerate(pages.all_pages)}
        self._jobs: dict[int, Any] = {}
        self._started: dict[int, Any] = {}
        return pages

    def _budget(self, num_tokens: int) -> int:
        """The tokens that a job of so many tokens may generate before it is queued again."""
        return min(BUDGET + self.config.lookahead, self._cache.max_num_tokens - num_tokens + 1)

    def _job(self, seq: int) -> Any:
        """The job of a waiting sequence."""
        if seq not in self._jobs:
            tokens = self.tokens[seq]
            budget = self._budget(len(tokens))
            job = self._modules.job.Job(torch.tensor([tokens]), sampler=StubObject(), max_rq_tokens=budget)
            job.prepare_for_queue(self._generator, seq)
            job.max_new_tokens = UNBOUNDED  # the judge says when a sequence ends
            self._jobs[seq] = job
        return self._jobs[seq]

    def hits(self, group: int) -> int:
        """The tokens of the pages that `allocate_pages` would find, computed or claimed by a job of this step."""
        pages, tokens = self.manager, torch.tensor([self.tokens[self.groups[group][0]]])
        sequence = self._modules.pages.Sequence(tokens, tokens)  # there is no job if it is too long for the cache
        sequence.prepare(False, 0)
        found = takewhile(lambda h: h in pages.referenced_pages or pages.get_live_page(h), sequence.page_hashes)
        return self.config.block_size * sum(1 for _ in found)

    def can_admit(self, group: int) -> Admission:
        (seq,) = self.groups[group]
        if len(self.tokens[seq]) + self.config.lookahead > self._cache.max_num_tokens:
            return Admission.NEVER
        has_room = self._job(seq).current_new_pages_required() <= self.manager.num_unreferenced_pages()
        return Admission.OK if has_room else Admission.LATER

    def allocate(self, seq: int, tokens: list[int]) -> int:
        """Start the job. A page that another job holds is computed, or is computed by this job in the same step."""
        job = self._job(seq)
        job.allocate_pages()
        self._started[seq] = self._jobs.pop(seq)
        (sequence,) = job.sequences
        claimed = sequence.allocated_pages[: len(sequence.page_hashes)]
        size = self.config.block_size
        return size * sum(1 for _ in takewhile(lambda p: p.kv_position == size or p.ref_count > 1, claimed))

    def grow(self, seq: int, token: int) -> None:
        super().grow(seq, token)
        if seq in self._started:
            self._started[seq].sequences[0].sequence_ids.append(torch.tensor([[token]]))

    def _is_full(self, seq: int) -> bool:
        (sequence,) = self._started[seq].sequences
        return len(self.tokens[seq]) > len(sequence.allocated_pages) * self.config.block_size

    def can_append(self, group: int) -> bool:
        (seq,) = self.groups[group]
        if not self._is_full(seq):
            return True
        num_tokens = len(self.tokens[seq])
        num_pages = -(-(num_tokens - 1 + self._budget(num_tokens)) // self.config.block_size)
        num_pages -= len(self._started[seq].sequences[0].allocated_pages)
        fits = num_tokens <= self._cache.max_num_tokens
        return fits and bool(num_pages <= self.manager.num_unreferenced_pages())

    def append(self, seq: int, num_tokens: int) -> None:
        """If its pages are full, queue the job again, as in `iterate_gen`, and start it."""
        if self._is_full(seq):
            job = self._started[seq]
            job.deallocate_pages()
            job.orig_max_rq_tokens = self._budget(len(self.tokens[seq]))
            job.prepare_for_requeue()
            job.max_new_tokens = UNBOUNDED
            job.allocate_pages()

    def step_done(self, step: list[Scheduled]) -> None:
        """As in `Generator.iterate`, until each sequence has computed its tokens."""
        waiting = [self._started[one.seq] for one in step]
        generates = any(job.is_prefill_done() for job in waiting)
        while waiting:
            prefilling = [job for job in waiting if not job.is_prefill_done()]
            for job in prefilling[: 1 if generates and self._modules.defers_prompts else None]:
                job.prefill([])
            for job in [one for one in waiting if one.is_prefill_done()]:
                self._decode(job)
                waiting.remove(job)
        for one in step:
            self._check(one.seq)

    def _decode(self, job: Any) -> None:
        """Compute the last token, and hash its page if that is full now, as in `receive_sample`."""
        (sequence,) = job.sequences
        position, size = sequence.kv_position, self.config.block_size
        (ids,) = job.get_input_ids_list(add_to_cache=True)
        self._cache.compute(sequence.block_index_tensor[0].tolist(), position, ids[0].tolist())
        sequence.kv_position += 1
        if sequence.kv_position % size == 0:
            job.hash_completed_page(sequence, position // size)

    def _check(self, seq: int) -> None:
        """Raises EngineFailure unless the cache has the KV of each token of the sequence in its table."""
        (sequence,) = self._started[seq].sequences
        pages = [page.page_index for page in sequence.allocated_pages]
        found = self._cache.kv[pages].flatten().tolist()
        number = NOTHING
        for position, token in enumerate(self.tokens[seq]):
            number = self._cache.number_of(number, token)
            if found[position] != number:
                raise EngineFailure(
                    f"the KV of sequence {seq} at position {position} is that of other tokens; it is in page "
                    f"{pages[position // self.config.block_size]}"
                )

    def release(self, seq: int) -> None:
        job = self._started.pop(seq)
        unwritten = [page for page in job.sequences[0].allocated_pages if page.can_revert]
        job.deallocate_pages()
        for page in unwritten:
            if not page.ref_count and self._modules.pages.is_content_hash(page.phash):
                page.clear()

    def free(self, seq: int) -> None:
        super().free(seq)
        self._jobs.pop(seq, None)
        if not self.tokens:
            self.manager.defrag()

    def tables(self) -> dict[int, list[int]]:
        ids = self._ids
        pages = {seq: job.sequences[0].allocated_pages or () for seq, job in self._started.items()}
        return {seq: [ids[id(page)] for page in claimed] for seq, claimed in pages.items()}

    def num_free(self) -> int:
        return int(self.manager.num_unreferenced_pages())

    def refcounts(self) -> list[int]:
        return [page.ref_count for page in self.manager.all_pages]

    def free_ids(self) -> list[int]:
        return [self._ids[id(page)] for page in self.manager.unreferenced_pages.values()]
