"""Adapters of nano-vllm's block manager and scheduler."""
