"""Implement `git ckpt diff`."""

from __future__ import annotations

import base64
import difflib
import json
import os

from gitckpt.cli import options, terminal
from gitckpt.cli.opening import open_store
from gitckpt.model.checkpoint import Checkpoint
from gitckpt.model.errors import NotFoundError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gitckpt.store.store import Store

# A patch for `git apply`, whatever the user's settings are.
_PATCH = (
    *("--binary", "--full-index", "--no-ext-diff", "--no-textconv", "--no-renames"),
    *("--no-relative", "--src-prefix=a/", "--dst-prefix=b/", "--unified=3"),
    *("--inter-hunk-context=0", "--submodule=short", "--ignore-submodules=none"),
)
_DASHES = "write paths after two dashes: git ckpt diff ID -- PATH"


@options.declare_parameters("""
ID [ID] [-- PATH…]  Two checkpoints; or one, to compare it with this worktree; or a turn of an
  agent, such as SESSION:3.
--stat  Show only how much changed in each file.
--state  Show only changes of the state.
--binary  Print only a patch of the files for git apply, with binary files.
""")
def diff_checkpoints(
    ids: list[str],
    paths: list[str] | None = None,
    stat: bool = False,
    state: bool = False,
    binary: bool = False,
) -> None:
    """Show the changes between two checkpoints, or between one and this worktree.

    Prints git's diff of the files, then the changes of the saved state.
    """
    paths = paths or []
    options.refuse_if(len(ids) > 2, f"diff takes one or two ids, not {len(ids)}", _DASHES)
    problem = "--state takes two ids: a worktree has no state"
    hint = "to see the state of one checkpoint: git ckpt show ID --state"
    options.refuse_if(state and len(ids) == 1, problem, hint)
    hint = "leave out --state, or else --stat, --binary and the paths"
    options.refuse_if(state and (stat or paths or binary), "--state compares no files", hint)
    hint = "use --binary for a patch, or --stat for a summary"
    options.refuse_if(binary and stat, "--stat and --binary exclude each other", hint)
    hint = "git diff {} compares with the commit itself"
    with open_store(revision_hint=hint) as store:
        turn_ends = _ends_of_turn(store, ids[0]) if len(ids) == 1 else []
        ids = turn_ends or ids
        checkpoints = [store.read(_find_checkpoint(store, id_text)) for id_text in ids]
        old, new = checkpoints[0], checkpoints[1] if len(ids) > 1 else None
        patch = b""
        if not state:
            diff_options = _PATCH if binary else ["--stat"] if stat else []
            with terminal.show_waiting("comparing files"):
                patch = store.diff(old, new, paths=paths, options=diff_options)
        has_states = not paths and not stat and not binary and not turn_ends
        with terminal.page():
            if stat and terminal.is_terminal():
                for line in patch.decode("utf-8", "replace").splitlines():
                    terminal.out(terminal.stat_text(line))
            else:
                terminal.out_patch(patch)
            if new is not None and has_states:
                _print_states(store, old, new)


def _ends_of_turn(store: Store, text: str) -> list[str]:
    """Return the checkpoints around the turn SESSION:NUMBER; [] for other text."""
    if not text.rpartition(":")[2].isdigit():
        return []
    from gitckpt.agents import turn_list

    turn = turn_list.find_turn(store, text)
    if turn is None:
        return []
    hint = "see what is left of it: git ckpt turns"
    options.refuse_if(not turn.has_begin, f"the begin of the turn {text} has expired", hint)
    # Of a turn that is not over: what changed until now.
    return [turn.before.id] if turn.after is None else [turn.before.id, turn.after.id]


def _find_checkpoint(store: Store, text: str) -> str:
    try:
        return store.find(text)
    except NotFoundError as error:
        if os.path.lexists(text):
            raise error.but(hint=_DASHES) from None
        raise


def _print_states(store: Store, old: Checkpoint, new: Checkpoint) -> None:
    changes = store.diff_states(old, new)
    if changes:
        terminal.out(terminal.heading(f"state {old.id[:8]}..{new.id[:8]}"))
    for change in changes:
        pointer, old_and_new = change.pointer, (change.old, change.new)
        if change.is_added:
            terminal.out(f"+ {pointer} = {value_text(change.new)}")
        elif change.is_removed:
            terminal.out(f"- {pointer} = {value_text(change.old)}")
        elif all(type(value) is str for value in old_and_new) and max(map(len, old_and_new)) > 60:
            terminal.out(f"~ {pointer}:")
            old_and_new_lines = change.old.splitlines(), change.new.splitlines()
            for line in list(difflib.unified_diff(*old_and_new_lines, lineterm="", n=2))[2:]:
                terminal.out(f"    {line}")
        else:
            terminal.out(f"~ {pointer}: {value_text(change.old)} -> {value_text(change.new)}")


def value_text(value: Any) -> str:
    if isinstance(value, dict):
        entries = (f"{value_text(key)}: {value_text(item)}" for key, item in value.items())
        return f"{{{', '.join(entries)}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(value_text, value))}]"
    if isinstance(value, bytes):
        return f"base64 {base64.b64encode(value).decode('ascii')}"
    if value is None or isinstance(value, (str, bool, int)):
        return json.dumps(value, ensure_ascii=False)
    return repr(value) if isinstance(value, float) else str(value.isoformat())
