"""Finds what looks like a secret in a text, fast enough to be done at each save: 200 KB take a few milliseconds.

Most tokens begin with letters that name their service; so words that are long enough are looked up by how they begin, and only then is one
of the regular expressions compiled. Beside these, three forms count: private keys, passwords in URLs, and values of high entropy that are
assigned to a name which says that they are secret.
"""

from __future__ import annotations

import functools
import math
import re
import string
from collections import Counter

from gitckpt.model.values import dataclass
from gitckpt.store.secrets.rules import RULES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

LARGEST = 1_000_000
"""A file with more bytes is not looked at: what people write by hand is smaller."""

MASK = b"[masked: "
"""How what stands for a secret begins."""

_BINARY = 8000
_LEAST = 14
"""Bytes of a word that may be a secret."""

_PUNCTUATION = b".~-"
_WORDS = frozenset(string.ascii_letters.encode() + string.digits.encode() + b"_" + _PUNCTUATION)
_SPACED = bytes(byte if byte in _WORDS else 32 for byte in range(256))
"""What words do not have becomes a space."""

_ASSIGNED = re.compile(
    rb"(?i)(?:passw(?:or)?d|passwd|secret|token|api[_-]?key|access[_-]?key|auth[_-]?key|private[_-]?key|credential)s?[\w-]{0,20}"
    rb"[\"']?[ \t]{0,3}(?:=|:|=>|:=|,)[ \t]{0,3}[\"'`]?$"
)
_VALUE = re.compile(rb"[\w.~+/=-]{16,200}")
_PRIVATE_KEY = re.compile(rb"-----BEGIN[ A-Z0-9_-]{0,60}PRIVATE KEY(?: BLOCK)?-----(?:[\s\S]{40,20000}?-----END[ A-Z0-9_-]{0,80}-----)?")
_IN_URL = re.compile(rb"[a-z][a-z0-9+.-]{1,20}://[^\s:/@\"'<>{}$]{1,100}:([^\s:/@\"'<>{}$*]{3,200})@[\w.-]+")
_NO_SECRET = re.compile(
    rb"(?i)example|sample|dummy|placeholder|change.?me|your[_-]|xxxx|0000|1234567|abcdef|test|fake|\.\.\.|pass|secret|localhost|tiger|127\.0\.0"
)
_DIGITS = b"0123456789"
_LEAST_ENTROPY = 3.6
_BEFORE = 80


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
def _by_beginning() -> dict[bytes, list[tuple[bytes, str, str, float]]]:
    """Returns the rules by the first two letters of their tokens: beginning, name, expression, entropy."""
    found: dict[bytes, list[tuple[bytes, str, str, float]]] = {}
    for name, beginnings, expression, entropy in RULES:
        for beginning in beginnings.encode().split():
            found.setdefault(beginning[:2], []).append((beginning, name, expression, entropy))
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
    if b"PRIVATE KEY" in data:
        yield from (Hit("private-key", *found.span()) for found in _PRIVATE_KEY.finditer(data))
    if b"://" in data:
        for found in _IN_URL.finditer(data):
            if not _NO_SECRET.search(found[0]):
                yield Hit("password-in-url", *found.span(1))
    rules = _by_beginning()
    for start, text in _words(data, rules):
        token = _token(data, start, text, rules.get(text[:2].lower(), []))
        if token is not None:
            yield token
        elif len(text.translate(None, _DIGITS)) < len(text) and _is_assigned(data, start):
            value = _VALUE.match(data, start)
            if value is not None and _looks_random(value[0]):
                yield Hit("assigned-secret", *value.span())


def _words(data: bytes, rules: dict[bytes, list[tuple[bytes, str, str, float]]]) -> Iterator[tuple[int, bytes]]:
    """Yields where words are that have a digit or begin as a token does, and the words.

    To split the text takes half the time of a regular expression for words; few of them are then looked for.
    """
    end = 0
    for whole in [text for text in data.translate(_SPACED).split() if len(text) >= _LEAST]:
        word = whole.lstrip(_PUNCTUATION)
        if len(word) < _LEAST or not (len(word.translate(None, _DIGITS)) < len(word) or _begins_as_token(word, rules)):
            continue
        while True:
            at = data.find(whole, end)
            end = at + len(whole)
            if (at == 0 or data[at - 1] not in _WORDS) and (end == len(data) or data[end] not in _WORDS):
                break
        yield end - len(word), word


def _begins_as_token(word: bytes, rules: dict[bytes, list[tuple[bytes, str, str, float]]]) -> bool:
    some = rules.get(word[:2].lower())
    return some is not None and any(word[: len(found[0])].lower() == found[0] for found in some)


def _token(data: bytes, start: int, text: bytes, candidates: list[tuple[bytes, str, str, float]]) -> Hit | None:
    """Returns what a word is by one of the rules; None where it is a word like others."""
    for beginning, name, expression, entropy in candidates:
        if text[: len(beginning)].lower() == beginning:
            found = _compiled(expression).match(data, start)
            if found is not None and _entropy(found[0]) >= entropy and not found[0].endswith(b"EXAMPLE"):
                return Hit(name, *found.span())
    return None


def _is_assigned(data: bytes, start: int) -> bool:
    before = data[max(start - _BEFORE, 0) : start]
    return _ASSIGNED.search(before[before.rfind(b"\n") + 1 :]) is not None


def _looks_random(value: bytes) -> bool:
    digits = sum(48 <= byte < 58 for byte in value)
    return digits >= 2 and digits < len(value) and _entropy(value) >= _LEAST_ENTROPY and not _NO_SECRET.search(value)


def _entropy(text: bytes) -> float:
    """Returns the entropy of a text, in bits for each byte."""
    size = len(text)
    return -sum(count / size * math.log2(count / size) for count in Counter(text).values())


def lines(data: bytes) -> list[tuple[Hit, int, bytes]]:
    """Returns what looks like a secret in a file, each with its line, from 1, and its bytes; nothing where it is binary."""
    if b"\0" in data[:_BINARY]:
        return []
    return [(hit, data.count(b"\n", 0, hit.start) + 1, data[hit.start : hit.end]) for hit in find(data)]


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
