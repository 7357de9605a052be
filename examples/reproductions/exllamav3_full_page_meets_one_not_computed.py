"""ExLlamaV3 1.6.5: a job that fills a page raises if another job has claimed, but not computed, a page of this content.

A job claims the pages of its prompt by their hashes before it computes them. When another job fills a page, it looks
for a page with the same hash, and asserts that it is computed (`Job.hash_completed_page`). Since 1.6.4
`Generator.iterate` defers prompts while a job generates: one prompt has a turn, and the others wait for
`prefill_cooldown` iterations, 4 by default. So a job whose prompt has 512 tokens meets the claimed page of a job whose
longer prompt begins with the same 512. Nothing catches the exception in `iterate`; `AsyncGenerator` then ends all jobs.

Here the two jobs are called as in such an iteration. Run it with the ExLlamaV3 that is to be tried. It needs no GPU and
no model, and ends with exit code 1 if the fault is there.
"""

import sys
from types import SimpleNamespace
from typing import Any

import torch
from exllamav3.generator.job import Job
from exllamav3.generator.pagetable import PAGE_SIZE, PageTable

NUM_PAGES = 8


def nothing(*arguments: Any, **options: Any) -> None:
    """The model computes nothing here."""


cache = SimpleNamespace(max_num_tokens=NUM_PAGES * PAGE_SIZE, copy_page=nothing)
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
generator.pagetable = PageTable(generator, cache)


def start(tokens: list[int]) -> Job:
    """A job that has its pages; its prompt is not computed yet."""
    job = Job(torch.tensor([tokens]), max_new_tokens=8, sampler=SimpleNamespace())
    job.prepare_for_queue(generator, 0)
    job.allocate_pages()
    return job


prompt = list(range(2 * PAGE_SIZE))
short = start(prompt)
start([*prompt, 7, 8, 9])  # `iterate` defers this prompt, because a third job generates
short.prefill([])
(sequence,) = short.sequences
short.get_input_ids_list(add_to_cache=True)  # the first token is generated: the last of the prompt fills its page
sequence.sequence_ids.append(torch.tensor([[5]]))
sequence.kv_position += 1
try:
    short.hash_completed_page(sequence, 1)
except AssertionError:
    sys.exit("the page is full, and the one with this hash is not computed: AssertionError")
print("the page has its hash")
