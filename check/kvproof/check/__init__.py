"""The judges: subjects driven in lockstep with the specification, and what they find."""
