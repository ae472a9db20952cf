"""Settings: `gitckpt.toml` at the top of the worktree (committed, for everybody), overridden by `git config ckpt.*` (for one clone)."""

from __future__ import annotations

import os
from dataclasses import dataclass

from gitckpt.git import config
from gitckpt.git.repository import Repository
from gitckpt.git.worktree.administration import main_worktree
from gitckpt.model import times, toml
from gitckpt.model.errors import CkptError, UsageError
from gitckpt.model.policy import Policy
from gitckpt.store.snapshot.limits import MB, SECRETS, Limits

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

[snapshot]
# Untracked files larger than this, or whose names look like secrets, are not captured; each checkpoint lists them.
max_file_size = "50 MB"
secrets = [
    @
]
# Ignored files to capture nevertheless; patterns as in .gitignore.
include = []
# A checkpoint whose files take longer is recorded without them.
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
    },
    "snapshot": {
        "include": "ckpt.include",
        "max_file_size": "ckpt.maxfilesize",
        "secrets": "ckpt.secrets",
        "timeout": "ckpt.snapshottimeout",
    },
}
"""The keys of each table, with the setting of git that overrides it."""

PIPELINES = "pipelines"
AGENTS = "agents"
STEPS = "steps"
_ELSEWHERE = (PIPELINES, AGENTS, STEPS)
"""The tables that are read and checked where they are used: a mistake in them breaks no other command."""

_LISTS = ("include", "secrets")
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
        UsageError: a value cannot be understood; the file or setting, the key and the cure are named.
    """
    top = repository.worktree or main_worktree(repository)
    path = os.path.join(top, FILE) if top else ""
    said = _Said(path, _file(path) if os.path.exists(path) else {}, config.read(repository, r"^ckpt\."))
    policy, limits = Policy(), Limits()
    return Settings(
        policy=Policy(
            older_than=said.age("retention", "older_than", policy.older_than),
            rewritten_older_than=said.age("retention", "rewritten_older_than", policy.rewritten_older_than),
            keep_last=said.count("retention", "keep_last", policy.keep_last),
            runs_older_than=said.age("retention", "runs_older_than", policy.runs_older_than),
        ),
        limits=Limits(
            max_file_size=said.size("snapshot", "max_file_size", limits.max_file_size),
            secrets=said.patterns("snapshot", "secrets", limits.secrets),
            include=said.patterns("snapshot", "include", limits.include),
            timeout=said.age("snapshot", "timeout", round(limits.timeout * times.MICRO)) / times.MICRO,
        ),
        worktree_dir=said.own["ckpt.worktreedir"][-1] if "ckpt.worktreedir" in said.own else None,
    )


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
        before = _text(path) if os.path.exists(path) else ""
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
    for name in _ELSEWHERE:
        document.pop(name, None)
    for name, table in document.items():
        if name not in _TABLES:
            raise UsageError(f"{path}: unknown table or key {name!r}", hint=f"known tables: {', '.join((*_TABLES, *_ELSEWHERE))}")
        if not isinstance(table, dict):
            raise UsageError(f"{path}: {name} must be a table", hint=f"write [{name}] above its keys")
        for key in table:
            if key not in _TABLES[name]:
                raise UsageError(f"{path}: unknown key {name}.{key}", hint=f"known keys: {', '.join(_TABLES[name])}")
    return document


class _Said:
    """What file and configuration say, key by key.

    Args:
        path: of the file.
        tables: what is in it.
        own: the settings of git.
    """

    def __init__(self, path: str, tables: dict[str, dict[str, object]], own: dict[str, list[str]]) -> None:
        self._path = path
        self._tables = tables
        self.own = own

    def _value(self, table: str, key: str) -> tuple[object, str]:
        """Returns what is said of a key, None where nothing is, and where that is said."""
        name = _TABLES[table][key]
        if name in self.own:
            values = self.own[name]
            return (list(filter(None, values)) if key in _LISTS else values[-1]), f"git config {name}"
        return self._tables.get(table, {}).get(key), f"{self._path}: {table}.{key}"

    def age(self, table: str, key: str, default: int) -> int:
        value, source = self._value(table, key)
        if value is None:
            return default
        if not isinstance(value, str):
            raise UsageError(f'{source}: must be an age such as "30d", not {value!r}')
        try:
            return times.parse_age(value)
        except UsageError as error:
            raise UsageError(f"{source}: {error.message}", hint=error.hint) from None

    def count(self, table: str, key: str, default: int) -> int:
        value, source = self._value(table, key)
        if value is None:
            return default
        if isinstance(value, str) and value.isascii() and value.isdigit():
            value = int(value)
        if type(value) is not int or value < 0:
            raise UsageError(f"{source}: must be a whole number, not {value!r}")
        return value

    def size(self, table: str, key: str, default: int | None) -> int | None:
        value, source = self._value(table, key)
        if value is None:
            return default
        text = str(value).strip()
        digits = text.rstrip("BKMGIbkmgi ")
        factor = _SIZES.get(text[len(digits) :].strip().upper())
        if type(value) not in (int, str) or not (digits.isascii() and digits.isdigit()) or factor is None:
            raise UsageError(f'{source}: must be a size such as "50 MB", not {value!r}')
        return int(digits) * factor

    def patterns(self, table: str, key: str, default: tuple[str, ...]) -> tuple[str, ...]:
        value, source = self._value(table, key)
        if value is None:
            return default
        if not isinstance(value, list) or not all(isinstance(item, str) and item for item in value):
            raise UsageError(f'{source}: must be a list of patterns such as ["*.pem"], not {value!r}')
        return tuple(value)
