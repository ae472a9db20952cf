"""Fuzz every reader: each input is read, or refused with an error of gitckpt.

Values that were read are written so that they read the same. `targets` has a function for each
kind of input, `corpus/` the inputs that reached new code or once failed. `./dev fuzz` mutates them,
guided by coverage; `test_corpus.py` reads each of them again.
"""
