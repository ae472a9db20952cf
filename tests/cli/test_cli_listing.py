"""`git ckpt list`: columns, filters, and refs that are no checkpoints."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from gitckpt.model import times
from gitckpt.store.store import Store, inside
from tests.cli.conftest import Ckpt, Outcome, document, store_text
from tests.conftest import Checkout

Save = Callable[..., str]

OLD, OLDER = "20261121-201500-add-login", "20261121-201500-add-logout"


@pytest.fixture
def runs(main_checkout: Checkout) -> dict[str, list[str]]:
    """Two runs of two checkpoints each, by run id."""
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


def test_piped_each_checkpoint_is_a_line_of_eight_columns(ckpt: Ckpt, save: Save, checkout: Checkout) -> None:
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
    stamps = {id_: json.loads(ckpt("show", id_, "--json", at=checkout).out)["timestamp"] for id_ in (one, two, three, four)}
    assert ckpt("list", at=checkout) == Outcome(
        0,
        f"{four}\t{stamps[four]}\t-\tmanual-complete\t{head}\t-\t0\t-\n"
        f"{three}\t{stamps[three]}\t-\tplan-complete\t{head}\t-\t2\t-\n"
        f"{two}\t{stamps[two]}\t-\tresearch-failed\t{head}\t-\t-\t-\n"
        f"{one}\t{stamps[one]}\t-\tmanual-complete\t{head}\t{branch}\t2\ttabs and such\n",
        "",
    )


def test_an_operation_in_progress_stands_beside_the_number_of_files(ckpt: Ckpt, save: Save, checkout: Checkout) -> None:
    checkout.git("checkout", "--quiet", "-b", "other")
    checkout.commit("theirs", README="theirs\n")
    checkout.git("checkout", "--quiet", "-b", "third", "HEAD~1")
    checkout.commit("ours", README="ours\n")
    checkout.git("merge", "--quiet", "other", ok=(1,))
    save(checkout)
    assert ckpt("list", at=checkout).out.split("\t")[6] == "1 merge"


def test_nothing_to_list(ckpt: Ckpt, main_checkout: Checkout, save: Save) -> None:
    assert ckpt("list", at=main_checkout) == Outcome(0, "", "no checkpoints yet; every commit makes one after: git ckpt init\n")
    save(main_checkout)
    done = ckpt("list", "--phase", "research", at=main_checkout)
    assert done == Outcome(0, "", "no checkpoint is like that; see all: git ckpt list --all\n")


def test_twenty_unless_told_otherwise(ckpt: Ckpt, main_checkout: Checkout) -> None:
    with Store.open(main_checkout.path) as store:
        made = [store.record("p-complete", {}).id for _ in range(22)][::-1]
    some = ckpt("list", at=main_checkout)
    assert ids_of(some) == made[:20]
    assert some.err == "these are the newest 20; all of them: git ckpt list --all\n"
    assert json.loads(ckpt("list", "--json", at=main_checkout).out)["more"] is True
    for args, count in ((["-n", "3"], 3), (["-n", "22"], 22), (["-n", "0"], 0), (["--all"], 22), (["--all", "-n", "3"], 22)):
        done = ckpt("list", *args, at=main_checkout)
        assert ids_of(done) == made[:count], args
        report = json.loads(ckpt("list", "--json", *args, at=main_checkout).out)
        assert [each["id"] for each in report["checkpoints"]] == made[:count], args
        assert report["more"] is (count < 22), args
    assert ckpt("list", "-n", "3", at=main_checkout).err == ""


def test_by_run(ckpt: Ckpt, main_checkout: Checkout, runs: dict[str, list[str]], save: Save) -> None:
    save(main_checkout)
    login, logout = sorted(runs)
    assert ids_of(ckpt("list", "--run", login, at=main_checkout)) == runs[login][::-1]
    assert ids_of(ckpt("list", "--run", logout[:-1], at=main_checkout)) == runs[logout][::-1]
    assert ckpt("list", "--run", login[:10], at=main_checkout) == Outcome(
        12, "", f"error: '{login[:10]}' begins 2 run ids\n  {login}\n  {logout}\nhint: give more characters of it\n"
    )
    typo = login.replace("login", "lgoin")
    assert ckpt("list", "--run", typo, at=main_checkout) == Outcome(
        12, "", f"error: no run goes by '{typo}'\nhint: did you mean {login}?\n"
    )
    for nothing in ("", "zzz"):
        done = ckpt("list", "--run", nothing, at=main_checkout)
        assert done == Outcome(12, "", f"error: no run goes by '{nothing}'\nhint: see them: git ckpt runs\n")


def test_by_phase_and_status(ckpt: Ckpt, main_checkout: Checkout, runs: dict[str, list[str]]) -> None:
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
        expected = f"error: no commit goes by '{wrong}'\nhint: name a branch, a tag or a commit: git log --oneline --all\n"
        assert done == Outcome(12, "", expected), wrong


def test_by_age(ckpt: Ckpt, main_checkout: Checkout, save: Save) -> None:
    now = times.now()
    with Store.open(main_checkout.path) as store:
        inside(store).clock = lambda: now - 2 * 86400 * times.MICRO
        store.record("old-complete", {})
    new = save(main_checkout)
    assert ids_of(ckpt("list", "--since", "1d", at=main_checkout)) == [new]
    assert len(ids_of(ckpt("list", "--since", "1w", at=main_checkout))) == 2


def test_refs_that_are_no_checkpoints_are_one_line_and_stop_nothing(ckpt: Ckpt, checkout: Checkout, save: Save) -> None:
    good = save(checkout)
    checkout.git("update-ref", "refs/checkpoints/11111111-1111-4111-8111-111111111111", "HEAD")
    done = ckpt("list", at=checkout)
    assert ids_of(done) == [good]
    ref = "refs/checkpoints/11111111-1111-4111-8111-111111111111"
    assert done.err == f"warning: not a valid checkpoint: {ref}: points to a commit, not to a blob; see: git ckpt doctor\n"
    checkout.git("update-ref", "refs/checkpoints/99999999-9999-4999-8999-999999999999", "HEAD^{tree}")
    store_text(checkout, "refs/checkpoints/33333333-3333-4333-8333-333333333333", document(version="2"))
    done = ckpt("--quiet", "list", "--json", at=checkout)
    assert done.err == f"warning: not a valid checkpoint: {ref}: points to a commit, not to a blob (and 2 more); see: git ckpt doctor\n"
    report = json.loads(done.out)
    assert [each["id"] for each in report["checkpoints"]] == [good]
    assert [(each["ref"], each["problem"].removeprefix(f"{each['ref']}: ")) for each in report["problems"]] == [
        (ref, "points to a commit, not to a blob"),
        ("refs/checkpoints/33333333-3333-4333-8333-333333333333", "version: written by a newer gitckpt (document version 2)"),
        ("refs/checkpoints/99999999-9999-4999-8999-999999999999", "points to a tree, not to a blob"),
    ]
