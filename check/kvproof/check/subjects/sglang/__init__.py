"""Adapter of SGLang's token pool and prefix cache."""
