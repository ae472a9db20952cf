"""What a document may cost: asked before it is parsed, and kept to by whoever writes one. The one place for these numbers.

Python's reader of TOML is no match for a document made to be slow: a dotted key costs the square of its parts, an integer the square of its
digits, and a million keys a quarter of a minute. Documents may have been fetched. So what a reader would spend is counted first, in one
pass over the text that knows strings, comments and brackets, and nothing else of TOML. As long as a document is valid, it sees what the
parser sees; where one is not, the parser stops there, and no earlier count was too low.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    import re


MAX_LEVELS = 256
"""How many keys and places in arrays may lead from the top to a value."""

MAX_DIGITS = 128
"""The longest run of digits of a number that is written as such. What TOML requires a reader to take has 66 at most."""

MAX_DECIMAL, MAX_HEXADECIMAL = 4300, 65_536
"""The most characters of an integer that is written as a string: to read decimal ones, or to show any, takes the square of their number."""

MAX_LONG = 262_144
"""How many characters all integers of a state that have more than `MAX_DECIMAL` may have together."""

MAX_INTEGER, MIN_INTEGER = 2**63 - 1, -(2**63)
"""What 64 bits hold."""


class Budget:
    """What a document may hold.

    Args:
        size: bytes.
        names: parts of all keys and of all headers of tables, together.
        values: commas in arrays.

    Attributes:
        steps: how far down all keys lie, added up: each key is looked up from the top.
    """

    __slots__ = ("names", "size", "steps", "values")

    def __init__(self, size: int, names: int, values: int) -> None:
        self.size = size
        self.names = names
        self.values = values
        self.steps = 32 * names


HEADER = Budget(4 << 20, 50_000, 100_000)
"""Of a checkpoint document, what stands before the state: each listing that has not seen it yet reads it."""

STATE = Budget(28 << 20, 150_000, 900_000)
"""What a writer puts into the state at most, so that any header fits before it."""

DOCUMENT = Budget(HEADER.size + STATE.size, HEADER.names + STATE.names, HEADER.values + STATE.values)
"""A checkpoint document, whole."""

RECORD = Budget(64 << 10, 1000, 1000)
"""A lease, or a key."""

FILE = Budget(1 << 20, 20_000, 20_000)
"""A file that people write, such as `gitckpt.toml`."""


class Paths:
    """What a tree of a snapshot may hold.

    Args:
        count: of the whole, paths at which it differs from what is checked out; of an operation, files and directories.
        depth: directories within each other.
    """

    __slots__ = ("count", "depth")

    def __init__(self, count: int, depth: int) -> None:
        self.count = count
        self.depth = depth


SNAPSHOT = Paths(10_000_000, 500)
"""The tree of a snapshot: somebody else's is counted before it is listed, and a few kilobytes can be of endless paths."""


OPERATION, OPERATION_SIZE = Paths(20_000, 20), 64 << 20
"""What git keeps of an operation in progress, and the bytes of all its files together: all of it is read, and is in memory at once.

The names of labels in a rebase are directories; a rebase by patches has a file for each commit.
"""

LIST = 128 << 20
"""Bytes of a list in a snapshot, such as that of its flags: a sparse checkout of two million files has so many."""


class Excess(ValueError):
    """A document would cost more than a reader spends. The text says what there is too much of, and how much is allowed."""


def require_size(size: int, limits: Budget) -> None:
    """Raises `Excess` if a document of so many bytes is too large."""
    if size > limits.size:
        raise Excess(f"too large: {size:,} bytes, where {limits.size:,} are allowed")


def require(text: str, limits: Budget) -> None:
    """Looks at a document before it is parsed. The time that takes grows with its length, whatever it holds.

    Args:
        text: of the document, be it TOML or not.
        limits: what it may hold.

    Raises:
        Excess: it holds more, nests beyond `MAX_LEVELS`, or has a number of more than `MAX_DIGITS` digits.
    """
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
    """Counts names and values, and follows how deep they lie.

    Args:
        limits: what there may be.
    """

    def __init__(self, limits: Budget) -> None:
        self._limits = limits
        self._names = self._steps = self._values = 0
        self._header = 0  # how deep the table lies that lines belong to
        self._level = 0  # how deep the value lies that is being read
        self._parts = 1  # of the key that is being read
        self._in_key, self._in_header = True, False
        self._around: list[tuple[int, bool]] = []  # for each open bracket, how deep it lies, and whether it is a table

    def read(self, bare: str, marks: re.Pattern[str]) -> None:
        """Raises what `require` raises.

        Args:
            bare: a document without its strings and comments.
            marks: finds what matters of it.
        """
        for found in marks.finditer(bare):
            mark = found[0]
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
    """Returns what finds strings and comments; what matters of the rest; and long runs of what numbers are made of."""
    import re  # whoever only writes has no need of it

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
