"""Which inputs of runs were given here: those of a run that was fetched are somebody else's, and an input may be a command.

A file in the private directory, which is never fetched or pushed, has a line for each set of inputs.
"""

from __future__ import annotations

import hashlib
import json
import os
from typing import TYPE_CHECKING

from gitckpt.model.errors import CkptError

if TYPE_CHECKING:
    from gitckpt.git.repository import Repository
    from gitckpt.model.checkpoint import Pipeline

FILE = "vouched"


def vouch(repository: Repository, pipeline: Pipeline) -> None:
    """Notes that somebody here has given the inputs of a run, or has looked at them.

    Args:
        repository: where.
        pipeline: what drives the run.

    Raises:
        CkptError: it cannot be written.
    """
    if is_vouched(repository, pipeline):
        return
    path = os.path.join(repository.make_private_dir(), FILE)
    try:
        with open(path, "ab") as file:
            file.write(f"{_digest(pipeline)}\n".encode())
    except OSError as error:
        raise CkptError(f"cannot write {path}: {error.strerror}") from None


def is_vouched(repository: Repository, pipeline: Pipeline) -> bool:
    """Tells whether somebody here has given these inputs, or has looked at them; the arguments are those of `vouch`."""
    try:
        with open(os.path.join(repository.private_dir, FILE), "rb") as file:
            return _digest(pipeline).encode() in file.read().split()
    except OSError:
        return False


def _digest(pipeline: Pipeline) -> str:
    said = [pipeline.name, sorted(pipeline.inputs.items()), sorted(pipeline.contents.items())]
    return hashlib.sha256(json.dumps(said).encode()).hexdigest()
