"""Keys: each key has one run, even after races and kills."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection

import pytest

from gitckpt import InvalidCheckpoint, Policy, RunExists, Store, UsageError
from gitckpt.git.refs import RefUpdate
from gitckpt.store.records import keys
from gitckpt.store.store import checkpoints_of_store
from tests import forked
from tests.conftest import Checkout
from tests.store.conftest import RUN, MakeStore
from tests.stores import head_of, open_store

KEY = "nightly 2026-11-22 / Zürich"
REF = f"refs/ckpt/keys/{hashlib.sha256(KEY.encode()).hexdigest()}"
GONE = "20270101-000000-gone"


def begin(store: Store, name: str = "Add login!", key: str = KEY) -> str:
    return str(store.record("run-started", {}, start=name, key=key, trigger="phase").run)


def codes(store: Store) -> list[tuple[str, str]]:
    store.links(checkpoints_of_store(store).objects.read_head()[0])  # writes what it put off itself
    return [(finding.code, finding.object) for finding in store.verify().findings]


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
        assert (caught.value.message, caught.value.run) == (
            f"the run with the key {KEY!r} exists: {RUN}",
            RUN,
        )
        assert caught.value.hint == f"continue that run: git ckpt resume {RUN}"
        assert checkout.refs() == before

    def test_other_keys_are_other_runs(self, plain: Store) -> None:
        runs = {
            key: begin(plain, key=key)
            for key in (
                KEY,
                f"{KEY} ",
                "nightly",
                "NIGHTLY",
                "a/b",
                "../..",
                "x" * 1000,
                "\n\x00.lock",
            )
        }
        assert {key: plain.run_of(key) for key in runs} == runs
        assert len(set(runs.values())) == len(runs)
        assert codes(plain) == []

    @pytest.mark.parametrize("key", ["", " \n", "x" * 1001, "\ud800", 7, None])
    def test_what_is_no_key_is_refused(
        self, plain: Store, main_checkout: Checkout, key: str
    ) -> None:
        with pytest.raises(UsageError, match=r"is not a valid key|contains a lone surrogate"):
            plain.run_of(key)
        if key is not None:
            with pytest.raises(
                UsageError,
                match=r"is not a valid key|contains a lone surrogate|key: must be a string",
            ):
                begin(plain, key=key)
        assert main_checkout.refs("refs/ckpt", "refs/checkpoints") == {}

    def test_a_key_is_for_a_run_that_starts(self, plain: Store) -> None:
        with pytest.raises(UsageError, match=r"^only a new run takes a key$"):
            plain.record("a-complete", {}, key=KEY)


def race(path: str, number: int) -> tuple[str, bool]:
    """Return the run that has the key, and whether this process started it."""
    with open_store(path, adapter=("plumbing", "libgit2")[number % 2]) as store:
        try:
            return begin(store, f"racer {number % 3}"), True
        except RunExists as error:
            return error.run, False


@pytest.mark.long
def test_eight_processes_start_one_run(main_checkout: Checkout, plain: Store) -> None:
    found = forked.together(
        *((race, (str(main_checkout.path), number)) for number in range(24)), processes=8
    )
    [run] = {run for run, _ in found}
    assert [has_begun for _, has_begun in found].count(True) == 1
    assert (plain.run_of(KEY), [summary.run for summary in plain.runs()], len(plain.list())) == (
        run,
        [run],
        1,
    )
    assert codes(plain) == []


class TestAfterAKill:
    def test_a_key_that_landed_without_its_run_goes_to_the_next_one(
        self, plain: Store, main_checkout: Checkout
    ) -> None:
        put(main_checkout, f'version = 1\nkey = "{KEY}"\nrun = "{GONE}"\n')
        assert plain.run_of(KEY) is None
        assert begin(plain) == RUN
        assert plain.run_of(KEY) == RUN

    def test_also_where_the_run_would_get_the_same_name(
        self, plain: Store, main_checkout: Checkout
    ) -> None:
        put(main_checkout, f'version = 1\nkey = "{KEY}"\nrun = "{RUN}"\n')
        assert begin(plain) == RUN

    def test_a_run_that_landed_without_its_head_keeps_its_key(
        self, plain: Store, main_checkout: Checkout
    ) -> None:
        begin(plain)
        main_checkout.git("update-ref", "-d", f"refs/ckpt/runs/{RUN}")
        with pytest.raises(RunExists):
            begin(plain)
        assert plain.run_of(KEY) == RUN
        assert f"refs/ckpt/runs/{RUN}" in main_checkout.refs()

    def test_what_is_being_started_is_waited_for(
        self, plain: Store, main_checkout: Checkout, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(
            "gitckpt.git.refs.LOCK_TIMEOUT_MS", 20
        )  # sooner than it could be taken for one that a kill left
        put(main_checkout, f'version = 1\nkey = "{KEY}"\nrun = "{GONE}"\n')
        lock = main_checkout.write(f".git/refs/ckpt/runs/{GONE}.lock", "")
        with pytest.raises(Exception, match=f"another process holds .*{GONE}.lock"):
            begin(plain)
        lock.unlink()
        assert begin(plain).startswith("20270115-")


class TestTheEnd:
    def test_the_key_goes_with_its_run_and_can_be_used_again(
        self, plain: Store, main_checkout: Checkout
    ) -> None:
        begin(plain)
        other = begin(plain, key="another")
        second = plain.record("a-complete", {}, run=RUN)
        assert plain.remove([second.id]) == 1
        assert plain.run_of(KEY) == RUN
        assert plain.remove([head_of(plain, RUN).id]) == 1
        assert plain.run_of(KEY) is None
        assert REF not in main_checkout.refs()
        assert plain.run_of("another") == other
        assert begin(plain, "again") != RUN

    def test_the_key_goes_when_its_run_expires(self, plain: Store, main_checkout: Checkout) -> None:
        begin(plain)
        plain.record("run-complete", {}, run=RUN, trigger="phase")
        plain.expire(Policy(runs_older_than=0))
        assert main_checkout.refs("refs/ckpt", "refs/checkpoints") == {}

    def test_expiry_takes_the_keys_that_kills_left(
        self, plain: Store, main_checkout: Checkout
    ) -> None:
        begin(plain)
        put(
            main_checkout,
            f'version = 1\nkey = "old"\nrun = "{GONE}"\n',
            f"refs/ckpt/keys/{hashlib.sha256(b'old').hexdigest()}",
        )
        put(main_checkout, "something else", "refs/ckpt/keys/something-else")
        plain.expire(Policy())
        assert set(main_checkout.refs("refs/ckpt/keys")) == {REF, "refs/ckpt/keys/something-else"}


class TestVerify:
    def test_a_key_of_no_run_is_found_and_mended(
        self, plain: Store, main_checkout: Checkout
    ) -> None:
        put(main_checkout, f'version = 1\nkey = "{KEY}"\nrun = "{GONE}"\n')
        assert codes(plain) == []  # it may belong to a run that is being started
        os.utime(main_checkout.path / ".git" / REF, (0, 0))
        assert codes(plain) == [("key-orphan", REF)]
        [finding] = plain.verify(repair=True).findings
        assert (finding.sentence, finding.repaired) == (
            f"the run {GONE} of this key does not exist",
            True,
        )
        assert REF not in main_checkout.refs()

    @pytest.mark.sampled(2)
    @pytest.mark.parametrize(
        ("text", "problem"),
        [
            ("", "does not point to the document of a key"),
            ("version = 1", "does not point to the document of a key"),
            (f'version = 1\nkey = 7\nrun = "{RUN}"', "does not point to the document of a key"),
            (
                f'version = 1\nkey = "{KEY}"\nrun = "../../heads/main"',
                "does not point to the document of a key",
            ),
            (
                f'version = 1\nkey = "x"\nrun = "{RUN}"',
                "key: is not the key that the ref is named after",
            ),
            (
                f'version = 1\nkey = ""\nrun = "{RUN}"',
                "key: is not the key that the ref is named after",
            ),
            (
                f'version = 1\nkey = "{"x" * 1001}"\nrun = "{RUN}"',
                "key: is not the key that the ref is named after",
            ),
            (f'version = 2\nkey = "{KEY}"\nrun = "{RUN}"', "version: written by a newer gitckpt"),
        ],
    )
    def test_what_is_no_key_is_never_taken_for_one(
        self, plain: Store, main_checkout: Checkout, text: str, problem: str
    ) -> None:
        put(main_checkout, text)
        [finding] = plain.verify().findings
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


class TestReading:
    """The ref of a key names its run, or is refused with the reason."""

    TEXT = f'version = 1\nkey = "{KEY}"\nrun = "{RUN}"'
    CURE = f"see the document: git cat-file -p {REF}; delete the key: git update-ref -d {REF}"
    UPGRADE = "upgrade gitckpt: pip install -U gitckpt"

    def test_what_is_written_is_read(self) -> None:
        assert keys.parse_run(("blob", keys.render_key_document(KEY, RUN)), REF) == RUN

    @pytest.mark.parametrize(
        ("found", "field", "problem", "hint"),
        [
            (None, "", "does not point to the document of a key", CURE),
            (("tree", TEXT.encode()), "", "does not point to the document of a key", CURE),
            (("blob", b""), "", "does not point to the document of a key", CURE),
            (
                ("blob", b"\xff"),
                "",
                "not a key: 'utf-8' codec can't decode byte 0xff in position 0: invalid start byte",
                CURE,
            ),
            (("blob", b"= 1"), "", "not a key: Invalid statement (at line 1, column 1)", CURE),
            (
                ("blob", TEXT.replace("1", "true", 1).encode()),
                "",
                "does not point to the document of a key",
                CURE,
            ),
            (
                ("blob", TEXT.replace("1", '"1"', 1).encode()),
                "",
                "does not point to the document of a key",
                CURE,
            ),
            (
                ("blob", TEXT.replace(f'"{KEY}"', "7").encode()),
                "",
                "does not point to the document of a key",
                CURE,
            ),
            (
                ("blob", TEXT.replace(f'"{RUN}"', "7").encode()),
                "",
                "does not point to the document of a key",
                CURE,
            ),
            (
                ("blob", TEXT.replace(RUN, "no run").encode()),
                "",
                "does not point to the document of a key",
                CURE,
            ),
            (
                ("blob", TEXT.replace(KEY, "another").encode()),
                "key",
                "is not the key that the ref is named after",
                CURE,
            ),
            (
                ("blob", TEXT.replace(KEY, " ").encode()),
                "key",
                "is not the key that the ref is named after",
                CURE,
            ),
            (
                ("blob", TEXT.replace("1", "2", 1).encode()),
                "version",
                "written by a newer gitckpt",
                UPGRADE,
            ),
            (("blob", b"version = 2"), "version", "written by a newer gitckpt", UPGRADE),
        ],
    )
    def test_what_is_no_key(
        self, found: tuple[str, bytes] | None, field: str, problem: str, hint: str
    ) -> None:
        with pytest.raises(InvalidCheckpoint) as caught:
            keys.parse_run(found, REF)
        said = caught.value
        assert (said.ref, said.field, said.problem, said.hint) == (REF, field, problem, hint)

    def test_an_older_version_is_one(self) -> None:
        assert keys.parse_run(("blob", self.TEXT.replace("1", "0", 1).encode()), REF) == RUN

    @pytest.mark.parametrize(
        ("key", "message", "hint"),
        [
            (
                "",
                "'' is not a valid key",
                "give a text of 1 to 1000 characters, such as nightly-2026-11-22",
            ),
            (
                "x" * 1001,
                f"'{'x' * 59} is not a valid key",
                "give a text of 1 to 1000 characters, such as nightly-2026-11-22",
            ),
            (
                "\ud800",
                "the key '\\ud800' contains a lone surrogate",
                "give a text that UTF-8 can encode",
            ),
        ],
    )
    def test_what_cannot_be_one_says_why(self, key: str, message: str, hint: str) -> None:
        with pytest.raises(UsageError) as caught:
            keys.name_key_ref(key)
        assert (caught.value.message, caught.value.hint) == (message, hint)


def written(updates: list[RefUpdate]) -> list[tuple[str, str, str | None]]:
    return [(update.ref, update.new, update.old) for update in updates]


class TestClaim:
    """A claim adds the updates that give a key to a run."""

    def claim(self, store: Store, there: Collection[str] = ()) -> keys.KeyClaim:
        inner = checkpoints_of_store(store)
        return keys.KeyClaim(KEY, inner.refs, inner.objects, "sha1", there.__contains__)

    def test_of_one_that_nobody_has_had(self, plain: Store, main_checkout: Checkout) -> None:
        claim = self.claim(plain, [RUN])
        assert (claim.read_run_and_oid(), claim.existing_run()) == (None, None)
        claim.require_key_unused()
        [(ref, new, old)] = written(claim.make_key_updates(RUN))
        assert (ref, old, main_checkout.blobs(new)) == (
            REF,
            "",
            [keys.render_key_document(KEY, RUN)],
        )

    def test_of_one_whose_run_never_began(self, plain: Store, main_checkout: Checkout) -> None:
        put(main_checkout, keys.render_key_document(KEY, GONE).decode())
        held = main_checkout.refs(REF)[REF]
        claim = self.claim(plain, [RUN])
        assert (claim.read_run_and_oid(), claim.existing_run()) == ((GONE, held), None)
        claim.require_key_unused()
        absent, (ref, new, old) = written(claim.make_key_updates(RUN))
        assert absent == (f"refs/ckpt/runs/{GONE}", "", "")
        assert (ref, old, main_checkout.blobs(new)) == (
            REF,
            held,
            [keys.render_key_document(KEY, RUN)],
        )

    def test_of_one_that_names_the_run_itself(self, plain: Store, main_checkout: Checkout) -> None:
        put(main_checkout, keys.render_key_document(KEY, RUN).decode())
        held = main_checkout.refs(REF)[REF]
        assert written(self.claim(plain).make_key_updates(RUN)) == [(REF, held, held)]

    def test_of_one_that_a_run_has(self, plain: Store, main_checkout: Checkout) -> None:
        put(main_checkout, keys.render_key_document(KEY, GONE).decode())
        claim = self.claim(plain, [GONE])
        assert claim.existing_run() == GONE
        for call in (claim.require_key_unused, lambda: claim.make_key_updates(RUN)):
            with pytest.raises(RunExists) as caught:
                call()
            said = caught.value
            assert (said.run, said.message) == (
                GONE,
                f"the run with the key {KEY!r} exists: {GONE}",
            )
            assert said.hint == f"continue that run: git ckpt resume {GONE}"


class TestOfRunsThatGo:
    def everything(self, checkout: Checkout) -> dict[str, str]:
        """Give keys to two runs, with unreadable refs between; return the refs by run."""
        refs = {}
        for key, run in (("one", RUN), ("other", GONE)):
            refs[run] = f"refs/ckpt/keys/{hashlib.sha256(key.encode()).hexdigest()}"
            put(checkout, keys.render_key_document(key, run).decode(), refs[run])
        put(checkout, "no key", "refs/ckpt/keys/8")
        checkout.git("update-ref", os.fsdecode(b"refs/ckpt/keys/\xe9"), "HEAD")
        checkout.git("update-ref", "refs/ckpt/keys-of-others/x", "HEAD")
        return refs

    def test_theirs_are_deleted_and_no_others(self, plain: Store, main_checkout: Checkout) -> None:
        refs = self.everything(main_checkout)
        oids = main_checkout.refs("refs/ckpt/keys")
        inner = checkpoints_of_store(plain)
        assert written(
            keys.list_key_deletions(inner.refs, inner.objects, [RUN, "20270101-000000-without"])
        ) == [(refs[RUN], "", oids[refs[RUN]])]
        assert keys.list_key_deletions(inner.refs, inner.objects, []) == []

    def test_those_without_a_run_are_forgotten(self, plain: Store, main_checkout: Checkout) -> None:
        refs = self.everything(main_checkout)
        before = main_checkout.refs()
        inner = checkpoints_of_store(plain)
        keys.delete_orphan_keys(inner.refs, inner.objects, lambda: [RUN])
        assert main_checkout.refs() == {
            ref: oid for ref, oid in before.items() if ref != refs[GONE]
        }

    def test_one_whose_run_has_just_begun_stays_and_the_others_go(
        self, plain: Store, main_checkout: Checkout
    ) -> None:
        refs = self.everything(main_checkout)
        main_checkout.git("update-ref", f"refs/ckpt/runs/{min(refs, key=refs.__getitem__)}", "HEAD")
        inner = checkpoints_of_store(plain)
        keys.delete_orphan_keys(inner.refs, inner.objects, list)
        assert set(main_checkout.refs("refs/ckpt/keys")) & set(refs.values()) == {
            min(refs.values())
        }

    def test_nobody_asks_for_the_runs_where_there_are_no_keys(self, plain: Store) -> None:
        inner = checkpoints_of_store(plain)
        keys.delete_orphan_keys(
            inner.refs, inner.objects, lambda: pytest.fail("the runs were asked for")
        )


def test_a_key_comes_along_with_a_clone(
    make_store: MakeStore, main_checkout: Checkout, make_checkout: object
) -> None:
    begin(make_store(main_checkout))
    clone = make_checkout("clone")  # type: ignore[operator]
    clone.git(
        "fetch",
        "--quiet",
        str(main_checkout.path),
        "refs/ckpt/*:refs/ckpt/*",
        "refs/checkpoints/*:refs/checkpoints/*",
    )
    assert make_store(clone).run_of(KEY) == RUN
