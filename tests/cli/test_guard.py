"""`git ckpt guard`, `watch` and `rescue` keep work that other programs destroy."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gitckpt import Store
from tests.cli.conftest import PROJECT, Ckpt, Spawn
from tests.conftest import Checkout


@pytest.mark.long
def test_guard_saves_runs_and_passes_the_exit_code(spawn: Spawn, checkout: Checkout) -> None:
    checkout.write("draft.txt", "draft\n")
    done = spawn("guard", "--", "git", "clean", "-fdq", at=checkout)
    assert done.code == 0
    assert not (checkout.path / "draft.txt").exists()
    with Store.open(checkout.path) as store:
        saved = store.list()[0]
        assert f"undo with: git ckpt restore {saved.id[:8]}" in done.err
        assert saved.message == "before: git clean -fdq"
        store.restore(saved.id)
    assert (checkout.path / "draft.txt").read_text() == "draft\n"
    assert spawn("guard", "--", "sh", "-c", "exit 7", at=checkout).code == 7
    assert spawn("guard", "--", "no-such-program", at=checkout).code == 127


def test_guard_passes_signals_and_standard_streams(spawn: Spawn, checkout: Checkout) -> None:
    killed = spawn("guard", "--", "sh", "-c", "kill -TERM $$", at=checkout)
    assert killed.code == -signal.SIGTERM
    echoed = spawn("guard", "--", "cat", at=checkout, stdin="text")
    assert echoed.out == "text"


def test_guard_never_blocks_a_command(spawn: Spawn, main_checkout: Checkout) -> None:
    main_checkout.write(".git/HEAD", f"{'1' * 40}\n")
    done = spawn("guard", "--", "sh", "-c", "echo done", at=main_checkout)
    assert (done.code, done.out) == (0, "done\n")
    assert "warning: the files were not captured" in done.err


def test_outside_of_a_repository_guard_only_runs_the_command(spawn: Spawn, tmp_path: Path) -> None:
    done = spawn("guard", "--", "echo", "done", at=tmp_path)
    assert (done.code, done.out, done.err) == (0, "done\n", "")


@pytest.mark.long
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_shell_function_guards_destructive_git_commands(
    spawn: Spawn, checkout: Checkout, git_ckpt: Path, shell: str
) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    functions = spawn("guard", "--shell", shell, "--rm", at=checkout).out
    checkout.write("draft.txt", "draft\n")
    checkout.write("other.txt", "other\n")
    script = f"{functions}\ngit status --short\ngit clean -fdq draft.txt\nrm other.txt\n"
    done = subprocess.run(
        [shell, "-c", script], cwd=checkout.path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0
    assert "?? draft.txt" in done.stdout
    with Store.open(checkout.path) as store:
        assert [entry.message for entry in store.list()] == [
            "before: rm other.txt",
            "before: git clean -fdq draft.txt",
        ]


@pytest.mark.parametrize(
    "words",
    [
        ["guard"],
        ["guard", "--shell", "tcsh"],
        ["guard", "--rm", "--", "ls"],
        ["guard", "--shell", "bash", "--", "ls"],
        ["watch", "--every", "0s"],
        ["watch", "--", "no-such-program"],
        ["rescue", "--into", "there"],
        ["rescue", "no-such-worktree"],
    ],
    ids=" ".join,
)
def test_wrong_calls_are_refused(ckpt: Ckpt, checkout: Checkout, words: list[str]) -> None:
    done = ckpt(*words, at=checkout)
    assert done.code != 0
    assert done.err.startswith("error: ")


@pytest.mark.long
def test_watch_records_when_files_settle(checkout: Checkout) -> None:
    script = (
        "for n in 0 1 2; do echo x > file$n; sleep 0.1; done\n"
        "until [ $(git for-each-ref refs/checkpoints | wc -l) = 2 ]; do sleep 0.1; done\n"
        "echo x > last; exit 5"
    )
    done = subprocess.run(
        [
            *(sys.executable, "-m", "gitckpt", "watch", "--every", "1s", "--"),
            *("sh", "-c", script),
        ],
        cwd=checkout.path,
        env=os.environ | {"PYTHONPATH": str(PROJECT)},
        capture_output=True,
        check=False,
    )
    assert done.returncode == 5
    with Store.open(checkout.path) as store:
        entries = store.list()[::-1]
        assert [entry.label for entry in entries] == [
            *("watch-started", "watch-progress", "watch-complete"),
        ]
        assert [store.changed_files(entries)[entry.id] for entry in entries] == [0, 3, 4]


@pytest.mark.parametrize("name", ["guard", "watch"])
@pytest.mark.parametrize(
    ("program", "content", "code"),
    [
        ("no-such-program", None, 127),
        ("./no-such-program", None, 127),
        ("./program", "text", 126),
        ("./program", "#!/no/such/interpreter\n", 126),
        ("/", None, 126),
    ],
)
def test_a_command_that_cannot_be_started_has_the_exit_code_of_a_shell(
    spawn: Spawn, checkout: Checkout, name: str, program: str, content: str | None, code: int
) -> None:
    if content is not None:
        checkout.write(program, content).chmod(0o755 if "#!" in content else 0o644)
    done = spawn(name, "--", program, at=checkout)
    assert (done.code, done.out) == (code, "")
    assert done.err.splitlines()[-1].startswith(("error: ", "hint: "))
    assert "Traceback" not in done.err


def start_watch(checkout: Checkout, *words: str) -> subprocess.Popen[bytes]:
    watch = subprocess.Popen(
        [sys.executable, "-m", "gitckpt", "watch", "--every", "30s", *words],
        cwd=checkout.path,
        env=os.environ | {"PYTHONPATH": str(PROJECT)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert watch.stderr is not None
    assert watch.stderr.readline().startswith(b"saved the files as ")
    return watch


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_watch_passes_signals_on_and_ends_with_the_command(
    checkout: Checkout, number: signal.Signals
) -> None:
    watch = start_watch(checkout, "--", "sh", "-c", "echo started; exec sleep 60")
    assert watch.stdout is not None
    assert watch.stdout.readline() == b"started\n"
    checkout.write("draft.txt", "draft\n")
    watch.send_signal(number)
    out, _ = watch.communicate(timeout=30)  # the command has closed its standard output
    assert (watch.returncode, out) == (128 + number, b"")
    with Store.open(checkout.path) as store:
        newest = store.list()[0]
        assert newest.label == "watch-complete"
        assert b"draft.txt" in store.diff_commit(newest.id)


def test_watch_returns_the_exit_code_that_a_command_chooses_at_a_signal(
    checkout: Checkout,
) -> None:
    script = "trap 'exit 5' TERM; echo started; while :; do sleep 0.1; done"
    watch = start_watch(checkout, "--", "sh", "-c", script)
    assert watch.stdout is not None
    assert watch.stdout.readline() == b"started\n"
    watch.send_signal(signal.SIGTERM)
    watch.communicate(timeout=30)
    assert watch.returncode == 5


def test_watch_leaves_an_ignored_hangup_ignored(checkout: Checkout) -> None:
    words = [sys.executable, "-m", "gitckpt", "watch", "--", "sh", "-c", "kill -HUP $$; exit 3"]
    done = subprocess.run(
        ["nohup", *words],
        cwd=checkout.path,
        env=os.environ | {"PYTHONPATH": str(PROJECT)},
        capture_output=True,
        check=False,
    )
    assert done.returncode == 3


@pytest.mark.long
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_watch_without_a_command_ends_with_a_checkpoint(
    checkout: Checkout, number: signal.Signals, code: int
) -> None:
    watch = start_watch(checkout)
    checkout.write("draft.txt", "draft\n")
    time.sleep(0.5)
    watch.send_signal(number)
    watch.communicate()
    assert watch.returncode == code
    with Store.open(checkout.path) as store:
        newest = store.list()[0]
        assert newest.label == "watch-complete"
        assert b"draft.txt" in store.diff_commit(newest.id)


def test_rescue_brings_back_a_worktree_that_vanished(
    ckpt: Ckpt, main_checkout: Checkout, tmp_path: Path
) -> None:
    other = tmp_path / "agent-1"
    main_checkout.git("worktree", "add", "-q", "-b", "agent", str(other))
    (other / "draft.txt").write_text("draft\n")
    assert ckpt("rescue", at=main_checkout).out == ""
    with Store.open(main_checkout.path) as store:
        from gitckpt.store.store import checkpoints_of_store
        from gitckpt.store.worktrees import rescue

        assert rescue.capture_linked(checkpoints_of_store(store)) == []
        assert rescue.capture_linked(checkpoints_of_store(store)) == []
    shutil.rmtree(other)
    main_checkout.git("worktree", "prune")
    lost = json.loads(ckpt("rescue", "--json", at=main_checkout).out)["worktrees"]
    assert [(entry["name"], entry["changed"]) for entry in lost] == [("agent-1", 1)]
    line = ckpt("rescue", at=main_checkout).out.split("\t")
    assert (line[0], line[4]) == ("agent-1", "files of agent-1\n")
    place = tmp_path / "back"
    done = ckpt("rescue", "agent-1", "--into", str(place), at=main_checkout)
    assert done.out == f"{place}\n"
    assert (place / "draft.txt").read_text() == "draft\n"


def test_rescue_names_a_worktree_that_took_too_long(
    main_checkout: Checkout, tmp_path: Path
) -> None:
    other = tmp_path / "large"
    main_checkout.git("worktree", "add", "-q", "--detach", str(other))
    (other / "README").write_text("changed\n")
    main_checkout.git("config", "ckpt.snapshotBudget", "0s")
    with Store.open(main_checkout.path) as store:
        from gitckpt.store.store import checkpoints_of_store
        from gitckpt.store.worktrees import rescue

        (problem,) = rescue.capture_linked(checkpoints_of_store(store))
        assert problem.startswith(f"the worktree {other} was not captured: capturing the files ")
        assert rescue.capture_linked(checkpoints_of_store(store)) == []  # tried within the hour


def test_rescue_names_what_it_could_not_capture(main_checkout: Checkout, tmp_path: Path) -> None:
    other = tmp_path / "broken"
    main_checkout.git("worktree", "add", "-q", "--detach", str(other))
    (other / "README").write_text("changed\n")
    git_dir = main_checkout.path / ".git/worktrees/broken"
    (git_dir / "HEAD").write_text(f"{'1' * 40}\n")
    with Store.open(main_checkout.path) as store, contextlib.suppress(FileNotFoundError):
        from gitckpt.store.store import checkpoints_of_store
        from gitckpt.store.worktrees import rescue

        problems = rescue.capture_linked(checkpoints_of_store(store))
        assert [str(other) in problem for problem in problems] == [True]
