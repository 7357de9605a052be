"""Recording of vLLM's V0 block manager."""
