"""What git complains of where it cannot read an index, or a file into one."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gitckpt.git.process import GitError

TRIES = 5
"""How often git is asked to read files that change meanwhile."""

_CHANGED = ("unstable object source data", "short read while indexing", "failed to read ")
_SIGBUS = 10 if sys.platform == "darwin" else 7  # importing `signal` takes as long as all else that a capture imports

_CORRUPT = ("index file", "bad index", "bad signature", "sharedindex", "shared index", "index entry", "index version", "index uses")


def met_change(error: GitError) -> bool:
    """Tells whether git failed because a file changed while it read that, or was ended, as what it has mapped into memory is not there."""
    return error.code == -_SIGBUS or any(words in error.stderr for words in _CHANGED)


def is_corrupt(error: GitError) -> bool:
    """Tells whether git failed because it could not read the index."""
    return any(words in error.stderr for words in _CORRUPT)
