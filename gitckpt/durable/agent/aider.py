"""aider: how it is called. It prints text, for people; what it has changed it commits itself."""

from __future__ import annotations

NAME = "aider"
COMMAND = "aider --yes-always --no-pretty --no-stream --no-check-update --no-show-release-notes --message"
"""Takes the prompt as the argument of `--message`, and ends when it has answered."""
