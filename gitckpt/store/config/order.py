"""Which of two values of a setting is the tighter one: with it more is kept for longer, and less is captured.

A file from the tree may tighten by itself. Where it loosens, somebody on this machine has to have approved that.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    Tighter = Callable[[Any, Any], Any]
    """From what a file says and the built-in value to the tighter one: what the file says exactly where that loosens nothing."""


def _more(said: Any, usual: Any) -> Any:
    return max(said, usual)


def _less(said: Any, usual: Any) -> Any:
    return min(said, usual)


def _all_of_both(said: tuple[str, ...], usual: tuple[str, ...]) -> tuple[str, ...]:
    known = {pattern.lower() for pattern in said}
    return (*said, *(pattern for pattern in usual if pattern.lower() not in known))


def _nothing_new(said: tuple[str, ...], usual: tuple[str, ...]) -> tuple[str, ...]:
    # Of patterns that take each other back, nobody can tell whether some of them name less than all.
    return said if said in ((), usual) else ()


def _none_first(said: str, usual: str) -> str:
    return min(said, usual, key=("none", "all").index)


def _usual(_: Any, usual: Any) -> Any:
    return usual


RUNS = "pipelines.*.retention"
"""The key of each pipeline that says when its runs expire."""

ORDERS: Mapping[str, tuple[Tighter, str]] = {
    "retention.older_than": (_more, "checkpoints made by hooks expire sooner"),
    "retention.keep_last": (_more, "fewer of the newest checkpoints stay"),
    "retention.rewritten_older_than": (_more, "checkpoints of commits that were rewritten expire sooner"),
    "retention.hourly_after": (_more, "checkpoints made by hooks and agents are thinned to one an hour sooner"),
    "retention.daily_after": (_more, "checkpoints made by hooks and agents are thinned to one a day sooner"),
    "retention.runs_older_than": (_more, "complete runs go sooner, with their worktrees"),
    "retention.safety_older_than": (_more, "what was there before a restore expires sooner"),
    "retention.safety_keep_last": (_more, "less of what was there before a restore stays"),
    "snapshot.include": (_nothing_new, "ignored files, and those whose names look like secrets, are captured"),
    "snapshot.max_file_size": (_less, "larger files are captured"),
    "snapshot.secrets": (_all_of_both, "fewer names look like secrets, and those files are captured"),
    "snapshot.submodules": (_none_first, "submodules are captured"),
    "snapshot.timeout": (_less, "hooks and steps wait longer for the files"),
    RUNS: (_more, "complete runs of the pipeline go sooner, with their worktrees"),
}
"""Key → which of two values is the tighter one, and what follows where a file loosens it. A key that is not here needs approval."""


def tighter(key: str, said: Any, usual: Any) -> Any:
    """Returns the tighter one of what a file says of a key and the built-in value; what the file says, where that loosens nothing.

    Args:
        key: such as "retention.older_than".
        said: what the file says, read.
        usual: the built-in value.
    """
    return ORDERS.get(_general(key), (_usual, ""))[0](said, usual)


def effect(key: str) -> str:
    """Returns what follows where a file loosens a key."""
    return ORDERS.get(_general(key), (_usual, "it is not as it usually is"))[1]


def _general(key: str) -> str:
    return RUNS if key.startswith("pipelines.") else key
