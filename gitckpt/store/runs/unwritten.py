"""Which checkpoints of a run could not be written: a small file says so, for those who ask while its driver goes on."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence

from gitckpt.git.files import premises

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gitckpt.git.repository import Repository


def read(repository: Repository, run: str) -> list[str]:
    """Returns what could not be written of a run, a sentence each."""
    try:
        with open(_path(repository, run), encoding="utf-8", errors="replace") as file:
            return file.read().splitlines()
    except OSError:
        return []


def note(repository: Repository, run: str, sentences: Sequence[str]) -> None:
    """Notes what could not be written of a run; nothing, once all of it was. Where that fails too, only its driver tells of it."""
    path = _path(repository, run)
    with contextlib.suppress(OSError):
        if sentences:
            with open(path, "w", encoding="utf-8", errors="replace", opener=premises.create) as file:
                file.writelines(f"{' '.join(sentence.split())}\n" for sentence in sentences)
        elif os.path.exists(path):
            os.unlink(path)


def _path(repository: Repository, run: str) -> str:
    return os.path.join(repository.private_dir, f"unwritten-{run}")
