"""The one door to agent commands: which client it is, how it is asked, and what its output says."""
