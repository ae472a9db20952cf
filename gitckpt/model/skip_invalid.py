"""Report any error in a document as `InvalidCheckpoint`, which readers can skip."""

from __future__ import annotations

from gitckpt.model.errors import CkptError, InvalidCheckpoint

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    T = TypeVar("T")


def read_or_raise_invalid(ref: str, read: Callable[[], T]) -> T:
    try:
        return read()
    except CkptError:
        raise
    except Exception as error:
        problem = f"{type(error).__name__}: {' '.join(str(error).split())}".removesuffix(": ")
        raise InvalidCheckpoint(ref, "", f"cannot be read: {problem}") from error
