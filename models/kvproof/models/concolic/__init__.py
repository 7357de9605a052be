"""Bounded proofs about code that runs: small classes, unmodified, with symbolic integers, on at most four blocks.

`symbolic` has the integers, which fork a run where Python needs a concrete answer; `exploration` repeats a run until
every answer was given; `refusal` and `constructs` refuse what the code would answer without asking them; `frame` has
what a call must leave as it was; `scenario` describes a call of one method and makes the obligations; then there is one
module for each class. What is proved is the inductive step: from any state that satisfies the invariant of the class,
over at most four blocks with unbounded counts, each method returns, raises and changes what is claimed, and the
invariant holds afterwards. Nothing is proved for more blocks; `kvproof.models.refinement` does that, for the functions
that it covers.
"""
