"""Recording of vLLM's offloading manager for host memory, which is a store."""
