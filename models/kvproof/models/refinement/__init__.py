"""Proofs that some functions of `kvproof.impl` refine the specification, for every size.

The function itself runs on containers of symbolic length (`unbounded`), path by path. The translator runs the rule of
the specification that the call corresponds to. The two final states must agree (`abstraction` defines that). This works
for functions without loops, and for loops over any number of blocks (`loops`). What the relation does not name is
unknown before the call (`forget`), and as it was after it; every path is repeated with plain numbers (`replay`). So
far: refcounts, the free list and the append within one block, without a prefix cache; the fork of a table; and with a
prefix cache, pinning a block that was found, and the append within one block while an id without content is free. The
rest of the manager has bounded proofs at most (`kvproof.models.concolic`, up to four blocks); the judges check it by
running it in lockstep with the specification.
"""
