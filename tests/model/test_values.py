"""Value classes behave like dataclasses, for programs and for people."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gitckpt import Policy
from gitckpt.model import values
from tests.conftest import examples


@values.dataclass(frozen=True, slots=True)
class Ours:
    a: int
    b: str = "b"
    c: list[int] = values.field(default_factory=list)
    d: float | None = values.field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if self.a == 13:
            raise ValueError("thirteen")


@dataclasses.dataclass(frozen=True, slots=True)
class Theirs:
    a: int
    b: str = "b"
    c: list[int] = dataclasses.field(default_factory=list)
    d: float | None = dataclasses.field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if self.a == 13:
            raise ValueError("thirteen")


@values.dataclass(slots=True)
class Changing:
    a: int = 0
    b: list[int] = values.field(default_factory=list)


ARGUMENTS = st.tuples(
    st.lists(st.integers(0, 20), max_size=5),
    st.dictionaries(st.sampled_from(["a", "b", "c", "d", "e", "self"]), st.integers(0, 20)),
)


def _outcome(cls: type[Any], args: list[int], kwargs: dict[str, int]) -> object:
    try:
        made = cls(*args, **kwargs)
    except (TypeError, ValueError) as error:
        return type(error)
    return repr(made).replace("Theirs", "Ours"), [getattr(made, name) for name in "abcd"]


@settings(max_examples=examples(300), deadline=None, database=None)
@given(ARGUMENTS)
def test_whatever_is_handed_in_is_taken_or_refused_alike(
    arguments: tuple[list[int], dict[str, int]],
) -> None:
    assert _outcome(Ours, *arguments) == _outcome(Theirs, *arguments)


@settings(deadline=None, database=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.sampled_from("xy"), st.floats(0, 1)), min_size=2, max_size=2
    )
)
def test_two_are_equal_where_dataclasses_are(pair: list[tuple[int, str, float]]) -> None:
    ours: list[Any]
    theirs: list[Any]
    ours, theirs = ([cls(a, b, (), d) for a, b, d in pair] for cls in (Ours, Theirs))  # type: ignore[arg-type]
    assert (ours[0] == ours[1], ours[0] == object()) == (
        theirs[0] == theirs[1],
        theirs[0] == object(),
    )
    assert (hash(ours[0]) == hash(ours[1])) == (hash(theirs[0]) == hash(theirs[1]))


@pytest.mark.parametrize(
    ("args", "kwargs", "problem"),
    [
        ((), {}, r"Ours\(\): missing a required argument: 'a'"),
        ((1, 2, 3, 4, 5), {}, r"Ours\(\): too many positional arguments"),
        ((1,), {"a": 2}, r"Ours\(\): multiple values for argument 'a'"),
        ((1,), {"e": 2}, r"Ours\(\): got an unexpected keyword argument 'e'"),
    ],
)
def test_a_call_that_does_not_fit_is_told_why(
    args: tuple[int, ...], kwargs: dict[str, int], problem: str
) -> None:
    with pytest.raises(TypeError, match=f"^{problem}$"):
        Ours(*args, **kwargs)  # type: ignore[arg-type]


def test_a_frozen_value_cannot_be_changed_and_has_no_dictionary() -> None:
    value = Ours(1)
    with pytest.raises(dataclasses.FrozenInstanceError, match=r"^cannot assign to field 'a'$"):
        value.a = 2  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError, match=r"^cannot assign to field 'other'$"):
        value.other = 2  # type: ignore[attr-defined]
    with pytest.raises(dataclasses.FrozenInstanceError, match=r"^cannot delete field 'a'$"):
        del value.a
    assert (value, hasattr(value, "__dict__")) == (Ours(1), False)


def test_what_a_subclass_adds_is_its_own() -> None:
    class More(Ours):
        pass

    more: Any = More(1)
    more.extra = 2
    with pytest.raises(dataclasses.FrozenInstanceError):
        more.a = 2
    assert (more.extra, more.a, more == Ours(1)) == (2, 1, False)


def test_a_value_that_may_change_does_and_has_no_hash() -> None:
    value, other = Changing(), Changing()
    value.a = 2
    value.b.append(1)
    assert (value, other) == (Changing(2, [1]), Changing())
    with pytest.raises(TypeError, match="unhashable"):
        hash(value)


def test_values_are_copied_pickled_and_replaced() -> None:
    value = Policy(keep_last=3)
    assert [copy.copy(value), copy.deepcopy(value), pickle.loads(pickle.dumps(value))] == [
        value
    ] * 3
    changing = Changing(1, [2])
    assert [copy.deepcopy(changing), pickle.loads(pickle.dumps(changing))] == [changing] * 2
    assert (
        values.replace(value, keep_last=4)
        == dataclasses.replace(value, keep_last=4)
        == Policy(keep_last=4)
    )
    with pytest.raises(TypeError, match="unexpected keyword argument"):
        values.replace(value, other=1)  # type: ignore[call-arg]
    with pytest.raises(ValueError, match=r"^thirteen$"):
        values.replace(Ours(1), a=13)


def test_what_copy_replace_calls_works() -> None:
    """`copy.replace`, new in Python 3.13, calls `__replace__`."""
    value: Any = Ours(1)
    assert value.__replace__(a=2) == Ours(2)


def test_programs_that_ask_for_a_dataclass_find_one() -> None:
    assert dataclasses.is_dataclass(Ours)
    assert [
        (field.name, field.type, field.compare, field.repr) for field in dataclasses.fields(Ours)
    ] == [
        (field.name, field.type, field.compare, field.repr) for field in dataclasses.fields(Theirs)
    ]
    assert dataclasses.asdict(Ours(1, c=[2])) == {"a": 1, "b": "b", "c": [2], "d": None}
    assert dataclasses.astuple(Ours(1, c=[2])) == (1, "b", [2], None)
    assert inspect.signature(Ours) == inspect.signature(Theirs)
    match Ours(1, "x"):
        case Ours(a, b):
            assert (a, b) == (1, "x")


def test_what_the_library_could_do_and_this_cannot_is_refused() -> None:
    with pytest.raises(TypeError, match=r"a value class must have slots and no base class$"):

        @values.dataclass(frozen=True)
        class _Loose:
            a: int

    with pytest.raises(TypeError, match=r"a value class must have slots and no base class$"):

        @values.dataclass(slots=True)
        class _Derived(Changing):
            c: int = 0


def made_by(library: Any, *, frozen: bool) -> tuple[Any, Any]:
    """Return two classes: one with each kind of field, one with its own repr and eq."""

    @library.dataclass(frozen=frozen, slots=True)
    class Value:
        """A value."""

        a: int
        b: str = "b"
        c: list[int] = library.field(default_factory=list)
        d: float | None = library.field(default=None, compare=False)
        e: str = library.field(default="e", repr=False)

        def twice(self) -> int:
            return 2 * self.a

    @library.dataclass(frozen=frozen, slots=True)
    class Own:
        a: int

        def __repr__(self) -> str:
            return f"<{self.a}>"

        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 7

    return Value, Own


@pytest.mark.parametrize("frozen", [True, False])
def test_a_class_is_made_as_the_library_makes_it(frozen: bool) -> None:
    (ours, own), (theirs, their_own) = (
        made_by(values, frozen=frozen),
        made_by(dataclasses, frozen=frozen),
    )
    for name in (
        "__name__",
        "__qualname__",
        "__module__",
        "__doc__",
        "__slots__",
        "__match_args__",
        "__annotations__",
    ):
        assert getattr(ours, name) == getattr(theirs, name), name
    assert [
        (each.name, each.default, each.default_factory, each.compare, each.repr)
        for each in dataclasses.fields(ours)
    ] == [
        (each.name, each.default, each.default_factory, each.compare, each.repr)
        for each in dataclasses.fields(theirs)
    ]
    assert inspect.signature(ours) == inspect.signature(theirs)
    assert repr(ours.__dataclass_params__).replace("slots=False", "slots=True") == repr(
        theirs.__dataclass_params__
    )
    one, other = ours(1), theirs(1)
    assert (repr(one), one.twice(), one.e, one.d) == (repr(other), 2, "e", None)
    assert [one == ours(1, d=2.0), one == ours(1, e="x"), one == ours(2), one == other] == [
        True,
        False,
        False,
        False,
    ]
    assert one.__replace__(b="x") == ours(1, "x")
    assert [hasattr(one, "__dict__"), ours.__hash__ is None] == [False, not frozen]
    assert [repr(own(3)), own(3) == own(4), hash(own(3))] == [repr(their_own(3)), True, 7]
    assert [hasattr(each, "__setstate__") for each in (ours, theirs)] == [frozen] * 2
    if frozen:
        assert one.__getstate__() == other.__getstate__() == [1, "b", [], None, "e"]
        with pytest.raises(dataclasses.FrozenInstanceError):
            one.a = 2
        with pytest.raises(dataclasses.FrozenInstanceError):
            del one.a
    else:
        one.a = 2
        assert one == ours(2)
