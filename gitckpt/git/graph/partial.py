"""Objects that a partial clone lacks (git's `partial-clone` document): which they are, and how they are fetched in one go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gitckpt.git import config
from gitckpt.git.process import MAY_FETCH, SEE_DAMAGE, GitError
from gitckpt.git.repository import Repository
from gitckpt.model.errors import WorktreeError
from gitckpt.model.names import first_of


def promisor(repository: Repository) -> str | None:
    """Returns the remote that promised the objects which a partial clone lacks; None where the clone is whole."""
    names = config.read(repository, r"^remote\..*\.promisor$")
    return next((name.removeprefix("remote.").removesuffix(".promisor") for name, said in names.items() if config.is_on(said[-1])), None)


def on_purpose(repository: Repository) -> Mapping[str, str]:
    """Returns variables for git as it writes the files of a worktree: in a partial clone it may fetch."""
    return MAY_FETCH if promisor(repository) is not None else {}


def missing(repository: Repository, tree: str, known: str | None, *, blobs: bool = True) -> list[str]:
    """Returns the objects below a tree that are not there. Nothing is fetched.

    Args:
        tree: the tree.
        known: a tree whose objects are not asked for; None for none.
        blobs: whether files count, too.
    """
    words = ["rev-list", "--objects", "--no-object-names", "--missing=print"]
    words += [] if blobs else ["--filter=blob:none"]
    done = repository.git.run(*words, tree, *(["--not", known] if known else []), ok=(0, 128))
    if done.code != 0 and tree in done.complaint:  # git ends where the top itself is missing
        return [tree]
    return [line[1:].decode("ascii") for line in done.out.splitlines() if line.startswith(b"?")]


def fetch_missing(repository: Repository, tree: str, known: str | None, *, blobs: bool = True) -> None:
    """Fetches what a partial clone lacks below a tree, and nothing else: all at once, or level by level.

    Args: as `missing`.

    Raises:
        WorktreeError: the remote cannot be reached, or has not got them; they are named.
    """
    remote = promisor(repository)
    if remote is None:
        return
    options = ("--no-tags", "--no-write-fetch-head", "--recurse-submodules=no", "--filter=blob:none", "--stdin")
    words = ("-c", "fetch.negotiationAlgorithm=noop", "fetch", "--quiet", remote, *options)
    before: list[str] = []
    while wanted := missing(repository, tree, known, blobs=blobs):
        if wanted == before:
            raise unreachable(wanted)
        data = "".join(f"{oid}\n" for oid in wanted).encode("ascii")
        try:
            repository.git.run(*words, data=data, env=MAY_FETCH)
        except GitError:
            raise unreachable(wanted) from None
        before = wanted  # trees that came now may name others that are missing


def fetch_for(repository: Repository, snapshot: str | None, commit: str) -> None:
    """Fetches what has to be read of a snapshot before its files: trees, and lists beside them.

    Args:
        snapshot: oid of its tree; None where the commit stands for it.
        commit: full oid; "" for none.

    Raises:
        WorktreeError: as `fetch_missing`.
    """
    if promisor(repository) is None:
        return
    tree = snapshot
    if tree is None and commit:
        header = next(repository.cat_file.contents([commit]))
        tree = header[2][:80].split()[1].decode("ascii") if header is not None else None
    if tree is None:
        return
    fetch_missing(repository, tree, None, blobs=False)
    if snapshot is not None:
        files = repository.cat_file.info(f"{snapshot}:files")
        fetch_missing(repository, snapshot, files[0] if files is not None else None)


def unreachable(oids: Sequence[str], *, is_promised: bool = True) -> WorktreeError:
    """Returns the error for objects that are neither here nor to be had."""
    return WorktreeError(
        f"{len(oids)} objects of the files are missing here: {first_of(oids)}",
        hint="this is a partial clone: run the command again where its remote can be reached" if is_promised else SEE_DAMAGE,
    )
