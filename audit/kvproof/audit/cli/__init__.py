"""The command `kvproof faults`: what is planted, what was judged before, and the table."""
