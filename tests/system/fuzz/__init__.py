"""Fuzzing: whatever comes from outside is read as data, or refused by an error of ours, and what is read is written the same.

`targets` has a function for each kind of input, `corpus/` the inputs that reached something new, and those that once failed.
`./dev fuzz` lets them change, guided by what they cover; the tests read each of them again.
"""
