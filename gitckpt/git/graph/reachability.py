"""Which commits lead to which: one walk of git's for any number of them.

Commits that are missing count for nothing, and nothing is fetched. Replaced commits (git-replace(1)) lead where they say themselves, as
`git gc` sees it. Where clocks went wrong by days, git may miss that one leads to another, and never the reverse; but for `unreached`.
"""

from __future__ import annotations

from itertools import chain, islice

from gitckpt.git.command import LEAN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from gitckpt.git.command import Git

_AT_ONCE = 1000

LOT, END = 100_000, 10_000
"""So many revisions are told to one walk, which takes a kilobyte of git's memory for each; by so many of them the next lot is cut off."""


def newest(git: Git, commits: Collection[str]) -> set[str]:
    """Returns those of some commits that no other of them leads to.

    Raises:
        GitError: git cannot walk the history.
    """
    return _walk(git, [f"{commit}^!" for commit in commits]) if commits else set()


def between(git: Git, above: Iterable[str], below: Iterable[str]) -> set[str]:
    """Returns the commits to which one of those above leads, and none of those below; each leads to itself.

    Raises:
        GitError: git cannot walk the history.
    """
    return _walk(git, chain(above, (f"^{commit}" for commit in below)))


def outside(git: Git, commits: Iterable[str], tips: Iterable[str]) -> set[str]:
    """Returns those of some commits that no tip leads to, and that are there. A tip leads to itself.

    Args:
        commits: may be gone through twice.
        tips: likewise.

    Raises:
        GitError: git cannot walk the history.
    """
    if next(iter(commits), None) is None:
        return set()
    found = _walk(git, chain(commits, (f"^{tip}" for tip in tips)))
    return found.intersection(commits) if found else found


def unreached(git: Git, commits: Iterable[str], tips: Collection[str]) -> set[str]:
    """Returns what `outside` does, and is never misled by dates; where there is something to return, it walks all that the tips lead to.

    Args:
        commits: may be gone through again and again, the newest first.
        tips: likewise.

    Raises:
        GitError: git cannot walk the history.
    """
    commits = _doubtful(git, commits, tips)
    # git ends a walk that excludes something where a handful of dates say that no more will come: six commits of 1970 are enough.
    found = outside(git, commits, tips)
    return found - _walk(git, tips) if found and tips else found


def _doubtful(git: Git, commits: Iterable[str], tips: Collection[str]) -> Iterable[str]:
    """Returns those of some commits that may be outside of what tips lead to: all of a few; of many, what no lot shows to be inside.

    What the commits at the end of a lot lead to is inside where they are.
    """
    if len(list(islice(commits, LOT + 1))) <= LOT:
        return commits
    found: set[str] = set()
    remaining, inside = iter(commits), tips
    while lot := list(islice(remaining, LOT)):
        doubtful = outside(git, lot, inside)
        found |= doubtful
        inside = [commit for commit in lot[-END:] if commit not in doubtful] or tips
    return found


def above(git: Git, tips: Collection[str], commits: Iterable[str]) -> set[str]:
    """Returns those of some tips that lead to one of some commits, and that none of the commits leads to.

    Raises:
        GitError: git cannot walk the history.
    """
    if not tips or next(iter(commits), None) is None:
        return set()
    return _walk(git, chain(tips, (f"^{commit}" for commit in commits)), "--ancestry-path").intersection(tips)


def _walk(git: Git, revs: Iterable[str], *options: str) -> set[str]:
    """Returns the oids that git says, told many revisions, which need not be in memory at once."""
    found: set[str] = set()
    words = (*LEAN, "rev-list", "--ignore-missing", *options, "--stdin")
    git.each_line(*words, take=lambda lines: found.update(line.decode("ascii") for line in lines), data=lines_of(revs))
    return found


def lines_of(words: Iterable[str]) -> Iterator[bytes]:
    """Yields many words in ASCII, a line each, for the input of a process."""
    remaining = iter(words)
    while some := list(islice(remaining, _AT_ONCE)):
        yield "".join(f"{word}\n" for word in some).encode("ascii")
