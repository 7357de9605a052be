"""Runs of the data plane: cases, correctness, results."""
