"""The judge of schedulers: one scheduler step at a time."""
