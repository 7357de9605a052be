"""Small faults planted in the specification, and whether a proof notices them."""
