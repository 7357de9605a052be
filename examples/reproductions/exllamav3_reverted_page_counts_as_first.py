"""ExLlamaV3 1.6.5: a page that is given back unwritten is taken for the first page of a prompt, and its KV is copied.

A job reserves pages for the tokens that it will generate. Until it writes to one, the page can be given back with the
content that it had (`CachePage.revert`). If another job has computed this content again meanwhile, `CachePage.sub_ref`
gives the page a new hash and sets `prev_hash` to None, and its tokens and its `kv_position` stay. So it looks like the
first page of a prompt. `Job.prefill` then copies its keys and values for a prompt that begins with these tokens,
although they were computed behind other tokens, at other positions.

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


def start(tokens: list[int], num_generated: int) -> Job:
    """A job that has its pages and whose prompt is computed."""
    job = Job(torch.tensor([tokens]), max_new_tokens=num_generated, sampler=SimpleNamespace())
    job.prepare_for_queue(generator, 0)
    job.allocate_pages()
    while not job.is_prefill_done():
        job.prefill([])
    return job


first, second, third = ([number] * PAGE_SIZE for number in (1, 2, 3))
start([*first, *second, 9], 1).deallocate_pages()  # two full pages stay in the cache
start([*third, *third, 9], 1).deallocate_pages()  # two more; three pages are empty
reserving = start([8] * 10, 3 * PAGE_SIZE)  # of its four pages, it writes to the first; the last is that of `second`
again = start([*first, *second, 9], 1)  # `second` is computed again
reserving.deallocate_pages()  # it ends early and gives the page back unwritten
copies.clear()
start([*second, 9, 9], 1)  # a prompt that begins with `second`

for source, target, num_tokens in copies:
    print(f"page {target}, the first of the prompt, gets {num_tokens} tokens of KV from page {source}")
if copies:
    sys.exit("this KV was computed behind another page")
print("nothing was copied")
