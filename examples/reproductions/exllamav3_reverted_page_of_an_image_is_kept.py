"""ExLlamaV3 1.6.5: a page of an image that is given back unwritten is taken for one that the disk may keep.

The placeholder tokens of images are numbered in each process, so a page behind one is not `persistable`: the cache on
the disk, which other processes read, must not keep it. `Sequence.allocate_pages` sets this flag of every page that a
job claims. If the job ends before it writes to a page, `CachePage.revert` gives the page its old content back, and not
the old flag. `Generator.flush_cache_to_disk` then keeps the page, and a process that gives another image the same
numbers finds it.

Run it with the ExLlamaV3 that is to be tried. It needs no GPU and no model, and ends with exit code 1 if the fault is
there.
"""

import sys
from types import SimpleNamespace
from typing import Any

import torch
from exllamav3.generator.job import Job
from exllamav3.generator.pagetable import PAGE_SIZE, PageTable

IMAGE = 1_000_000_000  # the first number of a placeholder
NUM_PAGES = 4


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
pages = generator.pagetable = PageTable(generator, cache)


def start(tokens: list[int], num_generated: int) -> Job:
    """A job that has its pages and whose prompt is computed."""
    job = Job(torch.tensor([tokens]), max_new_tokens=num_generated, sampler=SimpleNamespace())
    job.prepare_for_queue(generator, 0)
    job.allocate_pages()
    while not job.is_prefill_done():
        job.prefill([])
    return job


start([*range(IMAGE, IMAGE + PAGE_SIZE), 9], 1).deallocate_pages()  # a page of an image stays in the cache
(page,) = [page for page in pages.all_pages if page.kv_position == PAGE_SIZE]
print(f"a page of an image: persistable {page.persistable}")
start([8] * 10, 3 * PAGE_SIZE).deallocate_pages()  # it takes all pages, and gives this one back unwritten
print(f"after it was given back: persistable {page.persistable}, {page.kv_position} tokens computed")
if page.kv_position == PAGE_SIZE and page.persistable:
    sys.exit("the disk may keep a page whose hash has a meaning in this process only")
