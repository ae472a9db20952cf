"""Describe each real client: command line, environment, tools, scripted model."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.system.clients.model_server import Turn

CLIENTS_VARIABLE = "GITCKPT_TEST_CLIENTS"
"""The environment variable with the directory of the installed clients."""


@dataclass(frozen=True)
class Kit:
    """One client: how its program is called, and what it reads.

    Attributes:
        name: of its program.
        options: after the name; with them, the client may use its tools.
        variables: its environment; `@URL` is the server's URL, `@HOME` the home directory.
        files: path from its home → content, with the same placeholders.
        shell: the turn in which the model calls a shell command; None without tools.
        has_sessions: whether it can continue a conversation.
    """

    name: str
    options: str
    variables: Mapping[str, str]
    files: Mapping[str, str]
    shell: Callable[[str], Turn] | None
    has_sessions: bool = True

    @property
    def command(self) -> str:
        """The value of `--agent`."""
        return f"{self.name} {self.options}"

    def settle(self, home: Path, url: str) -> dict[str, str]:
        """Write the settings that the client reads in its home; return its variables.

        Args:
            home: its home directory.
            url: of the server of models.
        """

        def placed(text: str) -> str:
            return text.replace("@URL", url).replace("@HOME", str(home))

        for name, content in self.files.items():
            path = home / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(placed(content))
        return {name: placed(value) for name, value in self.variables.items()}

    def writes(self, name: str, content: str) -> list[Turn]:
        """Return the turns in which the model has the client write a one-line file.

        Args:
            name: path of the file.
            content: the line. A client with a shell puts it in double quotes, so that the shell
                expands variables in it.
        """
        if self.shell is None:
            return [
                Turn(f"{name}\n```\n<<<<<<< SEARCH\n=======\n{content}\n>>>>>>> REPLACE\n```\n")
            ]
        return [self.shell(f'printf "%s\\n" "{content}" > {name}'), Turn(f"I wrote {name}.")]


def _tool(name: str, argument: str, **more: str) -> Callable[[str], Turn]:
    return lambda command: Turn(tool=name, arguments={argument: command, **more})


_CODEX = """\
model = "scripted"
model_provider = "scripted"
[model_providers.scripted]
name = "scripted"
base_url = "@URL/v1"
wire_api = "responses"
env_key = "SCRIPTED_KEY"
request_max_retries = 0
stream_max_retries = 0
"""

_GEMINI = {
    "security": {"auth": {"selectedType": "gemini-api-key"}},
    "general": {"enableAutoUpdate": False, "disableAutoUpdate": True},
    "privacy": {"usageStatisticsEnabled": False},
}

_OPENCODE = {
    "model": "scripted/m",
    "small_model": "scripted/m",
    "autoupdate": False,
    "share": "disabled",
    "permission": {"edit": "allow", "bash": "allow"},
    "provider": {
        "scripted": {
            "npm": "@ai-sdk/openai-compatible",
            "name": "scripted",
            "options": {"baseURL": "@URL/v1", "apiKey": "none"},
            "models": {
                "m": {
                    "name": "m",
                    "tool_call": True,
                    "limit": {"context": 100000, "output": 8000},
                    "cost": {"input": 3, "output": 15},
                }
            },
        }
    },
}

KITS = (
    Kit(
        "claude",
        (
            "-p --output-format stream-json --verbose --permission-mode acceptEdits "
            "--allowedTools Bash"
        ),
        {
            "ANTHROPIC_BASE_URL": "@URL",
            "ANTHROPIC_API_KEY": "none",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "CLAUDE_CODE_MAX_RETRIES": "1",
            "DISABLE_AUTOUPDATER": "1",
            "IS_SANDBOX": "1",
        },
        {},
        _tool("Bash", "command"),
    ),
    Kit(
        "codex",
        "exec --json --dangerously-bypass-approvals-and-sandbox -",
        {"SCRIPTED_KEY": "none"},
        {".codex/config.toml": _CODEX},
        _tool("exec_command", "cmd"),
    ),
    Kit(
        "gemini",
        "--model gemini-2.5-flash --yolo --output-format stream-json",
        {
            "GEMINI_API_KEY": "none",
            "GOOGLE_GEMINI_BASE_URL": "@URL",
            "GEMINI_CLI_TRUST_WORKSPACE": "true",
        },
        {".gemini/settings.json": json.dumps(_GEMINI)},
        _tool("run_shell_command", "command"),
    ),
    Kit(
        "opencode",
        "run --format json",
        {
            "OPENCODE_CONFIG": "@HOME/opencode.json",
            "OPENCODE_DISABLE_AUTOUPDATE": "1",
            "OPENCODE_DISABLE_MODELS_FETCH": "1",
            "npm_config_fetch_retries": "0",  # of a library that it would install for plugins
        },
        {"opencode.json": json.dumps(_OPENCODE)},
        _tool("bash", "command", description="as the script says"),
    ),
    Kit(
        "aider",
        "--model openai/scripted --weak-model openai/scripted --edit-format diff "
        "--no-show-model-warnings --no-analytics --no-gitignore "
        "--map-tokens 0 --yes-always --no-pretty --no-stream --no-check-update "
        "--no-show-release-notes --message",
        {
            "OPENAI_API_BASE": "@URL/v1",
            "OPENAI_API_KEY": "none",
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        },
        {
            ".aider/caches/model_prices_and_context_window.json": '{"none": {}}'
        },  # aider would look for it on the net
        None,
        has_sessions=False,
    ),
)


def installed() -> Mapping[str, str]:
    """Return the directory of each installed client's program, by client name."""
    base = os.environ.get(CLIENTS_VARIABLE)
    found = {}
    for kit in KITS if base else ():
        for place in (
            Path(str(base), kit.name, "node_modules", ".bin"),
            Path(str(base), kit.name, "bin"),
        ):
            if (place / kit.name).exists():
                found[kit.name] = str(place)
    return found
