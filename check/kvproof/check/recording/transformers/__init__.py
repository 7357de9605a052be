"""Recording of transformers' continuous batching."""
