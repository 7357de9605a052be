"""Theorems about the arithmetic of blocks, for all integers and every block size, on the source code that runs.

Functions of the implementation and of the specification are translated into terms (`kvproof.models.translation`). Where
a function does more than arithmetic, only its arithmetic expressions are translated (`sources`). `lengths` is about
tokens, slots and blocks; `appends` about the blocks that an append takes; `admissions` about OK, LATER and NEVER;
`windows` about the blocks that a sliding window drops; `identifiers` about block ids on two devices; `memory` about
bytes.
"""
