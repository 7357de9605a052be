"""The third reader of the specification: its text translated to C, compiled once, and called from Python."""
