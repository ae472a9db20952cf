"""Read the JSON that a client sends to its hooks, as untrusted data.

The field names are those of Claude Code 2.1, Codex 0.17, Gemini CLI 0.61 and of the plugin that
`git ckpt agent install` writes for opencode.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping

from gitckpt.model.values import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import BinaryIO

MAX_INPUT = 16 << 20  # bytes; a larger input is no event of a hook
MAX_STORED = 10_000  # characters of a prompt or command that are stored

PROMPT, TOOL, STOP, END = "prompt", "tool", "stop", "end"

# HookEvent of a client -> its kind. Other events, such as SessionStart, record nothing.
_KINDS = {
    "UserPromptSubmit": PROMPT,
    "BeforeAgent": PROMPT,
    "chat.message": PROMPT,
    "PreToolUse": TOOL,
    "BeforeTool": TOOL,
    "tool.execute.before": TOOL,
    "Stop": STOP,
    "AfterAgent": STOP,
    "session.idle": STOP,
    "SessionEnd": END,
}
# Names of the tools that run shell commands, in lower case.
_SHELL_TOOLS = ("bash", "exec_command", "shell", "local_shell", "run_shell_command")


@dataclass(frozen=True, slots=True)
class HookEvent:
    """One call of a hook."""

    kind: str  # PROMPT, TOOL, STOP or END
    client: str  # "claude", "codex", "gemini" or "opencode"
    session: str  # the client's id of the conversation
    directory: str  # absolute: where the agent works
    prompt: str = ""  # what the user typed; in a PROMPT
    tool: str = ""  # name of the tool; in a TOOL
    command: str | None = None  # what a shell tool is about to run; None for another tool
    transcript: str | None = None  # path of the file with the conversation
    model: str | None = None


def read(source: BinaryIO) -> Mapping[str, object] | None:
    """Return the JSON object in `source`; None if it is too large or malformed."""
    data = source.read(MAX_INPUT + 1)
    if len(data) > MAX_INPUT:
        return None
    try:
        payload = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return payload if isinstance(payload, dict) else None


def parse(payload: Mapping[str, object], client: str = "") -> HookEvent | None:
    """Return the event of a payload; None if it records nothing or lacks a session.

    Args:
        payload: the JSON object that the client sent.
        client: the client that was named when its hooks were installed; "" derives it.
    """
    name = _text(payload, "hook_event_name")
    kind = _KINDS.get(name)
    session = _text(payload, "session_id").strip()
    directory = _text(payload, "cwd")
    if kind is None or not session or not os.path.isabs(directory) or "\0" in directory:
        return None
    if payload.get("agent_id") and kind != TOOL:
        return None  # the turn of a subagent belongs to that of its agent
    tool = _text(payload, "tool_name")
    command = None
    tool_input = payload.get("tool_input")
    if tool.lower() in _SHELL_TOOLS and isinstance(tool_input, dict):
        command = _command(tool_input)
    return HookEvent(
        kind,
        client or _client(payload, name),
        session[:200],
        directory,
        prompt=_text(payload, "prompt"),
        tool=tool,
        command=command,
        transcript=_text(payload, "transcript_path") or None,
        model=_text(payload, "model") or None,
    )


def _command(tool_input: Mapping[str, object]) -> str | None:
    """Return the command of a shell tool, a text or a list of words."""
    value = tool_input.get("command", tool_input.get("cmd"))
    if isinstance(value, list) and all(isinstance(word, str) for word in value):
        value = " ".join(value)
    if not isinstance(value, str):
        return None
    directory = tool_input.get("directory", tool_input.get("workdir"))
    place = f"cd {directory} && " if isinstance(directory, str) and directory else ""
    return _storable(place + value)


def _client(payload: Mapping[str, object], name: str) -> str:
    if name in ("BeforeAgent", "AfterAgent", "BeforeTool") or "timestamp" in payload:
        return "gemini"
    if "." in name:
        return "opencode"
    is_codex = "turn_id" in payload or "/.codex/" in _text(payload, "transcript_path")
    return "codex" if is_codex else "claude"


def _text(payload: Mapping[str, object], key: str) -> str:
    value = payload.get(key)
    return _storable(value) if isinstance(value, str) else ""


def _storable(text: str) -> str:
    # A lone surrogate cannot be stored as UTF-8.
    return text.encode("utf-8", "replace").decode("utf-8")
