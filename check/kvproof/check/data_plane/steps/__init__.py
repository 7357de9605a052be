"""What one step of a worker does: its moves, their order, their hazards, and an interpreter."""
