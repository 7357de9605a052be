"""Shrinking: from a counterexample to a shorter and simpler one that refutes the same property in the same way."""
