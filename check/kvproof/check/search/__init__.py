"""Where counterexamples come from: random walks, exhaustive search, Hypothesis, and shrinking."""
