"""The command line: one file per command, and `app`, which holds them all."""
