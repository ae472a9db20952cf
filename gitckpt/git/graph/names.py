"""How far away the refs are after which git names commits, and whether refs of ours take names from others.

`git name-rev` takes each second parent, and a `~` at the end, for 65535 hops (`MERGE_TRAVERSAL_WEIGHT`), and a commit keeps the first of
the nearest names that come its way. On the way down names only get farther: so one that starts D such levels away is in the way of none,
and changes none, that is nearer than D levels. Therefore all names that are nearer are right, whatever refs there are, and of the others
git tells by being asked twice, with those refs and without. (Tags win against all else in each git from 2.39 to 2.55.)
"""

from __future__ import annotations

import os

from gitckpt.git.command import LEAN, Git
from gitckpt.git.files import premises

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gitckpt.git.repository import Repository

_LEVEL = 65535

_NAMES = (*LEAN, "name-rev", "--all")


def farthest_taken(repository: Repository, ours: Mapping[str, str], spaces: tuple[str, ...], depth: int, deadline: float) -> int:
    """Returns how many levels away the farthest of the names is that commits would have without some refs, and have not; 0 without any.

    All commits are walked that refs lead to: two seconds for 100,000 of them. It is asked in a directory beside: git reads what a ref
    points to before it looks at the name of that ref, and all checkpoints may be gigabytes.

    Args:
        repository: whose commits they are.
        ours: the refs that are to take no name, and what they point to.
        spaces: what the names of refs of ours begin with; no other one below takes part.
        depth: how many levels ours start away, at least.
        deadline: when to give up, on the clock of `time.monotonic`.

    Raises:
        DeadlinePassed: it took longer.
        GitError: git cannot walk the history.
    """
    far: dict[bytes, int] = {}

    def note(lines: Iterable[bytes]) -> None:
        far.update((line, away) for line in lines if (away := levels(line)) >= depth)

    def tick_off(lines: Iterable[bytes]) -> None:
        for line in lines:
            far.pop(line, None)

    said = repository.git.run("for-each-ref", "--format=%(objectname) %(refname)", deadline=deadline).out
    begin = tuple(space.encode("ascii") for space in spaces)
    others = [line for line in said.splitlines(keepends=True) if not line.partition(b" ")[2].startswith(begin)]
    place = repository.scratch("names")
    try:
        git = _beside(repository, place)
        _put(place, others)
        git.each_line(*_NAMES, take=note, deadline=deadline)
        if far:
            _put(place, [*others, *(f"{oid} {ref}\n".encode("ascii") for ref, oid in ours.items())])
            git.each_line(*_NAMES, take=tick_off, deadline=deadline)
    finally:
        premises.discard(place)  # what stays is swept later
    return max(far.values(), default=0)


def _beside(repository: Repository, place: str) -> Git:
    """Makes a directory that git takes for a repository with the same objects, and no refs."""
    os.makedirs(os.path.join(place, "refs"))
    for name in ("objects", "shallow"):
        os.symlink(os.path.join(repository.common_dir, name), os.path.join(place, name))
    said = "[core]\nrepositoryFormatVersion = 1\nbare = true\n[extensions]\nobjectFormat = " + repository.object_format
    for name, text in (("HEAD", "ref: refs/heads/none"), ("config", said)):
        with open(os.path.join(place, name), "w", encoding="ascii") as file:
            file.write(f"{text}\n")
    return Git(place, None)


def _put(place: str, refs: Iterable[bytes]) -> None:
    """Has refs be there, and no others."""
    with open(os.path.join(place, "packed-refs"), "wb") as file:
        file.writelines(refs)


def levels(name: bytes) -> int:
    """Returns how many levels away a commit is from the ref that it is named after: `main~5^2~3` is two, one for each of `^2` and `~3`."""
    merges = name.count(b"^") - name.endswith(b"^0")
    if not merges and b"~" not in name:
        return 0
    hops = sum(int(part.partition(b"^")[0]) for part in name.split(b"~")[1:])
    return merges + (name.rfind(b"~") > name.rfind(b"^")) + hops // _LEVEL
