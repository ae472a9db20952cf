"""The log: a file in the private directory, for what went wrong where nobody could be told. Imported by the hook."""

from __future__ import annotations

import os

from gitckpt.git.files import premises
from gitckpt.model import times
from gitckpt.model.arguments import require_callable
from gitckpt.model.errors import CkptError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from gitckpt.git.repository import Repository


# The log: a file in the private directory, for what went wrong where nobody could be told. Imported by the hook.


FILE = "log"
_LARGE = 1_000_000
LONGEST = 16_384
"""An entry has at most so many characters: of a longer one, the middle is left out."""

_LEFT_OUT = "\n… {} characters …\n"


def append(repository: Repository, text: str) -> str:
    """Writes an entry with the time in front; a log that has grown over 1 MB is put aside first, as `log.1`.

    Logs are sent along with reports of bugs: no argument, no state and no content of a file belongs here.

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
        with open(path, "a", encoding="utf-8", errors="backslashreplace", opener=premises.create) as file:
            file.write(f"{times.to_text(times.now())} {_bounded(text.rstrip())}\n")
    except OSError as error:
        raise CkptError(f"cannot write {path}: {error.strerror}") from None
    return path


def trace(error: BaseException) -> str:
    """Returns where an error arose, as Python shows it, but without its words, which may quote what somebody stores."""
    import traceback

    lines: list[str] = []
    seen: set[int] = set()
    found: BaseException | None = error
    while found is not None and id(found) not in seen:
        seen.add(id(found))
        lines[:0] = ["Traceback (most recent call last):\n", *traceback.format_tb(found.__traceback__), f"{type(found).__qualname__}\n"]
        found = found.__cause__ or (None if found.__suppress_context__ else found.__context__)
    return "".join(lines)


def _bounded(text: str) -> str:
    if len(text) <= LONGEST:
        return text
    half = LONGEST // 2 - len(_LEFT_OUT)
    return text[:half] + _LEFT_OUT.format(len(text) - 2 * half) + text[-half:]


# What a store calls to tell something while it works; by default nothing.


class Listener:
    """Functions that a store calls, from any thread that uses it; for `Store.open`.

    Args:
        tell: is told, a sentence at a time, what was done unasked (the log has it, too), and what of the settings does not apply.
        progress: is given a line to show for what takes long, which the next one replaces; "" ends it.

    Raises:
        UsageError: one of them is no function.
    """

    def __init__(
        self,
        tell: Callable[[str], object] = lambda _: None,
        progress: Callable[[str], object] = lambda _: None,
    ) -> None:
        for name, call in (("tell", tell), ("progress", progress)):
            require_callable(name, call)
        self.tell = tell
        self.progress = progress
