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
    wrong = "--rewritten takes no ids" if ids else "ID is missing"
    options.refuse(bool(ids) == rewritten, wrong, "see: git ckpt remove --help")
    with open_store() as store:
        if rewritten:
            runs, checkpoints = _rewritten(store, force=force)
        else:
            runs, checkpoints = _resolve(store, ids or [])
            if not force:
                _require_consent(store, [*runs, *checkpoints])
        of_runs = {name for run in runs for name in _ids_of(store, run)}
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
        for failure in failures[:-1]:
            terminal.fail(failure)
        if failures:
            raise failures[-1]


def _require_consent(store: Store, names: Sequence[str]) -> None:
    elsewhere = store.made_elsewhere(names)
    lines = [f"{_short(name)} was made in {place}" for name, place in elsewhere.items()]
    if not lines or (terminal.may_ask() and terminal.confirms("Remove it?", told=lines)):
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
    if not force:
        lines = [f"{each.id}  {each.git_sha[:SHORT]}  {each.run or each.label}" for each in entries]
        count = terminal.count(len(entries), "checkpoint")
        if not terminal.may_ask():
            for line in lines:
                terminal.remark(line)
            hint = "git ckpt remove --rewritten --force"
            raise UsageError(f"cannot ask whether to remove {count}", hint=hint)
        if not terminal.confirms(f"Remove {count}?", told=lines):
            return [], []
    # A run whose checkpoints all go is removed as a whole.
    names = {entry.id for entry in entries}
    named = {entry.run for entry in entries if entry.run is not None}
    runs = {run for run in named if names.issuperset(_ids_of(store, run))}
    return _in_order(store, runs), [entry.id for entry in entries if entry.run not in runs]


def _ids_of(store: Store, run: str) -> list[str]:
    return [entry.id for entry in store.list(Query(run=run))]


def print_kept_worktrees(store: Store, removed: Collection[str]) -> None:
    # Worktrees made from removed checkpoints may hold work, so they are not removed.
    for path, checkpoint_id in store.worktrees_made_from(removed).items():
        if _is_gone(store, checkpoint_id):
            short, command = checkpoint_id[:SHORT], mounts.removal_command(path)
            terminal.remark(f"the worktree of {short} stays; to remove it: {command}")


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
    # The youngest first: a younger run may refer to an older one.
    youngest_first = sorted(store.runs() if runs else (), key=lambda run: -run.started)
    return [run.run for run in youngest_first if run.run in runs]
