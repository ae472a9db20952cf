"""Recording: the document and the refs of a checkpoint, in every kind of repository; runs; and what bad input leaves behind: nothing."""

from __future__ import annotations

import datetime as dt
import multiprocessing
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gitckpt.git.libgit2 import Libgit2
from gitckpt.git.plumbing import Plumbing
from gitckpt.git.repository import discover
from gitckpt.model import codec
from gitckpt.model.checkpoint import CLEAN, Checkpoint, Progress, Worktree
from gitckpt.model.errors import CkptError, InvalidCheckpoint, NotFoundError, StateError, UsageError
from gitckpt.store import recorder
from gitckpt.store.store import Store
from tests.conftest import Checkout, Clock
from tests.store.conftest import MakeStore, blob, notes, nth, require_runs, require_whole

ONE, TWO, THREE = nth(1), nth(2), nth(3)
RUN = "20270115-080001-add-login"


class TestTheDocument:
    def test_of_a_clean_worktree(self, store: Store, checkout: Checkout) -> None:
        head, branch = checkout.git("rev-parse", "HEAD"), checkout.git("branch", "--show-current")
        returned = store.record("research-complete", {"n": 1}, worktree=store.capture())
        expected = Checkpoint(
            id=ONE,
            phase="research-complete",
            timestamp="2027-01-15T08:00:01.000000Z",
            git_sha=head,
            trigger="manual",
            branch=branch,
            worktree=CLEAN,
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
        assert checkout.git("cat-file", "blob", f"refs/checkpoints/{ONE}") == document.removesuffix("\n")

    def test_with_everything_in_it(self, store: Store, checkout: Checkout) -> None:
        head, branch = checkout.git("rev-parse", "HEAD"), checkout.git("branch", "--show-current")
        checkout.write("new", "x")
        files = store.capture()
        store.record("research-started", {"a": None}, worktree=files, start="Add login!", trigger="step", message="begun", agent="w:plan")
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
        assert checkout.refs("refs/checkpoints", "refs/ckpt") == {
            f"refs/checkpoints/{ONE}": checkout.git("hash-object", "--stdin", data=store.raw(ONE)),
            f"refs/checkpoints/{TWO}": checkout.git("hash-object", "--stdin", data=document),
            f"refs/ckpt/commits/{ONE}": head,
            f"refs/ckpt/commits/{TWO}": head,
            f"refs/ckpt/trees/{ONE}": files.tree,
            f"refs/ckpt/trees/{TWO}": files.tree,
            f"refs/ckpt/runs/{RUN}": checkout.git("hash-object", "--stdin", data=document),
        }

    def test_without_a_look_at_the_files(self, store: Store, checkout: Checkout) -> None:
        checkout.write("new", "x")
        store.record("a-complete", {})
        assert store.read(ONE).worktree is None
        assert sorted(checkout.refs("refs/checkpoints", "refs/ckpt")) == [f"refs/checkpoints/{ONE}", f"refs/ckpt/commits/{ONE}"]

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
        store.record("odd  label\twith spaces-started", {})
        store.links(checkout.git("rev-parse", "HEAD"))
        shown = checkout.git("log", "-1", "--notes=checkpoints", "--format=%N").strip().splitlines()
        assert shown == [
            f"{ONE} plan-complete 2027-01-15T08:00:01.000000Z",
            f"{TWO} odd label with spaces-started 2027-01-15T08:00:02.000000Z",
        ]

    def test_the_index_and_head_and_branches_of_the_user_stay(self, store: Store, checkout: Checkout) -> None:
        checkout.write("README", "changed")
        checkout.write("new", "x")
        before = checkout.fingerprint()
        store.record("a-complete", {"n": 1}, worktree=store.capture(), start="r")
        after = checkout.fingerprint()
        del before["refs"], after["refs"]
        assert after == before


class TestRepositories:
    """Each kind of repository that there is: recorded, read, found, listed and captured."""

    @staticmethod
    def check(store: Store, checkout: Checkout, *, branch: str | None, adapter: type) -> Checkpoint:
        head = checkout.git("rev-parse", "--verify", "--quiet", "HEAD", ok=(0, 1))
        files = store.capture() if store.repository.worktree else None
        made = store.record("a-complete", {"n": 1}, worktree=files, start="odd one")
        assert (type(store.objects), made.git_sha, made.branch) == (adapter, head, branch)
        assert [store.find(made.id[:8]), store.find("latest"), store.list()[0].id] == [made.id] * 3
        assert store.read(made.id) == made
        assert require_whole(checkout) == {made.id: made}
        assert notes(checkout) == ({head: [made.id]} if head else {})
        assert [entry.id for entry in store.links(head)] == [made.id]
        return made

    def test_detached(self, make_store: MakeStore, checkout: Checkout, adapter: str) -> None:
        checkout.git("checkout", "--quiet", "--detach")
        self.check(make_store(checkout, adapter), checkout, branch=None, adapter={"libgit2": Libgit2, "plumbing": Plumbing}[adapter])

    def test_unborn(self, make_store: MakeStore, make_checkout: Callable[..., Checkout], adapter: str) -> None:
        checkout = make_checkout()
        checkout.write("draft", "x")
        made = self.check(
            make_store(checkout, adapter), checkout, branch="main", adapter={"libgit2": Libgit2, "plumbing": Plumbing}[adapter]
        )
        tree = made.worktree.tree if made.worktree else ""
        assert checkout.git("ls-tree", "-r", "--name-only", f"refs/ckpt/trees/{ONE}") == "files/draft"
        assert checkout.refs() == {
            f"refs/checkpoints/{ONE}": checkout.git("rev-parse", f"refs/checkpoints/{ONE}"),
            f"refs/ckpt/trees/{ONE}": tree,
            f"refs/ckpt/runs/{made.run}": checkout.git("rev-parse", f"refs/checkpoints/{ONE}"),
        }

    def test_bare(self, make_store: MakeStore, main_checkout: Checkout, tmp_path: Path) -> None:
        main_checkout.git("clone", "--quiet", "--bare", ".", str(tmp_path / "bare.git"))
        bare = Checkout(tmp_path / "bare.git")
        self.check(make_store(bare, "auto"), bare, branch="main", adapter=Libgit2)

    def test_shallow(self, make_store: MakeStore, main_checkout: Checkout, tmp_path: Path) -> None:
        main_checkout.commit("second")
        main_checkout.git("clone", "--quiet", "--depth=1", f"file://{main_checkout.path}", str(tmp_path / "shallow"))
        clone = Checkout(tmp_path / "shallow")
        clone.write("new", "x")
        self.check(make_store(clone, "auto"), clone, branch="main", adapter=Libgit2)

    def test_sha256(self, make_store: MakeStore, make_checkout: Callable[..., Checkout]) -> None:
        checkout = make_checkout("wide", "--object-format=sha256")
        checkout.commit("first", README="hello\n")
        checkout.write("new", "x")
        made = self.check(make_store(checkout, "auto"), checkout, branch="main", adapter=Plumbing)
        assert len(made.git_sha) == 64

    def test_partial_clone(self, make_store: MakeStore, main_checkout: Checkout, tmp_path: Path) -> None:
        main_checkout.commit("second", README="second\n", other="other\n")
        main_checkout.git("config", "uploadpack.allowFilter", "true")
        place = tmp_path / "partial"
        main_checkout.git("clone", "--quiet", "--filter=blob:none", "--no-checkout", f"file://{main_checkout.path}", str(place))
        clone = Checkout(place)
        clone.git("sparse-checkout", "set", "--no-cone", "/README")
        clone.git("checkout", "--quiet", "main")
        clone.write("README", "changed\n")
        missing = clone.git("rev-list", "--objects", "--missing=print", "HEAD").count("?")
        made = make_store(clone, "auto").record("a-complete", {}, worktree=make_store(clone, "auto").capture())
        assert clone.git("ls-tree", "-r", "--name-only", f"refs/ckpt/trees/{made.id}").splitlines() == ["files/README", "files/other"]
        assert (missing, clone.git("rev-list", "--objects", "--missing=print", "HEAD").count("?")) == (2, 2)  # nothing was fetched for it

    def test_worktree_config(self, make_store: MakeStore, main_checkout: Checkout, tmp_path: Path) -> None:
        main_checkout.git("config", "extensions.worktreeConfig", "true")
        main_checkout.git("worktree", "add", "--quiet", "-b", "side", str(tmp_path / "side"))
        side = Checkout(tmp_path / "side", main_checkout.path)
        side.git("config", "--worktree", "core.autocrlf", "true")
        side.write("crlf", "a\r\nb\r\n")
        made = self.check(make_store(side, "auto"), side, branch="side", adapter=Libgit2)
        assert blob(side, side.git("rev-parse", f"refs/ckpt/trees/{made.id}:files/crlf")) == b"a\nb\n"

    @pytest.mark.parametrize("kind", ["sparse checkout", "sparse index", "split index"])
    def test_index(self, make_store: MakeStore, make_checkout: Callable[..., Checkout], kind: str) -> None:
        checkout = make_checkout()
        checkout.commit("first", **{"in/a": "a", "out/b": "b", "out/deep/c": "c", "top": "t"})
        if kind == "split index":
            checkout.git("update-index", "--split-index")
        else:
            checkout.git("sparse-checkout", "set", "--cone", "--sparse-index" if kind == "sparse index" else "--no-sparse-index", "in")
        checkout.write("in/a", "changed")
        checkout.write("in/new", "new")
        before = checkout.fingerprint()
        store = make_store(checkout, "auto")
        files = store.capture()
        assert checkout.fingerprint() == before
        made = store.record("a-complete", {}, worktree=files)
        names = checkout.git("ls-tree", "-r", "--name-only", f"refs/ckpt/trees/{made.id}:files").splitlines()
        assert names == ["in/a", "in/new", "out/b", "out/deep/c", "top"]
        assert require_whole(checkout) == {made.id: made}

    def test_reftable(self, newer_git: str, make_store: MakeStore, make_checkout: Callable[..., Checkout]) -> None:
        checkout = make_checkout("tables", "--ref-format=reftable")
        checkout.commit("first", README="hello\n")
        checkout.write("new", "x")
        store = make_store(checkout, "auto")
        assert store.repository.has_reftable
        made = self.check(store, checkout, branch="main", adapter=Plumbing)
        assert store.remove([made.id]) == 1
        assert list(checkout.refs("refs/checkpoints", "refs/ckpt")) == []


class TestRuns:
    def test_a_start_and_what_follows(self, store: Store, checkout: Checkout) -> None:
        chain = [store.record("a-started", {"n": 1}, start="Add login!")]
        chain += [store.record("a-complete", {"n": n}, run=RUN) for n in (2, 3)]
        assert [(one.id, one.run, one.sequence, one.parent) for one in chain] == [
            (ONE, RUN, 1, None),
            (TWO, RUN, 2, ONE),
            (THREE, RUN, 3, TWO),
        ]
        assert checkout.refs("refs/ckpt/runs") == {f"refs/ckpt/runs/{RUN}": checkout.git("rev-parse", f"refs/checkpoints/{THREE}")}
        assert store.run_head(RUN) == chain[-1]
        assert require_runs(checkout, require_whole(checkout)) == {RUN: [ONE, TWO, THREE]}

    def test_a_name_that_is_taken_gets_a_suffix(self, plain: Store, clock: Clock) -> None:
        clock.step = 0
        runs = [plain.record("a-started", {}, start="Add login!").run for _ in range(3)]
        assert runs == ["20270115-080000-add-login", "20270115-080000-add-login-2", "20270115-080000-add-login-3"]

    @pytest.mark.parametrize(
        ("name", "slug"),
        [
            ("", "run"),
            ("—", "run"),
            ("../../etc", "etc"),
            ("Ünï code", "n-code"),
            ("x" * 300, "x" * 50),
            ("a\nb", "a-b"),
            ("A.lock", "a-lock"),
        ],
    )
    def test_any_name_makes_a_ref(self, plain: Store, name: str, slug: str) -> None:
        assert plain.record("a-started", {}, start=name).run == f"20270115-080001-{slug}"

    def test_starters_in_several_processes_never_share_one(self, main_checkout: Checkout) -> None:
        runs = in_processes(start_runs, 4, str(main_checkout.path), 8)
        base = "20270115-080000-same"
        assert sorted(runs) == sorted([base, *(f"{base}-{n}" for n in range(2, 33))])
        found = require_whole(main_checkout)
        assert require_runs(main_checkout, found).keys() == set(runs)

    def test_the_state_is_carried_on(self, store: Store) -> None:
        state = {"a": None, "n": 2**80, "t": dt.date(2026, 1, 1)}
        store.record("a-started", state, start="Add login!")
        second = store.record("a-complete", run=RUN)
        assert second.state == {}
        assert (store.read(TWO).state, store.run_head(RUN).state) == (state, state)

    def test_an_empty_state_is_one(self, store: Store) -> None:
        store.record("a-started", {"n": 1}, start="Add login!")
        store.record("a-complete", {}, run=RUN)
        store.record("b-complete", run=RUN)
        assert [store.read(id_).state for id_ in (ONE, TWO, THREE)] == [{"n": 1}, {}, {}]

    def test_outside_a_run_no_state_is_an_empty_one(self, store: Store) -> None:
        store.record("a-complete", {"n": 1})
        store.record("b-complete")
        assert store.read(TWO).state == {}

    def test_another_process_extends_the_run_meanwhile(self, make_store: MakeStore, main_checkout: Checkout) -> None:
        one, other = make_store(main_checkout, "libgit2"), make_store(main_checkout, "plumbing")
        one.record("a-started", {}, start="Add login!")
        other.record("b-complete", {"from": "other"}, run=RUN)
        third = one.record("c-complete", run=RUN)
        assert (third.sequence, third.parent, one.read(THREE).state) == (3, TWO, {"from": "other"})


class TestBadInput:
    @pytest.mark.parametrize(
        ("call", "error", "message"),
        [
            ({"phase": ""}, UsageError, "the phase is empty"),
            ({"phase": " \t"}, UsageError, "the phase is empty"),
            ({"message": "two\nlines"}, UsageError, "a message is one line"),
            ({"message": "a line\n"}, UsageError, "a message is one line"),
            ({"message": "\n"}, UsageError, "a message is one line"),
            ({"message": "form\x0cfeed"}, UsageError, "a message is one line"),
            ({"run": "20270115-080001-unknown"}, NotFoundError, "no run 20270115-080001-unknown"),
            ({"run": "latest"}, UsageError, "'latest' is not a run id"),
            ({"run": "a\nb"}, UsageError, "'a\\nb' is not a run id"),
            ({"run": "../../heads/main"}, UsageError, "'../../heads/main' is not a run id"),
            ({"run": ""}, UsageError, "'' is not a run id"),
            ({"trigger": "By Hand"}, UsageError, "trigger: must be a word such as manual or import:forge, not 'By Hand'"),
            ({"errors": [1]}, UsageError, "errors[0]: must be a string, not 1"),
            ({"progress": Progress(current_phase=-1)}, UsageError, "progress.current_phase: must be 0 or more, not -1"),
            ({"state": [1]}, StateError, "/: a state is a map of names to values, not [1]"),
            ({"state": {"a": [{"b": object}]}}, StateError, "/a/0/b: a builtins.type cannot be stored"),
            ({"state": {"a": {1: 2}}}, StateError, "/a: the key 1 is not a string"),
            ({"state": {"a": "\ud800"}}, StateError, "/a: holds a lone surrogate (U+D800), which UTF-8 cannot encode"),
            ({"state": {"a": (1, 2)}}, StateError, "/a: a builtins.tuple cannot be stored"),
            ({"message": "\udcff"}, StateError, "/message: holds a lone surrogate (U+DCFF), which UTF-8 cannot encode"),
        ],
        ids=lambda value: None if isinstance(value, dict) else "",
    )
    def test_changes_nothing(self, store: Store, checkout: Checkout, call: dict[str, Any], error: type[CkptError], message: str) -> None:
        before = checkout.fingerprint()
        with pytest.raises(error) as caught:
            store.record(**({"phase": "a-complete", "state": {}} | call))
        assert caught.value.message == message
        assert checkout.fingerprint() == before
        store.record("a-complete", {})
        assert list(require_whole(checkout)) == [store.list()[0].id]

    def test_a_state_that_cannot_be_stored_names_its_path_within_a_run(self, store: Store, checkout: Checkout) -> None:
        store.record("a-started", {"n": 1}, start="Add login!")
        store.links(checkout.git("rev-parse", "HEAD"))
        before = checkout.fingerprint()
        with pytest.raises(StateError) as caught:
            store.record("a-complete", {"x": {"y/z": {1, 2}}}, run=RUN)
        assert (caught.value.path, checkout.fingerprint()) == ("/x/y~1z", before)
        assert store.record("a-complete", run=RUN).sequence == 2

    def test_a_run_head_that_is_no_checkpoint(self, plain: Store, main_checkout: Checkout) -> None:
        main_checkout.git("update-ref", f"refs/ckpt/runs/{RUN}", "HEAD")
        before = main_checkout.fingerprint()
        with pytest.raises(InvalidCheckpoint) as caught:
            plain.record("a-complete", {}, run=RUN)
        with pytest.raises(InvalidCheckpoint) as also:
            plain.run_head(RUN)
        message = f"refs/ckpt/runs/{RUN}: does not point to a checkpoint document"
        assert [caught.value.message, also.value.message] == [message] * 2
        assert main_checkout.fingerprint() == before

    @pytest.mark.parametrize("text", ["", "x", "\n", "a\nb", "../heads/main", ONE.upper(), f"{ONE}\n", "*", ONE])
    def test_reading_what_is_not_there(self, plain: Store, text: str) -> None:
        with pytest.raises(NotFoundError) as caught:
            plain.read(text)
        assert caught.value.message == f"no checkpoint {text!r}"
        plain.record("a-complete", {"still": "in step"})
        assert plain.read(ONE).state == {"still": "in step"}

    def test_capture_is_of_the_worktree_it_was_opened_in(self, make_store: MakeStore, main_checkout: Checkout, tmp_path: Path) -> None:
        main_checkout.git("worktree", "add", "--quiet", "-b", "side", str(tmp_path / "side"))
        (tmp_path / "side" / "new").write_text("x")
        main, side = make_store(main_checkout), make_store(tmp_path / "side")
        assert main.capture() == CLEAN
        assert side.capture() == Worktree(dirty=True, tree=side.capture().tree)


class TestLinks:
    def test_a_burst_is_written_by_close(self, main_checkout: Checkout, make_store: MakeStore, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(recorder, "LINK_INTERVAL", 3600.0)
        head = main_checkout.git("rev-parse", "HEAD")
        store = make_store(main_checkout)
        for _ in range(5):
            store.record("a-complete", {})
        assert notes(main_checkout) == {head: [ONE]}
        store.close()
        assert notes(main_checkout) == {head: [nth(n) for n in range(1, 6)]}

    def test_a_burst_is_written_by_links(self, plain: Store, main_checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(recorder, "LINK_INTERVAL", 3600.0)
        head = main_checkout.git("rev-parse", "HEAD")
        for _ in range(3):
            plain.record("a-complete", {})
        assert [entry.id for entry in plain.links(head)] == [THREE, TWO, ONE]
        assert notes(main_checkout) == {head: [ONE, TWO, THREE]}

    def test_the_next_one_that_is_due_takes_those_put_off_along(
        self, plain: Store, main_checkout: Checkout, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(recorder, "LINK_INTERVAL", 3600.0)
        first = main_checkout.git("rev-parse", "HEAD")
        plain.record("a-complete", {})
        plain.record("a-complete", {})
        second = main_checkout.commit("second")
        monkeypatch.setattr(recorder, "LINK_INTERVAL", 0.0)
        plain.record("a-complete", {})
        assert notes(main_checkout) == {first: [ONE, TWO], second: [THREE]}

    @pytest.mark.parametrize("rewrite", ["amend", "rebase"])
    def test_a_rewrite_carries_them_over(self, store: Store, checkout: Checkout, rewrite: str) -> None:
        checkout.git("config", "notes.rewriteRef", "refs/notes/checkpoints")
        checkout.git("config", "notes.rewriteMode", "cat_sort_uniq")
        base = checkout.git("rev-parse", "HEAD")
        old = checkout.commit("second", second="2")
        store.record("a-complete", {})
        store.record("b-complete", {})
        store.links(old)
        if rewrite == "amend":
            checkout.git("commit", "--quiet", "--amend", "--message", "other words")
        else:
            checkout.git("checkout", "--quiet", "-b", "topic")
            checkout.git("checkout", "--quiet", "--detach", base)
            onto = checkout.commit("onto", onto="o")
            checkout.git("checkout", "--quiet", "topic")
            checkout.git("rebase", "--quiet", onto)
        new = checkout.git("rev-parse", "HEAD")
        third = store.record("c-complete", {})
        assert new != old
        assert [entry.id for entry in store.links(new)] == [third.id, TWO, ONE]
        assert [entry.id for entry in store.links(old)] == [TWO, ONE]
        assert notes(checkout)[new] == [ONE, TWO, THREE]
        assert (store.find("HEAD"), store.find(new), store.find(old)) == (THREE, THREE, TWO)

    def test_a_commit_without_any(self, plain: Store, main_checkout: Checkout) -> None:
        assert plain.links(main_checkout.git("rev-parse", "HEAD")) == []
        assert plain.links("0" * 40) == []

    def test_a_lost_note_is_made_up_for_by_the_checkpoint_itself(self, plain: Store, main_checkout: Checkout) -> None:
        plain.record("a-complete", {})
        main_checkout.git("update-ref", "-d", "refs/notes/checkpoints")
        assert [entry.id for entry in plain.links(main_checkout.git("rev-parse", "HEAD"))] == [ONE]


def in_processes(work: Callable[..., list[str]], count: int, *args: Any) -> list[str]:
    """Returns what a function returned in so many processes, all together."""
    with multiprocessing.get_context("spawn").Pool(count) as pool:
        done = [pool.apply_async(work, args) for _ in range(count)]
        return [text for one in done for text in one.get(timeout=120)]


def start_runs(path: str, count: int) -> list[str]:
    """Starts runs of one name in one second."""
    with Store(discover(path), adapter="plumbing", clock=lambda: 1_800_000_000_000_000) as store:
        return [str(store.record("a-started", {"pid": os.getpid()}, start="same").run) for _ in range(count)]


def test_codec_and_git_agree_on_the_bytes(plain: Store) -> None:
    made = plain.record("a-complete", {"n": [1, {"x": None}]}, start="r")
    assert codec.encode(made) == plain.raw(made.id)
