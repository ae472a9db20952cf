"""Keeps the raw output of each call of an agent in files of bounded number and size, on disk from the first byte on."""

from __future__ import annotations

import os
import re

from gitckpt.model.errors import CkptError

FIRST = 1 << 20
LAST = 15 << 20
"""Of a longer output, so many bytes of its beginning and of its end are kept, and a line between them says so."""

MOST, MOST_BYTES = 100, 64 << 20
"""So many transcripts of earlier calls are kept, with so many bytes in all: the newest ones."""

_LINE = 100
"""More bytes than that line has."""


def set_aside(path: str) -> None:
    """Gives the transcript of the last call a name with a number, and removes the oldest of those that have one where they are too many.

    Args:
        path: of the transcript of the last call, where there is one; `agent.log` becomes `agent-1.log`, and the next one `agent-2.log`.

    Raises:
        CkptError: it cannot be renamed, or another one not removed.
    """
    directory, (stem, ending) = os.path.dirname(path), os.path.splitext(os.path.basename(path))
    if not os.path.isfile(path):
        return
    named = re.compile(rf"{re.escape(stem)}-(\d{{1,9}}){re.escape(ending)}")
    try:
        earlier = sorted((int(found[1]), found[0]) for found in map(named.fullmatch, os.listdir(directory)) if found)
        name = f"{stem}-{earlier[-1][0] + 1 if earlier else 1}{ending}"
        os.rename(path, os.path.join(directory, name))
        left = MOST_BYTES
        for count, each in enumerate((name, *(each for _, each in reversed(earlier)))):
            there = os.path.join(directory, each)
            left -= os.path.getsize(there)
            if count >= MOST or (count and left < 0):
                os.unlink(there)
    except OSError as error:
        problem = f"cannot keep the output of the agent's last call in {directory}: {error.strerror}"
        raise CkptError(problem, hint="make room there: df") from None


class Transcript:
    """The file with the output. While it is written it may have up to twice the bytes that stay.

    Args:
        path: of the file; one that is there is overwritten.

    Raises:
        CkptError: it cannot be written; all methods raise that.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._size = 0
        self._left_out = 0
        try:
            os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
            self._file = open(path, "w+b", buffering=0)  # noqa: SIM115
        except OSError as error:
            raise self._failure(error) from None

    def add(self, chunk: bytes) -> None:
        """Takes in what follows."""
        try:
            view = memoryview(chunk)
            while view:
                view = view[self._file.write(view) :]
        except OSError as error:
            raise self._failure(error) from None
        self._size += len(chunk)
        if self._size > FIRST + 2 * LAST:
            self._shorten()

    def close(self) -> None:
        """Leaves the file as it stays."""
        try:
            if self._size > FIRST + LAST:
                self._shorten()
            self._mask()
        finally:
            self._file.close()

    def _mask(self) -> None:
        """Masks what looks like a secret: whoever reads the transcript needs to know that there was one, and not which."""
        from gitckpt.store.secrets import detector

        if not self._size:
            return
        try:
            self._file.seek(0)
            data = self._file.read(FIRST + LAST + _LINE)
            masked = detector.masked_bytes(data)
            if masked != data:
                beside = f"{self.path}.new"
                with open(beside, "wb") as file:
                    file.write(masked)
                os.replace(beside, self.path)
        except OSError as error:
            raise self._failure(error) from None

    def _shorten(self) -> None:
        """Takes out what lies between the first and the last bytes. A kill meanwhile leaves the file as it was."""
        self._left_out += self._size - FIRST - LAST
        self._size = FIRST + LAST
        beside = f"{self.path}.new"
        try:
            with open(beside, "wb") as file:
                self._file.seek(0)
                file.write(self._file.read(FIRST))
                file.write(f"\n[{self._left_out} bytes are left out here]\n".encode())
                self._file.seek(-LAST, os.SEEK_END)
                file.write(self._file.read(LAST))
            os.replace(beside, self.path)
            self._file.close()
            self._file = open(self.path, "r+b", buffering=0)  # noqa: SIM115
            self._file.seek(0, os.SEEK_END)
        except OSError as error:
            raise self._failure(error) from None

    def _failure(self, error: OSError) -> CkptError:
        return CkptError(f"cannot keep the output of the agent in {self.path}: {error.strerror}", hint="make room there: df")
