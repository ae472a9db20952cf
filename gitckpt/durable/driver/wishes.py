"""What whoever starts a run of a pipeline, or goes on with it, may wish for: the arguments of `Pipelines.run` and `Pipelines.resume`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict

from gitckpt.model.checkpoint import Checkpoint


class Wishes(TypedDict, total=False):
    """How a run of a pipeline shall be driven."""

    autonomy: str | None
    """When it pauses, from now on: "checkpoint", "batch" or "fully_autonomous"; by default as before, or as the pipeline says."""

    timeout: int | None
    """How long the whole run may take from now on, in microseconds; by default as before, or as the pipeline says."""

    holder: str
    """What its lease is taken for, for people."""


class Resumption(Wishes, total=False):
    """How a run of a pipeline is gone on with."""

    directory: str | None
    """Where its worktree is made; by default where it was, or where the settings say."""

    take_over: bool
    """Whether it is taken from a driver that is alive and stalled; that one can write nothing more, and its commands are ended."""

    phase: str | None
    """A phase that is done again, with all after it."""

    rewind: Checkpoint | None
    """An earlier checkpoint of the run to go back to first; what is newer is saved."""

    accept_changes: bool
    """Whether it goes on though the pipeline, or what it was started with, has changed."""

    trust: bool
    """Whether a run that was not written here is taken for one of ours, as it stands."""

    inputs: Mapping[str, str]
    """Inputs that are other ones from now on."""
