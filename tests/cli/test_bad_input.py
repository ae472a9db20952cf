"""A command that must fail says why and how to fix it, and changes nothing.

Each failure has its exit code.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from gitckpt import Store
from tests.cli.conftest import Ckpt, Outcome, document, normal, store_text
from tests.conftest import Checkout, git_program

Save = Callable[..., str]
NAME = "11111111-1111-4111-8111-111111111111"
REF = f"refs/checkpoints/{NAME}"
LIST = "list the checkpoints: git ckpt list"
NEEDS_REPOSITORY = (
    *(
        ["init"],
        ["uninit"],
        ["save"],
        ["list"],
        ["show"],
        ["diff", "latest"],
        ["resume"],
        ["remove", "abcd"],
        ["expire"],
        ["doctor"],
    ),
    ["verify"],
    ["du"],
    ["list", "--json"],
)


@pytest.mark.parametrize("args", NEEDS_REPOSITORY)
def test_outside_a_repository_is_10(ckpt: Ckpt, tmp_path: Path, args: list[str]) -> None:
    expected = (
        f"error: not in a git repository: {tmp_path}\n"
        "hint: change to a repository, or create one: git init\n"
    )
    assert ckpt(*args, at=tmp_path) == Outcome(10, "", expected)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("args", NEEDS_REPOSITORY)
def test_a_repository_of_somebody_else_is_10_with_gits_own_cure(
    ckpt: Ckpt, main_checkout: Checkout, monkeypatch: pytest.MonkeyPatch, args: list[str]
) -> None:
    before = main_checkout.fingerprint()
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    done = ckpt(*args, at=main_checkout)
    monkeypatch.delenv("GIT_TEST_ASSUME_DIFFERENT_OWNER")
    where = main_checkout.path
    assert done == Outcome(
        10,
        "",
        f"error: git refuses the repository at {where}: detected dubious ownership in repository "
        f"at '{where}'\n"
        f"hint: git config --global --add safe.directory {where}\n",
    )
    assert main_checkout.fingerprint() == before


@pytest.mark.parametrize("args", NEEDS_REPOSITORY)
def test_too_old_a_git_is_10(
    ckpt: Ckpt,
    main_checkout: Checkout,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    args: list[str],
) -> None:
    before = main_checkout.fingerprint()
    fake = tmp_path / "old git"
    real = shutil.which(git_program())
    fake.write_text(
        "#!/bin/sh\n"
        f'for each; do [ "$each" = version ] && {{ echo git version 2.20.1; exit; }}; done\n'
        f'exec "{real}" "$@"\n'
    )
    fake.chmod(0o755)
    monkeypatch.setenv("GITCKPT_GIT", str(fake))
    done = ckpt(*args, at=main_checkout)
    monkeypatch.delenv("GITCKPT_GIT")
    if args == ["uninit"]:
        assert done == Outcome(0, "not initialized; nothing changed\n", "")
    else:
        expected = (
            "error: git version 2.20.1 is too old\n"
            "hint: install git 2.39 or newer, or set GITCKPT_GIT to the path of a newer one\n"
        )
        assert done == Outcome(10, "", expected)
    assert main_checkout.fingerprint() == before


def killed_at(directory: Path, word: str) -> str:
    """Return a git that is killed at its first call with a word as an argument."""
    real, once, git = shutil.which(git_program()), directory / "killed", directory / "git"
    once.touch()
    git.write_text(
        "#!/bin/sh\n"
        f'case " $* " in *" {word} "*) rm "{once}" 2>/dev/null && kill -9 $$;; esac\n'
        f'exec "{real}" "$@"\n'
    )
    git.chmod(0o755)
    return str(git)


def test_a_git_that_is_killed_is_not_called_too_old(
    ckpt: Ckpt, main_checkout: Checkout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITCKPT_GIT", killed_at(tmp_path, "version"))
    expected = "error: git version was killed by signal 9\nhint: run the command again\n"
    assert ckpt("list", at=main_checkout) == Outcome(10, "", expected)


@pytest.mark.parametrize("args", [["remove"], ["export", "--format", "rlm-act", "-o", "out.json"]])
def test_a_run_is_not_taken_for_its_newest_checkpoint_where_git_is_killed(
    ckpt: Ckpt,
    main_checkout: Checkout,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    args: list[str],
) -> None:
    with Store.open(main_checkout.path) as store:
        run = str(store.record("research-complete", {}, start="work").run)
        store.record("run-complete", {}, run=run)
    (main_checkout.path / ".git/ckpt/index.sqlite").unlink(missing_ok=True)  # else git is not asked
    before = main_checkout.fingerprint()
    monkeypatch.setenv("GITCKPT_GIT", killed_at(tmp_path, "refs/checkpoints"))
    done = ckpt(args[0], run, *args[1:], at=main_checkout)
    monkeypatch.delenv("GITCKPT_GIT")
    assert (done.code, done.out) == (1, ""), done
    assert "hint: " in done.err
    assert main_checkout.fingerprint() == before
    assert not (main_checkout.path / "out.json").exists()


def test_a_git_that_is_not_there_is_1(
    ckpt: Ckpt, main_checkout: Checkout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITCKPT_GIT", "/nowhere/git")
    expected = (
        "error: cannot start /nowhere/git: No such file or directory\n"
        "hint: install /nowhere/git, or put it on PATH\n"
    )
    assert ckpt("list", at=main_checkout) == Outcome(1, "", expected)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("command", [["show"], ["diff"], ["resume"], ["remove"]])
@pytest.mark.parametrize(
    ("text", "code", "error", "hint"),
    [
        ("", 2, "the id is empty", LIST),
        (" ", 2, "the id is empty", LIST),
        ("nothing", 12, "no checkpoint, run or commit is named 'nothing'", LIST),
        (
            "ab",
            12,
            "no checkpoint, run or commit is named 'ab'",
            f"give at least 4 characters of an id, or {LIST}",
        ),
        ("latets", 12, "no checkpoint, run or commit is named 'latets'", "did you mean latest?"),
        ("a\x1b[31mb", 12, r"no checkpoint, run or commit is named 'a\x1b[31mb'", LIST),
        ("HEAD", 12, "no checkpoint is linked to commit SHORT (HEAD)", LIST),
        ("HEAD~7", 12, "no checkpoint, run or commit is named 'HEAD~7'", LIST),
        ("--end-of-options", 2, None, None),
    ],
)
def test_an_id_that_means_nothing(
    ckpt: Ckpt,
    checkout: Checkout,
    command: list[str],
    text: str,
    code: int,
    error: str | None,
    hint: str | None,
) -> None:
    store_text(checkout, REF, document())
    before = checkout.fingerprint()
    done = ckpt(*command, text, at=checkout)
    assert (done.code, done.out) == (code, "")
    if error is not None:
        assert normal(done.err) == f"error: {error}\nhint: {hint}\n"
    assert checkout.fingerprint() == before


@pytest.mark.parametrize("command", [["show"], ["diff"], ["resume"], ["remove"]])
def test_an_ambiguous_id_is_12_and_lists_the_candidates(
    ckpt: Ckpt, checkout: Checkout, command: list[str]
) -> None:
    other = f"11112222{NAME[8:]}"
    store_text(checkout, REF, document())
    store_text(checkout, f"refs/checkpoints/{other}", document(id=f'"{other}"'))
    before = checkout.fingerprint()
    done = ckpt(*command, "1111", at=checkout)
    lines = done.err.splitlines()
    assert (done.code, done.out, lines[0]) == (12, "", "error: 2 ids begin with '1111'")
    assert [line.split()[0] for line in lines[1:]] == [NAME, other, "hint:"]
    assert checkout.fingerprint() == before
    assert ckpt("show", "11111", at=checkout).code == 0


def test_nothing_there_yet_is_12(ckpt: Ckpt, main_checkout: Checkout) -> None:
    for words in (["show"], ["resume", "latest"]):
        assert ckpt(*words, at=main_checkout) == Outcome(
            12, "", "error: there are no checkpoints yet\nhint: save a checkpoint: git ckpt save\n"
        )


BAD_REFS: dict[str, tuple[str | bytes, str | None, str | None]] = {
    "a commit": ("HEAD", "points to a commit, not to a blob", None),
    "a tree": ("HEAD^{tree}", "points to a tree, not to a blob", None),
    "a missing object": (
        "1234567890123456789012345678901234567890",
        "the object OID is missing",
        "find the cause: git ckpt verify",
    ),
    "not UTF-8": (b"a = \xff\n", "not UTF-8 (byte 4)", None),
    "a binary": (b"\0\1\2", "not TOML: Invalid statement (at line 1, column 1)", None),
    "a newer version": (
        document(version="2", state='"of tomorrow"').removesuffix("\n[state]\n").encode(),
        "version: written by a newer gitckpt (document version 2)",
        "upgrade gitckpt: pip install -U gitckpt",
    ),
    "a wrong version": (
        document(version='"1"').encode(),
        "version: must be an integer, not '1'",
        None,
    ),
    "another id": (document(id='"22222222-2222-4222-8222-222222222222"').encode(), None, None),
    "no phase": (document(phase=None).encode(), "phase: missing", None),
    "an evil time": (document(timestamp='"a\\u001b[31m\\nb"').encode(), None, None),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("case", BAD_REFS)
def test_a_ref_that_is_no_checkpoint_is_13_and_names_ref_and_field(
    ckpt: Ckpt, checkout: Checkout, case: str
) -> None:
    target, problem, hint = BAD_REFS[case]
    if isinstance(target, bytes):
        store_text(checkout, REF, target)
    elif target.startswith("HEAD"):
        checkout.git("update-ref", REF, target)
    else:
        (checkout.main / ".git" / REF).parent.mkdir()
        (checkout.main / ".git" / REF).write_text(f"{target}\n")
    before = checkout.fingerprint()
    for command in (["show"], ["show", "--json"], ["show", "--state"], ["diff"], ["resume"]):
        done = ckpt(*command, NAME, at=checkout)
        assert (done.code, done.out) == (13, ""), command
        assert done.err.startswith(f"error: {REF}: ")
        assert "\x1b" not in done.err
        if problem is not None:
            assert normal(done.err) == f"error: refs/checkpoints/ID: {problem}\n" + (
                f"hint: {hint}\n" if hint else ""
            )
        assert checkout.fingerprint() == before, command
    listed = ckpt("list", at=checkout)
    assert (listed.code, listed.out, listed.err.count("\n")) == (0, "", 2)
    assert (
        "no checkpoints yet" in listed.err
        or "no checkpoint can be read; to see why: git ckpt verify\n" in listed.err
    )
    assert f"warning: not a valid checkpoint: {REF}: " in listed.err
    assert checkout.fingerprint() == before
    assert ckpt("remove", NAME, at=checkout) == Outcome(0, f"{NAME}\n", "")
    assert checkout.refs(REF) == {}


def forget(checkout: Checkout, oid: str) -> None:
    """Delete a loose object."""
    (checkout.main / ".git/objects" / oid[:2] / oid[2:]).unlink()


@pytest.fixture
def commit_gone(main_checkout: Checkout, save: Save) -> tuple[Checkout, str, str]:
    """Save a checkpoint, delete its commit, and return the ids of both."""
    gone = main_checkout.commit("gone", README="gone\n")
    main_checkout.write("README", "dirty\n")
    made = save(main_checkout)
    main_checkout.git("reset", "--quiet", "--hard", "HEAD~1")
    main_checkout.git("update-ref", "-d", f"refs/keep/ckpt/{gone}")
    forget(main_checkout, gone)
    return main_checkout, made, gone


def test_a_missing_commit_is_14_where_it_stands_for_the_files(
    ckpt: Ckpt, save: Save, commit_gone: tuple[Checkout, str, str]
) -> None:
    checkout, _, _ = commit_gone
    gone = checkout.commit("gone as well")
    made = save(checkout, "--no-worktree")
    checkout.git("reset", "--quiet", "--hard", "HEAD~1")
    checkout.git("update-ref", "-d", f"refs/keep/ckpt/{gone}")
    forget(checkout, gone)
    expected = Outcome(
        14,
        "",
        f"error: commit {gone} of checkpoint {made} is missing\n"
        "hint: fetch the commit from a clone that has it, or find the cause: git ckpt verify\n",
    )
    assert ckpt("resume", made, at=checkout) == expected
    assert not (checkout.path / ".ckpt").exists()


def test_files_come_back_without_their_commit(
    ckpt: Ckpt, commit_gone: tuple[Checkout, str, str]
) -> None:
    checkout, made, gone = commit_gone
    before = checkout.fingerprint()
    done = ckpt("show", made, at=checkout)
    assert done.code == 0
    assert done.out.splitlines()[-1] == "files:       differ from the commit"
    assert done.err == (
        f"warning: {gone}^{{tree}} is missing: the files of the checkpoint can be "
        "restored without this object\n"
    )
    assert ckpt("list", at=checkout).out.split("\t")[6] == "-"
    assert checkout.fingerprint() == before
    done = ckpt("resume", made, at=checkout)
    assert done.code == 0, done.err
    assert f"commit {gone[:10]} is gone" in done.err
    assert (Path(done.out.strip()) / "README").read_text() == "dirty\n"


def test_files_that_are_missing_are_14(ckpt: Ckpt, main_checkout: Checkout, save: Save) -> None:
    main_checkout.write("README", "dirty\n")
    made = save(main_checkout)
    tree = main_checkout.git("rev-parse", f"refs/ckpt/trees/{made}")
    main_checkout.git("update-ref", "-d", f"refs/ckpt/trees/{made}")
    forget(main_checkout, tree)
    before = main_checkout.fingerprint()
    assert ckpt("resume", made, at=main_checkout) == Outcome(
        14,
        "",
        (
            f"error: the files {tree} of checkpoint {made} are missing\n"
            "hint: find the cause: git ckpt verify\n"
        ),
    )
    missing = Outcome(
        14, "", f"error: {tree}:files is missing\nhint: find the cause: git ckpt verify\n"
    )
    assert ckpt("diff", made, at=main_checkout) == missing
    assert main_checkout.fingerprint() == before


@pytest.mark.parametrize(
    "what",
    [
        "a directory",
        "an empty directory",
        "a file",
        "a dangling link",
        "a repository",
        "a foreign worktree",
    ],
)
def test_a_place_that_is_taken_is_14_and_stays_as_it_is(
    ckpt: Ckpt,
    checkout: Checkout,
    save: Save,
    tmp_path: Path,
    what: str,
    make_checkout: Callable[..., Checkout],
) -> None:
    made = save(checkout)
    place = tmp_path / "place"
    if what == "a file":
        place.write_text("mine")
    elif what == "a dangling link":
        place.symlink_to("nowhere")
    elif what == "a repository":
        make_checkout("place").commit("theirs", mine="mine")
    elif what == "a foreign worktree":
        checkout.git("worktree", "add", "--quiet", "--detach", str(place))
    else:
        place.mkdir()
        if what == "a directory":
            (place / "mine").write_text("mine")
    before = checkout.fingerprint()
    there = sorted(place.rglob("*"))
    done = ckpt("resume", made, "--into", str(place), at=checkout)
    assert done == Outcome(
        14,
        "",
        f"error: {place} exists and is not the worktree of {made}\n"
        "hint: move that away, or choose another directory: git ckpt resume ID --into DIR\n",
    )
    assert checkout.fingerprint() == before
    assert sorted(place.rglob("*")) == there


STATES: list[tuple[str, bytes | None, int, str]] = [
    ("s.json", None, 2, "cannot read the state s.json: No such file or directory"),
    ("s.json", b"{", 2, "s.json is not JSON: "),
    ("s.json", b"", 2, "s.json is not JSON: "),
    ("s.json", b"\xff\xfe\xff", 2, "s.json is not JSON: "),
    ("s.json", b'{"a": ' + b"[" * 100_000, 2, "s.json is not JSON: "),
    ("s.json", b"[1]", 2, "s.json holds list, not a map"),
    ("s.json", b'"text"', 2, "s.json holds str, not a map"),
    ("s.json", b"null", 2, "s.json holds NoneType, not a map"),
    ("s.toml", b"a = ", 2, "s.toml is not TOML: "),
    ("s.toml", b'a = "\xff"', 2, "s.toml is not TOML: "),
    (
        "s.json",
        b'{"a": {"b/c": ["\\ud800"]}}',
        13,
        "/a/b~1c/0: holds a lone surrogate (U+D800), which UTF-8 cannot encode",
    ),
    (
        "s.json",
        b'{"\\udfff": 1}',
        13,
        "/\\udfff: holds a lone surrogate (U+DFFF), which UTF-8 cannot encode",
    ),
    ("s.json", b'{"a": ' * 250 + b"1" + b"}" * 250, 13, "/a"),
]


@pytest.mark.parametrize(
    ("name", "data", "code", "error", "from_stdin"),
    [(*state, False) for state in STATES]
    + [(*state, True) for state in STATES if state[1] is not None and state[0].endswith("json")],
)
def test_a_state_that_is_none(
    ckpt: Ckpt,
    checkout: Checkout,
    name: str,
    data: bytes | None,
    code: int,
    error: str,
    from_stdin: bool,
    tmp_path: Path,
) -> None:
    if data is not None:
        checkout.write(name, data)
    before = checkout.fingerprint()
    done = ckpt("save", "--state", "-" if from_stdin else name, at=checkout, stdin=data)
    assert (done.code, done.out) == (code, "")
    assert done.err.startswith(
        "error: " + (error.replace(name, "standard input") if from_stdin else error)
    )
    assert checkout.fingerprint() == before


SETTINGS = [
    (
        "[retention]\nnewest = 1\n",
        "2: unknown key 'newest' in [retention]",
        (
            "known keys: older_than, keep_last, rewritten_older_than, hourly_after, daily_after, "
            "runs_older_than, safety_older_than, safety_keep_last, agent"
        ),
    ),
    ("[retension]\n", "1: unknown key 'retension' in the file", "did you mean retention?"),
    ("retention = 3\n", "1: retention must be a table", "write [retention] above its keys"),
    (
        "[retention]\nolder_than = 30\n",
        '2: older_than in [retention] must be an age such as "30d", not 30',
        "",
    ),
    (
        '[retention]\nolder_than = "soon"\n',
        "2: older_than in [retention]: 'soon' is not an age",
        "write a number and a unit: 90s, 30m, 12h, 7d or 2w",
    ),
    (
        '[retention]\nkeep_last = "x"\n',
        "2: keep_last in [retention] must be a whole number from 0 on, not 'x'",
        "",
    ),
    (
        "[retention]\nkeep_last = -1\n",
        "2: keep_last in [retention] must be a whole number from 0 on, not -1",
        "",
    ),
    ("[retention\n", "1: not TOML: ", ""),
    ("\x1b[31m", "1: not TOML: ", ""),
]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("text", "error", "hint"), SETTINGS, ids=range(len(SETTINGS)))
def test_settings_that_cannot_be_understood_are_2_with_file_line_key_and_cure(
    ckpt: Ckpt, checkout: Checkout, save: Save, text: str, error: str, hint: str
) -> None:
    save(checkout)
    path = checkout.write("gitckpt.toml", text)
    before = checkout.fingerprint()
    hooks = sorted((checkout.main / ".git").glob("hooks/*"))
    for command in ("run ci", "review x", "allow"):
        done = ckpt(*command.split(), at=checkout)
        assert (done.code, done.out) == (2, ""), command
        assert "\x1b" not in done.err
        first, *rest = done.err.splitlines()
        assert first.startswith(f"error: gitckpt.toml:{error}")
        assert rest == [f"hint: correct it: {path}{hint and f' ({hint})'}"]
        assert checkout.fingerprint() == before, command
        assert sorted((checkout.main / ".git").glob("hooks/*")) == hooks
    told = ckpt("doctor", at=checkout).out
    line, _, said = error.partition(": ")
    assert f"settings-invalid: gitckpt.toml:{line}: {said}" in told
    assert ckpt("list", at=checkout).code == 0


def test_all_that_is_wrong_in_the_settings_is_told_at_once(
    ckpt: Ckpt, main_checkout: Checkout
) -> None:
    path = main_checkout.write(
        "gitckpt.toml", '[retention]\nkeep_last = "x"\n[snapshot]\ntimeout = 3\n'
    )
    assert ckpt("review", "x", at=main_checkout) == Outcome(
        2,
        "",
        "error: gitckpt.toml: 2 mistakes\n"
        "  gitckpt.toml:2: keep_last in [retention] must be a whole number from 0 on, not 'x'\n"
        '  gitckpt.toml:4: timeout in [snapshot] must be an age such as "30d", not 3\n'
        f"hint: correct them: {path}\n",
    )
    told = ckpt("doctor", at=main_checkout).out
    assert "settings-invalid: gitckpt.toml:2: keep_last" in told
    assert "settings-invalid: gitckpt.toml:4: timeout" in told


def test_a_setting_of_git_is_named_too(ckpt: Ckpt, main_checkout: Checkout) -> None:
    main_checkout.git("config", "ckpt.keepLast", "many")
    expected = "error: ckpt.keeplast in git config must be a whole number from 0 on, not 'many'\n"
    assert ckpt("review", "x", at=main_checkout) == Outcome(2, "", expected)
