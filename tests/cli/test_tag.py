"""Attach tags, pins and notes to checkpoints."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from gitckpt import NotFoundError, Policy, Store, UsageError
from gitckpt.model import times
from tests.cli.conftest import Ckpt
from tests.conftest import Checkout
from tests.stores import DAY, open_store

Save = Callable[..., str]
LABELS = ("refs/ckpt/tags", "refs/ckpt/pins", "refs/ckpt/texts")


def labels_of(checkout: Checkout) -> list[str]:
    return checkout.git("for-each-ref", "--format=%(refname)", *LABELS).split()


def call(ckpt: Ckpt, checkout: Checkout, *words: str) -> str:
    done = ckpt(*words, at=checkout)
    assert done.code == 0, done.err
    return done.out


def shown(ckpt: Ckpt, checkout: Checkout, address: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(call(ckpt, checkout, "show", address, "--json"))
    return document


def test_a_tag_names_a_checkpoint(ckpt: Ckpt, main_checkout: Checkout, save: Save) -> None:
    first, second = save(main_checkout, "-m", "one"), save(main_checkout, "-m", "two")
    call(ckpt, main_checkout, "tag", first[:8], "before/it")
    assert shown(ckpt, main_checkout, "before/it")["id"] == first
    assert call(ckpt, main_checkout, "tag").split("\t")[:2] == ["before/it", first]
    assert call(ckpt, main_checkout, "tag", "list") == call(ckpt, main_checkout, "tag")
    for name in ("before/it", "before", "before/it/now"):
        done = ckpt("tag", second, name, at=main_checkout)
        assert (done.code, "the tag 'before/it' exists" in done.err) == (2, True)
    call(ckpt, main_checkout, "tag", "-d", "before/it")
    assert ckpt("show", "before/it", at=main_checkout).code == 12
    assert ckpt("tag", "-d", "before/it", at=main_checkout).code == 12
    assert labels_of(main_checkout) == []


def test_a_tag_comes_before_a_revision(ckpt: Ckpt, main_checkout: Checkout, save: Save) -> None:
    first = save(main_checkout)
    save(main_checkout)
    main_checkout.git("branch", "fix")
    with Store.open(main_checkout.path) as store:
        run = store.record("plan-complete", {}, start="add login").run
    for name, hidden in {"fix": "the git revision of that name", "login": f"the run {run}"}.items():
        done = ckpt("tag", first, name, at=main_checkout)
        cure = f"to undo: git ckpt tag -d {name}"
        assert done.err == (
            f"tagged {first[:8]} as {name}\n"
            f"warning: as an address, the tag {name} hides {hidden}; {cure}\n"
        )
    assert shown(ckpt, main_checkout, "fix")["id"] == first


@pytest.mark.parametrize(
    "name",
    [
        *("", " ", "..", "a..b", "../../heads/main", "/a", "a/", "a//b", ".a", "a/.b", "a.", "-x"),
        *("a.lock", "a.lock/b", "a b", "a~1", "a^", "a:b", "a?", "a*", "a[b", "a\\b", "@", "a@{1}"),
        *("HEAD", "latest", "list", "x" * 201, "a\nb", "\x1b[31m", "a\x7f", "\u202ea", "\udcff"),
        *("beef", "0f3a", "20261121-201500-add-login"),
    ],
)
def test_a_name_that_misleads_is_refused(
    ckpt: Ckpt, main_checkout: Checkout, save: Save, name: str
) -> None:
    checkpoint = save(main_checkout)
    done = ckpt("tag", "--", checkpoint, name, at=main_checkout)
    assert (done.code, done.out) == (2, "")
    assert "is not a valid name of a tag" in done.err
    assert "\x1b" not in done.err
    assert labels_of(main_checkout) == []


def test_hostile_tags_name_nothing(ckpt: Ckpt, main_checkout: Checkout, save: Save) -> None:
    checkpoint = save(main_checkout)
    oid = main_checkout.git("rev-parse", f"refs/checkpoints/{checkpoint}")
    for name in ("HEAD", "latest", "beef", "\u202ea"):
        main_checkout.git("update-ref", f"refs/ckpt/tags/{name}", oid)
    head = main_checkout.git("rev-parse", "HEAD")
    main_checkout.git("update-ref", "refs/ckpt/tags/commit", head)
    newest = save(main_checkout)
    assert [shown(ckpt, main_checkout, text)["id"] for text in ("HEAD", "latest")] == [newest] * 2
    assert ckpt("show", "commit", at=main_checkout).code == 12
    assert "\u202e" not in call(ckpt, main_checkout, "tag")


def test_labels_are_shown(ckpt: Ckpt, main_checkout: Checkout, save: Save) -> None:
    checkpoint = save(main_checkout, "-m", "one")
    before = call(ckpt, main_checkout, "show", "--raw")
    plain = call(ckpt, main_checkout, "list")
    call(ckpt, main_checkout, "tag", "latest", "fine")
    call(ckpt, main_checkout, "pin", "fine")
    call(ckpt, main_checkout, "note", "fine", "works\nwith \x1b[31m tests")
    text = call(ckpt, main_checkout, "show", "fine")
    for line in ("tags:        fine", "pinned:      never expires", "note:        works"):
        assert line in text
    assert "\x1b" not in text
    assert "\x1b" not in call(ckpt, main_checkout, "note", "fine")
    labels = {"tags": ["fine"], "pinned": True, "note": "works\nwith \x1b[31m tests"}
    assert shown(ckpt, main_checkout, checkpoint).items() >= labels.items()
    listed = json.loads(call(ckpt, main_checkout, "list", "--json"))["checkpoints"][0]
    assert listed.items() >= labels.items()
    assert call(ckpt, main_checkout, "show", "--raw") == before
    assert call(ckpt, main_checkout, "list") == plain
    call(ckpt, main_checkout, "note", "fine", "-d")
    call(ckpt, main_checkout, "unpin", "fine")
    assert labels_of(main_checkout) == ["refs/ckpt/tags/fine"]


def test_a_person_sees_tags_beside_the_message(
    ckpt: Ckpt, main_checkout: Checkout, save: Save, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(main_checkout, "-m", "one")
    for name in ("fine", "release"):
        call(ckpt, main_checkout, "tag", "latest", name)
    monkeypatch.setattr("gitckpt.cli.terminal.is_terminal", lambda: True)
    assert "[fine] [release] one" in call(ckpt, main_checkout, "list")


def test_labels_go_with_their_checkpoint(ckpt: Ckpt, main_checkout: Checkout, save: Save) -> None:
    checkpoint, other = save(main_checkout), save(main_checkout)
    for id_, name in ((checkpoint, "one"), (checkpoint, "two"), (other, "three")):
        call(ckpt, main_checkout, "tag", id_, name)
    call(ckpt, main_checkout, "note", checkpoint, "text")
    call(ckpt, main_checkout, "pin", checkpoint)
    done = ckpt("remove", "one", at=main_checkout)
    assert (done.code, "is pinned; nothing was removed" in done.err) == (2, True)
    call(ckpt, main_checkout, "remove", "one", "--force")
    assert labels_of(main_checkout) == ["refs/ckpt/tags/three"]
    assert call(ckpt, main_checkout, "verify") == ""


@pytest.mark.long
def test_what_is_pinned_or_tagged_never_expires(main_checkout: Checkout) -> None:
    now = times.now()
    with open_store(main_checkout, clock=lambda: now - 90 * DAY) as store:
        made = [store.record("commit-complete", {}, trigger="post-commit").id for _ in range(3)]
        runs = [store.record("run-started", {}, start=f"run {number}") for number in range(3)]
        for started in runs:
            store.record("run-complete", {}, run=started.run)
        store.tag(made[0], "tagged")
        store.pin(made[1])
        store.tag(runs[0], "start")
        store.pin(runs[1].id)
    with Store.open(main_checkout.path) as store:
        rules = Policy(everything=True, older_than=0, keep_last=0, runs_older_than=0)
        reasons = {fate.run: fate.reason for fate in store.expire(rules).runs}
        left = {entry.id for entry in store.list()}
        assert left & set(made) == set(made[:2])
        assert [run.run for run in store.runs()] == [runs[1].run, runs[0].run]
        short_id = runs[0].id[:8]
        assert reasons[str(runs[0].run)] == f"its checkpoint {short_id} is pinned or tagged"
        assert store.unpin(made[1])
        assert not store.unpin(made[1])
        store.expire(rules)
        assert made[1] not in {entry.id for entry in store.list()}


def test_verify_finds_labels_of_no_checkpoint(
    ckpt: Ckpt, main_checkout: Checkout, save: Save, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = save(main_checkout)
    call(ckpt, main_checkout, "tag", checkpoint, "fine")
    call(ckpt, main_checkout, "pin", checkpoint)
    main_checkout.git("update-ref", "-d", f"refs/checkpoints/{checkpoint}")
    head = main_checkout.git("rev-parse", "HEAD")
    main_checkout.git("update-ref", "refs/ckpt/tags/commit", head)
    monkeypatch.setattr("gitckpt.store.records.commit_refs.is_recently_written", lambda *_: False)
    done = ckpt("verify", "--repair", at=main_checkout)
    assert (done.code, done.out.count("label-orphan")) == (1, 2)
    assert "label-invalid" in done.out
    assert labels_of(main_checkout) == ["refs/ckpt/tags/commit"]


def test_the_library_refuses_wrong_arguments(main_checkout: Checkout) -> None:
    with Store.open(main_checkout.path) as store:
        saved = store.record("manual-complete", {})
        for text in ("", " ", "x" * 10_001, "\ud800"):
            with pytest.raises(UsageError):
                store.annotate(saved, text)
        with pytest.raises(UsageError):
            store.tag(saved, 7)  # type: ignore[arg-type]
        with pytest.raises(NotFoundError):
            store.untag("none")
        store.remove([saved.id])
        with pytest.raises(NotFoundError):
            store.pin(saved)
