"""vLLM's own block objects (systems S4 to S11) and first-generation manager (S1 to S3), by vLLM's names."""
