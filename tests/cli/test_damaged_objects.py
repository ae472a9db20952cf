"""Damaged objects of one checkpoint do not affect `list` and `show` of others."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.cli.conftest import Ckpt
from tests.conftest import Checkout
from tests.damaging import KINDS, place_of, some, spoil

PLACES = ("files/d", "files", "", "commit", "tree of the commit")


@pytest.mark.long(but=some(PLACES, [*KINDS, "missing"]))
@pytest.mark.parametrize("how", [*KINDS, "missing"])
@pytest.mark.parametrize("place", PLACES)
def test_a_damaged_object_costs_one_count(
    ckpt: Ckpt, save: Callable[..., str], main_checkout: Checkout, place: str, how: str
) -> None:
    main_checkout.write("d/new", "new\n")
    one = save(main_checkout, "--message", "the first")
    main_checkout.write("d/new", "other\n")
    main_checkout.write("README", "changed\n")
    main_checkout.git("commit", "--quiet", "--all", "--message", "two")
    two = save(main_checkout)
    rev = {"commit": "HEAD~1", "tree of the commit": "HEAD~1^{tree}"}.get(
        place, f"refs/ckpt/trees/{one}:{place}"
    )
    oid = main_checkout.git("rev-parse", rev)
    if how == "missing":
        place_of(main_checkout, oid).unlink()
    else:
        spoil(place_of(main_checkout, oid), how)
    done = ckpt("list", at=main_checkout)
    assert (done.code, done.err) == (0, "")
    assert [(line.split("\t")[0], line.split("\t")[6]) for line in done.out.splitlines()] == [
        (two, "1"),
        (one, "-"),
    ]
    listed = json.loads(ckpt("list", "--json", at=main_checkout).out)["checkpoints"]
    assert [each["files"]["changed"] for each in listed] == [1, None]
    shown = ckpt("show", one, at=main_checkout)
    assert shown.code == 0
    assert "message:     the first\n" in shown.out
    assert shown.err.startswith("warning: ")
    assert shown.err.count("\n") == 1
    assert any(word in shown.err for word in (oid, "is missing", "unable to read tree"))
    assert ckpt("expire", "--all", "--dry-run", at=main_checkout).code == 0
    found = json.loads(ckpt("verify", "--contents", "--json", at=main_checkout).out)["findings"]
    assert any(oid in f"{each['object']} {each['sentence']}" for each in found)


@pytest.mark.parametrize("place", ["raw", "directories", "modes"])
def test_what_is_not_listed_for_it_is_said(
    ckpt: Ckpt, save: Callable[..., str], main_checkout: Checkout, place: str
) -> None:
    main_checkout.write(".gitattributes", "* text=auto\n")
    main_checkout.write("crlf", "a\r\n")
    (main_checkout.path / "empty").mkdir()
    main_checkout.write("private/file", "x\n")
    (main_checkout.path / "private").chmod(0o700)
    one = save(main_checkout)
    whole = ckpt("show", one, at=main_checkout)
    listed = ("byte for byte", "directories without files: empty/", "narrow modes: private (700)")
    assert all(each in whole.out for each in listed)
    place_of(
        main_checkout, main_checkout.git("rev-parse", f"refs/ckpt/trees/{one}:{place}")
    ).unlink()
    shown = ckpt("show", one, at=main_checkout)
    assert (shown.code, any(each in shown.out for each in listed)) == (0, False)
    said = (
        "files kept byte for byte, directories and modes are not listed; find the cause: "
        "git ckpt verify\n"
    )
    assert (shown.err.count("\n"), shown.err.endswith(said)) == (1, True)


def test_a_junk_head_of_a_run_names_its_cure(ckpt: Ckpt, main_checkout: Checkout) -> None:
    assert ckpt("start", "login", at=main_checkout).code == 0
    run = ckpt("runs", at=main_checkout).out.split("\t")[0]
    head = main_checkout.refs(f"refs/ckpt/runs/{run}")
    junk = main_checkout.git("hash-object", "-w", "--stdin", data="junk = ")
    main_checkout.git("update-ref", f"refs/ckpt/runs/{run}", junk)
    for words in (["resume", run], ["resume"], ["step", "show", "--run", run]):
        done = ckpt(*words, at=main_checkout)
        assert done.code == 13
        assert "hint: repair the head of the run: git ckpt verify --repair\n" in done.err
    assert (
        ckpt("status", run, at=main_checkout).out.splitlines()[-1]
        == "next     git ckpt verify --repair"
    )
    assert ckpt("verify", "--repair", at=main_checkout).code == 0
    assert main_checkout.refs(f"refs/ckpt/runs/{run}") == head
