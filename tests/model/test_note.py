"""The note of a commit has a line for each checkpoint beside other text."""

from __future__ import annotations

import pytest

from gitckpt.model.note import (
    MORE,
    format_note_line,
    leading_id,
    note_omits_older,
    update_note,
)


def link(number: int, phase: str = "a-complete") -> str:
    return format_note_line(
        f"{number:08x}-0000-4000-8000-000000000000", phase, f"2027-01-15T08:00:{number:02}.000000Z"
    )


def test_a_line_links_a_checkpoint() -> None:
    line = format_note_line("an-id", "write  the\ttests-complete", "2026-11-21T20:15:00Z")
    assert (line, leading_id(line)) == (
        "an-id write the tests-complete 2026-11-21T20:15:00Z",
        "an-id",
    )


def test_control_characters_are_escaped() -> None:
    line = format_note_line(
        "an-id", "\x1b[31mred\x07\u202egr\u00f6\u00dfe\x9b-complete", "2026-11-21T20:15:00Z"
    )
    assert (
        line == "an-id \\x1b[31mred\\x07\\u202egr\u00f6\u00dfe\\x9b-complete 2026-11-21T20:15:00Z"
    )


def test_new_links_come_last_and_once() -> None:
    lines = [link(2), "by hand", link(1)]
    assert update_note(lines, [link(3), link(1), link(3)], ()) == [
        link(2),
        "by hand",
        link(1),
        link(3),
    ]
    assert update_note([], [link(1), link(2)], ()) == [link(1), link(2)]


def test_a_link_that_says_something_else_is_replaced_in_its_place() -> None:
    assert update_note([link(1, "old-complete"), "by hand"], [link(1)], ()) == [link(1), "by hand"]


def test_links_that_git_has_joined_are_listed_once() -> None:
    assert update_note([link(1), link(2), "by hand", link(1), "by hand"], [], ()) == [
        link(1),
        link(2),
        "by hand",
        "by hand",
    ]


def test_what_is_gone_is_not_listed() -> None:
    assert update_note(["", link(1), link(2)], [], {leading_id(link(1))}) == ["", link(2)]
    assert update_note(["", link(1)], [], {leading_id(link(1))}) == []


@pytest.mark.parametrize("line", ["and 3 more", "reviewed", "00000001-0000", "  indented", ""])
def test_what_people_write_is_theirs(line: str) -> None:
    assert update_note([line, link(1)], [], {leading_id(link(1)), line}) == ([line] if line else [])


def test_the_newest_twenty_are_listed_and_that_there_are_more() -> None:
    lines = update_note(["by hand"], [link(number) for number in reversed(range(20))], ())
    assert (len(lines), note_omits_older(lines)) == (21, False)
    lines = update_note(lines, [link(21), link(20)], ())
    assert lines == [
        "by hand",
        *(link(number) for number in (*reversed(range(2, 20)), 21, 20)),
        MORE,
    ]
    assert update_note(lines, [link(1), link(20)], ()) == lines
    fewer = update_note(lines, [], {leading_id(link(number)) for number in range(5, 22)})
    assert fewer == ["by hand", link(4), link(3), link(2), MORE]
    assert update_note(fewer, [], {leading_id(link(number)) for number in range(5)}) == ["by hand"]
    assert update_note([link(2), MORE, MORE, link(1)], [], ()) == [link(2), link(1), MORE]
