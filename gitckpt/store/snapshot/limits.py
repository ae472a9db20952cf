"""What a snapshot leaves out, and how long it may take: the table `[snapshot]` of the settings."""

from __future__ import annotations

import fnmatch
import math
import os
import stat
import time
from dataclasses import dataclass

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

    timeout: float = 60.0
    """In seconds; a snapshot that takes longer is given up."""

    def deadline(self) -> float | None:
        """Returns when a snapshot that begins now is given up, on the clock of `time.monotonic`; None for never."""
        return None if math.isinf(self.timeout) else time.monotonic() + self.timeout

    def reason_to_omit(self, path: bytes, *, included: bool) -> tuple[str, int | None] | None:
        """Returns why an untracked file is left out, and its size where that is why; None where it is captured.

        Args:
            path: absolute path.
            included: whether a pattern of `include` names it.
        """
        name = os.fsdecode(os.path.basename(path)).lower()
        if not included:
            for pattern in self.secrets:
                if fnmatch.fnmatchcase(name, pattern.lower()):
                    return f"its name looks like a secret ({pattern})", None
        try:
            status = os.lstat(path)
        except FileNotFoundError:
            return None
        if self.max_file_size is not None and stat.S_ISREG(status.st_mode) and status.st_size > self.max_file_size:
            return f"larger than {size_text(self.max_file_size)}", status.st_size
        return None


def size_text(size: int) -> str:
    """Returns a size as people write it: "50 MB"."""
    for unit, factor in (("GB", 1000 * MB), ("MB", MB), ("kB", 1000)):
        if size >= factor and size % factor == 0:
            return f"{size // factor} {unit}"
    return f"{size} bytes"
