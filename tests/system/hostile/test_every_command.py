"""Every command ends soon in an attacked repository, and lists good checkpoints.

It fails with an error for people at most.

The commands come from the command table, so a new one is included automatically.
"""

from __future__ import annotations

import hashlib
import resource
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from gitckpt import Store
from tests.cli.conftest import COMMANDS, Outcome, Spawn, spawn
from tests.conftest import Checkout
from tests.stores import hold_run
from tests.system.hostile import bombs
from tests.system.hostile.attacks import ATTACKS, BAD, Victim

__all__ = ["spawn"]

CALLS: dict[str, list[str]] = {
    "init": ["init", "init --hooks none"],
    "save": ["save -m x"],
    "list": ["list", "list --json", "list --run {run}", "list --commit HEAD"],
    "show": [
        "show {good}",
        "show {bad}",
        "show --json {bad}",
        "show --raw {bad}",
        "show --state {bad}",
        "show {of_run}",
        "show latest",
        "show {run}",
    ],
    "diff": ["diff {good}", "diff {bad}", "diff {bad} {good}"],
    "log": ["log", "log --all -p", "log --stat {run}", "log -- README", "log --json {bad}"],
    "ls": ["ls {good}", "ls {bad}", "ls -r -l {of_run}"],
    "grep": ["grep x", "grep x {good} {bad}"],
    "why": ["why README", "why missing"],
    "bisect": ["bisect -- true", "bisect --bad {bad} -- true", "bisect --reset"],
    "agent": ["agent status"],
    "turns": ["turns", "turns {run}", "turns --json"],
    "guard": ["guard -- true"],
    "watch": ["watch -- true"],
    "report": ["report -o report.html", "report {run} -o run.html", "report {bad} -o bad.html"],
    "tag": ["tag {good} fine", "tag {bad} wrong", "tag", "tag -d fine"],
    "pin": ["pin {good}", "pin {bad}"],
    "unpin": ["unpin {good}", "unpin {bad}"],
    "note": ["note {good} mine", "note {bad} mine", "note {good}"],
    "rescue": ["rescue", "rescue --json", "rescue {bad} --into rescued"],
    "resume": [
        "resume",
        "resume {run}",
        "resume {good} --into there",
        "resume {bad} --into elsewhere",
    ],
    "restore": ["restore {good}", "restore {bad}"],
    "run": ["run ci", "run nothing"],
    "loop": ["loop README"],
    "review": ["review --help"],  # a real call would start an agent
    "runs": ["runs", "runs --json"],
    "status": ["status", "status {run}", "status {run} --json", "status 20261121"],
    "start": ["start x"],
    "finish": ["finish {run}"],
    "step": ["step list", "step next"],
    "cancel": ["cancel {run}", "cancel 20261121"],
    "remove": ["remove {prefix}", "remove {good}", "remove {of_run}"],
    "expire": ["expire", "expire --dry-run"],
    "import": ["import README --format forge", "import .", "import --dry-run --history ."],
    "export": [
        "export {good} --format rlm-act",
        "export {bad} --format forge",
        "export {run} --format quasar",
        "export {run} --format superpowers",
    ],
    "notes": ["notes"],
    "verify": ["verify", "verify --contents", "verify --repair", "verify --json"],
    "doctor": ["doctor"],
    "du": ["du"],
    "hook": ["hook post-commit", "hook post-merge 0"],
    "completion": ["completion bash"],
    "demo": ["demo --help"],  # a real call makes another repository
}
"""The calls of each command; any other command is called without arguments."""

GOOD_CODES = {0, 1, 2, 10, 11, 12, 13, 14}
_EVERY = 80
SECONDS, MEMORY = 20, 2 << 30

Attacked = Callable[[str], Victim]


@pytest.fixture
def victim(main_checkout: Checkout) -> Victim:
    """A repository with a checkpoint, and a run with a key and a released lease."""
    main_checkout.write(
        "gitckpt.toml",
        '[pipelines.ci]\nphases = ["test"]\n\n[pipelines.ci.steps.test]\ncommand = "true"\n',
    )
    main_checkout.git("add", ".")
    main_checkout.git("commit", "-q", "-m", "settings")
    with Store.open(main_checkout.path) as store:
        good = store.record("research-complete", {"n": 1})
        first = store.record("run-started", {"n": 1}, start="good", key="nightly")
        newest = store.record("build-complete", {"n": 2}, run=first.run)
        assert first.run is not None
        hold_run(store, first.run).release_lease()
    return Victim(
        main_checkout,
        good.id,
        first.run,
        newest.id,
        f"refs/ckpt/keys/{hashlib.sha256(b'nightly').hexdigest()}",
    )


def limited() -> None:
    """Limit time and memory, so that the system kills a process that takes too much."""
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


def words(call: str, victim: Victim) -> list[str]:
    """Return the words of a call."""
    named = {
        "good": victim.checkpoint,
        "bad": BAD,
        "run": victim.run,
        "of_run": victim.of_run,
        "prefix": BAD[:8],
    }
    return [word.format(**named) for word in call.split()]


def require_sound(name: str, done: Outcome) -> None:
    """Fail if a command did not end properly."""
    said = f"{name}: {done.code}\n{done.err[:3000]}"
    assert done.code in GOOD_CODES, said
    assert "Traceback" not in done.err, said
    assert "this is a bug" not in done.err, said
    assert len(done.err) < 20_000, said[:500]


def tried(command: str, victim: Victim, spawn: Spawn, scratch: Path) -> None:
    """Try all calls of a command, each in a copy of a repository."""
    for number, call in enumerate(CALLS.get(command, [command])):
        copy = scratch / f"{command} {number}"
        subprocess.run(["cp", "-a", victim.at.path, copy], check=True)  # copies pipes, too
        done = spawn(*words(call, victim), at=copy, preexec=limited)
        require_sound(call, done)
        listed = spawn("list", "--all", at=copy, preexec=limited)
        require_sound(f"list after {call}", listed)
        removed = words(call, victim)[1:] if command == "remove" else []
        for good in (victim.checkpoint, victim.of_run):
            assert (good[:8] in listed.out) or good in removed or command in ("expire", "uninit"), (
                f"{call}: {listed.out}{listed.err}"
            )
        shutil.rmtree(copy, ignore_errors=True)  # maintenance may still write there


def test_each_call_is_of_a_command() -> None:
    assert not CALLS.keys() - set(COMMANDS)
    assert bombs.REF.endswith(BAD)


@pytest.mark.long
def test_all_attacks_on_checkpoints_at_once(victim: Victim, spawn: Spawn, tmp_path: Path) -> None:
    for number, make in enumerate(bombs.DOCUMENTS.values()):
        data = make()
        ref = bombs.REF[:-2] + f"{number:02x}"
        victim.blob(
            ref, data.replace(BAD, ref.rpartition("/")[2]) if isinstance(data, str) else data
        )
    require_sound(
        "list", spawn("list", at=victim.at, preexec=limited)
    )  # the later commands know from this one which documents are bad
    for command in COMMANDS:
        tried(command, victim, spawn, tmp_path)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Choose all attacks with `--long`, otherwise some: each takes a minute."""
    if metafunc.function is test_each_attack_on_each_command:
        metafunc.parametrize(
            "name", list(ATTACKS)[:: 1 if metafunc.config.getoption("--long") else _EVERY]
        )


@pytest.mark.long
def test_each_attack_on_each_command(
    victim: Victim, name: str, spawn: Spawn, tmp_path: Path
) -> None:
    ATTACKS[name](victim)
    for command in COMMANDS:
        tried(command, victim, spawn, tmp_path)


@pytest.mark.long
def test_of_names_without_end_the_beginning_is_told(victim: Victim, spawn: Spawn) -> None:
    ATTACKS["document_long_texts"](victim)
    for call in ("restore --dry-run {bad}", "restore {bad}", "undo", "resume {bad}", "save -m x"):
        require_sound(call, spawn(*words(call, victim), at=victim.at, preexec=limited))


@pytest.mark.sampled(36)
@pytest.mark.parametrize(
    "name",
    [name for name in ATTACKS if name.startswith(("document_", "checkpoint_", "large_tree"))],
)
def test_a_checkpoint_that_is_none_is_a_problem_and_can_be_removed(
    victim: Victim, name: str, spawn: Spawn
) -> None:
    ATTACKS[name](victim)
    assert (
        bombs.REF in victim.at.refs("refs/checkpoints")
        or name == "checkpoint_that_stands_for_nothing"
    )
    done = spawn("remove", BAD[:8], at=victim.at, preexec=limited)
    if name == "checkpoint_that_stands_for_nothing":
        assert done.code == 12
        return
    assert (done.code, done.out) == (0, f"{BAD}\n"), done.err
    assert bombs.REF not in victim.at.refs("refs/checkpoints")
    assert {victim.checkpoint, victim.of_run} <= {
        ref.rpartition("/")[2] for ref in victim.at.refs("refs/checkpoints")
    }


@pytest.mark.long
@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", bombs.SNAPSHOTS)
def test_a_snapshot_without_end_is_refused_and_keeps_nobody_from_the_others(
    victim: Victim, name: str, spawn: Spawn
) -> None:
    ATTACKS[f"checkpoint_of_endless_{name}"](victim)
    for call in ("list", "show {bad}", "verify", "du", "save -m x"):
        require_sound(call, spawn(*words(call, victim), at=victim.at, preexec=limited))
    for call in ("diff {bad}", "restore --dry-run {bad}", "restore {bad}", "resume {bad}"):
        done = spawn(*words(call, victim), at=victim.at, preexec=limited)
        assert (
            done.code,
            "holds more than 10,000,000 paths, or too many nested directories" in done.err,
        ) == (14, True), call
    assert spawn("remove", BAD[:8], at=victim.at, preexec=limited).code == 0
    assert spawn("restore", "--dry-run", victim.checkpoint, at=victim.at).code == 0
