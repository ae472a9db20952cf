"""Ids, prefixes, object ids, run ids and slugs are made and validated."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gitckpt import UsageError
from gitckpt.model import ids
from tests.conftest import examples

ID = "5f0c2c1e-8f0a-4e0b-9d57-3c4b0f3a9f11"
RUN = "20261121-201500-add-login"
quick = settings(max_examples=examples(150), deadline=None, database=None)


def test_new_ids_are_distinct_canonical_uuids_of_version_4() -> None:
    made = [ids.make_checkpoint_id() for _ in range(500)]
    assert len(set(made)) == 500
    for text in made:
        parsed = uuid.UUID(text)
        assert (str(parsed), parsed.version, parsed.variant) == (text, 4, uuid.RFC_4122)
        assert ids.is_checkpoint_id(text)


@pytest.mark.parametrize(
    ("random", "expected"),
    [
        (bytes(range(16)), "00010203-0405-4607-8809-0a0b0c0d0e0f"),
        (b"\0" * 16, "00000000-0000-4000-8000-000000000000"),
        (b"\xff" * 16, "ffffffff-ffff-4fff-bfff-ffffffffffff"),
    ],
)
def test_of_a_new_id_all_is_random_but_version_and_variant(
    random: bytes, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.urandom", lambda count: random[:count])
    assert ids.make_checkpoint_id() == expected


@quick
@given(st.uuids(version=4))
def test_every_uuid4_is_an_id_in_lower_case_only(made: uuid.UUID) -> None:
    text = str(made)
    assert ids.is_checkpoint_id(text)
    assert ids.is_checkpoint_id(text.upper()) == (text.upper() == text)


@pytest.mark.parametrize("variant", "89ab")
def test_every_variant_of_rfc_9562_is_an_id(variant: str) -> None:
    assert ids.is_checkpoint_id(f"5f0c2c1e-8f0a-4e0b-{variant}d57-3c4b0f3a9f11")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "latest",
        ID[:-1],
        ID + "0",
        ID + "\n",
        ID.upper(),
        ID.replace("-", ""),
        f"{{{ID}}}",
        f"urn:uuid:{ID}",
        "5f0c2c1e-8f0a-1e0b-9d57-3c4b0f3a9f11",  # version 1
        "5f0c2c1e-8f0a-7e0b-9d57-3c4b0f3a9f11",  # version 7
        "5f0c2c1e-8f0a-4e0b-cd57-3c4b0f3a9f11",  # another variant
        "5f0c2c1e-8f0a-4e0b-0d57-3c4b0f3a9f11",
        "gf0c2c1e-8f0a-4e0b-9d57-3c4b0f3a9f11",  # not hex
        "٥f0c2c1e-8f0a-4e0b-9d57-3c4b0f3a9f11",  # an Arabic-Indic digit
        "５f0c2c1e-8f0a-4e0b-9d57-3c4b0f3a9f11",  # a full-width digit
        "5f0c2c1e_8f0a_4e0b_9d57_3c4b0f3a9f11",
        "5f0c2c1e8-f0a-4e0b-9d57-3c4b0f3a9f11",  # hyphen moved
        "5f0c2c1--8f0a-4e0b-9d57-3c4b0f3a9f11",  # hyphens for digits
        "-f0c2c1e-8f0a-4e0b-9d57-3c4b0f3a9f11",
        "---------8f0a-4e0b-9d57-3c4b0f3a9f11",
        "../../../../../../../../../../../etc",
        "00000000-0000-0000-0000-000000000000",
    ],
)
def test_anything_else_is_no_id(text: str) -> None:
    assert not ids.is_checkpoint_id(text)


@quick
@given(st.text(alphabet="0123456789abcdef-", min_size=36, max_size=36))
def test_what_is_taken_for_an_id_is_one_for_the_standard_library(text: str) -> None:
    try:
        expected = str(uuid.UUID(text)) == text and uuid.UUID(text).version == 4
    except ValueError:
        expected = False
    assert ids.is_checkpoint_id(text) == expected


@quick
@given(st.uuids(version=4), st.integers(0, 36))
def test_every_beginning_of_an_id_is_a_prefix_from_four_characters_on(
    made: uuid.UUID, length: int
) -> None:
    assert ids.is_checkpoint_id_prefix(str(made)[:length]) == (length >= ids.MIN_PREFIX)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "5f0",
        "5F0C",
        "main",
        "HEAD~1",
        "5f0c*",
        "5f0c2c1e8",
        "5f0c2c1e-8f0a-1",  # no version 4
        "5f0c2c1e-8f0a-4e0b-c",  # no variant of RFC 9562
        "5f0c2c1e--",
        "-5f0c",
        "٥f0c",
        "5f0c\n",
        ID + "0",
    ],
)
def test_what_no_id_begins_with_is_no_prefix(text: str) -> None:
    assert not ids.is_checkpoint_id_prefix(text)


def test_an_id_is_shown_by_a_part_that_can_be_looked_up() -> None:
    assert ids.is_checkpoint_id_prefix(ID[: ids.SHORT])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a" * 40, True),
        ("0123456789abcdef" * 4, True),
        ("a" * 39, False),
        ("a" * 41, False),
        ("a" * 63, False),
        ("A" * 40, False),
        ("a" * 39 + "\n", False),
        ("g" * 40, False),
        ("٣" * 40, False),
        ("", False),
        ("HEAD", False),
    ],
)
def test_an_oid_has_40_or_64_hex_digits(text: str, expected: bool) -> None:
    assert ids.is_oid(text) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("add-login", "add-login"),
        ("Add login!", "add-login"),
        ("  --Fix:  the `parser`--  ", "fix-the-parser"),
        ("über café", "ber-caf"),
        ("", "run"),
        ("日本語", "run"),
        ("---", "run"),
        ("../../etc/passwd", "etc-passwd"),
        ("a\nb\0c", "a-b-c"),
        ("٣x", "x"),
        ("a" * 80, "a" * 50),
        ("a" * 49 + " bc", "a" * 49),
        ("İstanbul", "i-stanbul"),
    ],
)
def test_a_slug_keeps_ascii_letters_and_digits(name: str, expected: str) -> None:
    assert ids.make_slug(name) == expected


@pytest.mark.parametrize(
    ("attempt", "expected"),
    [
        (1, "20261121-201500-add-login"),
        (2, "20261121-201500-add-login-2"),
        (10, "20261121-201500-add-login-10"),
    ],
)
def test_a_run_id_has_stamp_slug_and_from_the_second_attempt_a_number(
    attempt: int, expected: str
) -> None:
    assert ids.make_run_id("20261121-201500", "Add login", attempt) == expected


def test_the_first_attempt_is_meant_where_none_is_named() -> None:
    assert ids.make_run_id("20261121-201500", "Add login") == RUN


def test_a_run_id_has_up_to_200_characters() -> None:
    assert ids.is_run_id("20261121-201500-" + "x" * 184)
    assert not ids.is_run_id("20261121-201500-" + "x" * 185)


@quick
@given(st.text(max_size=120), st.integers(1, 10_000))
def test_whatever_a_run_is_called_its_id_is_a_run_id(name: str, attempt: int) -> None:
    assert ids.is_run_id(ids.make_run_id("20261121-201500", name, attempt))
    assert ids.make_slug(ids.make_slug(name)) == ids.make_slug(name)


HOSTILE = [
    "",
    ".",
    "..",
    "../x",
    "20261121-201500",
    "20261121-201500-",
    "20261121-201500--x",
    "20261121-201500-x-",
    "20261121-201500-x--y",
    "20261121-201500-..",
    "20261121-201500-a/b",
    "20261121-201500-a\\b",
    "20261121-201500-x.lock",
    "20261121-201500-x\n",
    "\n20261121-201500-x",
    "20261121-201500-x\0",
    "20261121-201500-x y",
    "20261121-201500-X",
    "20261121-201500-é",
    "20261121-201500-x*",
    "20261121-201500-x~1",
    "20261121-201500-@{0}",
    "20261121 201500-x",
    "2026112-2015000-x",
    "20261121-20150a-x",
    "20261121-a01500-x",
    "a0261121-201500-x",
    "2026112a-201500-x",
    "٢٠٢٦١١٢١-٢٠١٥٠٠-x",  # Arabic-Indic digits are digits to str.isdigit
    "20261121-201500-٣",
    "２０２６１１２１-201500-x",
    "²⁰²⁶¹¹²¹-201500-x",
    "--force-201500-x",
    "-20261121-201500-x",
    "20261121-201500-" + "x" * 240,  # longer than a file name may be, with git's ".lock"
]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_is_no_run_id(text: str) -> None:
    assert not ids.is_run_id(text)
    with pytest.raises(UsageError) as caught:
        ids.require_run_id(text)
    hint = "a run id looks like 20261121-201500-add-login; store.find_run(TEXT) returns one"
    assert (caught.value.message, caught.value.hint) == (f"{text!r} is not a run id", hint)


@quick
@given(st.one_of(st.text(max_size=60), st.from_regex(r"[0-9]{8}-[0-9]{6}-[\w./\\-]{1,30}\n?")))
def test_what_passes_for_a_run_id_is_safe_in_refs_and_paths(text: str) -> None:
    if ids.is_run_id(text):
        assert set(text) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")
        assert text[0].isdigit()
        assert len(text) + len(".lock") <= 255
        assert ids.require_run_id(text) == text
    else:
        with pytest.raises(UsageError):
            ids.require_run_id(text)


@pytest.mark.parametrize("text", ["", "0123456789" * 4, "abcdef00" * 8])
def test_a_commit_is_a_full_oid_or_none_yet(text: str) -> None:
    assert ids.require_oid_or_unborn(text) == text


@pytest.mark.parametrize("text", ["HEAD", "0123456", "A" * 40, " ", None, 7, b"a" * 40, "x" * 100])
def test_anything_else_is_no_commit(text: Any) -> None:
    with pytest.raises(UsageError) as caught:
        ids.require_oid_or_unborn(text)
    assert (caught.value.message, caught.value.hint) == (
        f"{text!r:.60} is not the full oid of a commit",
        "print the full oid: git rev-parse REV",
    )


def test_short_names_tell_runs_apart() -> None:
    assert ids.short_run_names([RUN, "20261122-080000-fix", "20261123-090000-fix", "x"]) == {
        RUN: "add-login",
        "20261122-080000-fix": "080000-fix",
        "20261123-090000-fix": "090000-fix",
        "x": "x",
    }
    twins = ["20261122-080000-fix", "20261123-080000-fix"]
    assert ids.short_run_names(twins) == {name: name for name in twins}
