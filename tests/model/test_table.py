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
    assert (take.read_flag("yes"), take.read_flag("no"), take.read_flag("no", default=True)) == (
        True,
        False,
        False,
    )
    assert (take.read_flag("none"), take.read_flag("none", default=True)) == (False, True)
    assert (take.read_value("word", str, 7), take.read_value("none", str, 7)) == ("x", 7)
    assert (take.read_optional("number", int), take.read_optional("none", int)) == (1, None)
    assert (take.read_texts("words"), take.read_texts("none")) == (("a", "b"), ())
    assert (take.read_text_map("map"), take.read_text_map("none")) == ({"k": "v"}, {})
    assert (take.read_timestamp("at"), take.read_timestamp("none")) == (
        "2026-11-21T20:15:00Z",
        None,
    )


def test_the_rest_is_what_nobody_asked_for() -> None:
    take = TableReader(VALUES, "refs/x")
    take.read_flag("yes")
    take.read_text_map("map")
    take.read_texts("none")
    assert take.unread_values == {
        key: value for key, value in VALUES.items() if key not in ("yes", "map")
    }


@pytest.mark.parametrize(
    ("method", "values", "field", "problem"),
    [
        ("read_flag", {"key": 1}, "key", "must be a boolean, not 1"),
        ("read_texts", {"key": "x"}, "key", "must be an array, not 'x'"),
        ("read_texts", {"key": ["x", 1]}, "key[1]", "must be a string, not 1"),
        ("read_text_map", {"key": []}, "key", "must be a table, not []"),
        ("read_text_map", {"key": {"a": "x", "b": 1}}, "key.b", "must be a string, not 1"),
        ("read_timestamp", {"key": 1}, "key", "must be a string, not 1"),
        ("read_timestamp", {"key": "noon"}, "key", "no UTC offset, neither Z nor ±hh:mm: 'noon'"),
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
