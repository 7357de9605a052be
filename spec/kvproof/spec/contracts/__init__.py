"""Contracts of whole operations: the prover proves them, and `audit/` holds programs against them."""
