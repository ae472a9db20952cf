"""The most usual documents, read with one match: what a listing knows of them, and whether they are valid, as `codec` would say.

An audit of a million checkpoints reads each document whole, the first listing what stands before the state. What is not written in the
plainest way, or may be wrong, is left to `codec`: nothing is refused here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from gitckpt.model import ids, times
from gitckpt.model.format import budget

_LONGEST = 4000
"""In bytes; as long as that, no document of plain lines is beyond what `budget` allows."""

_ID = "[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"
_OID = "[0-9a-f]{40}(?:[0-9a-f]{24})?"
_TEXT = r'[^"\\\x00-\x1f\x7f]*'
_VALUE = rf'"{_TEXT}"|-?(?:0|[1-9][0-9]{{0,17}})|true|false|\[\]'
_LINE = re.compile(rf"^([A-Za-z0-9_-]+) = (?:{_VALUE})\n", re.MULTILINE)
_HEADER = (
    rf'version = 1\nid = "({_ID})"\n'
    rf'(?:run = "({_TEXT})"\n)?(?:parent = "({_ID})"\n)?(?:sequence = ([1-9][0-9]{{0,17}})\n)?'
    rf'phase = "({_TEXT})"\n'
    r'timestamp = "([0-9]{4}-[0-9]{2}-[0-9]{2})T(?:([01][0-9]|2[0-3]):([0-5][0-9]):([0-5][0-9])\.([0-9]{6}))Z"\n'
    rf'git_sha = "({_OID}|)"\n(?:branch = "({_TEXT})"\n)?'
    rf'trigger = "([a-z][a-z0-9-]*(?::[a-z0-9][a-z0-9._-]*)?)"\n'
    rf'(?:message = "({_TEXT})"\n)?(?:agent = "({_TEXT})"\n)?'
    rf"errors = \[\]\n"
    rf'(?:\n\[worktree\]\ndirty = (true|false)\n(?:tree = "({_OID})"\n)?)?\n'
)
_SUMMARY = re.compile(_HEADER)
_DOCUMENT = re.compile(rf"{_HEADER}\[state\]\n((?:[^\[\n][^\n]*\n)*)")
_REST = re.compile(rb"\n\[(state|pipeline|attempt)\]\n")
_AFTER_STATE = re.compile(rb"\n[ \t]*\[(?!state[\].])")
_AFTER_OTHERS = re.compile(rb"\n[ \t]*\[(?!(?:attempt|pipeline|state)[\].])")


class Plain(NamedTuple):
    """What a plain document says, as `Checkpoint` has it; `examined` tells whether it has a table `worktree`."""

    id: str
    run: str | None
    parent: str | None
    sequence: int | None
    phase: str
    time: int
    git_sha: str
    branch: str | None
    trigger: str
    message: str | None
    agent: str | None
    examined: bool
    dirty: bool
    tree: str | None


class PlainReader:
    """Reads documents one after the other, and remembers of labels, runs and days that they are valid: most have those of another."""

    def __init__(self) -> None:
        self._days: dict[str, int | None] = {}
        self._phases: set[str] = set()
        self._runs: set[str] = set()

    def read(self, data: bytes, name: str) -> Plain | None:
        """Returns what a document says that is valid; None where `codec.decode` has to be asked, whether it is valid or not.

        Args:
            data: the blob.
            name: the last part of the ref that it was found at.
        """
        if len(data) > _LONGEST:
            return None
        found = _matched(_DOCUMENT, data)
        if found is None:
            return None
        *header, state = found.groups()
        return None if state and not _is_plain(state) else self._plain(header, name)

    def summary(self, data: bytes, name: str) -> Plain | None:
        """Returns what a document says whose state, and what drives its run, may be anything, as for `codec.decode_summary`.

        Args and result: as `read`.
        """
        rest = _REST.search(data, 0, _LONGEST)
        if rest is None or len(data) > budget.DOCUMENT.size:
            return None
        others = _AFTER_STATE if rest[1] == b"state" else _AFTER_OTHERS
        found = None if others.search(data, rest.start() + 1) else _matched(_SUMMARY, data[: rest.start() + 1])
        return None if found is None else self._plain(found.groups(), name)

    def _plain(self, header: Sequence[str], name: str) -> Plain | None:
        id_, run, parent, sequence, phase, day, hours, minutes, seconds, micros, *others, dirty, tree = header
        git_sha, branch, trigger, message, agent = others
        is_valid = id_ == name and (run is None) == (sequence is None) and (parent is None or run is not None)
        start = self._days[day] if day in self._days else self._start(day)
        if not is_valid or start is None:
            return None
        if not (phase in self._phases or self._is_phase(phase)) or not (run is None or run in self._runs or self._is_run(run)):
            return None
        time = start + ((int(hours) * 60 + int(minutes)) * 60 + int(seconds)) * times.MICRO + int(micros)
        number = None if sequence is None else int(sequence)
        return Plain(
            id_, run, parent, number, phase, time, git_sha, branch, trigger, message, agent, dirty is not None, dirty == "true", tree
        )

    def _start(self, day: str) -> int | None:
        try:
            self._days[day] = times.from_text(f"{day}T00:00:00Z")
        except ValueError:
            self._days[day] = None
        return self._days[day]

    def _is_phase(self, phase: str) -> bool:
        is_one = bool(phase.strip())
        if is_one:
            self._phases.add(phase)
        return is_one

    def _is_run(self, run: str) -> bool:
        is_one = ids.is_run_id(run)
        if is_one:
            self._runs.add(run)
        return is_one


def _matched(pattern: re.Pattern[str], data: bytes) -> re.Match[str] | None:
    try:
        return pattern.fullmatch(data.decode("utf-8"))
    except UnicodeDecodeError:
        return None


def _is_plain(state: str) -> bool:
    """Tells whether the lines of a table are plain ones, each with another key."""
    keys = _LINE.findall(state)
    return len(keys) == state.count("\n") == len(set(keys)) and _LINE.sub("", state) == ""
