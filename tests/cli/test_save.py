"""`git ckpt save`, `show` and `diff` record and print checkpoints."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gitckpt import CkptError, LockHeld, RefMoved
from tests import planted
from tests.cli.conftest import Ckpt, Outcome, document, normal, store_text
from tests.conftest import Checkout
from tests.planted import plant

Save = Callable[..., str]


def test_save_prints_the_id_and_tells_a_person_what_it_holds(
    ckpt: Ckpt, checkout: Checkout
) -> None:
    clean = ckpt("save", at=checkout)
    assert (clean.code, normal(clean.out), normal(clean.err)) == (
        0,
        "ID\n",
        "saved manual-complete with a clean worktree on commit SHORT\n",
    )
    checkout.write("README", "changed\n")
    dirty = ckpt("save", "--phase", "research", at=checkout)
    assert normal(dirty.err) == "saved research-complete with uncommitted changes on commit SHORT\n"
    without = ckpt("save", "--phase", "research-failed", "--no-worktree", at=checkout)
    assert normal(without.err) == "saved research-failed with no files on commit SHORT\n"
    assert set(checkout.refs("refs/checkpoints")) == {
        f"refs/checkpoints/{done.out.strip()}" for done in (clean, dirty, without)
    }
    assert set(checkout.refs("refs/ckpt/trees")) == {f"refs/ckpt/trees/{dirty.out.strip()}"}


@pytest.mark.long
@pytest.mark.parametrize("within", [False, True])
def test_save_counts_changed_submodules(
    ckpt: Ckpt, main_checkout: Checkout, make_checkout: Callable[..., Checkout], within: bool
) -> None:
    inner, outer = make_checkout("inner"), make_checkout("outer")
    for made in (inner, outer):
        made.commit("first", README="hello\n")
    local = ("-c", "protocol.file.allow=always")
    outer.git(*local, "submodule", "--quiet", "add", str(inner.path), "deep")
    outer.commit("deep")
    main_checkout.git(*local, "submodule", "--quiet", "add", str(outer.path), "lib")
    main_checkout.git(*local, "submodule", "--quiet", "update", "--init", "--recursive")
    main_checkout.commit("lib")
    clean = ckpt("save", at=main_checkout)
    assert " with a clean worktree on commit " in clean.err
    main_checkout.write("lib/deep/README" if within else "lib/README", "changed\n")
    done = ckpt("save", at=main_checkout)
    assert " with a clean worktree and 1 changed submodule on commit " in done.err
    main_checkout.write("README", "changed\n")
    done = ckpt("save", at=main_checkout)
    assert " with uncommitted changes and 1 changed submodule on commit " in done.err


@pytest.mark.parametrize("kind", ["fifo", "socket"])
def test_a_worktree_is_not_called_clean_of_which_something_is_not_captured(
    ckpt: Ckpt, main_checkout: Checkout, kind: str
) -> None:
    path = main_checkout.path / "README"
    path.unlink()
    if kind == "fifo":
        os.mkfifo(path)
    else:
        # The path of a socket has at most about 100 bytes, so use a relative one.
        with socket.socket(socket.AF_UNIX) as server, contextlib.chdir(path.parent):
            server.bind(path.name)
    done = ckpt("save", at=main_checkout)
    first, last = normal(done.err).splitlines()
    assert first == (
        f"warning: not captured: README: a {kind}; replaces a tracked file, whose staged "
        "content is in the checkpoint"
    )
    assert (
        last == "saved manual-complete with the files as committed (1 not captured) on commit SHORT"
    )
    again = ckpt("restore", done.out.strip(), at=main_checkout)
    assert (again.code, again.err.splitlines()[0]) == (
        14,
        "error: the restore would overwrite paths that are in no checkpoint: README",
    )
    path.unlink()
    assert (ckpt("restore", done.out.strip(), at=main_checkout).code, path.read_text()) == (
        0,
        "hello\n",
    )


def test_save_leaves_index_head_and_files_as_they_are(ckpt: Ckpt, checkout: Checkout) -> None:
    checkout.write("README", "staged\n")
    checkout.git("add", "README")
    checkout.write("README", "changed\n")
    checkout.write("new", "new\n")
    before = checkout.fingerprint()
    status = checkout.git("status", "--porcelain=v2")
    assert ckpt("save", at=checkout).code == 0
    after = checkout.fingerprint()
    assert {key: value for key, value in after.items() if key != "refs"} == {
        key: value for key, value in before.items() if key != "refs"
    }
    assert checkout.git("status", "--porcelain=v2") == status


def test_where_history_was_cut_off_a_gc_right_afterwards_takes_no_linked_commit(
    ckpt: Ckpt, save: Save, main_checkout: Checkout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commits are safe before the background maintenance begins."""
    begun: list[str] = []
    plant(monkeypatch, planted.HOOK_DETACH, lambda argv, _: begun.append(argv[-1]))
    for number in range(3):
        main_checkout.commit("another", number=f"{number}\n")
        save(main_checkout)
    main_checkout.write(".git/shallow", main_checkout.git("rev-parse", "HEAD") + "\n")
    main_checkout.write("README", "changed\n")
    save(main_checkout)
    assert begun == ["maintain"]
    main_checkout.git("reflog", "expire", "--expire=now", "--all")
    main_checkout.git("gc", "--quiet", "--prune=now")
    assert "nothing is wrong" in ckpt("verify", at=main_checkout).err


@pytest.mark.parametrize(
    "error", [RefMoved("refs/keep/ckpt/… has moved"), LockHeld("/packed-refs.lock")]
)
def test_maintenance_starts_in_a_shallow_clone_whose_keep_refs_are_blocked(
    ckpt: Ckpt,
    save: Save,
    main_checkout: Checkout,
    monkeypatch: pytest.MonkeyPatch,
    error: CkptError,
) -> None:
    """Maintenance repeats the failed work; without it, each save waits for the lock."""
    begun: list[str] = []
    plant(monkeypatch, planted.HOOK_DETACH, lambda argv, _: begun.append(argv[-1]))
    save(main_checkout)
    os.utime(main_checkout.path / ".git/ckpt/maintained", (0, 0))
    cut = main_checkout.write(".git/shallow", main_checkout.head() + "\n")
    os.utime(cut, (time.time() - 60,) * 2)

    def fail(_: object) -> None:
        raise error

    plant(monkeypatch, planted.SETTLE_REMOVALS, fail)
    told = f"warning: commits below a shallow boundary may not be kept yet: {error.message}\n"
    assert [told in ckpt("save", at=main_checkout).err for _ in range(2)] == [True, False]
    assert begun == ["maintain"]


@pytest.mark.parametrize("message", ["one\ntwo", "x" * 1001])
def test_a_message_that_is_too_long_or_of_several_lines_is_refused(
    ckpt: Ckpt, main_checkout: Checkout, message: str
) -> None:
    done = ckpt("save", "-m", message, at=main_checkout)
    assert (done.code, done.out) == (2, "")
    hint = "hint: shorten the message, and put the rest into the state"
    assert done.err == f"error: a message is one line of at most 1,000 characters\n{hint}\n"
    assert ckpt("list", at=main_checkout).out == ""


def test_a_message_of_a_thousand_characters_is_whole(
    ckpt: Ckpt, save: Save, main_checkout: Checkout
) -> None:
    save(main_checkout, "-m", f" {'x' * 1000}\n")
    assert json.loads(ckpt("show", "--json", at=main_checkout).out)["message"] == "x" * 1000


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "state.json",
            '{"a": {"b": [1, null, 1.5, true, "x"]}, "big": 123456789012345678901234567890}',
        ),
        ("state.toml", "a.b = [1, 2]\n"),
    ],
)
def test_a_state_comes_back_from_a_file(
    ckpt: Ckpt, checkout: Checkout, name: str, text: str
) -> None:
    (checkout.path.parent / name).write_text(text)
    assert ckpt("save", "--state", f"../{name}", at=checkout).code == 0
    done = ckpt("show", "--state", at=checkout)
    expected = json.loads(text) if name.endswith("json") else {"a": {"b": [1, 2]}}
    assert (done.code, json.loads(done.out), done.err) == (0, expected, "")


def test_an_integer_of_ten_thousand_digits_comes_back(
    ckpt: Ckpt, save: Save, main_checkout: Checkout
) -> None:
    text = '{"n": ' + "7" * 10_000 + "}"
    save(main_checkout, "--state", "-", stdin=text)
    assert ckpt("show", "--state", at=main_checkout).out == text.replace("{", "{\n  ").replace(
        "}", "\n}\n"
    )
    assert f'"n": {"7" * 10_000}' in ckpt("show", "--json", at=main_checkout).out


def test_show_is_a_page_for_a_person(ckpt: Ckpt, save: Save, checkout: Checkout) -> None:
    checkout.write("README", "hello\nworld\n")
    checkout.write("notes/todo.md", "later\n")
    save(
        checkout,
        "-m",
        "half way",
        "--phase",
        "research",
        "--state",
        "-",
        stdin='{"step": 3, "owner": null, "plan": {"next": ["a", null]}}',
    )
    done = ckpt("show", at=checkout)
    assert (done.code, done.err) == (0, "")
    assert normal(done.out) == (
        "checkpoint:  ID\n"
        "phase:       research-complete\n"
        "time:        TIME\n"
        "commit:      OID\n"
        f"branch:      {checkout.git('branch', '--show-current')}\n"
        "trigger:     manual\n"
        "message:     half way\n"
        "files:       differ from the commit\n"
        "     README        | 1 +\n"
        "     notes/todo.md | 1 +\n"
        "     2 files changed, 2 insertions(+)\n"
        "\n"
        "state:\n"
        "    step = 3\n"
        '    owner = "null"\n'
        "\n"
        "    [state.plan]\n"
        '    next = ["a", "null"]\n'
        "    # /owner is null\n"
        "    # /plan/next/1 is null\n"
    )


def test_show_of_clean_and_uncaptured_files(
    ckpt: Ckpt, save: Save, main_checkout: Checkout
) -> None:
    save(main_checkout)
    assert ckpt("show", at=main_checkout).out.splitlines()[-1] == "files:       as committed"
    save(main_checkout, "--no-worktree")
    assert (
        ckpt("show", at=main_checkout).out.splitlines()[-1]
        == "files:       those of the commit; other changes were not captured"
    )


def test_show_of_a_commit_that_the_hook_recorded(
    ckpt: Ckpt, main_checkout: Checkout, git_ckpt: Path
) -> None:
    assert ckpt("init", at=main_checkout).code == 0
    main_checkout.commit("by the hook", a="a\n")
    line = "files:       those of the commit; a hook records no other changes\n"
    assert ckpt("show", at=main_checkout).out.endswith(line)


def test_show_fits_80_columns_and_shows_names_as_they_are(
    ckpt: Ckpt, save: Save, main_checkout: Checkout
) -> None:
    main_checkout.write("/".join(["directory"] * 12), "new\n")
    main_checkout.write("café", "new\n")
    main_checkout.write("tab\there", "new\n")
    save(main_checkout)
    lines = ckpt("show", at=main_checkout).out.splitlines()
    assert max(map(len, lines)) <= 80
    names = [line.split("|")[0].strip() for line in lines if "|" in line]
    assert names == ["café", ".../" + "/".join(["directory"] * 6), '"tab\\there"']


def test_show_of_progress_errors_and_keys_of_a_later_version(
    ckpt: Ckpt, main_checkout: Checkout
) -> None:
    text = document(errors='["first", "second"]', agent='"planner"', colour='"blue"').replace(
        "\n[state]",
        (
            '\n[progress]\ncurrent_phase = 2\ntotal_phases = 5\ncurrent_task = "design"\n'
            "tasks_completed = 5\ntasks_total = 35\n[state]"
        ),
    )
    store_text(main_checkout, "refs/checkpoints/11111111-1111-4111-8111-111111111111", text)
    done = ckpt("show", "1111", at=main_checkout)
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines()[3:] == [
        "commit:      none yet",
        "branch:      detached",
        "trigger:     manual",
        "agent:       planner",
        "progress:    phase 2 of 5, 5 of 35 tasks, design",
        "error:       first",
        "error:       second",
        "files:       those of the commit; other changes were not captured",
    ]
    assert json.loads(ckpt("show", "1111", "--json", at=main_checkout).out)["colour"] == "blue"


def test_raw_is_the_blob_byte_for_byte(ckpt: Ckpt, save: Save, checkout: Checkout) -> None:
    made = save(checkout, "--state", "-", stdin='{"a": "ünï"}')
    done = ckpt("show", made, "--raw", at=checkout)
    assert done == Outcome(
        0, checkout.git("cat-file", "blob", f"refs/checkpoints/{made}") + "\n", ""
    )


def test_ways_to_name_a_checkpoint(ckpt: Ckpt, save: Save, checkout: Checkout) -> None:
    first = save(checkout)
    checkout.commit("second")
    second = save(checkout)
    for name, meant in (
        (first, first),
        (first[:13], first),
        (first.upper(), first),
        ("latest", second),
        ("HEAD~1", first),
        ("HEAD", second),
    ):
        assert json.loads(ckpt("show", name, "--json", at=checkout).out)["id"] == meant, name
    assert json.loads(ckpt("show", "--json", at=checkout).out)["id"] == second


@pytest.mark.long
def test_diff_of_files_is_gits_own(ckpt: Ckpt, save: Save, checkout: Checkout) -> None:
    one = save(checkout)
    checkout.write("README", "goodbye\n")
    checkout.write("sub/new file", "new\n")
    two = save(checkout)
    trees = "HEAD^{tree}", f"refs/ckpt/trees/{two}:files"
    assert ckpt("diff", one, two, at=checkout) == Outcome(
        0, checkout.git("diff", *trees) + "\n", ""
    )
    assert ckpt("diff", "--stat", one, two, at=checkout) == Outcome(
        0, checkout.git("diff", "--stat", *trees) + "\n", ""
    )
    assert ckpt("diff", one, at=checkout) == Outcome(0, checkout.git("diff", *trees) + "\n", "")
    assert ckpt("diff", two, at=checkout) == Outcome(0, "", "")
    only = checkout.git("diff", *trees, "--", "sub") + "\n"
    assert ckpt("diff", one, two, "--", "sub", at=checkout) == Outcome(0, only, "")
    assert ckpt("diff", one, "--", "new file", at=checkout.path / "sub") == Outcome(0, only, "")
    for ids, other in (
        ((one, two), f"in checkpoint {two[:8]}"),
        ((one,), "among the captured files here"),
    ):
        for paths, named in (
            (["nofile"], "nofile"),
            (["sub", "no*e"], "no*e"),
            (["sub/"], None),
            ([":/sub"], None),
        ):
            done = ckpt("diff", *ids, "--", *paths, at=checkout)
            assert done.code == (12 if named else 0)
            assert done.err.startswith(
                f"error: no file in checkpoint {one[:8]} or {other} matches {named}\nhint: "
                if named
                else ""
            )
    unchanged = checkout.git("ls-files").splitlines()[0]
    assert ckpt("diff", two, "--", unchanged, at=checkout) == Outcome(0, "", "")


def test_diff_of_states_is_readable(ckpt: Ckpt, save: Save, checkout: Checkout) -> None:
    text = "\n".join(f"line {i} of a long text" for i in range(8))
    old = {"gone": 1, "kept": [1, 2], "n": None, "s": "a", "deep": {"x": {"y": True}}, "text": text}
    new = {
        "kept": [1, 3, {"k": None}],
        "n": "null",
        "s": "b\x1b[31m",
        "deep": {"x": {"y": False}},
        "text": text.replace("line 4", "LINE 4"),
    }
    one = save(checkout, "--state", "-", stdin=json.dumps(old))
    two = save(checkout, "--state", "-", stdin=json.dumps(new))
    expected = (
        f"state {one[:8]}..{two[:8]}\n"
        "~ /kept/1: 2 -> 3\n"
        '+ /kept/2 = {"k": null}\n'
        '~ /n: null -> "null"\n'
        '~ /s: "a" -> "b\\u001b[31m"\n'
        "~ /deep/x/y: true -> false\n"
        "~ /text:\n"
        "    @@ -3,5 +3,5 @@\n"
        "     line 2 of a long text\n"
        "     line 3 of a long text\n"
        "    -line 4 of a long text\n"
        "    +LINE 4 of a long text\n"
        "     line 5 of a long text\n"
        "     line 6 of a long text\n"
        "- /gone = 1\n"
    )
    assert ckpt("diff", one, two, at=checkout) == Outcome(0, expected, "")
    assert ckpt("diff", "--state", one, two, at=checkout) == Outcome(0, expected, "")
    assert ckpt("diff", "--state", one, one, at=checkout) == Outcome(0, "", "")
    assert ckpt("diff", "--stat", one, two, at=checkout) == Outcome(0, "", "")


def test_diff_shows_what_json_lacks(ckpt: Ckpt, main_checkout: Checkout) -> None:
    for digit, state in (("1", "v = 1979-05-27\n"), ("2", 'v = "AAE="\n')):
        name = "11111111-1111-4111-8111-111111111111".replace("1", digit, 8)
        text = (
            document(id=f'"{name}"', types='{ "/v" = "bytes" }' if digit == "2" else None) + state
        )
        store_text(main_checkout, f"refs/checkpoints/{name}", text)
    assert ckpt("diff", "1111", "2222", at=main_checkout) == Outcome(
        0, "state 11111111..22222222\n~ /v: 1979-05-27 -> base64 AAE=\n", ""
    )


def test_a_path_without_dashes_is_pointed_out(
    ckpt: Ckpt, save: Save, main_checkout: Checkout
) -> None:
    save(main_checkout)
    assert ckpt("diff", "latest", "README", at=main_checkout) == Outcome(
        12,
        "",
        (
            "error: no checkpoint, run or commit is named 'README'\n"
            "hint: write paths after two dashes: git ckpt diff ID -- PATH\n"
        ),
    )


def test_remove_names_the_worktree_that_stays(ckpt: Ckpt, save: Save, checkout: Checkout) -> None:
    made = save(checkout)
    path = ckpt("resume", made, at=checkout).out.strip()
    said = (
        f"the worktree of {made[:8]} stays; to remove it: git worktree remove --force "
        f"--force {path}\n"
    )
    assert ckpt("remove", made, at=checkout) == Outcome(0, f"{made}\n", said)
    checkout.git("worktree", "remove", "--force", "--force", path)
    assert ckpt("verify", at=checkout).code == 0


def test_remove_prints_what_is_gone(ckpt: Ckpt, save: Save, checkout: Checkout) -> None:
    checkout.write("README", "dirty\n")
    one, two, three = (save(checkout) for _ in range(3))
    assert ckpt("remove", one[:12], three, one, at=checkout) == Outcome(0, f"{one}\n{three}\n", "")
    assert list(checkout.refs("refs/checkpoints", "refs/ckpt")) == [
        f"refs/checkpoints/{two}",
        f"refs/ckpt/trees/{two}",
    ]
    before = checkout.fingerprint()
    done = ckpt("remove", two, one, at=checkout)
    assert (done.code, done.out) == (12, "")
    assert checkout.fingerprint() == before


@pytest.mark.long
def test_expire_says_what_and_why(
    ckpt: Ckpt, checkout: Checkout, git_ckpt: Path, save: Save
) -> None:
    assert git_ckpt.exists()
    checkout.git("ckpt", "-q", "init", "--hooks", "files")
    for number in range(3):
        checkout.commit(f"commit {number}")
    manual = save(checkout)
    hooks = [line.split("\t")[0] for line in ckpt("list", at=checkout).out.splitlines()[1:]]
    assert len(hooks) == 3
    assert ckpt("expire", at=checkout) == Outcome(0, "", "0 of 4 checkpoints expired\n")
    before = checkout.fingerprint()
    dry = ckpt("expire", "--keep-last", "1", "--older-than", "0s", "--dry-run", at=checkout)
    assert dry == Outcome(
        0,
        "".join(
            f"expires\t{id_}\tcommit-complete\t{_age(dry.out, id_)} old, limit 0s\n"
            for id_ in hooks[1:]
        ),
        "2 of 4 checkpoints would expire\n",
    )
    assert checkout.fingerprint() == before
    done = ckpt("expire", "--keep-last", "1", "--older-than", "0s", at=checkout)
    assert (done.code, done.err) == (0, "2 of 4 checkpoints expired\n")
    assert [line.split("\t")[:2] for line in done.out.splitlines()] == [
        ["expired", id_] for id_ in hooks[1:]
    ]
    assert set(checkout.refs("refs/checkpoints")) == {
        f"refs/checkpoints/{id_}" for id_ in (manual, hooks[0])
    }
    everything = ckpt("expire", "--all", "--older-than", "0s", "--keep-last", "0", at=checkout)
    assert (everything.code, everything.err) == (0, "2 of 2 checkpoints expired\n")
    assert checkout.refs("refs/checkpoints", "refs/ckpt") == {}


def test_who_saves_is_told_and_what_an_agent_saves_is_thinned(
    ckpt: Ckpt, main_checkout: Checkout
) -> None:
    saved = []
    for number in range(3):
        main_checkout.write("work", f"{number}\n")
        saved.append(ckpt("save", "--agent", " claude\ncode", at=main_checkout).out.strip())
    assert "agent:       claude code\n" in ckpt("show", at=main_checkout).out
    for name in ("hourlyAfter", "dailyAfter"):
        main_checkout.git("config", f"ckpt.{name}", "0s")
    main_checkout.git("config", "ckpt.keepLast", "0")
    done = ckpt("expire", at=main_checkout)
    assert (done.code, done.err) == (0, "2 of 3 checkpoints expired\n")
    assert re.sub(r"[0-9]+s old", "0s old", done.out) == "".join(
        f"expired\t{each}\tmanual-complete\t0s old, one a day stays\n"
        for each in reversed(saved[:2])
    )
    said = "error: --agent is empty\nhint: name the agent: git ckpt save --agent NAME\n"
    assert ckpt("save", "--agent", " ", at=main_checkout) == Outcome(2, "", said)


def _age(text: str, id_: str) -> str:
    """Return the age in a printed line; the clock is real."""
    return text.partition(f"{id_}\tcommit-complete\t")[2].partition(" old")[0]


def test_what_git_would_write_otherwise_is_told(ckpt: Ckpt, main_checkout: Checkout) -> None:
    for name, command in (("clean", "sed /^out/d"), ("smudge", "cat")):
        main_checkout.git("config", f"filter.strip.{name}", command)
    main_checkout.commit(
        "notebooks",
        **{
            ".gitattributes": "*.nb filter=strip\n",
            "a.nb": "source\nout\n",
            "id_rsa.nb": "source\nout\n",
        },
    )
    saved = ckpt("save", at=main_checkout)
    assert (
        saved.err.splitlines()[0]
        == "warning: a restore will not reproduce these files byte for byte: id_rsa.nb"
    )
    assert ckpt("show", at=main_checkout).out.splitlines()[-3:] == [
        "files:       as committed",
        "    stored byte for byte: a.nb",
        "    not restored byte for byte: id_rsa.nb",
    ]
    main_checkout.write("id_rsa.nb", "something else\n")
    done = ckpt("restore", saved.out.strip(), "--dry-run", at=main_checkout)
    assert done.out == "change  id_rsa.nb\n"
    assert (
        done.err.splitlines()[0]
        == "warning: not restored byte for byte, as git converts these files: id_rsa.nb"
    )


def test_of_many_files_a_few_are_named(ckpt: Ckpt, main_checkout: Checkout) -> None:
    main_checkout.git("config", "filter.own.clean", "cat")
    main_checkout.git("config", "filter.own.required", "true")
    main_checkout.commit("attributes", **{".gitattributes": "*.txt text=auto filter=own\n"})
    token = "ghp_" + "aB3dE6gH9jK2mN5pQ8rS1tU4vW7xY0zA2bC4"
    for number in range(10, 22):
        (main_checkout.path / f"{number}.txt").write_bytes(b"1\r\n")
        main_checkout.write(f"{number}.pem", "")
        main_checkout.write(f"{number}.py", f"x = '{token}'\n")
    os.mkfifo(main_checkout.path / "10.fifo")
    done = ckpt("save", at=main_checkout)
    assert normal(done.err).splitlines() == [
        "warning: not captured: 10.fifo: a fifo",
        (
            "warning: not captured: 10.pem, 11.pem, 12.pem and 9 more: its name looks like a "
            "secret (*.pem)"
        ),
        (
            "warning: a restore will not reproduce these files byte for byte: 10.txt, 11.txt, "
            "12.txt and 9 more"
        ),
        *(
            f"warning: captured a possible secret: {number}.py:1 (github-pat)"
            for number in (10, 11, 12)
        ),
        "warning: captured possible secrets in 9 more files",
        "if this file contains no secret: git ckpt allow --secret 10.py",
        "to list all of these files: git ckpt show SHORT",
        "saved manual-complete with uncommitted changes (13 not captured) on commit SHORT",
    ]
    shown = ckpt("show", at=main_checkout).out
    assert [
        shown.count(f"{number}.{kind}") for number in range(10, 22) for kind in ("txt", "pem", "py")
    ] == [2, 1, 2] * 12


def test_a_file_that_looks_like_a_secret_inside_is_captured_and_warned_of(
    ckpt: Ckpt, main_checkout: Checkout
) -> None:
    token = "ghp_" + "aB3dE6gH9jK2mN5pQ8rS1tU4vW7xY0zA2bC4"
    main_checkout.write("a.py", f"x = '{token}'\ny = '{token}'\n")
    done = ckpt("save", at=main_checkout)
    assert done.code == 0
    settling = "if this file contains no secret: git ckpt allow --secret a.py\n"
    assert (
        f"warning: captured a possible secret: a.py:1 (github-pat) and 1 more\n{settling}"
        in done.err
    )
    shown = ckpt("show", at=main_checkout).out
    assert "    looks like a secret: a.py:2 (github-pat, " in shown
    assert token not in done.err + shown
    for said in (
        "a.py is declared no secret on this machine now\n",
        "a.py was declared no secret before\n",
    ):
        assert ckpt("allow", "--secret", "a.py", at=main_checkout) == Outcome(0, "", said)
    main_checkout.write("b.py", "x\n")
    again = ckpt("save", at=main_checkout)
    assert (again.code, "secret" in again.err) == (0, False)
    assert "secret" not in ckpt("show", at=main_checkout).out
    assert ckpt("allow", "--secret", "a.py", "--forget", at=main_checkout).code == 2
    assert ckpt("allow", "--secret", "", at=main_checkout).code == 2
    slip = ckpt("allow", "--secret", "a.pi", at=main_checkout)
    assert (slip.code, slip.err.splitlines()[0]) == (2, "error: there is no file 'a.pi'")
    assert ckpt("allow", "--secret", "0123456789abcdef", at=main_checkout).code == 0
