"""`git ckpt list` prints columns, filters, and skips invalid checkpoints."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import pytest

from gitckpt import Store
from tests.cli.conftest import Ckpt, Outcome, document, store_text
from tests.conftest import NEWER, Checkout, git_program, git_version
from tests.stores import SECOND, set_clock

Save = Callable[..., str]

OLD, OLDER = "20261121-201500-add-login", "20261121-201500-add-logout"


@pytest.fixture
def runs(main_checkout: Checkout) -> dict[str, list[str]]:
    """Return the checkpoints of two runs, two of each, by run id."""
    made: dict[str, list[str]] = {}
    with Store.open(main_checkout.path) as store:
        for name in ("add login", "add logout"):
            first = store.record("research-complete", {}, start=name, message=f"first of {name}")
            assert first.run is not None
            second = store.record("build-failed", {}, run=first.run)
            made[first.run] = [first.id, second.id]
    return made


def ids_of(done: Outcome) -> list[str]:
    assert done.code == 0, done.err
    return [line.split("\t")[0] for line in done.out.splitlines()]


def test_by_more_criteria(ckpt: Ckpt, main_checkout: Checkout, save: Save) -> None:
    first = save(main_checkout, "-m", "Fix (login)", "--agent", "claude")
    with Store.open(main_checkout.path) as store:
        hook = store.record("commit-complete", {}, trigger="post-commit", message="done").id
        safety = store.record("safety-complete", {}, trigger="safety").id
        run = store.record("plan-complete", {}, start="one", trigger="turn").id
    main_checkout.git("switch", "--quiet", "-c", "topic")
    last = save(main_checkout, "-m", "fix logout")
    for words, expected in {
        ("--grep", "fix .?log"): [last, first],
        ("--grep", r"\(login\)"): [first],
        ("--agent", "claude"): [first],
        ("--branch", "topic"): [last],
        ("--branch", "refs/heads/topic"): [last],
        ("--trigger", "turn", "--trigger", "post-commit"): [run, hook],
        ("--in-run",): [run],
        ("--no-run",): [last, safety, hook, first],
        ("--no-run", "--no-safety"): [last, hook, first],
        ("-2", "--no-run"): [last, safety],
        ("--no-run", "-1"): [last],
        ("--until", "1h"): [],
        ("--since", "1h", "--until", "now", "--no-run", "--agent", "claude"): [first],
    }.items():
        assert ids_of(ckpt("list", *words, at=main_checkout)) == expected, words
    for command in ("list", "log"):
        done = ckpt(command, "--trigger", "manul", "--agent", "claude", at=main_checkout)
        problem, known = done.err.splitlines()[0].split("; ")
        assert problem == "no recent checkpoint has the trigger 'manul'"
        assert known == "the most frequent: manual, turn, safety, post-commit"
    assert "the phase 'a'; the most frequent: manual" in ckpt("list", "--phase", "a").err
    for words in (("--grep", "(login"), ("--since", "soon"), ("--in-run", "--no-run")):
        assert ckpt("list", *words, at=main_checkout).code == 2


def test_piped_each_checkpoint_is_a_line_of_eight_columns(
    ckpt: Ckpt, save: Save, checkout: Checkout
) -> None:
    branch = checkout.git("branch", "--show-current")
    head = checkout.git("rev-parse", "HEAD")
    checkout.write("README", "changed\n")
    checkout.write("new", "new\n")
    one = save(checkout, "-m", "tabs\tand such")
    checkout.git("checkout", "--quiet", "--detach")
    two = save(checkout, "--no-worktree", "--phase", "research-failed")
    three = save(checkout, "--phase", "plan")
    checkout.git("checkout", "--", ".")
    (checkout.path / "new").unlink()
    four = save(checkout)
    stamps = {
        id_: json.loads(ckpt("show", id_, "--json", at=checkout).out)["timestamp"]
        for id_ in (one, two, three, four)
    }
    assert ckpt("list", at=checkout) == Outcome(
        0,
        f"{four}\t{stamps[four]}\t-\tmanual-complete\t{head}\t-\t0\t-\n"
        f"{three}\t{stamps[three]}\t-\tplan-complete\t{head}\t-\t2\t-\n"
        f"{two}\t{stamps[two]}\t-\tresearch-failed\t{head}\t-\t-\t-\n"
        f"{one}\t{stamps[one]}\t-\tmanual-complete\t{head}\t{branch}\t2\ttabs and such\n",
        "",
    )


def test_an_operation_in_progress_stands_beside_the_number_of_files(
    ckpt: Ckpt, save: Save, checkout: Checkout
) -> None:
    checkout.git("checkout", "--quiet", "-b", "other")
    checkout.commit("theirs", README="theirs\n")
    checkout.git("checkout", "--quiet", "-b", "third", "HEAD~1")
    checkout.commit("ours", README="ours\n")
    checkout.git("merge", "--quiet", "other", ok=(1,))
    save(checkout)
    assert ckpt("list", at=checkout).out.split("\t")[6] == "1 merge"


def test_nothing_to_list(ckpt: Ckpt, main_checkout: Checkout, save: Save) -> None:
    assert ckpt("list", at=main_checkout) == Outcome(
        0, "", "no checkpoints yet; to record one at every commit: git ckpt init\n"
    )
    save(main_checkout)
    done = ckpt("list", "--phase", "research", at=main_checkout)
    known = "no recent checkpoint has the phase 'research'; the most frequent: manual\n"
    remark = f"{known}no checkpoint matches; to see all: git ckpt list --all\n"
    assert done == Outcome(0, "", remark)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("words", "made", "said"),
    [
        (
            ["init", "--hooks", "files"],
            [],
            "; the next commit records one; to record one now: git ckpt save",
        ),
        (
            ["init", "--hooks", "none"],
            [],
            "; commits record none, because of --hooks none; to record one: git ckpt save",
        ),
        (
            ["init"],
            ["pre-commit"],
            "; commits record none until the hooks call gitckpt; to see why: git ckpt doctor",
        ),
        (
            ["init", "--hooks", "external"],
            [],
            "; commits record none until the hooks call gitckpt; to see why: git ckpt doctor",
        ),
        (
            ["init", "--hooks", "external"],
            ["post-commit"],
            "; the next commit records one; to record one now: git ckpt save",
        ),
        (["uninit"], [], "; to record one at every commit: git ckpt init"),
    ],
)
def test_nothing_to_list_after_init(
    ckpt: Ckpt, main_checkout: Checkout, words: list[str], made: list[str], said: str
) -> None:
    """If pre-commit or a person owns the hooks, `init` alone records no commit."""
    lines = {
        "pre-commit": "# File generated by pre-commit: https://pre-commit.com\n",
        "post-commit": 'git ckpt hook post-commit "$@" || :\n',
    }
    for name in made:
        main_checkout.write(f".git/hooks/{name}", f"#!/bin/sh\n{lines[name]}").chmod(0o755)
    assert ckpt(*words, at=main_checkout).code == 0
    if (words, made) == (["init"], ["pre-commit"]) and git_version(git_program()) >= NEWER:
        # Hooks in git's configuration work beside a hook file of pre-commit.
        said = "; the next commit records one; to record one now: git ckpt save"
    assert ckpt("list", at=main_checkout) == Outcome(0, "", f"no checkpoints yet{said}\n")


def test_twenty_unless_told_otherwise(ckpt: Ckpt, main_checkout: Checkout) -> None:
    with Store.open(main_checkout.path) as store:
        made = [store.record("p-complete", {}).id for _ in range(22)][::-1]
    some = ckpt("list", at=main_checkout)
    assert ids_of(some) == made[:20]
    assert some.err == "these are the newest 20 checkpoints; to list all: git ckpt list --all\n"
    assert json.loads(ckpt("list", "--json", at=main_checkout).out)["more"] is True
    for args, count in (
        (["-n", "3"], 3),
        (["-n", "22"], 22),
        (["-n", "0"], 0),
        (["--all"], 22),
        (["--all", "-n", "3"], 22),
    ):
        done = ckpt("list", *args, at=main_checkout)
        assert ids_of(done) == made[:count], args
        report = json.loads(ckpt("list", "--json", *args, at=main_checkout).out)
        assert [each["id"] for each in report["checkpoints"]] == made[:count], args
        assert report["more"] is (count < 22), args
    assert [ckpt("list", "-n", number, at=main_checkout).err for number in ("3", "0")] == ["", ""]


def test_by_run(
    ckpt: Ckpt, main_checkout: Checkout, runs: dict[str, list[str]], save: Save
) -> None:
    save(main_checkout)
    login, logout = sorted(runs)
    assert ids_of(ckpt("list", "--run", login, at=main_checkout)) == runs[login][::-1]
    assert ids_of(ckpt("list", "--run", logout[:-1], at=main_checkout)) == runs[logout][::-1]
    done = ckpt("list", "--run", login[:10], at=main_checkout)
    lines = done.err.splitlines()
    assert (done.code, lines[0]) == (12, f"error: 2 ids begin with '{login[:10]}'")
    assert [line.split()[0] for line in lines[1:]] == [login, logout, "hint:"]
    assert all(line.endswith("  build-failed") for line in lines[1:3])
    assert ids_of(ckpt("list", "--run", "logout", at=main_checkout)) == runs[logout][::-1]
    typo = login.replace("login", "lgoin")
    assert ckpt("list", "--run", typo, at=main_checkout) == Outcome(
        12, "", f"error: no run is named '{typo}'\nhint: did you mean {login}?\n"
    )
    for nothing in ("", "zzz"):
        done = ckpt("list", "--run", nothing, at=main_checkout)
        assert done == Outcome(
            12, "", f"error: no run is named '{nothing}'\nhint: list the runs: git ckpt runs\n"
        )


def test_by_phase_and_status(
    ckpt: Ckpt, main_checkout: Checkout, runs: dict[str, list[str]]
) -> None:
    login, logout = sorted(runs)
    first, second = (sorted((runs[login][i], runs[logout][i])) for i in (0, 1))
    for args, expected in (
        (["--phase", "research"], first),
        (["--phase", "research-complete"], first),
        (["--phase", "build", "--status", "failed"], second),
        (["--status", "failed"], second),
        (["--phase", "build", "--status", "complete"], []),
        (["--phase", "resea"], []),
    ):
        assert sorted(ids_of(ckpt("list", *args, at=main_checkout))) == expected, args


def test_by_commit(ckpt: Ckpt, checkout: Checkout, save: Save) -> None:
    one = save(checkout)
    checkout.commit("second")
    two = save(checkout)
    assert ids_of(ckpt("list", "--commit", "HEAD", at=checkout)) == [two]
    assert ids_of(ckpt("list", "--commit", "HEAD~1", at=checkout)) == [one]
    assert ids_of(ckpt("list", "--commit", ":/second", at=checkout)) == [two]
    for wrong in ("nothing", "", "HEAD:README", "--all", "^HEAD", "HEAD~1..HEAD"):
        done = ckpt("list", f"--commit={wrong}", at=checkout)
        expected = (
            f"error: no commit is named '{wrong}'\n"
            "hint: name a branch, a tag or a commit: git log --oneline --all\n"
        )
        assert done == Outcome(12, "", expected), wrong


def test_by_age(ckpt: Ckpt, main_checkout: Checkout, save: Save) -> None:
    now = time.time_ns() // 1000
    with Store.open(main_checkout.path) as store:
        set_clock(store, lambda: now - 2 * 86400 * SECOND)
        store.record("old-complete", {})
    new = save(main_checkout)
    assert ids_of(ckpt("list", "--since", "1d", at=main_checkout)) == [new]
    assert len(ids_of(ckpt("list", "--since", "1w", at=main_checkout))) == 2


def test_refs_that_are_no_checkpoints_are_one_line_and_stop_nothing(
    ckpt: Ckpt, checkout: Checkout, save: Save
) -> None:
    good = save(checkout)
    checkout.git("update-ref", "refs/checkpoints/11111111-1111-4111-8111-111111111111", "HEAD")
    done = ckpt("list", at=checkout)
    assert ids_of(done) == [good]
    ref = "refs/checkpoints/11111111-1111-4111-8111-111111111111"
    assert done.err == (
        f"warning: not a valid checkpoint: {ref}: points to a commit, not to a blob; see: "
        "git ckpt doctor\n"
    )
    checkout.git(
        "update-ref", "refs/checkpoints/99999999-9999-4999-8999-999999999999", "HEAD^{tree}"
    )
    store_text(
        checkout, "refs/checkpoints/33333333-3333-4333-8333-333333333333", document(version="2")
    )
    done = ckpt("--quiet", "list", "--json", at=checkout)
    assert done.err == (
        f"warning: not a valid checkpoint: {ref}: points to a commit, not to a blob (and "
        "2 more); see: git ckpt doctor\n"
    )
    report = json.loads(done.out)
    assert [each["id"] for each in report["checkpoints"]] == [good]
    assert [
        (each["ref"], each["problem"].removeprefix(f"{each['ref']}: "))
        for each in report["problems"]
    ] == [
        (ref, "points to a commit, not to a blob"),
        (
            "refs/checkpoints/33333333-3333-4333-8333-333333333333",
            "version: written by a newer gitckpt (document version 2)",
        ),
        (
            "refs/checkpoints/99999999-9999-4999-8999-999999999999",
            "points to a tree, not to a blob",
        ),
    ]
