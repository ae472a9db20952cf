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


class KeyLocations:
    def __init__(self, text: str) -> None:
        self._lines: dict[KeyPath, int] = {}
        # By path of an array of tables, `[[path]]`: the index of its last element so far.
        self._newest: dict[KeyPath, int] = {}

        statement: list[_Token] = []
        table_path: KeyPath = ()
        bracket_depth = 0
        for symbol, line in _iterate_tokens(text):
            bracket_depth += (symbol in _OPENING) - (symbol in _CLOSING)
            if symbol != "\n":
                statement.append((symbol, line))
            elif statement and not bracket_depth:
                if statement[0][0] == "[":
                    table_path = self._add_table_header(statement)
                else:
                    self._add_key(table_path, statement)
                statement = []

    def line_of_key(self, *path: str | int) -> int:
        while path and path not in self._lines:
            path = path[:-1]
        return self._lines.get(path, 1)

    def _add_table_header(self, tokens: list[_Token]) -> KeyPath:
        line = tokens[0][1]
        is_element = tokens[1][0] == "["
        keys = [_unquote_key(symbol) for symbol, _ in tokens if symbol not in _PUNCTUATION]
        key_path: KeyPath = ()
        for i, key in enumerate(keys):
            key_path = (*key_path, key)
            self._lines.setdefault(key_path, line)
            if is_element and i == len(keys) - 1:
                self._newest[key_path] = self._newest.get(key_path, -1) + 1
            if key_path in self._newest:
                key_path = (*key_path, self._newest[key_path])
                self._lines.setdefault(key_path, line)
        return key_path

    def _add_key(self, table: KeyPath, statement: list[_Token]) -> None:
        path = table
        for symbol, line in statement:
            if symbol == "=":
                return
            if symbol != ".":
                path = (*path, _unquote_key(symbol))
                self._lines.setdefault(path, line)


def _iterate_tokens(text: str) -> Iterator[_Token]:
    line = 1
    for match in _TOKEN.finditer(text):
        symbol = match.group()
        if symbol[0] != "#":
            yield symbol, line
        line += symbol.count("\n")
    yield "\n", line


def _unquote_key(key: str) -> str:
    return str(toml.loads(f"key = {key}\n")["key"]) if key[0] in "\"'" else key
