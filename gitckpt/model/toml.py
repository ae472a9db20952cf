"""Write and read the store's TOML documents.

Why gitckpt has a TOML writer: the hook has 10 ms and can import no library, hook and library write
the same bytes, and each value of a state must be checked anyway. This writer takes 0.4 ms for
10 KB, tomlkit 25 ms, tomli_w 1.7 ms; rtoml refuses 128 levels. `tomllib` reads, imported on demand.
tomlkit, which preserves comments, edits `gitckpt.toml` (`gitckpt.store.config.settings`). Writer
and reader enforce the limits in `budget`. Keys keep their order: a table has a `[header]` only if
no plain value follows it in its parent.
"""

from __future__ import annotations

from gitckpt.model import budget
from gitckpt.model.errors import StateError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeAlias

    from gitckpt.model.budget import SizeLimits

    Path: TypeAlias = tuple[Any, str | int] | None

# Levels of nested tables and arrays. Readers in other languages stop at 80 to 128 levels.
MAX_DEPTH = 200
_DECIMAL_DIGITS_BITS = 13_000
_BARE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")
_ESCAPES = {i: f"\\u{i:04X}" for i in (*range(0x20), *range(0x7F, 0xA0))}
_ESCAPES |= {8: "\\b", 9: "\\t", 10: "\\n", 12: "\\f", 13: "\\r", 34: '\\"', 92: "\\\\"}
_ESCAPES_MULTILINE = {code: text for code, text in _ESCAPES.items() if code != 10}
_MULTILINE_FROM = 60
# Key -> its written form: each document of a run names all phases of the run again.
_written_keys: dict[str, str] = {}
_MAX_NAMES, _MAX_NAME = 2000, 100
# Longest document, in characters, that `_parse_simple_toml` tries: too short to exceed any budget.
_SHORT = 4000


def dumps(document: dict[str, Any], limits: SizeLimits = budget.HEADER) -> str:
    writer = _TomlWriter(None)
    writer.write_table(document, "", None, 0)
    is_header = limits is budget.HEADER
    return writer.join_parts(f"the document{', less the state,' if is_header else ''}", limits)


def dump_state(state: dict[str, Any], types: dict[str, str]) -> str:
    """Render a state as the table `[state]` of a document.

    For a value that is written as a string, `types` receives its JSON pointer (RFC 6901) and kind:
    "null", "bytes" (base64) or "integer" (beyond 64 bits; `0x…` beyond 3,900 decimal digits).
    """
    writer = _TomlWriter(types)
    writer.parts.append("[state]\n")
    writer.write_table(state, "state", None, 0)
    return writer.join_parts("the state", budget.STATE)


def loads(text: str, limits: SizeLimits | None = budget.DOCUMENT) -> dict[str, Any]:
    """Parse a TOML document; raise `ValueError` if it is invalid or exceeds `limits`."""
    table = _parse_simple_toml(text) if len(text) <= _SHORT else None
    if table is not None:
        return table
    import tomllib

    if limits is not None:
        budget.require_toml_within(text, limits)
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("nests too deeply") from None


def _parse_simple_toml(text: str) -> dict[str, Any] | None:
    """Parse a document that has only bare keys and plain values; else return None."""
    # Most documents have only these. This function reads 100,000 of them in 1 s instead of 9, and
    # a single one without importing `tomllib` (3 ms, and 3 ms for `typing` and `datetime`).
    import re

    line_pattern = re.compile(
        r'([A-Za-z0-9_-]+) = (?:"([^"\\\x00-\x1f\x7f]*)"|(-?(?:0|[1-9][0-9]{0,17}))'
        r"|(true|false)|\[\])|\[(?:([A-Za-z0-9_-]+)\.)?([A-Za-z0-9_-]+)\]"
        r"|#[^\x00-\x08\x0a-\x1f\x7f]*"
    )
    document: dict[str, Any] = {}
    table = document
    for match in map(line_pattern.fullmatch, filter(None, text.split("\n"))):
        if match is None:
            return None
        key, string, number, boolean, outer, header = match.groups()
        name = key or header
        if name is None:  # a comment, as in a fresh `gitckpt.toml`
            continue
        parent = table if key else document.setdefault(outer, {}) if outer else document
        if not isinstance(parent, dict) or name in parent:
            return None
        if key is None:
            parent[header] = table = {}
        elif string is not None:
            table[key] = string
        elif number is not None:
            table[key] = int(number)
        else:
            table[key] = boolean == "true" if boolean else []
    return document


def json_pointer(path: Path) -> str:
    steps: list[str] = []
    while path is not None:
        path, step = path
        steps.append(str(step).replace("~", "~0").replace("/", "~1"))
    return "".join("/" + step for step in reversed(steps))


class _TomlWriter:
    def __init__(self, types: dict[str, str] | None) -> None:
        self.parts: list[str] = []
        self.types = types
        self.names = self.steps = self.values = self.long = 0

    def join_parts(self, subject: str, limits: SizeLimits) -> str:
        text = "".join(self.parts)
        for amount, limit, unit in (
            (len(text) if text.isascii() else len(text.encode()), limits.size, "bytes"),
            (self.names, limits.names, "keys"),
            (self.steps, limits.max_key_depth_sum, "steps from the top to its keys, added up"),
            (self.values, limits.values, "values in arrays"),
            (self.long, budget.MAX_LONG, "characters in long integers"),
        ):
            if amount > limit:
                problem = f"{subject} has {amount:,} {unit}; readers accept {limit:,}"
                hint = "put large data into a file of the worktree, and the path into the state"
                raise StateError("", problem, hint=hint)
        return text

    def count_keys(self, keys: int, depth: int) -> None:
        self.names += keys
        self.steps += keys * (depth + 2)

    def write_table(self, table: dict[str, Any], header: str, path: Path, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise StateError(json_pointer(path), f"nests deeper than {MAX_DEPTH} levels")
        items = list(table.items())
        self.count_keys(len(items) + 1, depth)
        self.names += depth
        plain_count = len(items)
        while plain_count and type(items[plain_count - 1][1]) is dict:
            plain_count -= 1
        for key, value in items[:plain_count]:
            name = _render_key(key, path)
            self.parts.append(f"{name} = {self.render_value(value, (path, key), depth + 1)}\n")
        for key, value in items[plain_count:]:
            name = _render_key(key, path)
            name = f"{header}.{name}" if header else name
            self.parts.append(f"\n[{name}]\n")
            self.write_table(value, name, (path, key), depth + 1)

    def render_value(self, value: Any, path: Path, depth: int) -> str:
        kind = type(value)
        if kind is str:
            return f'"{value}"' if _needs_no_escape(value) else _quote_and_escape(value, path)
        if kind is bool:
            return "true" if value else "false"
        if kind is int:
            if budget.MIN_INTEGER <= value <= budget.MAX_INTEGER:
                return str(value)
            return self.render_as_string(path, "integer", self.render_integer(value, path))
        if kind is float:
            return repr(value)
        if kind is not dict and kind is not list:
            return self.render_uncommon_type(value, path)
        if depth > MAX_DEPTH:
            raise StateError(json_pointer(path), f"nests deeper than {MAX_DEPTH} levels")
        if kind is list:
            self.values += len(value)
            items = [self.render_value(item, (path, i), depth + 1) for i, item in enumerate(value)]
            return f"[{', '.join(items)}]"
        self.count_keys(len(value), depth)
        rendered_pairs = [
            f"{_render_key(key, path)} = {self.render_value(item, (path, key), depth + 1)}"
            for key, item in value.items()
        ]
        return f"{{{', '.join(rendered_pairs)}}}"

    def render_integer(self, value: int, path: Path) -> str:
        text = _integer_text(value)
        if len(text) > budget.MAX_DECIMAL:
            self.long += len(text)
        if len(text) > budget.MAX_HEXADECIMAL:
            limit = f"readers accept {budget.MAX_HEXADECIMAL:,}"
            problem = f"an integer of {len(text):,} hexadecimal characters; {limit}"
            raise StateError(json_pointer(path), problem, hint="store the integer as bytes")
        return text

    def render_uncommon_type(self, value: Any, path: Path) -> str:
        if value is None:
            return self.render_as_string(path, "null", "null")
        if type(value) is bytes:
            import base64

            return self.render_as_string(path, "bytes", base64.b64encode(value).decode("ascii"))
        text = _render_time(value, path)
        if text is None:
            problem = f"a {type(value).__module__}.{type(value).__qualname__} cannot be stored"
            hint = "a state holds JSON values, bytes, and dates and times; convert the value first"
            raise StateError(json_pointer(path), problem, hint=hint)
        return text

    def render_as_string(self, path: Path, kind: str, text: str) -> str:
        if self.types is None:
            raise StateError(json_pointer(path), f"TOML has no {kind} for this value")
        self.types[json_pointer(path)] = kind
        return f'"{text}"'


def _integer_text(value: int) -> str:
    return str(value) if value.bit_length() <= _DECIMAL_DIGITS_BITS else hex(value)


def _render_key(key: Any, path: Path) -> str:
    if type(key) is not str:
        key_text = _integer_text(key) if type(key) is int else repr(key)
        problem, hint = f"the key {key_text} is not a string", "TOML and JSON have string keys only"
        raise StateError(json_pointer(path), problem, hint=hint)
    if name := _written_keys.get(key):
        return name
    if key.isascii() and (key.isidentifier() or (key and _BARE.issuperset(key))):
        name = key
    elif _needs_no_escape(key):
        name = f'"{key}"'
    else:
        name = _quote_and_escape(key, (path, key), multiline=False)
    if len(key) < _MAX_NAME and len(_written_keys) < _MAX_NAMES:
        _written_keys[key] = name
    return name


def _needs_no_escape(text: str) -> bool:
    return text.isprintable() and '"' not in text and "\\" not in text


def _quote_and_escape(text: str, path: Path, *, multiline: bool = True) -> str:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        shown_path = json_pointer(path).encode("utf-8", "backslashreplace").decode()
        code_point = ord(text[error.start])
        problem = f"holds a lone surrogate (U+{code_point:04X}), which UTF-8 cannot encode"
        hint = "decode file names and program output with errors='replace', or store them as bytes"
        raise StateError(shown_path, problem, hint=hint) from None
    if multiline and len(text) >= _MULTILINE_FROM and "\n" in text and not _has_header_line(text):
        return f'"""\n{text.translate(_ESCAPES_MULTILINE)}"""'
    return f'"{text.translate(_ESCAPES)}"'


def _has_header_line(text: str) -> bool:
    # Readers find the end of the header by lines that begin like a table's.
    return "[" in text and any(line.lstrip(" \t").startswith("[") for line in text.split("\n"))


def _render_time(value: Any, path: Path) -> str | None:
    import datetime as dt

    kind = type(value)
    if kind not in (dt.date, dt.time, dt.datetime):
        return None
    problem = hint = None
    if kind is dt.time and (value.tzinfo is not None or value.fold):
        problem, hint = "a time with a zone", "TOML has zones for date-times only"
    elif kind is dt.datetime and value.fold:
        problem = "a date-time with fold=1"
    elif kind is dt.datetime and not _is_fixed_offset(value.tzinfo):
        problem = f"a date-time with the zone {value.tzinfo!r}"
        hint = "convert the value to a fixed offset of whole minutes, such as datetime.timezone.utc"
    if problem is not None:
        raise StateError(json_pointer(path), f"{problem} cannot be stored", hint=hint)
    return str(value.isoformat())


def _is_fixed_offset(zone: Any) -> bool:
    import datetime as dt

    if type(zone) is not dt.timezone:
        return zone is None
    return not zone.utcoffset(None) % dt.timedelta(minutes=1)
