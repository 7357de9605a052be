"""ExLlamaV3 1.6.5: of two jobs with one prompt, the second leaves a page that is taken for the first one of a prompt.

The prompt has some full pages and one token more. Both jobs claim its pages before either has computed them, as the
generator does with jobs that start together. The first one computes them. Nothing is left for the second job to compute
before it generates, so that `Job.prefill` does not link its last page to the page before: `prev_hash` stays None. The
page gets the last token of the prompt and those that are generated. `Job.prefill` then copies its keys and values for a
prompt that begins with these tokens, although they were computed behind other pages, at other positions.

Run it with the ExLlamaV3 that is to be tried. It needs no GPU and no model, and ends with exit code 1 if the fault is
there.
"""

import sys
from types import SimpleNamespace
from typing import Any

import torch
from exllamav3.generator.job import Job
from exllamav3.generator.pagetable import PAGE_SIZE, PageTable

NUM_PAGES = 7
copies: list[tuple[int, int, int]] = []


def copy_page(cache: Any, source: int, target: int, num_tokens: int) -> None:
    """Note which page is copied to which, and how many tokens of it."""
    copies.append((source, target, num_tokens))


def nothing(*arguments: Any, **options: Any) -> None:
    """The model computes nothing here."""


cache = SimpleNamespace(max_num_tokens=NUM_PAGES * PAGE_SIZE, copy_page=copy_page)
generator = SimpleNamespace(
    cache=cache,
    model=SimpleNamespace(caps={}, prefill=nothing),
    max_total_tokens=NUM_PAGES * PAGE_SIZE,
    max_chunk_size=2048,
    max_batch_size=4,
    max_draft_tokens=0,
    num_draft_tokens=0,
    hybrid_draft_tokens=0,
    padded_vocab_size=0,
    ngram_match_min=0,
    ngram_corpus=None,
    mtp_draft=False,
    dflash_draft=False,
    draft_model=None,
    recurrent_cache=None,
)
pages = generator.pagetable = PageTable(generator, cache)


def claimed(tokens: list[int]) -> Job:
    """A job that has its pages."""
    job = Job(torch.tensor([tokens]), max_new_tokens=8, sampler=SimpleNamespace())
    job.prepare_for_queue(generator, 0)
    job.allocate_pages()
    return job


def compute(job: Job) -> None:
    """Compute the prompt of a job, but for its last token."""
    while not job.is_prefill_done():
        job.prefill([])


def generate(job: Job, token: int) -> None:
    """Compute the last token of a job, and sample the next one."""
    job.get_input_ids_list(add_to_cache=True)
    (sequence,) = job.sequences
    sequence.sequence_ids.append(torch.tensor([[token]]))
    sequence.kv_position += 1


prompt = [*[1] * PAGE_SIZE, 7]
first, second = claimed(prompt), claimed(prompt)
for job in (first, second):
    compute(job)
for token in (8, 9):
    generate(second, token)  # its last page has the tokens 7 and 8 now
copies.clear()
compute(claimed([7, 8, 3]))

for source, target, num_tokens in copies:
    print(f"page {target}, the first of the prompt, gets {num_tokens} tokens of KV from page {source}")
if copies:
    sys.exit("this KV was computed behind another page")
print("nothing was copied")
