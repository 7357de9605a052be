"""ExLlamaV3 1.6.5: a job that fills a page raises if another job has claimed, but not computed, a page of this content.

A job claims the pages of its prompt by their hashes before it computes them. When another job fills a page, it looks
for a page with the same hash, and asserts that it is computed (`Job.hash_completed_page`). Since 1.6.4
`Generator.iterate` defers prompts while a job generates: one prompt has a turn, and the others wait for
`prefill_cooldown` iterations, 4 by default. So a job whose prompt has 512 tokens meets the claimed page of a job whose
longer prompt begins with the same 512. Nothing catches the exception in `iterate`; `AsyncGenerator` then ends all jobs.

Here the two jobs are called as in such an iteration. Run it with the ExLlamaV3 that is to be tried: exit code 1 if the
fault is there.
"""

from on_any_engine import fault_if_raised
from on_exllamav3 import PAGE_SIZE, Generator, generate

generator = Generator(num_pages=8)
prompt = list(range(2 * PAGE_SIZE))
short = generator.claim(prompt)
generator.claim([*prompt, 7, 8, 9])  # `iterate` defers this prompt, because a third job generates
short.prefill([])
sequence = generate(short, 5)  # the first token is generated: the last of the prompt fills its page
with fault_if_raised(AssertionError, "the page is full, and the one with this hash is not computed"):
    short.hash_completed_page(sequence, 1)
print("the page has its hash")
