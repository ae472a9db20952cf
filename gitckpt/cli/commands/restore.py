"""Implement `git ckpt restore`, `git ckpt undo` and `git ckpt redo`."""

from __future__ import annotations

import os

from gitckpt.cli import options, terminal
from gitckpt.cli.opening import open_store
from gitckpt.model import times
from gitckpt.model.arguments import join_first, quote_path, shell_quoted
from gitckpt.model.ids import SHORT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, TypeAlias

    from gitckpt.cli.terminal import Cell
    from gitckpt.store.restore.restorer import RestoreResult, StepInfo
    from gitckpt.store.restore.undo import UndoStep

    Warn: TypeAlias = Callable[[Sequence[str]], None]

_COLUMNS = ("STEP", "ID", "AGE", "COMMIT", "BRANCH", "MESSAGE")


@options.declare_parameters("""
ID [-- PATH…]  The address of a checkpoint, such as latest~2 or @{20m}; with paths, restore only
  these.
--index  With paths: restore the index entries of these paths as well.
--trust  Restore a checkpoint whose document was replaced by a fetch.
--dry-run  Print what would be done; change nothing.
--json  Print one JSON document.
""")
def restore_files(
    ids: list[str],
    paths: list[str] | None = None,
    index: bool = False,
    trust: bool = False,
    dry_run: bool = False,
    as_json: bool = False,
) -> None:
    """Restore the files of a checkpoint into this worktree.

    First records the current files in a safety checkpoint: git ckpt undo restores them. Changes
    only what differs: files, the index, and a merge or rebase in progress; with paths, only these
    files. HEAD and ignored files stay.
    """
    warn = _make_warn_once()
    with open_store(to_capture=True) as store:
        checkpoint = store.read(store.find(ids[0]))
        only_paths = [
            options.path_from_top(store.worktree, path) for path in (*ids[1:], *(paths or ()))
        ] or None
        with terminal.show_waiting("restoring files"):
            restore_options: Any = {"index": index, "trust": trust, "dry_run": dry_run}
            result = store.restore(checkpoint, only_paths, announce=warn, **restore_options)
        _print_result(result, warn, "undo", dry_run=dry_run, as_json=as_json)


@options.declare_parameters("""
--list  List the steps that undo and redo can take; change nothing.
--dry-run  Print what would be done; change nothing.
--json  Print one JSON document.
""")
def undo_restore(list_: bool = False, dry_run: bool = False, as_json: bool = False) -> None:
    """Undo the newest restore in this worktree.

    Another undo undoes the restore before that one. First records the current files with all later
    edits: git ckpt redo restores them, until the next restore.
    """
    problem = "--list and --dry-run exclude each other"
    options.refuse_if(list_ and dry_run, problem, "give only one of them")
    warn = _make_warn_once()
    with open_store(to_capture=not list_) as store:
        if not list_:
            with terminal.show_waiting("restoring files"):
                result = store.undo(dry_run=dry_run, announce=warn)
            _print_result(result, warn, "redo", dry_run=dry_run, as_json=as_json)
            return
        steps, is_interrupted = store.undo_steps(), store.is_cut_off()
    if as_json:
        entry_keys = "id timestamp git_sha branch message"
        steps_by_kind: dict[str, list[object]] = {"undo": [], "redo": []}
        for step in steps:
            steps_by_kind[step.kind].append(terminal.pick_fields(step.checkpoint, entry_keys))
        terminal.out_json({**steps_by_kind, "cut_off": is_interrupted})
    else:
        _print_steps(steps)
        if is_interrupted:
            terminal.warn("the newest restore was interrupted: repeat it, or run: git ckpt undo")


@options.declare_parameters("""
--dry-run  Print what would be done; change nothing.
--json  Print one JSON document.
""")
def redo_restore(dry_run: bool = False, as_json: bool = False) -> None:
    """Redo the restore that was undone last.

    Another redo repeats the restore undone before that one. First records the current files: git
    ckpt undo restores them. After a new restore, there is nothing to redo.
    """
    warn = _make_warn_once()
    with open_store(to_capture=True) as store:
        with terminal.show_waiting("restoring files"):
            result = store.redo(dry_run=dry_run, announce=warn)
        _print_result(result, warn, "undo", dry_run=dry_run, as_json=as_json)


def _make_warn_once() -> Warn:
    printed_sentences: set[str] = set()

    def warn(sentences: Sequence[str]) -> None:
        for sentence in sentences:
            if sentence not in printed_sentences:
                terminal.warn(sentence)
        printed_sentences.update(sentences)

    return warn


def _print_result(
    result: RestoreResult, warn: Warn, reverse_command: str, *, dry_run: bool, as_json: bool
) -> None:
    if result.step is not None and (result.changes or result.safety):
        terminal.remark(_describe_step(result.step, reverse_command))
    if as_json:
        terminal.out_json(_result_as_json(result))
    else:
        for change in result.changes:
            terminal.out(f"{change.kind:7} {os.fsdecode(change.path)}")
    if dry_run:
        warn(result.apart)
    warn(result.remarks)
    edited = join_first(list(map(quote_path, result.step.edited)), 3) if result.step else ""
    if dry_run:
        if edited:
            terminal.remark(f"a checkpoint would keep your edits since then to {edited}")
        terminal.remark("nothing was changed")
    elif result.safety is not None:
        direction = "back" if reverse_command == "undo" else "forward again"
        edits = f", with your edits since then to {edited}," if edited else ""
        safety = f"the previous files{edits} are in checkpoint {result.safety[:SHORT]}"
        terminal.remark(f"{safety}; to go {direction}: git ckpt {reverse_command}")
    elif not (result.changes or result.unfiltered or result.kept):
        terminal.remark("nothing to do: the worktree has these files")
    if result.kept:
        from gitckpt.store.restore.restorer import files_not_restored_error

        error = files_not_restored_error(result.kept)
        if not (dry_run or result.unfiltered):
            raise error
        terminal.warn(error.message)
    if result.unfiltered:
        from gitckpt.git.contents.unfiltered import unfiltered_files_error

        command = f"git ckpt restore {result.checkpoint[:SHORT]}"
        raise unfiltered_files_error(result.unfiltered, command)


def _describe_step(step: StepInfo, reverse_command: str) -> str:
    verb, event = ("redoing", "undone ") if reverse_command == "undo" else ("undoing", "")
    restore = f"restore {step.restored[:SHORT]}" if step.restored else "newest step"
    paths = " ".join(shell_quoted(os.fsdecode(path)) for path in step.paths)
    age = times.age_text(max(times.now() - step.time, times.MICRO))
    return f"{verb}: {restore}{f' -- {paths}' if paths else ''}, {event}{age} ago"


def _result_as_json(result: RestoreResult) -> dict[str, Any]:
    changes = [{"kind": change.kind, "path": os.fsdecode(change.path)} for change in result.changes]
    return {
        "checkpoint": result.checkpoint,
        "changes": changes,
        "safety": result.safety,
        "head": terminal.pick_fields(result.head, "commit branch operation"),
        "source": terminal.pick_fields(result.source, "commit branch operation"),
        "apart": list(result.apart),
        "remarks": list(result.remarks),
        "unfiltered": [os.fsdecode(path) for path in result.unfiltered],
        "kept": [os.fsdecode(path) for path in sorted(result.kept)],
    }


def _print_steps(steps: Sequence[UndoStep]) -> None:
    if not steps:
        terminal.remark("nothing was restored in this worktree")
        return
    current_time = times.now()
    rows: dict[str, list[Sequence[Cell]]] = {"redo": [], "undo": []}
    for step in steps:
        entry, group = step.checkpoint, rows[step.kind]
        commit = terminal.short_id(entry.git_sha), entry.branch, entry.message
        age = terminal.age_or_timestamp(entry.time, current_time, entry.timestamp)
        group.append((f"{step.kind} {len(group) + 1}", terminal.short_id(entry.id), age, *commit))
    # Newest first: the restores that `redo` repeats, then the restores that `undo` undoes.
    table = [*reversed(rows["redo"]), *rows["undo"]]
    terminal.out_rows(_COLUMNS, table, spare=("COMMIT", "BRANCH"))
