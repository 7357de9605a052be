"""Adapters of vLLM: V0 and V1, managers, pools and schedulers."""
