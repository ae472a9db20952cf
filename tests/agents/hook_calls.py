"""Call the hooks of agents as a client does: JSON on standard input, JSON on standard output."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from tests.cli.conftest import PROJECT
from tests.conftest import Checkout

SESSION = "6941f080-b51c-45c0-83ae-83188c563208"


def send(data: bytes, client: str = "claude", env: Mapping[str, str] | None = None) -> Any:
    """Send bytes to the hook, which must end with 0 and print one JSON object, nothing else."""
    done = subprocess.run(
        [sys.executable, "-m", "gitckpt", "hook", "agent", client],
        input=data,
        capture_output=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(PROJECT), **(env or {})},
    )
    assert (done.returncode, done.stderr) == (0, b"")
    return json.loads(done.stdout)


def call_hook(
    event: str, at: Checkout, *, env: Mapping[str, str] | None = None, **payload: Any
) -> dict[str, Any]:
    """Call `git ckpt hook agent claude`; the keywords are keys of the payload."""
    document = {
        "session_id": SESSION,
        "transcript_path": "/missing",
        "cwd": str(at.path),
        "hook_event_name": event,
        **payload,
    }
    answer: dict[str, Any] = send(json.dumps(document).encode(), env=env)
    return answer


def bash(command: str) -> dict[str, Any]:
    """Return the keys of a payload for a shell tool."""
    return {"tool_name": "Bash", "tool_input": {"command": command}}
