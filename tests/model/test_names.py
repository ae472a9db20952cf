"""Names that people type are matched, suggested and quoted."""

from __future__ import annotations

import pytest

from gitckpt.model import arguments


@pytest.mark.parametrize(
    "one", ["Write tests", "write-tests", "WRITE_TESTS", " write tests ", "write_Tests-"]
)
def test_names_are_compared_without_case_hyphens_and_underscores(one: str) -> None:
    assert arguments.normalize_name(one) == "write tests"


@pytest.mark.parametrize(("one", "other"), [("a b", "ab"), ("tests", "test"), ("a  b", "a b")])
def test_other_names_differ(one: str, other: str) -> None:
    assert arguments.normalize_name(one) != arguments.normalize_name(other)


@pytest.mark.parametrize(
    ("text", "known", "likeness", "meant"),
    [
        ("resarch", ["review", "research"], 0.6, "research"),
        ("research", ["research", "re-search"], 0.6, "research"),
        ("zzz", ["review", "research"], 0.6, None),
        ("abcd", ["abxx"], 0.6, None),
        ("abcd", ["abxx"], 0.5, "abxx"),
        ("abcd", [], 0.6, None),
        ("", ["abcd"], 0.6, None),
    ],
)
def test_the_closest_of_several(
    text: str, known: list[str], likeness: float, meant: str | None
) -> None:
    assert arguments.closest_word(text, known, likeness=likeness) == meant
    assert arguments.closest_word(text, iter(known), likeness=likeness) == meant


@pytest.mark.parametrize(
    ("number", "limit", "text"),
    [
        (0, 2, ""),
        (1, 2, "a"),
        (2, 2, "a, b"),
        (3, 2, "a, b and 1 more"),
        (5, 3, "a, b, c and 2 more"),
    ],
)
def test_the_first_of_many(number: int, limit: int, text: str) -> None:
    assert arguments.join_first("abcde"[:number], limit) == text


def test_five_are_shown_by_default() -> None:
    assert arguments.join_first("abcdefg") == "a, b, c, d, e and 2 more"


def test_six_tenths_must_be_the_same_by_default() -> None:
    assert arguments.closest_word("resarch", ["review", "research"]) == "research"
    assert (
        arguments.closest_word("abcde", ["abcxy"]),
        arguments.closest_word("abcd", ["abxx"]),
    ) == (
        "abcxy",
        None,
    )


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (b"a b", "a b"),
        ("é".encode(), "é"),
        (b'"', '"'),
        (b'a \\"~\x1f\x7f\xff', '"a \\134\\042~\\037\\177\\377"'),
    ],
)
def test_a_path_is_quoted_where_it_is_no_text(path: bytes, text: str) -> None:
    assert arguments.quote_path(path) == text


@pytest.mark.parametrize(
    ("word", "text"),
    [
        ("plain", "plain"),
        ("a b", "'a b'"),
        ("it's", "'it'\"'\"'s'"),
        ("é", "'é'"),
        ("a\nb", '"' + r"$(printf 'a\012b')" + '"'),
        ("a\n", "'a\n'"),
        ("'\\\x7f!%", '"' + r"$(printf '\047\134\177\041\045')" + '"'),
        ("\u2028\udcff", '"' + r"$(printf '\342\200\250\377')" + '"'),
    ],
)
def test_a_word_that_a_shell_reads_back(word: str, text: str) -> None:
    assert arguments.shell_quoted(word) == text
