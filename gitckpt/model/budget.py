"""Limits on documents, checked before they are parsed and while they are written.

A document may come from a fetched repository, and `tomllib` is slow on hostile ones: a dotted key
costs the square of its parts, an integer the square of its digits, and a million keys take 15 s.
So before `tomllib` runs, a scan that knows only strings, comments and brackets of TOML counts keys
and levels. Its counts are exact for valid TOML. For invalid TOML, they are high enough up to the
error at which `tomllib` stops.
"""

from __future__ import annotations

from gitckpt.model.values import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    import re

MAX_LEVELS = 256  # keys and array indexes from the top to a value
MAX_DIGITS = 128  # digits of a number in a row; TOML requires readers to take 66 at most

# Characters of an integer written as a string: the time to read a decimal integer, or to print any
# integer, grows with the square of their number.
MAX_DECIMAL, MAX_HEXADECIMAL = 4300, 65_536
MAX_LONG = 262_144  # characters of all integers of a state that have more than `MAX_DECIMAL`
MAX_INTEGER, MIN_INTEGER = 2**63 - 1, -(2**63)


@dataclass(frozen=True, slots=True)
class SizeLimits:
    """Limits of one document: bytes, names (parts of dotted keys), array values."""

    size: int
    names: int
    values: int

    @property
    def max_key_depth_sum(self) -> int:
        """The largest sum of the depths of all keys: `tomllib` walks down to each key."""
        return 32 * self.names


HEADER = SizeLimits(4 << 20, 50_000, 100_000)  # all of a document before its state
STATE = SizeLimits(28 << 20, 150_000, 900_000)  # a written state; with a header it fits `DOCUMENT`
DOCUMENT = SizeLimits(32 << 20, 200_000, 1_000_000)  # header and state together
RECORD = SizeLimits(64 << 10, 1000, 1000)  # a lease or a key
FILE = SizeLimits(1 << 20, 20_000, 20_000)  # a file that people write, such as `gitckpt.toml`


@dataclass(frozen=True, slots=True)
class PathLimits:
    """Limits of a git tree: paths that differ from the checkout, directory levels."""

    count: int
    depth: int


# A fetched tree is counted before it is listed: a few kilobytes can hold endless paths.
SNAPSHOT = PathLimits(10_000_000, 500)

# git's files of an operation in progress, and their bytes, which are all in memory at once. Labels
# of a rebase are directories; a rebase by patches has one file per commit.
OPERATION, OPERATION_SIZE = PathLimits(20_000, 20), 64 << 20

# Bytes of a list in a snapshot: enough for the sparse-checkout flags of two million files.
LIST = 128 << 20


class LimitExceeded(ValueError):
    """A document exceeds one of its limits; the message names the limit."""


def require_size(size: int, limits: SizeLimits) -> None:
    if size > limits.size:
        raise LimitExceeded(f"too large: {size:,} bytes, where {limits.size:,} are allowed")


def require_toml_within(text: str, limits: SizeLimits) -> None:
    require_size(len(text), limits)
    skip_pattern, mark_pattern, long_number = _compile_toml_patterns()
    code = skip_pattern.sub("", text)
    equals, dots, brackets = code.count("="), code.count("."), code.count("[") + code.count("{")
    if (
        dots + brackets + 2 <= MAX_LEVELS
        and equals + dots + brackets <= limits.names
        and equals * (dots + brackets + 2) <= limits.max_key_depth_sum
        and code.count(",") <= limits.values
        and long_number.search(code) is None
    ):
        return
    _TomlCounter(limits).count_marks(code, mark_pattern)


class _TomlCounter:
    def __init__(self, limits: SizeLimits) -> None:
        self._limits = limits
        self._names = self._steps = self._values = 0
        self._header = 0  # depth of the table that the current line belongs to
        self._level = 0  # depth of the current value
        self._parts = 1  # parts of the current dotted key
        self._in_key, self._in_header = True, False
        # For each open bracket: its depth, and whether it opened a table (`{`).
        self._brackets: list[tuple[int, bool]] = []

    def count_marks(self, code: str, mark_pattern: re.Pattern[str]) -> None:
        for mark in mark_pattern.findall(code):
            if mark == ".":
                self._parts += self._in_key
                self._require_level_sum(0, self._parts)
            elif mark in "[{":
                self._open_bracket(mark)
            elif mark in "]}":
                self._close_bracket()
            elif mark in "=,\n":
                self._count_separator(mark)
            elif not self._in_key:
                limit = f"{MAX_DIGITS:,} are allowed"
                raise LimitExceeded(f"a number of {len(mark):,} digits, where {limit}")

    def _count_separator(self, mark: str) -> None:
        if mark == "=":
            level = self._brackets[-1][0] if self._brackets else self._header
            self._level = self._require_level_sum(level, self._parts)
            self._count_key(self._parts, self._level)
            self._in_key, self._parts = False, 1
        elif mark == "\n" and not self._brackets:
            self._in_key, self._in_header, self._parts = True, False, 1
        elif mark == "," and self._brackets:
            self._level, self._in_key = self._brackets[-1]
            self._parts = 1
            self._values += not self._in_key
            if self._values > self._limits.values:
                raise LimitExceeded(f"more than {self._limits.values:,} values in arrays")

    def _open_bracket(self, mark: str) -> None:
        if mark == "[" and not self._brackets and self._in_key:
            self._in_header = True
            return
        self._level = self._require_level_sum(self._level, mark == "[")
        self._in_key, self._parts = mark == "{", 1
        self._brackets.append((self._level, self._in_key))

    def _close_bracket(self) -> None:
        if self._in_header:
            self._header = self._require_level_sum(0, self._parts)
            self._count_key(self._parts, self._parts)
            self._in_header = False
        elif self._brackets:
            self._brackets.pop()
        self._in_key = False

    def _count_key(self, parts: int, level: int) -> None:
        self._names += parts
        self._steps += level
        most_names, most_steps = self._limits.names, self._limits.max_key_depth_sum
        if self._names > most_names:
            raise LimitExceeded(f"more than {most_names:,} keys, each part of a dotted one counted")
        if self._steps > most_steps:
            problem = f"more than {most_steps:,} steps from the top, added up"
            raise LimitExceeded(f"keys too deep and too many: {problem}")

    @staticmethod
    def _require_level_sum(level: int, parts: int) -> int:
        if level + parts > MAX_LEVELS:
            limit = f"{MAX_LEVELS:,} levels, the parts of dotted keys counted"
            raise LimitExceeded(f"nests deeper than {limit}")
        return level + parts


def _compile_toml_patterns() -> tuple[re.Pattern[str], re.Pattern[str], re.Pattern[str]]:
    import re  # writers do not need it

    skip_pattern = re.compile(
        r'"""(?:[^"\\]++|\\.|"(?!""))*+(?:"{3,5}|\Z)'
        r"|'''(?:[^']++|'(?!''))*+(?:'{3,5}|\Z)"
        r'|"(?:[^"\\\n]++|\\.)*+"?'
        r"|'[^'\n]*+'?"
        r"|#[^\n]*+",
        re.DOTALL,
    )
    long_number = f"[0-9A-Za-z_+-]{{{MAX_DIGITS + 1},}}+"
    return skip_pattern, re.compile(rf"[=.,\[\]{{}}\n]|{long_number}"), re.compile(long_number)
