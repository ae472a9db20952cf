"""Copies of files that a run was started with, as they are stored: what looks like a secret is masked, unless it is settled.

The run itself works with the file as it is, which stays beside its worktree and is never stored.
"""

from __future__ import annotations

from gitckpt.store.secrets import detector
from gitckpt.store.secrets.detector import Hit
from gitckpt.store.secrets.settled import Settled

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gitckpt.git.repository import Repository


def unsettled(repository: Repository, data: bytes) -> list[tuple[Hit, int, str]]:
    """Returns what looks like a secret in a file and is not settled, each with its line and digest; nothing where it is binary.

    Args:
        repository: in which hits may be settled.
        data: the content.
    """
    hits = detector.lines(data)
    if not hits:
        return []
    settled = Settled(repository)
    found = [(hit, line, settled.digest(secret)) for hit, line, secret in hits]
    return [each for each in found if not settled.knows("", each[2])]


def masked(repository: Repository, data: bytes) -> bytes:
    """Returns what is stored of a file. Args: as `unsettled`."""
    return detector.without(data, [hit for hit, *_ in unsettled(repository, data)])


def has_masks(data: bytes) -> bool:
    """Tells whether a copy has places that were masked."""
    return detector.MASK in data
