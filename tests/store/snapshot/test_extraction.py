"""Programs read a checkpoint's files, its changes and its attachments."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gitckpt import CkptError, Listener, NotFoundError, Pipelines, Store, WorktreeError
from tests.conftest import Checkout

NAMES = (
    b"a b",
    b":x",
    b"new\nline",
    b"*",
    b"d/e f",
    b"\xff\xfe",
    b"d/[z]",
    b"-o",
    b":(top)q",
    b":!no",
    b"raw",
)


def test_a_file_of_any_name_is_read(
    plain: Store, main_checkout: Checkout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(main_checkout.path)
    os.mkdir("d")
    for name in NAMES:
        with open(name, "wb") as file:
            file.write(b"of " + name)
    os.symlink("target", "link")
    os.symlink("d", "linked")
    saved = plain.save("plan")
    monkeypatch.chdir("d")  # paths are relative to the top of the worktree
    assert [plain.file(saved, name) for name in NAMES] == [b"of " + name for name in NAMES]
    assert (plain.file(saved.id, "README"), plain.file(saved, "link")) == (b"hello\n", b"target")
    for wrong in (
        "d",
        "d/",
        "nothing",
        "",
        ".",
        "../d/e f",
        "/README",
        "./README",
        "linked/e f",
        "README/x",
    ):
        with pytest.raises(NotFoundError) as refused:
            plain.file(saved, wrong)
        assert (
            refused.value.message == f"checkpoint {saved.id} has no file {wrong!r} among its files"
        )


def test_of_a_file_that_git_would_write_otherwise_come_its_bytes(
    plain: Store, main_checkout: Checkout
) -> None:
    main_checkout.write(".gitattributes", "*.txt text eol=lf\n")
    main_checkout.write("mixed.txt", "one\r\ntwo\n")
    saved = plain.save("plan")
    assert plain.file(saved, "mixed.txt") == b"one\r\ntwo\n"
    assert plain.file(saved, "README") == b"hello\n"


def test_where_the_commit_stands_for_the_files_they_are_its_own(plain: Store) -> None:
    recorded = plain.record("plan")
    assert plain.file(recorded, "README") == b"hello\n"
    assert (plain.diff_commit(recorded), plain.beside(recorded)) == (b"", [])
    with pytest.raises(NotFoundError, match=r"has no file 'plan' beside its worktree$"):
        plain.file(recorded, "plan", beside=True)


def test_a_bare_repository_has_files_too(
    plain: Store, main_checkout: Checkout, tmp_path: Path
) -> None:
    main_checkout.write("new", "work\n")
    saved = plain.save("plan")
    bare = tmp_path / "bare.git"
    main_checkout.git("clone", "-q", "--mirror", ".", str(bare))
    with Store.open(bare, adapter="plumbing") as store:
        assert store.file(saved.id, "new") == b"work\n"
        assert store.diff_commit(saved.id, options=["--numstat"]) == b"1\t0\tnew\n"


def test_what_differs_from_the_commit(
    plain: Store, main_checkout: Checkout, monkeypatch: pytest.MonkeyPatch
) -> None:
    main_checkout.write("README", "other\n")
    main_checkout.write("sub/new", "new\n")
    saved = plain.save("plan")
    monkeypatch.chdir(main_checkout.path / "sub")
    assert plain.diff_commit(saved, options=["--numstat"]) == b"1\t1\tREADME\n1\t0\tsub/new\n"
    assert plain.diff_commit(saved.id, paths=["new"], options=["--numstat"]) == b"1\t0\tsub/new\n"


def test_files_that_are_missing_are_told_of(plain: Store, main_checkout: Checkout) -> None:
    main_checkout.write("new", "work\n")
    saved = plain.save("plan")
    oid = main_checkout.git("rev-parse", f"refs/ckpt/trees/{saved.id}:files/new")
    (main_checkout.path / ".git/objects" / oid[:2] / oid[2:]).unlink()
    with (
        Store.open(main_checkout.path, adapter="plumbing") as store,
        pytest.raises(WorktreeError, match=f"^{oid}, the content of new, is"),
    ):
        store.file(saved, "new")


def test_what_a_run_keeps_beside_its_worktree(
    plain: Store, main_checkout: Checkout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(main_checkout.path)
    main_checkout.write("task.md", "a task\n")
    pipeline = (
        '[pipelines.ci]\ninputs = { task = "" }\nfiles = ["task"]\nphases = [{ name = "one", '
        'run = "true" }]\n'
    )
    main_checkout.write("gitckpt.toml", pipeline)
    run = Pipelines(plain).run("ci", {"task": "task.md"}).run
    newest = plain.find(run)
    (name,) = (each for each in plain.beside(newest) if each.startswith("input"))
    assert plain.file(newest, name, beside=True) == b"a task\n"


def test_the_text_of_a_preset() -> None:
    assert "[pipelines.loop]" in Pipelines.preset("loop")
    with pytest.raises(NotFoundError, match="there is no preset 'ci'"):
        Pipelines.preset("ci")


def test_a_listener_is_told_what_does_not_apply(main_checkout: Checkout) -> None:
    heard: list[str] = []
    main_checkout.write("gitckpt.toml", "[retention]\nkeep_last = 5\n")
    with Store.open(
        main_checkout.path, adapter="plumbing", listener=Listener(heard.append)
    ) as store:
        assert [store.policy().keep_last for _ in range(2)] == [100, 100]
    assert len(heard) == 1
    with pytest.raises(CkptError):
        Listener(progress=3)  # type: ignore[arg-type]
    with pytest.raises(CkptError):
        Listener(count=3)  # type: ignore[arg-type]
