"""The specification itself: state, rules, invariants, operations and theorems."""
