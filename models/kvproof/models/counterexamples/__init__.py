"""Why something is not proved: a small concrete state from which running the specification breaks the claim.

`search.py` asks for one, `instances.py` has the sizes in which it looks and reads the solver's model, `replay.py` runs
the text natively on it, `shrinking.py` puts back whatever does not matter, `clauses.py` finds the clause that is false
and `picture.py` shows the state before and after. What a solver says is a candidate; only what the run confirms is a
counterexample.

A counterexample to an inductive step begins in a state that satisfies every invariant. Whether that state can be
reached is another question: if it cannot, an invariant is missing that says so.
"""
