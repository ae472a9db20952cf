"""`git ckpt list`."""

from __future__ import annotations

from gitckpt.cli import options, terminal
from gitckpt.cli.opening import open_store
from gitckpt.model import ids, times
from gitckpt.model import phase as phases
from gitckpt.model.errors import NotFoundError, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from typing import Any

    from gitckpt.store.records.entry import CheckpointInfo
    from gitckpt.store.store import Store

_COLUMNS = ("ID", "AGE", "RUN", "PHASE", "COMMIT", "BRANCH", "FILES", "MESSAGE")
_NEWEST = 20
_OUTLOOK = {
    "not installed": "; every commit makes one after: git ckpt init",
    "missed": ", and commits make none until the hooks call gitckpt; what is missing: git ckpt doctor",
    "none": ", and commits make none, as chosen with --hooks none; make one: git ckpt save",
    "recorded": "; the next commit makes one, or: git ckpt save",
}


@options.usage("""
--run RUN  Only checkpoints of this run; a unique prefix suffices.
--commit REV  Only checkpoints linked to this commit.
--phase P  Only checkpoints of this phase, or with this whole label.
--status S  Only checkpoints with this status: complete, failed, started, progress, blocked,
  skipped or partial.
--since AGE  Only checkpoints younger than AGE: 90s, 30m, 12h, 7d, 2w.
-n, --limit N  Show at most N checkpoints.  [default: 20]
--all  Show all checkpoints.
--json  Print one JSON document.
""")
def list_(
    run: str | None = None,
    commit: str | None = None,
    phase: str | None = None,
    status: str | None = None,
    since: str | None = None,
    limit: int | None = None,
    all_: bool = False,
    as_json: bool = False,
) -> None:
    """List checkpoints, newest first.

    Piped, each line has tab-separated columns with full ids.
    """
    from gitckpt.store.records.entry import Query

    if status is not None and status not in phases.STATUSES:
        raise UsageError(
            f"{status!r} is not a status", hint=f"a status is one of {', '.join(phases.STATUSES)}"
        )
    if commit == "":  # in the API an unborn branch, but here an unset variable of a script
        raise NotFoundError(
            "no commit goes by ''", hint="name a branch, a tag or a commit: git log --oneline --all"
        )
    with open_store() as store:
        is_label = phase is not None and phases.split(phase)[1] in phases.STATUSES
        most = None if all_ else _NEWEST if limit is None else limit
        query = Query(
            run=store.find_run(run) if run is not None else None,
            ids=[entry.id for entry in store.links(commit)] if commit is not None else None,
            phase=None if is_label else phase,
            label=phase if is_label else None,
            status=status,
            since=times.now() - times.parse_age(since) if since is not None else None,
            limit=None if most is None else most + 1,
        )
        with terminal.Waiting("reading checkpoints"):
            found = store.list(query)
            entries = found[:most]
            problems = store.problems()
            changed = store.changed_files(entries)
            replaced = store.replaced(entries)
            store.write_notes(only_if_due=True)
        now = times.now()
    if as_json:
        report = {
            "checkpoints": [_as_json(entry, changed, replaced) for entry in entries],
            "more": len(found) > len(entries),
            "problems": [{"ref": problem.ref, "problem": problem.sentence} for problem in problems],
        }
        terminal.out_json(report)
    else:
        _print(entries, changed, replaced, now)
        if not entries and most != 0:
            _explain_nothing(
                store,
                filtered=any(each is not None for each in (run, commit, phase, status, since)),
            )
        elif len(found) > len(entries) and limit is None:
            terminal.remark(f"these are the newest {_NEWEST}; all of them: git ckpt list --all")
    if replaced:
        shown = ", ".join(name[: ids.SHORT] for name in replaced)
        cure = "to put back what was written here: git ckpt verify --repair"
        terminal.warn(f"replaced by a fetch: {shown}; {cure}")
    if problems:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        terminal.warn(f"not a valid checkpoint: {problems[0].sentence}{more}; see: git ckpt doctor")


def _print(
    entries: Sequence[CheckpointInfo],
    changed: Mapping[str, int],
    replaced: Collection[str],
    now: int,
) -> None:
    if not terminal.is_terminal():
        for entry in entries:
            cells = (
                entry.id,
                entry.timestamp,
                entry.run,
                entry.label,
                entry.git_sha,
                entry.branch,
                _files(entry, changed),
                entry.message,
            )
            terminal.out_row(cells)
        return
    if not entries:
        return
    terminal.table(
        _COLUMNS,
        [
            [
                entry.id[: ids.SHORT],
                times.age_text(max(now - entry.time, 0)),
                entry.run or "",
                f"{entry.label} (replaced)" if entry.id in replaced else entry.label,
                entry.git_sha[: ids.SHORT],
                entry.branch or "",
                _files(entry, changed),
                entry.message or "",
            ]
            for entry in entries
        ],
    )


def _explain_nothing(store: Store, *, filtered: bool) -> None:
    if filtered:
        terminal.remark("no checkpoint is like that; see all: git ckpt list --all")
        return
    if store.problems():
        terminal.remark("none of the checkpoints can be read: git ckpt verify says more")
        return
    terminal.remark(f"no checkpoints yet{_OUTLOOK[store.outlook()]}")


def _files(entry: CheckpointInfo, changed: Mapping[str, int]) -> str:
    number = changed.get(entry.id)
    text = "" if number is None else str(number)
    return f"{text} {entry.operation}".strip() if entry.operation else text


def _as_json(
    entry: CheckpointInfo, changed: Mapping[str, int], replaced: Collection[str]
) -> dict[str, Any]:
    return {
        "id": entry.id,
        "run": entry.run,
        "sequence": entry.sequence,
        "label": entry.label,
        "phase": entry.phase_name,
        "status": entry.status or None,
        "timestamp": entry.timestamp,
        "git_sha": entry.git_sha,
        "branch": entry.branch,
        "trigger": entry.trigger,
        "message": entry.message,
        "agent": entry.agent,
        "replaced": entry.id in replaced,
        "files": {
            "captured": entry.examined,
            "changed": changed.get(entry.id),
            "operation": entry.operation,
            "tree": entry.tree,
        },
    }
