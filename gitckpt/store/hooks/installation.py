"""Install, remove and inspect gitckpt's hooks and git settings in a repository."""

from __future__ import annotations

import fnmatch
import os
import re
import shlex
import sys
from contextlib import ExitStack

from gitckpt.git import config
from gitckpt.git.files import regular
from gitckpt.git.filesystem import names_in
from gitckpt.model import budget
from gitckpt.model.errors import Finding, UsageError
from gitckpt.model.values import dataclass
from gitckpt.store.hooks import files
from gitckpt.store.hooks.files import EVENTS, PACKAGE_DIR, PRE_COMMIT_ARGUMENTS, Pin, without_blocks
from gitckpt.store.records.ref_names import NOTES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from gitckpt.git.repository import Repository
    from gitckpt.store.hooks.files import FileChange, HookFile


# Git settings that belong to the hooks.


MODE = "ckpt.hooks"
# Whether the user chose the mode, so that the next `git ckpt init` keeps it.
CHOSEN = "ckpt.hooksChosen"
# The directory of the hook files, unless that is `hooks` in the common directory.
DIRECTORY = "ckpt.hooksDirectory"
# Names of what `init` added and `uninit` removes.
SET_BY_INIT = "ckpt.setByInit"

REWRITE_REF = "notes.rewriteRef"
_REWRITE_MODE = "notes.rewriteMode"
# A pattern that matches gitckpt's notes only: git warns at each amend if a named ref is missing,
# but not for a pattern.
OUR_NOTES = f"{NOTES[:-1]}[{NOTES[-1]}]"
# Whether git keeps garbage in packs for its two weeks: git before 2.41 writes each object as a
# file by default, and warns.
_CRUFT_PACKS = "gc.cruftPacks"
MADE_DIRECTORY = "hooks directory"

_SORTED_UNION = "cat_sort_uniq"
# What `init` sets or once set; `uninit` removes it if it is unchanged.
VALUES = (
    (REWRITE_REF, OUR_NOTES),
    (REWRITE_REF, NOTES),
    (_REWRITE_MODE, _SORTED_UNION),
    (_CRUFT_PACKS, "true"),
)


class HookSettings:
    def __init__(self, repository: Repository) -> None:
        self._repository = repository
        self._everywhere = config.read(repository, r"^(notes\.rewrite|gc\.cruftpacks$)")
        # Local values only: global settings must be neither changed nor restored.
        self._values = config.read_local(
            repository, r"^(ckpt\.|notes\.rewrite|gc\.cruftpacks$|hook\.gitckpt-)"
        )

    def all(self, name: str) -> list[str]:
        return self._values.get(_canonical(name), [])

    def last(self, name: str) -> str | None:
        values = self.all(name)
        return values[-1] if values else None

    def rewrites_notes(self) -> bool:
        """Return whether git carries gitckpt's notes through amend and rebase."""
        patterns = self.all(REWRITE_REF) + self._everywhere.get(REWRITE_REF.lower(), [])
        return any(fnmatch.fnmatchcase(NOTES, pattern) for pattern in patterns)

    def rewrites_other_notes(self) -> bool:
        """Return whether the user configured how git copies other notes."""
        others = {*self._everywhere.get(REWRITE_REF.lower(), [])} - {NOTES, OUR_NOTES}
        return bool(others or self._everywhere.get(_REWRITE_MODE.lower()))

    def keeps_garbage_together(self) -> bool:
        """Return whether cruft packs are configured, locally or globally."""
        return _CRUFT_PACKS.lower() in self._everywhere

    def set(self, name: str, value: str, undo: ExitStack) -> bool:
        """Give a name exactly one value; return whether that changed anything."""
        before = self.all(name)
        if before == [value]:
            return False
        self.drop(name, undo)
        self.add(name, value, undo)
        return True

    def add(self, name: str, value: str, undo: ExitStack) -> None:
        if value not in self.all(name):
            # Before the write: git may write the value and then fail to flush it.
            undo.callback(config.unset, self._repository, name, value)
            config.write(self._repository, name, value, add=True)
            self._values.setdefault(_canonical(name), []).append(value)

    def drop(self, name: str, undo: ExitStack, value: str | None = None) -> bool:
        """Remove a name, or one of its values; return whether it was there."""
        before = self.all(name)
        dropped = [old for old in before if value in (None, old)]
        if dropped:
            config.unset(self._repository, name, value)
            for old in reversed(dropped):
                undo.callback(config.write, self._repository, name, old, add=True)
            self._values[_canonical(name)] = [old for old in before if old not in dropped]
        return bool(dropped)

    def add_as_init(self, values: Sequence[tuple[str, str]], undo: ExitStack) -> list[str]:
        """Add settings that `uninit` removes; return a sentence for each."""
        for name, _ in values:
            # First: after a kill, a setting that is not recorded here would stay forever.
            self.add(SET_BY_INIT, name, undo)
        for name, value in values:
            self.add(name, value, undo)
        return [f"added {name} = {value} to the configuration" for name, value in values]


def _missing_settings(settings: HookSettings) -> list[tuple[str, str]]:
    """Return missing settings by which git copies notes and packs garbage."""
    by_init = settings.all(SET_BY_INIT)
    missing = []
    if not settings.rewrites_notes():
        missing.append((REWRITE_REF, OUR_NOTES))
    is_ours = REWRITE_REF in by_init or bool(missing)
    # The mode applies to all notes and would sort the lines of the user's own.
    may_set_mode = _REWRITE_MODE in by_init or not settings.rewrites_other_notes()
    if is_ours and may_set_mode and not settings.all(_REWRITE_MODE):
        missing.append((_REWRITE_MODE, _SORTED_UNION))
    if not settings.keeps_garbage_together():
        missing.append((_CRUFT_PACKS, "true"))
    return missing


def hooks_directory(repository: Repository) -> str:
    """Return the real path of the directory in which git looks for hooks."""
    where = [] if repository.worktree is not None else ["-C", repository.git_dir]
    return os.path.realpath(
        repository.git.text(*where, "rev-parse", "--path-format=absolute", "--git-path", "hooks")
    )


def default_directory(repository: Repository) -> str:
    """Return the real path of git's hooks directory without `core.hooksPath`."""
    return os.path.realpath(os.path.join(repository.common_dir, "hooks"))


def installed_directory(repository: Repository, settings: HookSettings) -> str:
    """Return the real path to which hooks were installed; git may use another now."""
    return os.path.realpath(
        os.path.join(repository.common_dir, settings.last(DIRECTORY) or "hooks")
    )


def _canonical(name: str) -> str:
    """Return a name as git lists it: section and key in lower case."""
    section, _, rest = name.partition(".")
    between, dot, key = rest.rpartition(".")
    return f"{section.lower()}.{between}{dot}{key.lower()}"


# Other hook managers, and the lines that a user adds to their files to call gitckpt.


_HUSKY = "husky"
_LEFTHOOK = "lefthook"
PRE_COMMIT = "pre-commit"
_HOOKS_PATH = "core.hooksPath"

GENERATED_BY_PRE_COMMIT = b"File generated by pre-commit"

_CALL = re.compile(rb"\bckpt\W+hook\W+([\w-]+)")
_LEFTHOOK_FILE = re.compile(r"\.?lefthook(-local)?\.(ya?ml|toml|jsonc?)")
_PRE_COMMIT_FILE = ".pre-commit-config.yaml"
_PRE_COMMIT_TYPES = tuple(
    event for event, argument in PRE_COMMIT_ARGUMENTS.items() if argument is not None
)


# Pre-commit writes only hook types it is installed for, and calls the hook files that it replaced.
BESIDE = "git ckpt init --hooks files"
_SHORT_WAY = (
    "pre-commit owns the hooks, and they do not all call gitckpt; "
    f"to add gitckpt's own hook files in this clone: {BESIDE}"
)


@dataclass(frozen=True, slots=True)
class Manager:
    """The program that owns the hook files."""

    name: str  # one of the names above; `_HOOKS_PATH` is any directory outside the git directory
    hooks_dir: str  # real path: `.git/hooks` may link into the worktree
    worktree: str | None

    def calls(self, event: str) -> bool:
        return any(calls(path, event) for path in self.files(event))

    def files(self, event: str) -> list[str]:
        return [*self._files(event), os.path.join(self.hooks_dir, event)]

    def place(self, event: str) -> str:
        """Return the file in which an event calls gitckpt, or should."""
        return self.files(event)[0]

    def line(self, event: str) -> str:
        if self.name == _LEFTHOOK:
            return f"run: git ckpt hook {event} {{0}} || :"
        if self.name == PRE_COMMIT and event in _PRE_COMMIT_TYPES:
            command, variable = f"git ckpt hook {event}", PRE_COMMIT_ARGUMENTS[event]
            return f"entry: sh -c '{command} \"${variable}\"'" if variable else f"entry: {command}"
        return call(event)

    def advice(self, events: Sequence[str], *, in_full: bool) -> list[str]:
        """Return what the user has to add, and where; `in_full` even if a way is shorter."""
        if not events:
            return []
        if self.name == _LEFTHOOK:
            return self._lefthook_advice(events)
        if self.name == PRE_COMMIT and not in_full:
            place = self.place(_PRE_COMMIT_TYPES[0])
            shared = f"or share them with all clones: git ckpt init --hooks external, for {place}"
            return [_SHORT_WAY, shared]
        if self.name == PRE_COMMIT:
            supported = [event for event in events if event in _PRE_COMMIT_TYPES]
            others = [event for event in events if event not in supported]
            advice = self._pre_commit_advice(supported) if supported else []
            advice += self._file_advice("pre-commit has no such type", others) if others else []
            return [_SHORT_WAY, *advice]
        if os.path.exists(self.hooks_dir) and not os.path.isdir(self.hooks_dir):
            cure = "git config --unset core.hooksPath, then git ckpt init"
            return [f"git runs no hooks: {self.hooks_dir} is not a directory; run: {cure}"]
        is_husky = self.name == _HUSKY
        reason = "husky owns the hooks" if is_husky else f"gitckpt does not write {self.hooks_dir}"
        return self._file_advice(reason, events)

    def _files(self, event: str) -> list[str]:
        """Return its own files that may call gitckpt, the recommended one first."""
        if self.worktree is None:
            return []
        if self.name == _HUSKY:
            return [os.path.join(self.worktree, ".husky", event)]
        if self.name == _LEFTHOOK:
            return _lefthook_files(self.worktree) or [os.path.join(self.worktree, "lefthook.yml")]
        if self.name == PRE_COMMIT and event in _PRE_COMMIT_TYPES:
            return [os.path.join(self.worktree, _PRE_COMMIT_FILE)]
        return []

    def _file_advice(self, reason: str, events: Sequence[str]) -> list[str]:
        lines = [f"  {self.place(event)}: {self.line(event)}" for event in events]
        how = "add a line to each file (start a new one with #!/bin/sh; make it executable)"
        return [f"{reason}; {how}:", *lines]

    def _lefthook_advice(self, events: Sequence[str]) -> list[str]:
        place = self.place(events[0])
        lines = [f"lefthook owns the hooks; add to {place}, then run: lefthook install"]
        for event in events:
            lines += [
                f"  {event}:",
                "    commands:",
                "      gitckpt:",
                f"        {self.line(event)}",
            ]
        return lines

    def _pre_commit_advice(self, events: Sequence[str]) -> list[str]:
        types = " ".join(f"--hook-type {event}" for event in events)
        place = self.place(events[0])
        lines = [f"or add to {place} below `repos:`, then run: pre-commit install {types}"]
        lines += ["  - repo: local", "    hooks:"]
        for event in events:
            lines += [f"      - id: gitckpt-{event}", f"        name: gitckpt {event}"]
            lines += [f"        {self.line(event)}", "        language: system"]
            lines += [f"        stages: [{event}]", "        always_run: true"]
            lines += ["        pass_filenames: false"]
        return lines


def detect(repository: Repository, hooks_dir: str) -> Manager | None:
    name = _owner(repository, hooks_dir)
    return Manager(name, hooks_dir, repository.worktree) if name else None


def detect_or_user(repository: Repository, hooks_dir: str) -> Manager:
    """Return the manager, or the user, who fills the hooks directory by hand."""
    name = _owner(repository, hooks_dir) or _HOOKS_PATH
    return Manager(name, hooks_dir, repository.worktree)


def call(event: str) -> str:
    """Return the shell line that calls gitckpt, safe in a hook under `sh -e`."""
    return f'git ckpt hook {event} "$@" || :'


def calls(path: str, event: str) -> bool:
    """Return whether a file calls `git ckpt hook <event>` outside of comments."""
    lines = _content(path).split(b"\n")
    code = b"\n".join(line for line in lines if not line.lstrip().startswith((b"#", b"//")))
    return any(match[1] == event.encode() for match in _CALL.finditer(code))


def _owner(repository: Repository, hooks_dir: str) -> str | None:
    if os.path.basename(hooks_dir) == ".husky" or hooks_dir.endswith("/.husky/_"):
        return _HUSKY
    text = _hook_texts(hooks_dir)
    if GENERATED_BY_PRE_COMMIT in text:
        return PRE_COMMIT
    if b"lefthook" in text:
        return _LEFTHOOK
    if not hooks_dir.startswith(os.path.join(os.path.realpath(repository.common_dir), "")):
        return _HOOKS_PATH
    if repository.worktree is None:
        return None
    if os.path.isdir(os.path.join(repository.worktree, ".husky")):
        return _HUSKY
    if _lefthook_files(repository.worktree):
        return _LEFTHOOK
    # The tracked file alone does not mean that pre-commit is installed, unless it has gitckpt's
    # lines.
    settings = os.path.join(repository.worktree, _PRE_COMMIT_FILE)
    return PRE_COMMIT if any(calls(settings, event) for event in _PRE_COMMIT_TYPES) else None


def _hook_texts(hooks_dir: str) -> bytes:
    """Return the text of all active hook files."""
    # A hook manager that owns one may take the others, too.
    names = [name for name in sorted(names_in(hooks_dir)) if "." not in name]
    return b"\n".join(_content(os.path.join(hooks_dir, name)) for name in names)


def _lefthook_files(worktree: str) -> list[str]:
    return [
        os.path.join(directory, name)
        for directory in (worktree, os.path.join(worktree, ".config"))
        for name in sorted(names_in(directory))
        if _LEFTHOOK_FILE.fullmatch(name)
    ]


def _content(path: str) -> bytes:
    """Return the text of a file without gitckpt's blocks."""
    try:
        return without_blocks(regular.content(path, budget.FILE.size))
    except OSError:
        return b""


# Installation, removal and inspection.


_MODES = ("auto", "config", "files", "external", "none")
# The first git version that reads hooks from its configuration.
CONFIG_HOOKS_SINCE = (2, 54)

_OURS = (MODE, CHOSEN, DIRECTORY, SET_BY_INIT)
# The git settings of hooks, as git spells them.
SETTINGS = tuple(name.lower() for name in _OURS)

_INIT = "git ckpt init"
_AT_COMMIT = "post-commit"
# The codes of findings that keep a hook from being called.
_MISSED = (
    "hook-missing",
    "hook-external-missing",
    "hook-not-executable",
    "hook-shadowed",
    "interpreter-missing",
    "package-missing",
)

# Suffixes of hook files that pre-commit and lefthook replaced.
_ASIDE = (".legacy", ".old")


@dataclass(frozen=True, slots=True)
class Installation:
    """What `install` did.

    Attributes:
        mode: "config", "files", "external" or "none".
        changed: a sentence for each change.
        advice: lines for the user about what is left to do.
    """

    mode: str
    changed: list[str]
    advice: list[str]


def install(
    repository: Repository,
    *,
    version: tuple[int, ...],
    mode: str = "auto",
    python: str = sys.executable,
    package_dir: str = PACKAGE_DIR,
) -> Installation:
    """Make git call gitckpt and carry notes along; a second call only repairs.

    If an error is raised, nothing was changed.

    Args:
        version: of git.
        mode: "config" (hooks in git's configuration), "files" (a block in each hook file),
            "external" (the user adds lines to another manager's files), "none", or "auto": the
            mode chosen before, or else one that suits the repository.
    """
    settings = HookSettings(repository)
    directory = hooks_directory(repository)
    manager = detect(repository, directory)
    # A manager that was installed later but left all blocks in place is no conflict.
    is_standing = all(_in_use(directory, event).block for event in EVENTS)
    used = _mode(mode, version, settings, is_managed=manager is not None and not is_standing)
    pin = _pin(python, package_dir)
    target = directory if used == "files" else None
    changes, advice = _file_changes(repository, settings, pin, target)
    owner = manager or detect_or_user(repository, directory)
    if used == "external":
        missing = [event for event in EVENTS if not owner.calls(event)]
        advice = owner.advice(missing, in_full=mode == used)
    elif used == "config":
        advice = [_twice(owner, event) for event in EVENTS if owner.calls(event)]
    elif used == "none" and mode == "auto":
        cure = f"git config --unset {CHOSEN}, then {_INIT}"
        advice = [f"no hooks, as chosen before; to install them: {cure}"]
    with ExitStack() as undo:
        if used == "files":
            _prepare_directory(repository, settings, directory, undo)
        files.apply(changes, undo)
        changed = [change.sentence for change in changes]
        changed += _set_hooks(settings, pin if used == "config" else None, undo)
        changed += settings.add_as_init(_missing_settings(settings), undo)
        settings.set(MODE, used, undo)
        if mode != "auto":
            settings.set(CHOSEN, "true", undo)
        undo.pop_all()
    return Installation(used, changed, advice)


def uninstall(repository: Repository) -> list[str]:
    """Remove only what `install` added; return a sentence for each change.

    If an error is raised, nothing was changed.
    """
    settings = HookSettings(repository)
    by_init = settings.all(SET_BY_INIT)
    directory = installed_directory(repository, settings)
    changes, _ = _file_changes(repository, settings, Pin("", ""), None)
    with ExitStack() as undo:
        files.apply(changes, undo)
        changed = [change.sentence for change in changes]
        changed += _set_hooks(settings, None, undo)
        for name, value in VALUES:
            if name in by_init and settings.drop(name, undo, value):
                changed.append(f"removed {name} = {value} from the configuration")
        for name in (MODE, CHOSEN, DIRECTORY, SET_BY_INIT):
            settings.drop(name, undo)
        undo.pop_all()
    if MADE_DIRECTORY in by_init and files.remove_directory(directory):
        changed.append(f"removed the empty directory {directory}")
    return changed


def lines_left(repository: Repository) -> list[str]:
    """Return the files in which the user's own lines call gitckpt."""
    directory = hooks_directory(repository)
    owner = detect_or_user(repository, directory)
    paths = (path for event in EVENTS for path in owner.files(event) if calls(path, event))
    return list(dict.fromkeys(paths))


def inspect(
    repository: Repository,
    *,
    version: tuple[int, ...],
    python: str = sys.executable,
    package_dir: str = PACKAGE_DIR,
) -> list[Finding]:
    """Return what is not as `install` left it."""
    settings = HookSettings(repository)
    mode = settings.last(MODE)
    if mode not in _MODES[1:]:
        sentence = "gitckpt was never set up in this repository"
        return [Finding("hooks-not-installed", repository.common_dir, sentence, _INIT)]
    directory = hooks_directory(repository)
    owner = detect_or_user(repository, directory)
    pin = _pin(python, package_dir)
    findings: list[Finding] = []
    if mode == "config":
        findings = _inspect_config(settings, version, pin, owner)
    elif mode == "files":
        findings = _inspect_files(repository, settings, directory, pin, owner)
    elif mode == "external":
        is_managed = detect(repository, directory) is not None
        is_wanted = is_managed or settings.last(CHOSEN) is not None
        missing = [event for event in EVENTS if not owner.calls(event)]
        findings = [_external_missing(owner, event, is_wanted=is_wanted) for event in missing]
    if not settings.rewrites_notes():
        sentence = "amend and rebase do not carry the links from commits to checkpoints along"
        cure = f"git config --add {REWRITE_REF} '{OUR_NOTES}'"
        findings.append(Finding("rewrite-ref-missing", REWRITE_REF, sentence, cure))
    return list(dict.fromkeys(findings))


def outlook(repository: Repository, *, version: tuple[int, ...]) -> str:
    """Return "recorded", "missed", "none" or "not installed" for the next commit."""
    mode = HookSettings(repository).last(MODE)
    if mode not in _MODES[1:]:
        return "not installed"
    if mode == "none":
        return mode
    others = [event for event in EVENTS if event != _AT_COMMIT]
    for finding in inspect(repository, version=version):
        if finding.code in _MISSED and not any(event in finding.sentence for event in others):
            return "missed"
    return "recorded"


def _pin(python: str, package_dir: str) -> Pin:
    if not python:
        hint = f"run it as: python3 -m gitckpt {_INIT.removeprefix('git ckpt ')}"
        raise UsageError("the hooks need a Python interpreter, and none is known", hint=hint)
    return Pin(os.path.abspath(python), os.path.abspath(package_dir))


def _mode(asked: str, version: tuple[int, ...], settings: HookSettings, *, is_managed: bool) -> str:
    if asked not in _MODES:
        raise UsageError(f"unknown hook mode: {asked}", hint=f"one of {', '.join(_MODES)}")
    has_config_hooks = version >= CONFIG_HOOKS_SINCE
    if asked == "config" and not has_config_hooks:
        needed, present = (".".join(map(str, part)) for part in (CONFIG_HOOKS_SINCE, version))
        raise UsageError(
            f"git {present} cannot read hooks from its configuration; git {needed} can",
            hint="install a newer git, or choose another mode: files, external or auto",
        )
    if asked != "auto":
        return asked
    before = settings.last(MODE)
    if settings.last(CHOSEN) and before in _MODES[1:] and (before != "config" or has_config_hooks):
        return before
    if has_config_hooks:
        return "config"
    return "external" if is_managed else "files"


def _file_changes(
    repository: Repository, settings: HookSettings, pin: Pin, target: str | None
) -> tuple[list[FileChange], list[str]]:
    """Return changes that add the block to one directory and remove all others."""
    changes: list[FileChange] = []
    advice: list[str] = []
    candidates = [
        hooks_directory(repository),
        default_directory(repository),
        installed_directory(repository, settings),
    ]
    for directory in dict.fromkeys(candidates):
        for event in EVENTS:
            if directory == target:
                file = _in_use(directory, event)
                change = None if file.obstacle else file.with_block(event, pin)
                if file.obstacle and not calls(file.path, event):
                    advice.append(f"{event}: {file.path} {file.obstacle}; add: {call(event)}")
            else:
                file = files.read(os.path.join(directory, event))
                change = file.without_block(event)
            aside = [files.read(file.path + suffix).without_block(event) for suffix in _ASIDE]
            changes += filter(None, (change, *aside))
    return changes, advice


def _twice(owner: Manager, event: str) -> str:
    return f"{event} calls gitckpt twice; remove the line from {owner.place(event)}"


def _prepare_directory(
    repository: Repository, settings: HookSettings, directory: str, undo: ExitStack
) -> None:
    if not os.path.isdir(directory):
        # Before the directory is made: a kill in between must not leave it unrecorded.
        settings.add(SET_BY_INIT, MADE_DIRECTORY, undo)
        files.make_directory(directory, undo)
    if directory == default_directory(repository):
        settings.drop(DIRECTORY, undo)
        return
    relative = os.path.relpath(directory, os.path.realpath(repository.common_dir))
    # A path below the git directory is stored relative: it moves with the repository.
    settings.set(DIRECTORY, directory if relative.startswith(os.pardir) else relative, undo)


def _set_hooks(settings: HookSettings, pin: Pin | None, undo: ExitStack) -> list[str]:
    """Set the hooks in git's configuration, or remove them; return the changes."""
    changed = []
    for event in EVENTS:
        section = f"hook.gitckpt-{event}"
        if pin is not None:
            is_new = settings.set(f"{section}.event", event, undo)
            if settings.set(f"{section}.command", pin.command(event), undo) or is_new:
                changed.append(f"{event}: set {section} in the configuration")
        else:
            had_command = settings.drop(f"{section}.command", undo)
            if settings.drop(f"{section}.event", undo) or had_command:
                changed.append(f"{event}: removed {section} from the configuration")
    return changed


def _inspect_config(
    settings: HookSettings, version: tuple[int, ...], pin: Pin, owner: Manager
) -> list[Finding]:
    if version < CONFIG_HOOKS_SINCE:
        present = ".".join(map(str, version))
        return [
            _not_called(MODE, f"git {present} ignores the hooks that are set in its configuration")
        ]
    findings = []
    for event in EVENTS:
        section = f"hook.gitckpt-{event}"
        command = settings.last(f"{section}.command")
        enabled = f"{section}.enabled"
        if command is None or event not in settings.all(f"{section}.event"):
            findings.append(_not_called(section, f"{event} does not call gitckpt"))
        elif not config.is_on((settings.all(enabled) or ["true"])[-1]):
            cure = f"git config --unset {enabled}"
            findings.append(_not_called(section, f"{event} is switched off by {enabled}", cure))
        elif command != pin.command(event):
            findings.append(_outdated(section, event, command))
        if owner.calls(event):
            findings.append(Finding("hook-twice", section, _twice(owner, event)))
    return findings


def _inspect_files(
    repository: Repository, settings: HookSettings, directory: str, pin: Pin, owner: Manager
) -> list[Finding]:
    findings = []
    installed = installed_directory(repository, settings)
    for event in EVENTS:
        file = _in_use(directory, event)
        is_called = owner.calls(event)
        if file.block is not None:
            if not file.is_executable:
                sentence = f"git ignores {event}: the file is not executable"
                cure = f"chmod +x {shlex.quote(file.path)}"
                findings.append(Finding("hook-not-executable", file.path, sentence, cure))
            if file.block not in (pin.block(event), pin.block(event, created=True)):
                findings.append(_outdated(file.path, event, os.fsdecode(file.block)))
            if is_called:
                findings.append(Finding("hook-twice", file.path, _twice(owner, event)))
        elif not is_called:
            findings.append(_missing_block(file, event, installed, directory))
    return findings


def _missing_block(file: HookFile, event: str, installed: str, directory: str) -> Finding:
    for suffix in _ASIDE:
        aside = files.read(file.path + suffix)
        if aside.block is not None:
            sentence = f"another hook manager moved the {event} hook aside; it no longer runs"
            return Finding("hook-moved-aside", aside.path, sentence, _INIT)
    if installed != directory and files.read(os.path.join(installed, event)).block is not None:
        sentence = f"git uses the hooks in {directory} and ignores those of gitckpt in {installed}"
        return Finding("hook-shadowed", "core.hooksPath", sentence, _INIT)
    sentence = f"{event} does not call gitckpt"
    if file.obstacle:
        return _not_called(file.path, f"{sentence}: the file {file.obstacle}", call(event))
    return _not_called(file.path, sentence)


def _not_called(where: str, sentence: str, cure: str = _INIT) -> Finding:
    return Finding("hook-missing", where, sentence, cure)


def _outdated(where: str, event: str, text: str) -> Finding:
    pin = files.pinned(text)
    if pin and not os.access(pin.python, os.X_OK):
        sentence = "the hooks start a Python interpreter that is gone"
        return Finding("interpreter-missing", pin.python, sentence, _INIT)
    if pin and not os.path.isfile(pin.script):
        return Finding("package-missing", pin.script, "the hooks use a gitckpt that is gone", _INIT)
    return Finding("hook-outdated", where, f"{event} has an outdated call of gitckpt", _INIT)


def _in_use(directory: str, event: str) -> HookFile:
    """Return the hook file of an event, or the one that pre-commit moved aside."""
    file = files.read(os.path.join(directory, event))
    aside = files.read(file.path + _ASIDE[0])
    # Pre-commit rewrites its own file, so a block there would be lost.
    is_called = (
        aside.block is not None
        and file.block is None
        and GENERATED_BY_PRE_COMMIT in (file.data or b"")
    )
    return aside if is_called else file


def _external_missing(owner: Manager, event: str, *, is_wanted: bool) -> Finding:
    where = owner.place(event)
    shorter = f"{BESIDE}; or " if owner.name == PRE_COMMIT else ""
    cure = f"{shorter}add to {where}: {owner.line(event)}" if is_wanted else _INIT
    return Finding("hook-external-missing", where, f"{event} does not call gitckpt", cure)
