"""The file that quasar planned for the state of a loop: 19 keys, then the findings. Pure.

What it leaves out follows in a table `more`, which quasar passes over.
"""

from __future__ import annotations

import datetime as dt

from gitckpt.durable.phases.review.state import MORE, PHASES, CycleState
from gitckpt.model import times, toml
from gitckpt.model.errors import InvalidCheckpoint
from gitckpt.model.values import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


_NEVER = dt.datetime(1, 1, 1, tzinfo=dt.UTC)
"""Go's zero time."""

_LISTS = ("findings", "all_findings")


def to_toml(state: CycleState, *, more: bool = True) -> str:
    """Returns a state as a file.

    Args:
        state: the state.
        more: whether the table `more` follows, from which alone it comes back complete.

    Raises:
        StateError: a text holds a lone surrogate.
        ValueError: `created_at` is no timestamp.
    """
    table = state.to_state()
    lists = {name: table.pop(name) for name in _LISTS}
    rest = table.pop(MORE)
    table["created_at"] = _time(state.created_at)
    parts = [toml.dumps(table | {name: [] for name in _LISTS if not lists[name]})]
    parts += [f"\n[[{name}]]\n{toml.dumps(finding)}" for name in _LISTS for finding in lists[name]]
    return "".join([*parts, toml.dumps({MORE: rest})] if more else parts)


def from_toml(data: bytes | str, source: str, *, numbers: tuple[str, ...] = PHASES) -> CycleState:
    """Returns the state that a file holds. Its instant is in UTC and to the microsecond; the file may know more of it.

    Args:
        data: the file.
        source: its name, for errors.
        numbers: the phases by their numbers, for a file that does not name its phase.

    Raises:
        InvalidCheckpoint: it is damaged, or holds what cannot be; `NewerCheckpoint`: its version is a later one.
    """
    table = _table(data, source)
    created = table.pop("created_at", _NEVER)
    if type(created) is not dt.datetime:
        raise InvalidCheckpoint(source, "created_at", f"is {created!r:.40}, not a date-time")
    return replace(CycleState.from_state(table, source, numbers), created_at=_text(created))


def _table(data: bytes | str, source: str) -> dict[str, Any]:
    try:
        return toml.loads(data if isinstance(data, str) else data.decode("utf-8"))
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise InvalidCheckpoint(
            source,
            "",
            f"is not UTF-8 in line {line}: a character was cut in the middle",
            hint="take that text out of the file, and read it again; quasar writes such files where it shortens a text",
        ) from None
    except ValueError as error:
        raise InvalidCheckpoint(source, "", f"is not TOML: {error}") from None


def _time(text: str) -> dt.datetime:
    if not text:
        return _NEVER
    return dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=times.from_text(text))


def _text(instant: dt.datetime) -> str:
    aware = instant if instant.tzinfo is not None else instant.replace(tzinfo=dt.UTC)
    since = aware - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    return "" if aware == _NEVER else times.to_text(since // dt.timedelta(microseconds=1))
