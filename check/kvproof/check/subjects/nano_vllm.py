"""nano-vllm's block manager, also the one before prompts were computed in chunks, and its scheduler, as subjects.

The path of a checkout names them.

The first adapter replaces `nanovllm/engine/scheduler.py` (commit bb823b3). A prompt gets all its blocks at once and is
then computed in chunks. Blocks are hashed when a step is complete. A decode asks for its slot after its token was
appended.

The second adapter plays `LLMEngine.step`: `schedule`, then the model, then `postprocess` with a token for every
sequence of the step. Prompts go before decodes, and only the first prompt of a step is computed in chunks. A sequence
that gets no slot preempts the last running one, or itself; what is preempted is computed again. The engine ends a
sequence when it has the requested number of tokens, or at the end-of-text token. To end a sequence, the adapter lowers
this number. The engine steps only while it has requests. Requests cannot be aborted. The limit of sequences applies to
one step, not to all running sequences.

Of the checkout, the two modules and the sequence are imported; they need numpy and xxhash. The configuration, which
needs a model, is replaced by an empty class. If xxhash is not installed, another 64-bit hash with the same interface
replaces it. This changes no answer: the hash only selects where a block is looked up, and the manager also compares the
tokens.

nano-vllm has no fork, swap, sliding window, lookahead or adapters, so these are unsupported.

Before prompts were computed in chunks, and in most forks, the manager had another interface. `can_allocate(seq)`
answers true or false. `allocate(seq)` finds the cached blocks by itself, gives the sequence all blocks of its prompt,
and caches the full ones at once: the step that follows computes the whole prompt. `may_append(seq)` is called after a
token was appended. It takes a block, or caches the one that this token has filled. So a hit may name a block that is
computed in the same step.

There is no look-up without an allocation. A look-up is answered from the manager's own index, with its own hash, as
`allocate` uses them; of a manager without these names it finds nothing.
"""

import hashlib
import inspect
from pathlib import Path
from typing import Any

from kvproof.check.protocol.capabilities import Capabilities
from kvproof.check.protocol.finding import AdapterError
from kvproof.check.protocol.manager import Assumption, Config, Observation, Scheduled, Unsupported
from kvproof.check.protocol.manager_adapter import BOOLEAN_ADMISSION, ManagerAdapter
from kvproof.check.protocol.scheduler import Chunk, ScheduledStep, SchedulerConfig
from kvproof.check.protocol.scheduler_adapter import Request, SchedulerAdapter
from kvproof.check.subjects.loading import EngineError, partial_import, stub_modules
from kvproof.check.subjects.loading.stub_modules import StubObject
from kvproof.spec.text.budgets import FCFS
from kvproof.spec.text.eviction_policy import SEQUENCE_LRU

PACKAGE = "nanovllm"
HASH_BYTES = 8
BLOCK_SIZE_MIN = 2
FILLER = 0  # the token for a prompt that is not computed to its end; the scheduler does not read it

BLOCK_SIZE = Assumption(
    "block-size", "A block has at least two slots: the manager detects a new block by a remainder of one."
)
MANAGER_ASSUMPTIONS = (
    BOOLEAN_ADMISSION,
    Assumption("asks-first", "The caller asks, and calls only after a yes, with nothing in between."),
    BLOCK_SIZE,
    Assumption("synchronous", "A step is over before the next is scheduled; frees come between steps."),
)
SCHEDULER_ASSUMPTIONS = (
    BLOCK_SIZE,
    Assumption("one-step-at-a-time", "A step is completed before the next one is scheduled."),
    Assumption("model-fits", "The pool holds one sequence of max_model_len; a longer prompt is not sent."),
)

NONE = -1  # the hash before the first block, and the id of a block that is not there
INDEX = ("compute_hash", "hash_to_block_id")
ASSUMPTIONS = (
    *MANAGER_ASSUMPTIONS,
    Assumption("write-before-read", "A step writes its KV before it reads: a hit may be computed in the same step."),
)


class Hash64:
    """The part of `xxhash.xxh64` that nano-vllm calls."""

    def __init__(self) -> None:
        self._hash = hashlib.blake2b(digest_size=HASH_BYTES)

    def update(self, data: bytes) -> None:
        self._hash.update(data)

    def intdigest(self) -> int:
        return int.from_bytes(self._hash.digest(), "little")


def import_module(path: str, name: str) -> Any:
    """A module of a checkout, in `nanovllm/engine`. Raises EngineError if the folder is not a checkout."""
    folder = Path(path).expanduser()
    if not (folder / PACKAGE / "engine" / f"{name}.py").is_file():
        raise EngineError(f"{path} is not a checkout of nano-vllm: it has no {PACKAGE}/engine/{name}.py")
    module = partial_import.mount(PACKAGE, folder, {"config": {"Config": object}})
    stub_modules.provide({"xxhash": {"xxh64": Hash64}})
    return module(f"engine.{name}")


def has_older_interface(kind: Any) -> bool:
    """Whether a class of block managers has the older interface: `allocate` takes a sequence only."""
    needed = [one for one in inspect.signature(kind.allocate).parameters.values() if one.default is one.empty]
    return len(needed) == 2 and hasattr(kind, "may_append")  # the manager itself is the first


def require_valid(config: Config) -> None:
    """Raise Unsupported for a configuration that nano-vllm cannot have."""
    if config.block_size < BLOCK_SIZE_MIN:
        raise Unsupported("a block has at least two slots")
    if not config.caching:
        raise Unsupported("the prefix cache cannot be switched off")


class OfCheckout(ManagerAdapter):
    """The `BlockManager` of a checkout of nano-vllm, whatever its interface."""

    name = "nano-vllm"

    def __init__(self, path: str) -> None:
        self._module = import_module(path, "block_manager")

    def make(self, config: Config) -> Any:
        """A new manager. Its sequences get a class with this block size. Raises Unsupported."""
        require_valid(config)
        self._sequence_of_size = type("Sequence", (self._module.Sequence,), {"block_size": config.block_size})
        self._seqs: dict[int, Any] = {}
        return self._module.BlockManager(config.num_gpu_blocks, config.block_size)


class NanoVllm(OfCheckout):
    """nano-vllm's `nanovllm.engine.block_manager.BlockManager`."""

    capabilities = Capabilities(
        caching=True,
        chunked=True,
        steps_are_certain=True,
        refusal_slack=0,
        eviction=SEQUENCE_LRU,
        block_size_min=BLOCK_SIZE_MIN,
    )
    assumptions = MANAGER_ASSUMPTIONS

    def _sequence(self, seq: int) -> Any:
        if seq not in self._seqs:
            self._seqs[seq] = self._sequence_of_size(self.tokens[seq])
        return self._seqs[seq]

    def grow(self, seq: int, token: int) -> None:
        super().grow(seq, token)
        self._sequence(seq).append_token(token)

    def hits(self, group: int) -> int:
        """The number of cached tokens, from the same call as the admission; 0 if the prompt does not fit."""
        (seq,) = self.groups[group]
        return max(0, self._num_cached(self._sequence(seq))) * self.config.block_size

    def _num_cached(self, fake: Any) -> int:
        """The number of cached blocks of a prompt that fits; -1 if it does not fit."""
        answer = self.manager.can_allocate(fake)
        if isinstance(answer, bool):
            raise AdapterError(
                "can_allocate of this checkout answers true or false, but allocate takes the number of cached blocks; "
                "kvproof drives managers whose can_allocate answers with that number"
            )
        return int(answer)

    def can_allocate(self, tokens: list[int]) -> bool:
        """Whether the prompt fits: nano-vllm answers -1 if not, else the number of cached blocks."""
        return self._num_cached(self._sequence_of_size(tokens)) >= 0

    def allocate(self, seq: int, tokens: list[int]) -> int:
        """Allocate all blocks of the prompt, and share those that are cached. Returns the hit in tokens."""
        fake = self._sequence(seq)
        self.manager.allocate(fake, self._num_cached(fake))
        return int(fake.num_cached_tokens)

    def can_append(self, group: int) -> bool:
        """Whether a decode can get its slot; a chunk of a prompt already has its blocks."""
        (seq,) = self.groups[group]
        fake = self._sequence(seq)
        return not self._decodes(seq) or bool(self.manager.can_append(fake))

    def append(self, seq: int, num_tokens: int) -> None:
        if self._decodes(seq):
            self.manager.may_append(self._sequence(seq))

    def _decodes(self, seq: int) -> bool:
        fake = self._sequence(seq)
        return bool(fake.num_cached_tokens + 1 == len(fake) and not fake.is_prefill)

    def release(self, seq: int) -> None:
        """Free the blocks of the sequence; if it was preempted, it becomes a prompt again."""
        fake = self._sequence(seq)
        self.manager.deallocate(fake)
        fake.is_prefill = True

    def free(self, seq: int) -> None:
        super().free(seq)
        self._seqs.pop(seq, None)

    def step_done(self, step: list[Scheduled]) -> None:
        """As in `postprocess`: hash the blocks that were computed, and count their tokens as cached."""
        for one in step:
            fake = self._sequence(one.seq)
            fake.num_scheduled_tokens = one.num_tokens
            self.manager.hash_blocks(fake)
            fake.num_cached_tokens += one.num_tokens
            fake.num_scheduled_tokens = 0
            if fake.num_cached_tokens == len(fake):
                fake.is_prefill = False

    def tables(self) -> dict[int, list[int]]:
        return {seq: fake.block_table for seq, fake in self._seqs.items() if fake.block_table}

    def num_free(self) -> int:
        return len(self.manager.free_block_ids)

    def refcounts(self) -> list[int]:
        return [block.ref_count for block in self.manager.blocks]

    def free_ids(self) -> list[int]:
        return list(self.manager.free_block_ids)


class NanoVllmScheduler(SchedulerAdapter):
    """nano-vllm's `nanovllm.engine.scheduler.Scheduler`."""

    name = "nano-vllm-scheduler"
    capabilities = Capabilities(
        caching=True,
        chunked=True,
        aborts=False,
        block_size_min=BLOCK_SIZE_MIN,
        bounds_only_steps=True,
        eviction=SEQUENCE_LRU,
        num_overtaken_max=0,
        policies=(FCFS,),
        preempts_last=True,
        refusal_slack=0,
        fills_steps=True,
    )
    assumptions = SCHEDULER_ASSUMPTIONS

    def __init__(self, path: str) -> None:
        self._module = import_module(path, "scheduler")
        if has_older_interface(self._module.BlockManager):
            raise EngineError(
                f"the scheduler of {path} has the older interface, with allocate(seq), and is not driven; its block "
                f"manager is: nano-vllm=={path}"
            )

    def make(self, config: SchedulerConfig) -> Any:
        require_valid(config)
        self.require_fitting_model(config.max_model_len)
        self._sequence_of_size = type("Sequence", (self._module.Sequence,), {"block_size": config.block_size})
        self._seqs: dict[int, Any] = {}
        self._number: dict[int, int] = {}  # the judge's id of a sequence, by the id that the sequence gave itself
        return self._module.Scheduler(
            StubObject(
                max_num_seqs=config.max_num_seqs,
                max_num_batched_tokens=config.max_num_batched_tokens,
                eos=None,
                kvcache_block_size=config.block_size,
                num_kvcache_blocks=config.num_gpu_blocks,
            )
        )

    def add(self, request: Request) -> None:
        sampling = StubObject(temperature=1.0, max_tokens=self.num_to_generate(request), ignore_eos=True)
        seq = self._seqs[request.seq] = self._sequence_of_size(request.tokens, sampling)
        self._number[seq.seq_id] = request.seq
        self.scheduler.add(seq)

    def next_step(self) -> tuple[Any, ScheduledStep]:
        had_tables = {seq.seq_id for seq in self._seqs.values() if seq.block_table}
        output = ([], False) if self.scheduler.is_finished() else self.scheduler.schedule()
        chunks = []
        for seq in output[0]:
            start = seq.num_cached_tokens
            hit = 0 if seq.seq_id in had_tables else start
            chunks.append(Chunk(self._number[seq.seq_id], start, start + seq.num_scheduled_tokens, hit))
        return output, ScheduledStep(chunks)

    def take_results(self, output: Any, sampled: dict[int, int], finished: list[int]) -> None:
        """Call `postprocess`, which ends a sequence that has all its tokens."""
        seqs, is_prefill = output
        for seq in finished:
            self._seqs[seq].max_tokens = self._seqs[seq].num_completion_tokens + 1
        tokens = [sampled.get(self._number[seq.seq_id], FILLER) for seq in seqs]
        self.scheduler.postprocess(seqs, tokens, is_prefill)
        for seq in finished:
            del self._seqs[seq]

    def observe(self) -> Observation:
        manager = self.scheduler.block_manager
        tables = {number: [list(seq.block_table)] for number, seq in self._seqs.items() if seq.block_table}
        free_ids = list(manager.free_block_ids)
        return Observation(tables, (len(free_ids), 0), (), [block.ref_count for block in manager.blocks], free_ids)


class NanoVllmOlder(OfCheckout):
    """nano-vllm's `BlockManager`, with the older interface."""

    capabilities = Capabilities(caching=True, same_step_hits=True, steps_are_certain=True, hits_whole_prompts=True)
    assumptions = ASSUMPTIONS

    def can_allocate(self, tokens: list[int]) -> bool:
        return bool(self.manager.can_allocate(self._sequence_of_size(tokens)))

    def allocate(self, seq: int, tokens: list[int]) -> int:
        """Allocate all blocks of the prompt. Returns the hit in tokens."""
        fake = self._seqs[seq] = self._sequence_of_size(tokens)
        self.manager.allocate(fake)
        return int(fake.num_cached_tokens)

    def grow(self, seq: int, token: int) -> None:
        super().grow(seq, token)
        if seq in self._seqs:
            self._seqs[seq].append_token(token)

    def can_append(self, group: int) -> bool:
        return all(self.manager.can_append(self._seqs[seq]) for seq in self.groups[group])

    def append(self, seq: int, num_tokens: int) -> None:
        self.manager.may_append(self._seqs[seq])

    def release(self, seq: int) -> None:
        self.manager.deallocate(self._seqs.pop(seq))

    def hits(self, group: int) -> int:
        manager, size, tokens = self.manager, self.config.block_size, self.tokens[self.groups[group][0]]
        found, number = 0, NONE
        while all(hasattr(manager, name) for name in INDEX) and found + size <= len(tokens):
            part = tokens[found : found + size]
            number = manager.compute_hash(part, number)
            block = manager.hash_to_block_id.get(number, NONE)
            if block == NONE or manager.blocks[block].token_ids != part:
                break
            found += size
        return found

    def computed(self, seqs: list[int], stops: list[int]) -> None:
        """Full blocks were cached before they were computed."""

    def tables(self) -> dict[int, list[int]]:
        return {seq: fake.block_table for seq, fake in self._seqs.items()}

    def num_free(self) -> int:
        return len(self.manager.free_block_ids)

    def refcounts(self) -> list[int]:
        return [block.ref_count for block in self.manager.blocks]

    def free_ids(self) -> list[int]:
        return list(self.manager.free_block_ids)


def manager_of(path: str) -> NanoVllm | NanoVllmOlder:
    """The block manager of a checkout, by the interface that it has. Raises EngineError if it has another one."""
    kind = import_module(path, "block_manager").BlockManager
    if has_older_interface(kind):
        return NanoVllmOlder(path)
    if not hasattr(kind, "hash_blocks"):
        raise EngineError(
            f"the BlockManager of {path} has neither interface that kvproof drives: allocate(seq, num_cached_blocks) "
            "with hash_blocks, or the older allocate(seq) with may_append; it has "
            f"allocate{inspect.signature(kind.allocate)}"
        )
    return NanoVllm(path)
