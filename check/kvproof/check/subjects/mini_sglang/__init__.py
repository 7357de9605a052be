"""Adapter of mini-sglang's cache manager."""
