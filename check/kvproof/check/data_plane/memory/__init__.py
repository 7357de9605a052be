"""The memory that is filled and checked: pools, layouts, patterns."""
