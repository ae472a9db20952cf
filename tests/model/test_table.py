"""The reader of a table checks types and reports unread keys."""

from __future__ import annotations

import pytest

from gitckpt import InvalidCheckpoint
from gitckpt.model.table import TableReader, short_repr

VALUES = {
    "yes": True,
    "no": False,
    "word": "x",
    "number": 1,
    "words": ["a", "b"],
    "map": {"k": "v"},
    "at": "2026-11-21T20:15:00Z",
}


def test_what_is_there_is_returned_and_what_is_not_is_nothing() -> None:
    take = TableReader(VALUES, "refs/x")
    assert (take.flag("yes"), take.flag("no"), take.flag("no", default=True)) == (
        True,
        False,
        False,
    )
    assert (take.flag("none"), take.flag("none", default=True)) == (False, True)
    assert (take.value("word", str, 7), take.value("none", str, 7)) == ("x", 7)
    assert (take.optional("number", int), take.optional("none", int)) == (1, None)
    assert (take.texts("words"), take.texts("none")) == (("a", "b"), ())
    assert (take.map("map"), take.map("none")) == ({"k": "v"}, {})
    assert (take.instant("at"), take.instant("none")) == ("2026-11-21T20:15:00Z", None)


def test_the_rest_is_what_nobody_asked_for() -> None:
    take = TableReader(VALUES, "refs/x")
    take.flag("yes")
    take.map("map")
    take.texts("none")
    assert take.unknown == {
        key: value for key, value in VALUES.items() if key not in ("yes", "map")
    }


@pytest.mark.parametrize(
    ("method", "values", "field", "problem"),
    [
        ("flag", {"key": 1}, "key", "must be a boolean, not 1"),
        ("texts", {"key": "x"}, "key", "must be an array, not 'x'"),
        ("texts", {"key": ["x", 1]}, "key[1]", "must be a string, not 1"),
        ("map", {"key": []}, "key", "must be a table, not []"),
        ("map", {"key": {"a": "x", "b": 1}}, "key.b", "must be a string, not 1"),
        ("instant", {"key": 1}, "key", "must be a string, not 1"),
        ("instant", {"key": "noon"}, "key", "no UTC offset, neither Z nor ±hh:mm: 'noon'"),
    ],
)
def test_what_is_of_another_type_is_refused(
    method: str, values: dict[str, object], field: str, problem: str
) -> None:
    with pytest.raises(InvalidCheckpoint) as caught:
        getattr(TableReader(values, "refs/x", "inner."), method)("key")
    assert (caught.value.ref, caught.value.field, caught.value.problem) == (
        "refs/x",
        f"inner.{field}",
        problem,
    )


def test_a_value_is_shown_cut_to_sixty_characters_or_as_many_as_asked_for() -> None:
    assert short_repr("x" * 100) == f"'{'x' * 59}"
    assert short_repr("x" * 100, 10) == f"'{'x' * 9}"
    assert short_repr(16**5000) == "an integer of thousands of digits"
