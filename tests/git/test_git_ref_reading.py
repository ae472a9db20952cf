"""Refs as they are now: one by one, and listed."""

from __future__ import annotations

from pathlib import Path

import pytest

from gitckpt.git.process import git_executable
from gitckpt.git.refs import Refs, Update
from gitckpt.git.repository import discover
from tests.conftest import Checkout

A, B, C = (f"refs/checkpoints/{name}" for name in "abc")


class TestRead:
    def test_gives_the_oid_as_it_is_now(self, main_checkout: Checkout, refs: Refs) -> None:
        first = main_checkout.git("rev-parse", "HEAD")
        seen = [refs.read("refs/heads/main"), refs.read(A)]
        second = main_checkout.commit("second")
        main_checkout.git("update-ref", A, first)
        seen += [refs.read("refs/heads/main"), refs.read(A)]
        main_checkout.git("pack-refs", "--all", "--prune")
        seen += [refs.read("refs/heads/main"), refs.read(A)]
        main_checkout.git("update-ref", "-d", A)
        seen += [refs.read(A)]
        assert seen == [first, None, second, first, second, first, None]

    def test_gives_the_oid_of_an_object_that_is_missing(self, main_checkout: Checkout, refs: Refs) -> None:
        oid = main_checkout.git("hash-object", "-w", "--stdin", data="gone")
        main_checkout.git("update-ref", A, oid)
        (main_checkout.path / ".git" / "objects" / oid[:2] / oid[2:]).unlink()
        assert [refs.read(A), refs.read(B)] == [oid, None]

    def test_gives_the_oid_of_an_object_that_is_missing_also_where_the_ref_is_packed(self, main_checkout: Checkout, refs: Refs) -> None:
        oid = main_checkout.git("hash-object", "-w", "--stdin", data="gone")
        main_checkout.git("update-ref", A, oid)
        main_checkout.git("pack-refs", "--all", "--prune")
        (main_checkout.path / ".git" / "objects" / oid[:2] / oid[2:]).unlink()
        assert [refs.read(A), refs.read(f"{A}/"), refs.read("refs/checkpoints"), refs.read(B)] == [oid, None, None, None]

    def test_of_what_is_not_there_starts_no_process(self, main_checkout: Checkout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        log, spy = tmp_path / "log", tmp_path / "git"
        spy.write_text(f'#!/bin/sh\necho "$*" >> {log}\nexec {git_executable()} "$@"\n')
        spy.chmod(0o755)
        monkeypatch.setenv("GITCKPT_GIT", str(spy))
        refs = Refs(discover(str(main_checkout.path)))
        assert refs.read(A) is None  # starts the one that lives on
        log.write_text("")
        assert [refs.read(B), refs.read(C), refs.read("refs/ckpt/runs/x")] == [None, None, None]
        assert log.read_text() == ""
        main_checkout.git("pack-refs", "--all", "--prune")
        log.write_text("")
        assert refs.read(B) is None
        assert log.read_text() == ""

    def test_of_a_long_lived_reader_survives_many_ambiguous_names(self, main_checkout: Checkout, refs: Refs) -> None:
        head = main_checkout.git("rev-parse", "HEAD")
        name = "refs/heads/" + "long" * 50
        main_checkout.git("update-ref", name, head)
        main_checkout.git("update-ref", f"refs/heads/{name}", head)
        assert {refs.read(name) for _ in range(400)} == {head}


class TestList:
    def test_gives_a_line_for_each_ref_by_name(self, main_checkout: Checkout, refs: Refs) -> None:
        head = main_checkout.git("rev-parse", "HEAD")
        refs.update([Update(B, head, ""), Update(A, head, ""), Update("refs/checkpoints-not/x", head, "")])
        assert refs.list("refs/checkpoints") == f"{head} {A}\n{head} {B}\n".encode()
        assert refs.list("refs/checkpoints/a*", "refs/checkpoints-not", fields="%(refname) %(objecttype)") == (
            b"refs/checkpoints-not/x commit\nrefs/checkpoints/a commit\n"
        )
        assert refs.list("refs/nothing") == b""
