"""Implement `git ckpt list`."""

from __future__ import annotations

import contextlib

from gitckpt.cli import options, terminal
from gitckpt.cli.opening import open_store
from gitckpt.model import ids, times
from gitckpt.model import phase as phases
from gitckpt.model.errors import NotFoundError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from typing import Any

    from gitckpt.cli.terminal import Cell
    from gitckpt.store.records.entry import CheckpointInfo, Problem
    from gitckpt.store.records.labels import Labels
    from gitckpt.store.store import Store

_COLUMNS = ("ID", "AGE", "RUN", "PHASE", "COMMIT", "BRANCH", "FILES", "MESSAGE")
_SPARE = ("COMMIT", "BRANCH", "FILES", "PHASE", "RUN")
_DEFAULT_LIMIT = 20
_MOST_RECENT, _MOST_VALUES = 1000, 5  # checkpoints that are counted for a remark; values in it
_WIDE = 100  # columns of a terminal from which on the phase has a column
_NARROW_RUN = 24  # columns of a run's name in a narrower one
_OUTLOOK_TEXTS = {
    "not installed": "; to record one at every commit: git ckpt init",
    "missed": "; commits record none until the hooks call gitckpt; to see why: git ckpt doctor",
    "none": "; commits record none, because of --hooks none; to record one: git ckpt save",
    "recorded": "; the next commit records one; to record one now: git ckpt save",
}


@options.declare_parameters("""
--run RUN  Only checkpoints of this run; a unique part of its name suffices.
--commit REV  Only checkpoints linked to this commit.
--phase P  Only checkpoints of this phase, or with this label, such as build-complete.
--status S  Only checkpoints with this status: complete, failed, started, progress, blocked,
  skipped or partial.
--since TIME  Only checkpoints since then: 20m, 2h, 11:40, yesterday 18:00, 2026-11-26.
--until TIME  Only checkpoints until then.
--trigger NAME  Only checkpoints with this trigger, such as manual, post-commit or turn; may be
  repeated.
--agent NAME  Only checkpoints by this agent.
--branch NAME  Only checkpoints of this branch.
--grep TEXT  Only checkpoints with this text or regular expression in the message, in any case.
--in-run  Only checkpoints of runs.
--no-run  Only checkpoints outside of runs.
--no-safety  Leave out the safety checkpoints that restores make.
-n, --limit N  Show at most N checkpoints; -5 is -n 5.  [default: 20]
--all  Show all checkpoints.
--date FORMAT  Show dates in local time: relative, local, iso, short, unix or format:%H:%M.
--json  Print one JSON document.
""")
def list_checkpoints(
    run: str | None = None,
    commit: str | None = None,
    phase: str | None = None,
    status: str | None = None,
    since: str | None = None,
    until: str | None = None,
    trigger: list[str] | None = None,
    agent: str | None = None,
    branch: str | None = None,
    grep: str | None = None,
    in_run: bool = False,
    no_run: bool = False,
    no_safety: bool = False,
    limit: int | None = None,
    all_: bool = False,
    date: str | None = None,
    as_json: bool = False,
) -> None:
    """List checkpoints, newest first.

    Lists those of all worktrees. latest~N counts fewer: only those of this worktree, and no safety
    checkpoints.

    At a terminal, @ marks the checkpoint that this worktree was last saved as or restored to, and
    columns that say the same in each row are left out. In a pipe, each line has tab-separated
    columns with full ids.
    """
    from gitckpt.store.records.entry import Query

    options.require_one_of("status", status, phases.STATUSES)
    date_format = times.parse_date_format(date) if date is not None else None
    if commit == "":  # in the API an unborn branch, but here an unset variable of a script
        hint = "name a branch, a tag or a commit: git log --oneline --all"
        raise NotFoundError("no commit is named ''", hint=hint)
    problem = "--in-run and --no-run exclude each other"
    options.refuse_if(in_run and no_run, problem, "give only one of them")
    with open_store() as store:
        is_whole_label = phase is not None and phases.split_label(phase)[1] in phases.STATUSES
        max_checkpoints = None if all_ else _DEFAULT_LIMIT if limit is None else limit
        query = Query(
            run=store.find_run(run) if run is not None else None,
            ids=[entry.id for entry in store.links(commit)] if commit is not None else None,
            phase=None if is_whole_label else phase,
            label=phase if is_whole_label else None,
            status=status,
            since=options.parse_instant(since),
            until=options.parse_instant(until),
            triggers=trigger or None,
            agent=agent,
            branch=branch,
            grep=grep,
            in_run=True if in_run else False if no_run else None,
            safety=not no_safety,
            limit=None if max_checkpoints is None else max_checkpoints + 1,
        )
        with terminal.show_waiting("reading checkpoints"):
            matches = store.list(query)
            entries = matches[:max_checkpoints]
            problems = store.problems()
            changed_counts = store.changed_files(entries)
            replaced_ids = store.replaced(entries)
            labels = store.labels([entry.id for entry in entries])
            store.write_notes(only_if_due=True)
            marks = _find_marks(store, entries) if terminal.is_terminal() else None
        if not matches and not as_json:
            name = None if is_whole_label else phase
            print_known_values(store, trigger=trigger, agent=agent, branch=branch, phase=name)
    has_more = len(matches) > len(entries)
    facts = changed_counts, replaced_ids, labels
    if as_json:
        checkpoints = [_entry_as_json(entry, *facts) for entry in entries]
        invalid_refs = [{"ref": problem.ref, "problem": problem.sentence} for problem in problems]
        terminal.out_json({"checkpoints": checkpoints, "more": has_more, "problems": invalid_refs})
    else:
        with terminal.page() if all_ else contextlib.nullcontext():
            rows = list(_table_rows(entries, *facts, date_format))
            _print_rows(entries, rows, marks, "AGE" if date is None else "DATE")
        if not entries and max_checkpoints != 0:
            if query != Query(limit=query.limit):
                terminal.remark("no checkpoint matches; to see all: git ckpt list --all")
            elif problems:
                terminal.remark("no checkpoint can be read; to see why: git ckpt verify")
            else:
                terminal.remark(f"no checkpoints yet{_OUTLOOK_TEXTS[store.outlook()]}")
        elif has_more and limit is None:
            newest = f"these are the newest {_DEFAULT_LIMIT} checkpoints"
            terminal.remark(f"{newest}; to list all: git ckpt list --all")
    _warn_of_refs(replaced_ids, problems)


def _warn_of_refs(replaced: Collection[str], problems: Sequence[Problem]) -> None:
    if replaced:
        names = ", ".join(name[: ids.SHORT] for name in replaced)
        cure = "to put back the checkpoints written here: git ckpt verify --repair"
        terminal.warn(f"a fetch replaced these checkpoints: {names}; {cure}")
    if problems:
        others = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        problem = f"{problems[0].sentence}{others}"
        terminal.warn(f"not a valid checkpoint: {problem}; see: git ckpt doctor")


def print_known_values(store: Store, **filters: str | Sequence[str] | None) -> None:
    """Print the common values of each filter that matches no recent checkpoint."""
    given = {name: value for name, value in filters.items() if value}
    if not given:
        return
    from collections import Counter

    from gitckpt.store.records.entry import Query

    recent = store.list(Query(limit=_MOST_RECENT))
    for name, wanted in given.items():
        key = "phase_name" if name == "phase" else name
        counts = Counter(getattr(entry, key) for entry in recent)
        del counts[None]
        values = [wanted] if isinstance(wanted, str) else wanted
        if counts and not any(value.removeprefix("refs/heads/") in counts for value in values):
            known = ", ".join(value for value, _ in counts.most_common(_MOST_VALUES))
            problem = f"no recent checkpoint has the {name} {values[0]!r}"
            terminal.remark(f"{problem}; the most frequent: {known}")


def _table_rows(
    entries: Sequence[CheckpointInfo],
    changed_counts: Mapping[str, int],
    replaced: Collection[str],
    labels: Mapping[str, Labels],
    date_format: str | None,
) -> Iterator[Sequence[Cell]]:
    current_time = times.now()
    for entry in entries:
        age = terminal.age_or_timestamp(
            entry.time, current_time, entry.timestamp, date_format=date_format
        )
        label = terminal.label_text(entry.label)
        if terminal.is_terminal() and entry.id in replaced:
            label = terminal.joined(label, " (replaced)")
        file_facts = filter(None, (str(changed_counts.get(entry.id, "")), entry.operation))
        is_degraded = terminal.is_terminal() and entry.is_degraded
        files = "not captured" if is_degraded else " ".join(file_facts)
        message = entry.message
        if terminal.is_terminal() and entry.id in labels:
            tags = " ".join(f"[{name}]" for name in labels[entry.id].tags)
            message = f"{tags} {message or ''}".strip()
        cells = label, terminal.short_id(entry.git_sha), entry.branch, files, message
        yield entry.id, age, entry.run, *cells


def _find_marks(
    store: Store, entries: Sequence[CheckpointInfo]
) -> tuple[str | None, Mapping[str, str]]:
    # Where the worktree is, and the unique prefixes of ids.
    return store.here() if entries else None, store.unique_prefixes(entry.id for entry in entries)


def _print_rows(
    entries: Sequence[CheckpointInfo],
    rows: Sequence[Sequence[Cell]],
    marks: tuple[str | None, Mapping[str, str]] | None,
    time_heading: str,
) -> None:
    if marks is None:
        terminal.out_rows(_COLUMNS, rows)
        return
    here, prefixes = marks
    runs = ids.short_run_names(entry.run for entry in entries if entry.run is not None)
    is_narrow = terminal.columns() < _WIDE
    table = []
    for entry, (_, age, _, label, *others, message) in zip(entries, rows, strict=True):
        cells: list[Cell] = [runs.get(entry.run or ""), label, *others, message]
        if is_narrow:  # a column of phases would leave too little for the messages
            is_usual = bool(message) and entry.status == "complete"
            text = message if is_usual else terminal.joined(label or "", " ", message or "")
            cells = [terminal.fit(runs.get(entry.run or "", ""), _NARROW_RUN), None, *others, text]
        mark = terminal.style("@" if entry.id == here else "", "bold", "green")
        table.append((mark, terminal.id_cell(entry.id, prefixes), age, *cells))
    terminal.out_rows(("", "ID", time_heading, *_COLUMNS[2:]), table, spare=_SPARE)


def _entry_as_json(
    entry: CheckpointInfo,
    changed_counts: Mapping[str, int],
    replaced: Collection[str],
    labels: Mapping[str, Labels],
) -> dict[str, Any]:
    is_captured = entry.examined and not entry.is_degraded
    files = {"captured": is_captured, "changed": changed_counts.get(entry.id)}
    return {
        **terminal.pick_fields(entry, "id run sequence label"),
        "phase": entry.phase_name,
        "status": entry.status or None,
        **terminal.pick_fields(entry, "timestamp git_sha branch trigger message agent"),
        "replaced": entry.id in replaced,
        "files": files | terminal.pick_fields(entry, "operation tree"),
        "tags": list(labels[entry.id].tags) if entry.id in labels else [],
        "pinned": entry.id in labels and labels[entry.id].pinned,
        "note": labels[entry.id].note if entry.id in labels else None,
    }
