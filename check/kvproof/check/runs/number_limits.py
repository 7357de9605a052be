"""The least and the largest value of the numbers that options and keys of the configuration take.

With them, a slip of the pen, `inf` or `nan` is a mistake of the caller (exit code 2) and never an overflow in the
middle of a run.
"""

SEED_MAX = 2**63 - 1
BUDGET_SECONDS_MIN = 0.1
BUDGET_SECONDS_MAX = 1_000_000.0  # eleven days; what waits for a process counts milliseconds in 32 bits
