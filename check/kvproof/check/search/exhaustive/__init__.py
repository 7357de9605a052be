"""Exhaustive breadth-first search of small scopes, on the specification and on subjects."""
