"""The judges: subjects in lockstep with the specification, searches, shrinking, and the command line."""
