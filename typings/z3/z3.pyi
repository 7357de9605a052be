"""The module in which Z3's Python library keeps its settings."""

Z3_DEBUG: bool
