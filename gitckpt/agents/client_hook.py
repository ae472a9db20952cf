"""Answer a call of a client's hook: JSON on standard input and output.

The exit status is always 0 and the output always a JSON object: by another status or text, clients
refuse tools, repeat turns or drop prompts. Errors go to the log of the repository.
"""

from __future__ import annotations

import json
import os
import sys

from gitckpt.model.errors import CkptError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from gitckpt.agents.events import HookEvent
    from gitckpt.model.checkpoint import Checkpoint


def run(client: str, maintain: Callable[[str], None]) -> None:
    """Record the event on standard input, and print the answer.

    `client` is the sender, "" to derive it. `maintain` gets the directory of an agent whose turn
    has ended, and starts maintenance if it is due: nothing else may ever start it.
    """
    # A driver records what its own agent does.
    is_off = os.environ.get("GITCKPT_SKIP", "0") not in ("", "0") or os.environ.get("CKPT_RUN")
    answer: dict[str, object] = {}
    try:
        if not is_off and sys.stdin is not None:
            answer = _answer(client, maintain)
    except BaseException:  # noqa: BLE001 - also Ctrl-C, which is for the agent
        answer = {}
    try:
        sys.stdout.write(f"{json.dumps(answer)}\n")
        sys.stdout.flush()
    except (OSError, AttributeError):
        return  # the client no longer reads


def _answer(client: str, maintain: Callable[[str], None]) -> dict[str, object]:
    from gitckpt.agents import events, shell_command

    payload = events.read(sys.stdin.buffer)
    event = events.parse(payload, client) if payload is not None else None
    if event is None or not os.path.isdir(event.directory):
        return {}
    # Most tools of an agent only read: the answer to them needs no repository.
    is_tool = event.kind == events.TOOL
    if is_tool and (event.command is None or shell_command.only_reads(event.command)):
        return {}
    from gitckpt.agents import turns

    try:
        checkpoint = turns.record(event)
        if event.kind in (events.STOP, events.END):
            maintain(event.directory)
    except CkptError as error:
        _log(event, f"{type(error).__name__}: {error.message}")
        return {}
    except Exception as error:  # noqa: BLE001 - a hook never disturbs an agent
        from gitckpt.store import error_log

        _log(event, error_log.format_traceback(error))
        return {}
    return _advice(event, checkpoint) if checkpoint is not None and is_tool else {}


def _advice(event: HookEvent, checkpoint: Checkpoint) -> dict[str, object]:
    """Return the answer that tells the agent how to undo its command."""
    if event.client != "claude":  # no other client is known to take a text before a tool
        return {}
    short = checkpoint.id[:8]
    text = f"the files are saved as {short}; to undo the command: git ckpt restore {short}"
    if checkpoint.worktree is not None and checkpoint.worktree.degraded:
        text = f"gitckpt could not save the files: {checkpoint.worktree.degraded}"
    return {"hookSpecificOutput": {"hookEventName": "PreToolUse", "additionalContext": text}}


def _log(event: HookEvent, sentence: str) -> None:
    from gitckpt.git.repository import open_repository
    from gitckpt.store import error_log

    try:
        repository = open_repository(event.directory, by_variables=False)
        error_log.append_to_log(repository, f"agent {event.client}: {event.kind}: {sentence}")
    except (CkptError, OSError):
        return  # outside of a repository there is nothing to record, and no log
