"""What can be put under test: one small module each."""
