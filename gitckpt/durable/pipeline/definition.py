"""What a pipeline is: its phases in the order in which they run, and what makes two definitions mean the same. Pure values."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from gitckpt.durable.run import attempts
from gitckpt.durable.run.attempts import Retries
from gitckpt.model.arguments import closest, folded, require_text
from gitckpt.model.errors import UsageError
from gitckpt.model.values import dataclass, field

CHECKPOINT, BATCH, FULLY_AUTONOMOUS = "checkpoint", "batch", "fully_autonomous"
_AUTONOMIES = (CHECKPOINT, BATCH, FULLY_AUTONOMOUS)
"""When a run pauses: after each phase, where a group ends, never."""

KEEP, REMOVE_WHEN_PUSHED = "keep", "remove_when_pushed"
WORKTREES = (KEEP, REMOVE_WHEN_PUSHED)

FREE = {
    "name": "the run has it",
    "phases": "each has its own entries, and their order has one",
    "description": "a text for people",
    "autonomy": "the run keeps the one that it was started with",
    "timeout": "the run keeps its deadline",
    "retention": "it says when a complete run expires",
    "source": "the path of the file",
}
"""Keys of a pipeline that may change between two resumes, and why."""

FREE_IN_PHASES = {
    "name": "it is part of the name of each entry",
    "timeout": "an attempt may be given more time",
    "idle_timeout": "an attempt may be given more time",
    "retries": "the same command runs again, sooner or later",
    "autosave": "it says how often the files are saved",
    "max_recoveries": "a run that crashes may be given more tries",
}
"""Keys of a phase that may change between two resumes, and why."""

_UNORDERED = ("needs", "aliases", "skip_with", "files")


@dataclass(frozen=True, slots=True)
class PhaseDefinition:
    """One phase. Its fields are the keys of the file, in the order in which messages name them. Lengths of time are in microseconds."""

    name: str
    run: str | None = None
    """The shell command; None where `use` says what is done."""

    use: str | None = None
    """The name of a step that gitckpt knows itself."""

    env: Mapping[str, str] = field(default_factory=dict)
    timeout: int | None = None
    """How long one attempt may take; None for as long as it likes."""

    idle_timeout: int | None = None
    """How long an attempt may write nothing; None for as long as it likes."""

    retries: Retries = field(default_factory=Retries)
    autosave: int = attempts.AUTOSAVE
    """How often the files are saved while the phase runs; 0 for never."""

    max_recoveries: int = attempts.MAX_RECOVERIES
    """After more crashes than that within the phase the run is blocked."""

    group: str | None = None
    needs: tuple[str, ...] = ()
    """The phases that must stand before it."""

    on_resume: str = attempts.KEEP
    """What becomes of an unfinished attempt's files: `keep`, or `reset` to what they were when the phase began."""

    must_change: bool = False
    """Whether an attempt that changed no file counts as failed."""

    aliases: tuple[str, ...] = ()
    skip_with: tuple[str, ...] = ()
    """The inputs any of which, where it is given, does the work of the phase."""

    options: Mapping[str, str] = field(default_factory=dict)
    """What the step that `use` names is carried out with."""


@dataclass(frozen=True, slots=True)
class PipelineDefinition:
    """A pipeline. Its fields but `name` and `source` are the keys of the file. Lengths of time are in microseconds."""

    name: str
    phases: tuple[PhaseDefinition, ...]
    """In the order in which they run."""

    description: str = ""
    autonomy: str = FULLY_AUTONOMOUS
    timeout: int | None = None
    """How long the whole run may take; None for as long as it likes."""

    env: Mapping[str, str] = field(default_factory=dict)
    worktree: str = KEEP
    """What becomes of the worktree of a run that is complete: `keep`, or `remove_when_pushed`."""

    retention: int | None = None
    """The age at which complete runs expire; None where the pipeline does not say."""

    inputs: Mapping[str, str] = field(default_factory=dict)
    """The name of each input, with its default."""

    files: tuple[str, ...] = ()
    """The inputs that are paths of files, whose content belongs to the run."""

    source: str = ""
    """The path of the file that defines it, or `preset`."""

    def phase(self, text: str) -> PhaseDefinition:
        """Returns the phase that a person means.

        Args:
            text: its name or one of its aliases; in any case, and with hyphens or underscores for spaces.

        Raises:
            UsageError: there is none; those there are, and the closest, are named.
        """
        require_text("phase", text)
        for phase in self.phases:
            if phase.name == text:
                return phase
        known = {folded(name): phase for phase in self.phases for name in (phase.name, *phase.aliases)}
        found = known.get(folded(text))
        if found is not None:
            return found
        names = ", ".join(phase.name for phase in self.phases)
        close = closest(folded(text), known)
        hint = f"did you mean {known[close].name}? Its phases: {names}" if close else f"its phases: {names}"
        raise UsageError(f"the pipeline {self.name} has no phase {text!r}", hint=hint)

    def ends_group(self, name: str) -> bool:
        """Tells whether the phase of this name is the last of its group; one without a group is a group of its own.

        Raises:
            KeyError: there is no such phase.
        """
        for phase, following in zip(self.phases, (*self.phases[1:], None), strict=True):
            if phase.name == name:
                return phase.group is None or following is None or following.group != phase.group
        raise KeyError(name)

    def digest(self) -> dict[str, str]:
        """Return a digest of each key of the pipeline, as 16 hex digits.

        All keys count but those of `FREE` and `FREE_IN_PHASES`. A key with its default has no entry.
        """
        digest = {key: _hash(value) for key, value in _said(self, PipelineDefinition("", ()), FREE).items()}
        digest["order"] = _hash([phase.name for phase in self.phases])
        for phase in self.phases:
            for key, value in _said(phase, PhaseDefinition(""), FREE_IN_PHASES).items():
                digest[f"{phase.name}.{key}"] = _hash(value)
        return digest


def _said(definition: PipelineDefinition | PhaseDefinition, usual: object, free: Collection[str]) -> dict[str, object]:
    """Return the keys that count and differ from their defaults, by their names in the file."""
    said: dict[str, object] = {}
    for key in definition.__match_args__:
        value = getattr(definition, key)
        if key in free or value == getattr(usual, key):
            continue
        value = sorted(value) if key in _UNORDERED else value
        said["with" if key == "options" else key] = dict(value) if isinstance(value, Mapping) else value
    return said


def _hash(value: object) -> str:
    import hashlib
    import json

    return hashlib.sha256(json.dumps(value, sort_keys=True, separators=(",", ":")).encode()).hexdigest()[:16]


def changes(old: Mapping[str, str], new: Mapping[str, str]) -> list[str]:
    """Returns what differs between two digests, for people: the whole, then the phases of the new one in order, then those that are gone.

    Args:
        old: what a run was started with.
        new: what its pipeline says now.
    """
    before, after = _phases(old), _phases(new)
    whole = dict.fromkeys(key for key in (*new, *old) if "." not in key)
    if before != after:
        whole.pop("order", None)  # a phase that came or went changes the order by itself
    differing = (key for key in whole if old.get(key) != new.get(key))
    found = ["the order of the phases" if key == "order" else key for key in differing]
    for name in after:
        if name not in before:
            found.append(f"phase {name!r} is new")
            continue
        keys = dict.fromkeys(key for key in (*new, *old) if key.rpartition(".")[0] == name)
        found += [f"phase {name!r}: {key.rpartition('.')[2]}" for key in keys if old.get(key) != new.get(key)]
    return found + [f"phase {name!r} is gone" for name in before if name not in after]


def _phases(digest: Mapping[str, str]) -> dict[str, None]:
    return dict.fromkeys(key.rpartition(".")[0] for key in digest if "." in key)


def autonomy(text: str) -> str:
    """Returns one of `_AUTONOMIES`.

    Args:
        text: its name, in any case, with spaces around it or not; `autonomous` is `fully_autonomous`.

    Raises:
        UsageError: it is none of them.
    """
    require_text("autonomy", text)
    name = text.strip().lower()
    name = FULLY_AUTONOMOUS if name == "autonomous" else name
    if name not in _AUTONOMIES:
        close = closest(name, _AUTONOMIES)
        hint = f"did you mean {close}?" if close else f"it is one of {', '.join(_AUTONOMIES)}"
        raise UsageError(f"{text!r} is no mode of autonomy", hint=hint)
    return name
