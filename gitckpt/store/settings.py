"""Settings: `gitckpt.toml` at the top of the worktree (committed, for everybody), overridden by `git config ckpt.*` (for one clone)."""

from __future__ import annotations

import os
from dataclasses import dataclass

from gitckpt.git import config
from gitckpt.git.repository import Repository, main_worktree
from gitckpt.model import times, toml
from gitckpt.model.errors import CkptError, UsageError
from gitckpt.model.policy import Policy

FILE = "gitckpt.toml"

TEMPLATE = """\
# gitckpt: settings for everybody who works in this repository. `git config ckpt.*` overrides them for one clone.

[retention]
# Checkpoints made by hooks expire at this age …
older_than = "30d"
# … but so many of the newest stay, whatever their age.
keep_last = 100
# Those whose commit was amended or rebased expire at this age, however new they are among the others.
rewritten_older_than = "7d"
"""


@dataclass(frozen=True, slots=True)
class Settings:
    """What applies to a repository.

    Attributes:
        policy: when checkpoints expire.
        worktree_dir: directory for the worktrees of runs, as configured; None for the default place.
    """

    policy: Policy
    worktree_dir: str | None


def read(repository: Repository) -> Settings:
    """Returns the settings of a repository as seen from one of its worktrees.

    Raises:
        UsageError: a value cannot be understood; the file or setting, the key and the cure are named.
    """
    values: dict[str, object] = {}
    source: dict[str, str] = {}
    top = repository.worktree or main_worktree(repository)
    path = os.path.join(top, FILE) if top else ""
    for key, value in (_file(path).get("retention") or {}).items() if os.path.exists(path) else ():
        values[key], source[key] = value, f"{path}: retention.{key}"
    own = config.read(repository, r"^ckpt\.")
    for key, name in (("older_than", "olderthan"), ("keep_last", "keeplast"), ("rewritten_older_than", "rewrittenolderthan")):
        if f"ckpt.{name}" in own:
            values[key], source[key] = own[f"ckpt.{name}"][-1], f"git config ckpt.{name}"
    default = Policy()
    return Settings(
        policy=Policy(
            older_than=_age(values, source, "older_than", default.older_than),
            rewritten_older_than=_age(values, source, "rewritten_older_than", default.rewritten_older_than),
            keep_last=_count(values, source, "keep_last", default.keep_last),
        ),
        worktree_dir=own["ckpt.worktreedir"][-1] if "ckpt.worktreedir" in own else None,
    )


def write_template(path: str) -> bool:
    """Writes `gitckpt.toml`, or adds the tables that an existing one lacks; comments and values in it stay as they are.

    Returns:
        Whether the file changed.

    Raises:
        UsageError: the file there is not TOML.
        CkptError: it cannot be written.
    """
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    try:
        before = _text(path) if os.path.exists(path) else ""
        document = tomlkit.parse(before) if before else tomlkit.parse(TEMPLATE)
        for name, table in tomlkit.parse(TEMPLATE).items():
            if name not in document:
                document.add(tomlkit.nl())
                document.add(name, table)
        after = tomlkit.dumps(document)
        if after != before:
            with open(path, "w", encoding="utf-8", newline="") as file:
                file.write(after)
    except TOMLKitError as error:
        raise UsageError(f"{path} is not TOML: {error}", hint="correct it, then run the command again") from None
    except OSError as error:
        raise CkptError(f"cannot write {path}: {error.strerror}") from None
    return after != before


def is_template(path: str) -> bool:
    """Tells whether the file is as `write_template` made it."""
    return os.path.exists(path) and _text(path) == TEMPLATE


def _text(path: str) -> str:
    with open(path, encoding="utf-8", errors="surrogateescape", newline="") as file:
        return file.read()


def _file(path: str) -> dict[str, dict[str, object]]:
    try:
        document = toml.loads(_text(path))
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    except ValueError as error:
        raise UsageError(f"{path} is not TOML: {error}", hint=f"correct it: {path}") from None
    for name, table in document.items():
        if name != "retention":
            raise UsageError(f"{path}: unknown table or key {name!r}", hint="known tables: retention")
        if not isinstance(table, dict):
            raise UsageError(f"{path}: {name} must be a table", hint=f"write [{name}] above its keys")
        for key in table:
            if key not in ("older_than", "keep_last", "rewritten_older_than"):
                raise UsageError(f"{path}: unknown key {name}.{key}", hint="known keys: older_than, keep_last, rewritten_older_than")
    return document


def _age(values: dict[str, object], source: dict[str, str], key: str, default: int) -> int:
    value = values.get(key)
    if value is None:
        return default
    if not isinstance(value, str):
        raise UsageError(f'{source[key]}: must be an age such as "30d", not {value!r}')
    try:
        return times.parse_age(value)
    except UsageError as error:
        raise UsageError(f"{source[key]}: {error.message}", hint=error.hint) from None


def _count(values: dict[str, object], source: dict[str, str], key: str, default: int) -> int:
    value = values.get(key, default)
    if isinstance(value, str) and value.isascii() and value.isdigit():
        value = int(value)
    if type(value) is not int or value < 0:
        raise UsageError(f"{source[key]}: must be a whole number, not {value!r}")
    return value
