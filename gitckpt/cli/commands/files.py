"""Implement `git ckpt ls` and `git ckpt grep`."""

from __future__ import annotations

import os

from gitckpt.cli import options, terminal
from gitckpt.cli.opening import open_store

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from gitckpt.store.history.files import GrepMatch, StoredFile
    from gitckpt.store.store import Store

_BLOB_KEYS = "mode kind oid size"


@options.declare_parameters("""
ID  The address of a checkpoint, or a run.
[PATH]  A directory or file.  [default: this directory]
-l, --long  Show the mode and the size of each file.
-r, --recursive  List the files in all directories below.
--json  Print one JSON document.
""")
def list_files(
    id_: str,
    path: str = ".",
    long: bool = False,
    recursive: bool = False,
    as_json: bool = False,
) -> None:
    """List the files of a checkpoint, untracked ones as well."""
    with open_store() as store:
        checkpoint_id = store.find(id_)
        top_path = options.path_from_top(store.worktree, path)
        files = store.files(checkpoint_id, top_path, recursive=recursive)
    if as_json:
        terminal.out_json({"checkpoint": checkpoint_id, "files": [*map(_as_json, files)]})
        return
    print_files(store, files, long=long)


def print_files(store: Store, files: Sequence[StoredFile], *, long: bool = False) -> None:
    with terminal.page():
        for file in files:
            name = _name_from_here(store, file) + ("/" if file.kind == "directory" else "")
            size = "-" if file.size is None else str(file.size)
            if long and not terminal.is_terminal():
                terminal.out_row((file.mode, size, name))
            else:
                details = f"{file.mode} {size:>10}  " if long else ""
                color = {"directory": "bold", "link": "cyan", "submodule": "yellow"}
                terminal.out(details, terminal.style(name, *filter(None, [color.get(file.kind)])))


def _name_from_here(store: Store, file: StoredFile) -> str:
    name = os.fsdecode(file.path)
    if store.worktree is None:
        return name
    here, top = os.path.realpath(os.getcwd()), os.path.realpath(store.worktree)
    is_inside = f"{here}/".startswith(f"{top}/")
    return os.path.relpath(os.path.join(top, name), here) if is_inside else name


def _as_json(file: StoredFile) -> dict[str, object]:
    path = file.path.decode("utf-8", "replace")
    return {"path": path, **terminal.pick_fields(file, _BLOB_KEYS)}


@options.declare_parameters("""
PATTERN  A regular expression, as for git grep.
[ID…] [-- PATH…]  The checkpoints, and the files or directories, to search.  [default: the
  newest 20 checkpoints of this worktree]
-i, --ignore-case  Match in any case.
-n, --line-number  Show the numbers of lines; grep always does.
-l, --files-with-matches  Show only the names of files.
-E, --extended-regexp  PATTERN is an extended regular expression.
-F, --fixed-strings  PATTERN is a text.
""")
def grep_checkpoints(
    pattern: str,
    addresses: list[str] | None = None,
    paths: list[str] | None = None,
    ignore_case: bool = False,
    line_number: bool = True,
    files_with_matches: bool = False,
    extended_regexp: bool = False,
    fixed_strings: bool = False,
) -> int:
    """Search the files of checkpoints.

    A line that several checkpoints have is shown once, of the newest one. Exits with 1 if nothing
    matches.
    """
    del line_number
    problem = "-E and -F exclude each other"
    options.refuse_if(extended_regexp and fixed_strings, problem, "give only one of them")
    switches = {"-i": ignore_case, "-l": files_with_matches}
    switches |= {"-E": extended_regexp, "-F": fixed_strings}
    with open_store() as store:
        entries = None
        if addresses:
            from gitckpt.store.records.entry import Query

            entries = store.list(Query(ids=[store.find(address) for address in addresses]))
        top_paths = [options.path_from_top(store.worktree, path) for path in paths or ()]
        with terminal.show_waiting("searching files"):
            words = [switch for switch, is_given in switches.items() if is_given]
            matches = store.grep(pattern, entries, paths=top_paths, options=words)
        with terminal.page():
            last = None
            for match in matches:
                _print_match(match, is_first=(match.checkpoint, match.path) != last)
                last = (match.checkpoint, match.path)
    return 0 if matches else 1


def _print_match(match: GrepMatch, *, is_first: bool) -> None:
    also = f"  (in {match.count} checkpoints)" if is_first and match.count > 1 else ""
    name, line = os.fsdecode(match.path), "" if match.line is None else f"{match.line}:"
    short = terminal.short_id(match.checkpoint.id)
    if not terminal.is_terminal():
        text = b" " + match.text if match.text else b""
        shown = terminal.escape_text(name)
        place = os.fsencode(f"{short}:{shown}{':' if line or text else ''}{line}")
        terminal.out_bytes(b"%s%s%s\n" % (place, text, os.fsencode(also)))
        return
    text_shown = match.text.decode("utf-8", "surrogateescape").expandtabs()
    place_parts = (terminal.style(short, "yellow"), ":", terminal.style(name, "cyan"))
    colon = ":" if line or text_shown else ""
    terminal.out(*place_parts, f"{colon}{line} {text_shown}".rstrip(), terminal.style(also, "dim"))
