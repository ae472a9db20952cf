"""The settings of git behind the hooks: which of them are gitckpt's, and how a change of them is taken back."""

from __future__ import annotations

import fnmatch
import os

from gitckpt.git import config
from gitckpt.store.records.layout import NOTES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from contextlib import ExitStack

    from gitckpt.git.repository import Repository

MODE = "ckpt.hooks"
CHOSEN = "ckpt.hooksChosen"
"""Whether a person chose the mode, so that it outlasts the next `git ckpt init`."""
DIRECTORY = "ckpt.hooksDirectory"
"""Where the hook files went, unless that is `hooks` in the common directory."""
SET_BY_INIT = "ckpt.setByInit"
"""Names of what the user did not have before us, and what goes with us."""

REWRITE_REF = "notes.rewriteRef"
_REWRITE_MODE = "notes.rewriteMode"
OUR_NOTES = f"{NOTES[:-1]}[{NOTES[-1]}]"
"""A pattern that matches our notes alone: as long as a ref is not there, git warns at each amend where it is named; not of a pattern."""
_CRUFT_PACKS = "gc.cruftPacks"
"""Whether git keeps garbage in packs, for the two weeks that it is kept: git before 2.41 makes each object a file, and warns of them."""
MADE_DIRECTORY = "hooks directory"

_SORTED_UNION = "cat_sort_uniq"
VALUES = ((REWRITE_REF, OUR_NOTES), (REWRITE_REF, NOTES), (_REWRITE_MODE, _SORTED_UNION), (_CRUFT_PACKS, "true"))
"""What `init` sets, or once set, and `uninit` takes out again where nobody has changed it."""


class HookSettings:
    """The repository's own settings for hooks and notes."""

    def __init__(self, repository: Repository) -> None:
        self._repository = repository
        self._everywhere = config.read(repository, r"^(notes\.rewrite|gc\.cruftpacks$)")
        # Alone: what a person set for all repositories is not ours to change or to restore.
        self._values = config.read_local(repository, r"^(ckpt\.|notes\.rewrite|gc\.cruftpacks$|hook\.gitckpt-)")

    def all(self, name: str) -> list[str]:
        """Returns the values of a name."""
        return self._values.get(_canonical(name), [])

    def last(self, name: str) -> str | None:
        """Returns the value that counts; None where the name is not set."""
        values = self.all(name)
        return values[-1] if values else None

    def rewrites_notes(self) -> bool:
        """Tells whether git carries our notes through amend and rebase."""
        patterns = self.all(REWRITE_REF) + self._everywhere.get(REWRITE_REF.lower(), [])
        return any(fnmatch.fnmatchcase(NOTES, pattern) for pattern in patterns)

    def rewrites_other_notes(self) -> bool:
        """Tells whether a person has settled, for this repository or for all, how git carries notes of their own."""
        others = [ref for ref in self._everywhere.get(REWRITE_REF.lower(), []) if ref not in (NOTES, OUR_NOTES)]
        return bool(others or self._everywhere.get(_REWRITE_MODE.lower()))

    def keeps_garbage_together(self) -> bool:
        """Tells whether somebody has said, for this repository or for all, how git keeps what nothing leads to."""
        return _CRUFT_PACKS.lower() in self._everywhere

    def set(self, name: str, value: str, undo: ExitStack) -> bool:
        """Gives a name one value; returns whether it had another."""
        before = self.all(name)
        if before == [value]:
            return False
        self.drop(name, undo)
        self.add(name, value, undo)
        return True

    def add(self, name: str, value: str, undo: ExitStack) -> None:
        """Gives a name one more value, unless it has it."""
        if value not in self.all(name):
            undo.callback(config.unset, self._repository, name, value)  # first: it may be written, and the disk fail to flush it
            config.write(self._repository, name, value, add=True)
            self._values.setdefault(_canonical(name), []).append(value)

    def drop(self, name: str, undo: ExitStack, value: str | None = None) -> bool:
        """Takes a name away, or one of its values; returns whether it was there."""
        before = self.all(name)
        gone = [each for each in before if value in (None, each)]
        if gone:
            config.unset(self._repository, name, value)
            for each in reversed(gone):
                undo.callback(config.write, self._repository, name, each, add=True)
            self._values[_canonical(name)] = [each for each in before if each not in gone]
        return bool(gone)


def follow_rewrites(settings: HookSettings, undo: ExitStack) -> list[str]:
    """Makes git carry our notes through amend and rebase; returns what it did."""
    by_us = settings.all(SET_BY_INIT)
    if settings.rewrites_notes() and REWRITE_REF not in by_us:
        return []
    is_older = REWRITE_REF in by_us and NOTES in settings.all(REWRITE_REF)  # as it was set once
    wanted = [(REWRITE_REF, OUR_NOTES)] if is_older or not settings.rewrites_notes() else []
    if not settings.all(_REWRITE_MODE) and (_REWRITE_MODE in by_us or not settings.rewrites_other_notes()):
        # Otherwise not: the mode holds for all notes, and would sort the lines of the user's own.
        wanted.append((_REWRITE_MODE, _SORTED_UNION))
    for name, _ in wanted:
        settings.add(SET_BY_INIT, name, undo)  # first: what is set and not noted would stay for ever after a kill
    for name, value in wanted:
        settings.add(name, value, undo)
    if is_older:
        settings.drop(REWRITE_REF, undo, NOTES)
    return [f"added {name} = {value} to the configuration" for name, value in wanted]


def keep_garbage_together(settings: HookSettings, undo: ExitStack) -> list[str]:
    """Makes git keep what expires in packs until it goes; returns what it did."""
    if settings.keeps_garbage_together():
        return []
    settings.add(SET_BY_INIT, _CRUFT_PACKS, undo)  # first, as above
    settings.add(_CRUFT_PACKS, "true", undo)
    return [f"added {_CRUFT_PACKS} = true to the configuration"]


def hooks_directory(repository: Repository) -> str:
    """Returns the directory in which git looks for hooks; its path is absolute, its symbolic links are followed."""
    where = [] if repository.worktree is not None else ["-C", repository.git_dir]
    return os.path.realpath(repository.git.text(*where, "rev-parse", "--path-format=absolute", "--git-path", "hooks"))


def default_directory(repository: Repository) -> str:
    """Returns the directory in which git looks for hooks unless `core.hooksPath` says otherwise; links are followed."""
    return os.path.realpath(os.path.join(repository.common_dir, "hooks"))


def installed_directory(repository: Repository, settings: HookSettings) -> str:
    """Returns the directory that the hook files went into, which need not be the one that git looks into now; links are followed."""
    return os.path.realpath(os.path.join(repository.common_dir, settings.last(DIRECTORY) or "hooks"))


def _canonical(name: str) -> str:
    """Returns a name as git lists it: section and key in lower case, what is between them as it is."""
    section, _, rest = name.partition(".")
    between, dot, key = rest.rpartition(".")
    return f"{section.lower()}.{between}{dot}{key.lower()}"
