"""Recording: the document and refs of a checkpoint, and the unchanged rest."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from gitckpt import Checkpoint, Progress, Query, Store, Worktree
from tests.conftest import Checkout
from tests.store.conftest import ONE, RUN, TWO
from tests.stores import document_of


class TestTheDocument:
    def test_of_a_clean_worktree(self, store: Store, checkout: Checkout) -> None:
        head, branch = checkout.git("rev-parse", "HEAD"), checkout.git("branch", "--show-current")
        returned = store.record("research-complete", {"n": 1}, worktree=store.capture())
        expected = Checkpoint(
            id=ONE,
            label="research-complete",
            timestamp="2027-01-15T08:00:01.000000Z",
            git_sha=head,
            trigger="manual",
            branch=branch,
            worktree=Worktree(dirty=False),
            state={"n": 1},
        )
        document = f"""\
version = 1
id = "{ONE}"
phase = "research-complete"
timestamp = "2027-01-15T08:00:01.000000Z"
git_sha = "{head}"
branch = "{branch}"
trigger = "manual"
errors = []

[worktree]
dirty = false

[state]
n = 1
"""
        assert returned == expected
        assert (store.raw(ONE).decode(), store.read(ONE)) == (document, expected)
        assert checkout.git("cat-file", "blob", f"refs/checkpoints/{ONE}") == document.removesuffix(
            "\n"
        )

    def test_with_everything_in_it(self, store: Store, checkout: Checkout) -> None:
        head, branch = checkout.git("rev-parse", "HEAD"), checkout.git("branch", "--show-current")
        checkout.write("new", "x")
        files = store.capture()
        store.record(
            "research-started",
            {"a": None},
            worktree=files,
            start="Add login!",
            trigger="step",
            message="begun",
            agent="w:plan",
        )
        returned = store.record(
            "research-failed",
            {"big": 2**70, "none": None, "raw": b"\0", "deep": {"x.y": [1.5, float("inf")]}},
            worktree=files,
            run=RUN,
            trigger="import:forge",
            message="no network",
            agent="superpowers:writing-plans",
            errors=["first", 'second "quoted"'],
            progress=Progress(2, 5, "Designing", 5, 35),
        )
        document = f"""\
version = 1
id = "{TWO}"
run = "{RUN}"
parent = "{ONE}"
sequence = 2
phase = "research-failed"
timestamp = "2027-01-15T08:00:02.000000Z"
git_sha = "{head}"
branch = "{branch}"
trigger = "import:forge"
message = "no network"
agent = "superpowers:writing-plans"
errors = ["first", "second \\"quoted\\""]

[types]
"/big" = "integer"
"/none" = "null"
"/raw" = "bytes"

[worktree]
dirty = true
tree = "{files.tree}"

[progress]
current_phase = 2
total_phases = 5
current_task = "Designing"
tasks_completed = 5
tasks_total = 35

[state]
big = "1180591620717411303424"
none = "null"
raw = "AA=="

[state.deep]
"x.y" = [1.5, inf]
"""
        assert store.raw(TWO).decode() == document
        assert store.read(TWO) == returned
        assert checkout.refs("refs/checkpoints", "refs/ckpt", "refs/keep") == {
            f"refs/checkpoints/{ONE}": checkout.git("hash-object", "--stdin", data=store.raw(ONE)),
            f"refs/checkpoints/{TWO}": checkout.git("hash-object", "--stdin", data=document),
            f"refs/keep/ckpt/{head}": head,
            f"refs/ckpt/trees/{ONE}": files.tree,
            f"refs/ckpt/trees/{TWO}": files.tree,
            f"refs/ckpt/runs/{RUN}": checkout.git("hash-object", "--stdin", data=document),
        }

    def test_without_a_look_at_the_files(self, store: Store, checkout: Checkout) -> None:
        checkout.write("new", "x")
        store.record("a-complete", {})
        assert store.read(ONE).worktree is None
        head = checkout.git("rev-parse", "HEAD")
        assert sorted(checkout.refs("refs/checkpoints", "refs/ckpt", "refs/keep")) == [
            f"refs/checkpoints/{ONE}",
            f"refs/keep/ckpt/{head}",
        ]

    def test_every_value_comes_back_equal(self, store: Store) -> None:
        state: dict[str, Any] = {
            "": "empty key",
            "a.b": {'c"d': [None, True, False, -0.0, 1e308, "", [], {}]},
            "text": "line\r\nNUL\0 \N{PILE OF POO} " + "x" * 100_000,
            "when": dt.datetime(2026, 11, 21, 20, 15, tzinfo=dt.UTC),
            "day": dt.date(2026, 11, 21),
            "hour": dt.time(20, 15, 0, 5),
            "huge": -(10**5000),
            "list": [{"x": 1}, {"x": None}, b"bytes"],
        }
        store.record("a-complete", state)
        read = store.read(ONE).state
        assert read == state
        assert list(read) == list(state)

    def test_the_callers_state_is_not_changed(self, store: Store) -> None:
        state: dict[str, Any] = {"a": {"b": [None, 2**80]}}
        store.record("a-complete", state)
        assert state == {"a": {"b": [None, 2**80]}}

    def test_the_notes_and_what_git_log_shows(self, store: Store, checkout: Checkout) -> None:
        store.record("plan-complete", {})
        store.record("odd  label with   spaces-started", {})
        store.write_notes()
        shown = checkout.git("log", "-1", "--notes=checkpoints", "--format=%N").strip().splitlines()
        assert shown == [
            f"{ONE} plan-complete 2027-01-15T08:00:01.000000Z",
            f"{TWO} odd label with spaces-started 2027-01-15T08:00:02.000000Z",
        ]

    def test_the_index_and_head_and_branches_of_the_user_stay(
        self, store: Store, checkout: Checkout
    ) -> None:
        checkout.write("README", "changed")
        checkout.write("new", "x")
        before = checkout.fingerprint()
        store.record("a-complete", {"n": 1}, worktree=store.capture(), start="r")
        after = checkout.fingerprint()
        del before["refs"], after["refs"]
        assert after == before


def test_codec_and_git_agree_on_the_bytes(plain: Store) -> None:
    made = plain.record("a-complete", {"n": [1, {"x": None}]}, start="r")
    assert document_of(made) == plain.raw(made.id)


@pytest.mark.parametrize("record", ["record", "save"])
@pytest.mark.parametrize(
    ("label", "stored", "name", "status"),
    [
        ("add-login", "add-login-complete", "add-login", "complete"),
        ("research", "research-complete", "research", "complete"),
        ("add-login-failed", "add-login-failed", "add-login", "failed"),
    ],
)
def test_a_phase_without_a_status_is_complete(
    plain: Store, record: str, label: str, stored: str, name: str, status: str
) -> None:
    made = getattr(plain, record)(label, {})
    assert (made.label, made.phase_name, made.status) == (stored, name, status)
    assert plain.read(made.id) == made
    assert [entry.id for entry in plain.list(Query(phase=name, status=status))] == [made.id]
