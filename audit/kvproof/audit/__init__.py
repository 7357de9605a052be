"""What checks kvproof itself: planted faults, and its readers and provers held against each other.

No user's command needs it, so no wheel has it. `kvproof faults` is here (`cli`), and is there in a checkout only.
"""
