"""Refs are read one by one or listed, always as they are now."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from gitckpt import CkptError
from gitckpt.git import refs as refs_module
from gitckpt.git.files.refs_stat import read_loose_ref
from gitckpt.git.process import git_executable
from gitckpt.git.refs import Refs, RefUpdate
from gitckpt.git.repository import discover_repository
from tests.conftest import Checkout

A, B, C = (f"refs/checkpoints/{name}" for name in "abc")


class TestAPipeInThePlaceOfARef:
    """gitckpt reports a pipe as a ref; git 2.39 blocks on it, git 2.55 skips it."""

    def test_is_named(self, main_checkout: Checkout) -> None:
        path = main_checkout.path / ".git" / A
        path.parent.mkdir(parents=True)
        os.mkfifo(path)
        with pytest.raises(CkptError, match="is a named pipe instead of a ref") as caught:
            read_loose_ref(discover_repository(str(main_checkout.path)), A)
        assert caught.value.hint == f"remove the pipe: rm {path}"

    @pytest.mark.long
    def test_is_named_where_git_waits_for_it(
        self, main_checkout: Checkout, refs: Refs, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(refs_module, "_PATIENCE", 0.3)
        main_checkout.git("update-ref", B, "HEAD")
        path = main_checkout.path / ".git" / A
        os.mkfifo(path)
        words = ["git", "for-each-ref", "refs/checkpoints"]
        try:
            subprocess.run(
                words, cwd=main_checkout.path, capture_output=True, check=False, timeout=1
            )
        except subprocess.TimeoutExpired:
            with pytest.raises(CkptError, match="is a named pipe instead of a ref"):
                refs.list_refs("refs/checkpoints")
            path.unlink()
        assert refs.list_refs("refs/checkpoints").count(b"\n") == 1

    def test_it_is_waited_for_git_as_long_as_there_is_none(
        self, main_checkout: Checkout, refs: Refs, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(refs_module, "_PATIENCE", 0.0)
        main_checkout.git("update-ref", B, "HEAD")
        assert refs.list_refs("refs/checkpoints").count(b"\n") == 1


class TestRead:
    def test_gives_the_oid_as_it_is_now(self, main_checkout: Checkout, refs: Refs) -> None:
        first = main_checkout.git("rev-parse", "HEAD")
        seen = [refs.read_ref("refs/heads/main"), refs.read_ref(A)]
        second = main_checkout.commit("second")
        main_checkout.git("update-ref", A, first)
        seen += [refs.read_ref("refs/heads/main"), refs.read_ref(A)]
        main_checkout.git("pack-refs", "--all", "--prune")
        seen += [refs.read_ref("refs/heads/main"), refs.read_ref(A)]
        main_checkout.git("update-ref", "-d", A)
        seen += [refs.read_ref(A)]
        assert seen == [first, None, second, first, second, first, None]

    def test_gives_the_oid_of_an_object_that_is_missing(
        self, main_checkout: Checkout, refs: Refs
    ) -> None:
        oid = main_checkout.git("hash-object", "-w", "--stdin", data="gone")
        main_checkout.git("update-ref", A, oid)
        (main_checkout.path / ".git" / "objects" / oid[:2] / oid[2:]).unlink()
        assert [refs.read_ref(A), refs.read_ref(B)] == [oid, None]

    def test_gives_the_oid_of_an_object_that_is_missing_also_where_the_ref_is_packed(
        self, main_checkout: Checkout, refs: Refs
    ) -> None:
        oid = main_checkout.git("hash-object", "-w", "--stdin", data="gone")
        main_checkout.git("update-ref", A, oid)
        main_checkout.git("pack-refs", "--all", "--prune")
        (main_checkout.path / ".git" / "objects" / oid[:2] / oid[2:]).unlink()
        assert [
            refs.read_ref(A),
            refs.read_ref(f"{A}/"),
            refs.read_ref("refs/checkpoints"),
            refs.read_ref(B),
        ] == [
            oid,
            None,
            None,
            None,
        ]

    @pytest.mark.parametrize(
        "said", [b"ref: refs/heads/main\n", b"", b"nonsense\n", b"0123\n", b"\0" * 41]
    )
    def test_of_what_is_no_plain_ref_says_what_git_does(
        self, main_checkout: Checkout, refs: Refs, said: bytes
    ) -> None:
        (main_checkout.path / ".git" / "refs" / "checkpoints").mkdir(exist_ok=True)
        (main_checkout.path / ".git" / A).write_bytes(said)
        done = main_checkout.git("rev-parse", "--quiet", "--verify", A, ok=(0, 1, 128))
        assert refs.read_ref(A) == (done or None)

    @pytest.mark.parametrize(
        "name",
        ["refs/../HEAD", "refs/heads/../../ORIG_HEAD", "refs/heads/\0", "refs/heads/" + "x" * 300],
    )
    def test_of_what_is_no_name_of_a_ref(
        self, main_checkout: Checkout, refs: Refs, name: str
    ) -> None:
        (main_checkout.path / ".git" / "ORIG_HEAD").write_text(
            main_checkout.git("rev-parse", "HEAD") + "\n"
        )
        if "\0" not in name:
            assert refs.read_ref(name) is None

    def test_of_a_worktree_is_that_of_this_one(
        self, main_checkout: Checkout, tmp_path: Path
    ) -> None:
        first, second = main_checkout.git("rev-parse", "HEAD"), main_checkout.commit("second")
        main_checkout.git("worktree", "add", "--quiet", "--detach", str(tmp_path / "linked"))
        main_checkout.git("update-ref", "refs/worktree/x", first)
        main_checkout.git("-C", str(tmp_path / "linked"), "update-ref", "refs/worktree/x", second)
        there = Refs(discover_repository(str(tmp_path / "linked")))
        assert there.read_ref("refs/worktree/x") == second
        there.close()

    def test_of_what_is_not_there_starts_no_process(
        self, main_checkout: Checkout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        log, spy = tmp_path / "log", tmp_path / "git"
        spy.write_text(f'#!/bin/sh\necho "$*" >> {log}\nexec {git_executable()} "$@"\n')
        spy.chmod(0o755)
        monkeypatch.setenv("GITCKPT_GIT", str(spy))
        refs = Refs(discover_repository(str(main_checkout.path)))
        assert refs.read_ref(A) is None  # starts the one that lives on
        log.write_text("")
        assert [refs.read_ref(B), refs.read_ref(C), refs.read_ref("refs/ckpt/runs/x")] == [
            None,
            None,
            None,
        ]
        assert log.read_text() == ""
        main_checkout.git("pack-refs", "--all", "--prune")
        log.write_text("")
        assert refs.read_ref(B) is None
        assert log.read_text() == ""

    def test_of_a_long_lived_reader_survives_many_ambiguous_names(
        self, main_checkout: Checkout, refs: Refs
    ) -> None:
        head = main_checkout.git("rev-parse", "HEAD")
        name = "refs/heads/" + "long" * 50
        main_checkout.git("update-ref", name, head)
        main_checkout.git("update-ref", f"refs/heads/{name}", head)
        assert {refs.read_ref(name) for _ in range(400)} == {head}


class TestList:
    def test_gives_a_line_for_each_ref_by_name(self, main_checkout: Checkout, refs: Refs) -> None:
        head = main_checkout.git("rev-parse", "HEAD")
        refs.apply_updates(
            [
                RefUpdate(B, head, ""),
                RefUpdate(A, head, ""),
                RefUpdate("refs/checkpoints-not/x", head, ""),
            ]
        )
        assert refs.list_refs("refs/checkpoints") == f"{head} {A}\n{head} {B}\n".encode()
        assert refs.list_refs(
            "refs/checkpoints/a*", "refs/checkpoints-not", fields="%(refname) %(objecttype)"
        ) == (b"refs/checkpoints-not/x commit\nrefs/checkpoints/a commit\n")
        assert refs.list_refs("refs/nothing") == b""
