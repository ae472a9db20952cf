"""Read which tools and tokens a turn used from the client's transcript.

The formats are those of Claude Code 2.1, Codex 0.17 and Gemini CLI 0.61: one JSON object per line.
"""

from __future__ import annotations

import json
import os
import stat
from collections import Counter
from collections.abc import Iterator, Mapping

_MAX_SIZE = 32 << 20  # bytes of a turn that are read, from its end
_CALLS = ("tool_use", "function_call", "custom_tool_call", "local_shell_call")
# Key of a usage -> key in the state. Input includes what was cached.
_TOKENS = {"input_tokens": "input", "output_tokens": "output", "input": "input", "output": "output"}
_DEEPEST = 8  # levels of an object that are searched
_LONGEST = 100  # characters of the name of a tool


def size(path: str) -> int:
    """Return the size of a transcript in bytes; 0 if it is no readable file."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return 0
    return status.st_size if stat.S_ISREG(status.st_mode) else 0


def summary(path: str | None, begun: Mapping[str, object]) -> dict[str, object]:
    """Return `tools` (calls by name) and `tokens` of a turn; neither if unknown.

    Args:
        path: the transcript, or None.
        begun: the state at the begin of the turn, with `transcript_bytes`.
    """
    start = begun.get("transcript_bytes")
    if path is None or type(start) is not int or begun.get("transcript") != path:
        return {}
    tools: Counter[str] = Counter()
    tokens: dict[str, dict[str, int]] = {}  # by message: Claude repeats a usage for each block
    for number, line in enumerate(_lines(path, start)):
        for part in _parts(line, _DEEPEST):
            name = part.get("name")
            if part.get("type") in _CALLS and isinstance(name, str):
                tools[name[:_LONGEST]] += 1
            usage = part.get("usage", part.get("last_token_usage", part.get("tokens")))
            if isinstance(usage, dict):
                tokens[str(part.get("id", number))] = _tokens_of(usage)
    totals: Counter[str] = Counter()
    for counts in tokens.values():
        totals.update(counts)
    return {
        **({"tools": dict(sorted(tools.items()))} if tools else {}),
        **({"tokens": dict(sorted(totals.items()))} if totals else {}),
    }


def _lines(path: str, start: int) -> Iterator[object]:
    end = size(path)
    if not 0 <= start < end:
        return
    try:
        with open(path, "rb") as file:
            file.seek(max(start, end - _MAX_SIZE))
            lines = file.read(_MAX_SIZE).splitlines()
    except OSError:
        return  # deleted or unreadable: the turn has no facts from it
    for line in lines:
        try:
            yield json.loads(line)
        except (ValueError, RecursionError):
            continue


def _parts(value: object, levels: int) -> Iterator[Mapping[str, object]]:
    """Yield all objects in a JSON value, down to a number of levels."""
    if isinstance(value, dict):
        yield value
    if levels and isinstance(value, dict | list):
        for child in value.values() if isinstance(value, dict) else value:
            yield from _parts(child, levels - 1)


def _tokens_of(usage: Mapping[str, object]) -> dict[str, int]:
    counts = {}
    for key, name in _TOKENS.items():
        number = usage.get(key)
        if type(number) is int and number >= 0:
            counts[name] = number
    return counts
