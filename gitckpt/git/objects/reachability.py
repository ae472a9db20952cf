"""Which commits lead to which: one walk of git's for any number of them.

Commits that are missing count for nothing, and nothing is fetched. Replaced commits (git-replace(1)) lead where they say themselves, as
`git gc` sees it. Where clocks went wrong by days, git may miss that one leads to another, and never the reverse; but for `unreached`.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from gitckpt.git.command import Git

AS_GC = {"GIT_NO_LAZY_FETCH": "1"}


def newest(git: Git, commits: Collection[str]) -> set[str]:
    """Returns those of some commits that no other of them leads to.

    Raises:
        GitError: git cannot walk the history.
    """
    return _walk(git, [f"{commit}^!" for commit in commits])


def outside(git: Git, commits: Collection[str], tips: Iterable[str]) -> set[str]:
    """Returns those of some commits that no tip leads to, and that are there. A tip leads to itself.

    Raises:
        GitError: git cannot walk the history.
    """
    return _walk(git, [*commits, *(f"^{tip}" for tip in tips)] if commits else []) & set(commits)


def unreached(git: Git, commits: Collection[str], tips: Collection[str]) -> set[str]:
    """Returns what `outside` does, and is never misled by dates; where there is something to return, it walks all that the tips lead to.

    Raises:
        GitError: git cannot walk the history.
    """
    # git ends a walk that excludes something where a handful of dates say that no more will come: six commits of 1970 are enough.
    found = outside(git, commits, tips)
    return found - _walk(git, list(tips)) if found and tips else found


def above(git: Git, tips: Collection[str], commits: Iterable[str]) -> set[str]:
    """Returns those of some tips that lead to one of some commits, and that none of the commits leads to.

    Raises:
        GitError: git cannot walk the history.
    """
    excluded = [f"^{commit}" for commit in commits]
    return _walk(git, [*tips, *excluded], "--ancestry-path") & set(tips) if tips and excluded else set()


def _walk(git: Git, revs: list[str], *options: str) -> set[str]:
    if not revs:
        return set()
    data = "".join(f"{rev}\n" for rev in revs).encode("ascii")
    return set(git.run("rev-list", "--ignore-missing", *options, "--stdin", data=data, env=AS_GC).out.decode("ascii").split())
