"""Proofs about the code that runs: small classes of the block manager, unmodified, on symbolic numbers.

`symbolic` has numbers that fork where Python needs to know, `exploration` repeats a run until every answer was given,
`scenario` states what one method does and makes the obligations; then one module for each class. It proves the
inductive step: from any state that satisfies the invariant of the class, over four blocks with unbounded counts, each
method returns, raises and changes what is claimed, and the invariant holds again. It says nothing of more blocks:
there `kvproof.models.refinement` does, for what fits it.
"""
