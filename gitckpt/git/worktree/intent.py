"""Entries of an index that were added in intent only (`git add --intent-to-add`), whatever has become of their files."""

from __future__ import annotations

import os
import re

from gitckpt.git.files import premises
from gitckpt.git.objects.encoding import GITLINK, object_id
from gitckpt.git.process import GitError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from gitckpt.git.worktree.index import PrivateIndex

EXECUTABLE, LINK, REPOSITORY = b"100755", b"120000", GITLINK
_FLAG = 0x20000000
"""CE_INTENT_TO_ADD, as `git ls-files --debug` prints it."""

_FEW = 100
_ENTRY = re.compile(
    rb"([0-7]{6}) [0-9a-f]{40,64} 0\t([^\0]++)"
    rb"(?:\0(?:  [a-z]{1,9}: [0-9a-z:\t ]{1,80}\n){4}"
    rb"  size: \d{1,20}\tflags: ([0-9a-f]{1,16})\n|\Z)"
)
_ADD = ("add", "--sparse", "--intent-to-add", "--force", "--pathspec-from-file=-", "--pathspec-file-nul")


def placeholder(object_format: str) -> bytes:
    """Returns the oid that such entries have: that of the empty blob."""
    return object_id("blob", b"", object_format).encode("ascii")


def intended(index: PrivateIndex, paths: Collection[bytes]) -> dict[bytes, bytes]:
    """Returns those of some entries that were added in intent only, with their modes as in trees.

    Args:
        paths: of entries that could be, as they have the oid of the empty blob.
    """
    if not paths:
        return {}
    words = [os.fsdecode(path) for path in paths] if len(paths) <= _FEW else []
    listing = index.git("--literal-pathspecs", "ls-files", "--stage", "--debug", "-z", "--", *words)
    wanted = set(paths)
    entries = _ENTRY.findall(listing)
    return {path: mode for mode, path, flags in entries if path in wanted and int(flags or b"0", 16) & _FLAG}


def forget_trees(index: PrivateIndex, paths: Collection[bytes]) -> None:
    """Has git write the trees above some entries anew, without them.

    Where the commit has an empty file, `git reset --hard` takes an entry in intent for that one, and keeps it among trees that it then
    calls written.

    Args:
        paths: of entries that were added in intent only; they are not assumed to be unchanged.
    """
    index.update("--no-assume-unchanged", paths)  # of all that git does to an entry, this changes nothing else


def add(index: PrivateIndex, paths: Collection[bytes], modes: Mapping[bytes, bytes]) -> None:
    """Adds entries in intent only; others in the place of them, or of directories above them, go.

    Git finds files of these names in a directory of our own: without a file it makes no such entry, and of the one in the worktree it
    would take the mode, which may be another one by now.

    Args:
        paths: of the entries.
        modes: as in trees, of those that are no plain files.

    Raises:
        GitError: git refuses a path.
    """
    if not paths:
        return
    wanted = sorted(set(paths))
    oid = placeholder(index.repository.object_format)
    index.put(b"100644 %s 0\t%s" % (oid, path) for path in wanted)  # git looks at the paths, which may have been fetched
    index.update("--force-remove", wanted)
    scratch = index.repository.scratch("intent")
    try:
        try:
            for path in wanted:
                whole = os.path.join(os.fsencode(scratch), path)
                _stand_in(whole, modes.get(path), index.repository.object_format)
        except OSError as error:
            raise GitError(["add"], 1, f"{os.fsdecode(error.filename)}: {error.strerror}") from None
        words = (f"--work-tree={scratch}", "-C", scratch, "-c", "core.fileMode=true", "-c", "core.symlinks=true")
        index.git(*words, "--literal-pathspecs", *_ADD, data=b"\0".join(wanted))
    finally:
        premises.discard(scratch)


def _stand_in(path: bytes, mode: bytes | None, object_format: str) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if mode == LINK:
        os.symlink(b"nowhere", path)
    elif mode == REPOSITORY:
        _stand_in_repository(os.path.join(path, b".git"), object_format)
    else:
        with open(path, "wb") as file:
            os.fchmod(file.fileno(), 0o700 if mode == EXECUTABLE else 0o600)


def _stand_in_repository(git_dir: bytes, object_format: str) -> None:
    """Make what git takes for a repository with a commit checked out."""
    for name in (b"objects", b"refs"):
        os.makedirs(os.path.join(git_dir, name))
    config = "[core]\n\trepositoryformatversion = 1\n"
    config += f"[extensions]\n\tobjectFormat = {object_format}\n"
    head = placeholder(object_format) + b"\n"  # any oid will do
    for name, content in ((b"config", config.encode("ascii")), (b"HEAD", head)):
        with open(os.path.join(git_dir, name), "xb") as file:
            file.write(content)
