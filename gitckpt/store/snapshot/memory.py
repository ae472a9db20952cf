"""What a process remembers of the last capture of a worktree: where nothing was to be captured, it need not look as closely the next time.

A run whose phases change no file captures the same worktree a hundred times: a `git status` and the settings cost 13 ms each time, their
stat data 3 ms for a thousand files.
"""

from __future__ import annotations

from gitckpt.git.process import GitError
from gitckpt.git.worktree.fingerprint import Fingerprint
from gitckpt.model.values import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from collections.abc import Set as AbstractSet

    from gitckpt.git.repository import Repository
    from gitckpt.store.snapshot.capture import Captured
    from gitckpt.store.snapshot.limits import Limits


@dataclass(frozen=True, slots=True)
class _Sight:
    """A capture that found nothing."""

    commit: str
    limits: Limits | None
    """What it left out; None where nobody asked for the settings."""

    directories: AbstractSet[bytes]
    fingerprint: Fingerprint | None
    """Taken before it; None where it was the first one."""


@dataclass(frozen=True, slots=True)
class Guess:
    """That a capture would find nothing, which is still to be confirmed.

    Attributes:
        limits: with which it would find nothing.
        holds: tells whether it is so now: looks at the stat data of each file.
    """

    limits: Limits
    holds: Callable[[], bool]


class Memory:
    """Remembers the last capture of a worktree. Threads may share it.

    Args:
        repository: seen from the worktree.
    """

    def __init__(self, repository: Repository) -> None:
        self._repository = repository
        self._last: _Sight | None = None
        self._parts: tuple[tuple[str, str], Collection[str] | None] = ("", ""), None

    def guess(self, commit: str, limits: Limits | None) -> Guess | None:
        """Returns what to expect of a capture, where it can be confirmed without one: that it finds nothing.

        Args:
            commit: what HEAD points to.
            limits: what it is to leave out; None for what the settings say, which are as they were then.
        """
        last = self._last
        known = limits or (last.limits if last is not None else None)
        if last is None or last.fingerprint is None or last.commit != commit or known is None or known.include:
            return None
        fingerprint = last.fingerprint
        return Guess(known, lambda: self._repository.operation() is None and fingerprint.holds())

    def look(self, commit: str, settings: Callable[[], list[str]]) -> Fingerprint | None:
        """Returns how the worktree looks before a capture, where the last one found nothing in it.

        Only then is it worth the time: where phases commit or leave changes, the next one finds something again.

        Args:
            commit: what HEAD points to.
            settings: returns the paths of files that say what is left out, which may be ignored.
        """
        last = self._last
        if last is None or last.commit != commit:
            return None
        try:
            return Fingerprint.take(self._repository, last.directories, settings())
        except GitError:
            return None  # the capture knows what to do about an index that is damaged

    def learn(self, commit: str, limits: Limits | None, found: Captured, before: Fingerprint | None) -> None:
        """Takes note of what a capture found.

        Args:
            commit: what HEAD pointed to.
            limits: what it left out by the settings; None where it left out something else.
            found: what it found.
            before: what `look` returned before it.
        """
        self._parts = (commit, found.files), found.parts
        if found.directories is None:
            self._last = None
            return
        directories = frozenset(found.directories)
        if before is not None and before.directories != directories:
            before = None  # it was taken without those that came up meanwhile
        self._last = _Sight(commit, limits, directories, before)

    def parts(self, commit: str, files: str) -> Collection[str] | None:
        """Returns the objects that the tree of all files has beside a commit; None unless the last capture of it knows.

        Args:
            commit: what HEAD pointed to.
            files: the tree.
        """
        of, found = self._parts
        return found if of == (commit, files) else None
