"""A run: the round loop with its clock, its charges, its checkpoints and its step sizes."""
