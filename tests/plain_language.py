"""Check that docstrings, help, messages and commit subjects use plain language.

`./dev lint` runs this.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator, Mapping

from tests.house_rules import PROJECT, SOURCES

# Characters of the first line of a docstring, and of the subject of a commit.
MAX_SUMMARY, MAX_SUBJECT = 80, 72

# They make a reader ask who or what is meant.
VAGUE = re.compile(
    r"\b([Ww]hoever|[Ss]omebody|[Nn]obody|[Aa]nybody|of ours|[Aa]new|(?:is|are) none|[Ss]tands? for"
    r"|[Tt]hose that|of which)\b"
)

PAGES = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "docs", "man")

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_DOCUMENTED = (ast.Module, ast.ClassDef, *_FUNCTIONS)


def violations(path: str, source: str) -> list[str]:
    """Return the violations in a module, as `path:line: sentence`."""
    tree = ast.parse(source)
    broken = (*_docstrings(tree), *_texts(tree), *_comments(source))
    return [f"{path}:{line}: {sentence}" for line, sentence in broken]


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
            yield from vague_words(node.value, node.lineno)


def _comments(source: str) -> Iterator[tuple[int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield from vague_words(token.string, token.start[0])


def vague_words(text: str, first_line: int = 1) -> Iterator[tuple[int, str]]:
    """Yield the line and a sentence for each vague word of a text."""
    for match in VAGUE.finditer(text):
        line = first_line + text.count("\n", 0, match.start())
        yield line, f'"{match[0]}" is vague: name the person or thing'


def pages() -> Iterator[str]:
    """Yield each vague word of the documents for users, as `path:line: sentence`."""
    paths = [PROJECT / name for name in PAGES]
    for path in (page for top in paths for page in ([top] if top.is_file() else top.rglob("*.*"))):
        if path.suffix in (".md", ".1"):
            name = path.relative_to(PROJECT).as_posix()
            text = re.sub(r"`[^`\n]*`|\]\([^)]*\)", "", path.read_text(encoding="utf-8"))
            yield from (f"{name}:{line}: {sentence}" for line, sentence in vague_words(text))


def subjects(base: str) -> list[str]:
    """Return the violations in commit subjects since `base`, as `oid: sentence`."""
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
    """Print all violations; return 1 if there is any."""
    broken = [each for path, source in sources.items() for each in violations(path, source)]
    broken += pages()
    known = ["git", "rev-parse", "--quiet", "--verify", "origin/main^{commit}"]
    if subprocess.run(known, cwd=PROJECT, capture_output=True, check=False).returncode == 0:
        broken += subjects("origin/main")
    for each in broken:
        sys.stdout.write(f"{each}\n")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
