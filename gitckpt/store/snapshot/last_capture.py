"""Tell that a worktree is as its newest snapshot has it, without another capture.

A capture leaves a record of what it saw beside git's index of the worktree: the output of
`git status`, and the stamps (times, size, inode) of the files that it lists and of the files with
settings. If all of them are equal, another capture would give the same snapshot. The record is a
cache: without it, or in doubt, the files are captured again and the snapshots compared.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Mapping

from gitckpt.git import config
from gitckpt.git.files import private_dirs, refs_stat
from gitckpt.git.objects.encoding import object_hash
from gitckpt.model import ids
from gitckpt.store.records import ref_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gitckpt.git.repository import Repository

    # A digest of the status and of the stamps of its files; the stamps of the files with settings,
    # by path; and the environment variables that select settings.
    CaptureEvidence = Mapping[str, object]

_VERSION = 1
# Files in the repository that decide what is captured, and how.
_FILES = ("info/exclude", "info/attributes", "ckpt/allowed")
_MAX_SIZE = 1 << 20  # bytes of a record; a larger file is not read


def gather(repository: Repository, status: bytes, start: int) -> CaptureEvidence | None:
    """Return what a capture saw; None if files may change without changing that.

    Args:
        status: the output of `git status --porcelain=v2 -z`, from before the files were read.
        start: the time of the file system before `git status` ran, in nanoseconds.
    """
    if repository.configuration is None or repository.operation_in_progress():
        return None
    digest = _digest(repository, status, start)
    if digest is None:
        return None
    variables, stamps = repository.configuration[1]
    own = [os.path.join(repository.worktree or "", "gitckpt.toml")]
    own += [os.path.join(repository.common_dir, name) for name in _FILES]
    settings = {**stamps, **_stamps(own)}
    return {"status": digest, "settings": settings, "variables": _hash(variables)}


def store(repository: Repository, evidence: CaptureEvidence | None, checkpoint_id: str) -> None:
    """Record which checkpoint the last capture made, and the evidence, if any."""
    record = {"version": _VERSION, "checkpoint": checkpoint_id, "evidence": evidence}
    path = _path(repository)
    scratch = f"{path}.{os.getpid()}.{os.urandom(4).hex()}"
    # Only a cache: if it cannot be written, the next capture reads the files.
    try:
        with open(scratch, "wb", opener=private_dirs.open_private_file) as file:
            file.write(json.dumps(record).encode("utf-8"))
        os.replace(scratch, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(scratch)


def load(repository: Repository) -> tuple[str, CaptureEvidence | None] | None:
    """Return the last capture's checkpoint and its evidence; None without one."""
    try:
        record = json.loads(private_dirs.read_private_file(_path(repository))[:_MAX_SIZE])
        checkpoint_id, evidence = record["checkpoint"], record["evidence"]
        is_valid = record["version"] == _VERSION and ids.is_checkpoint_id(checkpoint_id)
    except (ValueError, TypeError, LookupError, RecursionError):
        return None
    return (checkpoint_id, evidence if isinstance(evidence, dict) else None) if is_valid else None


def may_be_valid(repository: Repository, evidence: CaptureEvidence) -> bool:
    """Return whether the settings are as they were at the capture."""
    settings = evidence.get("settings")
    if not isinstance(settings, dict) or evidence.get("variables") != _hash(config.variables()):
        return False
    return _stamps(settings) == settings and not repository.operation_in_progress()


def is_valid(repository: Repository, evidence: CaptureEvidence, status: bytes) -> bool:
    """Return whether a capture would see the same, by the output of git status."""
    return _digest(repository, status) == evidence.get("status")


def _path(repository: Repository) -> str:
    return os.path.join(repository.git_dir, ref_names.LAST_CAPTURE)


def _hash(variables: Mapping[str, str]) -> str:
    # Not their values: GIT_CONFIG_PARAMETERS may hold a token.
    text = json.dumps(variables, sort_keys=True)
    return object_hash("sha256", text.encode("utf-8", "surrogateescape")).hexdigest()


def _stamps(paths: Iterable[str]) -> dict[str, str | None]:
    return {path: config.stamp(path) for path in paths}


def _digest(repository: Repository, status: bytes, start: int | None = None) -> str | None:
    """Return a digest of a status and its files; None if it does not show all changes.

    With `start`, also None if a file is so young that a later change may leave its times equal.
    """
    digest = object_hash("sha1", status)
    top = os.fsencode(repository.worktree or "")
    paths = [os.fsencode(os.path.join(repository.git_dir, "index"))]
    for record in status.split(b"\0"):
        kind, is_tracked = record[:1], record[:1] in b"1u"
        if is_tracked and record[5:6] == b"S":
            return None  # the status of a submodule does not tell two changes apart
        if kind == b"?" and record.endswith(b"/"):
            return None  # an embedded repository
        if kind == b"?":
            paths.append(os.path.join(top, record[2:]))
        elif kind and is_tracked and (kind == b"u" or record[3:4] != b"."):
            paths.append(os.path.join(top, record.split(b" ", 10 if kind == b"u" else 8)[-1]))
    for path in paths:
        try:
            file = os.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            digest.update(b"-\0")
            continue
        except OSError:
            return None  # in a directory that cannot be searched
        stamp = refs_stat.make_stat_stamp(file, start)
        if stamp is None:
            return None
        digest.update(f"{file.st_mode:o} {stamp}\0".encode("ascii"))
    return digest.hexdigest()
