"""The autonomous loop: an agent works at a plan, again and again, until the issues are closed and the tests pass."""
