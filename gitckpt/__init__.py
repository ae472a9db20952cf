"""A git-native checkpoint store: state, files and commit of a run, in refs of the repository itself."""

__version__ = "0.1.0"
