"""Entries of an index that were added in intent only (`git add --intent-to-add`), also where they have no file, or none any more."""

from __future__ import annotations

import os
import re
import shutil

from gitckpt.git.objects.encoding import object_id
from gitckpt.git.process import GitError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from gitckpt.git.worktree.index import PrivateIndex

EXECUTABLE, LINK = b"100755", b"120000"
_FLAG = 0x20000000
"""CE_INTENT_TO_ADD, as `git ls-files --debug` prints it."""

_FEW = 100
_ENTRY = re.compile(rb"(\d+) [0-9a-f]+ 0\t([^\0]+)\0(?:  [a-z]+: .*\n){4}  size: \d+\tflags: ([0-9a-f]+)\n")
_ADD = ("add", "--sparse", "--intent-to-add", "--force", "--pathspec-from-file=-", "--pathspec-file-nul")


def placeholder(object_format: str) -> bytes:
    """Returns the oid that such entries have: that of the empty blob."""
    return object_id("blob", b"", object_format).encode("ascii")


def intended(index: PrivateIndex, paths: Collection[bytes]) -> dict[bytes, bytes]:
    """Returns those of some entries that were added in intent only, with their modes as in trees.

    Args:
        index: where.
        paths: of entries that could be, as they have the oid of the empty blob.
    """
    if not paths:
        return {}
    words = [os.fsdecode(path) for path in paths] if len(paths) <= _FEW else []
    listing = index.git("--literal-pathspecs", "ls-files", "--stage", "--debug", "-z", "--", *words)
    wanted = set(paths)
    return {path: mode for mode, path, flags in _ENTRY.findall(listing) if path in wanted and int(flags, 16) & _FLAG}


def add(index: PrivateIndex, paths: Collection[bytes], modes: Mapping[bytes, bytes]) -> None:
    """Adds entries in intent only; others in the place of them, or of directories above them, go.

    Args:
        index: where.
        paths: of the entries.
        modes: as in trees, of those without a file that are no plain files.

    Raises:
        GitError: git refuses a path.
    """
    top = os.fsencode(index.repository.worktree or "")
    there = [path for path in paths if _is_file(top, path)]
    if there:
        index.git("--literal-pathspecs", *_ADD, data=b"\0".join(there))
    gone = sorted(set(paths).difference(there))
    if gone:
        _add_without_file(index, gone, modes)


def _add_without_file(index: PrivateIndex, paths: list[bytes], modes: Mapping[bytes, bytes]) -> None:
    """Lets git find files of these names in a directory of our own: it makes no such entry without one."""
    oid = placeholder(index.repository.object_format)
    index.put(b"100644 %s 0\t%s" % (oid, path) for path in paths)  # git looks at the paths, which may have been fetched
    index.update("--force-remove", paths)
    scratch = os.path.join(index.repository.make_private_dir(), f"intent.{os.getpid()}.{os.urandom(4).hex()}")
    try:
        try:
            for path in paths:
                _stand_in(os.path.join(os.fsencode(scratch), path), modes.get(path))
        except OSError as error:
            raise GitError(["add"], 1, f"{os.fsdecode(error.filename)}: {error.strerror}") from None
        words = (f"--work-tree={scratch}", "-C", scratch, "-c", "core.fileMode=true", "-c", "core.symlinks=true")
        index.git(*words, "--literal-pathspecs", *_ADD, data=b"\0".join(paths))
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _stand_in(path: bytes, mode: bytes | None) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if mode == LINK:
        os.symlink(b"nowhere", path)
    else:
        with open(path, "wb") as file:
            os.fchmod(file.fileno(), 0o700 if mode == EXECUTABLE else 0o600)


def _is_file(top: bytes, path: bytes) -> bool:
    """Tells whether there is a file or a link, and not by way of another link; of a directory, git would add all that is in it."""
    parts = path.split(b"/")
    above = (os.path.join(top, *parts[:count]) for count in range(1, len(parts)))
    whole = os.path.join(top, path)
    return (os.path.islink(whole) or os.path.isfile(whole)) and not any(os.path.islink(parent) for parent in above)
