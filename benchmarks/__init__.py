"""Speed, measured on demand: each module prints its own numbers; `python -m benchmarks` runs them all."""
