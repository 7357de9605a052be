"""Recording of vLLM's V1 KV cache manager."""
