"""Limits on documents, checked before they are parsed and while they are written.

Documents may have been fetched, and `tomllib` is slow on hostile ones: a dotted key costs the
square of its parts, an integer the square of its digits, and a million keys take 15 s. So one pass
over the text, which knows only strings, comments and brackets of TOML, counts the parser's work
first. On valid TOML it sees what the parser sees. At an error the parser stops, and no count up to
there is too low.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    import re


# Keys and array indexes from the top to a value.
MAX_LEVELS = 256

# Digits of a number in a row; TOML requires readers to take 66 at most.
MAX_DIGITS = 128

# Characters of an integer written as a string: reading decimal ones, and printing any, takes the
# square of that.
MAX_DECIMAL, MAX_HEXADECIMAL = 4300, 65_536

# Characters of all integers of a state together that have more than `MAX_DECIMAL`.
MAX_LONG = 262_144

MAX_INTEGER, MIN_INTEGER = 2**63 - 1, -(2**63)


class Budget:
    """Limits of a document: bytes, parts of keys and table headers, commas in arrays."""

    __slots__ = ("names", "size", "steps", "values")

    def __init__(self, size: int, names: int, values: int) -> None:
        self.size = size
        self.names = names
        self.values = values
        self.steps = 32 * names  # depths of all keys added up: each is looked up from the top


# A checkpoint document before its state; each first listing reads that.
HEADER = Budget(4 << 20, 50_000, 100_000)

# The state as it is written, so that any header fits before it.
STATE = Budget(28 << 20, 150_000, 900_000)

# A whole checkpoint document.
DOCUMENT = Budget(HEADER.size + STATE.size, HEADER.names + STATE.names, HEADER.values + STATE.values)

# A lease or a key.
RECORD = Budget(64 << 10, 1000, 1000)

# A file that people write, such as `gitckpt.toml`.
FILE = Budget(1 << 20, 20_000, 20_000)


class Paths:
    """Limits of a tree: paths that differ from the checkout, nested directories."""

    __slots__ = ("count", "depth")

    def __init__(self, count: int, depth: int) -> None:
        self.count = count
        self.depth = depth


# A fetched tree is counted before it is listed: a few kilobytes can hold endless paths.
SNAPSHOT = Paths(10_000_000, 500)

# git's files of an operation in progress, and their bytes, which are all in memory at once. Labels
# of a rebase are directories; a rebase by patches has one file per commit.
OPERATION, OPERATION_SIZE = Paths(20_000, 20), 64 << 20

# Bytes of a list in a snapshot: the flags of a sparse checkout of two million files take this.
LIST = 128 << 20


class Excess(ValueError):
    """A document exceeds a limit; the text says which."""


def require_size(size: int, limits: Budget) -> None:
    if size > limits.size:
        raise Excess(f"too large: {size:,} bytes, where {limits.size:,} are allowed")


def require(text: str, limits: Budget) -> None:
    """Raise `Excess` if a document exceeds limits, in time linear in its length."""
    require_size(len(text), limits)
    opaque, marks, run = _patterns()
    bare = opaque.sub("", text)
    keys, dots, opened = bare.count("="), bare.count("."), bare.count("[") + bare.count("{")
    if (
        dots + opened + 2 <= MAX_LEVELS
        and keys + dots + opened <= limits.names
        and keys * (dots + opened + 2) <= limits.steps
        and bare.count(",") <= limits.values
        and run.search(bare) is None
    ):
        return
    _Count(limits).read(bare, marks)


class _Count:
    def __init__(self, limits: Budget) -> None:
        self._limits = limits
        self._names = self._steps = self._values = 0
        self._header = 0  # how deep the table lies that lines belong to
        self._level = 0  # depth of the current value
        self._parts = 1  # of the current key
        self._in_key, self._in_header = True, False
        # Of each open bracket: its depth, and whether it is a table.
        self._around: list[tuple[int, bool]] = []

    def read(self, bare: str, marks: re.Pattern[str]) -> None:
        for match in marks.finditer(bare):
            mark = match[0]
            if mark == ".":
                self._parts += self._in_key
                self._deeper(0, self._parts)
            elif mark in "[{":
                self._open(mark)
            elif mark in "]}":
                self._close()
            elif mark in "=,\n":
                self._separate(mark)
            elif not self._in_key:
                raise Excess(f"a number of {len(mark):,} digits, where {MAX_DIGITS:,} are allowed")

    def _separate(self, mark: str) -> None:
        if mark == "=":
            self._level = self._deeper(self._around[-1][0] if self._around else self._header, self._parts)
            self._name(self._parts, self._level)
            self._in_key, self._parts = False, 1
        elif mark == "\n" and not self._around:
            self._in_key, self._in_header, self._parts = True, False, 1
        elif mark == "," and self._around:
            self._level, self._in_key = self._around[-1]
            self._parts = 1
            self._values += not self._in_key
            if self._values > self._limits.values:
                raise Excess(f"more than {self._limits.values:,} values in arrays")

    def _open(self, mark: str) -> None:
        if mark == "[" and not self._around and self._in_key:
            self._in_header = True
            return
        self._level = self._deeper(self._level, mark == "[")
        self._in_key, self._parts = mark == "{", 1
        self._around.append((self._level, self._in_key))

    def _close(self) -> None:
        if self._in_header:
            self._header = self._deeper(0, self._parts)
            self._name(self._parts, self._parts)
            self._in_header = False
        elif self._around:
            self._around.pop()
        self._in_key = False

    def _name(self, parts: int, level: int) -> None:
        self._names += parts
        self._steps += level
        if self._names > self._limits.names:
            raise Excess(f"more than {self._limits.names:,} keys, each part of a dotted one counted")
        if self._steps > self._limits.steps:
            raise Excess(f"keys too deep and too many: more than {self._limits.steps:,} steps from the top, added up")

    @staticmethod
    def _deeper(level: int, more: int) -> int:
        if level + more > MAX_LEVELS:
            raise Excess(f"nests deeper than {MAX_LEVELS:,} levels, the parts of dotted keys counted")
        return level + more


def _patterns() -> tuple[re.Pattern[str], re.Pattern[str], re.Pattern[str]]:
    """Return patterns for strings and comments, for marks, and for long numbers."""
    import re  # writers do not need it

    opaque = re.compile(
        r'"""(?:[^"\\]++|\\.|"(?!""))*+(?:"{3,5}|\Z)'
        r"|'''(?:[^']++|'(?!''))*+(?:'{3,5}|\Z)"
        r'|"(?:[^"\\\n]++|\\.)*+"?'
        r"|'[^'\n]*+'?"
        r"|#[^\n]*+",
        re.DOTALL,
    )
    run = f"[0-9A-Za-z_+-]{{{MAX_DIGITS + 1},}}+"
    return opaque, re.compile(rf"[=.,\[\]{{}}\n]|{run}"), re.compile(run)
