"""Run the data plane: the cases, the harness that runs one case, the results."""
