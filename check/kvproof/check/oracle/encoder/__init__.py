"""The judge of caches of encoder outputs.

An embedding is a block of the specification of stores, with a key of its own. The cache is one tier and the worker
another one (`kvproof.spec.store.mirror`). A reference of a request to an output is a pin of a reader on each of its
embeddings, so that the rules of stores say what may be evicted, what is a hit, and how much room there is. `rules` runs
them, `judge` does the operations, and `showing` compares what the cache shows.
"""
