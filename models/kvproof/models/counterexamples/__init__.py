"""Counterexamples to obligations that are not proved: small states from which a run breaks a claim.

`search.py` looks for one, resets the values that do not matter, and finds the part of the claim that is false;
`instances.py` has the claims and the sizes that are searched, and reads the solver's model; `replay.py` runs the
specification natively on it; `picture.py` prints the states before and after. `contracts.py` does this for contracts of
operations. A solver's model is only a candidate: it is a counterexample if the run confirms it.

A counterexample to an inductive step begins in a state that satisfies every invariant. This state need not be
reachable; if it is not, an invariant that excludes it is missing.
"""
