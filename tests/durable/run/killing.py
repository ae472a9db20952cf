"""A pipeline whose driver or commands are killed, and its invariants."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gitckpt import Checkpoint, Query, Store
from gitckpt.model.checkpoint import PHASE, POST_COMMIT
from gitckpt.model.phase import split_label
from gitckpt.store.checkpoints import Checkpoints
from gitckpt.store.runs.summary import list_runs
from gitckpt.store.store import checkpoints_of_store
from tests.conftest import Checkout, repository_of
from tests.durable.nursery import Nursery
from tests.store.conftest import require_runs, require_whole, view

PHASES = ("one", "two", "three")
STATE = {"one": "1", "steps": [1, 2.5, True], "three": "3"}
KNOWN = {"one": ["one"], "two": ["one", "steps"], "three": ["one", "steps", "three"]}
"""The keys of the state once a phase is complete."""

PLACE = "KILL_LOG"
"""The environment variable for the log in which commands record start and end."""

MARK = 'set -e\necho "begin $CKPT_PHASE $$" >>"$KILL_LOG"\n'
END = '\necho "end $CKPT_PHASE" >>"$KILL_LOG"\n'
ONCE = (
    """\
echo one >>notes
mkdir -p kept
echo one >>kept/list
echo report >>"$CKPT_OUTPUT/report"
echo "one=1" >>"$CKPT_SET"
""",
    """\
[ "$CKPT_STATE_ONE" = 1 ] || exit 9
echo two >>notes
rm gone
git add --all
git commit --quiet --message "two after $CKPT_STATE_ONE"
echo two again >>notes
git add notes
echo draft >>draft
echo two >>"$CKPT_OUTPUT/two"
printf '{"one": "%s", "steps": [1, 2.5, true]}' "$CKPT_STATE_ONE" >"$CKPT_STATE"
""",
    """\
[ "$CKPT_STATE_ONE" = 1 ] || exit 9
echo three >>notes
cat "$CKPT_OUTPUT/../one/report" >>kept/list
git mv moved kept/moved
echo "three=3" >>"$CKPT_SET"
""",
)
"""Commands that must not be repeated on the same files."""

ALWAYS = (
    """\
echo one >notes
mkdir -p kept
echo report >"$CKPT_OUTPUT/report"
echo "one=1" >>"$CKPT_SET"
""",
    """\
[ "$CKPT_STATE_ONE" = 1 ] || exit 9
echo two >kept/two
rm -f gone
git add --all
git diff --cached --quiet || git commit --quiet --message "two after $CKPT_STATE_ONE"
printf '{"one": "%s", "steps": [1, 2.5, true]}' "$CKPT_STATE_ONE" >"$CKPT_STATE"
""",
    """\
[ "$CKPT_STATE_ONE" = 1 ] || exit 9
cat "$CKPT_OUTPUT/../one/report" >kept/three
[ ! -e moved ] || git mv moved kept/moved
echo "three=3" >>"$CKPT_SET"
""",
)
"""Commands that may be repeated on the files that they left."""


def pipeline(commands: tuple[str, ...], settings: str) -> str:
    """Return a `gitckpt.toml`.

    Args:
        commands: of its phases.
        settings: more keys of each phase.
    """
    phases = zip(PHASES, commands, strict=True)
    return "".join(
        (
            f"[[pipelines.three.phases]]\nname = '{name}'\n{settings}\nrun = '''\n"
            f"{MARK}{run}{END}'''\n\n"
        )
        for name, run in phases
    )


RESET = pipeline(ONCE, 'on_resume = "reset"\nmax_recoveries = 1000')
KEEP = pipeline(ALWAYS, 'on_resume = "keep"\nmax_recoveries = 1000')
AGAIN = pipeline(ONCE, 'on_resume = "reset"\nretries = { attempts = 1000, delay = "0s" }')
HOLD = """\
if [ -e "$KILL_LOG.hold" ]; then
    touch "$(git rev-parse --git-dir)/index.lock"
    echo "hold $CKPT_PHASE" >>"$KILL_LOG"
    sleep 60
fi
"""
HELD = pipeline((ONCE[0], ONCE[1] + HOLD, ONCE[2]), 'on_resume = "reset"\nmax_recoveries = 2')


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a run, apart from names and times."""

    worktree: dict[str, Any]
    commits: str
    snapshot: str
    state: dict[str, Any]
    completed: list[str]


class Project:
    """A repository with a pipeline and a single run.

    Args:
        checkout: the worktree in which commands run.
        log: the file in which the commands of the phases record start and end.
        hooks: whether commits become checkpoints by themselves.
    """

    def __init__(self, checkout: Checkout, log: Path, *, hooks: bool) -> None:
        self.checkout = checkout
        self.log = log
        self._hooks = hooks
        self.log.write_text("")

    def run(self) -> str | None:
        """Return the id of the run, or None before it exists."""
        with Store(Checkpoints(repository_of(self.checkout), adapter="plumbing")) as store:
            found = [summary.run for summary in list_runs(checkpoints_of_store(store))]
        assert len(found) <= 1, found
        return found[0] if found else None

    def is_released(self, run: str) -> bool:
        """Return whether the last driver of the run has released its lease."""
        with Store(Checkpoints(repository_of(self.checkout), adapter="plumbing")) as store:
            lease = checkpoints_of_store(store).leases.read(run)
        return lease is not None and lease[1].released is not None

    def said(self, word: str) -> list[str]:
        """Return the phases whose command logged its start, or its end, in order."""
        lines = [line.split() for line in self.log.read_text().splitlines()]
        return [line[1] for line in lines if line[0] == word]

    def shells(self) -> list[int]:
        """Return the process of each command that has begun, in order."""
        return [
            int(line.split()[2])
            for line in self.log.read_text().splitlines(keepends=True)
            if line[0] == "b" and line[-1] == "\n"
        ]

    def require_nothing_lost(self, run: str) -> int:
        """Return the number of complete phases.

        They must be the first phases, and the state must be the one that they left.
        """
        with Store(Checkpoints(repository_of(self.checkout), adapter="plumbing")) as store:
            newest = store.read(store.list(Query(run=run))[0].id)
        completed = list(newest.pipeline.completed) if newest.pipeline else []
        assert tuple(completed) == PHASES[: len(completed)]
        assert newest.state == {
            key: STATE[key] for key in (KNOWN[completed[-1]] if completed else [])
        }
        return len(completed)

    def set_head_back(self, run: str) -> None:
        """Set the head of the run back, like a power cut within a transaction."""
        with Store(Checkpoints(repository_of(self.checkout), adapter="plumbing")) as store:
            newest, before = store.list(Query(run=run))[:2]
        self.checkout.git("update-ref", f"refs/ckpt/runs/{run}", before.oid, newest.oid)

    def outcome(self, run: str) -> Outcome:
        """Return the result of the run."""
        with Store(Checkpoints(repository_of(self.checkout), adapter="plumbing")) as store:
            newest = checkpoints_of_store(store).heads.read(run)
        there = Checkout(self.checkout.main / ".ckpt/worktrees" / run)
        return Outcome(
            worktree=view(there.path),
            commits=there.git("log", "--format=%H %T %s"),
            snapshot=there.git("ls-tree", "-r", "-t", f"refs/ckpt/trees/{newest.id}"),
            state=dict(newest.state),
            completed=list(newest.pipeline.completed) if newest.pipeline else [],
        )

    def require_settled(self, nursery: Nursery, run: str, *, interruptions: int) -> None:
        """Assert that a complete run left everything in order despite its interruptions."""
        assert nursery.orphans() == []
        git_dir = self.checkout.main / ".git"
        locks = [str(path) for path in git_dir.rglob("*.lock") if path.parent.name != "ckpt"]
        assert locks == [], locks
        assert [path.name for path in (self.checkout.main / ".ckpt/worktrees").iterdir()] == [run]
        tops = [
            line
            for line in self.checkout.git("worktree", "list", "--porcelain").splitlines()
            if line.startswith("worktree ")
        ]
        expected = dict.fromkeys(
            (self.checkout.main, self.checkout.path, self.checkout.main / ".ckpt/worktrees" / run)
        )
        assert sorted(tops) == sorted(f"worktree {path}" for path in expected)
        verified = nursery.call(self.checkout, "verify")
        assert (verified.code, verified.out) == (0, ""), verified
        listed = nursery.call(self.checkout, "runs").out.split("\t")
        assert listed[:3] == [run, "complete", "run-complete"]
        assert self.is_released(run)
        self._require_each_once(run, interruptions)

    def _require_each_once(self, run: str, interruptions: int) -> None:
        found = require_whole(self.checkout)
        chain = [found[name] for name in require_runs(self.checkout, found)[run]]
        assert (POST_COMMIT in {checkpoint.trigger for checkpoint in chain}) == self._hooks
        labels = [
            split_label(checkpoint.label) for checkpoint in chain if checkpoint.trigger == PHASE
        ]
        assert [name for name, status in labels if status == "complete"] == [*PHASES, "run"]
        for phase in PHASES:
            numbers = attempts(chain, phase)
            assert numbers == list(range(1, len(numbers) + 1))
        started = [name for name, status in labels if status == "started" and name != "run"]
        began, ended = self.said("begin"), self.said("end")
        assert in_order(started) == in_order(began) == in_order(ended) == list(PHASES)
        assert len(began) <= len(started) <= len(PHASES) + interruptions


def attempts(chain: list[Checkpoint], phase: str) -> list[int]:
    """Return the numbers of the attempts at a phase, in the order they began."""
    return [
        each.attempt.number for each in chain if each.label == f"{phase}-started" and each.attempt
    ]


def in_order(names: list[str]) -> list[str]:
    """Return names without consecutive repetitions."""
    return [name for at, name in enumerate(names) if names[at - 1 : at] != [name]]


class Nest:
    """Make identical projects.

    Args:
        template: the main worktree of a repository.
        directory: for the projects; each replaces the one before.
        linked: whether commands run in a linked worktree.
        hooks: whether commits become checkpoints by themselves.
    """

    def __init__(self, template: Checkout, directory: Path, *, linked: bool, hooks: bool) -> None:
        self._template = template
        self._directory = directory
        self._linked = linked
        self._hooks = hooks
        self.log = directory / "log"

    def make(self, nursery: Nursery) -> Project:
        """Make a project."""
        shutil.rmtree(self._directory, ignore_errors=True)
        main = self._directory / "project"
        shutil.copytree(self._template.path, main, symlinks=True)
        checkout = Checkout(main)
        if self._linked:
            path = self._directory / "linked worktree"
            checkout.git("worktree", "add", "--quiet", "-b", "side", str(path))
            checkout = Checkout(path, main)
        if self._hooks:
            done = nursery.call(checkout, "init")
            assert done.code == 0, done
        return Project(checkout, self.log, hooks=self._hooks)
