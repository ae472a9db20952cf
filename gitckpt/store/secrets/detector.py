"""Find what looks like a secret in a text, fast enough to be done at each save.

Most tokens begin with letters that name their service, so words are looked up by how they begin, and
only then is one of the expressions compiled. `forms` finds secrets by what stands before them.
200 KB take about 5 ms.
"""

from __future__ import annotations

import functools
import itertools
import re
import string

from gitckpt.model.values import dataclass
from gitckpt.store.secrets import forms
from gitckpt.store.secrets.rules import RULES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    Rule = tuple[bytes, str, str, float]

LARGEST = 1_000_000
"""A file with more bytes is not looked at: what people write by hand is smaller."""

MASK = b"[masked: "
"""How what stands for a secret begins."""

_BINARY = 8000
_LEAST = 12
"""Bytes of the shortest token."""

_PUNCTUATION = b".~-"
_WORDS = frozenset(string.ascii_letters.encode() + string.digits.encode() + b"_/+=" + _PUNCTUATION)
_SPACED = bytes(byte if byte in _WORDS else 32 for byte in range(256))
"""What words do not have becomes a space."""

_INNER = re.compile(rb"[/+=][.~-]{0,10}([A-Za-z0-9][\w.-])")
"""Where a token may begin within a word. It may hold these characters, too."""

_LONGEST = 30
"""Bytes of the longest beginning."""

_ESCAPED = re.compile(rb"\\[nrt]")


@dataclass(frozen=True, slots=True)
class Hit:
    """What looks like a secret.

    Attributes:
        rule: the name of the rule that says so.
        start: offset of the first byte.
        end: offset behind the last one.
    """

    rule: str
    start: int
    end: int


@functools.cache
def _by_beginning() -> dict[bytes, list[Rule]]:
    """Return the rules by the first two characters of their tokens, in upper and in lower case."""
    found: dict[bytes, list[Rule]] = {}
    for name, beginnings, expression, entropy in RULES:
        for beginning in beginnings.encode().split():
            first, second = (set(character) for character in zip(beginning[:2], beginning[:2].upper(), strict=True))
            for pair in itertools.product(first, second):
                found.setdefault(bytes(pair), []).append((beginning, name, expression, entropy))
    return found


@functools.cache
def _compiled(expression: str) -> re.Pattern[bytes]:
    return re.compile(expression.encode())


def find(data: bytes) -> list[Hit]:
    """Returns what looks like a secret in a text, in order, without overlaps."""
    found = sorted(_all(data), key=lambda hit: (hit.start, -hit.end))
    kept: list[Hit] = []
    for hit in found:
        if not kept or hit.start >= kept[-1].end:
            kept.append(hit)
    return kept


def _all(data: bytes) -> Iterator[Hit]:
    # "\\nghp_…" in a line of JSON: the letter belongs to the line break, not to the token.
    text = _ESCAPED.sub(b"  ", data) if b"\\" in data else data
    rules = _by_beginning()
    end = 0
    for start, candidates in sorted(_beginnings(text, rules), key=lambda place: place[0]):
        token = _token(text, start, candidates) if start >= end else None
        if token is not None:
            yield token
            end = token.end
    for found in forms.find(data, text):
        yield Hit(*found)


def _beginnings(text: bytes, rules: dict[bytes, list[Rule]]) -> Iterator[tuple[int, list[Rule]]]:
    """Yield where tokens may begin, and the rules for each, in no order.

    To split the text takes half the time of a regular expression for words; few of them are then looked for.
    """
    end = 0
    for whole in [word for word in text.translate(_SPACED).split() if len(word) >= _LEAST]:
        if whole[:2] in rules:
            word = whole
        elif whole[0] in _PUNCTUATION:
            word = whole.lstrip(_PUNCTUATION)
        else:
            continue
        if candidates := _candidates(word, rules):
            while True:
                start = text.find(whole, end)
                end = start + len(whole)
                if (start == 0 or text[start - 1] not in _WORDS) and (end == len(text) or text[end] not in _WORDS):
                    break
            yield end - len(word), candidates
    for part in _INNER.finditer(text):
        if part[1] in rules:
            start = part.start(1)
            if candidates := _candidates(text[start : start + _LONGEST], rules):
                yield start, candidates


def _candidates(word: bytes, rules: dict[bytes, list[Rule]]) -> list[Rule]:
    """Return the rules for tokens that begin as a word does."""
    return [rule for rule in rules.get(word[:2], ()) if word[: len(rule[0])].lower() == rule[0]]


def _token(text: bytes, start: int, candidates: list[Rule]) -> Hit | None:
    """Return the longest token that begins at a place; None where there is none."""
    longest = None
    for _, name, expression, entropy in candidates:
        found = _compiled(expression).match(text, start)
        if found is None or forms.entropy(found[0]) < entropy or found[0].endswith(b"EXAMPLE"):
            continue
        if longest is None or found.end() > longest.end:
            longest = Hit(name, *found.span())
    return longest


def lines(data: bytes) -> list[tuple[Hit, int, bytes]]:
    """Returns what looks like a secret in a file, each with its line, from 1, and its bytes; nothing where it is binary."""
    if b"\0" in data[:_BINARY]:
        return []
    found, line, at = [], 1, 0
    for hit in find(data):
        line += data.count(b"\n", at, hit.start)
        at = hit.start
        found.append((hit, line, data[hit.start : hit.end]))
    return found


def masked(text: str) -> str:
    """Returns a text with `[masked: RULE]` in place of whatever looks like a secret."""
    return masked_bytes(text.encode("utf-8", "surrogatepass")).decode("utf-8", "surrogatepass")


def masked_bytes(data: bytes) -> bytes:
    """Returns bytes as `masked` does."""
    return without(data, find(data))


def without(data: bytes, hits: Sequence[Hit]) -> bytes:
    """Returns bytes with some of what `find` has found masked."""
    if not hits:
        return data
    parts, at = [], 0
    for hit in hits:
        parts += [data[at : hit.start], MASK + f"{hit.rule}]".encode()]
        at = hit.end
    return b"".join([*parts, data[at:]])
