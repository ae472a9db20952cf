"""The keys of `gitckpt.toml` that settings read, with their built-in values."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping

from gitckpt.model import times
from gitckpt.model.policy import Policy
from gitckpt.store.config.table import Table
from gitckpt.store.snapshot.limits import MB, Limits, size_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


ALL, NONE = "all", "none"
"""Which submodules are captured."""

_LISTS = ("ckpt.include", "ckpt.secrets")
_COUNTS = ("ckpt.keeplast", "ckpt.safetykeeplast")
_SIZES = {"": 1, "B": 1, "KB": 1000, "MB": MB, "GB": 1000 * MB, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30}


class Key:
    """A key of the file.

    Args:
        setting: the setting of git that overrides it.
        read: reads it from a table; returns the last argument where it is not there.
        usual: the built-in value.
        tighter: returns the tighter of two values: it keeps longer, or captures less. The first
            one where neither is.
        written: a value as it stands in the file.
    """

    def __init__(
        self,
        setting: str,
        read: Callable[[Table, str, Any], Any],
        usual: Any,
        tighter: Callable[[Any, Any], Any],
        written: Callable[[Any], Any] = lambda value: value,
    ) -> None:
        self.setting = setting
        self.read = read
        self.usual = usual
        self.tighter = tighter
        self.written = written


def own(name: str, values: list[str]) -> object:
    """Returns what the values of a setting of git stand for."""
    if name in _LISTS:
        return list(filter(None, values))
    last = values[-1]
    return int(last) if name in _COUNTS and last.isascii() and last.isdigit() else last


def _count(table: Table, key: str, default: int) -> int:
    return table.count(key, default, most=sys.maxsize)


def _size(table: Table, key: str, default: int | None) -> int | None:
    value = table.values.get(key)
    if value is None:
        return default
    text = str(value).strip() if type(value) in (int, str) else ""
    digits = text.rstrip("BKMGIbkmgi ")
    factor = _SIZES.get(text[len(digits) :].strip().upper())
    if not (digits.isascii() and digits.isdigit()) or factor is None:
        return table.wrong(key, 'a size such as "50 MB"', value, default)
    return int(digits) * factor


def _submodules(table: Table, key: str, default: str) -> str:
    return table.choice(key, (ALL, NONE), default)


def _patterns(table: Table, key: str, default: tuple[str, ...]) -> tuple[str, ...]:
    value = table.values.get(key)
    if value is None:
        return default
    if not isinstance(value, list) or not all(isinstance(item, str) and item for item in value):
        return table.wrong(key, 'a list of patterns such as ["*.pem"]', value, default)
    return tuple(value)


def _all_of_both(secrets: tuple[str, ...], others: tuple[str, ...]) -> tuple[str, ...]:
    known = {pattern.lower() for pattern in secrets}
    return (*secrets, *(pattern for pattern in others if pattern.lower() not in known))


def _nothing_new(include: tuple[str, ...], other: tuple[str, ...]) -> tuple[str, ...]:
    # Patterns may take each other back, so only no pattern at all is known to be tighter.
    return include if include == other else ()


_POLICY, _LIMITS = Policy(), Limits()

KEYS: Mapping[str, Key] = {
    "retention.older_than": Key("ckpt.olderthan", Table.age, _POLICY.older_than, max, times.length_text),
    "retention.keep_last": Key("ckpt.keeplast", _count, _POLICY.keep_last, max),
    "retention.rewritten_older_than": Key("ckpt.rewrittenolderthan", Table.age, _POLICY.rewritten_older_than, max, times.length_text),
    "retention.hourly_after": Key("ckpt.hourlyafter", Table.age, _POLICY.hourly_after, max, times.length_text),
    "retention.daily_after": Key("ckpt.dailyafter", Table.age, _POLICY.daily_after, max, times.length_text),
    "retention.runs_older_than": Key("ckpt.runsolderthan", Table.age, _POLICY.runs_older_than, max, times.length_text),
    "retention.safety_older_than": Key("ckpt.safetyolderthan", Table.age, _POLICY.safety_older_than, max, times.length_text),
    "retention.safety_keep_last": Key("ckpt.safetykeeplast", _count, _POLICY.safety_keep_last, max),
    "snapshot.include": Key("ckpt.include", _patterns, _LIMITS.include, _nothing_new, list),
    "snapshot.max_file_size": Key("ckpt.maxfilesize", _size, _LIMITS.max_file_size, min, size_text),
    "snapshot.secrets": Key("ckpt.secrets", _patterns, _LIMITS.secrets, _all_of_both, list),
    "snapshot.submodules": Key("ckpt.submodules", _submodules, ALL, max),  # "none" is greater than "all"
    "snapshot.timeout": Key("ckpt.snapshottimeout", Table.age, round(_LIMITS.timeout * times.MICRO), min, times.length_text),
}
"""The keys of the file, by table."""

WORKTREE_DIR = "ckpt.worktreedir"
