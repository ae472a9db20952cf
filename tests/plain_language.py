"""Check that docstrings, help, messages and commit subjects are plain: `./dev lint`."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping

from tests.house_rules import PROJECT, SOURCES

# Characters of the first line of a docstring, and of the subject of a commit.
MAX_SUMMARY, MAX_SUBJECT = 80, 72

# They make a reader ask who or what is meant.
VAGUE = re.compile(r"\b(whoever|somebody|nobody|of ours|anew|is none|stands for)\b", re.IGNORECASE)

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_DOCUMENTED = (ast.Module, ast.ClassDef, *_FUNCTIONS)


def violations(path: str, source: str) -> list[str]:
    """Return what a module breaks, as `path:line: sentence`."""
    tree = ast.parse(source)
    return [f"{path}:{line}: {sentence}" for line, sentence in (*_docstrings(tree), *_texts(tree))]


def _docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if not isinstance(node, _DOCUMENTED) or (text := ast.get_docstring(node)) is None:
            continue
        statement = node.body[0]
        summary = text.partition("\n")[0]
        if len(summary) > MAX_SUMMARY:
            yield statement.lineno, f"the first line of a docstring has {len(summary)} characters"
        if isinstance(node, _FUNCTIONS) and node.name[0] == "_" and node.name[-2:] != "__":
            lines = _lines(statement)
            if lines > _lines(node) - lines:
                yield statement.lineno, f"the docstring of {node.name} is longer than its code"


def _lines(node: ast.stmt) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def _texts(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            for match in VAGUE.finditer(node.value):
                line = node.lineno + node.value.count("\n", 0, match.start())
                yield line, f'"{match[0]}" is vague: name the person or thing'


def subjects(base: str) -> list[str]:
    """Return what the subjects of the commits since `base` break, as `oid: sentence`."""
    log = ["git", "log", "--no-merges", "--format=%h %s", f"{base}..HEAD"]
    done = subprocess.run(log, cwd=PROJECT, capture_output=True, text=True, check=True)
    broken = []
    for line in done.stdout.splitlines():
        oid, _, subject = line.partition(" ")
        if len(subject) > MAX_SUBJECT:
            broken.append(f"{oid}: the subject has {len(subject)} characters: {subject}")
        if ";" in subject or subject.endswith("."):
            broken.append(f"{oid}: a subject is one imperative phrase: {subject}")
    return broken


def main(sources: Mapping[str, str] = SOURCES) -> int:
    """Print what is broken; return 1 if anything is."""
    broken = [each for path, source in sources.items() for each in violations(path, source)]
    known = ["git", "rev-parse", "--quiet", "--verify", "origin/main^{commit}"]
    if subprocess.run(known, cwd=PROJECT, capture_output=True, check=False).returncode == 0:
        broken += subjects("origin/main")
    for each in broken:
        sys.stdout.write(f"{each}\n")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
