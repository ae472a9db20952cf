"""`git ckpt diff`."""

from __future__ import annotations

import base64
import difflib
import json
import os

from gitckpt.cli import options, terminal
from gitckpt.cli.opening import open_store
from gitckpt.model.checkpoint import Checkpoint
from gitckpt.model.errors import NotFoundError, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gitckpt.store.store import Store

_LONG = 60
# A patch for `git apply`, whatever the user's settings are.
_PATCH = (
    *(
        "--binary",
        "--full-index",
        "--no-ext-diff",
        "--no-textconv",
        "--no-renames",
        "--no-relative",
    ),
    *(
        "--src-prefix=a/",
        "--dst-prefix=b/",
        "--unified=3",
        "--inter-hunk-context=0",
        "--submodule=short",
        "--ignore-submodules=none",
    ),
)

_DASHES = "put paths behind two dashes: git ckpt diff ID -- PATH"


@options.usage("""
ID [ID] [-- PATH…]  Two checkpoints; or one, to compare it with this worktree.
--stat  Show only how much changed in each file.
--state  Show only changes of the state.
--binary  Print only a patch of the files for git apply, with binary files.
""")
def diff(
    ids: list[str],
    paths: list[str] | None = None,
    stat: bool = False,
    state: bool = False,
    binary: bool = False,
) -> None:
    """Show what changed between two checkpoints, or since one.

    Prints git's diff of the files, then the changes of the state.
    """
    paths = paths or []
    if len(ids) > 2:
        raise UsageError(f"diff takes one or two ids, not {len(ids)}", hint=_DASHES)
    if state and len(ids) == 1:
        raise UsageError(
            "--state takes two ids: a worktree has no state",
            hint="see the state of one: git ckpt show ID --state",
        )
    if state and (stat or paths or binary):
        raise UsageError(
            "--state leaves the files out",
            hint="take --stat, --binary and the paths away, or --state",
        )
    if binary and stat:
        raise UsageError(
            "--stat and --binary exclude each other",
            hint="--binary makes a patch, --stat only says how much has changed",
        )
    with open_store() as store:
        old, *rest = (store.read(_find(store, text)) for text in ids)
        new = rest[0] if rest else None
        if not state:
            options = _PATCH if binary else ["--stat"] if stat else []
            with terminal.Waiting("comparing files"):
                patch = store.diff(old, new, paths=paths, options=options)
            terminal.out_patch(patch)
        if new is not None and not paths and not stat and not binary:
            _print_states(store, old, new)


def _find(store: Store, text: str) -> str:
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
        where = change.pointer
        if change.is_added:
            terminal.out(f"+ {where} = {_literal(change.new)}")
        elif change.is_removed:
            terminal.out(f"- {where} = {_literal(change.old)}")
        elif (
            type(change.old) is str
            and type(change.new) is str
            and max(len(change.old), len(change.new)) > _LONG
        ):
            terminal.out(f"~ {where}:")
            for line in list(
                difflib.unified_diff(
                    change.old.splitlines(), change.new.splitlines(), lineterm="", n=2
                )
            )[2:]:
                terminal.out(f"    {line}")
        else:
            terminal.out(f"~ {where}: {_literal(change.old)} -> {_literal(change.new)}")


def _literal(value: Any) -> str:
    if isinstance(value, dict):
        return (
            f"{{{', '.join(f'{_literal(key)}: {_literal(item)}' for key, item in value.items())}}}"
        )
    if isinstance(value, list):
        return f"[{', '.join(map(_literal, value))}]"
    if isinstance(value, bytes):
        return f"base64 {base64.b64encode(value).decode('ascii')}"
    if value is None or isinstance(value, (str, bool, int)):
        return json.dumps(value, ensure_ascii=False)
    return repr(value) if isinstance(value, float) else str(value.isoformat())
