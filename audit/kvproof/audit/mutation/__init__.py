"""Mutation testing of the specification: make small changes to its rules, and see whether a proof notices."""
