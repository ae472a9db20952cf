"""Each input that fuzzing kept is read again, without a fuzzer."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.system.fuzz.targets import TARGETS

CORPUS = Path(__file__).parent / "corpus"


@pytest.mark.parametrize("name", TARGETS)
def test_what_once_reached_something_new_is_read_as_data(name: str) -> None:
    inputs = sorted((CORPUS / name).iterdir())
    assert len(inputs) >= 3
    for each in inputs:
        TARGETS[name](each.read_bytes())
