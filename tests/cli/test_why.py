"""`git ckpt why` finds a lost file and prints commands that restore it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gitckpt import Store
from gitckpt.agents import guards
from tests.cli.conftest import Ckpt
from tests.conftest import Checkout

Save = Callable[..., str]
NAMES = ["dir/lost", "odd 'name'\n*", ":(top)x"]


def find(ckpt: Ckpt, at: Checkout, name: str) -> dict[str, dict[str, Any]]:
    done = ckpt("why", name, "--json", at=at)
    assert done.code == 0, done.err
    return {place["kind"]: place for place in json.loads(done.out)["places"]}


def bring_back(at: Checkout, place: dict[str, Any], name: str) -> str:
    """Run the command of a place, and return what the file then holds."""
    done = subprocess.run(
        ["sh", "-c", place["command"]], cwd=at.path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, (place["command"], done.stderr)
    return (at.path / name).read_text()


@pytest.mark.usefixtures("git_ckpt")
@pytest.mark.parametrize("name", NAMES)
def test_a_deleted_file(ckpt: Ckpt, main_checkout: Checkout, save: Save, name: str) -> None:
    main_checkout.write(name, "committed\n")
    had = main_checkout.commit("has it", other="1\n")
    main_checkout.write(name, "saved\n")
    saved = save(main_checkout, "-m", "a checkpoint")
    (main_checkout.path / name).unlink()
    gone = save(main_checkout)
    deleted = main_checkout.commit("deletes it", other="2\n")
    places = find(ckpt, main_checkout, name)
    assert set(places) == {"checkpoint", "commit"}
    assert (places["checkpoint"]["name"], places["commit"]["name"]) == (saved, had)
    assert places["checkpoint"]["ended_by"] == f"checkpoint {gone[:8]}"
    assert places["commit"]["ended_by"] == f"commit {deleted[:10]}"
    assert places["commit"]["deleted"] is places["checkpoint"]["deleted"] is True
    assert bring_back(main_checkout, places["checkpoint"], name) == "saved\n"
    (main_checkout.path / name).unlink()
    assert bring_back(main_checkout, places["commit"], name) == "committed\n"


@pytest.mark.parametrize("has_gap", [False, True])
def test_a_person_sees_since_when_a_file_is_gone(
    ckpt: Ckpt,
    main_checkout: Checkout,
    save: Save,
    has_gap: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    main_checkout.write("lost", "1\n")
    save(main_checkout)
    (main_checkout.path / "lost").unlink()
    if has_gap:  # as by a hook: it does not look at the files
        with Store.open(main_checkout.path) as store:
            store.record("commit-complete", {}, trigger="post-commit")
    gone = save(main_checkout)[:8]
    monkeypatch.setattr("gitckpt.cli.terminal.is_terminal", lambda: True)
    end = ckpt("why", "lost", at=main_checkout).out.splitlines()[1]
    expected = (
        f"    absent from checkpoint {gone} on" if has_gap else f"    gone in checkpoint {gone}"
    )
    assert end.rpartition(" (")[0] == expected


@pytest.mark.usefixtures("git_ckpt")
def test_a_file_in_stash_reflog_and_linked_worktree(
    ckpt: Ckpt, main_checkout: Checkout, tmp_path: Path
) -> None:
    main_checkout.write("lost", "stashed\n")
    main_checkout.git("stash", "--include-untracked")
    main_checkout.commit("will be reset", lost="committed\n")
    main_checkout.git("reset", "--quiet", "--hard", "HEAD~1")
    linked = Checkout(tmp_path / "linked worktree")
    main_checkout.git("worktree", "add", "--quiet", "--detach", str(linked.path))
    linked.write("lost", "there\n")
    places = find(ckpt, main_checkout, "lost")
    assert set(places) == {"stash", "reflog", "worktree"}
    contents = {"stash": "stashed\n", "reflog": "committed\n", "worktree": "there\n"}
    for kind, content in contents.items():
        assert bring_back(main_checkout, places[kind], "lost") == content
        (main_checkout.path / "lost").unlink()
    assert places["worktree"]["name"] == str(linked.path)


@pytest.mark.usefixtures("git_ckpt")
def test_a_dropped_stash_that_a_guard_kept(
    ckpt: Ckpt, main_checkout: Checkout, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in (1, 2):
        main_checkout.write("lost", f"{number}\n")
        main_checkout.git("stash", "--include-untracked")
    monkeypatch.chdir(main_checkout.path)
    with Store.open() as store:
        guards.guard(store, "git stash clear")
    main_checkout.git("stash", "clear")
    place = find(ckpt, main_checkout, "lost")["checkpoint"]
    assert bring_back(main_checkout, place, "lost") in ("1\n", "2\n")


@pytest.mark.long
@pytest.mark.usefixtures("git_ckpt")
def test_of_a_file_that_is_here_other_contents_are_found_and_nothing_is_lost(
    ckpt: Ckpt, main_checkout: Checkout, save: Save
) -> None:
    main_checkout.commit("old", file="old\n")
    main_checkout.commit("now", file="now\n")
    done = ckpt("why", "file", at=main_checkout)
    assert done.err == "file is here; other contents of it were last in:\n"
    place = find(ckpt, main_checkout, "file")["commit"]
    assert (place["title"], place["deleted"]) == ("old", False)
    main_checkout.write("file", "unsaved\n")
    place = find(ckpt, main_checkout, "file")["commit"]
    assert place["title"] == "now"
    assert bring_back(main_checkout, place, "file") == "now\n"
    (before,) = find(ckpt, main_checkout, "file").keys() & {"checkpoint"}
    assert bring_back(main_checkout, find(ckpt, main_checkout, "file")[before], "file") == (
        "unsaved\n"
    )


def test_a_directory_and_what_nothing_has(ckpt: Ckpt, main_checkout: Checkout, save: Save) -> None:
    main_checkout.write("dir/file", "1\n")
    made = save(main_checkout)
    (main_checkout.path / "dir/file").unlink()
    (main_checkout.path / "dir").rmdir()
    done = ckpt("why", "dir", at=main_checkout)
    assert done.err == "dir is not here; it was last in:\n"
    assert done.out.split("\t")[:2] == ["checkpoint", made]
    assert done.out.rstrip().endswith(f"git ckpt restore {made[:8]} -- dir")
    nothing = ckpt("why", "nowhere")
    assert (nothing.code, nothing.out) == (12, "")
    assert nothing.err.startswith("error: nowhere is not here, and nothing has it\n")
    same = ckpt("why", "README")
    assert (same.code, same.out) == (0, "")
    assert same.err == "README is here, and nothing has other contents of it\n"
