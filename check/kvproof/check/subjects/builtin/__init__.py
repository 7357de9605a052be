"""Adapters of kvproof's own manager, pool and scheduler."""
