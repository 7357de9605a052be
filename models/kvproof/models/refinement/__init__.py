"""Proofs that some functions of `kvproof.impl` refine the specification, for every size.

The function itself runs on containers of symbolic length (`unbounded`), path by path. The translator runs the rule of
the specification that the call corresponds to. The two final states must agree (`abstraction` defines that). This works
for functions without loops, and for loops that are folds of their body (`folds`): refcounts, the free list, the append
within one block with its copy-on-write, and the fork of a table, all without a prefix cache; with one, only pinning a
block that was found. The rest of the manager has bounded proofs at most (`kvproof.models.concolic`, up to four blocks);
the judges check it by running it in lockstep with the specification.
"""
