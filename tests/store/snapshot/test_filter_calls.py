"""A required filter runs once for each file that is written.

Such a filter may download the file, as that of LFS does.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from gitckpt import Store
from tests.conftest import Checkout

FILTER = """\
#!/bin/sh
echo "$1 $2" >> {log}
exec cat
"""
FILES = ["a.big", "b.big"]


class Log:
    """The calls of a filter since the last look."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def smudged(self) -> Counter[str]:
        said = self._path.read_text().splitlines() if self._path.exists() else []
        self._path.unlink(missing_ok=True)
        return Counter(line.partition(" ")[2] for line in said if line.startswith("smudge "))


@pytest.fixture
def log(checkout: Checkout, tmp_path: Path) -> Log:
    """A checkout with a filter and two committed files to which it applies."""
    path = tmp_path / "filter"
    path.write_text(FILTER.format(log=tmp_path / "log"))
    path.chmod(0o755)
    for name in ("clean", "smudge"):
        checkout.git("config", f"filter.own.{name}", f"{path} {name} %f")
    checkout.git("config", "filter.own.required", "true")
    checkout.commit(
        "filtered", **{".gitattributes": "*.big filter=own\n", **dict.fromkeys(FILES, "1\n")}
    )
    return Log(tmp_path / "log")


@pytest.mark.long
def test_each_file_is_smudged_once(checkout: Checkout, log: Log) -> None:
    once = Counter(FILES)
    with Store.open(checkout.path, adapter="plumbing") as store:
        made = store.save("a")
        checkout.commit("more", **dict.fromkeys(FILES, "22\n"))
        for name in FILES:
            checkout.write(name, "333\n")
        store.save("b")
        assert log.smudged() == Counter()
        store.restore(made, dry_run=True)
        assert log.smudged() == Counter()
        store.restore(made)
        assert log.smudged() == once
        store.undo()
        assert log.smudged() == once
        store.resume(made)
        assert log.smudged() == once
