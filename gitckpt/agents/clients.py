"""Install the hooks of gitckpt in the settings of clients, and remove them.

File names, events and units of time limits are those of Claude Code 2.1, Codex 0.17,
Gemini CLI 0.61 and opencode 1.18.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping

from gitckpt.agents import settings_file
from gitckpt.model.errors import CkptError, UsageError
from gitckpt.model.values import dataclass, field
from gitckpt.store.store import Store, checkpoints_of_store

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_SECONDS = 30  # after which a client goes on without its hook

LOCAL, PROJECT, USER = SCOPES = "local", "project", "user"
_EXCLUDE_COMMENT = "# git ckpt agent install\n"

_PLUGIN_FILE = "plugin/gitckpt.js"
_PLUGIN = """\
// Written by `git ckpt agent install opencode`; removed by `git ckpt agent uninstall opencode`.
// Tells gitckpt of each turn and of each shell command; see docs/agents.md of gitckpt.
import { spawn, spawnSync } from "node:child_process"

const words = ["ckpt", "hook", "agent", "opencode"]
const tell = (event) =>
  new Promise((resolve) => {
    const child = spawn("git", words, { stdio: ["pipe", "ignore", "ignore"] })
    const timer = setTimeout(resolve, 30000)
    const end = () => { clearTimeout(timer); resolve() }
    child.on("error", end)
    child.on("close", end)
    child.stdin.on("error", end)
    child.stdin.end(JSON.stringify(event))
  })

export const Gitckpt = async ({ directory }) => ({
  "chat.message": async (input, output) => {
    const prompt = (output?.parts ?? []).map((part) => part.text ?? "").join("\\n")
    const session_id = input.sessionID
    await tell({ hook_event_name: "chat.message", session_id, cwd: directory, prompt })
  },
  "tool.execute.before": async (input, output) => {
    if (input.tool !== "bash") return
    await tell({
      hook_event_name: "tool.execute.before", session_id: input.sessionID, cwd: directory,
      tool_name: input.tool, tool_input: output.args,
    })
  },
  event: async ({ event }) => {
    if (event.type !== "session.idle") return
    const session_id = event.properties.sessionID
    const input = JSON.stringify({ hook_event_name: "session.idle", session_id, cwd: directory })
    // `opencode run` ends now and waits for nothing.
    spawnSync("git", words, { input, stdio: ["pipe", "ignore", "ignore"], timeout: 10000 })
  },
})
"""


@dataclass(frozen=True, slots=True)
class HookClient:
    """Where and how a client takes hooks."""

    name: str
    project_file: str  # of its settings, relative to the top of the worktree
    user_file: str  # the same for all projects, relative to the home directory
    local_file: str = ""  # of one's own settings for a project; "" for `project_file`
    # Event -> the tools that it is called for; "" for an event without tools.
    events: Mapping[str, str] = field(default_factory=dict)
    time_unit: int = 1  # of a time limit, in parts of a second
    consent: str = ""  # what the user still has to do
    home_variable: str = ""  # an environment variable with the directory of `user_file`

    def path(self, scope: str, top: str) -> str:
        """Return the settings file of a scope in the worktree at `top`."""
        if scope != USER:
            has_own = scope == LOCAL and self.local_file
            return os.path.join(top, self.local_file if has_own else self.project_file)
        directory = os.environ.get(self.home_variable) if self.home_variable else None
        if directory:
            return os.path.join(directory, os.path.basename(self.user_file))
        return os.path.join(os.path.expanduser("~"), self.user_file)

    def installed(self, text: str | None, path: str) -> str:
        """Return the settings with hooks; `text` is None for a missing file."""
        if not self.events:
            return _PLUGIN
        command = f"{settings_file.COMMAND} {self.name}"
        hook = {"type": "command", "command": command, "timeout": _SECONDS * self.time_unit}
        entries: dict[str, Any] = {}
        for event, matcher in self.events.items():
            entries[event] = {**({"matcher": matcher} if matcher else {}), "hooks": [hook]}
        remaining = settings_file.remove(text, path) if text is not None else None
        return settings_file.add(remaining, entries, path)

    def uninstalled(self, text: str, path: str) -> str | None:
        """Return the content without hooks; None if the file had nothing else."""
        if not self.events:
            return None if _is_own_plugin(text) else text
        return settings_file.remove(text, path)


_TURNS = {"UserPromptSubmit": "", "PreToolUse": "Bash", "Stop": "", "SessionEnd": ""}
_GEMINI = {"BeforeAgent": "", "BeforeTool": "run_shell_command", "AfterAgent": "", "SessionEnd": ""}
_CODEX_CONSENT = "Codex skips hooks without a word until you trust them: start codex, type /hooks"
_GEMINI_CONSENT = "Gemini CLI runs the hooks of a project only in a trusted folder"

CLIENTS = {
    client.name: client
    for client in (
        HookClient(
            "claude",
            ".claude/settings.json",
            ".claude/settings.json",
            ".claude/settings.local.json",
            _TURNS,
            home_variable="CLAUDE_CONFIG_DIR",
        ),
        HookClient(
            "codex",
            ".codex/hooks.json",
            ".codex/hooks.json",
            events=_TURNS,
            consent=_CODEX_CONSENT,
            home_variable="CODEX_HOME",
        ),
        HookClient(
            "gemini",
            ".gemini/settings.json",
            ".gemini/settings.json",
            events=_GEMINI,
            time_unit=1000,
            consent=_GEMINI_CONSENT,
        ),
        HookClient("opencode", ".opencode/plugin/gitckpt.js", ".config/opencode/plugin/gitckpt.js"),
    )
}


def find(name: str) -> HookClient:
    """Return a client by name, or raise UsageError."""
    if name not in CLIENTS:
        hint = f"the clients are {', '.join(CLIENTS)}; any other: git ckpt watch -- COMMAND"
        raise UsageError(f"gitckpt knows no hooks of {name!r}", hint=hint)
    return CLIENTS[name]


def read(path: str) -> str | None:
    """Return the content of a settings file; None if it is missing."""
    try:
        with open(path, encoding="utf-8", newline="") as file:
            return file.read()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise CkptError(f"cannot read {path}: {reason}", hint="make it readable") from None


def write(path: str, text: str | None) -> None:
    """Replace a settings file atomically and through links; None deletes it."""
    target = os.path.realpath(path)
    try:
        if text is None:
            os.unlink(target)
            with contextlib.suppress(OSError):  # other files are in it
                os.rmdir(os.path.dirname(target))
            return
        os.makedirs(os.path.dirname(target), exist_ok=True)
        scratch = f"{target}.{os.getpid()}.{os.urandom(4).hex()}"
        with open(scratch, "x", encoding="utf-8", newline="") as file:
            if os.path.exists(target):
                os.fchmod(file.fileno(), os.stat(target).st_mode & 0o7777)
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(scratch, target)
    except OSError as error:
        raise CkptError(f"cannot write {path}: {error.strerror}") from None


def is_tracked(store: Store, path: str) -> bool | None:
    """Return whether git tracks a settings file; None if it ignores the file."""
    options = ("-t", "-z", "--cached", "--others", "--exclude-standard")
    git = checkpoints_of_store(store).repository.git
    output = git.run("--literal-pathspecs", "ls-files", *options, "--", path).out
    return None if not output else not output.startswith(b"? ")


def exclude(store: Store, top: str, path: str) -> None:
    """Have git ignore a file below `top`, so that `git clean` leaves it in place."""
    file = _exclude_file(store)
    write(file, _exclude_entry(top, path) + (read(file) or ""))


def include(store: Store, top: str, path: str) -> None:
    """Remove what `exclude` has added."""
    file = _exclude_file(store)
    text = read(file)
    if text is not None and _exclude_entry(top, path) in text:
        write(file, text.replace(_exclude_entry(top, path), "", 1) or None)


def _exclude_file(store: Store) -> str:
    return os.path.join(checkpoints_of_store(store).repository.common_dir, "info", "exclude")


def _exclude_entry(top: str, path: str) -> str:
    return f"{_EXCLUDE_COMMENT}/{os.path.relpath(path, top)}\n"


def is_installed(client: HookClient, path: str) -> bool:
    text = read(path)
    if text is None:
        return False
    return _is_own_plugin(text) if not client.events else f"{settings_file.COMMAND} " in text


def find_installed(client: HookClient, top: str | None, beside: str = "") -> str | None:
    """Return the first settings file with hooks, except `beside`; None without one."""
    scopes = SCOPES if top is not None else (USER,)
    paths = [client.path(scope, top or "") for scope in scopes]
    return next((path for path in paths if path != beside and is_installed(client, path)), None)


def _is_own_plugin(text: str) -> bool:
    return text.startswith("// Written by `git ckpt agent install")
