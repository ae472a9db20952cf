"""Checkpoint document → bytes. Shared by the library and the hook, so it imports nothing heavy."""

from __future__ import annotations

from gitckpt.model import toml

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


VERSION = 1
"""The document version that this program writes, and the highest it reads."""

MESSAGE = 1000
"""How many characters a message has at most."""


class DocumentKey:
    """A key of a checkpoint's document. The codec, the checks of what a caller hands in and `git ckpt show` go by these.

    Attributes:
        name: in the document.
        kind: how it is read: the name of a reader in `codec`, or of a table's class.
        is_given: whether a caller of `Store.record` may set it.
        shown: how `git ckpt show` names it; "" where it has no line there.
        attribute: of `Checkpoint`; the same as the name but for `phase`: in the library, a phase is a name without a status.
    """

    __slots__ = ("attribute", "is_given", "kind", "name", "shown")

    def __init__(self, name: str, kind: str, *, is_given: bool = False, shown: str = "", attribute: str = "") -> None:
        self.name, self.kind, self.is_given, self.shown, self.attribute = name, kind, is_given, shown, attribute or name


KEYS = (
    DocumentKey("id", "id", is_given=True, shown="checkpoint"),
    DocumentKey("run", "run", is_given=True, shown="run"),
    DocumentKey("parent", "optional id", shown="parent"),
    DocumentKey("sequence", "sequence"),
    DocumentKey("phase", "line", shown="phase", attribute="label"),
    DocumentKey("timestamp", "timestamp", shown="time"),
    DocumentKey("git_sha", "commit", shown="commit"),
    DocumentKey("branch", "text", shown="branch"),
    DocumentKey("trigger", "trigger", is_given=True, shown="trigger"),
    DocumentKey("message", "text", is_given=True, shown="message"),
    DocumentKey("agent", "text", is_given=True, shown="agent"),
    DocumentKey("forked_from", "optional id", is_given=True, shown="forked from"),
    DocumentKey("rewound_to", "optional id", is_given=True, shown="back to"),
    DocumentKey("errors", "required texts", is_given=True),
    DocumentKey("worktree", "Worktree"),
    DocumentKey("imported", "Imported"),
    DocumentKey("progress", "Progress", is_given=True, shown="progress"),
    DocumentKey("pipeline", "Pipeline", is_given=True),
    DocumentKey("attempt", "Attempt", is_given=True, shown="attempt"),
)
"""The keys of a document in the order in which they are written, less `version`, `types` and `state`. A new one is declared here and in
`Checkpoint`, in `draft.Details` where a caller may set it, and in the table of `docs/format.md`."""

ORDER = ("version", *(key.name for key in KEYS if key.kind[0].islower()))
"""The plain keys of a document, in the order they are written; tables follow, `[state]` last."""


def message_of(text: str) -> str:
    """Return a text as a message: on one line, and cut where it is too long."""
    line = text if text.splitlines() == [text] else " ".join(text.split())
    return line if len(line) <= MESSAGE else f"{line[: MESSAGE - 1]}…"


def render(fields: dict[str, Any], state: dict[str, Any]) -> bytes:
    """Returns a checkpoint document.

    Args:
        fields: every key but `types` and `state`; a value of None leaves its key out.
        state: the caller's data; any JSON value per key, bytes, dates and times.

    Returns:
        UTF-8 TOML, with the table `[state]` at the end, so that a reader can stop before it.

    Raises:
        StateError: the state, or an unknown key kept from a reader, holds what cannot be stored losslessly; its path is named.
    """
    types: dict[str, str] = {}
    body = toml.dump_state(state, types)
    known = {key: fields[key] for key in ORDER if key in fields}
    document = {key: value for key, value in (known | fields).items() if value is not None}
    plain = {key: value for key, value in document.items() if type(value) is not dict}
    tables = {key: value for key, value in document.items() if type(value) is dict}
    if types:
        tables = {"types": types} | tables
    return f"{toml.dumps(plain | tables)}\n{body}".encode()
