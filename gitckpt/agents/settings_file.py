"""Add hooks to the JSON settings of a client, and remove them, as text.

Comments, order and layout of the file stay: each hook is inserted as one stretch of text, and
removing it restores the file byte for byte. `//` and `/* */` comments and trailing commas are
accepted, as the clients do.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from gitckpt.model.errors import UsageError
from gitckpt.model.values import dataclass, field

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    SettingPath = tuple[str, ...]  # keys from the root; an index for an item of an array

HOOKS = "hooks"
COMMAND = "git ckpt hook agent"  # what the hooks of gitckpt run, followed by the client's name

_TOKEN = re.compile(
    r'(?P<blank>[\s\ufeff]+|//[^\n]*|/\*.*?\*/)|"(?:[^"\\\n]|\\.)*"|[][{},:]|[^][{},:"/\s]+',
    re.DOTALL,
)


@dataclass(slots=True)
class _Container:
    """An object or array in the text, from bracket to bracket."""

    path: SettingPath
    start: int
    is_object: bool
    begin: int  # where its key begins; `start` without a key
    end: int = 0
    children: list[tuple[str, int, int]] = field(default_factory=list)  # key, begin and end


def add(text: str | None, entries: Mapping[str, Any], path: str) -> str:
    """Return the settings with an entry added to the hooks of each event.

    Args:
        text: the content of the file; None for a new one.
        entries: by event, the object to append to the array of hooks.
        path: of the file, for errors.

    Raises UsageError if the file is not JSON, or has other than arrays of hooks.
    """
    if text is None:
        hooks = {event: [entry] for event, entry in entries.items()}
        return json.dumps({HOOKS: hooks}, indent=2) + "\n"
    unit = _indent_of(text)
    for event, entry in entries.items():
        containers = _scan(text, path)
        array, hooks_table = containers.get((HOOKS, event)), containers.get((HOOKS,))
        if array is not None:
            text = _append(text, array, None, entry, unit)
        elif hooks_table is not None:
            text = _append(text, hooks_table, event, [entry], unit)
        else:
            text = _append(text, containers[()], HOOKS, {event: [entry]}, unit)
    return text


def remove(text: str, path: str) -> str | None:
    """Return the settings without the hooks of gitckpt; None if nothing is left.

    Raises UsageError if the file is not JSON.
    """
    while True:
        containers = _scan(text, path)
        own = [key for key in containers if len(key) == 5 and _is_own(text, containers[key])]
        if not own:
            return text
        key: SettingPath = own[-1]
        if len(containers[key[:-1]].children) == 1:
            key = key[:3]  # the whole entry is of gitckpt
        while _is_only(text, containers[key[:-1]]):
            key = key[:-1]  # `add` made the array or table, too
            if not key:
                return None
        text = _delete(text, containers[key[:-1]], containers[key].begin)


def _is_own(text: str, container: _Container) -> bool:
    is_hook = container.path[0] == HOOKS and container.is_object
    return is_hook and f'"{COMMAND}' in text[container.start : container.end]


def _is_only(text: str, container: _Container) -> bool:
    """Return whether `add` made a container: its one child ends with a line break."""
    end = container.children[0][2]
    return len(container.children) == 1 and text[end : container.end - 1].startswith("\n")


def _append(text: str, container: _Container, key: str | None, value: Any, unit: str) -> str:
    line = f"\n{unit * len(container.path)}{unit}"
    member = json.dumps(value, indent=unit, ensure_ascii=False).replace("\n", line)
    member = line + (member if key is None else f"{json.dumps(key)}: {member}")
    if container.children:
        place = container.children[-1][2]
        return f"{text[:place]},{member}{text[place:]}"
    # In a container of the user's, no line break may follow: see `_is_only`.
    place = container.start + 1
    return text[:place] + member + ("\t" if text[place] == "\n" else "") + text[place:]


def _delete(text: str, container: _Container, begin: int) -> str:
    """Delete what `_append` inserted for the child that begins at `begin`."""
    children = container.children
    number = next(n for n, child in enumerate(children) if child[1] == begin)
    end = children[number][2]
    if number:
        begin = children[number - 1][2]
    elif len(children) > 1:
        end = children[1][1]
    else:
        begin = container.start + 1
        end += text.startswith("\t\n", end)
    return text[:begin] + text[end:]


def _indent_of(text: str) -> str:
    match = re.search(r"\{\n([ \t]+)", text)
    return match[1] if match is not None else "  "


def _scan(text: str, path: str) -> dict[SettingPath, _Container]:
    """Return the objects and arrays of a document, by path."""
    lexemes = _lexemes(text, path)
    containers: dict[SettingPath, _Container] = {}
    stack: list[_Container] = []
    key, begin = "", 0
    for number, (start, lexeme) in enumerate(lexemes):
        following = lexemes[number + 1][1] if number + 1 < len(lexemes) else ""
        parent = stack[-1] if stack else None
        if following == ":":
            key, begin = json.loads(lexeme), start
            continue
        if lexeme in ":,":
            continue
        if parent is not None and not parent.is_object and lexeme not in "]}":
            key, begin = str(len(parent.children)), start
        if lexeme in "{[":
            where = (*parent.path, key) if parent is not None else ()
            opened = _Container(where, start, lexeme == "{", begin if parent is not None else start)
            stack.append(opened)
            containers[where] = opened
        elif lexeme in "]}":
            closed = stack.pop()
            closed.end = start + 1
            if stack:
                stack[-1].children.append((closed.path[-1], closed.begin, closed.end))
        elif parent is not None:
            parent.children.append((key, begin, start + len(lexeme)))
    return containers


def _lexemes(text: str, path: str) -> list[tuple[int, str]]:
    """Split a document into lexemes with positions; check that it is an object."""
    lexemes: list[tuple[int, str]] = []
    place = 0
    while place < len(text):
        match = _TOKEN.match(text, place)
        if match is None:
            raise _error(text, place, path)
        if match["blank"] is None:
            last_two = [lexeme for _, lexeme in lexemes[-2:]]
            if match[0] in "]}" and last_two[1:] == [","] and last_two[0] not in "{[,:":
                lexemes.pop()  # a trailing comma
            lexemes.append((place, match[0]))
        place = match.end()
    try:
        document = json.loads(" ".join(lexeme for _, lexeme in lexemes))
    except (ValueError, RecursionError):
        raise _error(text, len(text), path) from None
    hooks = document.get(HOOKS, {}) if isinstance(document, dict) else None
    if not isinstance(hooks, dict) or not all(isinstance(value, list) for value in hooks.values()):
        hint = f"correct the file, then run the command again: {path}"
        raise UsageError(f"{path} has no table of hooks as its client reads it", hint=hint)
    return lexemes


def _error(text: str, place: int, path: str) -> UsageError:
    line = text.count("\n", 0, place) + 1
    hint = "correct the file, then run the command again"
    return UsageError(f"{path} is not JSON, line {line} or before", hint=hint)
