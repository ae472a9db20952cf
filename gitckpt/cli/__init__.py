"""The command line: the only package that prints, or asks the user a question."""
