"""The settings for commands: what of the file does not apply is told once."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from gitckpt.git.repository import Repository
    from gitckpt.store.config.settings import Settings
    from gitckpt.store.snapshot.limits import Limits


class Rules:
    """The settings of a repository, read when they are needed.

    Args:
        repository: as seen from one of its worktrees.
        tell: is given each sentence about the settings once.
    """

    def __init__(self, repository: Repository, tell: Callable[[str], object]) -> None:
        self._repository = repository
        self._tell = tell
        self._told: set[str] = set()

    def limits(self) -> Limits:
        """Return the limits of captures as they are now."""
        return self.read().limits

    def read(self) -> Settings:
        """Return the settings as they are now."""
        from gitckpt.store.config import settings  # not every record needs them

        found = settings.read(self._repository)
        for sentence in filter(None, (found.problem, found.notice)):
            if sentence not in self._told:
                self._told.add(sentence)
                self._tell(sentence)
        return found
