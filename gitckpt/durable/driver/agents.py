"""Which agents of `gitckpt.toml` a run calls: those that it was started with; no branch puts another command in their place."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping

from gitckpt.durable.agent.client import PRICE, Client, client_of
from gitckpt.durable.pipeline.context import filled, plain
from gitckpt.durable.pipeline.definition import PipelineDefinition
from gitckpt.durable.pipeline.file import PRESET
from gitckpt.durable.run.errors import AgentUnusable, Changed
from gitckpt.git.repository import Repository
from gitckpt.model.checkpoint import Checkpoint
from gitckpt.model.errors import UsageError
from gitckpt.store.config import approval

_ROLES = ("agent", "coder", "reviewer")
_STEPS = ("agent", "loop", "review")
"""The steps that call an agent."""


def known_to(newest: Checkpoint, definition: PipelineDefinition, inputs: Mapping[str, str]) -> dict[str, str]:
    """Returns what options of phases may name: what the state of a run says, and its inputs, by name.

    Args:
        newest: the newest checkpoint of the run.
        definition: its pipeline.
        inputs: those that are other ones from now on.
    """
    given = newest.pipeline.inputs if newest.pipeline is not None else {}
    return {**plain(newest.state), **definition.inputs, **given, **inputs}


def note(repository: Repository, definition: PipelineDefinition, known: Mapping[str, str], clients: Mapping[str, Client]) -> None:
    """Notes, on this machine, the agents of the file that somebody has started a run with, or accepts.

    Args:
        definition: the pipeline of the run.
        known: its inputs, and what its state says, by name.
        clients: the agents of the file, by name.

    Raises:
        CkptError: it cannot be noted.
    """
    digests = {_digest(client) for client in _called(definition, known, clients)} - approval.approved(repository)
    if digests:
        approval.note(repository, digests)


def require_noted(
    repository: Repository, run: str, definition: PipelineDefinition, known: Mapping[str, str], clients: Mapping[str, Client]
) -> None:
    """Looks whether each agent of the file that a run calls is one that a run was started with here; the arguments are those of `note`.

    Raises:
        Changed: one is not; it is named with its command.
    """
    approved = approval.approved(repository)
    new = dict.fromkeys(client for client in _called(definition, known, clients) if _digest(client) not in approved)
    if new:
        raise Changed(run, [f"the agent {client.name} is {client.command}" for client in new])


def require_there(
    definition: PipelineDefinition, skipped: Collection[str], known: Mapping[str, str], clients: Mapping[str, Client]
) -> None:
    """Look, before a run starts, whether the programs of the agents that it calls are there.

    A command of the file's own pipelines may install one, so only the phases before the first such command are looked at; and what a
    command with a path is, the run's worktree decides.

    Args:
        definition: the pipeline.
        skipped: the names of phases that are not done.
        known: what options may name, by name.
        clients: the agents of the file, by name.

    Raises:
        AgentUnusable: one is not there.
    """
    for phase in definition.phases:
        if phase.name in skipped:
            continue
        if phase.run is not None and definition.source != PRESET:
            return
        env = {**os.environ, **definition.env, **phase.env}
        for role in _ROLES if phase.use else ():
            try:
                wanted = filled(phase.options.get(role, ""), known)
                missing = client_of(wanted, clients).missing(env, os.curdir) if wanted else None
            except (KeyError, UsageError):
                continue  # which state names it, is known when the phase begins; what is no command, the phase says
            if missing is not None and (os.sep not in missing or os.path.isabs(missing)):
                options = f"--{role} CLIENT of git ckpt loop and review, -i {role}=CLIENT of git ckpt run"
                raise AgentUnusable(f"the {role} is not there: {missing}", hint=f"install it, or name another one: {options}")


def _called(definition: PipelineDefinition, known: Mapping[str, str], clients: Mapping[str, Client]) -> Iterator[Client]:
    for phase in definition.phases:
        for role in _ROLES if phase.use and clients else ():
            name = _filled(phase.options.get(role, ""), known)
            if name in clients:
                yield clients[name]


def named(definition: PipelineDefinition, completed: Collection[str], known: Mapping[str, str]) -> list[str]:
    """Return the agents that the remaining phases of a run call, or their steps.

    Args:
        definition: the pipeline of the run.
        completed: the phases that are complete.
        known: its inputs, and what its state says, by name.
    """
    found: dict[str, None] = {}
    for phase in definition.phases:
        if phase.name in completed or phase.use not in _STEPS:
            continue
        names = [_filled(phase.options.get(role, ""), known) for role in _ROLES]
        found |= dict.fromkeys([name for name in names if name] or [phase.use])
    return list(found)


def _filled(text: str, known: Mapping[str, str]) -> str:
    try:
        return filled(text, known)
    except KeyError:
        return ""  # which state names it, is known when the phase begins


def _digest(client: Client) -> str:
    return approval.digest_of("agents", [getattr(client, name) for name in client.__match_args__ if name != PRICE])
