"""Objects that a partial clone lacks (git's `partial-clone` document): which they are, and how they are fetched in one go."""

from __future__ import annotations

from collections.abc import Sequence

from gitckpt.git import config
from gitckpt.git.process import GitError
from gitckpt.git.repository import Repository
from gitckpt.model.errors import WorktreeError
from gitckpt.model.names import first_of


def promisor(repository: Repository) -> str | None:
    """Returns the remote that promised the objects which a partial clone lacks; None where the clone is whole."""
    names = config.read(repository, r"^remote\..*\.promisor$")
    return next((name.removeprefix("remote.").removesuffix(".promisor") for name, said in names.items() if config.is_on(said[-1])), None)


def missing(repository: Repository, tree: str, known: str | None) -> list[str]:
    """Returns the objects below a tree that are not there, without fetching any.

    Args:
        tree: the tree.
        known: a tree whose objects are not asked for; None for none.
    """
    words = ["rev-list", "--objects", "--no-object-names", "--missing=print", tree, *(["--not", known] if known else [])]
    done = repository.git.run(*words, ok=(0, 128))
    return [line[1:].decode("ascii") for line in done.out.splitlines() if line.startswith(b"?")]


def fetch_missing(repository: Repository, tree: str, known: str) -> None:
    """Fetches what a partial clone lacks below a tree, and nothing else.

    Args: as `missing`.

    Raises:
        WorktreeError: the remote cannot be reached, or has not got them; they are named.
    """
    remote = promisor(repository)
    wanted = missing(repository, tree, known) if remote else []
    if not wanted or remote is None:
        return
    options = ("--no-tags", "--no-write-fetch-head", "--recurse-submodules=no", "--filter=blob:none", "--stdin")
    data = "".join(f"{oid}\n" for oid in wanted).encode("ascii")
    try:
        repository.git.run("-c", "fetch.negotiationAlgorithm=noop", "fetch", "--quiet", remote, *options, data=data)
    except GitError:
        raise unreachable(wanted) from None


def unreachable(oids: Sequence[str]) -> WorktreeError:
    """Returns the error for objects that are neither here nor to be had."""
    return WorktreeError(
        f"{len(oids)} objects of the files are missing here: {first_of(oids)}",
        hint="this is a partial clone: run the command again where its remote can be reached",
    )
