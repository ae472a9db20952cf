"""Restore leaves equal files alone, whatever git's settings do to them now."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gitckpt import Store
from tests.conftest import Checkout

LF, CRLF = b"one\ntwo\n", b"one\r\ntwo\r\n"
Settings = dict[str, str]

CASES: dict[str, tuple[Settings, Settings, bytes]] = {
    "core.autocrlf set": ({}, {"core.autocrlf": "true"}, LF),
    "core.autocrlf unset": ({"core.autocrlf": "true"}, {"core.autocrlf": "false"}, CRLF),
    "core.eol set": ({".gitattributes": "* text=auto\n"}, {"core.eol": "crlf"}, LF),
    "core.eol unset": (
        {".gitattributes": "* text=auto\n", "core.eol": "crlf"},
        {"core.eol": "lf"},
        CRLF,
    ),
    "attributes of the clone": ({}, {".git/info/attributes": "* text eol=crlf\n"}, LF),
    "ident": ({}, {".git/info/attributes": "* ident\n"}, b"$Id$\n"),
    "an encoding": ({}, {".git/info/attributes": "* working-tree-encoding=UTF-16\n"}, LF),
    "attributes that go": ({}, {"core.autocrlf": "true", ".gitattributes": "*.png binary\n"}, LF),
    "text=auto that goes": ({}, {"core.eol": "crlf", ".gitattributes": "* text=auto\n"}, LF),
    "text=auto that comes back": (
        {".gitattributes": "* text=auto\n"},
        {"core.eol": "crlf", ".gitattributes": ""},
        LF,
    ),
    "bytes that are kept": ({"core.autocrlf": "true"}, {"core.autocrlf": "false"}, LF),
}


def apply(here: Checkout, settings: Settings) -> None:
    """Apply settings: `core.` names to git's configuration, others to files."""
    for name, value in settings.items():
        if name.startswith("core."):
            here.git("config", name, value)
        else:
            (here.path / name).parent.mkdir(exist_ok=True)
            (here.path / name).write_text(value)


def begin(here: Checkout, settings: Settings, content: bytes) -> None:
    """Commit two files older than the index, so that git trusts their stat data."""
    apply(here, settings)
    for name in ("a", "b"):
        (here.path / name).write_bytes(content)
    here.git("add", "--all")
    here.git("commit", "--quiet", "--message", "files")
    for name in ("a", "b"):
        os.utime(here.path / name, (1_700_000_000, 1_700_000_000))
    here.git("update-index", "--refresh", ok=(0, 1))


def contents(top: Path) -> tuple[tuple[bytes, int], bytes]:
    """Return the contents of both files, and the inode of the first."""
    return ((top / "a").read_bytes(), (top / "a").stat().st_ino), (top / "b").read_bytes()


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("case", "how"),
    [
        (case, how)
        for case in CASES
        for how in ("saved", "as committed", "changed")
        if (case, how) != ("an encoding", "changed")  # git cannot store the other file then
    ],
)
def test_file_equal_to_the_captured_one_is_not_rewritten(
    plain: Store, main_checkout: Checkout, case: str, how: str
) -> None:
    here = main_checkout
    settings, later, content = CASES[case]
    begin(here, settings, content)
    made = plain.record("a-complete", {}) if how == "as committed" else plain.save("a-complete", {})
    before = contents(here.path)
    apply(here, later)
    if how == "changed":
        (here.path / "b").write_bytes(b"y\n")
        changed = contents(here.path)
    done = plain.restore(made)
    assert {change.path for change in done.changes} <= {b"b", b".gitattributes"}
    assert contents(here.path)[0] == before[0]
    if how == "changed":
        if (
            "unset" not in case and ".git/info/attributes" not in later
        ):  # else b comes as git writes it by now
            assert contents(here.path)[1] == content
        plain.undo()
        assert contents(here.path) == changed
        plain.redo()
        assert contents(here.path)[0] == before[0]


def test_setting_that_changes_between_restore_and_undo(
    plain: Store, main_checkout: Checkout
) -> None:
    here = main_checkout
    begin(here, {}, LF)
    made = plain.save("a-complete", {})
    (here.path / "b").write_bytes(b"y\n")
    before = contents(here.path)
    plain.restore(made)
    here.git("config", "core.autocrlf", "true")
    plain.undo()
    assert contents(here.path) == before


def test_line_ends_that_differ_from_the_captured_ones_come_back(
    plain: Store, main_checkout: Checkout
) -> None:
    """Restore brings LF back, although git sees no difference to CRLF."""
    here = main_checkout
    begin(here, {".gitattributes": "* text=auto\n"}, LF)
    made = plain.save("a-complete", {})
    (here.path / "a").write_bytes(CRLF)
    plain.restore(made)
    assert (here.path / "a").read_bytes() == LF
    plain.undo()
    assert (here.path / "a").read_bytes() == CRLF


@pytest.mark.parametrize("settings", [{}, {"core.autocrlf": "true"}])
def test_diff_shows_no_line_ends_that_settings_of_now_would_write(
    plain: Store, main_checkout: Checkout, settings: Settings
) -> None:
    here = main_checkout
    begin(here, settings, CRLF if settings else LF)
    made = plain.save("a-complete", {})
    here.git("config", "core.autocrlf", "false" if settings else "true")
    assert plain.diff(made) == b""
    assert plain.diff(made, plain.save("b-complete", {})) == b""
