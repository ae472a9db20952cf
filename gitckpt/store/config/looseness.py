"""Where a file is looser than what is built in: the values that somebody is shown before he approves them."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence

from gitckpt.model import times
from gitckpt.model.errors import UsageError
from gitckpt.model.values import dataclass, replace
from gitckpt.store.config import approval, order
from gitckpt.store.config.keys import KEYS
from gitckpt.store.config.table import name_problem

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gitckpt.git.repository import Repository

_RETENTION, _SECRETS = "retention.", "snapshot.secrets"


@dataclass(frozen=True, slots=True)
class Loosening:
    """A value of `gitckpt.toml` that is looser than the built-in one.

    Attributes:
        key: such as "retention.older_than".
        value: what the file says, as it stands there.
        instead: what applies until that is approved, in the same notation.
        effect: what follows from it, in a few words.
        digest: by which it is approved: of this value, and of all that belongs together with it.
        is_approved: whether somebody on this machine has approved it.
    """

    key: str
    value: Any
    instead: Any
    effect: str
    digest: str
    is_approved: bool = False


def find(repository: Repository, document: Mapping[str, Any], said: Mapping[str, Any]) -> tuple[Loosening, ...]:
    """Returns where a file is looser.

    Args:
        repository: where it would apply.
        document: the file.
        said: what it says of each key, read, but for those that git's configuration overrules.
    """
    found = []
    for name, value in said.items():
        safe = order.tighter(name, value, KEYS[name].usual)
        if safe != value:
            table, _, key = name.partition(".")
            found.append(Loosening(name, document[table][key], KEYS[name].written(safe), order.effect(name), digest(name, said)))
    return _judged(repository, found)


def find_in_pipelines(repository: Repository, pipelines: Mapping[str, object], usual: int) -> tuple[Loosening, ...]:
    """Returns which pipelines let their runs go earlier than any run goes; what else is wrong with one is said where it is used.

    Args:
        repository: where they would run.
        pipelines: their tables, by name.
        usual: the age at which any run goes that is complete, in microseconds.
    """
    found = []
    for name, pipeline in pipelines.items():
        text = pipeline.get("retention") if isinstance(pipeline, dict) and name_problem(name) is None else None
        key = f"pipelines.{name}.retention"
        with contextlib.suppress(UsageError):
            age = times.parse_age(text.strip()) if isinstance(text, str) else usual
            if order.tighter(key, age, usual) != age:
                found.append(Loosening(key, text, times.length_text(usual), order.effect(key), approval.digest_of(key, age)))
    return _judged(repository, found)


def digest(name: str, said: Mapping[str, Any]) -> str:
    """Returns by what the value of a key is approved.

    What is deleted follows from all rules of expiry together: one of them may be harmless only because of another, so all are approved at
    once. The limits of snapshots stand each for itself.

    Args:
        name: of the key.
        said: what the file says of each key.
    """
    if name.startswith(_RETENTION):
        return approval.digest_of(_RETENTION, sorted((key, value) for key, value in said.items() if key.startswith(_RETENTION)))
    value = said[name]
    return approval.digest_of(name, sorted({each.lower() for each in value}) if name == _SECRETS else value)


def _judged(repository: Repository, found: Sequence[Loosening]) -> tuple[Loosening, ...]:
    """Returns them with what was approved of them."""
    approved = approval.approved(repository) if found else ()
    return tuple(replace(each, is_approved=each.digest in approved) for each in found)
