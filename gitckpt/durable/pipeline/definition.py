"""Definitions of pipelines and phases, and their comparison. Pure values."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Collection, Mapping
from typing import Any

from gitckpt.durable.run import attempts
from gitckpt.durable.run.attempts import Retries
from gitckpt.model.arguments import closest, folded, require_text
from gitckpt.model.errors import UsageError
from gitckpt.model.values import dataclass, field

Texts = Mapping[str, str]  # values by name

CHECKPOINT, BATCH, FULLY_AUTONOMOUS = "checkpoint", "batch", "fully_autonomous"
# Pause after each phase, at the end of a group, or never.
_AUTONOMIES = (CHECKPOINT, BATCH, FULLY_AUTONOMOUS)

KEEP, REMOVE_WHEN_PUSHED = "keep", "remove_when_pushed"
WORKTREES = (KEEP, REMOVE_WHEN_PUSHED)

# Keys of a pipeline that may change between two resumes: a run keeps its name, autonomy and
# deadline, and phases have their own digests.
FREE = ("name", "phases", "description", "autonomy", "timeout", "retention", "source")

# Keys of a phase that may change between two resumes: they do not change what its command does.
FREE_IN_PHASES = ("name", "timeout", "idle_timeout", "retries", "autosave", "max_recoveries")

_UNORDERED = ("needs", "aliases", "skip_with", "files")


@dataclass(frozen=True, slots=True)
class PhaseDefinition:
    """A phase. The fields are the keys in the file. Durations are in microseconds.

    The order of the fields is their order in messages.
    """

    name: str
    run: str | None = None  # shell command; None if `use` names a step
    use: str | None = None  # name of a built-in step
    env: Texts = field(default_factory=dict)
    timeout: int | None = None  # of one attempt
    idle_timeout: int | None = None  # limit of the time without output
    retries: Retries = field(default_factory=Retries)
    autosave: int = attempts.AUTOSAVE  # interval; 0 disables autosaves
    max_recoveries: int = attempts.MAX_RECOVERIES  # more crashes within the phase block the run
    group: str | None = None
    needs: tuple[str, ...] = ()  # phases that must come before this one
    on_resume: str = attempts.KEEP  # files of an unfinished attempt: `keep`, or `reset`
    must_change: bool = False  # an attempt that changes no file fails
    aliases: tuple[str, ...] = ()
    skip_with: tuple[str, ...] = ()  # skip the phase if any of these inputs is given
    options: Texts = field(default_factory=dict)  # of the step in `use`


@dataclass(frozen=True, slots=True)
class PipelineDefinition:
    """A pipeline. Fields except `name` and `source` are the keys in the file.

    Durations are in microseconds.
    """

    name: str
    phases: tuple[PhaseDefinition, ...]  # in execution order
    description: str = ""
    autonomy: str = FULLY_AUTONOMOUS
    timeout: int | None = None  # of the whole run
    env: Texts = field(default_factory=dict)
    worktree: str = KEEP  # of a complete run: `keep` or `remove_when_pushed`
    retention: int | None = None  # age at which complete runs expire
    inputs: Texts = field(default_factory=dict)  # name → default
    files: tuple[str, ...] = ()  # inputs that are file paths; their content belongs to the run
    source: str = ""  # path of the defining file, or `preset`

    def phase(self, text: str) -> PhaseDefinition:
        """Return the phase with a name or alias; raise UsageError if none.

        Ignores case; hyphens and underscores equal spaces.
        """
        require_text("phase", text)
        for phase in self.phases:
            if phase.name == text:
                return phase
        names = [(name, phase) for phase in self.phases for name in (phase.name, *phase.aliases)]
        by_name = {folded(name): phase for name, phase in names}
        if folded(text) in by_name:
            return by_name[folded(text)]
        hint = f"its phases: {', '.join(phase.name for phase in self.phases)}"
        close = closest(folded(text), by_name)
        if close:
            hint = f"did you mean {by_name[close].name}? I{hint[1:]}"
        raise UsageError(f"the pipeline {self.name} has no phase {text!r}", hint=hint)

    def ends_group(self, name: str) -> bool:
        """Return whether a phase is the last of its group; without a group it is its own."""
        for phase, following in zip(self.phases, (*self.phases[1:], None), strict=True):
            if phase.name == name:
                return phase.group is None or following is None or following.group != phase.group
        raise KeyError(name)

    def digest(self) -> dict[str, str]:
        """Return a digest of each key of the pipeline, as 16 hex digits.

        Omits the keys in `FREE` and `FREE_IN_PHASES` and those with their default.
        """
        values = _set_values(self, PipelineDefinition("", ()), FREE)
        values["order"] = [phase.name for phase in self.phases]
        for phase in self.phases:
            for key, value in _set_values(phase, PhaseDefinition(""), FREE_IN_PHASES).items():
                values[f"{phase.name}.{key}"] = value
        dump = functools.partial(json.dumps, sort_keys=True, separators=(",", ":"))
        texts = {key: dump(value).encode() for key, value in values.items()}
        return {key: hashlib.sha256(text).hexdigest()[:16] for key, text in texts.items()}


def _set_values(record: Any, default: object, free: Collection[str]) -> dict[str, object]:
    values: dict[str, object] = {}
    for key in record.__match_args__:
        value = getattr(record, key)
        if key not in free and value != getattr(default, key):
            value = sorted(value) if key in _UNORDERED else value
            value = dict(value) if isinstance(value, Mapping) else value
            values["with" if key == "options" else key] = value
    return values


def changes(old: Texts, new: Texts) -> list[str]:
    """Return the differences of two digests, for people."""
    old_phases, new_phases = _phases(old), _phases(new)
    differing = [key for key in {**new, **old} if old.get(key) != new.get(key)]
    changed = [
        "the order of the phases" if key == "order" else key
        for key in differing
        # A new or missing phase implies another order.
        if "." not in key and (key != "order" or old_phases == new_phases)
    ]
    for name in new_phases:
        if name not in old_phases:
            changed.append(f"phase {name!r} is new")
            continue
        keys = [key.rpartition(".") for key in differing]
        changed += [f"phase {name!r}: {key}" for phase, _, key in keys if phase == name]
    return changed + [f"phase {name!r} is gone" for name in old_phases if name not in new_phases]


def _phases(digest: Texts) -> dict[str, None]:
    return dict.fromkeys(key.rpartition(".")[0] for key in digest if "." in key)


def autonomy(text: str) -> str:
    """Return the autonomy with a name; raise UsageError if none.

    Ignores case; `autonomous` means `fully_autonomous`.
    """
    require_text("autonomy", text)
    name = text.strip().lower()
    name = FULLY_AUTONOMOUS if name == "autonomous" else name
    if name not in _AUTONOMIES:
        close = closest(name, _AUTONOMIES)
        hint = f"did you mean {close}?" if close else f"choose from {', '.join(_AUTONOMIES)}"
        raise UsageError(f"{text!r} is not a mode of autonomy", hint=hint)
    return name
