"""The device that a run uses: its environment, and whether it still works."""
