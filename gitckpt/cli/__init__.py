"""The command line. Only this package prints, and asks people."""
