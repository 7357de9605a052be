"""Managers in any language: a program that answers with JSON lines on standard output; see `docs/pipe.md`."""
