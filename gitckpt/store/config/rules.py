"""The settings for those who speak to a person: where the file loosens what is built in, he is asked once, or told in one line."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gitckpt.git.repository import Repository
    from gitckpt.store.config.looseness import Loosening
    from gitckpt.store.config.settings import Settings
    from gitckpt.store.snapshot.limits import Limits


class Rules:
    """What applies to a repository.

    Args:
        repository: as seen from one of its worktrees.
        tell: is told in one line what does not apply, once.
        ask: is asked first, once for each value on this machine; None means that nobody was there to ask.
    """

    def __init__(self, repository: Repository, tell: Callable[[str], object], ask: Callable[[Sequence[Loosening]], bool | None]) -> None:
        self._repository = repository
        self._tell = tell
        self._ask = ask
        self._told: set[str] = set()

    def limits(self) -> Limits:
        """Return the limits of captures as they are now."""
        return self.read().limits

    def read(self) -> Settings:
        """Return the settings as they are now."""
        from gitckpt.store.config import settings  # for those alone who need them: not every record does

        found = settings.read(self._repository)
        if found.problem and found.problem not in self._told:
            self._told.add(found.problem)
            self._tell(found.problem)
        new = [each for each in found.unapproved if each.digest not in self._told]
        if not new:
            return found
        self._told.update(each.digest for each in new)
        if self._has_approved(new):
            found = settings.read(self._repository)
        if found.unapproved:
            self._tell(settings.notice(found.unapproved))
        return found

    def files(self) -> list[str]:
        """Returns the paths of what the settings come from beside git's configuration, whether it is there or not."""
        from gitckpt.store.config import approval, settings

        return [settings.path(self._repository), approval.path(self._repository)]

    def _has_approved(self, new: Sequence[Loosening]) -> bool:
        from gitckpt.store.config import approval

        declined = approval.declined(self._repository)
        undecided = [each for each in new if each.digest not in declined]
        answer = self._ask(undecided) if undecided else None
        if answer is not None:
            approval.note(self._repository, {each.digest for each in undecided}, approve=answer)
        return bool(answer)
