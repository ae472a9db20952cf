"""Implement `git ckpt remove` and `git ckpt expire`."""

from __future__ import annotations

import gc

from gitckpt.cli import options, terminal
from gitckpt.cli.opening import open_store
from gitckpt.git.files import mounts
from gitckpt.model import times
from gitckpt.model.errors import CkptError, NotFoundError, UsageError
from gitckpt.model.ids import SHORT, is_run_id
from gitckpt.model.values import replace
from gitckpt.store.records.entry import Query

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from typing import Any

    from gitckpt.store.retention.expiry import ExpireResult
    from gitckpt.store.store import Store


@options.declare_parameters("""
ID…  Addresses of checkpoints, or runs.
--rewritten  Remove the checkpoints of commits that git filter-repo has rewritten.
--force  Do not ask; remove pinned checkpoints, too.
""")
def remove_checkpoints(
    ids: list[str] | None = None, rewritten: bool = False, force: bool = False
) -> None:
    """Remove checkpoints or whole runs.

    git gc deletes their objects later. A run is removed with its worktree. A run stays while a
    process drives it, or while its worktree has changes that no checkpoint has. Asks before it
    removes checkpoints or runs of another worktree.
    """
    problem = "--rewritten takes no ids" if ids else "ID is missing"
    options.refuse_if(bool(ids) == rewritten, problem, "see: git ckpt remove --help")
    with open_store() as store:
        if rewritten:
            runs, checkpoints = _find_rewritten_to_remove(store, force=force)
        else:
            runs, checkpoints = _resolve_runs_and_ids(store, ids or [])
            if not force:
                _require_user_consent(store, [*runs, *checkpoints])
        ids_of_runs = {name for run in runs for name in _checkpoint_ids(store, run)}
        if not force:
            _require_unpinned(store, ids_of_runs | set(checkpoints))
        failures: list[CkptError] = []
        count = len(ids_of_runs | set(checkpoints))
        try:
            # Without a rate: git deletes all refs of a run, or of the checkpoints, at once.
            with terminal.show_waiting(f"removing {terminal.plural(count, 'checkpoint')}"):
                for number, run in enumerate(runs):
                    if len(runs) > 1:
                        terminal.count_progress("removing runs", number, len(runs))
                    try:
                        store.remove_run(run)
                        terminal.show_progress("")
                        terminal.out(run)
                    except CkptError as error:
                        failures.append(error)  # go on with the other runs
                if checkpoints:
                    store.remove(checkpoints)
        except KeyboardInterrupt:
            terminal.warn(
                "the removal was interrupted; to list the remaining checkpoints: git ckpt list"
            )
            raise
        for checkpoint_id in checkpoints:
            terminal.out(checkpoint_id)
        print_kept_worktrees(store, ids_of_runs | set(checkpoints))
        for failure in failures[:-1]:
            terminal.print_error(failure)
        if failures:
            raise failures[-1]


def _require_user_consent(store: Store, names: Sequence[str]) -> None:
    places = store.made_elsewhere(names)
    rows = [f"{_kind_and_id(name)} was made in {place}" for name, place in places.items()]
    if not rows or (terminal.can_ask_user() and terminal.user_confirms("Remove all?", intro=rows)):
        return
    others = f" (and {len(rows) - 1} more of other worktrees)" if len(rows) > 1 else ""
    short_ids = " ".join(_kind_and_id(name).partition(" ")[2] for name in names)
    hint = f"to remove all of them anyway: git ckpt remove --force {short_ids}"
    raise UsageError(f"{rows[0]}{others}; nothing was removed", hint=hint)


def _require_unpinned(store: Store, checkpoint_ids: Collection[str]) -> None:
    for checkpoint_id, labels in store.labels(checkpoint_ids).items():
        if labels.pinned:
            name = checkpoint_id[:SHORT]
            hint = f"first: git ckpt unpin {name}; or remove it anyway with --force"
            raise UsageError(f"checkpoint {name} is pinned; nothing was removed", hint=hint)


def _kind_and_id(name: str) -> str:
    return f"run {name}" if is_run_id(name) else f"checkpoint {name[:SHORT]}"


def _find_rewritten_to_remove(store: Store, *, force: bool) -> tuple[list[str], list[str]]:
    entries = store.rewritten()
    if not entries:
        terminal.remark("git filter-repo has rewritten no commit of a checkpoint")
        return [], []
    if not force:
        lines = [f"{info.id}  {info.git_sha[:SHORT]}  {info.run or info.label}" for info in entries]
        count = terminal.plural(len(entries), "checkpoint")
        if not terminal.can_ask_user():
            for line in lines:
                terminal.remark(line)
            problem = f"cannot ask whether to remove {count}"
            raise UsageError(problem, hint="to remove them: git ckpt remove --rewritten --force")
        if not terminal.user_confirms(f"Remove {count}?", intro=lines):
            return [], []
    # If all checkpoints of a run are to be removed, the run is removed as a whole.
    entry_ids = {entry.id for entry in entries}
    affected_runs = {entry.run for entry in entries if entry.run is not None}
    runs = {run for run in affected_runs if entry_ids.issuperset(_checkpoint_ids(store, run))}
    return _youngest_first(store, runs), [entry.id for entry in entries if entry.run not in runs]


def _checkpoint_ids(store: Store, run: str) -> list[str]:
    return [entry.id for entry in store.list(Query(run=run))]


def print_kept_worktrees(store: Store, removed: Collection[str]) -> None:
    # Worktrees made from removed checkpoints may hold work, so they are not removed.
    for path, checkpoint_id in store.worktrees_made_from(removed).items():
        try:
            store.raw(checkpoint_id)
        except NotFoundError:
            short_id, command = checkpoint_id[:SHORT], mounts.removal_command(path)
            terminal.remark(f"the worktree of {short_id} stays; to remove it: {command}")
        except CkptError:  # its ref exists
            continue


def _resolve_runs_and_ids(store: Store, names: list[str]) -> tuple[list[str], list[str]]:
    # Resolve all names before anything is removed: an unknown name stops the command.
    runs: set[str] = set()
    checkpoints: dict[str, None] = {}
    for name in names:
        if (run := store.run_named(name)) is not None:
            runs.add(run)
        else:
            checkpoints[store.find(name)] = None
    return _youngest_first(store, runs), list(checkpoints)


def _youngest_first(store: Store, runs: Collection[str]) -> list[str]:
    # The youngest first: a younger run may refer to an older one.
    youngest_first = sorted(store.runs() if runs else (), key=lambda run: -run.started)
    return [run.run for run in youngest_first if run.run in runs]


@options.declare_parameters("""
--older-than AGE  Remove checkpoints older than AGE: 90s, 30m, 12h, 7d, 2w.
--keep-last N  Keep the N newest checkpoints.
--all  Consider every checkpoint and unfinished runs, not only checkpoints of hooks.
-n, --dry-run  Print what would be removed, and why; remove nothing.
""")
def expire_checkpoints(
    older_than: str | None = None, all_: bool = False, dry_run: bool = False, **changes: Any
) -> int:
    """Remove checkpoints and runs that the retention settings no longer keep.

    Removes old checkpoints of hooks, and complete runs with their worktrees. Of the checkpoints by
    hooks or agents, one per hour stays after a day, and one per day stays after a week.

    A run is removed as a whole. It stays while its worktree has changes that no checkpoint has. To
    remove every checkpoint: git ckpt expire --all --older-than 0s --keep-last 0.

    Prints each removal and its reason; in a pipe, in tab-separated columns with full ids. A dry run
    lists all runs. If something cannot be deleted, the rest is removed and the exit code is 1.
    """
    with open_store() as store:
        changes |= {"everything": True} if all_ else {}
        changes |= {"older_than": times.parse_age(older_than)} if older_than is not None else {}
        policy = replace(store.policy(), **changes)
        gc.disable()  # garbage collection takes 1 s for 100,000 checkpoints, which have no cycles
        try:
            with terminal.show_waiting("deciding what expires"):
                result = store.expire(policy, dry_run=dry_run, progress=terminal.show_progress)
        except KeyboardInterrupt:
            if not dry_run:
                terminal.show_progress("")
                terminal.warn("the removal was interrupted; to finish it: git ckpt expire")
            raise
        finally:
            gc.enable()
            if not dry_run:
                terminal.show_progress("")
        if not dry_run:
            print_kept_worktrees(store, {entry.id for entry, _ in result.checkpoints})
    terminal.out_rows(("WHAT", "ID", "PHASE", "WHY"), _expiry_rows(result, dry_run=dry_run))
    terminal.remark(_summary_text(result, "would expire" if dry_run else "expired"))
    for message, hint in {error.message: error.hint for _, error in result.failed}.items():
        terminal.print_error(CkptError(message, hint=hint))
    return 1 if result.failed else 0


def _expiry_rows(result: ExpireResult, *, dry_run: bool) -> list[tuple[str, str, str, str]]:
    # A dry run lists all runs; otherwise only the runs that are due.
    verb = "expires" if dry_run else "expired"
    runs = {fate.run for fate in result.runs}
    rows = []
    for fate in result.runs:
        if fate.is_due or dry_run:
            reason = fate.reason
            if fate.expires:
                reason += f"; {terminal.plural(fate.checkpoints - len(fate.keeps), 'checkpoint')}"
                reason += f", worktree {fate.path}" if fate.path else ""
            rows.append((verb if fate.expires else "stays", fate.run, fate.label, reason))
    reasons = [
        (verb, entry, decision.reason)
        for entry, decision in result.checkpoints
        if entry.run not in runs or entry.id in result.squashed
    ]
    reasons += [("failed", entry, error.message) for entry, error in result.failed]
    rows += [(state, terminal.short_id(info.id), info.label, why) for state, info, why in reasons]
    return rows


def _summary_text(result: ExpireResult, verb: str) -> str:
    summary = f"{len(result.checkpoints)} of {terminal.plural(result.total, 'checkpoint')} {verb}"
    summary += f", {len(result.failed)} failed" if result.failed else ""
    if result.runs:
        expiring_runs = sum(fate.expires for fate in result.runs)
        summary += f"; {expiring_runs} of {terminal.plural(len(result.runs), 'run')}"
    return summary
