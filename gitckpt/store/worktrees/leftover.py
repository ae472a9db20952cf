"""What lies in a worktree whose directory is gone: what was staged, or committed and reached by no ref."""

from __future__ import annotations

from collections.abc import Iterable

from gitckpt.git.process import GitError
from gitckpt.git.repository import OF_A_WORKTREE, Repository
from gitckpt.git.worktree import intent, modules, operation
from gitckpt.git.worktree.index import PrivateIndex
from gitckpt.model.checkpoint import RESCUE, Worktree
from gitckpt.model.format.document import message_of
from gitckpt.store.checkpoints import Checkpoints
from gitckpt.store.records import layout
from gitckpt.store.snapshot import manifest
from gitckpt.store.snapshot.manifest import Contents

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gitckpt.git.command import Git
    from gitckpt.git.objects.port import Objects


def record_leftover(store: Checkpoints, git_dir: str, path: str) -> None:
    """Records what was staged, or committed and reached by no ref, in a worktree whose directory is gone.

    Args:
        git_dir: what git keeps of the worktree.
        path: where it was.

    Raises:
        CkptError: it could not be recorded.
    """
    there = Repository(git_dir, None, store.repository.object_format)
    with store.seen_from(there, "plumbing") as leftover:
        commit = leftover.objects.head()[0]
        found = _capture_index(there, leftover.objects, commit)
        if found.dirty or (commit and not _is_reached(there, store.index.commits() or ())):
            message = message_of(f"what was staged in {path}, which is gone")
            leftover.record(layout.SAFETY_COMPLETE, worktree=found, trigger=RESCUE, message=message)


def holds_nothing(there: Repository, linked: Iterable[str]) -> bool:
    """Tells whether nothing would be lost with what git keeps of a worktree whose directory is gone. Writes nothing, not even objects.

    Beside what `record_leftover` records, commits count that only the reflog of its HEAD or its ORIG_HEAD names, refs of its own, and
    repositories of submodules: of those no checkpoint would tell.

    Args:
        there: the repository, seen from what git keeps of the worktree.
        linked: the commits of checkpoints.
    """
    if there.operation() is not None or modules.has_own(there.git_dir):
        return False
    git = there.git
    try:
        return _is_as_committed(git) and _is_reached(there, linked, _been_at(git))
    except GitError:  # of what git cannot read, nobody can tell
        return False


def _is_as_committed(git: Git) -> bool:
    """Tells whether nothing is staged, and no ref is the worktree's own."""
    if git.run("diff-index", "--cached", "--quiet", "--ita-visible-in-index", "HEAD", "--", ok=(0, 1, 128)).code != 0:
        return False
    return git.run("for-each-ref", "--count=1", *(space.rstrip("/") for space in OF_A_WORKTREE)).out == b""


def _been_at(git: Git) -> list[str]:
    """Returns the commits that HEAD pointed to before; without reflogs (`core.logAllRefUpdates`) ORIG_HEAD alone tells of one."""
    before = git.run("rev-parse", "--verify", "--quiet", "ORIG_HEAD", ok=(0, 1)).out.decode("ascii")
    return [*git.text("log", "--walk-reflogs", "--format=%H", "HEAD").split(), *before.split()]


def _is_reached(repository: Repository, linked: Iterable[str], more: Iterable[str] = ()) -> bool:
    """Tells whether a branch, a tag, a remote-tracking branch or a linked commit leads to HEAD, and to each of some more commits.

    What `refs/keep` holds does not count: some of it is let go within the hour.

    Raises:
        GitError: history cannot be read; nobody can tell then.
    """
    data = "".join([*(f"{commit}\n" for commit in more), *(f"^{commit}\n" for commit in linked)]).encode("ascii")
    words = ("rev-list", "--max-count=1", "--ignore-missing", "--stdin", "HEAD", "--not", "--branches", "--tags", "--remotes")
    return repository.git.run(*words, data=data).out == b""


def _capture_index(repository: Repository, objects: Objects, commit: str) -> Worktree:
    """Captures what is staged in a worktree whose directory is gone; its files are taken to be those of the index.

    Args:
        repository: seen from what git keeps of the worktree.
        commit: what HEAD points to; "" on an unborn branch.

    Raises:
        GitError: git cannot read the index.
    """
    base = manifest.base_tree(repository, commit)
    under_way = repository.operation()
    empty = intent.placeholder(repository.object_format).decode("ascii")
    with PrivateIndex(repository) as index:
        staged: dict[int, list[bytes]] = {}
        entries = index.entries()
        flags = manifest.flags_of(intent.intended(index, [path for path, _, oid, stage, _ in entries if (oid, stage) == (empty, 0)]))
        intended = set(flags.get(manifest.INTENT, ()))
        for path, mode, oid, stage, _ in entries:
            if path not in intended:
                staged.setdefault(stage, []).append(b"%s %s 0\t%s" % (mode, oid.encode("ascii"), path))
        trees = {}
        for number, lines in sorted(staged.items()):
            index.git("read-tree", "--empty")
            index.put(lines)
            trees[number] = index.write_tree()
        index.put(line for stage in (1, 3, 2) for line in staged.get(stage, ()))  # ours, where there are several
        index.put(staged.get(0, ()))
        files = index.write_tree()
    if (not trees or trees == {0: base}) and not flags and not under_way:
        return Worktree(dirty=False)
    found = Contents(files, trees, flags, operation=operation.collect(repository) if under_way else {})
    needed = operation.holder_of(repository, objects, found.operation, commit)
    tree = manifest.write(repository, objects, found)
    return Worktree(dirty=True, tree=tree, operation=under_way, operation_commit=needed)
