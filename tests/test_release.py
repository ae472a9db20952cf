"""A release contains only the package; locks pin its tools by hash."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).parent.parent
LOCKS = ("runtime", "dev", "release")
PLANTED = (
    *(
        ".env",
        "gitckpt/.env",
        "gitckpt/id_rsa",
        "gitckpt/store/notes.txt",
        "gitckpt/store/store.py.orig",
        "gitckpt/core.so",
    ),
    *(
        "tests/secret.py",
        "hooks/.post-commit.swp",
        "gitckpt/__pycache__/odd.cpython-311.pyc",
        ".ckpt/worktrees/run/gitckpt/a.py",
    ),
)
"""Files that a developer may have beside the code."""


def pinned(name: str) -> dict[str, Version]:
    """Map each package of a lock to its pinned release."""
    text = (ROOT / "locks" / f"{name}.txt").read_text()
    return {
        package: Version(version)
        for package, version in re.findall(r"^([a-z0-9.-]+)==([^ ;]+)", text, re.MULTILINE)
    }


def wanted() -> dict[str, list[Requirement]]:
    """Map each lock to the requirements in pyproject.toml."""
    table = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = table["project"]["optional-dependencies"]
    lines = {
        "runtime": table["project"]["dependencies"],
        "dev": [
            *table["project"]["dependencies"],
            *extras["test"],
            *extras["lint"],
            *extras["fuzz"],
        ],
        "release": [*table["dependency-groups"]["release"], *table["build-system"]["requires"]],
    }
    return {name: [Requirement(line) for line in each] for name, each in lines.items()}


@pytest.mark.parametrize("name", LOCKS)
class TestLocks:
    def test_names_what_pyproject_asks_for(self, name: str) -> None:
        locked = pinned(name)
        assert {
            str(each)
            for each in wanted()[name]
            if each.name not in locked or locked[each.name] not in each.specifier
        } == set()

    def test_has_a_hash_for_all_and_no_place(self, name: str) -> None:
        text = (ROOT / "locks" / f"{name}.txt").read_text().replace("\\\n", "")
        lines = [line for line in text.splitlines() if not line.startswith("#")]
        assert [
            line
            for line in lines
            if not re.fullmatch(
                r"[a-z0-9.-]+==[^ ;]+( ; .+?)?( +--hash=sha256:[0-9a-f]{64})+", line
            )
        ] == []
        assert "://" not in text


def test_what_is_tested_is_what_is_released() -> None:
    assert pinned("runtime").items() <= pinned("dev").items()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """Return the wheel built from a copy that has unrelated files."""
    top = tmp_path_factory.mktemp("release") / "gitckpt"
    top.mkdir()
    for name in ("gitckpt", "hooks", "man"):
        shutil.copytree(ROOT / name, top / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE", ".gitignore"):
        shutil.copy(ROOT / name, top / name)
    for name in PLANTED:
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text("secret\n")
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", "out"]
    subprocess.run(build, cwd=top, check=True, capture_output=True)
    return zipfile.ZipFile(next((top / "out").iterdir()))


@pytest.mark.long
def test_the_wheel_holds_the_package_alone(wheel: zipfile.ZipFile) -> None:
    version = re.findall(r'__version__ = "(.+)"', (ROOT / "gitckpt" / "__init__.py").read_text())[0]
    package = [
        path
        for suffix in ("py", "toml", "md", "tsv", "html", "css", "js")
        for path in (ROOT / "gitckpt").rglob(f"*.{suffix}")
    ]
    expected = {
        *(path.relative_to(ROOT).as_posix() for path in package),
        "gitckpt/py.typed",
        "gitckpt/__init__.pyi",
        *(f"gitckpt/hooks/{name}" for name in ("README.md", "block.sh", "command.sh", "hook.sh")),
        f"gitckpt-{version}.data/data/share/man/man1/git-ckpt.1",
        *(
            f"gitckpt-{version}.dist-info/{name}"
            for name in ("METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE")
        ),
    }
    assert set(wheel.namelist()) == expected
    assert not [name for name in wheel.namelist() if wheel.read(name) == b"secret\n"]
