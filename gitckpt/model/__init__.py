"""Floor 0: what a checkpoint is. Pure values and functions, no input or output."""
