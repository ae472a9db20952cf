"""Drive loops in this process, with a scripted agent and fake programs on PATH.

The programs replace `bd` and the tests of a project.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from gitckpt import Checkpoint, Observer, Query, Run, Store
from gitckpt.durable.agent.clients import STDIN, AgentClient, Claude
from gitckpt.durable.driver import driver
from gitckpt.durable.driver.driver import CONTINUE, RunDriver
from gitckpt.durable.pipeline import definition as pipelines
from gitckpt.durable.pipeline import launch
from gitckpt.durable.pipeline.definition import PipelineDefinition, parse_pipelines
from gitckpt.durable.run.attempts import CurrentAttempt, RunSession
from gitckpt.durable.run.opener import reopen_run
from gitckpt.model.checkpoint import LOOP
from gitckpt.store.store import checkpoints_of_store
from tests.conftest import Checkout
from tests.durable.conftest import Killed, Sleeper, attempt_of, crash, go_on

FAKE = Path(__file__).parents[4] / "examples" / "fake-agent"
PHASE = "implementation"
PLAN = "plan.md"

AGENT = """\
number=$(($(ls "$ASKED" | wc -l) / 2 + 1))
cat > "$ASKED/$number.prompt"
echo "$*" > "$ASKED/$number.words"
exec {fake} "$@" < "$ASKED/$number.prompt"
"""

BEADS = """\
words=$*
shift
case $words in
"show "*)
    separator='['
    for id; do
        [ "$id" != --json ] || continue
        [ -e ".issues/$id" ] || { echo "no issue found: $id" >&2; continue; }
        printf '%s{"id": "%s", "status": "%s"}' "$separator" "$id" "$(cat ".issues/$id")"
        separator=,
    done
    echo ']'
    ;;
"close "*) echo closed > ".issues/$1" ;;
*) exit 64 ;;
esac
"""
"""A `bd` whose issues are files in the worktree."""


class Listener(Observer):
    """Receive the events of a driver, and kill the driver at a given text.

    Attributes:
        shown: all output.
        kill_at: a text; the driver dies when it is shown.
    """

    def __init__(self) -> None:
        self.shown = b""
        self.kill_at: bytes | None = None

    def begins(self, phase: str, attempt: int, number: int, total: int) -> None: ...

    def output(self, data: bytes) -> None:
        self.shown += data
        if self.kill_at is not None and self.kill_at in data:
            raise Killed

    def tick(self, seconds: float) -> None: ...

    def ended(self, phase: str, status: str, seconds: float | None) -> None: ...

    def ask(self, phase: str) -> tuple[str, str]:
        return CONTINUE, ""


class Bench:
    """A project in which tests run loops.

    Attributes:
        run: the id of the newest run.
        listener: receives the events of the driver.
    """

    def __init__(
        self,
        checkout: Checkout,
        store: Store,
        sleeper: Sleeper,
        directory: Path,
        patch: pytest.MonkeyPatch,
    ) -> None:
        self.checkout, self.store, self.sleeper = checkout, store, sleeper
        self.listener = Listener()
        self.run = ""
        self.definition = pipelines.read_preset("loop", driver.OPTIONS)
        self._programs, self._asked, self._script = (
            directory / "programs",
            directory / "asked",
            directory / "script.jsonl",
        )
        for made in (self._programs, self._asked):
            made.mkdir()
        fake = shlex.join(
            [
                sys.executable,
                "-I",
                "-S",
                str(FAKE),
                "--format",
                Claude.name,
                "--script",
                str(self._script),
            ]
        )
        self.program("fake", AGENT.format(fake=fake))
        self.client = AgentClient("fake", "fake", STDIN, Claude.name, "--resume {session}")
        patch.setenv("PATH", f"{self._programs}{os.pathsep}{os.environ['PATH']}")
        patch.setenv("ASKED", str(self._asked))
        checkout.commit("the plan", **{PLAN: "# Plan\n\n- [ ] all of it\n"})
        self.script({})

    def program(self, name: str, script: str) -> None:
        """Put a shell script on PATH."""
        path = self._programs / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def script(self, *entries: dict[str, Any]) -> None:
        """Set the agent's action for each call; the last one is repeated."""
        self._script.write_text("".join(json.dumps(entry) + "\n" for entry in entries))

    def issues(self, **statuses: str) -> str:
        """Commit issues of beads (`bd_1="open"`), and return their ids."""
        ids = [name.replace("_", "-") for name in statuses]
        self.program("bd", BEADS)
        self.checkout.commit(
            "issues",
            **{
                f".issues/{name}": status
                for name, status in zip(ids, statuses.values(), strict=True)
            },
        )
        return " ".join(ids)

    def pipeline(self, text: str) -> PipelineDefinition:
        """Let later runs use the pipeline of a text."""
        (self.definition,) = parse_pipelines(text, "gitckpt.toml", driver.OPTIONS).values()
        return self.definition

    def start(self, **inputs: str) -> str:
        """Start a run without a driver; by default, it loops until the tests pass.

        The default limit is nine iterations.
        """
        said = {
            "plan": str(self.checkout.path / PLAN),
            "agent": "fake",
            "until_tests_pass": "yes",
            "tests": "true",
            "max_iterations": "9",
        } | inputs
        said = {name: value for name, value in said.items() if name in self.definition.inputs}
        given = launch.read_inputs(checkpoints_of_store(self.store), self.definition, said)
        self.run = str(
            launch.start_run(
                checkpoints_of_store(self.store), self.definition, given, name="plan"
            ).run
        )
        return self.run

    def drive(self, *, again: str | None = None, forget: tuple[str, ...] = ()) -> dict[str, Any]:
        """Drive the run to its end, and return the result of the loop.

        Args:
            again: a phase to repeat.
            forget: keys of the state to remove, as the phase no longer needs them.
        """
        opening = reopen_run(
            checkpoints_of_store(self.store), self.run, adapter="plumbing", again=True
        )
        opened = Run(RunSession(opening, self.sleeper))
        try:
            if again is not None:
                driver.redo_phase(opened, again, forget)
            self._driver(opened).drive_run()
            opened.finish()
        finally:
            opened.close()
        return self.result()

    def die(self, at: str) -> Run:
        """Drive the run until a text is shown, and kill the driver there."""
        self.listener.kill_at = at.encode()
        opened = go_on(self.store, self.run, self.sleeper)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(CurrentAttempt, "_record_failure", lambda *_: None)
            with pytest.raises(Killed):
                self._driver(opened).drive_run()
        crash(opened)
        self.listener.kill_at = None
        return opened

    def loop(self, **inputs: str) -> dict[str, Any]:
        """Start a run and drive it to its end."""
        self.start(**inputs)
        return self.drive()

    def result(self) -> dict[str, Any]:
        """Return the result of the loop."""
        found = json.loads(str(attempt_of(self.store, self.run, f"{PHASE}-complete").result))
        assert isinstance(found, dict)
        return found

    @property
    def prompts(self) -> list[str]:
        """The prompt of each call of the agent."""
        return [path.read_text() for path in self._calls("prompt")]

    @property
    def words(self) -> list[str]:
        """The arguments of each call of the agent."""
        return [path.read_text().strip() for path in self._calls("words")]

    @property
    def newest(self) -> Checkpoint:
        return checkpoints_of_store(self.store).heads.read(self.run)

    @property
    def memory(self) -> dict[str, Any]:
        """The loop's entry in the state of the newest checkpoint."""
        return dict(self.newest.state["loop"])

    def milestones(self) -> list[Checkpoint]:
        """Return the checkpoints that the loop made, in order."""
        found = [
            self.store.read(entry.id) for entry in reversed(self.store.list(Query(run=self.run)))
        ]
        return [each for each in found if each.trigger == LOOP]

    def messages(self) -> list[str]:
        return [str(each.message) for each in self.milestones()]

    def path(self, name: str) -> Path:
        """Return the path of a file in the run's worktree."""
        return self.checkout.path / ".ckpt/worktrees" / self.run / name

    def shown(self) -> list[str]:
        """Return the lines that the loop itself showed."""
        return [
            line[7:]
            for line in self.listener.shown.decode().splitlines()
            if line.startswith("[loop] ")
        ]

    def _driver(self, run: Run) -> RunDriver:
        return RunDriver(run, self.definition, self.listener, agents={"fake": self.client})

    def _calls(self, kind: str) -> list[Path]:
        return sorted(self._asked.glob(f"*.{kind}"), key=lambda path: int(path.stem))
