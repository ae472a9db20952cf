"""Bad input leaves nothing behind."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gitckpt import (
    CkptError,
    InvalidCheckpoint,
    NotFoundError,
    StateError,
    Store,
    UsageError,
    Worktree,
)
from tests.conftest import Checkout
from tests.store.conftest import ONE, RUN, MakeStore, require_whole

REFUSED: list[tuple[dict[str, Any], type[CkptError], str]] = [
    ({"label": ""}, UsageError, "'' is not a phase"),
    ({"label": " \t"}, UsageError, "' \\t' is not a phase"),
    ({"message": "two\nlines"}, UsageError, "a message is one line of at most 1,000 characters"),
    ({"message": "a line\n"}, UsageError, "a message is one line of at most 1,000 characters"),
    ({"message": "\n"}, UsageError, "a message is one line of at most 1,000 characters"),
    ({"message": "form\x0cfeed"}, UsageError, "a message is one line of at most 1,000 characters"),
    ({"run": "20270115-080001-unknown"}, NotFoundError, "no run 20270115-080001-unknown"),
    ({"run": "latest"}, UsageError, "'latest' is not a run id"),
    ({"run": "a\nb"}, UsageError, "'a\\nb' is not a run id"),
    ({"run": "../../heads/main"}, UsageError, "'../../heads/main' is not a run id"),
    ({"run": ""}, UsageError, "'' is not a run id"),
    (
        {"trigger": "By Hand"},
        UsageError,
        "trigger: must be a word such as manual or import:forge, not 'By Hand'",
    ),
    ({"errors": [1]}, UsageError, "errors[0]: must be a string, not 1"),
    ({"errors": "went wrong"}, UsageError, "errors: must be a list of strings, not 'went wrong'"),
    ({"errors": 7}, UsageError, "errors: must be a list of strings, not 7"),
    ({"label": None}, UsageError, "label: must be a string, not None"),
    ({"message": 7}, UsageError, "message: must be a string, not 7"),
    ({"agent": b"x"}, UsageError, "agent: must be a string, not b'x'"),
    ({"trigger": None}, UsageError, "trigger: must be a string, not None"),
    ({"id": None}, UsageError, "id: must be a string, not None"),
    ({"run": 7}, UsageError, "run: must be a string, not 7"),
    ({"start": 7}, UsageError, "start: must be a string, not 7"),
    ({"base": 7}, UsageError, "base: must be a string, not 7"),
    (
        {"progress": {"current_phase": 1}},
        UsageError,
        "progress: must be a Progress, not {'current_phase': 1}",
    ),
    ({"pipeline": "ci"}, UsageError, "pipeline: must be a Pipeline, not 'ci'"),
    ({"attempt": 2}, UsageError, "attempt: must be an Attempt, not 2"),
    ({"worktree": "."}, UsageError, "worktree: must be what Store.capture returned, not '.'"),
    ({"start": "one", "run": RUN}, UsageError, "start and run exclude each other"),
    ({"mesage": "a slip"}, UsageError, "there is no argument 'mesage'"),
    ({"state": [1]}, StateError, "/: a state is a map of names to values, not [1]"),
    (
        {"state": 10**5000},
        StateError,
        "/: a state is a map of names to values, not an integer of thousands of digits",
    ),
    ({"state": {"a": [{"b": object}]}}, StateError, "/a/0/b: a builtins.type cannot be stored"),
    ({"state": {"a": {1: 2}}}, StateError, "/a: the key 1 is not a string"),
    (
        {"state": {"a": "\ud800"}},
        StateError,
        "/a: holds a lone surrogate (U+D800), which UTF-8 cannot encode",
    ),
    ({"state": {"a": (1, 2)}}, StateError, "/a: a builtins.tuple cannot be stored"),
    (
        {"message": "\udcff"},
        StateError,
        "/message: holds a lone surrogate (U+DCFF), which UTF-8 cannot encode",
    ),
]
"""Calls of `record`, and how each is refused."""


class TestBadInput:
    def test_changes_nothing(self, store: Store, checkout: Checkout) -> None:
        before = checkout.fingerprint()
        for call, error, message in REFUSED:
            with pytest.raises(error) as caught:
                store.record(**{"label": "a-complete", "state": {}} | call)
            assert caught.value.message == message
            assert checkout.fingerprint() == before, call
        store.record("a-complete", {})
        assert list(require_whole(checkout)) == [store.list()[0].id]

    def test_a_state_that_cannot_be_stored_names_its_path_within_a_run(
        self, store: Store, checkout: Checkout
    ) -> None:
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
            plain.newest(RUN)
        message = f"refs/ckpt/runs/{RUN}: does not point to a checkpoint document"
        assert [caught.value.message, also.value.message] == [message] * 2
        assert main_checkout.fingerprint() == before

    @pytest.mark.parametrize(
        "text", ["", "x", "\n", "a\nb", "../heads/main", ONE.upper(), f"{ONE}\n", "*", ONE]
    )
    def test_reading_what_is_not_there(self, plain: Store, text: str) -> None:
        with pytest.raises(NotFoundError) as caught:
            plain.read(text)
        assert caught.value.message == (
            f"no checkpoint {text!r}"
            if text == ONE
            else f"{text!r} is not the full id of a checkpoint"
        )
        plain.record("a-complete", {"still": "in step"})
        assert plain.read(ONE).state == {"still": "in step"}

    def test_capture_is_of_the_worktree_it_was_opened_in(
        self, make_store: MakeStore, main_checkout: Checkout, tmp_path: Path
    ) -> None:
        main_checkout.git("worktree", "add", "--quiet", "-b", "side", str(tmp_path / "side"))
        (tmp_path / "side" / "new").write_text("x")
        main, side = make_store(main_checkout), make_store(tmp_path / "side")
        assert main.capture() == Worktree(dirty=False)
        assert side.capture() == Worktree(dirty=True, tree=side.capture().tree)


class TestTakenIds:
    """A taken id is refused at once, without another attempt."""

    @pytest.mark.parametrize(
        "how", [{}, {"start": "another"}, {"run": RUN}], ids=["alone", "starting", "extending"]
    )
    def test_by_a_checkpoint(self, store: Store, checkout: Checkout, how: dict[str, Any]) -> None:
        first = store.record("a-started", {}, start="Add login!")
        for record in (store.record, store.save):
            before = checkout.fingerprint()
            with pytest.raises(UsageError) as caught:
                record("b-complete", {}, id=first.id, **how)
            assert caught.value.message == f"a checkpoint {ONE} exists already"
            assert (
                caught.value.hint
                == f"to see it: git ckpt show {ONE}; or omit the id to get a new one"
            )
            assert checkout.fingerprint() == before

    def test_by_something_that_is_no_checkpoint(
        self, plain: Store, main_checkout: Checkout
    ) -> None:
        main_checkout.git("update-ref", f"refs/checkpoints/{ONE}", "HEAD")
        with pytest.raises(UsageError, match=f"^a checkpoint {ONE} exists already$"):
            plain.record("b-complete", {}, id=ONE)

    def test_by_a_ref_whose_object_is_missing(self, plain: Store, main_checkout: Checkout) -> None:
        main_checkout.write(f".git/refs/checkpoints/{ONE}", f"{'12' * 20}\n")
        with pytest.raises(UsageError, match=f"^a checkpoint {ONE} exists already$"):
            plain.record("b-complete", {}, id=ONE)

    def test_by_a_ref_that_git_cannot_read(self, plain: Store, main_checkout: Checkout) -> None:
        main_checkout.write(f".git/refs/checkpoints/{ONE}", "")
        with pytest.raises(CkptError, match=f"refs/checkpoints/{ONE}': reference broken"):
            plain.record("b-complete", {}, id=ONE)

    def test_by_what_a_kill_left(self, plain: Store, main_checkout: Checkout) -> None:
        tree = main_checkout.git("rev-parse", "HEAD^{tree}")
        main_checkout.git("update-ref", f"refs/ckpt/trees/{ONE}", tree)
        main_checkout.write("README", "changed")
        with pytest.raises(UsageError) as caught:
            plain.save("b-complete", {}, id=ONE)
        assert (
            caught.value.message
            == f"no checkpoint has the id {ONE}, but a leftover ref exists: refs/ckpt/trees/{ONE}"
        )
        assert (
            caught.value.hint
            == "omit the id to get a new one, or delete leftovers: git ckpt verify --repair"
        )

    @pytest.mark.parametrize(
        "bad",
        [
            "nope",
            ONE.upper().replace("0001", "000A"),
            "00000000-0000-1000-8000-000000000000",
            f"{ONE}\n",
        ],
    )
    def test_what_is_no_id_is_refused(
        self, plain: Store, main_checkout: Checkout, bad: str
    ) -> None:
        before = main_checkout.fingerprint()
        with pytest.raises(UsageError) as caught:
            plain.record("b-complete", {}, id=bad)
        assert caught.value.message == f"id: must be a UUID version 4 in lower case, not {bad!r}"
        assert main_checkout.fingerprint() == before

    def test_a_run_whose_name_is_taken_by_a_head_without_its_object_gets_another(
        self, plain: Store, main_checkout: Checkout
    ) -> None:
        main_checkout.write(f".git/refs/ckpt/runs/{RUN}", f"{'12' * 20}\n")
        assert plain.record("a-started", {}, start="Add login!").run == f"{RUN}-2"


def test_errors_may_be_none(plain: Store) -> None:
    for record in (plain.record, plain.save):
        assert record("a-complete", {}, errors=None).errors == ()
        assert record("a-failed", {}, errors=["one", "two"]).errors == ("one", "two")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda store: store.save(None), "label: must be a string, not None"),
        (
            lambda store: store.save("a", {}, worktree=Worktree(dirty=False)),
            "there is no argument 'worktree'",
        ),
        (lambda store: store.save("a", {}, base="HEAD"), "there is no argument 'base'"),
        (lambda store: store.save("a", {}, guard=None), "there is no argument 'guard'"),
        (lambda store: store.record("a", change=dict), "there is no argument 'change'"),
        (lambda store: store.read(None), "id: must be a string, not None"),
        (lambda store: store.find(7), "id: must be a string, not 7"),
        (
            lambda store: store.remove(ONE),
            f"checkpoint_ids: must be a list of strings, not '{ONE}'",
        ),
        (lambda store: store.remove([None]), "checkpoint_ids[0]: must be a string, not None"),
        (lambda store: store.newest(None), "None is not a run id"),
        (
            lambda store: Store.open(str(store.worktree), adapter="dulwich"),
            "there is no adapter 'dulwich'",
        ),
    ],
)
def test_what_is_handed_in_wrongly_is_named(
    plain: Store, call: Callable[[Any], object], message: str
) -> None:
    with pytest.raises(UsageError) as caught:
        call(plain)
    assert caught.value.message == message
    assert plain.list() == []


def test_a_base_is_a_commit(plain: Store, main_checkout: Checkout) -> None:
    """A base must be a commit: `git rev-parse` may print an annotated tag's oid.

    gitckpt cannot walk the history of another object.
    """
    main_checkout.git("tag", "-a", "-m", "annotated", "v1.0")
    tag = main_checkout.git("rev-parse", "v1.0")
    for base in (tag, "v1.0", main_checkout.head()):
        assert plain.record("plan", base=base).git_sha == main_checkout.head() != tag
    for base in (
        "1" * 40,
        main_checkout.git("rev-parse", "HEAD^{tree}"),
        main_checkout.git("rev-parse", "HEAD:README"),
    ):
        with pytest.raises(NotFoundError, match=rf"^no commit is named '{base}'$"):
            plain.record("plan", base=base)
    assert len(plain.list()) == 3
    main_checkout.git("gc", "--quiet", "--prune=now")
    assert plain.verify().findings == []
