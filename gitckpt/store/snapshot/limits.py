"""What a snapshot leaves out, and how long it may take: the table `[snapshot]` of the settings."""

from __future__ import annotations

import fnmatch
import math
import os
import stat
import time
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gitckpt.git import config
from gitckpt.git.contents import attributes
from gitckpt.git.contents.attributes import Configured

if TYPE_CHECKING:
    from gitckpt.git.contents.conversion import Terms
    from gitckpt.git.repository import Repository

MB = 1000 * 1000

SECRETS = (
    *(".env*", "*.pem", "id_*", "*.key", ".netrc", "_netrc", "credentials*", ".git-credentials", ".npmrc", ".pypirc", ".pgpass"),
    *("*.p12", "*.pfx", "*.jks", "*.keystore", "*.kdbx"),
)
"""Names of untracked files that look like secrets."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a snapshot leaves out. Tracked files are always captured."""

    max_file_size: int | None = 50 * MB
    """In bytes; an untracked file that is larger is left out. None sets no limit."""

    secrets: tuple[str, ...] = SECRETS
    """Shell patterns; an untracked file whose name matches one, in upper or lower case, is left out."""

    include: tuple[str, ...] = ()
    """Patterns as in `.gitignore`; untracked files that match are captured though ignored, and though they look like secrets."""

    submodules: bool = True
    """Whether submodules that are checked out are captured, each in its own repository."""

    timeout: float = 60.0
    """In seconds; a snapshot that takes longer is given up."""

    configured: Configured | None = field(default=None, compare=False, repr=False)
    """What git's configuration says of conversions, where it was read with these; None where it was not, and is to be asked."""

    def deadline(self) -> float | None:
        """Returns when a snapshot that begins now is given up, on the clock of `time.monotonic`; None for never."""
        return None if math.isinf(self.timeout) else time.monotonic() + self.timeout

    def reason_to_omit(self, path: bytes, *, included: bool) -> tuple[str, int | None] | None:
        """Returns why an untracked file is left out, and its size where that is why; None where it is captured.

        Args:
            path: absolute path.
            included: whether a pattern of `include` names it.
        """
        pattern = self.looks_secret(path) if not included else None
        if pattern is not None:
            return f"its name looks like a secret ({pattern})", None
        try:
            status = os.lstat(path)
        except FileNotFoundError:
            return None
        if self.max_file_size is not None and stat.S_ISREG(status.st_mode) and status.st_size > self.max_file_size:
            return f"larger than {size_text(self.max_file_size)}", status.st_size
        return None

    def conversions(self, repository: Repository) -> Configured:
        """Returns what git's configuration says of conversions; it is asked where that is not known."""
        if self.configured is not None:
            return self.configured
        return Configured.of(config.read(repository, f"^({attributes.SETTINGS})"))

    def terms(self, named: Collection[bytes], regardless: Collection[bytes]) -> Terms:
        """Returns which bytes are not kept beside what git stores of a file.

        Args:
            named: paths that are captured though they may look like secrets.
            regardless: paths that are kept in any case.
        """
        from gitckpt.git.contents.conversion import Terms  # most worktrees do without

        return Terms(
            self.max_file_size,
            refuses=lambda path: path not in named and self.looks_secret(path) is not None,
            text=f"{self.max_file_size} {self.secrets} {self.include}",
            regardless=regardless,
        )

    def looks_secret(self, path: bytes) -> str | None:
        """Returns the pattern of `secrets` that the name of a file matches; None for none."""
        name = os.fsdecode(os.path.basename(path)).lower()
        return next((pattern for pattern in self.secrets if fnmatch.fnmatchcase(name, pattern.lower())), None)


def size_text(size: int) -> str:
    """Returns a size as people write it: "50 MB"."""
    for unit, factor in (("GB", 1000 * MB), ("MB", MB), ("kB", 1000)):
        if size >= factor and size % factor == 0:
            return f"{size // factor} {unit}"
    return f"{size} bytes"
