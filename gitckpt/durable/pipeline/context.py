"""What a phase that gitckpt carries out itself works with: its run, its options, and what a command of it would find."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from typing import Any

from gitckpt.durable.command.watchdog import Watchdog
from gitckpt.durable.pipeline.definition import PhaseDefinition, PipelineDefinition
from gitckpt.durable.run.errors import PhaseFailed
from gitckpt.git.files import regular
from gitckpt.git.process import LOCAL_VARIABLES
from gitckpt.model.checkpoint import Attempt
from gitckpt.model.values import dataclass, field
from gitckpt.store.leases import leases
from gitckpt.store.runs import run_files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gitckpt.durable.agent.client import Client
    from gitckpt.durable.run.active_run import ActiveRun

RESUMED = "CKPT_RESUMED"
"""A variable: "1" where the phase was begun before; else it is not set."""

_LONGEST = 4096
_LONGEST_INPUT = 30_000  # systems allow 128 KiB for a variable
_PLACE = re.compile(r"\{\{|\}\}|\{([a-z_][a-z0-9_]*)\}")


@dataclass(frozen=True, slots=True)
class Context:
    """One attempt at a phase of a pipeline.

    Attributes:
        run: the run.
        definition: its pipeline.
        phase: the phase.
        attempt: the attempt.
        watchdog: ends a command whose driver was killed.
        output: gets what is to be shown, as it comes.
        tick: gets the seconds since something long began, about once a second.
        agents: the agents that are configured, by name.
        announce: gets what a person is to know before it happens, in one line.
    """

    run: ActiveRun
    definition: PipelineDefinition
    phase: PhaseDefinition
    attempt: Attempt
    watchdog: Watchdog
    output: Callable[[bytes], None]
    tick: Callable[[float], None] | None = None
    agents: Mapping[str, Client] = field(default_factory=dict)
    announce: Callable[[str], None] = lambda _: None

    def inputs(self) -> dict[str, str]:
        """Returns the inputs of the run; for those that are files, where a copy is."""
        pipeline = self.run.pipeline
        found = {**self.definition.inputs, **pipeline.inputs}
        for name in self.definition.files:
            found[name] = os.path.join(self.run.files.path, run_files.INPUT, name) if name in pipeline.contents else ""
        return found

    def content(self, path: str, what: str) -> bytes:
        """Return the content of a file that the run was started with, or of its worktree.

        Args:
            path: of the file, as the input has it.
            what: what it is, for errors.

        Raises:
            PhaseFailed: it is not there, or cannot be read.
        """
        run = self.run
        names = [name for name in self.definition.files if run.pipeline.inputs.get(name) == path and name in run.pipeline.contents]
        copies = [os.path.join(run.files.path, run_files.INPUT, name) for name in names]
        for place in (*copies, os.path.join(run.path, path)):
            is_copy = place in copies or os.path.isabs(path)
            try:
                return regular.content(place) if is_copy else regular.content_below(run.path, place)
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                hint = f"make it a file that can be read, then: git ckpt resume {run.id}"
                raise PhaseFailed(f"{what} cannot be read: {place}: {error.strerror}", hint=hint) from None
        hint = f"put it there, then: git ckpt resume {run.id} --accept-changes"
        raise PhaseFailed(f"{what} is not there: {path}", hint=hint)

    def option(self, name: str) -> str:
        """Returns what the phase is carried out with; `{name}` in it stands for an input, or a string or number of the state, `{{` and `}}`
        for braces.

        Args:
            name: of the option.

        Raises:
            PhaseFailed: it names something that there is not.
        """
        given = {**self.definition.inputs, **self.run.pipeline.inputs}
        # An input that nobody gave does not hide what an earlier phase found out.
        known = {**given, **plain(self.run.state), **{key: value for key, value in given.items() if value}}
        try:
            return filled(self.phase.options.get(name, ""), known)
        except KeyError as error:
            place = f"{{{error.args[0]}}}"
            raise PhaseFailed(f"{name} of phase {self.phase.name!r} names {place}, and there is no such input or state") from None

    def client(self, role: str) -> Client:
        """Returns the agent that an option names.

        Args:
            role: the option.

        Raises:
            PhaseFailed: as `option`.
            UsageError: it names none.
        """
        from gitckpt.durable.agent.client import client_of, redefinition  # most phases are commands

        wanted = self.option(role)
        redefined = redefinition(wanted, self.agents)
        if redefined is not None:
            self.announce(redefined)
        return client_of(wanted, self.agents)

    def environment(self) -> dict[str, str]:
        """Returns what a command of the phase finds in its environment."""
        run = self.run
        revisions = run.state.get("revisions")
        revision = revisions.get(self.phase.name) if isinstance(revisions, dict) else None
        env = {name: value for name, value in os.environ.items() if name not in LOCAL_VARIABLES and not name.startswith("CKPT_")}
        env |= {**self.definition.env, **self.phase.env}
        env |= {f"CKPT_STATE_{key.upper()}": value for key, value in plain(run.state).items()}
        env |= {f"CKPT_INPUT_{name.upper()}": value for name, value in self.inputs().items() if len(value) <= _LONGEST_INPUT}
        return env | {
            leases.RUN_VARIABLE: run.id,
            leases.FENCE_VARIABLE: str(run.hold.lease.token),
            "CKPT_REVISION": revision if isinstance(revision, str) and "\0" not in revision else "",
            "CKPT_PHASE": self.phase.name,
            "CKPT_ATTEMPT": str(self.attempt.number),
            **({RESUMED: "1"} if self.attempt.number > 1 else {}),
        }

    def look(self, seconds: float) -> None:
        """What is called about once a second while something goes on: it ends that, by raising, if the run shall stop."""
        self.run.check()
        if self.tick is not None:
            self.tick(seconds)


def plain(state: Mapping[str, Any]) -> dict[str, str]:
    """Returns the strings and numbers of a state that an environment can hold."""
    found = {}
    for key, value in state.items():
        text = str(value) if type(value) in (str, int, float) else ""
        if text and key.isascii() and key.replace("_", "a").isalnum() and len(text) <= _LONGEST and "\0" not in text:
            found[key] = text
    return found


def filled(text: str, known: Mapping[str, str]) -> str:
    """Returns an option with values in its places: `{name}`, and `{{` and `}}` for braces.

    Args:
        text: of the option.
        known: name → value.

    Raises:
        KeyError: it names something else.
    """
    return _PLACE.sub(lambda found: found[0][0] if found[1] is None else known[found[1]], text).strip()
