"""The parts of the explorer: what can be tried in a state, on either level, and what every state is held against."""
