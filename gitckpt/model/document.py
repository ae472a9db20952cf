"""Render the TOML document of a checkpoint; kept light, as the hook imports it."""

from __future__ import annotations

from gitckpt.model import toml
from gitckpt.model.values import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


VERSION = 1  # the version that is written, and the highest that is read
MAX_MESSAGE = 1000  # characters


@dataclass(frozen=True, slots=True)
class DocumentKey:
    name: str
    kind: str  # the name of its reader in `codec`, or the class of its table
    is_given: bool = False  # whether a caller of `Store.record` may set it
    label: str = ""  # its name in `git ckpt show`; "" if that does not show the key

    @property
    def field_name(self) -> str:
        return "label" if self.name == "phase" else self.name


# In written order, less `version`, `types` and `state`. Declare a new key here, in `Checkpoint`, in
# `draft.CheckpointDetails` if a caller may set it, and in the table of `docs/format.md`.
KEYS = (
    DocumentKey("id", "id", is_given=True, label="checkpoint"),
    DocumentKey("run", "run", is_given=True, label="run"),
    DocumentKey("parent", "optional id", label="parent"),
    DocumentKey("sequence", "sequence"),
    DocumentKey("phase", "line", label="phase"),
    DocumentKey("timestamp", "timestamp", label="time"),
    DocumentKey("git_sha", "commit", label="commit"),
    DocumentKey("branch", "text", label="branch"),
    DocumentKey("trigger", "trigger", is_given=True, label="trigger"),
    DocumentKey("message", "text", is_given=True, label="message"),
    DocumentKey("agent", "text", is_given=True, label="agent"),
    DocumentKey("forked_from", "optional id", is_given=True, label="forked from"),
    DocumentKey("rewound_to", "optional id", is_given=True, label="back to"),
    DocumentKey("errors", "required texts", is_given=True),
    DocumentKey("worktree", "Worktree"),
    DocumentKey("imported", "Imported"),
    DocumentKey("progress", "Progress", is_given=True, label="progress"),
    DocumentKey("pipeline", "Pipeline", is_given=True),
    DocumentKey("attempt", "Attempt", is_given=True, label="attempt"),
)

# The plain keys in written order; tables follow, `[state]` last.
ORDER = ("version", *(key.name for key in KEYS if key.kind[0].islower()))


def shorten_message(text: str) -> str:
    line = text if text.splitlines() == [text] else " ".join(text.split())
    return line if len(line) <= MAX_MESSAGE else f"{line[: MAX_MESSAGE - 1]}…"


def render_document(fields: dict[str, Any], state: dict[str, Any]) -> bytes:
    """Render a document as TOML: all fields that are not None, then the `[state]`."""
    # A reader that does not need the state can stop at `[state]`.
    types: dict[str, str] = {}
    state_text = toml.dump_state(state, types)
    ordered_fields = {key: fields[key] for key in ORDER if key in fields} | fields
    document = {key: value for key, value in ordered_fields.items() if value is not None}
    plain_values = {key: value for key, value in document.items() if type(value) is not dict}
    tables = {key: value for key, value in document.items() if type(value) is dict}
    tables = {"types": types} | tables if types else tables
    return f"{toml.dumps(plain_values | tables)}\n{state_text}".encode()
