"""How fast a device moves blocks, as ratios to plain copies."""
