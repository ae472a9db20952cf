"""The versions of a file that git has, oldest first."""

from __future__ import annotations

from gitckpt.git.process import GitError
from gitckpt.git.repository import Repository
from gitckpt.model.values import dataclass

_SECOND = 1_000_000


@dataclass(frozen=True, slots=True)
class Version:
    """A file as a commit has it.

    Attributes:
        commit: oid.
        time: of the committer, in microseconds since the epoch.
        data: the bytes.
    """

    commit: str
    time: int
    data: bytes


def versions(repository: Repository, path: str) -> list[Version]:
    """Returns what the history of HEAD has of a file, without versions that are as the one before.

    Args:
        path: relative to the top of the worktree.
    """
    try:
        # Not `log`, to which the person's settings add lines.
        listed = repository.git.run("rev-list", "--timestamp", "--reverse", "--topo-order", "HEAD", "--", f":(top,literal){path}").out
    except GitError:
        return []  # there is no commit yet
    pairs = [line.split(" ") for line in listed.decode("ascii").splitlines()]
    found: list[Version] = []
    for (time, commit), blob in zip(pairs, repository.cat_file.contents([f"{commit}:{path}" for _, commit in pairs]), strict=True):
        if blob is not None and blob[1] == "blob" and (not found or found[-1].data != blob[2]):
            found.append(Version(commit, int(time) * _SECOND, blob[2]))
    return found
