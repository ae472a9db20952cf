"""Find the line of each key in a TOML text, which `tomllib` does not report."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gitckpt.model import toml

_TOKEN = re.compile(
    # one or two quotes may precede the closing three
    r'"""(?:[^"\\]++|\\.|"(?!""))*+(?:"{3,5}|\Z)'
    r"|'''(?:[^']++|'(?!''))*+(?:'{3,5}|\Z)"
    r'|"(?:[^"\\\n]++|\\.)*+"?'
    r"|'[^'\n]*+'?"
    r"|\#[^\n]*"
    r"""|[^\s#=,.\[\]{}"']+"""
    r"|\n|[^\s]",
    re.DOTALL,
)

_OPENING, _CLOSING, _PUNCTUATION = frozenset("[{"), frozenset("]}"), frozenset("[].")

KeyPath = tuple[str | int, ...]  # keys and array indices, from the top of the document
_Token = tuple[str, int]  # a string, bare word, punctuation character or line end; line number


class Locations:
    def __init__(self, text: str) -> None:
        self._lines: dict[KeyPath, int] = {}
        # By path of an array of tables, `[[path]]`: the index of its last element so far.
        self._newest: dict[KeyPath, int] = {}

        statement: list[_Token] = []
        table: KeyPath = ()
        depth = 0
        for part, line in _tokens(text):
            depth += (part in _OPENING) - (part in _CLOSING)
            if part != "\n":
                statement.append((part, line))
            elif statement and not depth:
                if statement[0][0] == "[":
                    table = self._add_header(statement)
                else:
                    self._add_key(table, statement)
                statement = []

    def line(self, *path: str | int) -> int:
        """Return the line number of a key, or of its nearest parent in the file."""
        while path and path not in self._lines:
            path = path[:-1]
        return self._lines.get(path, 1)

    def _add_header(self, tokens: list[_Token]) -> KeyPath:
        line = tokens[0][1]
        is_element = tokens[1][0] == "["
        keys = [_unquoted(part) for part, _ in tokens if part not in _PUNCTUATION]
        path: KeyPath = ()
        for i, key in enumerate(keys):
            path = (*path, key)
            self._lines.setdefault(path, line)
            if is_element and i == len(keys) - 1:
                self._newest[path] = self._newest.get(path, -1) + 1
            if path in self._newest:
                path = (*path, self._newest[path])
                self._lines.setdefault(path, line)
        return path

    def _add_key(self, table: KeyPath, statement: list[_Token]) -> None:
        path = table
        for part, line in statement:
            if part == "=":
                return
            if part != ".":
                path = (*path, _unquoted(part))
                self._lines.setdefault(path, line)


def _tokens(text: str) -> Iterator[_Token]:
    """Yield all tokens but spaces and comments, with line numbers; then a newline."""
    line = 1
    for match in _TOKEN.finditer(text):
        part = match.group()
        if part[0] != "#":
            yield part, line
        line += part.count("\n")
    yield "\n", line


def _unquoted(key: str) -> str:
    return str(toml.loads(f"key = {key}\n")["key"]) if key[0] in "\"'" else key
