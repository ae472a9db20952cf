"""What holds objects until refs lead to them, while somebody runs `git gc --prune=now`. Imported by the hook.

Such a gc notes what refs lead to, and later deletes every loose object that it has not noted, however young: it takes "now" for the end
of time, so that no time stamp saves one. A pack is left alone: git prunes loose objects only, and a repack deletes no pack that came after
it began, nor one with a file `.keep` beside it. So while a gc runs, objects go into a pack with such a file, until their refs are there;
and what was written loosely before one began is looked for, or packed, once the refs are there.
"""

from __future__ import annotations

import os
import time
from _thread import _local  # `threading` would cost the hook 2 ms

from gitckpt.git import disk
from gitckpt.git.objects import loose
from gitckpt.git.objects.encoding import object_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gitckpt.git.objects.port import Item
    from gitckpt.git.process import GitError
    from gitckpt.git.repository import Repository

_REMEMBERED = 32 << 20
"""Of what was written loosely, the last so many bytes are remembered."""

_PACKED_FROM = 5000
"""So many objects go into a pack at once: loose, each costs a file, and the next `git gc --auto` would pack them."""

_A_MOMENT = 60
"""In seconds, from the end of a gc: what it took may be of a commit that was being made meanwhile, until its message was written."""

_STALE_AFTER = 12 * 3600  # as git takes it


def gc_is_running(common_dir: str) -> bool:
    """Tells whether a `git gc` is at work, by the file that git itself goes by (`gc.pid`); one that a kill left does not count."""
    path = f"{common_dir}/gc.pid"
    if not os.path.exists(path):  # which is sooner known so, and nearly always the case
        return False
    try:
        with open(path, "rb") as file:
            age = time.time() - os.fstat(file.fileno()).st_mtime
            pid, _, host = file.read(1000).strip().partition(b" ")
    except FileNotFoundError:
        return False
    if age > _STALE_AFTER:
        return False
    if os.fsdecode(host) == os.uname().nodename and pid.isdigit():
        from gitckpt.git.leftovers import is_alive  # seldom is there a gc, and the hook comes by here

        return is_alive(int(pid))
    return True


def may_have_pruned(repository: Repository, commit: bytes) -> bool:
    """Tells whether a gc may have taken what is new in a commit: one is at work, or was a moment ago, or took its tree.

    Args:
        commit: what the commit says.
    """
    if gc_is_running(repository.common_dir):
        return True
    try:  # the last that a gc writes
        ended = os.stat(os.path.join(repository.common_dir, "objects", "info", "commit-graph")).st_mtime
    except OSError:
        ended = 0
    if abs(time.time() - ended) < _A_MOMENT:
        return True
    tree = commit[5:].partition(b"\n")[0].decode("ascii", "replace")
    if disk.is_there(repository, tree) or is_partial(repository):  # which git would fetch, and cannot offline
        return False
    return repository.cat_file.info(tree) is None


class Anchor:
    """Writes for both adapters, and holds what each thread has written until its refs are there."""

    def __init__(self, repository: Repository) -> None:
        self._repository = repository
        self._own = _local()

    def _is_needed(self) -> bool:
        """Tells whether what is written now has to be held."""
        return gc_is_running(self._repository.common_dir)

    def write(self, items: Sequence[Item], *, flushed: bool = True) -> list[str]:
        """See `Objects.write`. What is in a pack already is written all the same: no gc that is under way takes it then."""
        if not items:
            return []
        oids = [object_id(kind, data, self._repository.object_format) for kind, data in items]
        if len(items) < _PACKED_FROM and not self._is_needed():
            failed = loose.write(self._repository, items, oids)
            if failed is None:
                self._remember(zip(oids, items, strict=True))
                if flushed:
                    disk.flush_written(self._repository, oids)
                return oids
            if not is_pruned(failed):
                raise failed
        from gitckpt.git.objects import pack

        self._kept().append(pack.write(self._repository, items, keep=True))
        return oids

    def hold(self, names: Iterable[str], *, revs: bool = False) -> bool:
        """Holds objects that somebody else has written, where that is needed; returns whether they are there. Args: as `pack.hold`.

        Raises:
            GitError: a pack could not be written.
        """
        if not self._is_needed():
            return True
        from gitckpt.git.objects import pack

        held = pack.hold(self._repository, names, keep=True, revs=revs)
        if held is not None:
            self._kept().append(held)
        return held is not None

    def _remember(self, written: Iterable[tuple[str, Item]]) -> None:
        """Takes note of objects that were written loosely, each with its oid."""
        remembered = self._loose()
        remembered += written
        size = sum(len(data) for _, (_, data) in remembered)
        while size > _REMEMBERED:
            size -= len(remembered.pop(0)[1][1])

    def settle(self) -> None:
        """Lets go of what this thread has written, as refs lead to it by now; writes anew what a gc has taken before, or may still take.

        Raises:
            GitError: that could not be written.
        """
        remembered = self._loose()
        if remembered:
            # In this order: a gc that is over by the first question has deleted all it will by the second.
            lost = remembered if self._is_needed() else [each for each in remembered if not self._is_there(each[0])]
            if lost:
                from gitckpt.git.objects import pack

                pack.write(self._repository, [item for _, item in lost])
            remembered.clear()
        self._let_go()

    def _let_go(self) -> None:
        """Lets go of what this thread has written, whether refs lead to it or not."""
        kept = self._kept()
        while kept:
            try:
                os.unlink(kept.pop())
            except FileNotFoundError:
                pass

    def _is_there(self, oid: str) -> bool:
        return disk.is_there(self._repository, oid) or self._repository.cat_file.info(oid) is not None

    def _loose(self) -> list[tuple[str, Item]]:
        found: list[tuple[str, Item]] = self._own.__dict__.setdefault("loose", [])
        return found

    def _kept(self) -> list[str]:
        found: list[str] = self._own.__dict__.setdefault("kept", [])
        return found


def is_pruned(error: GitError) -> bool:
    """Tells whether an object could not be written because somebody deleted the directory or the scratch file it was to go into."""
    return "No such file or directory" in error.stderr


def is_partial(repository: Repository) -> bool:
    """Tells whether a remote has promised objects: git marks each pack that came from it. To ask for its configuration takes a process."""
    try:
        return any(name.endswith(".promisor") for name in os.listdir(os.path.join(repository.common_dir, "objects", "pack")))
    except FileNotFoundError:
        return False
