"""The linter reports each planted vague word, and nothing else."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests import plain_language
from tests.house_rules import SOURCES
from tests.plain_language import violations


@pytest.mark.parametrize("path", SOURCES)
def test_module_is_plain(path: str) -> None:
    assert violations(path, SOURCES[path]) == []


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        (f'"""{"x" * 81}."""', "x.py:1: the first line of a docstring has 82 characters"),
        (f'class A:\n    """{"x" * 81}"""', "x.py:2: the first line of a docstring has 81"),
        (
            'def _f():\n    """A.\n\n    B.\n    """\n    g()',
            "x.py:2: the docstring of _f is longer",
        ),
        ('def f():\n    """Ask whoever\n    knows."""', 'x.py:2: "whoever" is vague'),
        ('"""A.\n\nNobody knows.\n"""', 'x.py:3: "Nobody" is vague'),
        ('raise E(f"{x} is none of ours")', 'x.py:1: "is none" is vague'),
        ('a = "made anew"', 'x.py:1: "anew" is vague'),
        ("a = 1\n# those that differ", 'x.py:2: "those that" is vague'),
    ],
)
def test_linter_notices(source: str, sentence: str) -> None:
    assert [each for each in violations("x.py", source) if each.startswith(sentence)]


@pytest.mark.parametrize(
    "source",
    [
        f'"""{"x" * 80}\n\n{"y" * 90}\n"""',
        'def f():\n    """A.\n\n    B.\n    """\n    g()',
        'def _f():\n    """A."""\n    g()',
        'class A:\n    def __init__(self):\n        """A.\n\n        B.\n        """',
        "a = 1  # the branch, or None\nb = a is None",
        'a = "a new file"',
    ],
)
def test_linter_accepts(source: str) -> None:
    assert violations("x.py", source) == []


def test_linter_reads_subjects_of_new_commits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def git(*words: str) -> None:
        identity = ["-c", "user.name=n", "-c", "user.email=e@example.org"]
        subprocess.run(["git", *identity, *words], cwd=tmp_path, check=True, capture_output=True)

    git("init", "--quiet")
    for subject in ("x" * 80, "list: show ages", "list: show ages; and names", "y" * 73):
        git("commit", "--quiet", "--allow-empty", "--message", subject)
    monkeypatch.setattr(plain_language, "PROJECT", tmp_path)
    broken = [each.partition(": ")[2] for each in plain_language.subjects("HEAD~3")]
    assert broken == [
        f"the subject has 73 characters: {'y' * 73}",
        "a subject is one imperative phrase: list: show ages; and names",
    ]


def test_linter_reads_the_pages_for_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/a.md").write_text(
        "Runs.\n\nThere is none `anew` here, [of which](of which).\n"
    )
    (tmp_path / "docs/a.svg").write_text("whoever")
    monkeypatch.setattr(plain_language, "PROJECT", tmp_path)
    monkeypatch.setattr(plain_language, "PAGES", ("docs",))
    broken = [each.partition(" is vague")[0] for each in plain_language.pages()]
    assert broken == ['docs/a.md:3: "is none"', 'docs/a.md:3: "of which"']


def test_pages_are_plain() -> None:
    assert list(plain_language.pages()) == []
