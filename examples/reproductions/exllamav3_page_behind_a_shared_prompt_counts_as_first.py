"""ExLlamaV3 1.6.5: of two jobs with one prompt, the second leaves a page that is taken for the first one of a prompt.

The prompt has some full pages and one token more. Both jobs claim its pages before either has computed them, as the
generator does with jobs that start together. The first one computes them. Nothing is left for the second job to compute
before it generates, so that `Job.prefill` does not link its last page to the page before: `prev_hash` stays None. The
page gets the last token of the prompt and those that are generated. `Job.prefill` then copies its keys and values for a
prompt that begins with these tokens, although they were computed behind other pages, at other positions. Run it with
the ExLlamaV3 that is to be tried: exit code 1 if the fault is there.
"""

from on_exllamav3 import PAGE_SIZE, Generator, compute, generate

generator = Generator(num_pages=7)
prompt = [*[1] * PAGE_SIZE, 7]
first, second = generator.claim(prompt), generator.claim(prompt)
for job in (first, second):
    compute(job)
for token in (8, 9):
    generate(second, token)  # its last page has the tokens 7 and 8 now
generator.copies.clear()
generator.start([7, 8, 3])
generator.fault_if_copied()
