"""Contracts of whole operations: the prover proves them, and `program_contracts` holds programs against them."""
