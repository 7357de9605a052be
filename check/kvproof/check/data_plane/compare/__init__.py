"""Compare what memory holds with what it must hold, and say where wrong words came from."""
