"""Implement `git ckpt agent` and `git ckpt turns`."""

from __future__ import annotations

import shutil

from gitckpt.cli import options, terminal
from gitckpt.cli.opening import open_store
from gitckpt.model import times
from gitckpt.model.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from gitckpt.agents.clients import HookClient
    from gitckpt.agents.turn_list import ChangedFile
    from gitckpt.store.records.turns import Turn
    from gitckpt.store.store import Store

_ACTIONS = ("install", "uninstall", "status")
_COLUMNS = ("TURN", "AGE", "AGENT", "FILES", "GUARDS", "PROMPT")
_SHORT_NAME = 6  # characters at least
_STATUS_COLUMNS = ("CLIENT", "SCOPE", "HOOKS", "FILE")


@options.declare_parameters("""
ACTION  One of install, uninstall and status.
[CLIENT…]  claude, codex, gemini or opencode.  [default: the installed ones]
--all  All four clients, installed or not.
--user  In the settings for all repositories, instead of your own for this one.
--project  In the settings of this project that its repository shares.
--dry-run  Print what would be written.
""")
def agent(
    action: str,
    names: list[str] | None = None,
    all_: bool = False,
    user: bool = False,
    project: bool = False,
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
    options.refuse_if(user and project, "--project excludes --user", "leave out one of them")
    scope = clients.USER if user else clients.PROJECT if project else clients.LOCAL
    chosen = _chosen(names or [], all_=all_ or (action == "status" and not names))
    with open_store() as store:
        top = store.worktree
        if top is None and not user:
            raise UsageError("a bare repository has no settings of a project", hint="add --user")
        if action == "status":
            _print_status(chosen, top)
            return
        for client in chosen:
            path = client.path(scope, top or "")
            if action == "install" and (other := clients.find_installed(client, top, path)):
                shown = terminal.shorter_path(other)  # a second hook would record each turn twice
                terminal.remark(f"{client.name}: already installed in {shown}")
                continue
            old = clients.read(path)
            new = client.installed(old, path) if action == "install" else None
            if action == "uninstall" and old is not None:
                new = client.uninstalled(old, path)
            _write(client, path, old, new, action, dry_run=dry_run)
            if not dry_run and not user and top is not None:
                _protect(store, client, top, path, action, shared=project)


def _protect(
    store: Store, client: HookClient, top: str, path: str, action: str, *, shared: bool
) -> None:
    """Have git leave the hooks in place, or say that it does not."""
    from gitckpt.agents import clients

    if action == "uninstall":
        clients.include(store, top, path)
        return
    is_tracked = clients.is_tracked(store, path)
    if is_tracked is False and not shared:
        clients.exclude(store, top, path)
    elif is_tracked is not None:
        name = terminal.shorter_path(path)
        terminal.remark(f"{client.name}: commit {name}, so that git keeps the hooks")


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
        for scope in clients.SCOPES:
            if scope != clients.USER and top is None:
                continue
            if scope == clients.LOCAL and not client.local_file:
                continue  # the same file as that of the project
            path = client.path(scope, top or "")
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
        is_installed = found or _has_hooks(store.worktree)
    if not found:
        advice = "start the agent" if is_installed else "git ckpt agent install"
        terminal.remark(f"no turns yet; to record those of agents: {advice}")
    names = _short_names(list(dict.fromkeys(turn.run for turn in found)))
    rows = [_row(turn, files, names) for turn, files in zip(found, changes, strict=True)]
    terminal.out_rows(_COLUMNS, rows)


def _has_hooks(top: str | None) -> bool:
    from gitckpt.agents import clients

    return any(clients.find_installed(client, top) for client in clients.CLIENTS.values())


def _short_names(runs: Sequence[str]) -> dict[str, str]:
    """Return the first words of each name that no other listed session has.

    Without the date and the client: any unique part of a name is an address.
    """
    if not terminal.is_terminal():
        return {run: run for run in runs}
    names = {}
    for run in runs:
        words = run.split("-")[3:] or [run]
        parts = ["-".join(words[:count]) for count in range(1, len(words) + 1)]
        unique = [part for part in parts if sum(part in other for other in runs) == 1]
        names[run] = next((part for part in unique if len(part) >= _SHORT_NAME), run)
    return names


def _row(
    turn: Turn, files: Sequence[ChangedFile], names: Mapping[str, str]
) -> tuple[str | None, ...]:
    name = names[turn.run]
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
