"""Foreign documents of keys: costly or unforeseen contents are refused by ref."""

from __future__ import annotations

import pytest

from gitckpt import InvalidCheckpoint
from gitckpt.model import budget, toml
from gitckpt.store.records import keys
from tests.store.conftest import RUN

KEY = "nightly"
REF = keys.name_key_ref(KEY)
CURE = f"see the document: git cat-file -p {REF}; delete the key: git update-ref -d {REF}"


def refused(data: bytes) -> tuple[str, str, str, str | None]:
    """Return ref, field, problem and hint."""
    with pytest.raises(InvalidCheckpoint) as caught:
        keys.parse_run(("blob", data), REF)
    said = caught.value
    return said.ref, said.field, said.problem, said.hint


class TestWhatCosts:
    TEXT = keys.render_key_document(KEY, RUN).decode()

    def test_as_many_bytes_as_a_record_may_have_are_read(self) -> None:
        comment = "# "
        text = self.TEXT + comment.ljust(budget.RECORD.size - len(self.TEXT), "x")
        assert (len(text), keys.parse_run(("blob", text.encode()), REF)) == (65_536, RUN)

    def test_one_more_is_too_many(self) -> None:
        text = self.TEXT.ljust(budget.RECORD.size + 1)
        assert refused(text.encode()) == (
            REF,
            "",
            "not a key: too large: 65,537 bytes, where 65,536 are allowed",
            CURE,
        )

    def test_more_names_than_a_record_may_have_are_too_many(self) -> None:
        text = self.TEXT + "".join(f"n{number} = 1\n" for number in range(budget.RECORD.names))
        assert refused(text.encode()) == (
            REF,
            "",
            "not a key: more than 1,000 keys, each part of a dotted one counted",
            CURE,
        )


def test_what_nobody_has_foreseen_is_said_of_this_ref(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(text: str, limits: budget.SizeLimits) -> None:
        raise MemoryError("no room")

    monkeypatch.setattr(toml, "loads", fail)
    assert refused(b"version = 1") == (REF, "", "cannot be read: MemoryError: no room", None)
