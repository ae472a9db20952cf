"""What a `git gc --prune=now` takes of a commit that it knows nothing of, written anew before a checkpoint leans on it.

Git itself does not look: `git commit` succeeds while such a gc deletes the tree that it wrote a moment ago. Mostly the content is at hand,
in the worktree that was committed and in its index.

Imported by the hook while a gc runs, and for a minute after one; what is needed once something is gone is imported then.
"""

from __future__ import annotations

from gitckpt.git.objects.anchor import gc_is_running
from gitckpt.git.process import GitError
from gitckpt.model.errors import BusyError, CkptError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from gitckpt.git.objects.port import Objects
    from gitckpt.git.repository import Repository

_TRIES = 10
"""What was written anew loosely may be taken again until it is held; a gc comes by each directory once."""


def secure(repository: Repository, commit: str, text: bytes, above: Iterable[str], objects: Objects | None = None) -> bool:
    """Sees to it that all is there that is new in a commit; while a gc runs, it is held in a pack as well.

    Args:
        commit: its oid.
        text: what it says.
        above: its parents, as git takes it to have them.
        objects: hold it until refs lead to it; None where refs do already.

    Returns:
        Whether it is held.

    Raises:
        CkptError: something is gone, and nothing has its content.
        BusyError: it is taken as fast as it is written.
        GitError: it could not be written.
    """
    revs = [commit, *(f"^{parent}" for parent in above)]
    for _ in range(_TRIES):
        if gc_is_running(repository.common_dir):
            is_there = objects.hold(revs, revs=True) if objects is not None else _hold(repository, revs)
            if is_there and gc_is_running(repository.common_dir):  # else it may have been over before anything was held
                return True
        lost = _lost(repository, revs)
        if lost is None or (lost and _is_promised(repository)):
            return False  # git takes that for whole; or it cannot walk the history, and neither can a gc, which then deletes nothing
        if lost:
            _write_anew(repository, lost, commit, text)
        elif not gc_is_running(repository.common_dir):
            return False
    raise BusyError(
        f"objects of the commit {commit} are pruned as fast as they are written: somebody runs git gc --prune=now",
        hint="wait for its end, then run the command again",
    )


def _hold(repository: Repository, revs: list[str]) -> bool:
    from gitckpt.git.objects import pack

    return pack.hold(repository, revs, revs=True) is not None


def _is_promised(repository: Repository) -> bool:
    from gitckpt.git.graph import partial

    return partial.promisor(repository) is not None


def _lost(repository: Repository, revs: list[str]) -> list[str] | None:
    """Returns what is missing of a commit; None where git cannot tell."""
    done = repository.git.run("rev-list", "--objects", "--no-object-names", "--missing=print", *revs, ok=(0, 128))
    if done.code == 0:
        return [line[1:].decode("ascii") for line in done.out.splitlines() if line.startswith(b"?")]
    return [revs[0]] if repository.cat_file.info(revs[0]) is None else None


def _write_anew(repository: Repository, lost: list[str], commit: str, text: bytes) -> None:
    from gitckpt.git.damage.salvage import Salvage

    with Salvage(repository) as salvage:
        found = {salvage.add("commit", text)} if commit in lost else set(salvage.find(lost, {}))
        for oid in lost:
            if oid not in found:
                raise CkptError(
                    f"the object {oid} of the commit {commit} is gone: a git gc --prune=now took it, and nothing here has its content",
                    hint="see what is missing: git fsck; then stage it, and write the commit anew: git commit --amend",
                )
        for oid in lost:
            try:
                salvage.put(oid)
            except GitError as error:
                if "No such file or directory" not in error.stderr:  # the gc has deleted its directory, as that was empty
                    raise
