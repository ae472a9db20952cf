"""Append to the error log in gitckpt's private directory; used by the git hook."""

from __future__ import annotations

import os

from gitckpt.git.files import private_dirs
from gitckpt.model import times
from gitckpt.model.arguments import require_callable
from gitckpt.model.errors import CkptError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from gitckpt.git.repository import Repository

FILE = "log"
_LARGE = 1_000_000  # bytes of a log that is full and renamed to `log.1`
LONGEST = 16_384  # characters of an entry; the middle of a longer one is cut out
_LEFT_OUT = "\n… {} characters …\n"


def append_to_log(repository: Repository, text: str) -> str:
    """Append a text without user data to the error log; return the path of the log."""
    path, text = os.path.join(repository.make_private_dir(), FILE), text.rstrip()
    if len(text) > LONGEST:
        length = LONGEST // 2 - len(_LEFT_OUT)
        text = text[:length] + _LEFT_OUT.format(len(text) - 2 * length) + text[-length:]
    try:
        if os.path.exists(path) and os.stat(path).st_size > _LARGE:
            os.replace(path, f"{path}.1")
        opener = private_dirs.open_private_file
        with open(path, "a", encoding="utf-8", errors="backslashreplace", opener=opener) as file:
            file.write(f"{times.to_text(times.now())} {text}\n")
    except OSError as error:
        raise CkptError(f"cannot write {path}: {error.strerror}") from None
    return path


def format_traceback(error: BaseException) -> str:
    """Format an error's traceback without its message, which may quote user data."""
    import traceback

    lines: list[str] = []
    seen_ids: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen_ids:
        seen_ids.add(id(cause))
        class_name, call_lines = type(cause).__qualname__, traceback.format_tb(cause.__traceback__)
        lines[:0] = ["Traceback (most recent call last):\n", *call_lines, f"{class_name}\n"]
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)
    return "".join(lines)


class Listener:
    """Receive messages for the user, on the thread that uses the `Store`.

    `tell` gets each warning. `progress` gets each new status line, which replaces the previous one;
    "" clears the status. `count` gets the name of a task that reads or writes many files, the
    number of files done, and the total; the task has ended when they are equal.
    """

    def __init__(
        self,
        tell: Callable[[str], object] = lambda _: None,
        progress: Callable[[str], object] = lambda _: None,
        count: Callable[[str, int, int], object] | None = None,
    ) -> None:
        require_callable("tell", tell)
        require_callable("progress", progress)
        require_callable("count", count, may_be_none=True)
        self.tell = tell
        self.progress = progress
        self.count = count
