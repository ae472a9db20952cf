"""Names of runs and checkpoints, and the candidates that an error lists."""

from __future__ import annotations

from pathlib import Path

import pytest

from gitckpt import AmbiguousError, NotFoundError, RepositoryError, Store, UsageError
from tests import planted
from tests.conftest import Checkout
from tests.planted import plant
from tests.store.conftest import ONE, TWO, nth
from tests.stores import forget_local, set_clock, set_ids

LIST = "list the checkpoints: git ckpt list"
MORE = "give more characters of the id"
FIRST, SECOND = "20270115-080001-add-login", "20270115-080002-add-logout"


@pytest.fixture
def runs(plain: Store) -> Store:
    """A store with two runs, each of one checkpoint: `ONE` and `TWO`."""
    for name in ("Add login", "Add logout"):
        plain.record("run-started", {}, start=name)
    return plain


def refused(call: object) -> tuple[type[Exception], str, str | None, list[str] | None]:
    """Return the error, its message and hint, and the candidates that it lists."""
    assert callable(call)
    with pytest.raises(NotFoundError) as caught:
        call()
    error = caught.value
    candidates = getattr(error, "candidates", None)
    names = candidates and [line.split("  ")[0] for line in candidates]
    return type(error), error.message, error.hint, names


class TestARun:
    """`find_run` takes a name where only a run can be meant."""

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            (FIRST, FIRST),
            (SECOND, SECOND),
            (FIRST[:-1] + "n", FIRST),
            ("20270115-080002", SECOND),
            ("20270115-080001-", FIRST),
        ],
    )
    def test_by_its_id_and_by_what_it_begins_with(
        self, runs: Store, text: str, expected: str
    ) -> None:
        assert runs.find_run(text) == expected

    def test_however_little_of_it_is_given(self, plain: Store) -> None:
        plain.record("run-started", {}, start="Add login")
        assert plain.find_run("2") == FIRST

    def test_a_whole_id_is_that_run_though_another_begins_with_it(self, plain: Store) -> None:
        set_clock(plain, lambda: 1_800_000_000_000_000)
        made = [str(plain.record("run-started", {}, start="same").run) for _ in range(2)]
        assert made == ["20270115-080000-same", "20270115-080000-same-2"]
        assert [plain.find_run(run) for run in made] == made

    def test_several_are_listed(self, runs: Store) -> None:
        said = refused(lambda: runs.find_run("2027"))
        assert said == (AmbiguousError, "2 ids begin with '2027'", MORE, [FIRST, SECOND])

    def test_at_most_ten_are_listed(self, plain: Store) -> None:
        made = [
            str(plain.record("run-started", {}, start=f"n{number}").run) for number in range(11)
        ]
        said = refused(lambda: plain.find_run("2027"))
        assert said == (AmbiguousError, "11 ids begin with '2027'", MORE, made[:10])

    @pytest.mark.parametrize(
        ("text", "hint"),
        [
            ("20270115-080001-add-logni", f"did you mean {FIRST}?"),
            ("nothing like it", "list the runs: git ckpt runs"),
            ("", "list the runs: git ckpt runs"),
            (ONE, "list the runs: git ckpt runs"),
            (f"{FIRST}-and-more", f"did you mean {FIRST}?"),
        ],
    )
    def test_none_is_said_with_what_may_have_been_meant(
        self, runs: Store, text: str, hint: str
    ) -> None:
        assert refused(lambda: runs.find_run(text)) == (
            NotFoundError,
            f"no run is named {text!r}",
            hint,
            None,
        )


class TestARunOrACheckpoint:
    """`run_named` returns the run, or None for a checkpoint or an unknown name."""

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            (FIRST, FIRST),
            ("20270115-080002", SECOND),
            (FIRST.upper(), None),
            (ONE, None),
            (ONE.upper(), None),
            (ONE[:12], None),
            (nth(9), None),
            ("nothing", None),
            ("", None),
            ("latest", None),
            ("HEAD", None),
        ],
    )
    def test_what_is_meant(self, runs: Store, text: str, expected: str | None) -> None:
        assert runs.run_named(text) == expected

    def test_a_text_is_asked_for(self, runs: Store) -> None:
        with pytest.raises(UsageError) as caught:
            runs.run_named(7)  # type: ignore[arg-type]
        assert caught.value.message == "id: must be a string, not 7"

    def test_both_are_listed_checkpoints_first(self, runs: Store) -> None:
        set_ids(runs, lambda: "20270115-0000-4000-8000-000000000009")
        made = runs.record("a-complete", {})
        said = refused(lambda: runs.run_named("20270115"))
        assert said == (
            AmbiguousError,
            "3 ids begin with '20270115'",
            MORE,
            [made.id, FIRST, SECOND],
        )
        assert runs.run_named("20270115-080001") == FIRST
        assert runs.run_named("20270115-0000-4") is None

    def test_less_than_four_characters_name_none(self, plain: Store) -> None:
        plain.record("run-started", {}, start="Add login")
        assert [plain.run_named(FIRST[:length]) for length in (1, 3, 4)] == [None, None, FIRST]


class TestLatest:
    """`latest` is the newest checkpoint, without safety checkpoints and foreign runs."""

    def test_a_checkpoint_of_safety_is_passed_over(self, plain: Store) -> None:
        made = plain.record("a-complete", {})
        for _ in range(21):  # more than are looked at first
            plain.record("safety-complete", {}, trigger="safety")
        assert plain.find("latest") == made.id

    def test_a_run_of_others_is_passed_over(self, runs: Store) -> None:
        forget_local(runs, SECOND)
        assert runs.find("latest") == ONE
        made = runs.record("beside", {})
        assert runs.find("latest") == made.id

    def test_where_there_are_no_others_it_says_so(self, runs: Store) -> None:
        for run in (FIRST, SECOND):
            forget_local(runs, run)
        message = "every checkpoint was fetched, or is a safety checkpoint of a restore"
        assert refused(lambda: runs.find("latest:any")) == (NotFoundError, message, LIST, None)

    def test_where_there_are_none_it_says_how_to_make_one(self, plain: Store) -> None:
        said = refused(lambda: plain.find("latest"))
        assert said == (
            NotFoundError,
            "there are no checkpoints yet",
            "save a checkpoint: git ckpt save",
            None,
        )


def test_latest_in_a_fresh_clone_is_of_no_run(
    plain: Store, main_checkout: Checkout, tmp_path: Path
) -> None:
    """In a fresh clone, `latest:any` finds the checkpoint outside of runs.

    A clone does not know what was written in it. A run continues only where it is named.
    """
    plain.record("plan-complete", {})
    run = plain.record("run-started", {}, start="Add login").run
    main_checkout.git("clone", "--quiet", "--mirror", ".", str(tmp_path / "clone"))
    with Store.open(tmp_path / "clone", adapter="plumbing") as store:
        assert (store.find("latest:any"), store.find(str(run))) == (ONE, TWO)


class TestACommit:
    """A commit names its newest checkpoint that is not a safety checkpoint."""

    def test_a_checkpoint_of_safety_is_passed_over(self, plain: Store) -> None:
        made = plain.record("a-complete", {})
        plain.record("safety-complete", {}, trigger="safety")
        assert plain.find("HEAD") == made.id

    def test_with_none_but_such_it_says_how_to_go_back(
        self, plain: Store, main_checkout: Checkout
    ) -> None:
        plain.record("safety-complete", {}, trigger="safety")
        message = (
            f"commit {main_checkout.head()[:10]} (HEAD) only has safety checkpoints of restores"
        )
        said = refused(lambda: plain.find("HEAD"))
        assert said == (
            NotFoundError,
            message,
            f"undo the last restore: git ckpt undo; or {LIST}",
            None,
        )


class TestNothing:
    """The error suggests names among the runs and the newest thousand checkpoints."""

    @pytest.mark.parametrize(
        ("text", "hint"),
        [
            ("20270115-080001-add-lgin", f"did you mean {FIRST}?"),
            ("latst", "did you mean latest?"),
            ("late", "did you mean latest?"),
            ("00000001-0001", f"did you mean {ONE}?"),
            (TWO[:-1] + "1", f"did you mean {TWO}?"),
            ("xyz", f"give at least 4 characters of an id, or {LIST}"),
            ("wxyz", LIST),
        ],
    )
    def test_is_said_with_what_may_have_been_meant(self, runs: Store, text: str, hint: str) -> None:
        said = refused(lambda: runs.find(text))
        assert said == (
            NotFoundError,
            f"no checkpoint, run or commit is named {text!r}",
            hint,
            None,
        )


class TestWithoutAListing:
    """A checkpoint is found though runs cannot be listed.

    It may be the broken one that the user wants to remove.
    """

    @pytest.mark.parametrize(
        "error",
        [RepositoryError("it cannot be read"), RecursionError("too deep")],
        ids=["ours", "Python's"],
    )
    def test_by_its_whole_id_and_by_a_prefix(
        self, runs: Store, monkeypatch: pytest.MonkeyPatch, error: Exception
    ) -> None:
        set_ids(runs, lambda: "20270115-0000-4000-8000-000000000009")
        made = runs.record("a-complete", {})

        def fail() -> list[str]:
            raise error

        plant(monkeypatch, planted.LIST_RUNS_OF_INDEX, lambda _: fail())
        texts = (made.id, made.id.upper(), "20270115")
        assert [runs.find(text) for text in texts] == [made.id] * 3
        assert [runs.run_named(text) for text in texts] == [None] * 3


@pytest.mark.parametrize("end", ["\u2028", "\x85"], ids=ascii)
def test_a_ref_of_others_with_an_end_of_a_line_in_its_name_names_none_of_ours(
    plain: Store, main_checkout: Checkout, end: str
) -> None:
    made = plain.record("a-complete", {})
    main_checkout.git(
        "update-ref", f"refs/checkpoints/abcd{end}{made.id}", f"refs/checkpoints/{made.id}"
    )
    assert refused(lambda: plain.find("abcd")) == (
        NotFoundError,
        "no checkpoint, run or commit is named 'abcd'",
        LIST,
        None,
    )
    assert plain.find(made.id[:8]) == made.id
