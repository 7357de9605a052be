"""Small faults of block managers, and which judge of `kvproof verify` finds each of them."""
