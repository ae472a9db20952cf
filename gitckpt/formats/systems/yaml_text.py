"""Read and write forge's subset of YAML: tables of strings, numbers and lists.

Every value is read as text: only the caller knows what `on`, `1_000` or a date means. Aliases,
anchors and tags are refused: forge writes none, and a few lines with aliases can expand to
billions of values.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from gitckpt.formats.systems.content import BadFormat, Remarks

# In bytes. Without libyaml, parsing takes a second per 100 KB, so the limit is a tenth of this.
LARGEST = 1024 * 1024

# Nesting levels; number of values and keys, for which libyaml takes half a second.
_DEEPEST, _MOST = 50, 100_000
_LOADER = getattr(yaml, "CBaseLoader", yaml.BaseLoader)

# Unquoted, these are not strings in YAML 1.1 or 1.2, in upper or lower case. forge would write
# `=` unquoted, but PyYAML refuses to read that.
_WORDS = [
    "~",
    "null",
    "true",
    "false",
    "yes",
    "no",
    "on",
    "off",
    "y",
    "n",
    "<<",
    "=",
    ".inf",
    ".nan",
    "+.inf",
    "-.inf",
]
_FRAMES: tuple[type[yaml.Event], ...] = (yaml.StreamStartEvent, yaml.StreamEndEvent)
_FRAMES += (yaml.DocumentStartEvent, yaml.DocumentEndEvent)
_NUMBER = re.compile(
    r"[-+]?(\.[0-9]|[0-9])[0-9_.:xXoOabcdefABCDEF]*([eE][-+]?[0-9]+)?|[-+]?0[xXoObB][0-9a-fA-F_]+"
)
_DATE = re.compile(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}([Tt ].*)?")


def parse_yaml(text: str, remarks: Remarks) -> dict[str, Any]:
    size_limit = LARGEST if _LOADER is not yaml.BaseLoader else LARGEST // 10
    if len(text) > size_limit:
        raise BadFormat(f"the file is larger than {size_limit // 1024} KiB")
    try:
        events = _parse_events(text)
        document = _to_value(next(events), events, remarks, 0)
        next(events, None)  # a second document, if there is one
    except (yaml.YAMLError, RecursionError, StopIteration) as error:
        problem = getattr(error, "problem", None) or "the values are nested too deeply"
        raise BadFormat(f"the file is not YAML: {problem}") from None
    if not isinstance(document, dict):
        raise BadFormat("the file contains no YAML table")
    return document


def _parse_events(text: str) -> Iterator[yaml.Event]:
    document_count = 0
    for event_number, event in enumerate(yaml.parse(text, Loader=_LOADER)):
        if event_number > _MOST:
            raise BadFormat(f"the file has more than {_MOST:,} values")
        document_count += isinstance(event, yaml.DocumentStartEvent)
        if document_count > 1:
            raise BadFormat("the file contains several YAML documents")
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            raise BadFormat("the file has anchors or aliases, which forge never writes")
        if getattr(event, "tag", None) not in (None, "!"):
            raise BadFormat("the file has tags, which forge never writes")
        if not isinstance(event, _FRAMES):
            yield event


def _to_value(event: yaml.Event, events: Iterator[yaml.Event], remarks: Remarks, depth: int) -> Any:
    if depth > _DEEPEST:
        raise BadFormat("the values are nested too deeply")
    if isinstance(event, yaml.ScalarEvent):
        return event.value
    if isinstance(event, yaml.SequenceStartEvent):
        items = []
        while not isinstance(next_event := next(events), yaml.SequenceEndEvent):
            items.append(_to_value(next_event, events, remarks, depth + 1))
        return items
    table: dict[str, Any] = {}
    while not isinstance(next_event := next(events), yaml.MappingEndEvent):
        if not isinstance(next_event, yaml.ScalarEvent):
            raise BadFormat("the file has a key that is not a string")
        if next_event.value in table:
            remarks.add("has a key twice in one table: the last value counts")
        table[next_event.value] = _to_value(next(events), events, remarks, depth + 1)
    return table


def render_yaml(table: Mapping[str, Any], plain: frozenset[str]) -> bytes:
    """Render a table as Go's yaml.v3 does; values of `plain` keys are not quoted."""
    # Source of the rules: `encode.go` and `emitterc.go` of that library.
    return "".join(_render_lines(table, plain, "", "")).encode()


def _render_lines(
    table: Mapping[str, Any], plain: frozenset[str], first_start: str, indent: str
) -> Iterator[str]:
    start = first_start
    for key, value in table.items():
        if isinstance(value, list):
            yield f"{start}{_render_key(key)}:{'' if value else ' []'}\n"
            for item in value:
                item_indent = f"{indent}    "
                if isinstance(item, dict):
                    yield from _render_lines(item, plain, f"{item_indent}- ", f"{item_indent}  ")
                else:
                    yield f"{item_indent}- {_render_scalar(item, item_indent)}\n"
        elif isinstance(value, dict):
            yield f"{start}{_render_key(key)}:{'' if value else ' {}'}\n"
            yield from _render_lines(value, plain, f"{indent}    ", f"{indent}    ")
        else:
            scalar = value if key in plain else _render_scalar(value, indent)
            yield f"{start}{_render_key(key)}: {scalar}\n"
        start = indent


def _render_scalar(value: object, indent: str) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    return _render_string(value, indent) if isinstance(value, str) else str(value)


def _render_key(key: str) -> str:
    # A key takes one line.
    return _quote(key) if "\n" in key else _render_string(key, "")


def _render_string(text: str, indent: str) -> str:
    """Render a string in the style that yaml.v3 chooses; `indent` precedes its key."""
    # yaml.v3 writes a text with tabs as a block; tabs in a single line are handled below.
    emitter = yaml.emitter.Emitter(io.StringIO(), allow_unicode=True)
    form = emitter.analyze_scalar(text.replace("\t", "x"))
    if "\n" in text:
        is_block = form.allow_block and _is_printable(text)
        return _render_block(text, indent) if is_block else _quote(text)
    resembles_other_type = (
        text.lower() in _WORDS or not text or _NUMBER.fullmatch(text) or _DATE.fullmatch(text)
    )
    if resembles_other_type or not _is_printable(text) or "\t" in text:
        return _quote(text)
    if form.allow_block_plain:
        return text
    return "'" + text.replace("'", "''") + "'" if form.allow_single_quoted else _quote(text)


def _render_block(text: str, indent: str) -> str:
    body = text.rstrip("\n")
    line_breaks = len(text) - len(body)
    chomp = "-" if not line_breaks else "" if line_breaks == 1 and body else "+"
    margin = " " * (4 * ((len(indent) + 4) // 4))  # the next multiple of 4
    # yaml.v3 always writes 4 here, which is wrong in a list: yaml.v3 itself cannot read it.
    hint = str(len(margin) - len(indent)) if text[0] in " \n" else ""
    lines = (text if chomp == "+" else body).split("\n")
    if chomp == "+":
        lines.pop()  # the last line gets its break anyway
    return f"|{hint}{chomp}\n" + "\n".join(f"{margin}{line}" if line else "" for line in lines)


def _is_printable(text: str) -> bool:
    return all(character in "\n\t" or character.isprintable() for character in text)


_SHORT = {"\0": "\\0", "\a": "\\a", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\v": "\\v"}
_SHORT |= {"\f": "\\f", "\r": "\\r", "\x1b": "\\e"}
_SHORT |= {'"': '\\"', "\\": "\\\\", "\x85": "\\N", "\xa0": "\\_", "\u2028": "\\L", "\u2029": "\\P"}


def _quote(text: str) -> str:
    return '"' + "".join(map(_escape_character, text)) + '"'


def _escape_character(character: str) -> str:
    if character in _SHORT:
        return _SHORT[character]
    if character.isprintable() and character != "\ufeff":
        return character
    code = ord(character)
    if code <= 0xFFFF:
        return f"\\x{code:02X}" if code <= 0xFF else f"\\u{code:04X}"
    return f"\\U{code:08X}"
