"""Locks below refs of ours that a git has left which was killed: whoever writes removes them. Those of others are not ours to remove."""

from __future__ import annotations

import os

from gitckpt.git import leftovers, lock
from gitckpt.model.names import first_of
from gitckpt.store.records import layout

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from gitckpt.git.repository import Repository

_SUFFIX = ".lock"
_PATIENCE = 2.0
"""How long those who write are waited for, in seconds."""


def clear(repository: Repository, tell: Callable[[str], None], in_the_way: str) -> bool:
    """Removes the locks below refs of ours that nobody who is alive can have made, if that is what one of them is.

    Nobody of ours writes meanwhile: who does holds the lock of writers, and so do we.

    Args:
        tell: is told what was removed.
        in_the_way: the lock that somebody met.

    Returns:
        Whether that one is gone.
    """
    gone: list[str] = []
    if is_ours(repository, in_the_way):
        if lock.is_ours(os.path.join(repository.make_private_dir(), layout.WRITE_LOCK)):
            gone = _clear(repository)
        else:
            with layout.turn(repository, _PATIENCE) as alone:
                gone = _clear(repository) if alone else []
    _say(gone, tell)
    return not os.path.lexists(in_the_way)


def discard_left(repository: Repository, tell: Callable[[str], object]) -> None:
    """Removes the locks below refs of ours that nobody who is alive can have made, and tells of it; the caller has the lock of writers."""
    _say(_clear(repository), tell)


def is_ours(repository: Repository, path: str) -> bool:
    """Tells whether a file is the lock of a ref of ours."""
    common = os.path.realpath(repository.common_dir)
    ref = os.path.relpath(os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path)), common).removesuffix(_SUFFIX)
    is_below = any(ref.startswith(f"{space}/") for space in layout.OWN) and not layout.is_foreign(ref)
    return path.endswith(_SUFFIX) and (ref == layout.NOTES or is_below)


def there(repository: Repository) -> list[str]:
    """Returns the paths of all locks of refs of ours, whether they were left or not."""
    found = [os.path.join(repository.common_dir, layout.NOTES + _SUFFIX)]
    for space in layout.OWN:
        for parent, _, names in os.walk(os.path.join(repository.common_dir, space)):
            found += [os.path.join(parent, name) for name in names if name.endswith(_SUFFIX)]
    return [path for path in found if is_ours(repository, path) and os.path.lexists(path)]


def _say(gone: list[str], tell: Callable[[str], object]) -> None:
    if gone:
        tell(f"removed {first_of(gone, 1)}, which a git had left that was killed")


def _clear(repository: Repository) -> list[str]:
    left = leftovers.left_locks(repository, there(repository))
    return sorted(path for path, known in left.items() if leftovers.discard(path, known))
