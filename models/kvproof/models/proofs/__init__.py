"""The obligations of the specification: rules, contracts, theorems, and that none is vacuous."""
