"""A merge, cherry-pick, revert, rebase, am or bisect in progress, as the files that git keeps of it (gitrepository-layout(5))."""

from __future__ import annotations

import os

FILES = (
    *("MERGE_HEAD", "MERGE_MODE", "MERGE_MSG", "MERGE_RR", "AUTO_MERGE", "SQUASH_MSG", "CHERRY_PICK_HEAD", "REVERT_HEAD", "REBASE_HEAD"),
    *("ORIG_HEAD", "BISECT_ANCESTORS_OK", "BISECT_EXPECTED_REV", "BISECT_LOG", "BISECT_NAMES", "BISECT_START", "BISECT_TERMS"),
)
DIRECTORIES = ("sequencer", "rebase-merge", "rebase-apply")


def in_progress(git_dir: str) -> str | None:
    """Returns the operation in progress: "rebase", "am", "bisect", "merge", "cherry-pick" or "revert"; None where there is none.

    Args:
        git_dir: the administrative directory of the worktree.
    """

    def there(name: str) -> bool:
        return os.path.exists(os.path.join(git_dir, name))

    if there("rebase-apply"):
        return "am" if there("rebase-apply/applying") else "rebase"
    for name, operation in (
        ("rebase-merge", "rebase"),
        ("MERGE_HEAD", "merge"),
        ("CHERRY_PICK_HEAD", "cherry-pick"),
        ("REVERT_HEAD", "revert"),
        ("BISECT_LOG", "bisect"),
    ):
        if there(name):
            return operation
    return None


def collect(git_dir: str) -> dict[str, bytes]:
    """Returns the content of every file of the operation in progress, by its path below `git_dir`."""
    found: dict[str, bytes] = {}
    for name in FILES:
        path = os.path.join(git_dir, name)
        if os.path.isfile(path):
            found[name] = _content(path)
    for directory in DIRECTORIES:
        for parent, _, names in os.walk(os.path.join(git_dir, directory)):
            for name in names:
                path = os.path.join(parent, name)
                found[os.path.relpath(path, git_dir)] = _content(path)
    return found


def bring_back(git_dir: str, files: dict[str, bytes]) -> None:
    """Writes files that `collect` returned into another worktree's administrative directory.

    Only names that `collect` can return are written: the files may come from a ref that was fetched.
    """
    for name, content in files.items():
        parts = name.split("/")
        known = name in FILES or (parts[0] in DIRECTORIES and len(parts) > 1 and not {"", ".", ".."} & set(parts))
        if not known:
            continue
        path = os.path.join(git_dir, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(content)


def _content(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()
