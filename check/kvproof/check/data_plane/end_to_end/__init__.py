"""End to end: a decoder generates with its keys and values in paged memory, and must say what it says without pages.

The chain that an engine is made of runs whole: the scheduler decides a step, the block manager gives tables and
mappings, the KV cache engine moves the blocks, the model writes and reads slots through the tables. Whatever is wrong
on the way (a pair lost, two ids exchanged, a table entry of somebody else, a slot off by one) ends in a key or a value
that is not the token's own.

The decoder makes such a thing visible. It computes in integers modulo 2^64, so there is no rounding: the order of a sum
does not matter, and "equal" means equal, on any device and however a prompt is cut into chunks. And it stirs: one wrong
element anywhere in a sequence's context changes every score of its next token, where a trained model would often say
the same word.

`exact_decoder` is the model; `paged_memory` keeps its keys and values behind block tables, in the tensors of
`kvproof.impl`'s engine; `storms` are the loads that make the scheduler preempt, swap, fork, chunk and share; `engine`
runs one; `comparing` holds the tokens against those of the model without pages; `planted` proves that it would notice.
"""
