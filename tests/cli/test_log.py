"""`git ckpt log` shows what each checkpoint changed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gitckpt import Store
from gitckpt.agents import guards
from gitckpt.cli import terminal
from tests.cli.conftest import Ckpt
from tests.conftest import Checkout

Save = Callable[..., str]


@pytest.fixture
def at_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal, "is_terminal", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")


def read(ckpt: Ckpt, at: Checkout, *args: str) -> list[dict[str, Any]]:
    done = ckpt("log", "--json", *args, at=at)
    assert done.code == 0, done.err
    items: list[dict[str, Any]] = json.loads(done.out)["log"]
    return items


def changed(item: dict[str, Any]) -> dict[str, tuple[str, int | None, int | None]]:
    return {
        file["path"]: (file["status"], file["added"], file["removed"]) for file in item["files"]
    }


def test_each_is_compared_with_the_one_before_and_not_with_its_commit(
    ckpt: Ckpt, save: Save, checkout: Checkout
) -> None:
    checkout.write("README", "one\ntwo\n")
    first = save(checkout)
    checkout.write("new", "1\n2\n3\n")
    second = save(checkout, "-m", "a message")
    checkout.write("new", "1\n3\n")
    checkout.write("odd\nname", b"\0")
    third = save(checkout)
    items = read(ckpt, checkout)
    assert [item["id"] for item in items] == [third, second, first]
    assert changed(items[0]) == {"new": ("M", 0, 1), "odd\nname": ("A", None, None)}
    assert changed(items[1]) == {"new": ("A", 3, 0)}
    assert [item["compared_with"] for item in items] == [second, first, None]
    assert "README" in changed(items[2])
    done = ckpt("log", second, at=checkout)
    assert done.out.startswith(f"checkpoint {second}\nDate:   ")
    assert "\n    a message\n\n    new  +3 new\n\ncheckpoint " in done.out
    assert ckpt("log", "--name-only", "-n1", at=checkout).out.endswith("new\nodd\\nname\n")
    assert "+1\n+2\n+3\n" in ckpt("log", "-p", second, "-n", "1", at=checkout).out
    assert " new | 3 +++\n" in ckpt("log", "--stat", second, "-n", "1", at=checkout).out


def test_other_worktrees_and_runs_are_no_predecessors(
    ckpt: Ckpt, main_checkout: Checkout, save: Save, tmp_path: Path
) -> None:
    main_checkout.write("README", "here\n")
    here = save(main_checkout)
    other = Checkout(tmp_path / "other", main_checkout.path)
    main_checkout.git("worktree", "add", "--quiet", "--detach", str(other.path))
    other.write("README", "there\n")
    there = save(other)
    main_checkout.write("README", "here again\n")
    again = save(main_checkout)
    items = {item["id"]: item["compared_with"] for item in read(ckpt, main_checkout)}
    assert items == {again: here, there: None, here: None}
    assert [item["id"] for item in read(ckpt, main_checkout, again)] == [again, here]


def test_a_run_is_one_line_unless_it_is_named(
    ckpt: Ckpt, main_checkout: Checkout, at_terminal: None
) -> None:
    with Store.open(main_checkout.path) as store:
        first = store.save("research-started", {"step": 0, "gone": 1}, start="add login")
        for number in (1, 2):
            main_checkout.write("src", "line\n" * number)
            step = {"step": number}
            store.save(f"part {number}-complete", step, run=first.run, message=f"part {number}")
        store.save("review-failed", run=first.run)
    done = ckpt("log", at=main_checkout)
    assert done.out.startswith("run add-login: 4 checkpoints, 4 phases +2 (")
    assert done.out.count("\n") == 1
    (folded,) = read(ckpt, main_checkout)
    assert (folded["folded"], len(folded["checkpoints"])) == ("runs", 4)
    assert changed(folded) == {"src": ("A", 2, 0)}
    for words in (["--run", str(first.run)], ["--all"], [str(first.run)]):
        items = read(ckpt, main_checkout, *words)
        assert [item["phase"] for item in items] == ["review", "part 2", "part 1", "research"]
    assert changed(items[1]) == {"src": ("M", 1, 0)}
    assert items[2]["state"] == [
        {"pointer": "/step", "old": 0, "new": 1},
        {"pointer": "/gone", "old": 1},
    ]
    shown = ckpt("log", "--all", at=main_checkout).out
    assert "add-login:review (failed)\n" in shown
    assert "    src  +1\n    state step: 1 -> 2\n" in shown


def test_turns_of_an_agent(ckpt: Ckpt, main_checkout: Checkout) -> None:
    with Store.open(main_checkout.path) as store:
        options: dict[str, Any] = {"trigger": "turn", "agent": "claude"}
        main_checkout.write("mine", "by hand\n")
        begin = store.save("turn-1-started", {}, start="claude fix", message="fix", **options)
        main_checkout.write("one", "1\n")
        store.save("turn-1-complete", {}, run=begin.run, message="fix", **options)
        main_checkout.write("mine", "by hand\nagain\n")
        store.save("turn-2-started", {}, run=begin.run, message="more", **options)
        main_checkout.write("two", "1\n2\n")
        store.save("turn-2-complete", {}, run=begin.run, message="more", **options)
    turns = read(ckpt, main_checkout, "--turns")
    assert [(item["label"], *changed(item)) for item in turns] == [
        ("turn-2-complete", "two"),
        ("turn-1-complete", "one"),
    ]
    assert ckpt("log", at=main_checkout).out.startswith("session ")
    assert len(read(ckpt, main_checkout, "--session", "fix")) == 4
    assert read(ckpt, main_checkout, "--agent", "codex") == []


def test_what_has_no_files_is_not_compared(
    ckpt: Ckpt, main_checkout: Checkout, save: Save, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stash that a guard keeps has another tree, and a commit lacks untracked files."""
    main_checkout.write("untracked", "1\n")
    before = save(main_checkout)
    main_checkout.write("README", "stashed\n")
    main_checkout.git("stash")
    main_checkout.commit("another", README="committed\n", untracked="1\n")
    monkeypatch.chdir(main_checkout.path)
    with Store.open(main_checkout.path) as store:
        guards.guard(store, "git stash drop")
    main_checkout.git("reset", "--quiet", "HEAD~1")
    hook = save(main_checkout, "--no-worktree")
    after = save(main_checkout)
    items = {item["id"]: item for item in read(ckpt, main_checkout)}
    assert items[after]["compared_with"] == before
    assert changed(items[after]) == {"README": ("M", 1, 1)}
    assert changed(items[hook]) == {}
    kept = next(item for item in items.values() if item["trigger"] == "guard")
    assert kept["not_compared"] == "it keeps commits, and has no files"
    assert "files not compared: it keeps commits" in ckpt("log", at=main_checkout).out


def test_safety_checkpoints_are_hidden(ckpt: Ckpt, main_checkout: Checkout, save: Save) -> None:
    first = save(main_checkout)
    main_checkout.write("README", "lost\n")
    assert ckpt("restore", first).code == 0
    main_checkout.write("new", "\n")
    last = save(main_checkout)
    items = read(ckpt, main_checkout)
    assert [item["id"] for item in items] == [last, first]
    assert changed(items[0]) == {"new": ("A", 1, 0)}
    everything = read(ckpt, main_checkout, "--all")
    assert [item["trigger"] for item in everything] == ["manual", "safety", "manual"]
    assert set(changed(everything[0])) == {"README", "new"}
    (safety,) = read(ckpt, main_checkout, "--trigger", "safety")
    assert set(changed(safety)) == {"README"}


@pytest.mark.parametrize("name", ["dir/file", "odd\nname", "a b:c", "*", "\udcff", ":(glob)"])
def test_with_a_path_only_what_changed_there(
    ckpt: Ckpt, main_checkout: Checkout, save: Save, name: str
) -> None:
    save(main_checkout)
    main_checkout.write(name, "1\n")
    made = save(main_checkout)
    main_checkout.write("other", "1\n")
    save(main_checkout)
    (main_checkout.path / name).unlink()
    gone = save(main_checkout)
    items = read(ckpt, main_checkout, "--", name)
    assert [item["id"] for item in items] == [gone, made]
    assert [item["files"][0]["status"] for item in items] == ["D", "A"]
    assert [len(item["files"]) for item in items] == [1, 1]
    directory = Checkout(main_checkout.path / "dir")
    directory.path.mkdir(exist_ok=True)
    if name == "dir/file":
        assert len(read(ckpt, directory, "--", ".")) == 2
        assert len(read(ckpt, directory, "--", "..")) == 3


def test_filters(ckpt: Ckpt, main_checkout: Checkout, save: Save) -> None:
    branch = main_checkout.git("branch", "--show-current")
    one = save(main_checkout, "-m", "Find me", "--phase", "a-failed")
    main_checkout.git("checkout", "--quiet", "-b", "side")
    two = save(main_checkout, "-m", "other")

    def found(*words: str) -> list[str]:
        return [item["id"] for item in read(ckpt, main_checkout, *words)]

    assert found("--grep", "find") == found("--status", "failed") == found("--phase", "a") == [one]
    assert found("--branch", branch) == [one]
    assert found("--branch", "side") == found("-n", "1") == [two]
    assert found("--until", "2h") == []
    assert found("--since", "2h") == [two, one]
    done = ckpt("log", "-n1", "--oneline", at=main_checkout)
    assert done.out.split("\t")[0] == two
    assert done.err == ""
    nothing = ckpt("log", "--grep", "nowhere", at=main_checkout)
    assert (nothing.out, nothing.err) == (
        "",
        "no checkpoint matches; to see all: git ckpt log --all\n",
    )
    assert ckpt("log", "-p", "--stat").code == 2


def test_by_default_the_newest_twenty(ckpt: Ckpt, main_checkout: Checkout) -> None:
    with Store.open(main_checkout.path) as store:
        for _ in range(21):
            store.record("a-complete", {})
    done = ckpt("log", "--oneline", at=main_checkout)
    assert done.out.count("\n") == 20
    assert done.err == "these are the newest 20; for more: git ckpt log -n N\n"
    assert ckpt("log", "--oneline", "--all").out.count("\n") == 21


def test_at_80_columns_nothing_wraps(
    ckpt: Ckpt, main_checkout: Checkout, save: Save, at_terminal: None
) -> None:
    main_checkout.write("deep/" * 30 + "file", "1\n")
    for number in range(8):
        main_checkout.write(f"file {number}", "1\n" * number)
    save(main_checkout, "-m", "a message of many words " * 12)
    save(main_checkout, "-m", "広い" * 60)
    save(main_checkout, "-m", "\x1b[31mred " + "w" * 200)
    for words in ([], ["--oneline"], ["--stat"]):
        out = ckpt("log", *words, at=main_checkout).out
        assert max(map(terminal._display_width, out.splitlines())) <= 80, words
        assert "\x1b" not in out
    assert "    and 4 more files; in all +" in ckpt("log", at=main_checkout).out


def test_a_single_further_file_is_shown_itself(
    ckpt: Ckpt, main_checkout: Checkout, save: Save
) -> None:
    for number in range(6):
        main_checkout.write(f"file {number}", "1\n")
    state = json.dumps({f"key{number}": number for number in range(6)})
    assert ckpt("save", "--state", "-", at=main_checkout, stdin=state).code == 0
    out = ckpt("log", at=main_checkout).out
    assert (out.count("\n    file "), out.count("\n    state ")) == (6, 6)
    assert "more" not in out


def test_files_that_a_capture_left_out_are_not_called_deleted(
    ckpt: Ckpt, main_checkout: Checkout, save: Save
) -> None:
    main_checkout.write("dump", "1\n")
    save(main_checkout)
    main_checkout.git("config", "ckpt.maxFileSize", "10")
    main_checkout.write("dump", "1\n" * 100)
    save(main_checkout)
    newest = read(ckpt, main_checkout)[0]
    assert (newest["files"], newest["not_captured"]) == ([], 1)
    assert "1 path not captured" in ckpt("log", at=main_checkout).out


def test_line_ends_that_git_stores_alike_are_a_change(
    ckpt: Ckpt, main_checkout: Checkout, save: Save
) -> None:
    main_checkout.write(".gitattributes", "*.txt text\n")
    main_checkout.commit("attributes", **{"a.txt": "1\n2\n"})
    main_checkout.write("a.txt", "1\n2\n3\n")
    save(main_checkout)
    main_checkout.write("a.txt", "1\r\n2\n3\n")
    save(main_checkout)
    assert set(changed(read(ckpt, main_checkout)[0])) == {"a.txt"}


def test_a_missing_tree_is_no_change(ckpt: Ckpt, main_checkout: Checkout, save: Save) -> None:
    main_checkout.write("dir/file", "1\n")
    made = save(main_checkout)
    main_checkout.write("dir/file", "2\n")
    save(main_checkout)
    oid = main_checkout.git("rev-parse", f"refs/ckpt/trees/{made}:files/dir")
    (main_checkout.path / ".git/objects" / oid[:2] / oid[2:]).unlink()
    newest = read(ckpt, main_checkout)[0]
    assert newest["not_compared"] == "a tree is malformed or missing; see: git ckpt verify"


def test_a_run_begins_with_the_files_of_its_commit(
    ckpt: Ckpt, save: Save, main_checkout: Checkout
) -> None:
    main_checkout.write("gitckpt.toml", '[pipelines.ci]\nphases = [{name = "a", run = "true"}]\n')
    main_checkout.write("draft", "untracked\n")
    save(main_checkout)
    run = ckpt("run", "ci", at=main_checkout).out.strip()
    assert [item["files"] for item in read(ckpt, main_checkout, "--run", run)] == [[], [], [], []]
