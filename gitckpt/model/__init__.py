"""What a checkpoint is: pure values and functions, no input or output.

Doors: all.
"""
