"""Write and read the store's TOML documents.

Why an own writer: the hook has 10 ms and can import no library, hook and library must write the
same bytes, and each value of a state must be checked anyway. For 10 KB it takes 0.4 ms, tomlkit
25 ms, tomli_w 1.7 ms; rtoml refuses 128 levels. The reader is `tomllib`, imported on demand.
tomlkit, which keeps comments, edits the files of people (`gitckpt.store.config.settings`). Writer
and reader keep to the limits in `budget`. Keys keep their order: a table has a `[header]` only if
no plain value follows it in its parent.
"""

from __future__ import annotations

from gitckpt.model import budget
from gitckpt.model.errors import StateError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeAlias

    from gitckpt.model.budget import Budget

    Path: TypeAlias = tuple[Any, str | int] | None

# Nesting of tables and arrays. Readers in other languages stop at 80 to 128 levels.
MAX_DEPTH = 200

_DECIMAL_DIGITS_BITS = 13_000
_BARE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")
_ESCAPES = {i: f"\\u{i:04X}" for i in (*range(0x20), *range(0x7F, 0xA0))}
_ESCAPES |= {8: "\\b", 9: "\\t", 10: "\\n", 12: "\\f", 13: "\\r", 34: '\\"', 92: "\\\\"}
_ESCAPES_MULTILINE = {code: text for code, text in _ESCAPES.items() if code != 10}
_MULTILINE_FROM = 60
# Written forms of keys: each document of a run names all of its phases again.
_names: dict[str, str] = {}

_NAMES = 2000
_SHORT_NAME = 100
# Characters of a document that `_plain` tries: with six per line at least, no budget is too small.
_SHORT = 4000


def dumps(document: dict[str, Any], limits: Budget = budget.HEADER) -> str:
    writer = _Writer(None)
    writer.table(document, "", None, 0)
    return writer.text("the document, less the state," if limits is budget.HEADER else "the document", limits)


def dump_state(state: dict[str, Any], types: dict[str, str]) -> str:
    """Return a state as the table `[state]` of a document.

    `types` receives JSON pointer (RFC 6901) -> kind of each value written as a string: "null",
    "bytes" (base64) or "integer" (beyond 64 bits; `0x…` beyond 3,900 decimal digits).
    """
    writer = _Writer(types)
    writer.parts.append("[state]\n")
    writer.table(state, "state", None, 0)
    return writer.text("the state", budget.STATE)


def loads(text: str, limits: Budget | None = budget.DOCUMENT) -> dict[str, Any]:
    """Return the content of a TOML document within limits, or raise `ValueError`."""
    table = _plain(text) if len(text) <= _SHORT else None
    if table is not None:
        return table
    import tomllib

    if limits is not None:
        budget.require(text, limits)
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("nests too deeply") from None


def _plain(text: str) -> dict[str, Any] | None:
    """Read bare keys with plain values in tables of one name; None for anything else.

    Most documents are like that. It reads 100,000 of them in 1 s instead of 9, and a single one
    without importing `tomllib` (3 ms, and 3 ms for `typing` and `datetime`).
    """
    import re

    line = re.compile(
        r'([A-Za-z0-9_-]+) = (?:"([^"\\\x00-\x1f\x7f]*)"|(-?(?:0|[1-9][0-9]{0,17}))|(true|false)|\[\])|\[([A-Za-z0-9_-]+)\]'
        r"|#[^\x00-\x08\x0a-\x1f\x7f]*"
    )
    document: dict[str, Any] = {}
    table = document
    for each in text.split("\n"):
        if not each:
            continue
        parts = line.fullmatch(each)
        if parts is None:
            return None
        key, string, number, boolean, header = parts.groups()
        name = key or header
        if name is None:  # a comment, as in a fresh `gitckpt.toml`
            continue
        parent = table if key else document
        if name in parent:
            return None
        if key is None:
            document[header] = table = {}
        elif string is not None:
            table[key] = string
        elif number is not None:
            table[key] = int(number)
        else:
            table[key] = boolean == "true" if boolean else []
    return document


def pointer(path: Path) -> str:
    """Return the JSON pointer (RFC 6901) of a path; "" is the whole value."""
    steps: list[str] = []
    while path is not None:
        path, step = path
        steps.append(str(step).replace("~", "~0").replace("/", "~1"))
    return "".join("/" + step for step in reversed(steps))


class _Writer:
    def __init__(self, types: dict[str, str] | None) -> None:
        self.parts: list[str] = []
        self.types = types
        self.names = 0
        self.steps = 0
        self.values = 0
        self.long = 0

    def text(self, what: str, limits: Budget) -> str:
        text = "".join(self.parts)
        for amount, most, unit in (
            (len(text) if text.isascii() else len(text.encode()), limits.size, "bytes"),
            (self.names, limits.names, "keys"),
            (self.steps, limits.steps, "steps from the top to its keys, added up"),
            (self.values, limits.values, "values in arrays"),
            (self.long, budget.MAX_LONG, "characters in long integers"),
        ):
            if amount > most:
                message = f"{what} has {amount:,} {unit}, and no reader takes more than {most:,}"
                raise StateError("", message, hint="keep what is large in a file of the worktree, and its path in the state")
        return text

    def count(self, keys: int, depth: int) -> None:
        self.names += keys
        self.steps += keys * (depth + 2)

    def table(self, table: dict[str, Any], header: str, path: Path, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise StateError(pointer(path), f"nests deeper than {MAX_DEPTH} levels")
        items = list(table.items())
        self.count(len(items), depth)
        self.count(1, depth)
        self.names += depth
        inline = len(items)
        while inline and type(items[inline - 1][1]) is dict:
            inline -= 1
        write = self.parts.append
        for key, value in items[:inline]:
            if type(value) is str and value.isprintable() and '"' not in value and "\\" not in value:
                write(f'{_key(key, path)} = "{value}"\n')
            else:
                write(f"{_key(key, path)} = {self.value(value, (path, key), depth + 1)}\n")
        for key, value in items[inline:]:
            name = _key(key, path)
            name = f"{header}.{name}" if header else name
            write(f"\n[{name}]\n")
            self.table(value, name, (path, key), depth + 1)

    def value(self, value: Any, path: Path, depth: int) -> str:
        kind = type(value)
        if kind is str:
            if value.isprintable() and '"' not in value and "\\" not in value:
                return f'"{value}"'
            return _escaped(value, path)
        if kind is bool:
            return "true" if value else "false"
        if kind is int:
            if budget.MIN_INTEGER <= value <= budget.MAX_INTEGER:
                return str(value)
            return self.lacking(path, "integer", self.digits(value, path))
        if kind is float:
            return repr(value)
        if kind is dict or kind is list:
            if depth > MAX_DEPTH:
                raise StateError(pointer(path), f"nests deeper than {MAX_DEPTH} levels")
            if kind is list:
                self.values += len(value)
                inner = [self.value(item, (path, i), depth + 1) for i, item in enumerate(value)]
                return f"[{', '.join(inner)}]"
            self.count(len(value), depth)
            pairs = [f"{_key(key, path)} = {self.value(item, (path, key), depth + 1)}" for key, item in value.items()]
            return f"{{{', '.join(pairs)}}}"
        return self.rare(value, path)

    def digits(self, value: int, path: Path) -> str:
        text = _digits(value)
        if len(text) > budget.MAX_DECIMAL:
            self.long += len(text)
        if len(text) > budget.MAX_HEXADECIMAL:
            problem = f"an integer of {len(text):,} characters in hexadecimal, and no reader takes more than {budget.MAX_HEXADECIMAL:,}"
            raise StateError(pointer(path), problem, hint="store it as bytes")
        return text

    def rare(self, value: Any, path: Path) -> str:
        if value is None:
            return self.lacking(path, "null", "null")
        if type(value) is bytes:
            import base64

            return self.lacking(path, "bytes", base64.b64encode(value).decode("ascii"))
        text = _date_or_time(value, path)
        if text is None:
            raise StateError(
                pointer(path),
                f"a {type(value).__module__}.{type(value).__qualname__} cannot be stored",
                hint="a state holds JSON values, bytes, and dates and times; convert the value first",
            )
        return text

    def lacking(self, path: Path, kind: str, text: str) -> str:
        if self.types is None:
            raise StateError(pointer(path), f"TOML has no {kind} for this value")
        self.types[pointer(path)] = kind
        return f'"{text}"'


def _digits(value: int) -> str:
    return str(value) if value.bit_length() <= _DECIMAL_DIGITS_BITS else hex(value)


def _key(key: Any, path: Path) -> str:
    if type(key) is not str:
        shown = _digits(key) if type(key) is int else repr(key)
        raise StateError(pointer(path), f"the key {shown} is not a string", hint="TOML and JSON have string keys only")
    if name := _names.get(key):
        return name
    if key.isascii() and (key.isidentifier() or (key and _BARE.issuperset(key))):
        name = key
    elif key.isprintable() and '"' not in key and "\\" not in key:
        name = f'"{key}"'
    else:
        name = _escaped(key, (path, key), multiline=False)
    if len(key) < _SHORT_NAME and len(_names) < _NAMES:
        _names[key] = name
    return name


def _escaped(text: str, path: Path, *, multiline: bool = True) -> str:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise StateError(
            pointer(path).encode("utf-8", "backslashreplace").decode(),
            f"holds a lone surrogate (U+{ord(text[error.start]):04X}), which UTF-8 cannot encode",
            hint="decode file names and program output with errors='replace', or store them as bytes",
        ) from None
    if multiline and len(text) >= _MULTILINE_FROM and "\n" in text and not _resembles_header(text):
        return f'"""\n{text.translate(_ESCAPES_MULTILINE)}"""'
    return f'"{text.translate(_ESCAPES)}"'


def _resembles_header(text: str) -> bool:
    # Readers find the end of the header by lines that begin like a table's.
    return "[" in text and any(line.lstrip(" \t").startswith("[") for line in text.split("\n"))


def _date_or_time(value: Any, path: Path) -> str | None:
    import datetime

    kind = type(value)
    if kind is datetime.date:
        return str(value.isoformat())
    if kind is datetime.time:
        if value.tzinfo is not None or value.fold:
            raise StateError(pointer(path), "a time with a zone cannot be stored", hint="TOML has zones for date-times only")
        return str(value.isoformat())
    if kind is datetime.datetime:
        if value.fold:
            raise StateError(pointer(path), "a date-time with fold=1 cannot be stored")
        zone = value.tzinfo
        if zone is not None and (type(zone) is not datetime.timezone or zone.utcoffset(None) % datetime.timedelta(minutes=1)):
            raise StateError(
                pointer(path),
                f"a date-time with the zone {zone!r} cannot be stored",
                hint="convert it to a fixed offset of whole minutes, such as datetime.timezone.utc",
            )
        return str(value.isoformat())
    return None
