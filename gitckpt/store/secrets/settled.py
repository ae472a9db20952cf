"""What somebody has looked at and called no secret: by path, or by digest.

Kept in the private directory, which is never fetched or pushed.
"""

from __future__ import annotations

import contextlib
import hashlib
import os

from gitckpt.git.files import premises
from gitckpt.model.errors import CkptError, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gitckpt.git.repository import Repository

FILE, KEY = "settled-secrets", "secret-key"
_DIGEST_BYTES = 8
_PATH, _DIGEST = b"path ", b"digest "


class Settled:
    """What is settled in a repository, for all of its worktrees.

    Args:
        repository: seen from any of its worktrees.
    """

    def __init__(self, repository: Repository) -> None:
        self._repository = repository
        self._lines: frozenset[bytes] | None = None
        self._key: bytes | None = None

    def digest(self, secret: bytes) -> str:
        """Returns what stands for a secret in documents: 16 hex digits that nobody can make without the key of this clone.

        So a short password cannot be guessed from what is pushed. A clone that loses its private directory settles anew, and where the key
        cannot be kept, each process has its own.
        """
        if self._key is None:
            self._key = self._read_key()
        return hashlib.blake2b(secret, key=self._key, digest_size=_DIGEST_BYTES).hexdigest()

    def knows(self, path: str, digest: str) -> bool:
        """Tells whether a hit is settled.

        Args:
            path: of the file, as in a document.
            digest: of what was found in it.
        """
        lines = self._read()
        return _DIGEST + digest.encode() in lines or _PATH + _escaped(path) in lines

    def settle(self, what: str) -> bool:
        """Settles a file, or one secret wherever it stands.

        Args:
            what: a digest of 16 hex digits, or else the path of a file as documents have it: relative to the top of the worktree.

        Returns:
            Whether it is new.

        Raises:
            UsageError: it is empty.
            CkptError: the file cannot be written.
        """
        if not what:
            raise UsageError("nothing is named", hint="name a path or a digest; git ckpt show says which")
        line = _DIGEST + what.encode() if is_digest(what) else _PATH + _escaped(what)
        if line in self._read():
            return False
        path = os.path.join(self._repository.make_private_dir(), FILE)
        try:
            with open(path, "ab", opener=premises.create) as file:
                file.write(line + b"\n")
        except OSError as error:
            raise CkptError(f"cannot write {path}: {error.strerror}") from None
        self._lines = None
        return True

    def _read(self) -> frozenset[bytes]:
        if self._lines is None:
            try:
                with open(os.path.join(self._repository.private_dir, FILE), "rb", opener=premises.create) as file:
                    self._lines = frozenset(file.read().split(b"\n"))
            except OSError:
                self._lines = frozenset()
        return self._lines

    def _read_key(self) -> bytes:
        path = os.path.join(self._repository.make_private_dir(), KEY)
        try:
            if os.path.lexists(path) and os.lstat(path).st_size == 0:
                os.unlink(path)  # a power cut took what was in it, and by no key at all anybody could try passwords
            if not os.path.lexists(path):
                scratch = f"{path}.{os.getpid()}.{os.urandom(4).hex()}"
                try:
                    with open(scratch, "xb", opener=premises.create) as file:
                        file.write(os.urandom(32))
                        file.flush()
                        os.fsync(file.fileno())
                    os.link(scratch, path)  # whole or not at all: two that begin at once have the same key
                except FileExistsError:
                    pass
                finally:
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(scratch)
            with open(path, "rb", opener=premises.create) as file:
                return file.read(64)
        except OSError:
            return os.urandom(32)  # a suspect keeps nobody from a checkpoint: its digest settles nothing then, and tells nothing


def is_digest(text: str) -> bool:
    """Tells whether a text is a digest, and no path."""
    return len(text) == 2 * _DIGEST_BYTES and not text.strip("0123456789abcdef")


def _escaped(path: str) -> bytes:
    return path.encode("utf-8", "surrogateescape").replace(b"\\", b"\\\\").replace(b"\n", b"\\n")
