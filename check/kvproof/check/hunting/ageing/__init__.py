"""Ageing: an engine goes on, and its adapter was written for what it was.

`kvproof engines check` hunts a newer release beside the newest one that a subject was judged with, as `kvproof gate`
hunts two states of a repository, and writes one page: which findings came and went, which functions differ that the
adapter plays or that the walks ran, and which options of the engine have another default.
"""
