"""Managers in any language: a program that answers JSON lines on its standard output; see `docs/pipe.md`."""
