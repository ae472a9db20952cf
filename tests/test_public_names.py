"""What `from gitckpt import …` offers."""

from __future__ import annotations

import pytest

import gitckpt


def test_every_public_name_is_there_and_is_what_it_says() -> None:
    assert sorted(gitckpt.__all__) == sorted(gitckpt._HOMES)
    assert [getattr(gitckpt, name).__name__ for name in gitckpt.__all__] == gitckpt.__all__


def test_another_name_is_refused() -> None:
    with pytest.raises(AttributeError, match="module 'gitckpt' has no attribute 'Backup'"):
        _ = gitckpt.Backup
