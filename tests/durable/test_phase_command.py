"""What a command of a phase finds, where it cannot be written."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gitckpt.durable.phases import command
from gitckpt.git.worktree import index
from gitckpt.model.errors import CkptError
from gitckpt.store.store import Store, inside


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
@pytest.mark.parametrize("name", ["state.json", "set"])
def test_a_full_disk_is_told_with_the_file(tmp_path: Path, name: str) -> None:
    (tmp_path / name).symlink_to("/dev/full")
    run: Any = SimpleNamespace(files=SimpleNamespace(path=str(tmp_path)), state={"a": 1})
    phase: Any = SimpleNamespace(name="one")
    exchange = command._Exchange(run, phase)
    if name == "set":  # nothing is written into it: what cannot be made is told as well
        (tmp_path / name).unlink()
        (tmp_path / name).mkdir()
    with pytest.raises(CkptError, match=f"^cannot write {tmp_path / name}: "):
        exchange.prepare()


def test_the_same_is_said_of_each_try_to_copy_the_index(plain: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(index, "_copy", fail)
    said = set()
    for _ in range(2):
        with pytest.raises(CkptError) as caught:
            inside(plain).capture()
        said.add(caught.value.message)
    assert said == {f"cannot copy the index into {inside(plain).repository.private_dir}: No space left on device"}
