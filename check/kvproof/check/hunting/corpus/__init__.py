"""The corpus: real faults of KV-cache managers as data, shown both ways, and the score of what looks for them."""
