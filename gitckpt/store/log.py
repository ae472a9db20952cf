"""The log: a file in the private directory, for what went wrong where nobody could be told. Imported by the hook."""

from __future__ import annotations

import os

from gitckpt.model import times
from gitckpt.model.errors import CkptError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gitckpt.git.repository import Repository

FILE = "log"
_LARGE = 1_000_000


def append(repository: Repository, text: str) -> str:
    """Writes an entry with the time in front; a log that has grown over 1 MB is put aside first, as `log.1`.

    Args:
        repository: whose log.
        text: one line, or more.

    Returns:
        The path of the log.

    Raises:
        CkptError: it cannot be written.
    """
    path = os.path.join(repository.make_private_dir(), FILE)
    try:
        if os.path.exists(path) and os.stat(path).st_size > _LARGE:
            os.replace(path, f"{path}.1")
        with open(path, "a", encoding="utf-8", errors="backslashreplace") as file:
            file.write(f"{times.to_text(times.now())} {text.rstrip()}\n")
    except OSError as error:
        raise CkptError(f"cannot write {path}: {error.strerror}") from None
    return path
