"""What keeps one bad document from ending a command that reads many."""

from __future__ import annotations

from gitckpt.model.errors import CkptError, InvalidCheckpoint

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    T = TypeVar("T")


def fenced(ref: str, read: Callable[[], T]) -> T:
    """Returns what `read` makes of the document behind a ref, which may have been fetched.

    Args:
        ref: its full name.
        read: raises `CkptError` for what it foresees.

    Raises:
        InvalidCheckpoint: it failed in a way that nobody foresaw: that is said of this ref, and the others go on.
    """
    try:
        return read()
    except CkptError:
        raise
    except Exception as error:
        said = " ".join(str(error).split())
        raise InvalidCheckpoint(ref, "", f"cannot be read: {type(error).__name__}{f': {said}' if said else ''}") from error
