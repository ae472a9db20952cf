"""Keys: one run for each, whoever starts it, however often, and whatever was killed in between."""

from __future__ import annotations

import hashlib
import os

import pytest

from gitckpt.git.repository import discover
from gitckpt.model.errors import InvalidCheckpoint, RunExists, UsageError
from gitckpt.model.policy import Policy
from gitckpt.store.audit import verification
from gitckpt.store.checkpoints import Checkpoints
from gitckpt.store.retention import expiry
from gitckpt.store.store import Store, inside
from tests import forked
from tests.conftest import Checkout
from tests.store.conftest import RUN, MakeStore

KEY = "nightly 2026-11-22 / Zürich"
REF = f"refs/ckpt/keys/{hashlib.sha256(KEY.encode()).hexdigest()}"
GONE = "20270101-000000-gone"


def begin(store: Store, name: str = "Add login!", key: str = KEY) -> str:
    return str(store.record("run-started", {}, start=name, key=key, trigger="phase").run)


def codes(store: Store) -> list[tuple[str, str]]:
    store.links(inside(store).objects.head()[0])  # writes what it put off itself
    return [(finding.code, finding.object) for finding in verification.verify(inside(store)).findings]


def put(checkout: Checkout, text: str, ref: str = REF) -> None:
    checkout.git("update-ref", ref, checkout.git("hash-object", "-w", "--stdin", data=text))


class TestFinding:
    def test_the_run_is_found_by_its_key(self, store: Store, checkout: Checkout) -> None:
        assert store.run_of(KEY) is None
        assert begin(store) == RUN
        assert store.run_of(KEY) == RUN
        assert checkout.git("cat-file", "blob", REF) == f'version = 1\nkey = "{KEY}"\nrun = "{RUN}"'
        assert store.run_of(KEY.upper()) is None

    @pytest.mark.parametrize("record", ["record", "save"])
    def test_there_is_no_second_one(self, store: Store, checkout: Checkout, record: str) -> None:
        begin(store)
        before = checkout.refs()
        with pytest.raises(RunExists) as caught:
            getattr(store, record)("run-started", {}, start="another name", key=KEY)
        assert (caught.value.message, caught.value.run) == (f"the run with the key {KEY!r} exists: {RUN}", RUN)
        assert caught.value.hint == f"go on with it: git ckpt resume {RUN}"
        assert checkout.refs() == before

    def test_other_keys_are_other_runs(self, plain: Store) -> None:
        runs = {key: begin(plain, key=key) for key in (KEY, f"{KEY} ", "nightly", "NIGHTLY", "a/b", "../..", "x" * 1000, "\n\x00.lock")}
        assert {key: plain.run_of(key) for key in runs} == runs
        assert len(set(runs.values())) == len(runs)
        assert codes(plain) == []

    @pytest.mark.parametrize("key", ["", " \n", "x" * 1001, "\ud800", 7, None])
    def test_what_is_no_key_is_refused(self, plain: Store, main_checkout: Checkout, key: str) -> None:
        with pytest.raises(UsageError, match="is not a key"):
            plain.run_of(key)
        if key is not None:
            with pytest.raises(UsageError, match=r"is not a key|key: must be a string"):
                begin(plain, key=key)
        assert main_checkout.refs("refs/ckpt", "refs/checkpoints") == {}

    def test_a_key_is_for_a_run_that_starts(self, plain: Store) -> None:
        with pytest.raises(UsageError, match=r"^a key is for a run that starts$"):
            plain.record("a-complete", {}, key=KEY)


def race(path: str, number: int) -> tuple[str, bool]:
    """Returns the run that has the key, and whether this process started it."""
    with Store(Checkpoints(discover(path), adapter=("plumbing", "libgit2")[number % 2])) as store:
        try:
            return begin(store, f"racer {number % 3}"), True
        except RunExists as error:
            return error.run, False


def test_eight_processes_start_one_run(main_checkout: Checkout, plain: Store) -> None:
    found = forked.together(*((race, (str(main_checkout.path), number)) for number in range(24)), processes=8)
    [run] = {run for run, _ in found}
    assert [has_begun for _, has_begun in found].count(True) == 1
    assert (plain.run_of(KEY), inside(plain).index.runs(), len(plain.list())) == (run, [run], 1)
    assert codes(plain) == []


class TestAfterAKill:
    def test_a_key_that_landed_without_its_run_goes_to_the_next_one(self, plain: Store, main_checkout: Checkout) -> None:
        put(main_checkout, f'version = 1\nkey = "{KEY}"\nrun = "{GONE}"\n')
        assert plain.run_of(KEY) is None
        assert begin(plain) == RUN
        assert plain.run_of(KEY) == RUN

    def test_also_where_the_run_would_get_the_same_name(self, plain: Store, main_checkout: Checkout) -> None:
        put(main_checkout, f'version = 1\nkey = "{KEY}"\nrun = "{RUN}"\n')
        assert begin(plain) == RUN

    def test_a_run_that_landed_without_its_head_keeps_its_key(self, plain: Store, main_checkout: Checkout) -> None:
        begin(plain)
        main_checkout.git("update-ref", "-d", f"refs/ckpt/runs/{RUN}")
        with pytest.raises(RunExists):
            begin(plain)
        assert plain.run_of(KEY) == RUN
        assert f"refs/ckpt/runs/{RUN}" in main_checkout.refs()

    def test_what_is_being_started_is_waited_for(self, plain: Store, main_checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("gitckpt.git.refs.LOCK_TIMEOUT_MS", 20)  # sooner than it could be taken for one that a kill left
        put(main_checkout, f'version = 1\nkey = "{KEY}"\nrun = "{GONE}"\n')
        lock = main_checkout.write(f".git/refs/ckpt/runs/{GONE}.lock", "")
        with pytest.raises(Exception, match=f"another process holds .*{GONE}.lock"):
            begin(plain)
        lock.unlink()
        assert begin(plain).startswith("20270115-")


class TestTheEnd:
    def test_the_key_goes_with_its_run_and_can_be_used_again(self, plain: Store, main_checkout: Checkout) -> None:
        begin(plain)
        other = begin(plain, key="another")
        second = plain.record("a-complete", {}, run=RUN)
        assert plain.remove([second.id]) == 1
        assert plain.run_of(KEY) == RUN
        assert plain.remove([inside(plain).heads.read(RUN).id]) == 1
        assert plain.run_of(KEY) is None
        assert REF not in main_checkout.refs()
        assert plain.run_of("another") == other
        assert begin(plain, "again") != RUN

    def test_the_key_goes_when_its_run_expires(self, plain: Store, main_checkout: Checkout) -> None:
        begin(plain)
        plain.record("run-complete", {}, run=RUN, trigger="phase")
        expiry.expire(inside(plain), Policy(runs_older_than=0))
        assert main_checkout.refs("refs/ckpt", "refs/checkpoints") == {}

    def test_expiry_takes_the_keys_that_kills_left(self, plain: Store, main_checkout: Checkout) -> None:
        begin(plain)
        put(main_checkout, f'version = 1\nkey = "old"\nrun = "{GONE}"\n', f"refs/ckpt/keys/{hashlib.sha256(b'old').hexdigest()}")
        put(main_checkout, "something else", "refs/ckpt/keys/something-else")
        expiry.expire(inside(plain), Policy())
        assert set(main_checkout.refs("refs/ckpt/keys")) == {REF, "refs/ckpt/keys/something-else"}


class TestVerify:
    def test_a_key_of_no_run_is_found_and_mended(self, plain: Store, main_checkout: Checkout) -> None:
        put(main_checkout, f'version = 1\nkey = "{KEY}"\nrun = "{GONE}"\n')
        assert codes(plain) == []  # it may belong to a run that is being started
        os.utime(main_checkout.path / ".git" / REF, (0, 0))
        assert codes(plain) == [("key-orphan", REF)]
        [finding] = verification.verify(inside(plain), repair=True).findings
        assert (finding.sentence, finding.repaired) == (f"its run {GONE} does not exist", True)
        assert REF not in main_checkout.refs()

    @pytest.mark.parametrize(
        ("text", "problem"),
        [
            ("", "does not point to a key"),
            ("version = 1", "does not point to a key"),
            (f'version = 1\nkey = 7\nrun = "{RUN}"', "does not point to a key"),
            (f'version = 1\nkey = "{KEY}"\nrun = "../../heads/main"', "does not point to a key"),
            (f'version = 1\nkey = "x"\nrun = "{RUN}"', "key: is not the one that the ref is named after"),
            (f'version = 1\nkey = ""\nrun = "{RUN}"', "key: is not the one that the ref is named after"),
            (f'version = 1\nkey = "{"x" * 1001}"\nrun = "{RUN}"', "key: is not the one that the ref is named after"),
            (f'version = 2\nkey = "{KEY}"\nrun = "{RUN}"', "version: written by a newer gitckpt"),
        ],
    )
    def test_what_is_no_key_is_never_taken_for_one(self, plain: Store, main_checkout: Checkout, text: str, problem: str) -> None:
        put(main_checkout, text)
        [finding] = verification.verify(inside(plain)).findings
        assert (finding.code, finding.object, finding.sentence) == ("key-invalid", REF, problem)
        with pytest.raises(InvalidCheckpoint, match=problem):
            plain.run_of(KEY)
        before = main_checkout.refs()
        with pytest.raises(InvalidCheckpoint, match=problem):
            begin(plain)
        assert main_checkout.refs() == before

    def test_nor_is_what_is_no_blob(self, plain: Store, main_checkout: Checkout) -> None:
        main_checkout.git("update-ref", REF, "HEAD")
        assert codes(plain) == [("key-invalid", REF)]


def test_a_key_comes_along_with_a_clone(make_store: MakeStore, main_checkout: Checkout, make_checkout: object) -> None:
    begin(make_store(main_checkout))
    clone = make_checkout("clone")  # type: ignore[operator]
    clone.git("fetch", "--quiet", str(main_checkout.path), "refs/ckpt/*:refs/ckpt/*", "refs/checkpoints/*:refs/checkpoints/*")
    assert make_store(clone).run_of(KEY) == RUN
