"""Contracts of whole operations, which only the prover reads."""
