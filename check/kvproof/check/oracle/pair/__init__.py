"""The judge of pairs of engines.

`rules` has the state of the specification of stores, with the two sides as its tiers; `oracle` has what is observed and
expected; `serving`, `network` and `resting` do the operations; `judge` puts them together, and draws.
"""
