"""Where a repository borrows objects (gitrepository-layout(5), `objects/info/alternates`)."""

from __future__ import annotations

import os

_SHORT = {b"a": 7, b"b": 8, b"t": 9, b"n": 10, b"v": 11, b"f": 12, b"r": 13, b'"': 34, b"\\": 92}


def stores(objects: str) -> list[str]:
    """Returns the directories that objects are read from: one, then those that it borrows from (`info/alternates`), there or not."""
    found = [objects]
    for place in found:  # which grows
        try:
            with open(os.path.join(place, "info", "alternates"), "rb") as file:
                lines = file.read().split(b"\n")
        except (FileNotFoundError, NotADirectoryError):
            continue
        named = [os.path.normpath(os.path.join(place, os.fsdecode(_unquoted(line)))) for line in lines if line and line[:1] != b"#"]
        found += [each for each in dict.fromkeys(named) if each not in found]
    return found


def _unquoted(line: bytes) -> bytes:
    """Returns the path that a line names: one that begins with a quote is quoted as in C, unless it is none that way."""
    if not line.startswith(b'"'):
        return line
    path = bytearray()
    at = 1
    while (char := line[at : at + 1]) not in (b"", b'"'):
        if char == b"\\":
            digits = line[at + 1 : at + 4]
            if len(digits) == 3 and b"000" <= digits <= b"377" and not digits.strip(b"01234567"):
                path.append(int(digits, 8))
                at += 4
                continue
            if line[at + 1 : at + 2] not in _SHORT:
                return line
            path.append(_SHORT[line[at + 1 : at + 2]])
            at += 2
        else:
            path += char
            at += 1
    return bytes(path) if char else line
