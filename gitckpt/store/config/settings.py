"""Settings: `gitckpt.toml` at the top of the worktree (committed, for everybody), overridden by `git config ckpt.*` (for one clone)."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from gitckpt.git import config
from gitckpt.git.contents import attributes
from gitckpt.git.files import premises
from gitckpt.git.repository import Repository
from gitckpt.git.worktree.administration import main_worktree
from gitckpt.model import times
from gitckpt.model.errors import CkptError, UsageError
from gitckpt.model.format import budget
from gitckpt.model.names import first_of
from gitckpt.model.policy import Policy
from gitckpt.model.values import dataclass
from gitckpt.store.config import keys, order
from gitckpt.store.config.file import OBEYED, ConfigFile, read_file, text_of
from gitckpt.store.config.keys import KEYS
from gitckpt.store.config.table import Mistakes, Table
from gitckpt.store.snapshot.limits import Limits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gitckpt.store.config.looseness import Loosening

FILE = OBEYED

_SETTINGS = """\
# gitckpt: settings for everybody who works in this repository. `git config ckpt.*` overrides them for one clone.

[retention]
# Checkpoints made by hooks expire at this age …
older_than = "30d"
# … but so many of the newest stay, whatever their age.
keep_last = 100
# Those whose commit was amended or rebased expire at this age, however new they are among the others.
rewritten_older_than = "7d"
# Of those made by hooks and agents, one an hour stays from this age on, if it has what the others have …
hourly_after = "1d"
# … and one a day from this age on.
daily_after = "7d"
# A run that is complete expires at this age, with all its checkpoints and its worktree; others stay.
runs_older_than = "7d"
# What was there before files were replaced, by restore, undo, redo or a phase that goes back, expires at this age …
safety_older_than = "7d"
# … but so many of the newest stay, whatever their age.
safety_keep_last = 20

[snapshot]
# Untracked files larger than this, or whose names look like secrets, are not captured; each checkpoint lists them.
max_file_size = "50 MB"
# The names come with gitckpt (.env*, *.pem, id_*, .npmrc and a hundred more); to have others in their place:
# secrets = [".env*", "*.pem"]
# Ignored files to capture nevertheless; patterns as in .gitignore.
include = []
# Submodules that are checked out: "all" captures each of them in its own repository, "none" leaves them alone.
submodules = "all"
# Where a hook, an autosave or a step waits longer for the files, the checkpoint is recorded without them. What you ask for has no limit.
timeout = "60s"
"""

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

PIPELINES = "pipelines"
AGENTS = "agents"
STEPS = "steps"
_ELSEWHERE = (PIPELINES, AGENTS, STEPS)
"""The tables that are read and checked where they are used: a mistake in them breaks no other command."""

_RETENTION, _SNAPSHOT = "retention.", "snapshot."
_RUNS = "retention.runs_older_than"
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Settings:
    """What applies to a repository.

    Attributes:
        policy: when checkpoints expire.
        limits: what a snapshot leaves out, and how long it may take.
        worktree_dir: directory for the worktrees of runs, as configured; None for the default place.
        loosened: where the file is looser than what is built in. What of that is not approved does not apply.
    """

    policy: Policy
    limits: Limits
    worktree_dir: str | None
    loosened: tuple[Loosening, ...] = ()

    @property
    def unapproved(self) -> tuple[Loosening, ...]:
        """Where the file is looser, and nobody on this machine has approved it."""
        return tuple(each for each in self.loosened if not each.is_approved)


def read(repository: Repository, file: ConfigFile | None = None) -> Settings:
    """Returns the settings of a repository as seen from one of its worktrees.

    Where the file loosens what is built in, and nobody on this machine has approved that, the built-in value applies, key by key.

    Args:
        repository: seen from there.
        file: what takes the place of the file that is there.

    Raises:
        ConfigError: the file has mistakes; each is named with its line and the cure.
        UsageError: the file cannot be read, or a value of git's configuration cannot be understood.
    """
    file = file or read_file(path(repository))
    read_all = config.read(repository, rf"^(ckpt\.|{attributes.SETTINGS})")
    own = {name: values for name, values in read_all.items() if name.startswith("ckpt.")}
    overriding = Mistakes("")
    over = Table({name: keys.own(name, values) for name, values in own.items()}, (), "git config", overriding)
    tables = _tables(file)
    owned = {name: key.read(over, key.setting, key.usual) for name, key in KEYS.items() if key.setting in own}
    said = {name: _said(tables, name) for name in KEYS if name not in owned and _is_in(tables, name)}
    file.require_correct()
    for mistake in overriding.found:
        raise UsageError(mistake.text, hint=mistake.hint)
    loosened = _loosened(repository, file, said)
    safe = {each.key: order.tighter(each.key, said[each.key], KEYS[each.key].usual) for each in loosened if not each.is_approved}
    values = {name: key.usual for name, key in KEYS.items()} | said | safe | owned
    runs = _loosened_by_pipelines(repository, file, values[_RUNS])
    return _settings(values, own, read_all, (*loosened, *runs))


def without_file(repository: Repository) -> Settings:
    """Returns the settings of a repository as if there were no file: built-in values, and those of git's configuration.

    For the files of a run alone: what expires by a policy that nobody has chosen would be gone.

    Raises:
        UsageError: a value of git's configuration cannot be understood.
    """
    return read(repository, ConfigFile("", FILE))


def notice(unapproved: Sequence[Loosening]) -> str:
    """Returns in one line what does not apply as the file says, and what to do about it."""
    names = list(dict.fromkeys(each.key for each in unapproved))
    return f"{FILE} loosens {first_of(names, _SHOWN)}; until that is allowed here, built-in values apply: git ckpt allow"


def age_of_runs(repository: Repository, pipeline: str, said: int) -> int:
    """Returns at which age complete runs of a pipeline expire that says so itself; not earlier than any run, unless that is approved.

    Args:
        pipeline: its name, in the file.
        said: the age that the file says, in microseconds.
    """
    usual = read(repository).policy.runs_older_than
    from gitckpt.store.config import looseness

    found = looseness.find_in_pipelines(repository, {pipeline: {"retention": times.length_text(said)}}, usual)
    return usual if any(not each.is_approved for each in found) else said


def approve_template(repository: Repository) -> None:
    """Approves the values that `write_template` writes, so that they hold on, also where a later version has other ones built in.

    Raises:
        CkptError: that cannot be noted.
    """
    from gitckpt.store.config import approval, looseness

    tables = _tables(ConfigFile(_SETTINGS, FILE))
    said = {name: _said(tables, name) for name in KEYS}
    approval.note(repository, {looseness.digest(name, said) for name in said}, approve=True)


def _tables(file: ConfigFile) -> dict[str, Table]:
    """Returns the tables of the settings, and notes what does not belong there."""
    names = dict.fromkeys(name.partition(".")[0] for name in KEYS)
    file.whole.only((*names, *_ELSEWHERE))
    tables = {name: file.table(name, f"[{name}]", f"write [{name}] above its keys") for name in names}
    for name, table in tables.items():
        table.only([each.partition(".")[2] for each in KEYS if each.startswith(f"{name}.")])
    return tables


def _is_in(tables: Mapping[str, Table], name: str) -> bool:
    table, _, key = name.partition(".")
    return key in tables[table].values


def _said(tables: Mapping[str, Table], name: str) -> Any:
    """Returns what the file says of a key."""
    table, _, key = name.partition(".")
    return KEYS[name].read(tables[table], key, KEYS[name].usual)


def _loosened(repository: Repository, file: ConfigFile, said: Mapping[str, Any]) -> tuple[Loosening, ...]:
    """Returns where a file loosens what is built in, given what it says of each key that git's configuration does not overrule."""
    if all(order.tighter(name, value, KEYS[name].usual) == value for name, value in said.items()):
        return ()
    from gitckpt.store.config import looseness  # seldom

    return looseness.find(repository, file.document, said)


def _loosened_by_pipelines(repository: Repository, file: ConfigFile, usual: int) -> tuple[Loosening, ...]:
    """Returns which pipelines let their runs go earlier than any run goes."""
    pipelines = file.document.get(PIPELINES)
    ages = [each for each in pipelines.values() if isinstance(each, dict) and "retention" in each] if isinstance(pipelines, dict) else []
    if not isinstance(pipelines, dict) or not ages:
        return ()
    from gitckpt.store.config import looseness  # seldom

    return looseness.find_in_pipelines(repository, pipelines, usual)


def _settings(
    values: Mapping[str, Any], own: Mapping[str, list[str]], read_all: Mapping[str, list[str]], loosened: tuple[Loosening, ...]
) -> Settings:
    policy, limits = (
        {name.partition(".")[2]: values[name] for name in KEYS if name.startswith(table)} for table in (_RETENTION, _SNAPSHOT)
    )
    limits["submodules"] = limits["submodules"] == keys.ALL
    limits["timeout"] /= times.MICRO
    worktree_dir = own["ckpt.worktreedir"][-1] if "ckpt.worktreedir" in own else None
    return Settings(Policy(**policy), Limits(**limits, configured=attributes.Configured.of(read_all)), worktree_dir, loosened)


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
        budget.require(before, budget.FILE)
        document = tomlkit.parse(before or _SETTINGS)
        for name, table in tomlkit.parse(_SETTINGS).items():
            if name not in document:
                document.add(tomlkit.nl())
                document.add(name, table)
        after = tomlkit.dumps(document)
        if PIPELINES not in document and f"[{PIPELINES}." not in before:
            after += _EXAMPLE.replace("\n", "\r\n") if "\r\n" in before else _EXAMPLE
        if after != before:
            with open(path, "w", encoding="utf-8", newline="", opener=premises.own_file) as file:
                file.write(after)
    except (TOMLKitError, budget.Excess) as error:
        raise UsageError(f"{path} is not TOML: {error}", hint="correct it, then run the command again") from None
    except OSError as error:
        raise CkptError(f"cannot write {path}: {error.strerror}") from None
    return after != before


def is_template(path: str) -> bool:
    """Tells whether the file is as `write_template` made it."""
    return text_of(path) == TEMPLATE
