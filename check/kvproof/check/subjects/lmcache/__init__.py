"""Adapters of what LMCache keeps KV with."""
