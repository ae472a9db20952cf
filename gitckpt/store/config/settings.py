"""Settings: `gitckpt.toml` at the top of the worktree (committed, for everybody), overridden by `git config ckpt.*` (for one clone)."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from gitckpt.git import config
from gitckpt.git.contents import attributes
from gitckpt.git.repository import Repository
from gitckpt.git.worktree.administration import main_worktree
from gitckpt.model import times
from gitckpt.model.errors import CkptError, UsageError
from gitckpt.model.policy import Policy
from gitckpt.store.config.file import read_file, text_of
from gitckpt.store.config.table import Mistakes, Table
from gitckpt.store.snapshot.limits import MB, SECRETS, Limits

T = TypeVar("T")

FILE = "gitckpt.toml"

_SETTINGS = """\
# gitckpt: settings for everybody who works in this repository. `git config ckpt.*` overrides them for one clone.

[retention]
# Checkpoints made by hooks expire at this age …
older_than = "30d"
# … but so many of the newest stay, whatever their age.
keep_last = 100
# Those whose commit was amended or rebased expire at this age, however new they are among the others.
rewritten_older_than = "7d"
# A run that is complete expires at this age, with all its checkpoints and its worktree; others stay.
runs_older_than = "7d"
# What was there before files were replaced, by restore, undo, redo or a phase that goes back, expires at this age …
safety_older_than = "7d"
# … but so many of the newest stay, whatever their age.
safety_keep_last = 20

[snapshot]
# Untracked files larger than this, or whose names look like secrets, are not captured; each checkpoint lists them.
max_file_size = "50 MB"
secrets = [
    @
]
# Ignored files to capture nevertheless; patterns as in .gitignore.
include = []
# Submodules that are checked out: "all" captures each of them in its own repository, "none" leaves them alone.
submodules = "all"
# Where a hook, an autosave or a step waits longer for the files, the checkpoint is recorded without them. What you ask for has no limit.
timeout = "60s"
""".replace("@", ",\n    ".join(f'"{name}"' for name in SECRETS) + ",")

_EXAMPLE = """
# Phases that `git ckpt run ci` runs one after the other, with a checkpoint after each. To have them, take away the # of each line below.
# [pipelines.ci]
# description = "lint, then test"
#
# [[pipelines.ci.phases]]
# name = "lint"
# run = "ruff check ."
#
# [[pipelines.ci.phases]]
# name = "test"
# run = "pytest"
# timeout = "30m"
# retries = 1
"""

TEMPLATE = _SETTINGS + _EXAMPLE

_TABLES = {
    "retention": {
        "older_than": "ckpt.olderthan",
        "keep_last": "ckpt.keeplast",
        "rewritten_older_than": "ckpt.rewrittenolderthan",
        "runs_older_than": "ckpt.runsolderthan",
        "safety_older_than": "ckpt.safetyolderthan",
        "safety_keep_last": "ckpt.safetykeeplast",
    },
    "snapshot": {
        "include": "ckpt.include",
        "max_file_size": "ckpt.maxfilesize",
        "secrets": "ckpt.secrets",
        "submodules": "ckpt.submodules",
        "timeout": "ckpt.snapshottimeout",
    },
}
"""The keys of each table, with the setting of git that overrides it."""

PIPELINES = "pipelines"
AGENTS = "agents"
STEPS = "steps"
_ELSEWHERE = (PIPELINES, AGENTS, STEPS)
"""The tables that are read and checked where they are used: a mistake in them breaks no other command."""

_LISTS = ("ckpt.include", "ckpt.secrets")
_COUNTS = ("ckpt.keeplast", "ckpt.safetykeeplast")
_ALL, _NONE = "all", "none"
_SIZES = {"": 1, "B": 1, "KB": 1000, "MB": MB, "GB": 1000 * MB, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30}


@dataclass(frozen=True, slots=True)
class Settings:
    """What applies to a repository.

    Attributes:
        policy: when checkpoints expire.
        limits: what a snapshot leaves out, and how long it may take.
        worktree_dir: directory for the worktrees of runs, as configured; None for the default place.
    """

    policy: Policy
    limits: Limits
    worktree_dir: str | None


def read(repository: Repository) -> Settings:
    """Returns the settings of a repository as seen from one of its worktrees.

    Raises:
        ConfigError: the file has mistakes; each is named with its line and the cure.
        UsageError: the file cannot be read, or a value of git's configuration cannot be understood.
    """
    file = read_file(path(repository))
    read_all = config.read(repository, rf"^(ckpt\.|{attributes.SETTINGS})")
    own = {name: values for name, values in read_all.items() if name.startswith("ckpt.")}
    overriding = Mistakes("")
    over = Table({name: _own(name, values) for name, values in own.items()}, (), "git config", overriding)
    file.whole.only((*_TABLES, *_ELSEWHERE))
    tables = {name: file.table(name, f"[{name}]", f"write [{name}] above its keys") for name in _TABLES}
    for name, table in tables.items():
        table.only(tuple(_TABLES[name]))

    def said(read: Callable[[Table, str, T], T], table: str, key: str, default: T) -> T:
        name = _TABLES[table][key]
        return read(over, name, default) if name in own else read(tables[table], key, default)

    policy, limits = Policy(), Limits()
    found = Settings(
        policy=Policy(
            older_than=said(Table.age, "retention", "older_than", policy.older_than),
            rewritten_older_than=said(Table.age, "retention", "rewritten_older_than", policy.rewritten_older_than),
            keep_last=said(_count, "retention", "keep_last", policy.keep_last),
            runs_older_than=said(Table.age, "retention", "runs_older_than", policy.runs_older_than),
            safety_older_than=said(Table.age, "retention", "safety_older_than", policy.safety_older_than),
            safety_keep_last=said(_count, "retention", "safety_keep_last", policy.safety_keep_last),
        ),
        limits=Limits(
            max_file_size=said(_size, "snapshot", "max_file_size", limits.max_file_size),
            secrets=said(_patterns, "snapshot", "secrets", limits.secrets),
            include=said(_patterns, "snapshot", "include", limits.include),
            submodules=said(_submodules, "snapshot", "submodules", _ALL) == _ALL,
            timeout=said(Table.age, "snapshot", "timeout", round(limits.timeout * times.MICRO)) / times.MICRO,
            configured=attributes.Configured.of(read_all),
        ),
        worktree_dir=own["ckpt.worktreedir"][-1] if "ckpt.worktreedir" in own else None,
    )
    file.require_correct()
    for mistake in overriding.found:
        raise UsageError(mistake.text, hint=mistake.hint)
    return found


def path(repository: Repository) -> str:
    """Returns where the settings for everybody are, as seen from a worktree, whether the file is there or not; "" where nothing is."""
    top = repository.worktree or main_worktree(repository)
    return os.path.join(top, FILE) if top else ""


def write_template(path: str) -> bool:
    """Writes `gitckpt.toml`, or adds what an existing one lacks, tables and an example of a pipeline; comments and values in it stay.

    Returns:
        Whether the file changed.

    Raises:
        UsageError: the file there is not TOML.
        CkptError: it cannot be written.
    """
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    try:
        before = text_of(path)
        document = tomlkit.parse(before or _SETTINGS)
        for name, table in tomlkit.parse(_SETTINGS).items():
            if name not in document:
                document.add(tomlkit.nl())
                document.add(name, table)
        after = tomlkit.dumps(document)
        if PIPELINES not in document and f"[{PIPELINES}." not in before:
            after += _EXAMPLE.replace("\n", "\r\n") if "\r\n" in before else _EXAMPLE
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
    return text_of(path) == TEMPLATE


def _own(name: str, values: list[str]) -> object:
    """Returns what the values of a setting of git stand for."""
    if name in _LISTS:
        return list(filter(None, values))
    last = values[-1]
    return int(last) if name in _COUNTS and last.isascii() and last.isdigit() else last


def _count(table: Table, key: str, default: int) -> int:
    return table.count(key, default, most=sys.maxsize)


def _size(table: Table, key: str, default: int | None) -> int | None:
    value = table.values.get(key)
    if value is None:
        return default
    text = str(value).strip() if type(value) in (int, str) else ""
    digits = text.rstrip("BKMGIbkmgi ")
    factor = _SIZES.get(text[len(digits) :].strip().upper())
    if not (digits.isascii() and digits.isdigit()) or factor is None:
        return table.wrong(key, 'a size such as "50 MB"', value, default)
    return int(digits) * factor


def _submodules(table: Table, key: str, default: str) -> str:
    return table.choice(key, (_ALL, _NONE), default)


def _patterns(table: Table, key: str, default: tuple[str, ...]) -> tuple[str, ...]:
    value = table.values.get(key)
    if value is None:
        return default
    if not isinstance(value, list) or not all(isinstance(item, str) and item for item in value):
        return table.wrong(key, 'a list of patterns such as ["*.pem"]', value, default)
    return tuple(value)
