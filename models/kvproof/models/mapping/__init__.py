"""The algebra of copy mappings: lists of (source, target) pairs that a worker applies to blocks of memory.

A list says nothing of how it is run. It may be run pair by pair, or read everything first and then write, or by a
kernel whose threads read and write in any order. The theorems say when all of these give the same bytes: for lists of
every length, any number of blocks, any content. `copies` has the words, `pairs` the exact conditions for two copies,
`lists` the inductions, `phases` the three lists of one step. Where a condition fails, `hazards` has the solver find
the smallest example, and `replay` runs it in plain Python.
"""
