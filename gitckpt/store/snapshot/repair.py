"""Objects of a snapshot that are damaged in the repository, written anew while the files are at hand.

git takes an object to be there as soon as a file has its name: what a power cut emptied, no `git add` writes again.
"""

from __future__ import annotations

from collections.abc import Collection

from gitckpt.git.damage import integrity, salvage, unusable
from gitckpt.git.damage.salvage import Salvage
from gitckpt.git.objects.encoding import DIRECTORY, GITLINK, MalformedTree, decode_tree
from gitckpt.model.errors import BusyError, CkptError, WorktreeError
from gitckpt.model.values import dataclass
from gitckpt.store.snapshot import manifest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gitckpt.git.objects.port import Objects
    from gitckpt.git.repository import Repository
    from gitckpt.model.checkpoint import Checkpoint

_WRITTEN = "the object {oid} was missing or damaged in the repository, and was written anew from {where}"
_ASIDE = "the object {oid} was damaged in the repository, and is written anew; what was left of it is in {rest}"
_BESIDE = "the object {oid} was damaged in a pack, and is written anew beside it"
_NEEDLESS = "; what was saved does not need it, its commit does: look for it elsewhere: git ckpt verify --repair"
_BEFORE = "; what was saved does not need it, the history of its commit does: look for it elsewhere: git ckpt verify --repair"
_SHOWN = 3
_PLACES = (b"files/", b"raw/", *(b"index/%d/" % stage for stage in range(4)))
"""Where the paths of a worktree stand in a snapshot."""


def failure(repository: Repository, objects: Objects, checkpoint: Checkpoint | None) -> CkptError:
    """Returns why a worktree could not be captured for good.

    Args:
        repository: seen from it.
        checkpoint: the last one that was recorded of it; None where there was none.
    """
    lost = _lost(repository, objects, checkpoint).objects if checkpoint is not None else {}
    with Salvage(repository) as found:
        left = {oid: lost[oid] for oid in lost.keys() - found.find_in_files(repository, lost)}
    for oid, paths in sorted(left.items()):
        return _nowhere(oid, paths)
    return BusyError("HEAD moves, or objects are pruned, as fast as they are written", hint="wait for its end, then run it again")


def make_way(repository: Repository, objects: Objects, oid: str) -> str | None:
    """Writes an object anew that git met, or puts it aside where a capture writes it; returns a sentence, None where neither is possible.

    Args:
        repository: seen from the worktree.
        oid: of the object.
    """
    with Salvage(repository) as found:
        for each, where in found.find([oid], {}).items():
            found.put(each)
            return _WRITTEN.format(oid=oid, where=where)
    if oid in _below(objects, manifest.base_tree(repository, "HEAD"), repository.object_format, set()):
        return None  # nobody writes that again, and what is left of it may be all there is
    rest = salvage.put_aside(repository, oid)
    return _ASIDE.format(oid=oid, rest=rest) if rest is not None else None


def mend(repository: Repository, objects: Objects, checkpoint: Checkpoint) -> list[str]:
    """Writes lost objects anew, or puts what is damaged aside where a capture writes it; returns a sentence about each."""
    lost = _lost(repository, objects, checkpoint)
    left = lost.objects
    said = _write_anew(repository, left)
    for oid in sorted(oid for oid, paths in left.items() if not paths and oid not in lost.committed):
        rest = salvage.put_aside(repository, oid)
        if rest is None:
            unusable.note(repository, oid)
        said.append(_ASIDE.format(oid=oid, rest=rest) if rest is not None else _BESIDE.format(oid=oid))
    return said


def mend_committed(
    repository: Repository, objects: Objects, checkpoint: Checkpoint, lost: Collection[str], before: Collection[str] = ()
) -> list[str]:
    """Writes objects anew that a commit has; returns a sentence about each, and about the first that are nowhere, and not needed.

    Args:
        repository: seen from the worktree that was captured.
        checkpoint: was recorded just now.
        lost: objects that cannot be read; what neither the commit nor the snapshot needs is left alone.
        before: those that only the commits before it have.

    Raises:
        WorktreeError: the snapshot needs one that is nowhere.
    """
    base = manifest.base_tree(repository, checkpoint.git_sha)
    trees: set[str] = set()
    committed = _below(objects, base, repository.object_format, trees, b"files")
    left = {oid: committed[oid] for oid in lost if oid in committed}
    said = _write_anew(repository, left)
    needed = _below(objects, checkpoint.tree, repository.object_format, trees) if left and checkpoint.tree is not None else committed
    for oid in sorted(left.keys() & needed.keys()):
        raise _nowhere(oid, left[oid])
    history: dict[str, set[bytes]] = {oid: set() for oid in before if oid not in committed}
    said += _write_anew(repository, history)
    said += [f"{_nowhere(oid, ()).message}{_BEFORE}" for oid in sorted(history)[:_SHOWN]]
    said += [f"{_nowhere(oid, left[oid]).message}{_NEEDLESS}" for oid in sorted(left)[:_SHOWN]]
    return said


def _write_anew(repository: Repository, lost: dict[str, set[bytes]]) -> list[str]:
    """Writes those of some objects anew whose content is found, and takes them out; returns a sentence about each."""
    said = []
    with Salvage(repository) as found:
        for oid in sorted(found.find_in_files(repository, lost)):
            found.put(oid)
            where = min(lost.pop(oid) or [b"a file"]).decode("utf-8", "replace")
            said.append(_WRITTEN.format(oid=oid, where=where))
        for oid, place in sorted(found.find(lost, lost).items()):
            found.put(oid)
            del lost[oid]
            said.append(_WRITTEN.format(oid=oid, where=place))
    return said


def _nowhere(oid: str, paths: Collection[bytes]) -> WorktreeError:
    where = b", ".join(sorted(paths)[:3]).decode("utf-8", "replace")
    return WorktreeError(
        f"the object {oid}{f' of {where}' if where else ''} is missing or damaged, and no file has its content",
        hint="look for it elsewhere: git ckpt verify --repair; if it was staged, stage it anew: git add",
    )


@dataclass(frozen=True, slots=True)
class _Lost:
    """What cannot be read.

    Attributes:
        objects: their oids; of blobs, the paths of their files.
        committed: those that the commit has, too, so that no capture writes them again.
    """

    objects: dict[str, set[bytes]]
    committed: Collection[str]


def _lost(repository: Repository, objects: Objects, checkpoint: Checkpoint) -> _Lost:
    """Returns the objects that cannot be read of those which a snapshot adds to its commit, and of the trees of both."""
    if checkpoint.tree is None:
        return _Lost({}, ())
    base = manifest.base_tree(repository, checkpoint.git_sha)
    trees: set[str] = set()
    own = _below(objects, checkpoint.tree, repository.object_format, trees)
    known = _below(objects, base, repository.object_format, trees)
    lost = integrity.damaged(repository, sorted({oid for oid in own if oid not in known} | trees))
    return _Lost({oid: own.get(oid, set()) if oid not in trees else set() for oid in lost}, known)


def _below(objects: Objects, tree: str, object_format: str, unreadable: set[str], at: bytes = b"") -> dict[str, set[bytes]]:
    """Returns the objects of a tree, which stands at a path of a snapshot, with paths in the worktree; notes trees that cannot be read."""
    found: dict[str, set[bytes]] = {}
    level: dict[str, set[bytes]] = {tree: {at}}
    while level:
        below: dict[str, set[bytes]] = {}
        for (oid, paths), read in zip(level.items(), objects.read(list(level), None), strict=True):
            found.setdefault(oid, set())
            if read is None or read[0] != "tree":
                unreadable.add(oid)
                continue
            try:
                entries = decode_tree(read[1], object_format)
            except MalformedTree:
                unreadable.add(oid)
                continue
            for name, (mode, child) in entries.items():
                if mode == GITLINK:
                    continue
                inner = {b"/".join([path, name]) if path else name for path in paths}
                if mode == DIRECTORY:
                    below.setdefault(child, set()).update(inner)
                else:
                    found.setdefault(child, set()).update(_in_worktree(inner))
        level = below
    return found


def _in_worktree(paths: Collection[bytes]) -> set[bytes]:
    """Returns the paths as the worktree has them."""
    return {path.removeprefix(place) for path in paths for place in _PLACES if path.startswith(place)}
