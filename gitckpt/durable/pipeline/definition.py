"""Definitions of pipelines and phases, and their comparison. Pure values."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from gitckpt.durable.run import attempts
from gitckpt.durable.run.attempts import Retries
from gitckpt.model.arguments import closest, folded, require_text
from gitckpt.model.errors import UsageError
from gitckpt.model.values import dataclass, field

CHECKPOINT, BATCH, FULLY_AUTONOMOUS = "checkpoint", "batch", "fully_autonomous"
# Pause after each phase, at the end of a group, or never.
_AUTONOMIES = (CHECKPOINT, BATCH, FULLY_AUTONOMOUS)

KEEP, REMOVE_WHEN_PUSHED = "keep", "remove_when_pushed"
WORKTREES = (KEEP, REMOVE_WHEN_PUSHED)

# Keys of a pipeline that may change between two resumes, with the reason.
FREE = {
    "name": "the run has it",
    "phases": "each has its own entries, and their order has one",
    "description": "a text for people",
    "autonomy": "the run keeps the one that it was started with",
    "timeout": "the run keeps its deadline",
    "retention": "it says when a complete run expires",
    "source": "the path of the file",
}

# Keys of a phase that may change between two resumes, with the reason.
FREE_IN_PHASES = {
    "name": "it is part of the name of each entry",
    "timeout": "an attempt may be given more time",
    "idle_timeout": "an attempt may be given more time",
    "retries": "the same command runs again, sooner or later",
    "autosave": "it says how often the files are saved",
    "max_recoveries": "a run that crashes may be given more tries",
}

_UNORDERED = ("needs", "aliases", "skip_with", "files")


@dataclass(frozen=True, slots=True)
class PhaseDefinition:
    """A phase. The fields are the keys in the file. Durations are in microseconds.

    The order of the fields is their order in messages.
    """

    name: str
    run: str | None = None  # shell command; None if `use` names a step
    use: str | None = None  # name of a built-in step
    env: Mapping[str, str] = field(default_factory=dict)
    timeout: int | None = None  # of one attempt
    idle_timeout: int | None = None  # limit of the time without output
    retries: Retries = field(default_factory=Retries)
    autosave: int = attempts.AUTOSAVE  # interval; 0 disables autosaves
    max_recoveries: int = attempts.MAX_RECOVERIES  # more crashes within the phase block the run
    group: str | None = None
    needs: tuple[str, ...] = ()  # phases that must come before this one
    on_resume: str = (
        attempts.KEEP
    )  # files of an unfinished attempt: `keep`, or `reset` to the start
    must_change: bool = False  # an attempt that changes no file fails
    aliases: tuple[str, ...] = ()
    skip_with: tuple[str, ...] = ()  # skip the phase if any of these inputs is given
    options: Mapping[str, str] = field(default_factory=dict)  # of the step in `use`


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
    env: Mapping[str, str] = field(default_factory=dict)
    worktree: str = KEEP  # of a complete run: `keep` or `remove_when_pushed`
    retention: int | None = None  # age at which complete runs expire
    inputs: Mapping[str, str] = field(default_factory=dict)  # name → default
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
        known = {
            folded(name): phase for phase in self.phases for name in (phase.name, *phase.aliases)
        }
        found = known.get(folded(text))
        if found is not None:
            return found
        names = ", ".join(phase.name for phase in self.phases)
        close = closest(folded(text), known)
        hint = (
            f"did you mean {known[close].name}? Its phases: {names}"
            if close
            else f"its phases: {names}"
        )
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
        digest = {
            key: _hash(value)
            for key, value in _said(self, PipelineDefinition("", ()), FREE).items()
        }
        digest["order"] = _hash([phase.name for phase in self.phases])
        for phase in self.phases:
            for key, value in _said(phase, PhaseDefinition(""), FREE_IN_PHASES).items():
                digest[f"{phase.name}.{key}"] = _hash(value)
        return digest


def _said(
    definition: PipelineDefinition | PhaseDefinition, usual: object, free: Collection[str]
) -> dict[str, object]:
    said: dict[str, object] = {}
    for key in definition.__match_args__:
        value = getattr(definition, key)
        if key in free or value == getattr(usual, key):
            continue
        value = sorted(value) if key in _UNORDERED else value
        said["with" if key == "options" else key] = (
            dict(value) if isinstance(value, Mapping) else value
        )
    return said


def _hash(value: object) -> str:
    import hashlib
    import json

    return hashlib.sha256(
        json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
    ).hexdigest()[:16]


def changes(old: Mapping[str, str], new: Mapping[str, str]) -> list[str]:
    """Return the differences of two digests, for people."""
    before, after = _phases(old), _phases(new)
    whole = dict.fromkeys(key for key in (*new, *old) if "." not in key)
    if before != after:
        whole.pop("order", None)  # implied by an added or removed phase
    differing = (key for key in whole if old.get(key) != new.get(key))
    found = ["the order of the phases" if key == "order" else key for key in differing]
    for name in after:
        if name not in before:
            found.append(f"phase {name!r} is new")
            continue
        keys = dict.fromkeys(key for key in (*new, *old) if key.rpartition(".")[0] == name)
        found += [
            f"phase {name!r}: {key.rpartition('.')[2]}"
            for key in keys
            if old.get(key) != new.get(key)
        ]
    return found + [f"phase {name!r} is gone" for name in before if name not in after]


def _phases(digest: Mapping[str, str]) -> dict[str, None]:
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
        hint = f"did you mean {close}?" if close else f"it is one of {', '.join(_AUTONOMIES)}"
        raise UsageError(f"{text!r} is no mode of autonomy", hint=hint)
    return name
