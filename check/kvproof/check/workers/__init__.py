"""Who does the units of work of a run: processes of this machine, or Ray."""
