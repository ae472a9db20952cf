"""What a person is told of files that were captured: what is left out, what git would write otherwise, and what looks like a secret.

A few lines, however many files there are: `git ckpt show` names each.
"""

from __future__ import annotations

from gitckpt.cli.screen import terminal
from gitckpt.model import ids
from gitckpt.model.names import first_of, shell_word

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from gitckpt.model.checkpoint import Checkpoint, Omitted, Suspect

_FEW = 3
"""So many files are named, of each thing that is wrong."""


def warn(checkpoint: Checkpoint) -> int:
    """Warns of files of a checkpoint that was just made; returns how many paths were left out."""
    files = checkpoint.worktree
    if files is None:
        return 0
    left = [entry for entry in files.omitted if entry.dirty is not False]  # a submodule without changes is where its commit says
    is_cut = _warn_of_omitted(left)
    if files.converted:
        terminal.warn(f"comes back as git writes it, not byte for byte: {first_of(files.converted, _FEW)}")
        is_cut |= len(files.converted) > _FEW
    if files.suspects:
        is_cut |= _warn_of_suspects(files.suspects)
    if is_cut:
        terminal.remark(f"each of them is named by: git ckpt show {checkpoint.id[: ids.SHORT]}")
    return len(left)


def _warn_of_omitted(left: Sequence[Omitted]) -> bool:
    """Warns once for each reason; returns whether a path is not named."""
    by_reason: dict[str, list[str]] = {}
    for entry in left:
        by_reason.setdefault(entry.reason, []).append(entry.path)
    for reason, paths in by_reason.items():
        terminal.warn(f"not captured: {first_of(paths, _FEW)}: {reason}")
    return any(len(paths) > _FEW for paths in by_reason.values())


def _warn_of_suspects(suspects: Sequence[Suspect]) -> bool:
    """Warns once for each of the first files; returns whether one is not named."""
    by_path: dict[str, list[str]] = {}
    for suspect in suspects:
        by_path.setdefault(suspect.path, []).append(f"{suspect.path}:{suspect.line} ({suspect.rule})")
    found = list(by_path.values())
    for places in found[:_FEW]:
        terminal.warn(f"captured, and looks like a secret: {first_of(places, 1)}")
    if more := len(found) - _FEW if len(found) > _FEW else 0:
        terminal.warn(f"captured, and looks like a secret: {'one more file' if more == 1 else f'{more} more files'}")
    terminal.remark(f"what is no secret is settled by: git ckpt allow --secret {shell_word(suspects[0].path)}")
    return more > 0
