"""Names of checkpoints, and the errors for names that match none or several."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from gitckpt import AmbiguousError, NotFoundError, Store, UsageError
from tests.conftest import Checkout
from tests.store.conftest import MakeStore, nth
from tests.stores import set_clock, set_ids

LIST = "list the checkpoints: git ckpt list"
NONE_HERE = (
    "no checkpoint was made in this worktree",
    "use latest:any for the newest of all worktrees, or save one here: git ckpt save",
)


class Named:
    """A store with ids that a test chooses.

    Args:
        store: the store of the checkout.
        checkout: the checkout with the checkpoints.
    """

    def __init__(self, store: Store, checkout: Checkout) -> None:
        self.store = store
        self.checkout = checkout

    def make(self, id_: str, *, run: str | None = None, start: str | None = None) -> str:
        set_ids(self.store, lambda: id_)
        made = self.store.record("a-complete", {}, run=run, start=start)
        return made.run or ""

    def refused(self, text: str) -> tuple[str, str | None]:
        """Return message and hint, and assert that nothing changed."""
        before = self.checkout.fingerprint()
        with pytest.raises(NotFoundError) as caught:
            self.store.find(text)
        assert self.checkout.fingerprint() == before
        return caught.value.message, caught.value.hint


A = "abcd1111-0000-4000-8000-000000000001"
B = "abcd2222-0000-4000-8000-000000000002"
C = "12345678-0000-4000-8000-000000000003"


@pytest.fixture
def named(store: Store, checkout: Checkout) -> Named:
    return Named(store, checkout)


@pytest.fixture
def simple(plain: Store, main_checkout: Checkout) -> Named:
    return Named(plain, main_checkout)


def candidates_of(error: AmbiguousError) -> list[str]:
    """Return the ids that an error lists, without their ages and messages."""
    return [line.split("  ")[0] for line in error.candidates]


class TestIds:
    def test_whole_prefix_and_upper_case(self, named: Named) -> None:
        named.make(A)
        named.make(B)
        texts = [A, A.upper(), "abcd1", "ABCD1111-", "abcd1111-0000-4000-8"]
        assert [named.store.find(text) for text in texts] == [A] * 5
        assert named.store.find("abcd2") == B

    def test_several_are_listed(self, named: Named) -> None:
        for id_ in (A, B, C):
            named.make(id_)
        with pytest.raises(AmbiguousError) as caught:
            named.store.find("ABCD")
        assert (caught.value.message, candidates_of(caught.value)) == (
            "2 ids begin with 'ABCD'",
            [A, B],
        )
        assert caught.value.hint == "give more characters of the id"

    def test_at_most_ten_are_listed(self, plain: Store) -> None:
        for _ in range(12):
            plain.record("a-complete", {})
        with pytest.raises(AmbiguousError) as caught:
            plain.find("0000")
        assert caught.value.message == "12 ids begin with '0000'"
        assert candidates_of(caught.value) == [nth(number) for number in range(1, 11)]

    def test_too_short(self, simple: Named) -> None:
        simple.make(A)
        message = "no checkpoint, run or commit is named 'fff'"
        assert simple.refused("fff") == (message, f"give at least 4 characters of an id, or {LIST}")

    def test_too_short_but_near(self, simple: Named) -> None:
        simple.make(A)
        assert simple.refused("abc") == (
            "no checkpoint, run or commit is named 'abc'",
            f"did you mean {A}?",
        )

    def test_a_ref_that_is_no_uuid_is_not_one(self, simple: Named) -> None:
        simple.make(A)
        simple.checkout.git("update-ref", "refs/checkpoints/abcd", f"refs/checkpoints/{A}")
        assert simple.store.find("abcd") == A

    def test_packed_ones_too(self, simple: Named) -> None:
        simple.make(A)
        simple.checkout.git("pack-refs", "--all")
        simple.make(B)
        assert (simple.store.find("abcd1"), simple.store.find(B)) == (A, B)

    def test_a_whole_one_is_not_searched_for(
        self, simple: Named, make_store: MakeStore, sealed: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        simple.make(A)
        loose, packed = make_store(simple.checkout), make_store(simple.checkout)
        trace = sealed / "trace"
        monkeypatch.setenv("GIT_TRACE2_EVENT", str(trace))
        assert loose.find(A) == A
        assert not trace.exists()
        simple.checkout.git("pack-refs", "--all")
        assert packed.find(A) == A
        assert "for-each-ref" not in trace.read_text("utf-8")


def fetch(named: Named, of: str, other: str) -> None:
    """Add a checkpoint that was written elsewhere, dated years ahead."""
    said = named.store.raw(of).decode()
    stamp = said.partition('timestamp = "')[2].partition('"')[0]
    oid = named.checkout.git(
        "hash-object",
        "-w",
        "--stdin",
        data=said.replace(of, other).replace(stamp, "2099-01-01T00:00:00Z"),
    )
    named.checkout.git("update-ref", f"refs/checkpoints/{other}", oid)


class TestLatest:
    def test_the_newest(self, named: Named) -> None:
        for id_ in (C, A):
            named.make(id_)
        assert named.store.find("latest") == A

    def test_what_was_fetched_is_not_it_whatever_its_date(self, named: Named) -> None:
        named.make(A)
        fetch(named, A, C)
        assert [named.store.find(text) for text in ("latest", "HEAD", C)] == [A, A, C]
        assert named.store.list()[0].id == C

    def test_nor_where_its_own_has_no_commit(
        self, make_store: MakeStore, make_checkout: Callable[..., Checkout]
    ) -> None:
        checkout = make_checkout()
        named = Named(make_store(checkout), checkout)
        named.make(A)
        fetch(named, A, C)
        assert named.store.find("latest") == A
        named.store.remove([A])
        wrong = "every checkpoint was fetched, or is a safety checkpoint of a restore"
        assert named.refused("latest:any") == (wrong, LIST)

    def test_where_nobody_can_tell_the_newest(self, named: Named) -> None:
        named.make(A)
        fetch(named, A, C)
        shutil.rmtree(named.checkout.main / ".git/ckpt")
        assert (named.store.find("latest:any"), named.refused("latest")) == (C, NONE_HERE)
        named.make(B)
        assert named.store.find("latest") == B

    def test_none_yet(self, simple: Named) -> None:
        assert simple.refused("latest") == (
            "there are no checkpoints yet",
            "save a checkpoint: git ckpt save",
        )

    @pytest.mark.parametrize("text", ["", " ", "\n", "\t "])
    def test_nothing_is_no_name(self, simple: Named, text: str) -> None:
        simple.make(A)
        before = simple.checkout.fingerprint()
        with pytest.raises(UsageError) as caught:
            simple.store.find(text)
        assert (caught.value.message, caught.value.hint) == ("the id is empty", LIST)
        assert simple.checkout.fingerprint() == before


class TestRuns:
    def test_its_newest_by_sequence(self, named: Named) -> None:
        run = named.make(A, start="first")
        # The clock jumps back by years.
        set_clock(named.store, lambda: 1_700_000_000_000_000)
        named.make(B, run=run)
        assert [named.store.find(text) for text in (run, "20270115-080001", "2027")] == [B] * 3

    def test_several_are_listed(self, named: Named) -> None:
        runs = [named.make(A, start="first"), named.make(B, start="second")]
        with pytest.raises(AmbiguousError) as caught:
            named.store.find("20270115-08")
        assert (caught.value.message, candidates_of(caught.value)) == (
            "2 ids begin with '20270115-08'",
            runs,
        )

    def test_a_whole_id_wins_over_a_longer_one(self, named: Named) -> None:
        set_clock(named.store, lambda: 1_800_000_000_000_000)
        runs = [named.make(A, start="same"), named.make(B, start="same")]
        assert runs == ["20270115-080000-same", "20270115-080000-same-2"]
        assert [named.store.find(run) for run in runs] == [A, B]

    def test_a_misspelt_one(self, simple: Named) -> None:
        run = simple.make(A, start="add-login")
        message = "no checkpoint, run or commit is named '20270115-080001-add-logni'"
        assert simple.refused("20270115-080001-add-logni") == (message, f"did you mean {run}?")


class TestRevs:
    def test_the_newest_of_a_commit(self, named: Named) -> None:
        first = named.checkout.git("rev-parse", "HEAD")
        named.make(A)
        named.make(B)
        second = named.checkout.commit("second")
        named.make(C)
        named.checkout.git("branch", "old", first)
        named.checkout.git("tag", "-a", "v1", "-m", "one", first)
        olds = [
            named.store.find(text)
            for text in (
                "HEAD~1",
                "@~",
                "old",
                "refs/heads/old",
                "v1",
                first,
                first[:12],
                ":/first",
            )
        ]
        assert olds == [B] * 8
        assert [named.store.find(text) for text in ("HEAD", "@", second)] == [C] * 3

    def test_head_of_the_worktree_we_are_in(
        self, make_store: MakeStore, checkout: Checkout
    ) -> None:
        checkout.commit("only here")
        made = make_store(checkout).record("a-complete", {})
        assert make_store(checkout).find("HEAD") == made.id

    def test_a_commit_without_checkpoints(self, simple: Named) -> None:
        head = simple.checkout.git("rev-parse", "HEAD")
        assert simple.refused("HEAD") == (
            f"no checkpoint is linked to commit {head[:10]} (HEAD)",
            LIST,
        )

    def test_an_unborn_branch(
        self, make_store: MakeStore, make_checkout: Callable[..., Checkout]
    ) -> None:
        checkout = make_checkout()
        named = Named(make_store(checkout), checkout)
        assert named.refused("HEAD") == ("no checkpoint, run or commit is named 'HEAD'", LIST)


class TestPrecedence:
    def test_a_name_comes_before_a_rev_and_two_names_are_listed(self, simple: Named) -> None:
        head = simple.checkout.git("rev-parse", "HEAD")
        run = simple.make(A, start="first")
        simple.make(C)
        digits = "20270115-0000-4000-8000-000000000009"
        simple.checkout.git("branch", "1234", head)
        simple.checkout.git("branch", run, head)
        simple.checkout.git("branch", "latest", head)
        assert (
            simple.store.find("1234"),
            simple.store.find(run),
            simple.store.find("20270115"),
        ) == (C, A, A)
        simple.make(digits)
        assert simple.refused("20270115") == (
            "2 ids begin with '20270115'",
            "give more characters of the id",
        )
        assert (simple.store.find("20270115-0000"), simple.store.find(run)) == (digits, A)
        assert simple.store.find("refs/heads/1234") == digits
        assert simple.store.find("latest") == digits


HARMLESS = [
    *(
        "*",
        "????",
        "abcd*",
        "[a-z]bcd",
        "refs/*",
        "--all",
        "-x",
        "--help",
        "--output=x",
        "--",
        "..",
        "HEAD..",
        "^HEAD",
        "a\nb",
    ),
    *(
        "HEAD\n",
        "\n--all",
        "refs/checkpoints",
        "refs/checkpoints/",
        "$(touch x)",
        "`x`",
        "; rm -rf",
        "a b",
        "é",
        "\udcff",
        "\ud800",
    ),
    *("a\0b", "²²²²", "%(objectname)", "@{u}", "HEAD^{tree}", ":README", "0" * 40, "x" * 5000),
]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("text", HARMLESS, ids=ascii)
def test_what_is_no_name_is_harmless(simple: Named, text: str) -> None:
    simple.make(A)
    message, _ = simple.refused(text)
    assert message == f"no checkpoint, run or commit is named {text!r}"
    assert simple.store.find("abcd") == A


def test_a_ref_by_its_full_name_is_a_blob_and_no_rev(simple: Named) -> None:
    simple.make(A)
    assert simple.refused(f"refs/checkpoints/{A}") == (
        f"no checkpoint, run or commit is named 'refs/checkpoints/{A}'",
        f"did you mean {A}?",
    )


@pytest.mark.long
def test_unique_prefixes_are_as_short_as_can_be(main_checkout: Checkout) -> None:
    with Store.open(main_checkout.path) as store:
        names = [store.record("a-complete").id for _ in range(30)]
        names += [f"{names[0][:6]}{digit}{names[0][7:]}" for digit in "0123456789abcdef"]
        for name in dict.fromkeys(names[30:]):
            if name != names[0]:
                store.record("b-complete", id=name)
        prefixes = store.unique_prefixes(names)
        assert set(prefixes) == set(names)
        assert {len(prefixes[name]) for name in names[30:]} == {7}
        assert [store.find(prefix) for prefix in prefixes.values()] == list(prefixes)
