"""`git ckpt remove`."""

from __future__ import annotations

from gitckpt.cli import options, terminal
from gitckpt.cli.opening import open_store
from gitckpt.git.files import mounts
from gitckpt.model.errors import CkptError, NotFoundError, UsageError
from gitckpt.model.ids import SHORT, is_run_id
from gitckpt.store.records.entry import Query

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from gitckpt.store.store import Store


@options.usage("""
ID…  Checkpoints (ids, prefixes, revs or latest) or runs (ids or prefixes).
--rewritten  Remove the checkpoints of commits that git filter-repo has rewritten.
--force  Do not ask.
""")
def remove(ids: list[str] | None = None, rewritten: bool = False, force: bool = False) -> None:
    """Remove checkpoints or whole runs.

    git gc collects their objects later. A run is removed with its worktree. It stays while it is
    driven, or while its worktree has changes that no checkpoint has. Asks before it removes what
    another worktree made or started.
    """
    if bool(ids) == rewritten:
        wrong = "--rewritten takes no ids" if ids else "ID is missing"
        raise UsageError(wrong, hint="see: git ckpt remove --help")
    with open_store() as store:
        runs, checkpoints = (
            _rewritten(store, force=force) if rewritten else _resolve(store, ids or [])
        )
        if not (force or rewritten):
            _require_consent(store, [*runs, *checkpoints])
        of_runs = {entry.id for run in runs for entry in store.list(Query(run=run))}
        failures: list[CkptError] = []
        try:
            for run in runs:
                try:
                    store.remove_run(run)
                except CkptError as error:
                    failures.append(error)  # go on with the others
                else:
                    terminal.out(run)
            if checkpoints:
                store.remove(checkpoints)
        except KeyboardInterrupt:
            terminal.warn("interrupted; to see what is left: git ckpt list")
            raise
        for checkpoint_id in checkpoints:
            terminal.out(checkpoint_id)
        print_kept_worktrees(store, of_runs | set(checkpoints))
        for error_ in failures[:-1]:
            terminal.fail(error_)
        if failures:
            raise failures[-1]


def _require_consent(store: Store, names: Sequence[str]) -> None:
    elsewhere = store.made_elsewhere(names)
    if not elsewhere:
        return
    lines = [f"{_short(name)} was made in {place}" for name, place in elsewhere.items()]
    if terminal.may_ask():
        answer = terminal.ask("Remove it? [y/N] ", told=lines) or ""
        if answer.lower() in ("y", "yes"):
            return
    more = f" (and {len(lines) - 1} more of other worktrees)" if len(lines) > 1 else ""
    words = " ".join(_short(name).partition(" ")[2] for name in names)
    hint = f"to remove it anyway: git ckpt remove --force {words}"
    raise UsageError(f"{lines[0]}{more}; nothing was removed", hint=hint)


def _short(name: str) -> str:
    return f"run {name}" if is_run_id(name) else f"checkpoint {name[:SHORT]}"


def _rewritten(store: Store, *, force: bool) -> tuple[list[str], list[str]]:
    entries = store.rewritten()
    if not entries:
        terminal.remark("git filter-repo has rewritten no commit of a checkpoint")
        return [], []
    lines = [
        f"{entry.id}  {entry.git_sha[:SHORT]}  {entry.run or entry.label}" for entry in entries
    ]
    if not force:
        count = terminal.count(len(entries), "checkpoint")
        if not terminal.may_ask():
            for line in lines:
                terminal.remark(line)
            raise UsageError(
                f"cannot ask whether to remove {count}",
                hint="git ckpt remove --rewritten --force",
            )
        answer = terminal.ask(f"Remove {count}? [y/N] ", told=lines)
        if answer is None or answer.lower() not in ("y", "yes"):
            return [], []
    # A run whose checkpoints all go is removed as a whole.
    gone = {entry.id for entry in entries}
    named = {entry.run for entry in entries if entry.run is not None}
    runs = {
        run for run in named if gone.issuperset(entry.id for entry in store.list(Query(run=run)))
    }
    return _in_order(store, runs), [entry.id for entry in entries if entry.run not in runs]


def print_kept_worktrees(store: Store, removed: Collection[str]) -> None:
    # Worktrees made from removed checkpoints may hold work, so they are not removed.
    for path, checkpoint_id in store.worktrees_made_from(removed).items():
        if _is_gone(store, checkpoint_id):
            command = mounts.way_to_remove(path)
            terminal.remark(
                f"the worktree of {checkpoint_id[:SHORT]} stays; to remove it: {command}"
            )


def _is_gone(store: Store, checkpoint_id: str) -> bool:
    try:
        store.raw(checkpoint_id)
    except NotFoundError:
        return True
    except CkptError:
        return False  # its ref exists
    return False


def _resolve(store: Store, texts: list[str]) -> tuple[list[str], list[str]]:
    # All names are resolved before anything is removed: one that is unknown stops the command.
    runs: set[str] = set()
    checkpoints: dict[str, None] = {}
    for text in texts:
        run = store.run_named(text)
        if run is not None:
            runs.add(run)
        else:
            checkpoints[store.find(text)] = None
    return _in_order(store, runs), list(checkpoints)


def _in_order(store: Store, runs: Collection[str]) -> list[str]:
    if not runs:
        return []
    # The youngest first: a younger run may refer to an older one.
    youngest_first = sorted(store.runs(), key=lambda run: -run.started)
    return [run.run for run in youngest_first if run.run in runs]
