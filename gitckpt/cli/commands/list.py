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
    "missed": "; commits make none until the hooks call gitckpt: git ckpt doctor",
    "none": "; commits make none, because of --hooks none; to make one: git ckpt save",
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
            f"there is no status {status!r}", hint=f"it is one of {', '.join(phases.STATUSES)}"
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
            listed = store.list(query)
            entries = listed[:most]
            problems = store.problems()
            changed = store.changed_files(entries)
            replaced = store.replaced(entries)
            store.write_notes(only_if_due=True)
        now = times.now()
    if as_json:
        report = {
            "checkpoints": [_as_json(entry, changed, replaced) for entry in entries],
            "more": len(listed) > len(entries),
            "problems": [{"ref": problem.ref, "problem": problem.sentence} for problem in problems],
        }
        terminal.out_json(report)
    else:
        _print(entries, changed, replaced, now)
        if not entries and most != 0:
            _explain_nothing(
                store,
                filtered=any(option is not None for option in (run, commit, phase, status, since)),
            )
        elif len(listed) > len(entries) and limit is None:
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
    for_person = terminal.is_terminal()
    rows = []
    for entry in entries:
        mark = " (replaced)" if for_person and entry.id in replaced else ""
        length = ids.SHORT if for_person else None
        row = (
            entry.id[:length],
            times.age_text(max(now - entry.time, 0)) if for_person else entry.timestamp,
            entry.run,
            f"{entry.label}{mark}",
            entry.git_sha[:length],
            entry.branch,
            _files(entry, changed),
            entry.message,
        )
        rows.append(row)
    if not for_person:
        for row in rows:
            terminal.out_row(row)
    elif rows:
        terminal.table(_COLUMNS, [[cell or "" for cell in row] for row in rows])


def _explain_nothing(store: Store, *, filtered: bool) -> None:
    if filtered:
        terminal.remark("no checkpoint matches; to see all: git ckpt list --all")
        return
    if store.problems():
        terminal.remark("no checkpoint can be read; to see why: git ckpt verify")
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
        **terminal.attributes(entry, "id run sequence label"),
        "phase": entry.phase_name,
        "status": entry.status or None,
        **terminal.attributes(entry, "timestamp git_sha branch trigger message agent"),
        "replaced": entry.id in replaced,
        "files": {
            "captured": entry.examined,
            "changed": changed.get(entry.id),
            "operation": entry.operation,
            "tree": entry.tree,
        },
    }
