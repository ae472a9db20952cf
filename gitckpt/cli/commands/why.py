"""Implement `git ckpt why`."""

from __future__ import annotations

from gitckpt.cli import options, terminal
from gitckpt.cli.opening import open_store
from gitckpt.model import ids, times
from gitckpt.model.errors import NotFoundError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gitckpt.store.history.whereabouts import FileSource


@options.declare_parameters("""
PATH  A file or directory, which may be missing.
--json  Print one JSON document.
""")
def find_file(path: str, as_json: bool = False) -> None:
    """Find where a file was last, and the command that brings it back.

    Looks in checkpoints, stashes, commits, reflogs and linked worktrees. If the file is here, finds
    other contents of it.
    """
    with open_store() as store:
        top_path = options.path_from_top(store.worktree, path)
        with terminal.show_waiting("searching"):
            found = store.why(top_path, typed=path)
    if as_json:
        shown = found.path.decode("utf-8", "replace")
        places = [_as_json(place) for place in found.places]
        terminal.out_json({"path": shown, "here": found.is_here, "places": places})
        return
    if not found.places and not found.is_here:
        hint = "see the names of files: git ckpt ls latest -r"
        raise NotFoundError(f"{path} is not here, and nothing has it", hint=hint)
    if not found.places:
        terminal.remark(f"{path} is here, and nothing has other contents of it")
    elif found.is_here:
        terminal.remark(f"{path} is here; other contents of it were last in:")
    else:
        terminal.remark(f"{path} is not here; it was last in:")
    with terminal.page():
        for place in found.places:
            _print_place(place)


def _print_place(place: FileSource) -> None:
    if not terminal.is_terminal():
        time = times.to_text(place.time)
        terminal.out_row((place.kind, place.name, time, place.title, place.command))
        return
    lengths = {"checkpoint": ids.SHORT, "commit": 10, "reflog": 10}
    name = place.name[: lengths.get(place.kind)]
    head = (terminal.style(f"{place.kind} {name}", "yellow"), f" ({_ago(place.time)})")
    title = f"  {place.title}" if place.title else ""
    terminal.out(terminal.fit(terminal.joined(*head, title), terminal.columns()))
    if place.ended_by is not None and place.ended is not None:
        terminal.out(f"    {_end_text(place)} ({_ago(place.ended)})")
    terminal.out("    ", terminal.style(place.command, "bold"))


def _end_text(place: FileSource) -> str:
    if place.after_gap:
        return f"{'absent' if place.was_deleted else 'different'} from {place.ended_by} on"
    if place.kind == "checkpoint":
        return f"{'gone' if place.was_deleted else 'changed'} in {place.ended_by}"
    return f"{'deleted' if place.was_deleted else 'changed'} by {place.ended_by}"


def _ago(instant: int) -> str:
    age = times.age_text(max(times.now() - instant, 0))
    return age if age == "now" else f"{age} ago"


def _as_json(place: FileSource) -> dict[str, object]:
    ended = times.to_text(place.ended) if place.ended is not None else None
    return {
        **terminal.pick_fields(place, "kind name"),
        "timestamp": times.to_text(place.time),
        "title": place.title,
        "oid": place.oid or None,
        "command": place.command,
        "ended_by": place.ended_by,
        "ended": ended,
        "deleted": ended is not None and place.was_deleted,
    }
