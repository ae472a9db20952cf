"""A finding of `verify`, with what would mend it."""

from __future__ import annotations

from gitckpt.git.refs import Update
from gitckpt.model.finding import Finding
from gitckpt.model.values import dataclass

REPAIR = "git ckpt verify --repair"


@dataclass(frozen=True, slots=True)
class Link:
    """A change of one line in the note of a commit.

    Attributes:
        commit: whose note.
        old: the line to take out; None to take out none.
        new: the line to put in; None to put in none.
    """

    commit: str
    old: str | None
    new: str | None


@dataclass(frozen=True, slots=True)
class Flaw:
    """A finding, and how `--repair` mends it; without any way of doing so it is left to a person.

    Attributes:
        finding: what is reported.
        updates: the ref updates that mend it, one transaction.
        link: the change of a note that mends it.
        in_index: whether making the derived index anew mends it.
        is_leftover: whether it may be mended only while no checkpoint is being written: it could belong to that one.
        scaffold: the directory in which a worktree was half made.
        worktree: what git keeps of a worktree whose directory is gone, and where that was: git forgets it.
    """

    finding: Finding
    updates: tuple[Update, ...] = ()
    link: Link | None = None
    in_index: bool = False
    is_leftover: bool = False
    scaffold: str = ""
    worktree: tuple[str, str] | None = None

    @property
    def key(self) -> tuple[str, str, str]:
        """What tells it from others, and equals where another look finds it again."""
        return self.finding.code, self.finding.object, self.finding.sentence

    @property
    def can_be_mended(self) -> bool:
        """Whether there is a way to mend it."""
        return bool(self.updates or self.link or self.in_index or self.scaffold or self.worktree)


def mendable(
    code: str,
    what: str,
    sentence: str,
    *,
    updates: tuple[Update, ...] = (),
    link: Link | None = None,
    in_index: bool = False,
    is_leftover: bool = False,
) -> Flaw:
    """Returns a flaw that `--repair` mends. Args: as the attributes of `Finding` and `Flaw`."""
    return Flaw(Finding(code, what, sentence, REPAIR), updates, link, in_index, is_leftover)


def lasting(code: str, what: str, sentence: str, cure: str | None) -> Flaw:
    """Returns a flaw that is left to a person. Args: as the attributes of `Finding`."""
    return Flaw(Finding(code, what, sentence, cure))
