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

from gitckpt.formats.systems.content import Remarks, Unreadable

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


def read(text: str, remarks: Remarks) -> dict[str, Any]:
    """Parse a document into a table of strings, lists and tables."""
    largest = LARGEST if _LOADER is not yaml.BaseLoader else LARGEST // 10
    if len(text) > largest:
        raise Unreadable(f"the file is larger than {largest // 1024} KiB")
    try:
        events = _events(text)
        document = _value(next(events), events, remarks, 0)
        next(events, None)  # a second document, if there is one
    except (yaml.YAMLError, RecursionError, StopIteration) as error:
        problem = getattr(error, "problem", None) or "the values are nested too deeply"
        raise Unreadable(f"the file is not YAML: {problem}") from None
    if not isinstance(document, dict):
        raise Unreadable("the file contains no YAML table")
    return document


def _events(text: str) -> Iterator[yaml.Event]:
    documents = 0
    for number, event in enumerate(yaml.parse(text, Loader=_LOADER)):
        if number > _MOST:
            raise Unreadable(f"the file has more than {_MOST:,} values")
        documents += isinstance(event, yaml.DocumentStartEvent)
        if documents > 1:
            raise Unreadable("the file contains several YAML documents")
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            raise Unreadable("the file has anchors or aliases, which forge never writes")
        if getattr(event, "tag", None) not in (None, "!"):
            raise Unreadable("the file has tags, which forge never writes")
        if not isinstance(event, _FRAMES):
            yield event


def _value(event: yaml.Event, events: Iterator[yaml.Event], remarks: Remarks, depth: int) -> Any:
    if depth > _DEEPEST:
        raise Unreadable("the values are nested too deeply")
    if isinstance(event, yaml.ScalarEvent):
        return event.value
    if isinstance(event, yaml.SequenceStartEvent):
        items = []
        while not isinstance(event_ := next(events), yaml.SequenceEndEvent):
            items.append(_value(event_, events, remarks, depth + 1))
        return items
    table: dict[str, Any] = {}
    while not isinstance(event_ := next(events), yaml.MappingEndEvent):
        if not isinstance(event_, yaml.ScalarEvent):
            raise Unreadable("the file has a key that is not a string")
        if event_.value in table:
            remarks.add("has a key twice in one table: the last value counts")
        table[event_.value] = _value(next(events), events, remarks, depth + 1)
    return table


def write(table: Mapping[str, Any], plain: frozenset[str]) -> bytes:
    """Render a table as Go's yaml.v3 does; values of `plain` keys are not quoted."""
    # Source of the rules: `encode.go` and `emitterc.go` of that library.
    return "".join(_lines(table, plain, "", "")).encode()


def _lines(
    table: Mapping[str, Any], plain: frozenset[str], first: str, indent: str
) -> Iterator[str]:
    lead = first
    for key, value in table.items():
        if isinstance(value, list):
            yield f"{lead}{_key(key)}:{'' if value else ' []'}\n"
            for item in value:
                inner = f"{indent}    "
                if isinstance(item, dict):
                    yield from _lines(item, plain, f"{inner}- ", f"{inner}  ")
                else:
                    yield f"{inner}- {_scalar(item, inner)}\n"
        elif isinstance(value, dict):
            yield f"{lead}{_key(key)}:{'' if value else ' {}'}\n"
            yield from _lines(value, plain, f"{indent}    ", f"{indent}    ")
        else:
            yield f"{lead}{_key(key)}: {value if key in plain else _scalar(value, indent)}\n"
        lead = indent


def _scalar(value: object, indent: str) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    return _text(value, indent) if isinstance(value, str) else str(value)


def _key(key: str) -> str:
    # A key takes one line.
    return _quoted(key) if "\n" in key else _text(key, "")


def _text(text: str, indent: str) -> str:
    """Render a string in the style that yaml.v3 chooses; `indent` is that of its key."""
    # yaml.v3 writes a text with tabs as a block; tabs in a single line are handled below.
    emitter = yaml.emitter.Emitter(io.StringIO(), allow_unicode=True)
    may = emitter.analyze_scalar(text.replace("\t", "x"))
    if "\n" in text:
        return _literal(text, indent) if may.allow_block and _is_printable(text) else _quoted(text)
    is_other = (
        text.lower() in _WORDS or not text or _NUMBER.fullmatch(text) or _DATE.fullmatch(text)
    )
    if is_other or not _is_printable(text) or "\t" in text:
        return _quoted(text)
    if may.allow_block_plain:
        return text
    return "'" + text.replace("'", "''") + "'" if may.allow_single_quoted else _quoted(text)


def _literal(text: str, indent: str) -> str:
    body = text.rstrip("\n")
    breaks = len(text) - len(body)
    chomp = "-" if not breaks else "" if breaks == 1 and body else "+"
    deeper = " " * (4 * ((len(indent) + 4) // 4))  # the next multiple of 4
    # yaml.v3 always writes 4 here, which is wrong in a list: yaml.v3 itself cannot read it.
    hint = str(len(deeper) - len(indent)) if text[0] in " \n" else ""
    lines = (text if chomp == "+" else body).split("\n")
    if chomp == "+":
        lines.pop()  # the last line gets its break anyway
    return f"|{hint}{chomp}\n" + "\n".join(f"{deeper}{line}" if line else "" for line in lines)


def _is_printable(text: str) -> bool:
    return all(character in "\n\t" or character.isprintable() for character in text)


_SHORT = {"\0": "\\0", "\a": "\\a", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\v": "\\v"}
_SHORT |= {"\f": "\\f", "\r": "\\r", "\x1b": "\\e"}
_SHORT |= {'"': '\\"', "\\": "\\\\", "\x85": "\\N", "\xa0": "\\_", "\u2028": "\\L", "\u2029": "\\P"}


def _quoted(text: str) -> str:
    return '"' + "".join(map(_escaped, text)) + '"'


def _escaped(character: str) -> str:
    if character in _SHORT:
        return _SHORT[character]
    if character.isprintable() and character != "\ufeff":
        return character
    code = ord(character)
    if code <= 0xFFFF:
        return f"\\x{code:02X}" if code <= 0xFF else f"\\u{code:04X}"
    return f"\\U{code:08X}"
