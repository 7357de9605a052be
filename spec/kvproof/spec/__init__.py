"""The specification: state, rules, operations, invariants and theorems, each written once in plain Python."""
