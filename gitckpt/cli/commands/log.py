"""Implement `git ckpt log`."""

from __future__ import annotations

import os
import time

from gitckpt.cli import options, terminal
from gitckpt.cli.opening import open_store
from gitckpt.model import ids, times
from gitckpt.model import phase as phases
from gitckpt.model.checkpoint import GUARD, SAFETY, TURN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any, TypeAlias

    from gitckpt.cli.terminal import EscapedText
    from gitckpt.git.objects.diff import FileChange
    from gitckpt.store.history.log import LogItem
    from gitckpt.store.records.labels import Labels
    from gitckpt.store.store import Store

    RunNames: TypeAlias = Mapping[str, str]  # run -> its short name
    Part: TypeAlias = str | EscapedText

_DEFAULT_LIMIT = 20
_MOST_LINES = 5  # of files, and of changes of the state, in the default form
_INDENT = "    "


@options.declare_parameters("""
[ID…] [-- PATH…]  Begin at these checkpoints, and go back in their runs or worktrees; with
  paths, only what changed in these.
-p, --patch  Show the changes of the files as a patch.
--stat  Show how much changed in each file.
--name-only  Show the names of the changed files.
--oneline  Show each checkpoint in one line.
--since TIME  Only checkpoints since then: 20m, 2h, 11:40, yesterday 18:00, 2026-11-26.
--until TIME  Only checkpoints until then.
--run RUN  Only checkpoints of this run, one by one.
--session SESSION  Only checkpoints of this session of an agent, one by one.
--phase P  Only checkpoints of this phase.
--branch NAME  Only checkpoints that were made on this branch.
--trigger NAME  Only checkpoints with this trigger: manual, post-commit, turn, guard, safety.
--agent NAME  Only checkpoints of this agent.
--status S  Only checkpoints with this status, such as failed.
--grep TEXT  Only checkpoints with this text or regular expression in the message, in any case.
--turns  Show the turns of agents, each with what it changed.
-n, --limit N  Show at most N; -5 is -n 5.  [default: 20]
--all  Show each step of runs and sessions, and safety checkpoints; all without -n.
--json  Print one JSON document.
""")
def show_log(
    addresses: list[str] | None = None,
    paths: list[str] | None = None,
    patch: bool = False,
    stat: bool = False,
    name_only: bool = False,
    oneline: bool = False,
    since: str | None = None,
    until: str | None = None,
    run: str | None = None,
    session: str | None = None,
    phase: str | None = None,
    branch: str | None = None,
    trigger: str | None = None,
    agent: str | None = None,
    status: str | None = None,
    grep: str | None = None,
    turns: bool = False,
    limit: int | None = None,
    all_: bool = False,
    as_json: bool = False,
) -> None:
    """Show what each checkpoint changed, newest first.

    Compares files and state with the checkpoint before it in the same run or worktree. Checkpoints
    of hooks have no files: their commit is compared with the commit of the one before. A run or
    session is one line, unless it is named.
    """
    problem = "-p, --stat, --name-only and --json exclude each other"
    options.refuse_if(patch + stat + name_only + as_json > 1, problem, "give only one of them")
    options.refuse_if(run and session, "--run and --session exclude each other", "give one of them")
    options.require_one_of("status", status, phases.STATUSES)
    most = limit if limit is not None else None if all_ else _DEFAULT_LIMIT
    with open_store() as store:
        from gitckpt.store.records.entry import Query

        starts = _find_starts(store, addresses or [])
        named_run = _find_run(store, run, session)
        only_triggers = [trigger] if trigger is not None else [TURN, GUARD] if turns else None
        query = Query(
            run=named_run,
            phase=phase,
            status=status,
            branch=branch,
            agent=agent,
            grep=grep,
            triggers=only_triggers,
            in_run=True if turns else None,
            since=options.parse_instant(since),
            until=options.parse_instant(until),
            safety=all_ or trigger == SAFETY or any(start.trigger == SAFETY for start in starts),
            limit=None if most is None else most + 1,
        )
        is_search = any((phase, status, grep, trigger, paths, all_, named_run))
        is_search = is_search or any(start.run for start in starts)
        fold = "turns" if turns else None if is_search else "runs"
        top_paths = [options.path_from_top(store.worktree, path) for path in paths or ()]
        with terminal.show_waiting("comparing checkpoints"):
            items = store.log(query, fold=fold, paths=top_paths, start=starts)
            has_more, items = most is not None and len(items) > most, items[:most]
            texts = [b""] * len(items)
            if patch or stat:
                form = ["-p"] if patch else [f"--stat={terminal.columns()}"]
                texts = [*store.log_changes(items, options=form, paths=top_paths)]
        labels = store.labels([item.newest.id for item in items])
        is_filtered = any((trigger, agent, branch, phase))
        if not items and is_filtered and not as_json and most != 0:
            from gitckpt.cli.commands.list import print_known_values

            print_known_values(store, trigger=trigger, agent=agent, branch=branch, phase=phase)
        if as_json:
            shown = [_as_json(item, labels.get(item.newest.id)) for item in items]
            terminal.out_json({"log": shown, "more": has_more})
            return
        names = ids.short_run_names(item.newest.run for item in items if item.newest.run)
        with terminal.page():
            for number, (item, text) in enumerate(zip(items, texts, strict=True)):
                marks = _marks_text(labels.get(item.newest.id))
                if oneline:
                    _print_line(item, names, marks)
                else:
                    is_first, lists = number == 0, not (patch or stat)
                    _print_item(item, names, marks, is_first=is_first, lists=lists)
                _print_changes(item, text, name_only=name_only, patch=patch)
    if has_more and limit is None:
        terminal.remark(f"these are the newest {most}; for more: git ckpt log -n N")
    elif not items and most != 0:
        terminal.remark("no checkpoint matches; to see all: git ckpt log --all")


def _find_starts(store: Store, addresses: Sequence[str]) -> list[Any]:
    if not addresses:
        return []
    from gitckpt.store.records.entry import Query

    found = {address: store.find(address) for address in addresses}
    return [*store.list(Query(ids=list(found.values())))]


def _find_run(store: Store, run: str | None, session: str | None) -> str | None:
    if session is not None:
        from gitckpt.agents import turn_list

        return turn_list.find_session(store, session)
    return store.find_run(run) if run is not None else None


# For people


def _marks_text(labels: Labels | None) -> str:
    if labels is None:
        return ""
    marks = ", ".join((*labels.tags, *(["pinned"] if labels.pinned else [])))
    return f" ({marks})" if marks else ""


def _print_item(item: LogItem, names: RunNames, marks: str, *, is_first: bool, lists: bool) -> None:
    if not is_first:
        terminal.out()
    if item.folded == "runs":
        _out_fitted(terminal.style(_fold_text(item, names), "yellow"), " ", _sums(item), _ago(item))
        return
    newest = item.newest
    name = terminal.style(f"checkpoint {terminal.short_id(newest.id)}", "yellow")
    place, status = _place(item, names), "" if newest.status == "complete" else newest.status
    failed = terminal.style(f" ({status})", "red" if status == "failed" else "cyan")
    styled_marks = terminal.style(marks, "bold", "green")
    _out_fitted(name, styled_marks, f" {place}" if place else "", failed if status else "")
    seconds = newest.time // times.MICRO
    date = time.strftime("%a %b %e %H:%M:%S %Y %z", time.localtime(seconds))
    _out_fitted("Date:   ", date, _ago(item))
    terminal.out()
    for line in _wrap(newest.message or newest.label):
        terminal.out(_INDENT, line)
    lines = _state_lines(item)
    rows = [_file_parts(change) for change in item.files[: _shown(item.files) if lists else 0]]
    if not rows and not lines and not item.omitted and item.not_compared is None:
        return
    terminal.out()
    for path, counts in rows:
        width = terminal.columns() - len(_INDENT) - 16
        shown = terminal.fit(path, width) if terminal.is_terminal() else path
        _out_fitted(_INDENT, shown, "  ", counts)
    if lists and len(item.files) > len(rows):
        more = terminal.plural(len(item.files) - len(rows), "more file")
        _out_fitted(f"{_INDENT}and {more}; in all ", _sums(item))
    if item.omitted:
        _out_fitted(_INDENT, f"{terminal.plural(item.omitted, 'path')} not captured")
    if item.not_compared is not None:
        _out_fitted(_INDENT, f"files not compared: {item.not_compared}")
    for line in lines[: _shown(lines)]:
        _out_fitted(_INDENT, line)
    if len(lines) > _shown(lines):
        _out_fitted(_INDENT, f"and {len(lines) - _shown(lines)} more changes of the state")


def _shown(lines: Sequence[object]) -> int:
    # A line that says "and 1 more" has room for that one.
    return len(lines) if len(lines) <= _MOST_LINES + 1 else _MOST_LINES


def _print_line(item: LogItem, names: RunNames, marks: str) -> None:
    newest = item.newest
    place = _fold_text(item, names) if item.folded == "runs" else _place(item, names)
    if not terminal.is_terminal():
        terminal.out_row((newest.id, newest.timestamp, place, newest.message, _sums(item)))
        return
    age = times.age_text(max(times.now() - newest.time, 0))
    begin = (terminal.style(newest.id[: ids.SHORT], "yellow"), f" {age:>4}  ")
    failed = f" ({newest.status})" if newest.status != "complete" and not item.folded else ""
    message = "" if item.folded == "runs" else newest.message or ("" if place else newest.label)
    gap = "  " if (place or marks) and message else ""
    middle = terminal.joined(
        terminal.style(marks[1:], "bold", "green"),
        " " if marks and place else "",
        terminal.style(place, "cyan"),
        f"{failed}{gap}{message}",
    )
    sums = _sums(item)
    sums_width = len(_sum_text(item)) + 2
    width = terminal.columns() - ids.SHORT - len(f" {age:>4}  ") - sums_width
    terminal.out(*begin, terminal.fit(middle, max(width, 8)), "  " if sums.text else "", sums)


def _print_changes(item: LogItem, text: bytes, *, name_only: bool, patch: bool) -> None:
    if name_only:
        for change in item.files:
            terminal.out(os.fsdecode(change.path))
    elif text:
        terminal.out()
        if patch:
            terminal.out_patch(text)
        else:
            for line in text.decode("utf-8", "surrogateescape").rstrip("\n").split("\n"):
                _out_fitted(line)


def _fold_text(item: LogItem, names: RunNames) -> str:
    run = str(item.newest.run)
    numbers = {phases.turn_number(entry.label) for entry in item.entries}
    is_session = None not in numbers
    kind, parts = ("session", "turn") if is_session else ("run", "phase")
    count = len(numbers) if is_session else len(item.phases)
    counts = terminal.plural(len(item.entries), "checkpoint")
    counts += f", {terminal.plural(count, parts)}" if count else ""
    return f"{kind} {names.get(run, run)}: {counts}"


def _place(item: LogItem, names: RunNames) -> str:
    newest = item.newest
    number = phases.turn_number(newest.label)
    name = newest.phase_name if number is None else str(number)
    if newest.run is not None:
        return f"{names.get(newest.run, newest.run)}:{name}"
    return "" if name == "manual" else name


def _ago(item: LogItem) -> str:
    age = times.age_text(max(times.now() - item.newest.time, 0))
    return f" ({'now' if age == 'now' else f'{age} ago'})" if terminal.is_terminal() else ""


def _sum_text(item: LogItem) -> str:
    return "".join(part if isinstance(part, str) else part.text for part in _sum_parts(item, ""))


def _sums(item: LogItem) -> EscapedText:
    return terminal.joined(*_sum_parts(item, "green", "red"))


def _sum_parts(item: LogItem, *colors: str) -> list[Part]:
    if item.not_compared is not None:
        return ["not compared"]
    added = sum(change.added or 0 for change in item.files)
    removed = sum(change.removed or 0 for change in item.files)
    if item.files and not added and not removed:
        return [terminal.plural(len(item.files), "file")]
    return _count_parts(added, removed, colors)


def _count_parts(added: int, removed: int, colors: Sequence[str]) -> list[Part]:
    signed = [f"+{added}" if added else "", f"-{removed}" if removed else ""]
    if not any(colors):
        return [" ".join(filter(None, signed))]
    styled = [terminal.style(text, color) for text, color in zip(signed, colors, strict=True)]
    return [styled[0], " " if all(signed) else "", styled[1]]


def _file_parts(change: FileChange) -> tuple[str, EscapedText]:
    path = change.path.decode("utf-8", "surrogateescape")
    if change.added is None or change.removed is None:
        return path, terminal.joined("binary")
    words = {"A": " new", "D": " deleted", "T": " type"}.get(change.status, "")
    counts = _count_parts(change.added, change.removed, ("green", "red"))
    return path, terminal.joined(*counts, words if change.added or change.removed else words[1:])


def _state_lines(item: LogItem) -> list[str]:
    if not item.state:
        return []
    from gitckpt.cli.commands.diff import value_text

    lines = []
    for change in item.state:
        old = "" if change.is_added else value_text(change.old)
        new = "removed" if change.is_removed else value_text(change.new)
        lines.append(f"state {change.pointer.lstrip('/')}: {f'{old} -> ' if old else ''}{new}")
    return lines


def _out_fitted(*parts: Part) -> None:
    line = terminal.joined(*parts)
    terminal.out(terminal.fit(line, terminal.columns()) if terminal.is_terminal() else line)


def _wrap(text: str) -> list[str]:
    width = terminal.columns() - len(_INDENT)
    if not terminal.is_terminal() or len(text) <= width // 2:
        return [text]
    import textwrap

    escaped = terminal.escape_text(text)  # wide characters take two columns
    return textwrap.wrap(escaped, width if escaped.isascii() else width // 2)


# For programs


def _as_json(item: LogItem, labels: Labels | None) -> dict[str, Any]:
    from gitckpt.model import jsonable

    newest, previous = item.newest, item.previous
    changes = [
        {"path": change.path.decode("utf-8", "replace"), "status": change.status}
        | terminal.pick_fields(change, "added removed")
        for change in item.files
    ]
    states = {}
    for change in item.state:
        sides = {} if change.is_added else {"old": change.old}
        sides |= {} if change.is_removed else {"new": change.new}
        states[change.pointer] = jsonable.to_json(sides)
    return {
        **terminal.pick_fields(newest, "id run sequence label"),
        "phase": newest.phase_name,
        "status": newest.status or None,
        **terminal.pick_fields(newest, "timestamp git_sha branch trigger message agent"),
        "tags": list(labels.tags) if labels is not None else [],
        "pinned": labels is not None and labels.pinned,
        "note": labels.note if labels is not None else None,
        "folded": item.folded,
        "checkpoints": [entry.id for entry in item.entries],
        "compared_with": previous.id if previous is not None else None,
        "not_compared": item.not_compared,
        "files": changes,
        "not_captured": item.omitted,
        "state": [{"pointer": pointer, **sides} for pointer, sides in states.items()],
    }
