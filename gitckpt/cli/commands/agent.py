"""Implement `git ckpt agent` and `git ckpt turns`."""

from __future__ import annotations

import shutil

from gitckpt.cli import options, terminal
from gitckpt.cli.opening import open_store
from gitckpt.model import times
from gitckpt.model.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from gitckpt.agents.clients import HookClient
    from gitckpt.agents.turn_list import ChangedFile, Turn

_ACTIONS = ("install", "uninstall", "status")
_COLUMNS = ("TURN", "AGE", "AGENT", "FILES", "GUARDS", "PROMPT")
_STATUS_COLUMNS = ("CLIENT", "SCOPE", "HOOKS", "FILE")


@options.declare_parameters("""
ACTION  One of install, uninstall and status.
[CLIENT…]  claude, codex, gemini or opencode.  [default: the installed ones]
--all  All four clients, installed or not.
--user  In the settings of the user, for all projects, instead of this project's.
--dry-run  Print what would be written.
""")
def agent(
    action: str,
    names: list[str] | None = None,
    all_: bool = False,
    user: bool = False,
    dry_run: bool = False,
) -> None:
    """Protect the work of agents: record each turn, and guard each shell command.

    Adds hooks to the settings of the clients; uninstall removes them and leaves the rest of the
    files byte for byte.
    """
    from gitckpt.agents import clients

    options.require_one_of("action", action, _ACTIONS)
    problem = f"--dry-run needs install or uninstall, not {action}"
    options.refuse_if(dry_run and action == "status", problem, "run: git ckpt agent status")
    chosen = _chosen(names or [], all_=all_ or (action == "status" and not names))
    with open_store() as store:
        top = store.worktree
    if top is None and not user:
        raise UsageError("a bare repository has no settings of a project", hint="add --user")
    if action == "status":
        _print_status(chosen, top)
        return
    for client in chosen:
        path = client.path(None if user else top)
        old = clients.read(path)
        new = client.installed(old, path) if action == "install" else None
        if action == "uninstall" and old is not None:
            new = client.uninstalled(old, path)
        _write(client, path, old, new, action, dry_run=dry_run)


def _chosen(names: Sequence[str], *, all_: bool) -> list[HookClient]:
    from gitckpt.agents import clients

    options.refuse_if(
        names and all_, "--all excludes the names of clients", "leave out one of them"
    )
    if names:
        return [clients.find(name) for name in dict.fromkeys(names)]
    found = [client for client in clients.CLIENTS.values() if all_ or shutil.which(client.name)]
    if not found:
        known = ", ".join(clients.CLIENTS)
        hint = "name one of them: git ckpt agent install claude"
        raise UsageError(f"none of {known} is on the PATH", hint=hint)
    return found


def _write(
    client: HookClient, path: str, old: str | None, new: str | None, action: str, *, dry_run: bool
) -> None:
    from gitckpt.agents import clients

    shown = terminal.shorter_path(path)
    if new == old:
        state = "already installed" if action == "install" else "not installed"
        terminal.remark(f"{client.name}: {state} in {shown}")
    elif dry_run:
        terminal.out(f"{client.name}: {shown}")
        terminal.out_indented(new if new is not None else "(deleted)")
        return
    else:
        clients.write(path, new)
        done = "installed in" if action == "install" else "removed from"
        terminal.remark(f"{client.name}: {done} {shown}")
    if action == "install" and client.consent:
        terminal.remark(f"{client.name}: {client.consent}")


def _print_status(chosen: Sequence[HookClient], top: str | None) -> None:
    from gitckpt.agents import clients

    rows = []
    for client in chosen:
        for scope, directory in (("project", top), ("user", None)):
            if scope == "project" and directory is None:
                continue
            path = client.path(directory)
            state = "installed" if clients.is_installed(client, path) else "none"
            rows.append((client.name, scope, state, terminal.shorter_path(path)))
    terminal.out_rows(_STATUS_COLUMNS, rows)
    for client in chosen:
        if client.consent and any(row[0] == client.name and row[2] == "installed" for row in rows):
            terminal.remark(f"{client.name}: {client.consent}")


@options.declare_parameters("""
[SESSION]  The session: its run, a unique part of its name, or the client's id.  [default: all]
-n, --limit N  Show at most N turns.  [default: 20]
--json  Print one JSON document.
""")
def turns(session: str | None = None, limit: int | None = None, as_json: bool = False) -> None:
    """List the turns of agents, newest first, with what each changed.

    git ckpt diff SESSION:3 shows what turn 3 changed; git ckpt agent install records turns.
    """
    with open_store() as store:
        from gitckpt.agents import turn_list

        run = turn_list.find_session(store, session) if session is not None else None
        found = turn_list.list_turns(store, run, 20 if limit is None else limit)
        changes = [turn_list.changed_files(store, turn) for turn in found]
        if as_json:
            states = [store.read(turn.entries[-1].id).state for turn in found]
            parts = zip(found, changes, states, strict=True)
            terminal.out_json({"turns": [_as_json(*part) for part in parts]})
            return
    if not found:
        terminal.remark("no turns yet; to record those of agents: git ckpt agent install")
    rows = [_row(turn, files) for turn, files in zip(found, changes, strict=True)]
    terminal.out_rows(_COLUMNS, rows)


def _row(turn: Turn, files: Sequence[ChangedFile]) -> tuple[str | None, ...]:
    # For people without the date, as any unique part of the name will do.
    name = turn.run.split("-", 2)[2] if terminal.is_terminal() else turn.run
    added = sum(change.added or 0 for change in files)
    removed = sum(change.removed or 0 for change in files)
    count = f"{len(files)} +{added} -{removed}" if files else ""
    age = terminal.age_or_timestamp(turn.before.time, times.now())
    guards = str(len(turn.guards) or "")
    return f"{name}:{turn.number}", age, turn.before.agent, count, guards, turn.before.message


def _as_json(turn: Turn, files: Sequence[ChangedFile], state: Any) -> dict[str, Any]:
    after = turn.after
    changed = [terminal.pick_fields(change, "path added removed") for change in files]
    facts = {key: state.get(key) for key in ("session", "model", "transcript", "tools", "tokens")}
    return {
        "session": facts.pop("session"),
        **terminal.pick_fields(turn, "run number status"),
        "agent": turn.before.agent,
        "prompt": state.get("prompt"),
        "started": turn.before.timestamp,
        "ended": after.timestamp if after is not None else None,
        "before": turn.before.id,
        "after": after.id if after is not None else None,
        "guards": [terminal.pick_fields(guard, "id timestamp message") for guard in turn.guards],
        "files": changed,
        **facts,
    }
