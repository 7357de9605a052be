"""Recording of LMCache's L1 manager, which is a store."""
