"""ExLlamaV3 1.6.5: a page of an image that is given back unwritten is taken for one that the disk may keep.

The placeholder tokens of images are numbered in each process, so a page behind one is not `persistable`: the cache on
the disk, which other processes read, must not keep it. `Sequence.allocate_pages` sets this flag of every page that a
job claims. If the job ends before it writes to a page, `CachePage.revert` gives the page its old content back, and not
the old flag. `Generator.flush_cache_to_disk` then keeps the page, and a process that gives another image the same
numbers finds it. Run it with the ExLlamaV3 that is to be tried: exit code 1 if the fault is there.
"""

from on_any_engine import fault_if
from on_exllamav3 import PAGE_SIZE, Generator

IMAGE = 1_000_000_000  # the first number of a placeholder

generator = Generator(num_pages=4)
generator.start([*range(IMAGE, IMAGE + PAGE_SIZE), 9], 1).deallocate_pages()  # a page of an image stays in the cache
(page,) = [page for page in generator.pages.all_pages if page.kv_position == PAGE_SIZE]
print(f"a page of an image: persistable {page.persistable}")
generator.start([8] * 10, 3 * PAGE_SIZE).deallocate_pages()  # it takes all pages, and gives this one back unwritten
print(f"after it was given back: persistable {page.persistable}, {page.kv_position} tokens computed")
is_kept = page.kv_position == PAGE_SIZE and page.persistable
fault_if(is_kept, "the disk may keep a page whose hash has a meaning in this process only")
