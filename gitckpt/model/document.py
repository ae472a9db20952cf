"""Render a checkpoint document. The hook imports this module: keep it light."""

from __future__ import annotations

from gitckpt.model import toml

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


# The version that is written, and the highest that is read.
VERSION = 1

# Longest message, in characters.
MESSAGE = 1000


class DocumentKey:
    """A key of the document, as the codec and `git ckpt show` need it.

    Attributes:
        kind: the name of its reader in `codec`, or the class of its table.
        is_given: whether a caller of `Store.record` may set it.
        shown: its name in `git ckpt show`; "" for none.
    """

    __slots__ = ("attribute", "is_given", "kind", "name", "shown")

    def __init__(self, name: str, kind: str, *, is_given: bool = False, shown: str = "", attribute: str = "") -> None:
        self.name, self.kind, self.is_given, self.shown, self.attribute = name, kind, is_given, shown, attribute or name


# In written order, less `version`, `types` and `state`. Declare a new key here, in `Checkpoint`, in
# `draft.Details` if a caller may set it, and in the table of `docs/format.md`.
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

# The plain keys in written order; tables follow, `[state]` last.
ORDER = ("version", *(key.name for key in KEYS if key.kind[0].islower()))


def message_of(text: str) -> str:
    line = text if text.splitlines() == [text] else " ".join(text.split())
    return line if len(line) <= MESSAGE else f"{line[: MESSAGE - 1]}…"


def render(fields: dict[str, Any], state: dict[str, Any]) -> bytes:
    """Return a document without the fields that are None, and `[state]` last."""
    types: dict[str, str] = {}
    body = toml.dump_state(state, types)
    known = {key: fields[key] for key in ORDER if key in fields}
    document = {key: value for key, value in (known | fields).items() if value is not None}
    plain = {key: value for key, value in document.items() if type(value) is not dict}
    tables = {key: value for key, value in document.items() if type(value) is dict}
    if types:
        tables = {"types": types} | tables
    return f"{toml.dumps(plain | tables)}\n{body}".encode()
