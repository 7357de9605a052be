"""The optimized block manager and its KV cache engine: one implementation among those that are judged."""
