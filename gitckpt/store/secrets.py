"""Find and mask likely secrets, except hits that the user has settled as harmless."""

from __future__ import annotations

import base64
import binascii
import contextlib
import functools
import hashlib
import itertools
import math
import os
import re
import stat
import string
from collections import Counter

from gitckpt.git.files import private_dirs
from gitckpt.model.arguments import quote_path
from gitckpt.model.checkpoint import Suspect
from gitckpt.model.errors import CkptError, UsageError
from gitckpt.model.values import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from gitckpt.git.repository import Repository
    from gitckpt.git.worktree.index import PrivateIndex

    Rule = tuple[bytes, str, str, float]

# Secrets by context: a name, a header, or the markers of a private key.

_KEY_HEADER = re.compile(rb"-----BEGIN[ A-Z0-9_-]{0,60}PRIVATE KEY(?: BLOCK)?-----")
_KEY_FOOTER = re.compile(rb"-----END[ A-Z0-9_-]{0,80}-----")
_KEY_BYTES = 20_000
_LINE = rb"(?:\\[nr]|[ \t\r\n]){1,20}(?:[A-Za-z-]{3,20}: [^\r\n\\]{1,80}|[A-Za-z0-9+/=]{20,200})"
_KEY_LINES = re.compile(rb"(?:%s){1,400}" % _LINE)

_IN_URL = re.compile(rb"://[^\s:/@\"'<>{}$]{0,100}:([^\s:/@\"'<>{}$*]{3,200})@[\w.-]{1,253}")
_NETRC = re.compile(
    rb"(?:machine[ \t\r\n]{1,20}[^\s]{1,255}|default)[ \t\r\n]{1,20}login[ \t\r\n]{1,20}"
    rb"[^\s]{1,255}[ \t\r\n]{1,20}password[ \t\r\n]{1,20}([^\s<>$\[\]{}*%\"'`\\]{3,255})"
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
_LOGIN = re.compile(
    rb"auth%s[ \t\r\n]{0,20}[:=][ \t\r\n]{0,20}%s" % (_QUOTE, _QUOTE)
    + rb"([A-Za-z0-9+/]{8,4000}={0,2})(?![\w+/=-])"
)
_NAMES = (b"passw", b"secret", b"token", b"credential", b"key")
_KEYS = tuple(
    name + dash for name in (b"api", b"access", b"auth", b"private") for dash in (b"", b"_", b"-")
)

_NO_SECRET = re.compile(
    rb"(?i)example|sample|dummy|placeholder|change.?me|your[_-]|xxxx|0000|1234567|abcdef|test|fake"
    rb"|\.\.\.|pass|secret|localhost|tiger|127\.0\.0"
)
_PLACEHOLDER = re.compile(
    rb"(?i)(?:(?:my|your|the|some)[ _-]?)?"
    rb"(?:pass(?:word|wd|phrase)?|secret|token|key|test|open sesame|string)\d{0,4}|(.)\1*"
)
_EXAMPLE = re.compile(rb"(?i)example|placeholder|changeme|\.\.\.|xxxx")


def _find_by_context(data: bytes, text: bytes) -> Iterator[tuple[str, int, int]]:
    if b"PRIVATE KEY" in data:
        yield from _find_private_keys(data)
    lower_text = text.lower()
    for start in _find_word_starts(lower_text, b"://"):
        if (match := _IN_URL.match(text, start)) and not _NO_SECRET.search(match[0]):
            yield "password-in-url", *match.span(1)
    for word in (b"machine", b"default"):
        for start in _find_word_starts(lower_text, word):
            if (match := _NETRC.match(text, start)) and not _is_placeholder(match[1]):
                yield "netrc-password", *match.span(1)
    for start in _find_word_starts(lower_text, b"auth"):
        yield from _find_authorization(text, lower_text, start)
    for name in _NAMES:
        for start in _find_word_starts(lower_text, name):
            yield from _find_assigned_secret(text, lower_text, name, start)


def _find_word_starts(text: bytes, word: bytes) -> Iterator[int]:
    start = text.find(word)
    while start >= 0:
        yield start
        start = text.find(word, start + len(word))


def _find_private_keys(data: bytes) -> Iterator[tuple[str, int, int]]:
    for header in _KEY_HEADER.finditer(data):
        start = header.end()
        end = data.find(b"-----", start, start + _KEY_BYTES)
        footer = _KEY_FOOTER.match(data, end) if end >= start + 40 else None
        if footer is not None:
            yield "private-key", header.start(), footer.end()
        elif lines := _KEY_LINES.match(data, start, end if end >= 0 else start + _KEY_BYTES):
            yield "private-key", header.start(), lines.end()


def _find_authorization(text: bytes, lower: bytes, start: int) -> Iterator[tuple[str, int, int]]:
    if lower.startswith(b"authorization", start):
        match = _HEADER.match(text, start)
        if match and (_is_base64_login if match[1] else _is_bearer_token)(match[2]):
            yield "authorization-header", *match.span(2)
    elif lower[start + 4 : start + 5] in b"\"'\\ =:":
        match = _LOGIN.match(lower, start)
        if match is not None and _is_base64_login(text[slice(*match.span(1))]):
            yield "registry-auth", *match.span(1)


def _find_assigned_secret(
    text: bytes, lower_text: bytes, name: bytes, start: int
) -> Iterator[tuple[str, int, int]]:
    end = start + len(name)
    if name == b"key" and not lower_text.endswith(_KEYS, 0, start):
        if lower_text.endswith(b"client-", 0, start) and (match := _CLIENT_KEY.match(text, end)):
            yield "kubernetes-client-key", *match.span(1)
    elif name == b"secret" and (match := _AWS_KEY.match(text, end)):
        if b"EXAMPLE" not in match[1] and entropy_of(match[1]) >= 3.5:
            yield "aws-secret-access-key", *match.span(1)
    elif (match := _ASSIGNED.match(text, end)) and _looks_random(match[1]):
        yield "assigned-secret", *match.span(1)


def _looks_random(value: bytes, floor: float = 3.6) -> bool:
    digits = sum(48 <= byte < 58 for byte in value)
    return 2 <= digits < len(value) and entropy_of(value) >= floor and not _NO_SECRET.search(value)


def _is_bearer_token(value: bytes) -> bool:
    return len(value) >= 16 and _looks_random(value, 3.0)


def _is_base64_login(value: bytes) -> bool:
    try:
        name, colon, password = base64.b64decode(value + b"=" * (-len(value) % 4)).partition(b":")
    except binascii.Error:
        return False
    has_name_and_password = colon and name and len(password) >= 3
    return bool(has_name_and_password) and password.isascii() and not _is_placeholder(password)


def _is_placeholder(password: bytes) -> bool:
    return bool(_PLACEHOLDER.fullmatch(password) or _EXAMPLE.search(password))


def entropy_of(text: bytes) -> float:
    shares = [count / len(text) for count in Counter(text).values()]
    return -sum(share * math.log2(share) for share in shares)


# The search by all rules at each save. For speed, most rules search for a plain word first.

LARGEST = 1_000_000  # bytes of a file to search: files that people write are smaller
MASK = b"[masked: "  # start of the replacement of a secret
_BINARY = 8000  # a NUL among so many first bytes makes a file binary, as in git
_SHORTEST, _LONGEST_PREFIX = 12, 30  # bytes of a token, and of a prefix

_PUNCTUATION = b".~-"
_WORD_BYTES = frozenset(f"{string.ascii_letters}{string.digits}_/+=".encode() + _PUNCTUATION)
# Translation table: bytes that are not part of a word become spaces.
_SPACED = bytes(byte if byte in _WORD_BYTES else 32 for byte in range(256))

# Where a token can start within a word.
_INNER = re.compile(rb"[/+=][.~-]{0,10}([A-Za-z0-9][\w.-])")
_ESCAPED = re.compile(rb"\\[nrt]")


@dataclass(frozen=True, slots=True)
class SecretHit:
    """A likely secret in a text: the name of the rule, and start and end in bytes."""

    rule: str
    start: int
    end: int


@functools.cache
def load_token_rules() -> tuple[tuple[str, str, str, float], ...]:
    """Return rules for tokens: name, prefixes, regular expression, minimum entropy."""
    path = os.path.join(os.path.dirname(__file__), "secret_rules.tsv")
    with open(path, encoding="ascii") as file:
        rows = [line.rstrip("\n").split("\t") for line in file if line[0] != "#"]
    return tuple((rule, prefixes, regex, float(minimum)) for rule, prefixes, minimum, regex in rows)


@functools.cache
def _rules_by_start() -> dict[bytes, list[Rule]]:
    rules_by_start: dict[bytes, list[Rule]] = {}
    for rule_name, prefixes, regex, floor in load_token_rules():
        for prefix in prefixes.encode().split():
            letter_cases = zip(prefix[:2], prefix[:2].upper(), strict=True)
            for pair in itertools.product(*map(set, letter_cases)):
                rules_by_start.setdefault(bytes(pair), []).append((prefix, rule_name, regex, floor))
    return rules_by_start


@functools.cache
def _compile_cached(expression: str) -> re.Pattern[bytes]:
    return re.compile(expression.encode())


def find_hits(data: bytes) -> list[SecretHit]:
    # "\\nghp_…" in JSON: the "n" belongs to the line break, not to the token.
    text = _ESCAPED.sub(b"  ", data) if b"\\" in data else data
    hits = [*_find_tokens(text), *(SecretHit(*match) for match in _find_by_context(data, text))]
    first_hits: list[SecretHit] = []
    for hit in sorted(hits, key=lambda hit: (hit.start, -hit.end)):
        if not first_hits or hit.start >= first_hits[-1].end:
            first_hits.append(hit)
    return first_hits


def _find_tokens(text: bytes) -> Iterator[SecretHit]:
    last_end = 0
    for start, candidates in sorted(_find_rule_starts(text), key=lambda candidate: candidate[0]):
        token = _match_token(text, start, candidates) if start >= last_end else None
        if token is not None:
            yield token
            last_end = token.end


def _find_rule_starts(text: bytes) -> Iterator[tuple[int, list[Rule]]]:
    rules_by_start = _rules_by_start()
    offset = 0
    # Splitting the text takes half the time of a regular expression for words.
    for raw_word in [word for word in text.translate(_SPACED).split() if len(word) >= _SHORTEST]:
        if raw_word[:2] in rules_by_start:
            word = raw_word
        elif raw_word[0] in _PUNCTUATION:
            word = raw_word.lstrip(_PUNCTUATION)
        else:
            continue
        if candidate_rules := _find_rules(word, rules_by_start):
            while True:
                start = text.find(raw_word, offset)
                offset = start + len(raw_word)
                is_start = start == 0 or text[start - 1] not in _WORD_BYTES
                if is_start and (offset == len(text) or text[offset] not in _WORD_BYTES):
                    break
            yield offset - len(word), candidate_rules
    for match in _INNER.finditer(text):
        start = match.start(1)
        if candidate_rules := _find_rules(text[start : start + _LONGEST_PREFIX], rules_by_start):
            yield start, candidate_rules


def _find_rules(word: bytes, rules: dict[bytes, list[Rule]]) -> list[Rule]:
    return [rule for rule in rules.get(word[:2], ()) if word[: len(rule[0])].lower() == rule[0]]


def _match_token(text: bytes, start: int, candidates: list[Rule]) -> SecretHit | None:
    longest_hit = None
    for _, rule_name, expression, min_entropy in candidates:
        match = _compile_cached(expression).match(text, start)
        if match is None or entropy_of(match[0]) < min_entropy or match[0].endswith(b"EXAMPLE"):
            continue
        if longest_hit is None or match.end() > longest_hit.end:
            longest_hit = SecretHit(rule_name, *match.span())
    return longest_hit


def locate_hits(data: bytes) -> list[tuple[SecretHit, int, bytes]]:
    if b"\0" in data[:_BINARY]:
        return []
    hits, line_number, counted_end = [], 1, 0
    for hit in find_hits(data):
        line_number += data.count(b"\n", counted_end, hit.start)
        counted_end = hit.start
        hits.append((hit, line_number, data[hit.start : hit.end]))
    return hits


def mask_text(text: str) -> str:
    return mask_bytes(text.encode("utf-8", "surrogatepass")).decode("utf-8", "surrogatepass")


def mask_bytes(data: bytes, hits: Sequence[SecretHit] | None = None) -> bytes:
    pieces, previous_end = [], 0
    for hit in find_hits(data) if hits is None else hits:
        pieces += [data[previous_end : hit.start], MASK + f"{hit.rule}]".encode()]
        previous_end = hit.end
    return b"".join([*pieces, data[previous_end:]])


# Hits that a user has settled as no secrets, by path or digest.

FILE, KEY = "settled-secrets", "secret-key"
_DIGEST_BYTES = 8
_PATH, _DIGEST = b"path ", b"digest "


class SettledSecrets:
    def __init__(self, repository: Repository) -> None:
        self._repository = repository

    def digest(self, secret: bytes) -> str:
        return hashlib.blake2b(secret, key=self._digest_key, digest_size=_DIGEST_BYTES).hexdigest()

    def is_settled(self, path: str, digest: str) -> bool:
        return not self._lines.isdisjoint((_DIGEST + digest.encode(), _PATH + _escape_path(path)))

    def mark_as_harmless(self, name: str) -> bool:
        if not name:
            hint = "name a path or a digest from: git ckpt show ID"
            raise UsageError("the path or digest is empty", hint=hint)
        line = _DIGEST + name.encode() if is_secret_digest(name) else _PATH + _escape_path(name)
        if line in self._lines:
            return False
        path = os.path.join(self._repository.make_private_dir(), FILE)
        try:
            with open(path, "ab", opener=private_dirs.open_private_file) as file:
                file.write(line + b"\n")
        except OSError as error:
            raise CkptError(f"cannot write {path}: {error.strerror}") from None
        del self._lines
        return True

    @functools.cached_property
    def _lines(self) -> frozenset[bytes]:
        path = os.path.join(self._repository.private_dir, FILE)
        return frozenset(private_dirs.read_private_file(path).split(b"\n"))

    @functools.cached_property
    def _digest_key(self) -> bytes:
        path = os.path.join(self._repository.make_private_dir(), KEY)
        try:
            if os.path.lexists(path) and os.lstat(path).st_size == 0:
                os.unlink(path)  # emptied by a power cut; passwords could be guessed without a key
            if not os.path.lexists(path):
                scratch = f"{path}.{os.getpid()}.{os.urandom(4).hex()}"
                with contextlib.suppress(FileExistsError):
                    try:
                        private_dirs.append_to_private_file(scratch, os.urandom(32), flushed=True)
                        os.link(scratch, path)  # atomic: concurrent processes get the same key
                    finally:
                        with contextlib.suppress(FileNotFoundError):
                            os.unlink(scratch)
            with open(path, "rb", opener=private_dirs.open_private_file) as file:
                return file.read(64)
        except OSError:
            return os.urandom(32)  # saving works, but digests by this key cannot be settled


def is_secret_digest(text: str) -> bool:
    return len(text) == 2 * _DIGEST_BYTES and not text.strip("0123456789abcdef")


def _escape_path(path: str) -> bytes:
    return path.encode("utf-8", "surrogateescape").replace(b"\\", b"\\\\").replace(b"\n", b"\\n")


def find_unsettled_secrets(repository: Repository, data: bytes) -> list[tuple[SecretHit, int, str]]:
    settled_hits = SettledSecrets(repository)
    hits = [(hit, line, settled_hits.digest(secret)) for hit, line, secret in locate_hits(data)]
    return [hit for hit in hits if not settled_hits.is_settled("", hit[2])]


def mask_unsettled_secrets(repository: Repository, data: bytes) -> bytes:
    return mask_bytes(data, [hit for hit, *_ in find_unsettled_secrets(repository, data)])


def has_masked_secrets(data: bytes) -> bool:
    return MASK in data


# Suspects in the files of a snapshot.

MOST = 1000  # suspects per snapshot: a dump can contain any number
_PORTION = 100  # files between two reports of the progress


def find_suspected_secrets(
    index: PrivateIndex,
    files: str,
    paths: Sequence[bytes],
    stored: Mapping[bytes, bytes] | None = None,
) -> tuple[Suspect, ...]:
    if stored is None:
        contents = _read_small_files(index, files, paths)
    else:
        contents = ((path, stored.get(path, b"")) for path in paths)
    suspects: list[Suspect] = []
    progress = index.repository.counter("looking for secrets")
    for count, (path, content) in enumerate(contents):
        if progress is not None and count % _PORTION == 0:
            progress(count, len(paths))
        if len(content) <= LARGEST and (hits := locate_hits(content)):
            hit_rows = [(hit.rule, line, secret) for hit, line, secret in hits]
            suspects += list_unsettled_suspects(index.repository, path, hit_rows)
    if progress is not None:
        progress(len(paths), len(paths))
    return tuple(sorted(suspects, key=lambda suspect: (suspect.path, suspect.line))[:MOST])


def list_unsettled_suspects(
    repository: Repository, path: bytes, hit_rows: Sequence[tuple[str, int, bytes]]
) -> list[Suspect]:
    settled_hits, name = SettledSecrets(repository), quote_path(path)
    hits = ((rule, line, settled_hits.digest(secret)) for rule, line, secret in hit_rows[:MOST])
    return [Suspect(name, *hit) for hit in hits if not settled_hits.is_settled(name, hit[2])]


def _read_small_files(
    index: PrivateIndex, files: str, paths: Sequence[bytes]
) -> Iterator[tuple[bytes, bytes]]:
    top_dir = os.fsencode(index.repository.worktree or "")
    small_paths = [path for path in paths if _is_small_file(os.path.join(top_dir, path))]
    unsafe = {path for path in small_paths if b"\n" in path}  # cat-file takes one name per line
    entries = index.list_entries() if unsafe else ()
    oids = {path: oid for path, _, oid, _, _ in entries if path in unsafe}
    object_names = [oids.get(path) or f"{files}:{os.fsdecode(path)}" for path in small_paths]
    objects = index.repository.cat_file.read_contents(object_names, LARGEST) if object_names else ()
    contents = (stored_object[2] if stored_object is not None else b"" for stored_object in objects)
    return zip(small_paths, contents, strict=True)


def _is_small_file(path: bytes) -> bool:
    with contextlib.suppress(OSError):
        status = os.lstat(path)
        return stat.S_ISREG(status.st_mode) and 0 < status.st_size <= LARGEST
    return False
