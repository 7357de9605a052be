"""Asking Z3 and cvc5, in several processes, within a fixed effort."""
