"""Mutants that no judge notices, and why that is no gap: for each the sentence that says so."""

ARGUED: dict[str, str] = {}
