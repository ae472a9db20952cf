"""Implement `git ckpt tag`, `pin`, `unpin` and `note`."""

from __future__ import annotations

from gitckpt.cli import options, terminal
from gitckpt.cli.opening import open_store
from gitckpt.model import times
from gitckpt.model.arguments import shell_quoted
from gitckpt.model.errors import CkptError
from gitckpt.model.ids import SHORT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gitckpt.store.store import Store

_COLUMNS = ("TAG", "ID", "AGE", "RUN", "PHASE", "MESSAGE")


@options.declare_parameters("""
[ID NAME]  The checkpoint and its new name.  [default: list the tags]
-d, --delete NAME  Delete this tag; the checkpoint stays.
--json  Print one JSON document.
""")
def tag(words: list[str] | None = None, delete: str | None = None, as_json: bool = False) -> None:
    """Name a checkpoint, or list the tags.

    A name works wherever a command takes an ID. A checkpoint with a tag never expires.
    """
    words = [] if words == ["list"] else words or []
    hint = "name a checkpoint: git ckpt tag latest NAME"
    options.refuse_if(len(words) not in (0, 2), "tag takes an ID and a NAME", hint)
    options.refuse_if(words and delete, "--delete takes no ID", "see: git ckpt tag --help")
    with open_store() as store:
        if delete is not None:
            store.untag(delete)
            terminal.remark(f"deleted the tag {delete}")
        elif words:
            checkpoint_id, name = store.find(words[0]), words[1]
            hidden = _find_hidden(store, name)
            store.tag(checkpoint_id, name)
            terminal.remark(f"tagged {checkpoint_id[:SHORT]} as {name}")
            if hidden is not None:
                cure = f"to undo: git ckpt tag -d {shell_quoted(name)}"
                terminal.warn(f"as an address, the tag {name} hides {hidden}; {cure}")
        else:
            _print_tags(store, as_json=as_json)


def _find_hidden(store: Store, name: str) -> str | None:
    """Describe the revision or run that a tag of this name would hide, if any."""
    try:
        store.links(name)
        return "the git revision of that name"
    except CkptError:
        pass
    try:
        run = store.run_named(name)
    except CkptError:  # such as parts of the names of several runs
        return None
    return f"the run {run}" if run is not None else None


def _print_tags(store: Store, *, as_json: bool) -> None:
    from gitckpt.store.records.entry import Query

    tags = store.tags()
    entries = {entry.id: entry for entry in store.list(Query(ids=list(tags.values())))}
    rows = [(name, entries[id_]) for name, id_ in sorted(tags.items()) if id_ in entries]
    if as_json:
        keys = "id run label timestamp message"
        documents = [{"name": name, **terminal.pick_fields(entry, keys)} for name, entry in rows]
        terminal.out_json({"tags": documents})
        return
    now = times.now()
    cells = [
        (
            *(name, terminal.short_id(entry.id)),
            terminal.age_or_timestamp(entry.time, now, entry.timestamp),
            *(entry.run, entry.label, entry.message),
        )
        for name, entry in rows
    ]
    terminal.out_rows(_COLUMNS, cells)
    if not rows:
        terminal.remark("no tags yet; to name a checkpoint: git ckpt tag latest NAME")


@options.declare_parameters("""
ID…  Addresses of checkpoints.
""")
def pin(ids: list[str]) -> None:
    """Keep checkpoints: expire never removes them, and remove asks for --force."""
    with open_store() as store:
        for checkpoint_id in [store.find(text) for text in ids]:
            store.pin(checkpoint_id)
            terminal.remark(f"pinned {checkpoint_id[:SHORT]}")


@options.declare_parameters("""
ID…  Addresses of checkpoints.
""")
def unpin(ids: list[str]) -> None:
    """Let pinned checkpoints expire again."""
    with open_store() as store:
        for checkpoint_id in [store.find(text) for text in ids]:
            outcome = "unpinned" if store.unpin(checkpoint_id) else "not pinned:"
            terminal.remark(f"{outcome} {checkpoint_id[:SHORT]}")


@options.declare_parameters("""
ID  The address of a checkpoint.
[TEXT]  The new note.  [default: print the note]
-d, --delete  Delete the note.
""")
def note(id_: str, text: str | None = None, delete: bool = False) -> None:
    """Write your own note beside a checkpoint, which stays as it is."""
    problem = "--delete takes no text"
    options.refuse_if(delete and text is not None, problem, "give only one of them")
    with open_store() as store:
        checkpoint_id = store.find(id_)
        if delete or text is not None:
            store.annotate(checkpoint_id, text)
            outcome = "deleted the note of" if delete else "noted at"
            terminal.remark(f"{outcome} {checkpoint_id[:SHORT]}")
            return
        labels = store.labels([checkpoint_id]).get(checkpoint_id)
        if labels is not None and labels.note is not None:
            for line in labels.note.splitlines():
                terminal.out(line)
        else:
            terminal.remark(f"{checkpoint_id[:SHORT]} has no note")
