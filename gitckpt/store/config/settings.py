"""Read `gitckpt.toml`; settings in git's configuration override its values."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Collection, Mapping

from gitckpt.git import config
from gitckpt.git.contents import attributes
from gitckpt.git.files import private_dirs
from gitckpt.git.objects.diff import find_leaf
from gitckpt.git.objects.encoding import FILES
from gitckpt.git.repository import Repository
from gitckpt.git.worktree.administration import main_worktree
from gitckpt.model import budget, times
from gitckpt.model.arguments import join_first
from gitckpt.model.errors import CkptError, NotFoundError, UsageError
from gitckpt.model.policy import Policy
from gitckpt.model.values import dataclass, replace
from gitckpt.store.config import file as toml_file
from gitckpt.store.config.file import OBEYED, ConfigError, ConfigFile, Table, read_text
from gitckpt.store.snapshot.limits import MB, Limits, format_size, require_ordinary_worktree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import IO, Any


ALL, NONE = "all", "none"  # which submodules are captured

_LISTS = ("ckpt.include", "ckpt.secrets")
_COUNTS = ("ckpt.keeplast", "ckpt.safetykeeplast")
_SIZES = {"": 1, "B": 1, "KB": 1000, "MB": MB, "GB": 1000 * MB}
_SIZES |= {"KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30}


@dataclass(frozen=True, slots=True)
class Key:
    setting: str  # the git setting that overrides it
    read: Callable[[Table, str, Any], Any]  # arguments: table, key name, default
    default: Any  # the built-in value
    # Of two values, returns the one that deletes later or captures less.
    tighter: Callable[[Any, Any], Any]
    to_file: Callable[[Any], Any] = lambda value: value  # returns a value as the file would have it


def _to_toml(name: str, values: list[str]) -> object:
    if name in _LISTS:
        return list(filter(None, values))
    last = values[-1]
    return int(last) if name in _COUNTS and last.isascii() and last.isdigit() else last


def _read_count(table: Table, key: str, default: int) -> int:
    return table.count(key, default, maximum=sys.maxsize)


def _read_size(table: Table, key: str, default: int | None) -> int | None:
    value = table.values.get(key)
    if value is None:
        return default
    text = str(value).strip() if type(value) in (int, str) else ""
    number_text = text.rstrip("BKMGIbkmgi ")
    unit_bytes = _SIZES.get(text[len(number_text) :].strip().upper())
    if not (number_text.isascii() and number_text.isdigit()) or unit_bytes is None:
        return table.wrong_type(key, 'a size such as "50 MB"', value, default)
    return int(number_text) * unit_bytes


def _read_submodules(table: Table, key: str, default: str) -> str:
    return table.choice(key, (ALL, NONE), default)


def _read_patterns(table: Table, key: str, default: tuple[str, ...]) -> tuple[str, ...]:
    value = table.values.get(key)
    if value is None:
        return default
    if not isinstance(value, list) or not all(isinstance(item, str) and item for item in value):
        return table.wrong_type(key, 'a list of patterns such as ["*.pem"]', value, default)
    return tuple(value)


def _join_patterns(secrets: tuple[str, ...], more_secrets: tuple[str, ...]) -> tuple[str, ...]:
    lowered = {pattern.lower() for pattern in secrets}
    return (*secrets, *(pattern for pattern in more_secrets if pattern.lower() not in lowered))


def _keep_if_equal(include: tuple[str, ...], other: tuple[str, ...]) -> tuple[str, ...]:
    # Patterns can negate each other, so only an empty list is surely tighter.
    return include if include == other else ()


_POLICY, _LIMITS = Policy(), Limits()


def _age_key(name: str, default: int, tighter: Callable[[Any, Any], Any] = max) -> Key:
    return Key(f"ckpt.{name}", Table.age, default, tighter, times.exact_age_text)


# The keys of the file, as `table.key`.
KEYS: Mapping[str, Key] = {
    "retention.older_than": _age_key("olderthan", _POLICY.older_than),
    "retention.keep_last": Key("ckpt.keeplast", _read_count, _POLICY.keep_last, max),
    "retention.rewritten_older_than": _age_key("rewrittenolderthan", _POLICY.rewritten_older_than),
    "retention.hourly_after": _age_key("hourlyafter", _POLICY.hourly_after),
    "retention.daily_after": _age_key("dailyafter", _POLICY.daily_after),
    "retention.runs_older_than": _age_key("runsolderthan", _POLICY.runs_older_than),
    "retention.safety_older_than": _age_key("safetyolderthan", _POLICY.safety_older_than),
    "retention.safety_keep_last": Key(
        "ckpt.safetykeeplast", _read_count, _POLICY.safety_keep_last, max
    ),
    "retention.agent.hourly_after": _age_key("agenthourlyafter", _POLICY.agent_hourly_after),
    "retention.agent.last_after": _age_key("agentlastafter", _POLICY.agent_last_after),
    "retention.agent.older_than": _age_key("agentolderthan", _POLICY.agent_older_than),
    "snapshot.include": Key("ckpt.include", _read_patterns, _LIMITS.include, _keep_if_equal, list),
    "snapshot.max_file_size": Key(
        "ckpt.maxfilesize", _read_size, _LIMITS.max_file_size, min, format_size
    ),
    "snapshot.secrets": Key("ckpt.secrets", _read_patterns, _LIMITS.secrets, _join_patterns, list),
    # `max`, as "none" sorts after "all" and captures less.
    "snapshot.submodules": Key("ckpt.submodules", _read_submodules, ALL, max),
    "snapshot.timeout": _age_key("snapshottimeout", round(_LIMITS.timeout * times.MICRO), min),
    "snapshot.budget": _age_key("snapshotbudget", round(_LIMITS.budget * times.MICRO), min),
}

WORKTREE_DIR = "ckpt.worktreedir"

# File in the private directory: one line for each digest that the user allowed in this clone.
APPROVAL_FILE = "allowed"


def digest_of(kind: str, value: Any) -> str:
    import hashlib  # not needed if the file loosens nothing
    import json

    return hashlib.sha256(json.dumps([kind, value]).encode("utf-8")).hexdigest()


def path_approval(repository: Repository) -> str:
    return os.path.join(repository.private_dir, APPROVAL_FILE)


def _open_approvals(repository: Repository, mode: str) -> IO[str]:
    path, opener = path_approval(repository), private_dirs.open_private_file
    return open(path, mode, encoding="ascii", errors="replace", opener=opener)


def read_approved_digests(repository: Repository) -> frozenset[str]:
    with contextlib.suppress(OSError), _open_approvals(repository, "r") as file:
        return frozenset(file.read().split())
    return frozenset()


def record_approval(repository: Repository, digests: Collection[str]) -> None:
    from gitckpt.git import fsync

    repository.make_private_dir()
    try:
        with _open_approvals(repository, "a") as file:
            # The newline comes first: after a line torn by a power cut, the next digest is whole.
            file.write("".join(f"\n{digest}" for digest in digests))
            file.flush()
            os.fsync(file.fileno())
        fsync.flush([repository.private_dir, repository.common_dir])
    except OSError as error:
        raise _write_approval_error(path_approval(repository), error) from None


def remove_approvals(repository: Repository) -> bool:
    try:
        with _open_approvals(repository, "r+") as file:
            had_approvals = bool(file.read().strip())
            file.truncate(0)
            os.fsync(file.fileno())
    except FileNotFoundError:
        return False
    except OSError as error:
        raise _write_approval_error(path_approval(repository), error) from None
    return had_approvals


def _write_approval_error(path: str, error: OSError) -> CkptError:
    return CkptError(f"cannot write {path}: {error.strerror}")


FILE = OBEYED
# The git settings that `read` uses, in lower case as git lists them.
NAMES = (*(key.setting for key in KEYS.values()), WORKTREE_DIR)

PIPELINES = "pipelines"
_EXAMPLE_TITLE = "\n# Phases that"
AGENTS = "agents"
STEPS = "steps"
# Tables that other modules check, so that a mistake in them breaks only their commands.
_ELSEWHERE = (PIPELINES, AGENTS, STEPS)

_RUNS = "retention.runs_older_than"
_MAX_NAMED = 3  # keys in a notice


@dataclass(frozen=True, slots=True)
class Loosening:
    """Defaults that `gitckpt.toml` weakens; the user allows all of them or none."""

    # By key, such as "retention.keep_last": the value in the file, and the value that applies
    # until the user allows the first one; both as the file would have them.
    values: Mapping[str, tuple[Any, Any]]
    digest: str  # of all values that the file sets in the tables of `KEYS`
    is_allowed: bool  # whether the user allowed `digest` in this clone


@dataclass(frozen=True, slots=True)
class Settings:
    policy: Policy
    limits: Limits
    worktree_dir: str | None  # parent directory of worktrees; None for the default one
    loosened: Loosening | None = None  # None if the file loosens nothing
    error: UsageError | None = None  # in gitckpt.toml or git config; strict values apply then
    problem: str = ""  # the error and what applies instead, in one line

    @property
    def loosening_notice(self) -> str:
        if self.loosened is None or self.loosened.is_allowed:
            return ""
        names = join_first(list(self.loosened.values), _MAX_NAMED)
        consequence = "until you allow that, built-in values apply: git ckpt allow"
        return f"{FILE} loosens {names}; {consequence}"

    def require_valid_settings(self) -> None:
        if self.error is not None:
            raise self.error


def read_settings(repository: Repository, file: ConfigFile | None = None) -> Settings:
    """Return the settings of a repository; `file` replaces its `gitckpt.toml`.

    If the settings have a mistake, the strictest of these values apply: the defaults, the readable
    values, and the values in `gitckpt.toml` of HEAD.
    """
    git_texts = config.read_settings(repository, rf"^(ckpt\.|{attributes.SETTINGS})")
    git_values, error = _read_git_values(git_texts)
    defaults = {name: key.default for name, key in KEYS.items()}
    from_file: dict[str, Any] = {}
    file_path = settings_file_path(repository)
    try:
        file = file or toml_file.read_config_file(file_path)
        from_file = _read_file_values(file, git_values)
        file.require_no_mistakes()
    except UsageError as mistake:
        error = mistake
    if error is not None or file is None:
        values = _combine_strictest(defaults, from_file, _read_head_values(repository)) | git_values
        problem = _describe_problem(error, file_path) if error is not None else ""
        return replace(_make_settings(values, git_texts), error=error, problem=problem)
    strict_values = _combine_strictest(defaults, from_file)
    loosened = _find_loosened_settings(repository, file, from_file, strict_values | git_values)
    values = defaults | from_file if loosened is not None and loosened.is_allowed else strict_values
    return replace(_make_settings(values | git_values, git_texts), loosened=loosened)


def _read_git_values(from_git: Mapping[str, list[str]]) -> tuple[dict[str, Any], UsageError | None]:
    mistakes = toml_file.Mistakes("")
    values = {name: _to_toml(name, texts) for name, texts in from_git.items() if name in NAMES}
    table = Table(values, (), "git config", mistakes)
    git_values = {}
    for name, key in KEYS.items():
        if key.setting in values:
            count_before = len(mistakes.entries)
            value = key.read(table, key.setting, key.default)
            if len(mistakes.entries) == count_before:
                git_values[name] = value
    mistake = next(iter(mistakes.entries), None)
    return git_values, None if mistake is None else UsageError(mistake.text, hint=mistake.hint)


def _read_file_values(file: ConfigFile, owned: Collection[str] = ()) -> dict[str, Any]:
    tables = _read_tables(file)
    values = {}
    for name, key in KEYS.items():
        table_name, _, key_name = name.rpartition(".")
        table = tables.get(table_name)
        if table is not None and name not in owned and key_name in table.values:
            values[name] = key.read(table, key_name, key.default)
    return values


def read_file_at_head(repository: Repository) -> str:
    return (_read_file_at_commit(repository, "HEAD") or b"").decode("utf-8", "surrogateescape")


def _read_file_at_commit(repository: Repository, commit: str) -> bytes | None:
    (stored_file,) = repository.cat_file.read_contents([f"{commit}:{FILE}"], budget.FILE.size)
    return stored_file[2] if stored_file is not None and stored_file[1] == "blob" else None


def _read_head_values(repository: Repository) -> dict[str, Any]:
    try:
        return _read_file_values(ConfigFile(read_file_at_head(repository), FILE))
    except ConfigError:
        return {}


def _combine_strictest(defaults: Mapping[str, Any], *sources: Mapping[str, Any]) -> dict[str, Any]:
    values = dict(defaults)
    for source in sources:
        values |= {name: KEYS[name].tighter(value, values[name]) for name, value in source.items()}
    return values


def _describe_problem(error: UsageError, path: str) -> str:
    instead = "using built-in settings, or stricter ones that can be read"
    if not isinstance(error, ConfigError):
        return f"{error.message}; {instead}"
    first_mistake, more_count = error.mistakes[0], len(error.mistakes) - 1
    others = f" (and {more_count} more)" if more_count else ""
    mistake_text = f"{FILE}:{first_mistake.line}: {first_mistake.text}{others}"
    return f"{mistake_text}; {instead}, until this is corrected: {path}"


def list_setting_files(repository: Repository) -> dict[str, str]:
    return config.find_setting_files(repository, r"^ckpt\.")


def age_of_runs(repository: Repository, pipeline: str, age: int) -> int:
    """Return the age at which complete runs of a pipeline expire, in microseconds.

    This is `age`, unless it is shorter than the age for all runs and the user did not allow it.
    """
    settings = read_settings(repository)
    loosened = settings.loosened
    allowed_values = loosened.values if loosened is not None and loosened.is_allowed else {}
    is_allowed = allowed_values.get(_retention_key(pipeline), ("",))[0] == times.exact_age_text(age)
    return age if is_allowed else max(age, settings.policy.runs_older_than)


def _read_tables(file: ConfigFile) -> dict[str, Table]:
    names = dict.fromkeys(name.rpartition(".")[0] for name in KEYS)  # parents come first
    file.top.check_keys((*(name for name in names if "." not in name), *_ELSEWHERE))
    tables: dict[str, Table] = {}
    for name in names:
        parent, _, key = name.rpartition(".")
        if parent:
            table = tables[parent].subtable(key, f"[{name}]")
        else:
            table = file.table(name, f"[{name}]", f"write [{name}] above its keys")
        if table is not None:
            prefix = f"{name}."
            keys = [key.removeprefix(prefix) for key in KEYS if key.startswith(prefix)]
            table.check_keys([*dict.fromkeys(key.partition(".")[0] for key in keys)])
            tables[name] = table
    return tables


def _find_loosened_settings(
    repository: Repository, file: ConfigFile, values: Mapping[str, Any], strict: Mapping[str, Any]
) -> Loosening | None:
    loosened = {}
    for name, value in values.items():
        if strict[name] != value:
            loosened[name] = (KEYS[name].to_file(value), KEYS[name].to_file(strict[name]))
    ages_by_key = {}
    pipelines = file.document.get(PIPELINES)
    for name, pipeline in pipelines.items() if isinstance(pipelines, dict) else ():
        if not isinstance(pipeline, dict) or toml_file.describe_name_problem(name) is not None:
            continue
        text = pipeline.get("retention")
        with contextlib.suppress(UsageError):  # the pipeline's reader reports it
            age = times.parse_age(text.strip()) if isinstance(text, str) else strict[_RUNS]
            if age < strict[_RUNS]:
                ages_by_key[_retention_key(name)] = times.exact_age_text(age)
    strict_age = times.exact_age_text(strict[_RUNS])
    loosened |= {name: (age, strict_age) for name, age in ages_by_key.items()}
    if not loosened:
        return None

    # One digest for all values: a short age may be harmless only with a large `keep_last`.
    digest = digest_of("settings", [*sorted(values.items()), *sorted(ages_by_key.items())])
    return Loosening(loosened, digest, digest in read_approved_digests(repository))


def _retention_key(pipeline: str) -> str:
    return f"{PIPELINES}.{pipeline}.retention"


def _make_settings(values: Mapping[str, Any], from_git: Mapping[str, list[str]]) -> Settings:
    policy, limits = (
        {
            name.removeprefix(prefix).replace(".", "_"): values[name]
            for name in KEYS
            if name.startswith(prefix)
        }
        for prefix in ("retention.", "snapshot.")
    )
    limits["submodules"] = limits["submodules"] == ALL
    limits["timeout"] /= times.MICRO
    limits["budget"] /= times.MICRO
    attribute_settings = attributes.ConversionSettings.from_git_settings(from_git)
    worktree_dir = from_git[WORKTREE_DIR][-1] if WORKTREE_DIR in from_git else None
    return Settings(Policy(**policy), Limits(**limits, configured=attribute_settings), worktree_dir)


def settings_file_path(repository: Repository) -> str:
    top_dir = repository.worktree or main_worktree(repository)
    return os.path.join(top_dir, FILE) if top_dir else ""


def settings_template() -> str:
    path = os.path.join(os.path.dirname(__file__), "template.toml")
    with open(path, encoding="utf-8") as file:
        return file.read()


def write_template(path: str) -> bool:
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    settings_text, example_title, example = settings_template().partition(_EXAMPLE_TITLE)
    try:
        old_text = read_text(path)
        budget.require_toml_within(old_text, budget.FILE)
        document = tomlkit.parse(old_text or settings_text)
        for name, table in tomlkit.parse(settings_text).items():
            if name not in document:
                document.add(tomlkit.nl())
                document.add(name, table)
        new_text = tomlkit.dumps(document)
        if PIPELINES not in document and f"[{PIPELINES}." not in old_text:
            example_text = example_title + example
            new_text += example_text.replace("\n", "\r\n") if "\r\n" in old_text else example_text
        if new_text != old_text:
            opener = private_dirs.open_without_links
            with open(path, "w", encoding="utf-8", newline="", opener=opener) as file:
                file.write(new_text)
    except (TOMLKitError, budget.LimitExceeded) as error:
        hint = "correct the file, then run the command again"
        raise UsageError(f"{path} is not TOML: {error}", hint=hint) from None
    except OSError as error:
        raise _write_approval_error(path, error) from None
    return new_text != old_text


def is_unchanged_template(path: str) -> bool:
    with contextlib.suppress(UsageError):
        return read_text(path) == settings_template()
    return False


# Check `gitckpt.toml` of the commit at which a run's worktree starts.

_SHORT = 10


def require_valid_settings_at(repository: Repository, commit: str) -> None:
    name = f"{commit}:{FILE}"
    content = _read_file_at_commit(repository, commit) if commit else None
    # If it lacks the file, the run reports mistakes after checkout.
    if content is None or _find_mistakes(repository, name, content) is None:
        return
    # The file may be a link, or a filter may change it; these checks start processes, so they wait.
    entry = find_leaf(repository, commit, os.fsencode(FILE))
    if entry is None or entry[1] not in FILES:
        return
    error = _find_mistakes(repository, name, repository.git.run("cat-file", "--filters", name).out)
    if error is None:
        return
    file_path = settings_file_path(repository) or FILE
    cure = f"the run would use this file: correct {file_path}, commit it, and"
    try:
        is_other_commit = repository.resolve_commit("HEAD") != commit
    except NotFoundError:  # an unborn branch, as in a bare repository
        is_other_commit = True
    cure += " start again" + ("; or start at another commit: --base REV" if is_other_commit else "")
    raise ConfigError(f"{commit[:_SHORT]}:{FILE}", error.mistakes, cure)


def _find_mistakes(repository: Repository, name: str, data: bytes) -> ConfigError | None:
    try:
        file = ConfigFile(data.decode("utf-8", "surrogateescape"), name)
    except ConfigError as parse_error:
        return parse_error
    error = read_settings(repository, file).error
    return error if isinstance(error, ConfigError) else None


class SettingsReader:
    """Read the settings at each use; pass each problem to `tell` only once."""

    def __init__(self, repository: Repository, tell: Callable[[str], object]) -> None:
        self._repository = repository
        self._tell = tell
        self._reported: set[str] = set()

    def read_limits(self) -> Limits:
        return self.read_settings().limits

    def read_limits_within_budget(self) -> Limits:
        """Return the limits for captures by hooks and guards; refuse the home directory."""
        require_ordinary_worktree(self._repository)
        return self.read_limits().within_budget()

    def read_settings(self) -> Settings:
        settings = read_settings(self._repository)
        for sentence in filter(None, (settings.problem, settings.loosening_notice)):
            if sentence not in self._reported:
                self._reported.add(sentence)
                self._tell(sentence)
        return settings
