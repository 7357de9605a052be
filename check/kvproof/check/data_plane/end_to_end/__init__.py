"""End to end: a decoder that keeps its keys and values in paged memory must generate the same tokens as one without
pages.

The whole chain of an engine runs: the scheduler decides a step, the block manager gives tables and mappings, the KV
cache engine moves the blocks, and the model writes and reads slots through the tables. Any error on the way (a lost
pair, two exchanged ids, a table entry of another sequence, a slot off by one) makes the model read a key or a value
that does not belong to the token.

The decoder makes such an error visible. It computes in integers modulo 2^64, so nothing is rounded: the order of a sum
does not matter, and results are equal bit by bit on every device and for every division of a prompt into chunks. It
also mixes bits strongly: one wrong element anywhere in a sequence's context changes every score of the next token,
where a trained model would often choose the same token.

Reading order: `exact_decoder` is the model. `workloads` are the requests that make the scheduler preempt, swap, fork,
chunk and share. `engine` runs one workload, with keys and values behind block tables, in the tensors of
`kvproof.impl`'s engine. `comparing` compares the tokens with those of the model without pages. `fault_injection` shows
that the comparison detects faults.
"""
