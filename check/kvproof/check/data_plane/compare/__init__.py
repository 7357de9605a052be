"""Compare memory with what it must hold, and find out where wrong words come from."""
