"""Settings: `gitckpt.toml`, overridden per clone by `git config ckpt.*`."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Collection, Mapping

from gitckpt.git import config
from gitckpt.git.contents import attributes
from gitckpt.git.files import premises
from gitckpt.git.objects.diff import leaf
from gitckpt.git.objects.encoding import FILES
from gitckpt.git.repository import Repository
from gitckpt.git.worktree.administration import main_worktree
from gitckpt.model import budget, times
from gitckpt.model.arguments import first_of
from gitckpt.model.errors import CkptError, NotFoundError, UsageError
from gitckpt.model.policy import Policy
from gitckpt.model.values import dataclass, replace
from gitckpt.store.config.file import OBEYED, ConfigError, ConfigFile, Mistakes, Table, name_problem, read_file, text_of
from gitckpt.store.snapshot.limits import MB, Limits, size_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


# The keys of `gitckpt.toml` with their built-in values.


# Which submodules are captured.
ALL, NONE = "all", "none"

_LISTS = ("ckpt.include", "ckpt.secrets")
_COUNTS = ("ckpt.keeplast", "ckpt.safetykeeplast")
_SIZES = {"": 1, "B": 1, "KB": 1000, "MB": MB, "GB": 1000 * MB, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30}


class Key:
    def __init__(
        self,
        setting: str,
        read: Callable[[Table, str, Any], Any],
        usual: Any,
        tighter: Callable[[Any, Any], Any],
        written: Callable[[Any], Any] = lambda value: value,
    ) -> None:
        self.setting = setting  # the git setting that overrides it
        self.read = read  # from a table; returns the last argument if the key is missing
        self.usual = usual  # the built-in value
        # Returns the value that keeps longer or captures less, else the first.
        self.tighter = tighter
        self.written = written  # formats a value as in the file


def own_keys(name: str, values: list[str]) -> object:
    """Return the value of a git setting, as a TOML file would have it."""
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
    return table.choice(key, (ALL, NONE), default)


def _patterns(table: Table, key: str, default: tuple[str, ...]) -> tuple[str, ...]:
    value = table.values.get(key)
    if value is None:
        return default
    if not isinstance(value, list) or not all(isinstance(item, str) and item for item in value):
        return table.wrong(key, 'a list of patterns such as ["*.pem"]', value, default)
    return tuple(value)


def _all_of_both(secrets: tuple[str, ...], others: tuple[str, ...]) -> tuple[str, ...]:
    known = {pattern.lower() for pattern in secrets}
    return (*secrets, *(pattern for pattern in others if pattern.lower() not in known))


def _nothing_new(include: tuple[str, ...], other: tuple[str, ...]) -> tuple[str, ...]:
    # Patterns can negate each other, so only no pattern at all is known to be tighter.
    return include if include == other else ()


_POLICY, _LIMITS = Policy(), Limits()

# The keys of the file, by table.
KEYS: Mapping[str, Key] = {
    "retention.older_than": Key("ckpt.olderthan", Table.age, _POLICY.older_than, max, times.length_text),
    "retention.keep_last": Key("ckpt.keeplast", _count, _POLICY.keep_last, max),
    "retention.rewritten_older_than": Key("ckpt.rewrittenolderthan", Table.age, _POLICY.rewritten_older_than, max, times.length_text),
    "retention.hourly_after": Key("ckpt.hourlyafter", Table.age, _POLICY.hourly_after, max, times.length_text),
    "retention.daily_after": Key("ckpt.dailyafter", Table.age, _POLICY.daily_after, max, times.length_text),
    "retention.runs_older_than": Key("ckpt.runsolderthan", Table.age, _POLICY.runs_older_than, max, times.length_text),
    "retention.safety_older_than": Key("ckpt.safetyolderthan", Table.age, _POLICY.safety_older_than, max, times.length_text),
    "retention.safety_keep_last": Key("ckpt.safetykeeplast", _count, _POLICY.safety_keep_last, max),
    "snapshot.include": Key("ckpt.include", _patterns, _LIMITS.include, _nothing_new, list),
    "snapshot.max_file_size": Key("ckpt.maxfilesize", _size, _LIMITS.max_file_size, min, size_text),
    "snapshot.secrets": Key("ckpt.secrets", _patterns, _LIMITS.secrets, _all_of_both, list),
    "snapshot.submodules": Key("ckpt.submodules", _submodules, ALL, max),  # "none" is greater than "all"
    "snapshot.timeout": Key("ckpt.snapshottimeout", Table.age, round(_LIMITS.timeout * times.MICRO), min, times.length_text),
}

WORKTREE_DIR = "ckpt.worktreedir"


# Approvals: digests of what was allowed in this clone, a line each in the private directory.


APPROVAL_FILE = "allowed"


def digest_of(kind: str, value: Any) -> str:
    import hashlib  # not needed if the file loosens nothing
    import json

    return hashlib.sha256(json.dumps([kind, value]).encode("utf-8")).hexdigest()


def path_approval(repository: Repository) -> str:
    return os.path.join(repository.private_dir, APPROVAL_FILE)


def approved(repository: Repository) -> frozenset[str]:
    try:
        with open(path_approval(repository), encoding="ascii", errors="replace", opener=premises.create) as file:
            return frozenset(file.read().split())
    except OSError:
        return frozenset()


def note(repository: Repository, digests: Collection[str]) -> None:
    """Allow digests in all worktrees of this clone, and flush them to disk."""
    from gitckpt.git import fsync

    # The newline comes first: after a line torn by a power cut, the next digest is whole.
    lines = "".join(f"\n{digest}" for digest in digests)
    repository.make_private_dir()
    try:
        with open(path_approval(repository), "a", encoding="ascii", opener=premises.create) as file:
            file.write(lines)
            file.flush()
            os.fsync(file.fileno())
        fsync.flush([repository.private_dir, repository.common_dir])
    except OSError as error:
        raise CkptError(f"cannot write {path_approval(repository)}: {error.strerror}") from None


def forget(repository: Repository) -> bool:
    """Remove all approvals; return whether there were any."""
    try:
        with open(path_approval(repository), "r+", encoding="ascii", errors="replace", opener=premises.create) as file:
            was_any = bool(file.read().strip())
            file.truncate(0)
            os.fsync(file.fileno())
    except FileNotFoundError:
        return False
    except OSError as error:
        raise CkptError(f"cannot write {path_approval(repository)}: {error.strerror}") from None
    return was_any


# Reading the settings.


FILE = OBEYED
# The git settings that `read` knows, as git spells them.
NAMES = (*(key.setting for key in KEYS.values()), WORKTREE_DIR)

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
# The names come with gitckpt (.env*, *.pem, .npmrc and many more; source files are never among them).
# To have others in their place:
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
# Tables that other modules check: a mistake in them breaks no other command.
_ELSEWHERE = (PIPELINES, AGENTS, STEPS)

_RETENTION, _SNAPSHOT = "retention.", "snapshot."
_RUNS = "retention.runs_older_than"
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Loosening:
    """What `gitckpt.toml` loosens; it is allowed as a whole or not at all.

    Attributes:
        values: by key, such as "retention.keep_last", the value of the file and the one that
            applies until it is allowed, both as written in a file.
        digest: of everything the file sets in these tables.
        is_allowed: whether that digest was allowed in this clone.
    """

    values: Mapping[str, tuple[Any, Any]]
    digest: str
    is_allowed: bool


@dataclass(frozen=True, slots=True)
class Settings:
    """What applies to a repository."""

    policy: Policy
    limits: Limits
    worktree_dir: str | None  # for worktrees of runs; None for the default place
    loosened: Loosening | None = None  # by the file
    error: UsageError | None = None  # in the file or git's configuration; strict values apply then
    problem: str = ""  # the error and what applies instead, in one line

    @property
    def notice(self) -> str:
        """One line about settings that wait for `git ckpt allow`, or ""."""
        if self.loosened is None or self.loosened.is_allowed:
            return ""
        names = first_of(list(self.loosened.values), _SHOWN)
        return f"{FILE} loosens {names}; until that is allowed here, built-in values apply: git ckpt allow"

    def require_correct(self) -> None:
        """Raise the error, for commands that execute or approve what the file says."""
        if self.error is not None:
            raise self.error


def read(repository: Repository, file: ConfigFile | None = None) -> Settings:
    """Return the settings of a repository as seen from one of its worktrees.

    Values that the file loosens without approval are replaced by the built-in ones. A mistake must
    not stop saving or restoring: keys that git's configuration does not set then get the strictest
    of the built-in value, the readable part of the file, and the file of HEAD.
    """
    read_all = config.read(repository, rf"^(ckpt\.|{attributes.SETTINGS})")
    own = {name: values for name, values in read_all.items() if name.startswith("ckpt.")}
    owned, error = _owned(own)
    from_file: dict[str, Any] = {}
    where = path(repository)
    try:
        file = file or read_file(where)
        from_file = _all_said(file, owned)
        file.require_correct()
    except UsageError as found:
        error = found
    usual = {name: key.usual for name, key in KEYS.items()}
    if error is not None:
        values = _strictest(usual, from_file, _committed(repository)) | owned
        return replace(_settings(values, own, read_all), error=error, problem=_problem(error, where))
    assert file is not None
    strict = _strictest(usual, from_file)
    loosened = _loosened(repository, file, from_file, strict | owned)
    values = usual | from_file if loosened is not None and loosened.is_allowed else strict
    return replace(_settings(values | owned, own, read_all), loosened=loosened)


def _owned(own: Mapping[str, list[str]]) -> tuple[dict[str, Any], UsageError | None]:
    """Return the keys that git's configuration sets, and its first bad value."""
    mistakes = Mistakes("")
    said = {name: own_keys(name, values) for name, values in own.items()}
    table = Table(said, (), "git config", mistakes)
    owned = {}
    for name, key in KEYS.items():
        count = len(mistakes.found)
        value = key.read(table, key.setting, key.usual) if key.setting in own else None
        if key.setting in own and len(mistakes.found) == count:
            owned[name] = value
    first = next(iter(mistakes.found), None)
    return owned, None if first is None else UsageError(first.text, hint=first.hint)


def _all_said(file: ConfigFile, owned: Collection[str] = ()) -> dict[str, Any]:
    """Return the file's value of each key that git's configuration does not set."""
    tables = _tables(file)
    said = {}
    for name, key in KEYS.items():
        table, _, short = name.partition(".")
        if name not in owned and short in tables[table].values:
            said[name] = key.read(tables[table], short, key.usual)
    return said


def head_text(repository: Repository) -> str:
    (found,) = repository.cat_file.contents([f"HEAD:{FILE}"], budget.FILE.size)
    if found is None or found[1] != "blob":
        return ""
    return found[2].decode("utf-8", "surrogateescape")


def _committed(repository: Repository) -> dict[str, Any]:
    try:
        return _all_said(ConfigFile(head_text(repository), FILE))
    except ConfigError:
        return {}


def _strictest(usual: Mapping[str, Any], *said: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that keep the longest and capture the least."""
    values = dict(usual)
    for each in said:
        values |= {name: KEYS[name].tighter(value, values[name]) for name, value in each.items()}
    return values


def _problem(error: UsageError, path: str) -> str:
    instead = "using built-in settings, or stricter ones that can be read"
    if not isinstance(error, ConfigError):
        return f"{error.message}; {instead}"
    first, *more = error.mistakes
    count = f" (and {len(more)} more)" if more else ""
    return f"{FILE}:{first.line}: {first.text}{count}; {instead}, until this is corrected: {path}"


def places(repository: Repository) -> dict[str, str]:
    """Return the git settings below `ckpt.`, each with the file that sets it, or ""."""
    return config.places(repository, r"^ckpt\.")


def age_of_runs(repository: Repository, pipeline: str, age: int) -> int:
    """Return the age at which complete runs of a pipeline expire, in microseconds.

    A shorter `age` than for other runs counts only if the file here has it, and that is allowed.
    """
    found = read(repository)
    loosened = found.loosened
    short = loosened.values.get(_key_of(pipeline)) if loosened is not None and loosened.is_allowed else None
    is_allowed = short is not None and short[0] == times.length_text(age)
    return age if is_allowed else max(age, found.policy.runs_older_than)


def _tables(file: ConfigFile) -> dict[str, Table]:
    """Return the tables of the settings; record unknown keys and tables."""
    names = dict.fromkeys(name.partition(".")[0] for name in KEYS)
    file.whole.only((*names, *_ELSEWHERE))
    tables = {name: file.table(name, f"[{name}]", f"write [{name}] above its keys") for name in names}
    for name, table in tables.items():
        table.only([each.partition(".")[2] for each in KEYS if each.startswith(f"{name}.")])
    return tables


def _loosened(repository: Repository, file: ConfigFile, said: Mapping[str, Any], strict: Mapping[str, Any]) -> Loosening | None:
    """Return what a file loosens: keys whose value in `said` is not the strict one."""
    values = {name: (KEYS[name].written(said[name]), KEYS[name].written(strict[name])) for name in said if strict[name] != said[name]}
    pipelines = file.document.get(PIPELINES)
    for name, pipeline in pipelines.items() if isinstance(pipelines, dict) else ():
        text = pipeline.get("retention") if isinstance(pipeline, dict) and name_problem(name) is None else None
        with contextlib.suppress(UsageError):  # reported where the pipeline is used
            age = times.parse_age(text.strip()) if isinstance(text, str) else strict[_RUNS]
            if age < strict[_RUNS]:
                values[_key_of(name)] = (times.length_text(age), times.length_text(strict[_RUNS]))
    if not values:
        return None

    # Over all values together: an age may be harmless only with a large `keep_last`.
    ages = [(name, value) for name, (value, _) in values.items() if name not in said]
    digest = digest_of("settings", [*sorted(said.items()), *sorted(ages)])
    return Loosening(values, digest, digest in approved(repository))


def _key_of(pipeline: str) -> str:
    return f"{PIPELINES}.{pipeline}.retention"


def _settings(values: Mapping[str, Any], own: Mapping[str, list[str]], read_all: Mapping[str, list[str]]) -> Settings:
    policy, limits = (
        {name.partition(".")[2]: values[name] for name in KEYS if name.startswith(table)} for table in (_RETENTION, _SNAPSHOT)
    )
    limits["submodules"] = limits["submodules"] == ALL
    limits["timeout"] /= times.MICRO
    worktree_dir = own[WORKTREE_DIR][-1] if WORKTREE_DIR in own else None
    return Settings(Policy(**policy), Limits(**limits, configured=attributes.Configured.of(read_all)), worktree_dir)


def path(repository: Repository) -> str:
    top = repository.worktree or main_worktree(repository)
    return os.path.join(top, FILE) if top else ""


def write_template(path: str) -> bool:
    """Write `gitckpt.toml` or add what it lacks; return whether it changed."""
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
    try:
        return text_of(path) == TEMPLATE
    except UsageError:
        return False


# `gitckpt.toml` of a commit: a run's worktree starts with it, and it may differ from the file
# here.


_SHORT = 10


def require_correct(repository: Repository, commit: str) -> None:
    """Raise `ConfigError` if the settings of a commit have mistakes."""
    name = f"{commit}:{FILE}"
    (found,) = repository.cat_file.contents([name], budget.FILE.size) if commit else (None,)
    if found is None or found[1] != "blob":
        return  # no file, or an error reported after checkout
    if _mistakes(repository, name, found[2]) is None:
        return
    # Only now, as this starts processes: it may be a link, and a filter may change it.
    at_top = leaf(repository, commit, os.fsencode(FILE))
    if at_top is None or at_top[1] not in FILES:
        return
    error = _mistakes(repository, name, repository.git.run("cat-file", "--filters", name).out)
    if error is not None:
        raise ConfigError(f"{commit[:_SHORT]}:{FILE}", error.mistakes, _cure(repository, commit))


def _mistakes(repository: Repository, name: str, data: bytes) -> ConfigError | None:
    try:
        file = ConfigFile(data.decode("utf-8", "surrogateescape"), name)
        error = read(repository, file).error
    except ConfigError as not_toml:
        error = not_toml
    return error if isinstance(error, ConfigError) else None


def _cure(repository: Repository, commit: str) -> str:
    where = path(repository) or FILE
    cure = f"a run begins with that file: correct {where}, commit it, and start again"
    try:
        is_base = repository.commit("HEAD") != commit
    # The branch is unborn, as in a bare repository that others push to.
    except NotFoundError:
        is_base = True
    return f"{cure}; or begin with another commit: --base REV" if is_base else cure


# Settings for commands.


class Rules:
    """The settings of a repository, read when needed; each problem is reported once."""

    def __init__(self, repository: Repository, tell: Callable[[str], object]) -> None:
        self._repository = repository
        self._tell = tell
        self._told: set[str] = set()

    def limits(self) -> Limits:
        return self.read().limits

    def read(self) -> Settings:
        found = read(self._repository)
        for sentence in filter(None, (found.problem, found.notice)):
            if sentence not in self._told:
                self._told.add(sentence)
                self._tell(sentence)
        return found
