"""Adapter of transformers' continuous batching."""
