"""Git fires the installed hooks, which record commits and never make one fail."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import gitckpt
from gitckpt import CheckpointInfo, CkptError, Store
from tests import planted
from tests.agents.hook_calls import call_hook
from tests.conftest import Checkout
from tests.planted import plant
from tests.stores import (
    OWN_REFS,
    SECOND,
    common_dir,
    head_of,
    hook_command,
    install_hooks,
    make_private_dir,
    open_store,
    private_dir,
    run_hook,
)

HEAVY = {
    "typing",
    "re",
    "enum",
    "subprocess",
    "pathlib",
    "json",
    "dataclasses",
    "datetime",
    "inspect",
    "hashlib",
    "tomllib",
    "sqlite3",
}
"""Modules that take longer to import than all that a commit needs."""


@pytest.fixture
def hooked(checkout: Checkout) -> Checkout:
    """Return a worktree with gitckpt's hooks, where the daily expiry has run."""
    _install(checkout)
    return checkout


def _install(checkout: Checkout) -> None:
    install_hooks(checkout)
    (make_private_dir(checkout) / "maintained").touch()


def _recorded(checkout: Checkout) -> list[CheckpointInfo]:
    """Return the recorded checkpoints, oldest first."""
    with Store.open(checkout.path, adapter="plumbing") as store:
        return list(reversed(store.list()))


def _summary(checkout: Checkout) -> list[tuple[str, str | None, str | None]]:
    return [(entry.trigger, entry.branch, entry.message) for entry in _recorded(checkout)]


def test_a_commit_records_a_checkpoint_with_all_that_belongs_to_it(hooked: Checkout) -> None:
    commit = hooked.commit("add a parser\n\nIt parses.")
    branch = hooked.git("symbolic-ref", "--short", "HEAD")
    (entry,) = _recorded(hooked)
    document = hooked.git("cat-file", "blob", "refs/checkpoints/" + entry.id)
    assert document == (
        f'version = 1\nid = "{entry.id}"\nphase = "commit-complete"\n'
        f'timestamp = "{entry.timestamp}"\ngit_sha = "{commit}"\n'
        f'branch = "{branch}"\ntrigger = "post-commit"\nmessage = "add a parser"\nerrors = []\n\n'
        "[state]"
    )
    assert hooked.refs(*OWN_REFS) == {
        "refs/checkpoints/" + entry.id: entry.oid,
        "refs/keep/ckpt/" + commit: commit,
    }
    _write_notes(hooked)
    notes = hooked.git("log", "-1", "--notes=checkpoints", "--format=%N")
    assert notes.strip() == f"{entry.id} commit-complete {entry.timestamp}"


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "message",
    [
        "one line",
        "two\nlines in the subject\n\nbody",
        "\n\n  leading blank lines",
        "ünïcödé \N{SNOWMAN}",
        'tab\tand \\ backslash "quote"',
    ],
)
def test_the_message_is_the_subject_as_git_prints_it(main_checkout: Checkout, message: str) -> None:
    _install(main_checkout)
    main_checkout.commit(message)
    assert [entry.message for entry in _recorded(main_checkout)] == [
        main_checkout.git("log", "-1", "--format=%s")
    ]


def test_a_subject_that_is_too_long_is_cut(main_checkout: Checkout) -> None:
    _install(main_checkout)
    main_checkout.commit("x" * 1001)
    assert [entry.message for entry in _recorded(main_checkout)] == ["x" * 999 + "…"]


def test_a_message_in_another_encoding_is_decoded(main_checkout: Checkout) -> None:
    _install(main_checkout)
    main_checkout.git(
        "-c",
        "i18n.commitEncoding=ISO-8859-1",
        "commit",
        "--allow-empty",
        "--quiet",
        "-F",
        "-",
        data="caf\xe9".encode("latin-1"),
    )
    assert [entry.message for entry in _recorded(main_checkout)] == ["café"]


def test_a_detached_head_has_no_branch(hooked: Checkout) -> None:
    hooked.git("checkout", "--quiet", "--detach")
    hooked.commit("adrift")
    assert _summary(hooked) == [("post-commit", None, "adrift")]


def test_an_amend_records_the_new_commit_and_carries_the_links_over(hooked: Checkout) -> None:
    hooked.commit("draft")
    hooked.git("commit", "--quiet", "--amend", "-m", "final")
    entries = _recorded(hooked)
    assert [entry.message for entry in entries] == ["draft", "final"]
    _write_notes(hooked)
    lines = hooked.git("notes", "--ref=checkpoints", "show", "HEAD").split("\n")
    assert sorted(line.split(" ")[0] for line in lines if line) == sorted(
        entry.id for entry in entries
    )


def _write_notes(checkout: Checkout) -> None:
    with Store.open(checkout.path, adapter="plumbing") as store:
        store.write_notes()


def _ids_in_note(checkout: Checkout, rev: str) -> list[str]:
    """Return the ids that git's note of a commit lists."""
    out = checkout.git("log", "-1", "--notes=checkpoints", "--format=%N", rev)
    return sorted(line.split(" ")[0] for line in out.splitlines() if line)


@pytest.mark.long
def test_commits_do_not_write_notes(hooked: Checkout) -> None:
    hooked.commit("one")
    (first,) = _recorded(hooked)
    assert _ids_in_note(hooked, "HEAD") == []
    _write_notes(hooked)
    assert _ids_in_note(hooked, "HEAD") == [first.id]
    tip = hooked.git("rev-parse", "refs/notes/checkpoints")
    before = int(hooked.git("count-objects").split()[0])
    for number in range(10):
        hooked.git("commit", "--quiet", "--allow-empty", "-m", f"in a burst {number}")
    # Each of the ten commits makes two objects: a commit and a document.
    assert int(hooked.git("count-objects").split()[0]) - before == 20
    assert hooked.git("rev-parse", "refs/notes/checkpoints") == tip
    with Store.open(hooked.path, adapter="plumbing") as store:
        assert store.find("HEAD") == store.list()[0].id
        assert store.verify().findings == []
    _write_notes(hooked)
    for number, entry in enumerate(reversed(_recorded(hooked)[1:])):
        assert _ids_in_note(hooked, f"HEAD~{number}") == [entry.id]


@pytest.mark.long
@pytest.mark.parametrize("state", ["waits", "is written"])
def test_an_amend_carries_over_what_waits_and_what_is_written(
    hooked: Checkout, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hooked.commit("one")
    hooked.commit("draft")
    if state == "is written":
        _write_notes(hooked)
    monkeypatch.setenv("GIT_REFLOG_ACTION", "a script")
    for words in ("better", "best"):
        hooked.git("commit", "--quiet", "--amend", "-m", words)
    entries = _recorded(hooked)
    with Store.open(hooked.path, adapter="plumbing") as store:
        assert {entry.id for entry in store.links(hooked.git("rev-parse", "HEAD"))} == {
            entry.id for entry in entries[1:]
        }
        assert {entry.id for entry in store.links(entries[1].git_sha)} == {entries[1].id}
        assert store.verify().findings == []
    _write_notes(hooked)
    assert _ids_in_note(hooked, "HEAD") == sorted(entry.id for entry in entries[1:])
    assert _ids_in_note(hooked, entries[1].git_sha) == [entries[1].id]
    assert _ids_in_note(hooked, "HEAD~1") == [entries[0].id]


@pytest.mark.long
@pytest.mark.sampled(4)
@pytest.mark.parametrize("backend", ["--merge", "--apply"])
@pytest.mark.parametrize("waits", [True, False])
def test_a_rebase_carries_over_what_waits_and_what_is_written(
    checkout: Checkout, backend: str, waits: bool
) -> None:
    _install(checkout)
    base = _three_commits_beside(checkout)
    checkout.git("checkout", "--quiet", "topic")
    if not waits:
        _write_notes(checkout)
    by_message = {entry.message: entry.id for entry in _recorded(checkout)}
    checkout.git("rebase", "--quiet", backend, base)
    (end,) = {entry.id for entry in _recorded(checkout)} - set(by_message.values())
    with Store.open(checkout.path, adapter="plumbing") as store:
        assert by_message["topic 2"] in {
            entry.id for entry in store.links(checkout.git("rev-parse", "HEAD~1"))
        }
        assert store.verify().findings == []
    _write_notes(checkout)
    assert _ids_in_note(checkout, "HEAD") == sorted([by_message["topic 3"], end])
    assert _ids_in_note(checkout, "HEAD~1") == [by_message["topic 2"]]
    assert _ids_in_note(checkout, "HEAD~2") == [by_message["topic 1"]]
    with Store.open(checkout.path, adapter="plumbing") as store:
        assert store.verify().findings == []


@pytest.mark.long
def test_commits_that_are_squashed_carry_theirs_over(checkout: Checkout) -> None:
    _install(checkout)
    base = _three_commits_beside(checkout)
    checkout.git("checkout", "--quiet", "topic")
    by_message = {entry.message: entry.id for entry in _recorded(checkout)}
    checkout.git(
        "-c", "sequence.editor=sed -i '2,$s/^pick/fixup/'", "rebase", "--quiet", "-i", base
    )
    _write_notes(checkout)
    (end,) = {entry.id for entry in _recorded(checkout)} - set(by_message.values())
    assert _ids_in_note(checkout, "HEAD") == sorted(
        [*(by_message[f"topic {number}"] for number in (1, 2, 3)), end]
    )


def test_an_amend_without_a_reflog_is_no_reason_to_fail(main_checkout: Checkout) -> None:
    _install(main_checkout)
    main_checkout.git("config", "core.logAllRefUpdates", "false")
    (main_checkout.path / ".git/logs/HEAD").unlink()
    main_checkout.commit("one")
    main_checkout.commit("draft")
    main_checkout.git("commit", "--quiet", "--amend", "-m", "final")
    assert not (Path(private_dir(main_checkout)) / "log").exists()
    with Store.open(main_checkout.path, adapter="plumbing") as store:
        assert store.verify().findings == []


def _three_commits_beside(checkout: Checkout) -> str:
    """Make three commits on `topic` and one on the current branch; return its name."""
    base = checkout.git("symbolic-ref", "--short", "HEAD")
    checkout.git("checkout", "--quiet", "-b", "topic")
    for number in (1, 2, 3):
        checkout.commit(f"topic {number}", **{f"topic-{number}": "x"})
    checkout.git("checkout", "--quiet", base)
    checkout.commit("base moves on", other="y")
    return base


@pytest.mark.parametrize("backend", ["--merge", "--apply"])
def test_a_rebase_records_once_at_its_end(checkout: Checkout, backend: str) -> None:
    base = _three_commits_beside(checkout)
    checkout.git("checkout", "--quiet", "topic")
    _install(checkout)
    checkout.git("rebase", "--quiet", backend, base)
    # The apply backend returns to the branch only after the hook.
    branch = "topic" if backend == "--merge" else None
    assert _summary(checkout) == [("post-commit", branch, "topic 3")]
    assert _recorded(checkout)[0].git_sha == checkout.git("rev-parse", "topic")


def test_a_rebase_that_stopped_on_a_branch_whose_name_is_not_utf_8(main_checkout: Checkout) -> None:
    """With the apply backend, git's rebase file names the branch of detached HEAD."""
    base = _three_commits_beside(main_checkout)
    main_checkout.git("checkout", "--quiet", "-b", "other", "topic")
    main_checkout.commit("mine", other="mine")
    main_checkout.git("branch", "--move", os.fsdecode(b"caf\xe9"))
    _install(main_checkout)
    main_checkout.git("rebase", "--quiet", "--apply", base, ok=(1, 128))
    main_checkout.write("other", "both")
    main_checkout.git("add", "other")
    main_checkout.git("rebase", "--continue")
    assert _summary(main_checkout) == [("post-commit", "caf\ufffd", "mine")]


def test_a_rebase_that_changes_nothing_records_nothing(checkout: Checkout) -> None:
    """Git calls the hook at the end of such a rebase, too."""
    base = checkout.head()
    _install(checkout)
    for number in range(2):
        checkout.commit(f"topic {number}", **{f"f{number}": "x"})
    before = checkout.refs("refs/checkpoints")
    checkout.git("rebase", "--quiet", "--exec", "true", base)
    assert checkout.refs("refs/checkpoints") == before
    checkout.git("rebase", "--quiet", "--exec", "git commit --quiet --allow-empty -m more", base)
    assert len(checkout.refs("refs/checkpoints")) == len(before) + 1


def test_a_rebase_that_stops_records_nothing_until_it_goes_on(checkout: Checkout) -> None:
    base = checkout.git("symbolic-ref", "--short", "HEAD")
    checkout.git("checkout", "--quiet", "-b", "topic")
    checkout.commit("theirs", README="topic\n")
    checkout.git("checkout", "--quiet", base)
    checkout.commit("ours", README="base\n")
    checkout.git("checkout", "--quiet", "topic")
    _install(checkout)
    checkout.git("rebase", "--quiet", base, ok=(1,))
    checkout.write("README", "both\n")
    checkout.git("add", "README")
    assert _summary(checkout) == []
    checkout.git("rebase", "--continue", env={"GIT_EDITOR": "true"})
    assert _summary(checkout) == [("post-commit", "topic", "theirs")]


def test_am_records_once_at_its_end(checkout: Checkout) -> None:
    base = _three_commits_beside(checkout)
    patches = checkout.git("format-patch", "--stdout", "topic~3..topic")
    _install(checkout)
    checkout.git("am", "--quiet", data=patches)
    assert _summary(checkout) == [("post-commit", base, "topic 3")]


def test_a_bisect_records_nothing(hooked: Checkout) -> None:
    hooked.commit("one")
    before = len(_recorded(hooked))
    hooked.git("bisect", "start")
    hooked.commit("while looking")
    assert len(_recorded(hooked)) == before


def test_merges_record_by_the_hook_that_git_fires(checkout: Checkout) -> None:
    base = _three_commits_beside(checkout)
    _install(checkout)
    checkout.git("merge", "--quiet", "--no-edit", "topic")
    assert _summary(checkout) == [
        (
            "post-merge",
            base,
            f"Merge branch 'topic'{'' if base in ('main', 'master') else f' into {base}'}",
        )
    ]
    checkout.git("checkout", "--quiet", "-b", "behind", "HEAD~1")
    checkout.git("merge", "--quiet", "--ff-only", base)
    assert [trigger for trigger, _, _ in _summary(checkout)] == ["post-merge", "post-merge"]


def test_a_squash_merge_records_nothing_until_it_is_committed(checkout: Checkout) -> None:
    base = _three_commits_beside(checkout)
    _install(checkout)
    checkout.git("merge", "--quiet", "--squash", "topic")
    assert _summary(checkout) == []
    checkout.git("commit", "--quiet", "-m", "squashed")
    assert _summary(checkout) == [("post-commit", base, "squashed")]


def test_cherry_pick_and_revert_record(checkout: Checkout) -> None:
    base = _three_commits_beside(checkout)
    _install(checkout)
    checkout.git("cherry-pick", "topic")
    checkout.git("revert", "--no-edit", "HEAD")
    assert _summary(checkout) == [
        ("post-commit", base, "topic 3"),
        ("post-commit", base, 'Revert "topic 3"'),
    ]


def test_skipping_is_possible(hooked: Checkout) -> None:
    hooked.git("commit", "--quiet", "--allow-empty", "-m", "silent", env={"GITCKPT_SKIP": "1"})
    assert _summary(hooked) == []


def test_every_worktree_of_an_initialised_repository_records(
    main_checkout: Checkout, tmp_path: Path
) -> None:
    _install(main_checkout)
    main_checkout.git("worktree", "add", "--quiet", "-b", "later", str(tmp_path / "later"))
    Checkout(tmp_path / "later", main_checkout.path).commit("from the side")
    main_checkout.commit("from the middle")
    assert _summary(main_checkout) == [
        ("post-commit", "later", "from the side"),
        ("post-commit", "main", "from the middle"),
    ]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "name",
    [
        "with space",
        'it\'s "quoted"',
        "new\nline",
        "trailing\n",
        "ünïcödé",
        "$HOME `id`",
        b"not-utf-8-\xff",
    ],
)
def test_any_path_will_do(tmp_path: Path, name: str | bytes) -> None:
    path = tmp_path / os.fsdecode(name)
    subprocess.run(["git", "init", "--quiet", path], check=True)
    checkout = Checkout(path)
    checkout.commit("first", README="hello\n")
    _install(checkout)
    checkout.commit("second")
    checkout.git("worktree", "add", "--quiet", "-b", "side", os.fsdecode(name))
    Checkout(path / os.fsdecode(name), path).commit("third")
    assert [entry.message for entry in _recorded(checkout)] == ["second", "third"]


def test_in_the_worktree_of_a_run_a_commit_extends_the_run(main_checkout: Checkout) -> None:

    with Store.open(main_checkout.path, adapter="plumbing") as store:
        first = store.record(
            "plan-complete",
            {"step": 1, "nothing": None},
            start="add login",
            worktree=store.capture(),
        )
        opened = store.resume(first)
    _install(main_checkout)
    worktree = Checkout(Path(opened.path), main_checkout.path)
    worktree.write("unfinished", "work\n")
    worktree.write("done", "work\n")
    worktree.git("add", "done")
    worktree.git("commit", "--quiet", "-m", "a step")
    with Store.open(main_checkout.path, adapter="plumbing") as store:
        newest = head_of(store, str(first.run))
    assert (newest.sequence, newest.parent, newest.trigger, newest.message) == (
        2,
        first.id,
        "post-commit",
        "a step",
    )
    assert newest.state == {"step": 1, "nothing": None}
    assert newest.worktree is not None
    files = main_checkout.git("ls-tree", "--name-only", f"{newest.worktree.tree}:files")
    assert files.split("\n") == ["README", "done", "unfinished"]


@pytest.mark.long
@pytest.mark.parametrize("subject", ["x" * 2000, "form\x0cfeed", "a\u2028b"])
def test_in_the_worktree_of_a_run_a_commit_with_an_odd_subject_extends_the_run(
    main_checkout: Checkout, subject: str
) -> None:
    with Store.open(main_checkout.path, adapter="plumbing") as store:
        first = store.record("plan-complete", {}, start="add login")
        path = store.resume(first).path
    _install(main_checkout)
    Checkout(Path(path), main_checkout.path).git(
        "commit", "--quiet", "--allow-empty", "-m", subject
    )
    with Store.open(main_checkout.path, adapter="plumbing") as store:
        newest = head_of(store, str(first.run))
    assert newest.sequence == 2
    assert newest.message is not None
    assert newest.message.split() == ["x" * 999 + "…"] if subject[0] == "x" else subject.split()


def test_in_the_worktree_of_a_run_one_process_writes_refs(
    main_checkout: Checkout, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store.open(main_checkout.path) as store:
        opened = store.resume(store.record("plan-complete", {"step": 1}, start="add login"))
    Checkout(Path(opened.path), main_checkout.path).commit("a step")
    started: list[list[str]] = []
    real = os.posix_spawnp

    def spawn(name: str, argv: list[str], *rest: Any, **options: Any) -> int:
        started.append(argv)
        return real(name, argv, *rest, **options)

    monkeypatch.setattr(os, "posix_spawnp", spawn)
    monkeypatch.chdir(opened.path)
    run_hook("post-commit")
    monkeypatch.undo()
    assert len(_recorded(main_checkout)) == 2
    assert sum("update-ref" in argv for argv in started) == 1


@pytest.mark.long
def test_files_that_take_too_long_are_left_out_and_it_is_said(main_checkout: Checkout) -> None:
    _install(main_checkout)
    with Store.open(main_checkout.path) as store:
        first = store.record("plan-complete", {"step": 1}, start="add login")
        opened = store.resume(first)
    there = Checkout(Path(opened.path))
    there.git("config", "ckpt.snapshotTimeout", "0s")
    there.write("new", "x")
    said = _stderr_of_commit(there)
    assert said.startswith(
        "gitckpt: post-commit: the checkpoint has no uncommitted files: capturing the files "
        "took more than 0 seconds; "
    )
    assert (
        "record them now: git ckpt save; to allow more time: git config ckpt.snapshotTimeout 5m"
        in said
    )
    with Store.open(opened.path) as store:
        (made,) = (entry for entry in store.list() if entry.id != first.id)
        assert (made.label, made.run, store.read(made.id).state) == (
            "commit-partial",
            first.run,
            {"step": 1},
        )


def _stderr_of_commit(checkout: Checkout) -> str:
    command = ["git", "commit", "--quiet", "--allow-empty", "-m", "must not fail"]
    done = subprocess.run(command, cwd=checkout.path, capture_output=True, check=False, text=True)
    assert done.returncode == 0
    return done.stderr


@pytest.mark.parametrize("descriptors", range(6, 16))
def test_without_descriptors_it_is_said_and_no_commit_fails(
    main_checkout: Checkout, descriptors: int
) -> None:
    _install(main_checkout)

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))

    # What the shell of the hook's file starts; a shell itself needs more of them.
    command = hook_command("post-commit")
    done = subprocess.run(
        command,
        cwd=main_checkout.path,
        capture_output=True,
        check=False,
        text=True,
        preexec_fn=limit,
    )
    lines = done.stderr.splitlines()
    assert done.returncode == 0, done
    assert all(line.startswith("gitckpt: post-commit: ") for line in lines), done
    assert len(_recorded(main_checkout)) == 1 or lines, "nothing was recorded, and nothing said"


def _log(checkout: Checkout) -> str:
    return (Path(private_dir(checkout)) / "log").read_text()


def test_a_held_lock_is_one_line_on_stderr_and_in_the_log(hooked: Checkout) -> None:
    hooked.commit("the note's ref exists now")
    common = Path(common_dir(hooked))
    held = common / "refs" / "checkpoints"
    for ref in hooked.refs("refs/checkpoints"):
        hooked.git("update-ref", "-d", ref)
    if held.is_dir():
        held.rmdir()
    held.write_text("in the way\n")
    said = _stderr_of_commit(hooked)
    assert said.startswith(
        "gitckpt: post-commit: no checkpoint was recorded: git update-ref failed: "
    )
    assert said.count("\n") == 1
    assert "post-commit: no checkpoint was recorded: git update-ref failed: " in _log(hooked)


def test_a_bug_is_one_line_on_stderr_and_a_traceback_in_the_log(
    main_checkout: Checkout, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("nobody\nforesaw \033[31mthis")

    plant(monkeypatch, planted.HOOK_RECORD, broken)
    monkeypatch.chdir(main_checkout.path)
    assert run_hook("post-commit") == 0
    out, err = capfd.readouterr()
    assert (out, err) == (
        "",
        (
            "gitckpt: post-commit: no checkpoint was recorded: ZeroDivisionError: "
            "nobody\\x0aforesaw \\x1b[31mthis\n"
        ),
    )
    assert "Traceback (most recent call last)" in _log(main_checkout)


@pytest.mark.parametrize(
    ("broken", "sentence"),
    [
        (planted.HOOK_RECORD, "no checkpoint was recorded: RuntimeError: here"),
        (
            planted.HOOK_FOLLOW_UP,
            "the checkpoint is recorded, but maintenance was not started: RuntimeError: here",
        ),
    ],
)
def test_what_failed_is_said(
    main_checkout: Checkout,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    broken: str,
    sentence: str,
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("here")

    plant(monkeypatch, broken, fail)
    monkeypatch.chdir(main_checkout.path)
    assert run_hook("post-commit") == 0
    assert capfd.readouterr().err == f"gitckpt: post-commit: {sentence}\n"
    assert len(_recorded(main_checkout)) == (broken != planted.HOOK_RECORD)


def test_maintenance_that_fails_is_logged_as_such(
    main_checkout: Checkout, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: object) -> None:
        raise CkptError("no space")

    plant(monkeypatch, planted.COLLECT_GARBAGE, fail)
    monkeypatch.chdir(main_checkout.path)
    for task in ("maintain", "pack"):
        assert run_hook(task) == 0
    (entry,) = (line for line in _log(main_checkout).splitlines() if line)
    assert entry.split(" ", 1)[1].startswith("maintain: maintenance failed: no space")


def test_a_missing_private_directory_cannot_fail_a_commit(hooked: Checkout) -> None:
    private = Path(private_dir(hooked))
    for file in private.iterdir():
        file.unlink()
    private.rmdir()
    private.write_text("a file where a directory should be\n")
    said = _stderr_of_commit(hooked)
    assert said.startswith("gitckpt: post-commit: no checkpoint was recorded: cannot write to ")


def test_an_unknown_event_says_which_there_are(
    main_checkout: Checkout, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(main_checkout.path)
    assert run_hook("pre-lunch") == 0
    assert capfd.readouterr().err == (
        "gitckpt: pre-lunch: no checkpoint was recorded: unknown hook event: 'pre-lunch'; "
        "the events are post-commit, post-merge, post-applypatch, post-rewrite, pre-auto-gc\n"
    )


def _old_checkpoints(checkout: Checkout, count: int) -> None:
    """Record checkpoints of hooks that are a year old."""
    year_ago = time.time_ns() // 1000 - 365 * 86400 * SECOND
    with open_store(str(checkout.path), clock=lambda: year_ago) as store:
        for _ in range(count):
            store.record("commit-complete", trigger="post-commit")


def _ended_long_ago(stamp: Path) -> None:
    """Make the stamp say that maintenance ended in 2020."""
    stamp.write_text("2020-01-01T00:00:00.000000Z done\n")
    os.utime(stamp, (0, 0))


def _wait_until(condition: object) -> None:
    assert callable(condition)
    for _ in range(600):
        if condition():
            return
        time.sleep(0.05)
    pytest.fail("what was started in the background did not happen")


@pytest.mark.long
@pytest.mark.parametrize("event", ["post-commit", "pre-auto-gc"])
def test_expiry_starts_in_the_background(main_checkout: Checkout, event: str) -> None:
    main_checkout.git("config", "ckpt.keepLast", "3")
    _install(main_checkout)
    _old_checkpoints(main_checkout, 6)
    stamp = Path(private_dir(main_checkout)) / "maintained"
    if event == "post-commit":
        _ended_long_ago(stamp)
        main_checkout.commit("a day later")
    else:
        main_checkout.git("repack", "--quiet")
        main_checkout.git(
            "commit",
            "--quiet",
            "--allow-empty",
            "-m",
            "for a second pack",
            env={"GITCKPT_SKIP": "1"},
        )
        main_checkout.git("repack", "--quiet")
        main_checkout.git(
            "-c", "gc.auto=6700", "-c", "gc.autoPackLimit=1", "gc", "--auto", "--quiet"
        )
    _wait_until(lambda: len(main_checkout.refs("refs/checkpoints")) == 3)
    assert stamp.stat().st_mtime > 0


@pytest.mark.long
def test_the_end_of_a_turn_has_linked_worktrees_captured(
    main_checkout: Checkout, tmp_path: Path
) -> None:
    """Two turns an hour apart; the files of another tool's worktree are in a checkpoint."""
    other = tmp_path / "other"
    main_checkout.git("worktree", "add", "--quiet", "--detach", str(other))
    (other / "draft.txt").write_text("draft\n")
    private = Path(make_private_dir(main_checkout))
    (private / "maintained").touch()
    for _ in range(2):
        call_hook("UserPromptSubmit", main_checkout, prompt="one")
        call_hook("Stop", main_checkout)
        os.utime(private / "rescued", (time.time() - 3700,) * 2)

    def is_captured() -> bool:
        with Store.open(main_checkout.path) as store:
            return [entry.message for entry in store.list()].count("files of other") == 1

    _wait_until(is_captured)


def test_expiry_starts_once_a_day(main_checkout: Checkout) -> None:
    _install(main_checkout)
    stamp = Path(private_dir(main_checkout)) / "maintained"
    an_hour_ago = time.time() - 3600
    os.utime(stamp, (an_hour_ago, an_hour_ago))
    main_checkout.commit("soon after")
    recorded = _recorded(main_checkout)
    assert stamp.stat().st_mtime == pytest.approx(an_hour_ago) or recorded[0].id.startswith("00")


@pytest.mark.parametrize("ahead", [10, 20 * 365 * 86400])
def test_a_start_in_the_future_is_no_reason_to_wait_for_it(
    main_checkout: Checkout, ahead: int
) -> None:
    _install(main_checkout)
    stamp = Path(private_dir(main_checkout)) / "maintained"
    os.utime(stamp, (time.time() + ahead, time.time() + ahead))
    main_checkout.commit("after the clock was set right")
    _wait_until(lambda: stamp.read_text() != "")
    assert time.time() - 60 < stamp.stat().st_mtime <= time.time()
    assert stamp.read_text().endswith("Z done\n")


def _imported(checkout: Checkout, code: str, *args: str) -> set[str]:
    """Return the modules that the hook's Python has loaded after some code."""
    code = f"import sys; {code}; print('\\n'.join(sorted(sys.modules)))"
    command = [sys.executable, "-I", "-S", "-c", code, *args]
    done = subprocess.run(command, cwd=checkout.path, capture_output=True, check=True, text=True)
    assert done.stderr == ""
    return set(done.stdout.split())


@pytest.mark.long
def test_recording_a_commit_imports_nothing_heavy(main_checkout: Checkout) -> None:
    package_dir = str(Path(gitckpt.__file__).parent.parent)
    code = "sys.path.insert(0, sys.argv.pop(1)); from gitckpt.hook import main; main(sys.argv[1:])"
    commit = ("commit", "--quiet", "--allow-empty", "--message=another")
    steps: list[list[Sequence[str]]] = [
        [commit],
        [commit],
        [("pack-refs", "--all"), commit],
        [(*commit, "--amend", "--message=a better one")],
        [("gc", "--quiet"), commit],
    ]
    for number, commands in enumerate(steps, 1):
        for command in commands:
            main_checkout.git(*command)
        loaded = _imported(main_checkout, code, package_dir, "post-commit")
        assert not loaded & HEAVY
        assert len(_recorded(main_checkout)) == number


def test_a_sha256_repository_records_as_well(make_checkout: object) -> None:
    assert callable(make_checkout)
    checkout: Checkout = make_checkout("long-oids", "--object-format=sha256")
    checkout.commit("first", README="hello\n")
    _install(checkout)
    commit = checkout.commit("second")
    assert [(entry.git_sha, len(entry.oid)) for entry in _recorded(checkout)] == [(commit, 64)]


@pytest.mark.usefixtures("newer_git")
def test_a_new_git_calls_us_from_its_configuration(main_checkout: Checkout) -> None:
    _install(main_checkout)
    main_checkout.commit("by config")
    main_checkout.git("commit", "--quiet", "--amend", "-m", "by config, amended")
    assert _summary(main_checkout) == [
        ("post-commit", "main", "by config"),
        ("post-commit", "main", "by config, amended"),
    ]
    assert not (main_checkout.path / ".git" / "hooks" / "post-commit").exists()


def test_expiry_works_with_long_oids(make_checkout: object) -> None:
    assert callable(make_checkout)
    checkout: Checkout = make_checkout("long-oids", "--object-format=sha256")
    checkout.commit("first", README="hello\n")
    checkout.git("config", "ckpt.keepLast", "1")
    _install(checkout)
    _old_checkpoints(checkout, 3)
    _ended_long_ago(Path(private_dir(checkout)) / "maintained")
    checkout.commit("a day later")
    _wait_until(lambda: len(checkout.refs("refs/checkpoints")) == 1)
    checkout.git("fsck", "--strict")
