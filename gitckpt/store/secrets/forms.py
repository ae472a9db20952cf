"""Find secrets by what stands before them: a name, a header, the marks of a private key.

A plain search finds a word, and an expression of bounded length is compared with what follows.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
from collections import Counter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_KEY_HEADER = re.compile(rb"-----BEGIN[ A-Z0-9_-]{0,60}PRIVATE KEY(?: BLOCK)?-----")
_KEY_FOOTER = re.compile(rb"-----END[ A-Z0-9_-]{0,80}-----")
_KEY_BYTES = 20_000
_LINE = rb"(?:\\[nr]|[ \t\r\n]){1,20}(?:[A-Za-z-]{3,20}: [^\r\n\\]{1,80}|[A-Za-z0-9+/=]{20,200})"
_KEY_LINES = re.compile(rb"(?:%s){1,400}" % _LINE)

_IN_URL = re.compile(rb"://[^\s:/@\"'<>{}$]{0,100}:([^\s:/@\"'<>{}$*]{3,200})@[\w.-]{1,253}")
_NETRC = re.compile(
    rb"(?:machine[ \t\r\n]{1,20}[^\s]{1,255}|default)[ \t\r\n]{1,20}login[ \t\r\n]{1,20}[^\s]{1,255}"
    rb"[ \t\r\n]{1,20}password[ \t\r\n]{1,20}([^\s<>$\[\]{}*%\"'`\\]{3,255})"
)

_QUOTE = rb"\\{0,2}[\"'`]?"
_IS = rb"[ \t]{0,3}(?:=>|:=|=|:|,)[ \t]{0,3}" + _QUOTE
_ASSIGNED = re.compile(rb"[\w-]{0,24}" + _QUOTE + _IS + rb"(\w[\w.~+/-]{15,3999}={0,2})")
_AWS_KEY = re.compile(
    rb"(?i)[_-]?(?:access)?[_-]?key%s(?:>|%s)([A-Za-z0-9/+]{40})(?![A-Za-z0-9/+=])" % (_QUOTE, _IS)
)  # fmt: skip
_CLIENT_KEY = re.compile(rb"-data" + _QUOTE + _IS + rb"([A-Za-z0-9+/]{40,20000}={0,2})")
_HEADER = re.compile(
    rb"(?i)authorization%s%s(?:(basic)|bearer|token)[ \t]{1,3}([\w.~+/=-]{8,4000})" % (_QUOTE, _IS)
)  # fmt: skip
_LOGIN = re.compile(rb"auth%s[ \t\r\n]{0,20}[:=][ \t\r\n]{0,20}%s" % (_QUOTE, _QUOTE) + rb"([A-Za-z0-9+/]{8,4000}={0,2})(?![\w+/=-])")
_NAMES = (b"passw", b"secret", b"token", b"credential", b"key")
_KEYS = tuple(name + dash for name in (b"api", b"access", b"auth", b"private") for dash in (b"", b"_", b"-"))

_NO_SECRET = re.compile(
    rb"(?i)example|sample|dummy|placeholder|change.?me|your[_-]|xxxx|0000|1234567|abcdef|test|fake"
    rb"|\.\.\.|pass|secret|localhost|tiger|127\.0\.0"
)
_PLACEHOLDER = re.compile(
    rb"(?i)(?:(?:my|your|the|some)[ _-]?)?"
    rb"(?:pass(?:word|wd|phrase)?|secret|token|key|test|open sesame|string)\d{0,4}|(.)\1*"
)
_EXAMPLE = re.compile(rb"(?i)example|placeholder|changeme|\.\.\.|xxxx")


def find(data: bytes, text: bytes) -> Iterator[tuple[str, int, int]]:
    r"""Yield rule, start and end of what looks like a secret, in no order.

    In `text`, escaped line breaks (`\n` in JSON) of `data` are blanked.
    """
    if b"PRIVATE KEY" in data:
        yield from _private_keys(data)
    folded = text.lower()
    for at in _places(folded, b"://"):
        found = _IN_URL.match(text, at)
        if found is not None and not _NO_SECRET.search(found[0]):
            yield "password-in-url", *found.span(1)
    for word in (b"machine", b"default"):
        for at in _places(folded, word):
            found = _NETRC.match(text, at)
            if found is not None and not _is_placeholder(found[1]):
                yield "netrc-password", *found.span(1)
    for at in _places(folded, b"auth"):
        yield from _authorized(text, folded, at)
    for name in _NAMES:
        for at in _places(folded, name):
            yield from _assigned(text, folded, name, at)


def _places(text: bytes, word: bytes) -> Iterator[int]:
    """Yield where a word stands in a text."""
    at = text.find(word)
    while at >= 0:
        yield at
        at = text.find(word, at + len(word))


def _private_keys(data: bytes) -> Iterator[tuple[str, int, int]]:
    """Yield keys from header to footer; of one that was cut off, the lines that are there."""
    for header in _KEY_HEADER.finditer(data):
        start = header.end()
        end = data.find(b"-----", start, start + _KEY_BYTES)
        footer = _KEY_FOOTER.match(data, end) if end >= start + 40 else None
        if footer is not None:
            yield "private-key", header.start(), footer.end()
        elif lines := _KEY_LINES.match(data, start, end if end >= 0 else start + _KEY_BYTES):
            yield "private-key", header.start(), lines.end()


def _authorized(text: bytes, folded: bytes, at: int) -> Iterator[tuple[str, int, int]]:
    """Yield the value of the header `Authorization`, or of `auth` in a file of docker or npm."""
    if folded.startswith(b"authorization", at):
        found = _HEADER.match(text, at)
        if found and (_is_login if found[1] else _is_bearer)(found[2]):
            yield "authorization-header", *found.span(2)
    elif folded[at + 4 : at + 5] in b"\"'\\ =:":
        found = _LOGIN.match(folded, at)
        if found is not None and _is_login(text[found.start(1) : found.end(1)]):
            yield "registry-auth", *found.span(1)


def _assigned(text: bytes, folded: bytes, name: bytes, at: int) -> Iterator[tuple[str, int, int]]:
    """Yield what is assigned to a name that says that it is secret."""
    end = at + len(name)
    if name == b"key" and not folded.endswith(_KEYS, 0, at):
        if folded.endswith(b"client-", 0, at) and (found := _CLIENT_KEY.match(text, end)):
            yield "kubernetes-client-key", *found.span(1)
        return
    if name == b"secret" and (found := _AWS_KEY.match(text, end)):
        if b"EXAMPLE" not in found[1] and entropy(found[1]) >= 3.5:
            yield "aws-secret-access-key", *found.span(1)
    elif (found := _ASSIGNED.match(text, end)) and _looks_random(found[1]):
        yield "assigned-secret", *found.span(1)


def _looks_random(value: bytes, least: float = 3.6) -> bool:
    digits = sum(48 <= byte < 58 for byte in value)
    return 2 <= digits < len(value) and entropy(value) >= least and not _NO_SECRET.search(value)


def _is_bearer(value: bytes) -> bool:
    return len(value) >= 16 and _looks_random(value, 3.0)


def _is_login(value: bytes) -> bool:
    """Tell whether a value is a name and a password in base64."""
    try:
        name, colon, password = base64.b64decode(value + b"=" * (-len(value) % 4)).partition(b":")
    except binascii.Error:
        return False
    return bool(colon and name and len(password) >= 3 and password.isascii() and not _is_placeholder(password))


def _is_placeholder(password: bytes) -> bool:
    return bool(_PLACEHOLDER.fullmatch(password) or _EXAMPLE.search(password))


def entropy(text: bytes) -> float:
    """Return the entropy of a text, in bits for each byte."""
    shares = [count / len(text) for count in Counter(text).values()]
    return -sum(share * math.log2(share) for share in shares)
