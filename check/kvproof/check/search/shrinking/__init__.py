"""Shrinking: from a run that refutes a property to a short one that refutes it in the same way."""
