"""What the note of a commit says: the newest lines, how many more, and of which other commits."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from gitckpt.model.format.note import MOST, Note, anew, commits, is_crowded, link_id, link_line, merged

COMMIT, OLD, OLDER = "c" * 40, "a" * 40, "b" * 40


def link(number: int) -> str:
    return f"{number:08x}-0000-4000-8000-000000000000 a phase-complete 2027-01-15T08:{number // 60:02}:{number % 60:02}.000000Z"


def links(*numbers: int) -> list[str]:
    return [link(number) for number in numbers]


def nowhere(_: Sequence[str]) -> list[str]:
    return []


def test_a_line_links_a_checkpoint() -> None:
    line = link_line("an-id", "write  the\ttests-complete", "2026-11-21T20:15:00Z")
    assert (line, link_id(line)) == ("an-id write the tests-complete 2026-11-21T20:15:00Z", "an-id")


def test_few_stand_as_they_came() -> None:
    lines = [link(2), "by hand", link(1)]
    assert merged(COMMIT, lines, links(3, 1), nowhere) == [link(2), "by hand", link(1), link(3)]
    assert not is_crowded(lines)


def test_of_many_the_newest_and_a_count() -> None:
    lines = merged(COMMIT, ["by hand", *links(*range(10))], links(*range(10, 30)), nowhere)
    assert lines == ["by hand", *links(*range(10, 30)), "and 10 more"]
    assert merged(COMMIT, lines, [link(30)], nowhere) == ["by hand", *links(*range(11, 31)), "and 11 more"]
    assert merged(COMMIT, lines, [link(29)], nowhere) is lines
    assert is_crowded(lines)


def test_that_is_left_out_at_once() -> None:
    lines = merged(COMMIT, links(*range(10, 30)), [link(1)], nowhere)
    assert lines == [*links(*range(10, 30)), "and 1 more"]


def test_the_commits_of_those_that_are_left_out() -> None:
    asked: list[Sequence[str]] = []

    def origins(names: Sequence[str]) -> list[str]:
        asked.append(names)
        return [OLD, COMMIT, ""]

    lines = merged(COMMIT, links(*range(MOST)), links(20, 21), origins)
    assert lines[-1] == f"and 2 more of {OLD}"
    assert asked == [[link(1)[:36], link(0)[:36]]]
    again = merged(COMMIT, lines, [link(22)], lambda _: [OLDER])
    assert again[-1] == f"and 3 more of {OLDER} {OLD}"
    assert commits(again, [COMMIT, ""]) == {COMMIT, OLD, OLDER}
    assert commits(links(1, 2), [OLD]) == set()


def test_that_git_has_joined() -> None:
    """`cat_sort_uniq`, as after an amend: sorted lines of both notes, with the last line of each."""
    joined = sorted([*links(*range(5, 25)), "and 5 more", *links(*range(40, 60)), f"and 7 more of {OLD}"])
    lines = merged(COMMIT, joined, [], nowhere)
    assert lines == [*links(*range(40, 60)), f"and 32 more of {OLD}"]


def test_of_two_last_lines_all_commits_are_named() -> None:
    note = Note([f"and 2 more of {OLD} {OLDER}", f"and 3 more of {OLDER} {'d' * 40}"])
    assert (note.left_out, note.commits) == (5, [OLD, OLDER, "d" * 40])
    assert [note.is_settled, Note([f"and 2 more of {OLD}"]).is_settled, Note([link(1)]).is_settled] == [False, True, True]


def test_the_newest_are_so_by_their_time() -> None:
    """Not by their ids, which are random, nor by their phases."""
    numbers = range(MOST + 2)
    lines = {number: f"{99 - number:08x}-0000-4000-8000-000000000000 {'zyx'[number % 3]} {link(number)[-27:]}" for number in numbers}
    made = merged(COMMIT, list(lines.values()), [], nowhere)
    assert made == [*list(lines.values())[2:], "and 2 more"]


def test_whose_own_commit_is_not_named() -> None:
    linked = [(link(number), COMMIT if number % 2 else OLD) for number in range(MOST + 2)]
    assert anew(COMMIT, [], linked)[-1] == f"and 2 more of {OLD}"
    assert anew(OLD, [], linked)[-1] == f"and 2 more of {COMMIT}"


def test_nobody_is_asked_for_commits_where_nothing_is_left_out() -> None:
    def origins(_: Sequence[str]) -> list[str]:
        raise AssertionError

    assert Note([link(2), link(1)]).lines(origins, COMMIT) == links(1, 2)


def test_it_names_a_hundred_commits_at_most() -> None:
    many = [f"{number:040x}" for number in range(150)]
    lines = merged(COMMIT, links(*range(MOST)), [link(20)], lambda _: many)
    assert Note(lines).commits == many[:100]


@pytest.mark.parametrize(
    "line",
    [
        "and more",
        "and x more",
        "and 3 others",
        "and 3 more or less",
        "and ٣ more",
        "and  3 more",
        f"and {'9' * 10} more",
        f"and {'9' * 5000} more",
        "And 3 more",
    ],
)
def test_what_people_write_is_theirs(line: str) -> None:
    assert (Note([line]).others, Note([line]).left_out) == ([line], 0)


def test_made_anew() -> None:
    lines = ["by hand", *links(*range(20)), f"and 90 more of {OLDER}"]
    linked = [(link(number), OLD if number < 5 else COMMIT) for number in range(25)]
    assert anew(COMMIT, lines, linked) == ["by hand", *links(*range(5, 25)), f"and 5 more of {OLD}"]
    assert anew(COMMIT, lines, linked[:7]) == ["by hand", *links(*range(7))]
    assert anew(COMMIT, lines, []) == ["by hand"]
