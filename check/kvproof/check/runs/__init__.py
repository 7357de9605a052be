"""A run of several judges: stages, verdicts, the result folder, known findings, resuming."""
