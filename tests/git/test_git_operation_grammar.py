"""What of an operation that was captured elsewhere git may go on with: data; nothing that names a program, or a ref or path of others."""

from __future__ import annotations

import pytest

from gitckpt.git.worktree import grammar
from gitckpt.git.worktree.operation import INSTRUCTIONS

OID = b"1" * 40
HONEST = {
    "MERGE_HEAD": OID + b"\n" + OID + b"\n",
    "MERGE_MODE": b"no-ff",
    "MERGE_MSG": b"Merge\n\n# Conflicts:\n",
    "MERGE_RR": OID + b"\ta file/with space\0" + OID + b".1\tb\0",
    "CHERRY_PICK_HEAD": OID + b"\n",
    "BISECT_START": b"main\n",
    "BISECT_TERMS": b"bad\ngood\n",
    "BISECT_NAMES": b" 'a file' 'it'\\''s'\n",
    "BISECT_LOG": b"git bisect start\n# status: waiting\ngit bisect good 1\n",
    "refs/bisect/bad": OID + b"\n",
    INSTRUCTIONS: b"pick 1111111 one\nfixup -C 1111111 two\nlabel onto\nmerge -C 111 x # y\nbreak\nnoop\n\n# comment\nu refs/heads/x\n",
    "rebase-merge/git-rebase-todo.backup": b"reword 1111111 one\n",
    "rebase-merge/done": b"drop 1111111\nreset onto\n",
    "rebase-merge/head-name": b"refs/heads/topic/one\n",
    "rebase-merge/onto": OID + b"\n",
    "rebase-merge/msgnum": b"1\n",
    "rebase-merge/strategy": b"recursive\n",
    "rebase-merge/strategy_opts": b" --ours --find-renames=40% '--diff-algorithm=patience' --subtree=a/b",
    "rebase-merge/gpg_sign_opt": b"-Sme@example.org\n",
    "rebase-merge/author-script": b"GIT_AUTHOR_NAME='it'\\''s me'\nGIT_AUTHOR_EMAIL='a@b'\nGIT_AUTHOR_DATE='@1 +0000'\n",
    "rebase-merge/refs-to-delete": b"refs/rewritten/onto\n",
    "rebase-merge/interactive": b"",
    "rebase-merge/quiet": b"t\n",
    "rebase-apply/apply-opt": b" '--whitespace=fix' '-C3'\n",
    "rebase-apply/0001": b"From: me\n",
    "rebase-apply/head-name": b"detached HEAD\n",
    "rebase-apply/sign": b"t\n",
    "sequencer/head": OID + b"\n",
    "sequencer/todo": b"pick 1111111 one\nrevert 1111111 two\n",
    "sequencer/opts": b"[options]\n\tno-commit = true\n\tmainline = 1\n\tstrategy = ort\n\tstrategy-option = theirs\n\tgpg-sign = \n",
}
HOSTILE = {
    "rebase-merge/strategy": (b"x/evil\n", b"../../evil", b"ours evil", b"-x"),
    "rebase-apply/strategy": (b"evil",),
    "rebase-merge/strategy_opts": (b" --ours; touch x", b"--upload-pack=evil", b" --subtree=a b"),
    "rebase-merge/gpg_sign_opt": (b"-S--homedir=/tmp", b"--exec=x", b"-S/tmp/key", b"-Sa\n-x"),
    "rebase-merge/head-name": (b"refs/heads/../../x", b"refs/tags/v1", b"main", b"refs/heads/-x\nrefs/heads/y", b"HEAD"),
    "rebase-merge/refs-to-delete": (b"refs/heads/main\n", b"refs/rewritten/a\nrefs/heads/main\n", b"refs/rewritten/../heads/main"),
    "rebase-merge/author-script": (b"GIT_AUTHOR_NAME=$(touch x)\n", b"PATH='x'\n", b"GIT_AUTHOR_NAME='a'; touch x\n"),
    "rebase-merge/autostash": (b"refs/stash", b"--all"),
    "rebase-merge/onto": (b"main", b"--exec"),
    "rebase-merge/msgnum": (b"-1", b"9" * 30),
    "rebase-apply/apply-opt": (b" '--unsafe-paths'", b" '--directory=x' '--unsafe-paths'", b"--build-fake-ancestor=x"),
    "MERGE_HEAD": (b"main\n", b"--all\n"),
    "MERGE_MODE": (b"--exec\n",),
    "MERGE_RR": (OID + b"\t../../x\0", OID + b"\t/etc/passwd\0", OID + b"\t.git/config\0", OID + b"\ta/.GIT/hooks/x\0", b"../x\ta\0"),
    "BISECT_START": (b"--orphan\n", b"-f", b"a b"),
    "BISECT_TERMS": (b"bad\n../heads/main\n", b"bad\n", b"bad\n--x\n"),
    "BISECT_NAMES": (b" '--x'; touch y", b" $(touch x)"),
    "BISECT_LOG": (b"rm -rf x\n", b"git commit\n"),
    "sequencer/head": (b"main",),
}
UNKNOWN = (
    *("rebase-merge/evil", "rebase-merge/../hooks/x", "sequencer/done", "hooks/post-checkout", "config", "rebase-merge", "BISECT_RUN"),
    *("rebase-apply/0001/x", "rebase-merge/rewritten/x", "MERGE_HEAD/x", "../x", ""),
)


def test_what_git_writes_comes_back_as_it_is() -> None:
    assert grammar.permitted(HONEST, commands=True) == (HONEST, ())
    signing = "rebase-merge/gpg_sign_opt"
    found, left_out = grammar.permitted(HONEST, commands=False)
    assert found == {name: content for name, content in HONEST.items() if name != signing}
    assert left_out == ("the command to sign what is committed",)


def test_signing_with_the_key_of_whoever_goes_on_is_a_command() -> None:
    files = {"sequencer/opts": b"[options]\n\tgpg-sign = me@example.org\n\tedit = true\n"}
    assert grammar.permitted(files, commands=True) == (files, ())
    kept = {"sequencer/opts": b"[options]\n\tedit = true\n"}
    assert grammar.permitted(files, commands=False) == (kept, ("the command 'gpg-sign = me@example.org'",))


@pytest.mark.parametrize(("name", "content"), [(name, content) for name, contents in HOSTILE.items() for content in contents])
def test_what_git_would_not_have_written_is_left_out(name: str, content: bytes) -> None:
    found, left_out = grammar.permitted({name: content, "MERGE_MSG": b"x"}, commands=True)
    assert found == {"MERGE_MSG": b"x"}
    assert [said.partition(", which ")[0] for said in left_out] == [name]


@pytest.mark.parametrize("name", UNKNOWN)
def test_so_is_what_git_does_not_write(name: str) -> None:
    assert grammar.permitted({name: b""}, commands=True) == ({}, (f"{name!r}, which git does not write",))


@pytest.mark.parametrize(
    ("name", "line"),
    [
        *((INSTRUCTIONS, line) for line in (b"evil", b"execute x", b"update-ref refs/tags/x", b"pick", b"merge", b"e")),
        *(("sequencer/todo", line) for line in (b"exec make", b"x make", b"edit 1111111", b"label x")),
        *(("sequencer/opts", line) for line in (b"[include]", b"\tpath = /tmp/x", b"\tstrategy = x/evil", b"[core]")),
        *(("sequencer/opts", line) for line in (b"\teditor = touch x", b"\tstrategy-option = x", b"\tedit = $(x)", b"[options]x = y")),
    ],
)
def test_so_are_lines(name: str, line: bytes) -> None:
    first = b"[options]" if name.endswith("opts") else b"pick 1111111 one"
    found, left_out = grammar.permitted({name: first + b"\n" + line + b"\n# end\n"[: 0 if name.endswith("opts") else 99]}, commands=True)
    assert found == {name: first + (b"\n" if name.endswith("opts") else b"\n# end\n")}
    assert left_out == (f"a line of {name}: {line.strip().decode()!r}",)


@pytest.mark.parametrize("command", [b"exec make test", b"x touch y", b"  exec  a"])
def test_commands_come_only_where_they_may(command: bytes) -> None:
    lines = b"pick 1111111 one\n" + command + b"\npick 1111111 two\n"
    files = {INSTRUCTIONS: lines, "rebase-merge/git-rebase-todo.backup": lines, "rebase-merge/done": lines}
    told = command.split(None, 1)[1].decode()
    assert grammar.permitted(files, commands=True) == (files, ())
    assert grammar.commands_in(files) == [told]
    found, left_out = grammar.permitted(files, commands=False)
    assert set(found.values()) == {b"pick 1111111 one\npick 1111111 two\n"}
    assert (grammar.commands_in(found), left_out) == ([], (f"the command {told!r}",))


def test_what_is_told_is_short_and_one_line() -> None:
    _, left_out = grammar.permitted({"rebase-merge/strategy": b"x\n" * 900, "a\nb" * 90: b""}, commands=False)
    assert all(len(said) < 140 and "\n" not in said for said in left_out)
