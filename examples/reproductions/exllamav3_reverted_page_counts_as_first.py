"""ExLlamaV3 1.6.5: a page that is given back unwritten is taken for the first page of a prompt, and its KV is copied.

A job reserves pages for the tokens that it will generate. Until it writes to one, the page can be given back with the
content that it had (`CachePage.revert`). If another job has computed this content again meanwhile, `CachePage.sub_ref`
gives the page a new hash and sets `prev_hash` to None, and its tokens and its `kv_position` stay. So it looks like the
first page of a prompt. `Job.prefill` then copies its keys and values for a prompt that begins with these tokens,
although they were computed behind other tokens, at other positions. Run it with the ExLlamaV3 that is to be tried: exit
code 1 if the fault is there.
"""

from on_exllamav3 import PAGE_SIZE, Generator

generator = Generator(num_pages=7)
first, second, third = ([number] * PAGE_SIZE for number in (1, 2, 3))
generator.start([*first, *second, 9], 1).deallocate_pages()  # two full pages stay in the cache
generator.start([*third, *third, 9], 1).deallocate_pages()  # two more; three pages are empty
reserving = generator.start([8] * 10, 3 * PAGE_SIZE)  # of its four pages, it writes to the first; the last is `second`
generator.start([*first, *second, 9], 1)  # `second` is computed again
reserving.deallocate_pages()  # it ends early and gives the page back unwritten
generator.copies.clear()
generator.start([*second, 9, 9], 1)  # a prompt that begins with `second`
generator.fault_if_copied()
