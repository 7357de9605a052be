"""Proofs that the code that runs refines the specification, for all sizes.

The real functions of `kvproof.impl` run on containers of any length (`unbounded`), path by path; beside them the
translator runs the rule of the specification that the call stands for; and the two end in states that agree
(`abstraction` says what that is). What fits is loop-free, or a loop that is a fold of its body (`folds`): refcounts,
the free list, the append within one block with its copy on write, and the fork of a table, without a prefix cache;
with one, only taking a block that is found. The rest of the manager is held by `kvproof.models.concolic` over four
blocks, and by the judges in lockstep.
"""
