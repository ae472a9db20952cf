"""The checkpoint model: pure values and functions, no input or output.

Public modules: all.
"""
