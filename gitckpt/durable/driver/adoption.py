"""Asks for trust before a run of somebody else's goes on, and takes it for one of ours once that is given."""

from __future__ import annotations

import os

from gitckpt.durable.driver.registry import OPTIONS
from gitckpt.durable.pipeline import file
from gitckpt.git.worktree.administration import main_worktree
from gitckpt.model.errors import CkptError
from gitckpt.store.config import settings
from gitckpt.store.runs import trust

_SHOWN = 100
"""So many characters of a command are shown."""

_CUT = ", cut)"

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gitckpt.model.checkpoint import Checkpoint
    from gitckpt.store.checkpoints import Checkpoints


def require(
    store: Checkpoints, wanted: Sequence[Checkpoint], *, trusted: bool, show: Callable[[str, Sequence[str]], None], adopts: bool = True
) -> None:
    """Looks whether checkpoints were written here; where they were not, and are trusted, what decides is shown, and their run is adopted.

    Args:
        wanted: what is to be gone on from: of one run, or one that is of none.
        trusted: whether somebody says that what others have written may be gone on from.
        show: is given the id of the checkpoint, and what decides, a line each, before anything is done.
        adopts: whether the run becomes one of ours.

    Raises:
        Untrusted: one was not written here, and is not trusted.
        CkptError: it cannot be noted that the run is adopted.
    """
    for checkpoint in wanted:
        if trust.is_ours(store, checkpoint):
            continue
        head = store.heads.head(checkpoint.run)[0] if checkpoint.run is not None else ""
        account = trust.account(store, checkpoint, _commands(store, checkpoint))
        if not trusted:
            raise trust.refusal(store, checkpoint, account)
        show(checkpoint.run or checkpoint.id, account)
        if adopts and checkpoint.run is not None:
            trust.adopt(store, checkpoint.run, head)


def _commands(store: Checkpoints, checkpoint: Checkpoint) -> list[str]:
    """Returns what a run would do, by the pipeline of that name here, a line for each phase that it does not call complete."""
    pipeline = checkpoint.pipeline
    if pipeline is None or pipeline.name is None:
        return []
    top = store.repository.worktree or main_worktree(store.repository) or ""
    try:
        definition = file.read(os.path.join(top, settings.FILE), pipeline.name, OPTIONS)
    except CkptError as error:
        return [f"cannot be told: {error.message}"]
    left = [phase for phase in definition.phases if phase.name not in pipeline.completed]
    commands = [f"{phase.name}: {_brief(phase.run if phase.run is not None else str(phase.use))}" for phase in left]
    if any(command.endswith(_CUT) for command in commands):
        place = f"git ckpt run --print {definition.name}" if definition.source == file.PRESET else f"see {definition.source}"
        commands.append(f"the whole of them: {place}")
    return commands


def _brief(command: str) -> str:
    """Return a command on one line; of a long one its beginning, and how many lines it has."""
    line = " ".join(command.split())
    if len(line) <= _SHOWN:
        return line
    return f"{line[:_SHOWN].rstrip()}… ({len(command.strip().splitlines())} lines{_CUT}"
