"""Implement `git ckpt show`."""

from __future__ import annotations

import contextlib
import os

from gitckpt.cli import options, terminal
from gitckpt.cli.opening import open_store
from gitckpt.model.arguments import join_first, shell_quoted
from gitckpt.model.document import KEYS
from gitckpt.model.errors import CkptError, NotFoundError, WorktreeError
from gitckpt.model.ids import SHORT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gitckpt.cli.terminal import EscapedText
    from gitckpt.model.checkpoint import Checkpoint
    from gitckpt.store.records.labels import Labels
    from gitckpt.store.store import Store

_INDENT = "    "  # of the changed files
_WIDTH_IN_A_PIPE, _NARROWEST_STAT = 80, 20  # columns
_TYPE_TEXTS = {"null": "null", "bytes": "bytes, in base64", "integer": "an integer"}


@options.declare_parameters("""
[ID] [-- PATH…]  The address of a checkpoint; with paths, or as ID:PATH, print these files.
  [default: latest]
--json  Print one JSON document.
--raw  Print the stored document, byte for byte.
--state  Print only the state, as JSON.
""")
def show_checkpoint(
    ids: list[str] | None = None,
    paths: list[str] | None = None,
    as_json: bool = False,
    raw: bool = False,
    state: bool = False,
) -> None:
    """Show the commit, files and state of a checkpoint, or print one of its files.

    A file is printed byte for byte, and a directory is listed. In ID:PATH, the path is relative to
    the top of the worktree, or with ./ to this directory.
    """
    problem = "--json, --raw and --state exclude each other"
    options.refuse_if(as_json + raw + state > 1, problem, "give only one of them")
    hint = "write paths after two dashes: git ckpt show ID -- PATH"
    options.refuse_if(len(ids or []) > 1, f"show takes one id, not {len(ids or [])}", hint)
    problem = "--json, --raw and --state print no files"
    options.refuse_if(paths and as_json + raw + state, problem, "leave out the option or the paths")
    with open_store() as store:
        address = (ids or ["latest"])[0]
        has_path = ":" in address
        found = store.find_path(address) if has_path else (store.find(address), None)
        checkpoint_id, inner_path = found
        top_paths = [options.path_from_top(store.worktree, path) for path in paths or ()]
        if inner_path is not None and inner_path.startswith(("./", "../")):  # as in git
            top_paths.insert(0, options.path_from_top(store.worktree, inner_path))
        elif inner_path is not None:
            top_paths.insert(0, os.path.normpath(os.fsencode(inner_path or ".")))
        if top_paths:
            try:
                for path in top_paths:
                    _print_path(store, checkpoint_id, path)
            except NotFoundError:
                if inner_path is not None and store.run_named(address.partition(":")[0]):
                    store.find(address)  # raises that the run has no such phase
                raise
            return
        if raw:
            terminal.out_document(store.raw(checkpoint_id))
            return
        checkpoint = store.read(checkpoint_id)
        if as_json or state:
            from gitckpt.model import jsonable

            to_json = jsonable.state_to_json if state else jsonable.checkpoint_to_json
            fields = to_json(checkpoint)
            terminal.out_json(fields if state else fields | labels_as_json(store, checkpoint.id))
            return
        with terminal.page():
            _print_checkpoint(store, checkpoint)


def _print_path(store: Store, checkpoint_id: str, path: bytes) -> None:
    files = store.files(checkpoint_id, path)
    if [file.path for file in files] != [path] or files[0].kind != "file":
        from gitckpt.cli.commands.files import print_files

        print_files(store, files)
        return
    content = store.file(checkpoint_id, path)
    with terminal.page():
        terminal.out_document(content)


def _print_checkpoint(store: Store, checkpoint: Checkpoint) -> None:
    from gitckpt.model import toml

    prefixes = store.unique_prefixes([checkpoint.id]) if terminal.is_terminal() else {}
    for name, value in _header_fields(checkpoint):
        if value == checkpoint.id:
            _print_field(name, terminal.whole_id(value, prefixes))
        elif value == checkpoint.label:
            _print_field(name, terminal.status_text(value, value.rpartition("-")[2]))
        else:
            _print_field(name, value)
    for error in checkpoint.errors:
        _print_field("error", terminal.style(error, "red"))
    labels = store.labels([checkpoint.id]).get(checkpoint.id)
    if labels is not None:
        _print_labels(labels)
    _print_files(store, checkpoint)
    _print_attempt(store, checkpoint)
    if checkpoint.state:
        terminal.out()
        terminal.out(terminal.heading("state:"))
        types_by_pointer: dict[str, str] = {}
        text = toml.dump_state(dict(checkpoint.state), types_by_pointer).removeprefix("[state]\n")
        terminal.out_indented(text.lstrip("\n"))
        for pointer, value_type in types_by_pointer.items():
            terminal.out(f"    # {pointer} is {_TYPE_TEXTS[value_type]}")


def labels_as_json(store: Store, checkpoint_id: str) -> dict[str, Any]:
    labels = store.labels([checkpoint_id]).get(checkpoint_id)
    tags, is_pinned = (labels.tags, labels.pinned) if labels else ((), False)
    return {"tags": list(tags), "pinned": is_pinned, "note": labels.note if labels else None}


def _print_labels(labels: Labels) -> None:
    if labels.tags:
        _print_field("tags", ", ".join(labels.tags))
    if labels.pinned:
        _print_field("pinned", "never expires")
    for line in (labels.note or "").splitlines():
        _print_field("note", line)


def _print_field(label: str, value: str | EscapedText) -> None:
    terminal.out(terminal.heading(f"{label}:"), " " * (12 - len(label)), value)


def _header_fields(checkpoint: Checkpoint) -> list[tuple[str, str]]:
    texts = {
        "run": f"{checkpoint.run} #{checkpoint.sequence}" if checkpoint.run else None,
        "git_sha": checkpoint.git_sha or "none yet",
        "branch": checkpoint.branch or "detached",
        "progress": _progress_text(checkpoint),
        "attempt": _attempt_text(checkpoint),
    }
    values = ((key, texts.get(key.name, getattr(checkpoint, key.field_name))) for key in KEYS)
    return [(key.label, str(value)) for key, value in values if value and key.label]


def _attempt_text(checkpoint: Checkpoint) -> str | None:
    attempt = checkpoint.attempt
    if attempt is None:
        return None
    code = attempt.exit_code
    parts = (
        f"{attempt.number} at {attempt.phase}",
        "" if code is None else f"exit code {code}" if code >= 0 else f"signal {-code}",
        "" if attempt.seconds is None else f"{attempt.seconds:.1f} s",
        "" if attempt.retry_at is None else f"next one at {attempt.retry_at}",
    )
    return ", ".join(filter(None, parts))


def _print_attempt(store: Store, checkpoint: Checkpoint) -> None:
    with contextlib.suppress(CkptError):  # `_print_files` warned
        file_names, masked_names = store.beside(checkpoint), store.masked(checkpoint)
        for file_name in file_names:
            ref = f"refs/ckpt/trees/{checkpoint.id}:run/{file_name}"
            remark = ", with possible secrets masked" if file_name in masked_names else ""
            command = f"git cat-file blob {shell_quoted(ref)}"
            terminal.out(f"    beside the worktree: {file_name}{remark} ({command})")
    output = checkpoint.attempt.output if checkpoint.attempt else None
    if output:
        terminal.out()
        terminal.out(terminal.heading("output:"))
        terminal.out_indented(output)


def _progress_text(checkpoint: Checkpoint) -> str | None:
    progress = checkpoint.progress
    if progress is None:
        return None

    def share_text(number: int, total: int | None) -> str:
        return f"{number}" if total is None else f"{number} of {total}"

    phase, tasks = progress.current_phase, progress.tasks_completed
    parts = (
        "" if phase is None else f"phase {share_text(phase, progress.total_phases)}",
        "" if tasks is None else f"{share_text(tasks, progress.tasks_total)} tasks",
        progress.current_task,
    )
    return ", ".join(filter(None, parts))


def _print_files(store: Store, checkpoint: Checkpoint) -> None:
    worktree = checkpoint.worktree
    if worktree is None:
        is_of_hook = checkpoint.trigger in ("post-commit", "post-merge")
        reason = (
            "a hook records no other changes" if is_of_hook else "other changes were not captured"
        )
        _print_field("files", f"those of the commit; {reason}")
        return
    for submodule in worktree.submodules:
        position = f"at {submodule.git_sha[:10]}" if submodule.git_sha else "on an unborn branch"
        condition = "with uncommitted changes" if submodule.dirty else "as committed"
        command = f"git -C {shell_quoted(submodule.path)} ckpt show {submodule.checkpoint[:SHORT]}"
        _print_field("submodule", f"{submodule.path} {position}, {condition}; {command}")
    has_files = True
    if worktree.degraded and worktree.tree is None:
        _print_field("files", f"not captured: {worktree.degraded}; only the commit is recorded")
    elif not worktree.dirty:
        _print_field("files", "as committed")
    else:
        operation_text = f", {worktree.operation} in progress" if worktree.operation else ""
        _print_field("files", f"differ from the commit{operation_text}")
        has_files = _print_diff_stat(store, checkpoint)
    if has_files:  # a damaged tree may be endless
        _print_extras(store, checkpoint)
    for path in worktree.converted:
        terminal.out(f"    not restored byte for byte: {path}")
    for suspect in worktree.suspects:
        position = f"{suspect.path}:{suspect.line} ({suspect.rule}, {suspect.digest})"
        terminal.out(f"    looks like a secret: {position}")
    for entry in worktree.omitted:
        terminal.out(f"    not captured: {entry.path}: {entry.reason}")


def _print_diff_stat(store: Store, checkpoint: Checkpoint) -> bool:
    """Print the files' changes since the commit; return False if git cannot compare."""
    try:
        width = terminal.columns() if terminal.is_terminal() else _WIDTH_IN_A_PIPE
        stat_width = max(width - len(_INDENT), _NARROWEST_STAT)
        diff_options = [f"--stat={stat_width}", "--no-ext-diff", "--no-relative"]
        stat_text = store.diff_commit(checkpoint, options=diff_options).decode("utf-8", "replace")
        for line in stat_text.rstrip("\n").split("\n"):
            terminal.out(_INDENT, terminal.stat_text(line))
        return True
    except WorktreeError as error:
        can_restore = checkpoint.tree is not None and checkpoint.git_sha in error.message
        consequence = "git ckpt resume cannot restore the files"
        if can_restore:
            consequence = "the files of the checkpoint can be restored without this object"
        terminal.warn(f"{error.message}: {consequence}")
    except CkptError as error:  # git names the damaged object
        terminal.warn(f"{error.message}: check the repository: git ckpt verify --contents")
    return False


def _print_extras(store: Store, checkpoint: Checkpoint) -> None:
    try:
        extras = store.extras(checkpoint)
    except CkptError as error:
        not_listed = "files kept byte for byte, directories and modes are not listed"
        terminal.warn(f"{error.message}: {not_listed}; find the cause: git ckpt verify")
        return
    lists_by_label = {
        "stored byte for byte": [os.fsdecode(path) for path in extras.raw],
        "directories without files": [f"{os.fsdecode(path)}/" for path in extras.directories],
        "narrow modes": [
            f"{os.fsdecode(p)} ({mode:03o})" for p, mode in sorted(extras.modes.items())
        ],
    }
    for label, texts in lists_by_label.items():
        if texts:
            terminal.out(f"    {label}: {join_first(texts)}")
