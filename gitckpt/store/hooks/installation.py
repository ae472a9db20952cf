"""Install, remove and inspect gitckpt's hooks and git settings in a repository."""

from __future__ import annotations

import fnmatch
import os
import re
import sys
from contextlib import ExitStack

from gitckpt.git import config
from gitckpt.git.files import regular
from gitckpt.model import budget
from gitckpt.model.errors import Finding, UsageError
from gitckpt.model.values import dataclass
from gitckpt.store.hooks import files
from gitckpt.store.hooks.files import EVENTS, PACKAGE_DIR, PRE_COMMIT_ARGUMENTS, Pin, without_blocks
from gitckpt.store.records.layout import NOTES

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
VALUES = ((REWRITE_REF, OUR_NOTES), (REWRITE_REF, NOTES), (_REWRITE_MODE, _SORTED_UNION), (_CRUFT_PACKS, "true"))


class HookSettings:
    def __init__(self, repository: Repository) -> None:
        self._repository = repository
        self._everywhere = config.read(repository, r"^(notes\.rewrite|gc\.cruftpacks$)")
        # Local values only: global settings must be neither changed nor restored.
        self._values = config.read_local(repository, r"^(ckpt\.|notes\.rewrite|gc\.cruftpacks$|hook\.gitckpt-)")

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
        others = [ref for ref in self._everywhere.get(REWRITE_REF.lower(), []) if ref not in (NOTES, OUR_NOTES)]
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
        gone = [each for each in before if value in (None, each)]
        if gone:
            config.unset(self._repository, name, value)
            for each in reversed(gone):
                undo.callback(config.write, self._repository, name, each, add=True)
            self._values[_canonical(name)] = [each for each in before if each not in gone]
        return bool(gone)


def follow_rewrites(settings: HookSettings, undo: ExitStack) -> list[str]:
    """Make git carry gitckpt's notes through amend and rebase; return what was done."""
    by_us = settings.all(SET_BY_INIT)
    if settings.rewrites_notes() and REWRITE_REF not in by_us:
        return []
    # Set by an older version.
    is_older = REWRITE_REF in by_us and NOTES in settings.all(REWRITE_REF)
    wanted = [(REWRITE_REF, OUR_NOTES)] if is_older or not settings.rewrites_notes() else []
    if not settings.all(_REWRITE_MODE) and (_REWRITE_MODE in by_us or not settings.rewrites_other_notes()):
        # Only then: the mode applies to all notes and would sort the lines of the user's own.
        wanted.append((_REWRITE_MODE, _SORTED_UNION))
    for name, _ in wanted:
        # First: after a kill, a setting that is not recorded here would stay forever.
        settings.add(SET_BY_INIT, name, undo)
    for name, value in wanted:
        settings.add(name, value, undo)
    if is_older:
        settings.drop(REWRITE_REF, undo, NOTES)
    return [f"added {name} = {value} to the configuration" for name, value in wanted]


def keep_garbage_together(settings: HookSettings, undo: ExitStack) -> list[str]:
    """Make git pack unreachable objects until they expire; return what was done."""
    if settings.keeps_garbage_together():
        return []
    settings.add(SET_BY_INIT, _CRUFT_PACKS, undo)  # first, as above
    settings.add(_CRUFT_PACKS, "true", undo)
    return [f"added {_CRUFT_PACKS} = true to the configuration"]


def hooks_directory(repository: Repository) -> str:
    """Return the real path of the directory in which git looks for hooks."""
    where = [] if repository.worktree is not None else ["-C", repository.git_dir]
    return os.path.realpath(repository.git.text(*where, "rev-parse", "--path-format=absolute", "--git-path", "hooks"))


def default_directory(repository: Repository) -> str:
    """Return the real path of git's hooks directory without `core.hooksPath`."""
    return os.path.realpath(os.path.join(repository.common_dir, "hooks"))


def installed_directory(repository: Repository, settings: HookSettings) -> str:
    """Return the real path to which hooks were installed; git may use another now."""
    return os.path.realpath(os.path.join(repository.common_dir, settings.last(DIRECTORY) or "hooks"))


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
_PRE_COMMIT_TYPES = tuple(event for event, argument in PRE_COMMIT_ARGUMENTS.items() if argument is not None)


# The short way beside pre-commit: pre-commit writes only hook types it is installed for, and
# calls the hook files that it replaced.
BESIDE = "git ckpt init --hooks files"
_SHORT_WAY = (
    f"pre-commit owns the hooks, and they do not all call gitckpt; the short way, hooks of gitckpt's own beside it in this clone: {BESIDE}"
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
            variable = PRE_COMMIT_ARGUMENTS[event]
            return f"entry: sh -c 'git ckpt hook {event} \"${variable}\"'" if variable else f"entry: git ckpt hook {event}"
        return call(event)

    def advice(self, events: Sequence[str], *, in_full: bool) -> list[str]:
        """Return what the user has to add, and where; `in_full` even if a way is shorter."""
        if not events:
            return []
        if self.name == _LEFTHOOK:
            return self._lefthook_advice(events)
        if self.name == PRE_COMMIT and not in_full:
            place = self.place(_PRE_COMMIT_TYPES[0])
            return [_SHORT_WAY, f"or, to share them with all clones, see the lines to add to {place}: git ckpt init --hooks external"]
        if self.name == PRE_COMMIT:
            known = [event for event in events if event in _PRE_COMMIT_TYPES]
            unknown = [event for event in events if event not in known]
            advice = self._pre_commit_advice(known) if known else []
            return [_SHORT_WAY, *advice, *self._file_advice("pre-commit has no type for this", unknown)]
        if os.path.exists(self.hooks_dir) and not os.path.isdir(self.hooks_dir):
            return [f"core.hooksPath is {self.hooks_dir}, so git runs no hooks; git config --unset core.hooksPath, then run: git ckpt init"]
        return self._file_advice("husky owns the hooks" if self.name == _HUSKY else f"{self.hooks_dir} is not gitckpt's to write", events)

    def _files(self, event: str) -> list[str]:
        """Return its own files that may call gitckpt, the recommended one first."""
        if self.worktree is None:
            return []
        if self.name == _HUSKY:
            return [os.path.join(self.worktree, ".husky", event)]
        if self.name == _LEFTHOOK:
            return _lefthook_files(self.worktree) or [os.path.join(self.worktree, "lefthook.yml")]
        return [os.path.join(self.worktree, _PRE_COMMIT_FILE)] if self.name == PRE_COMMIT and event in _PRE_COMMIT_TYPES else []

    def _file_advice(self, reason: str, events: Sequence[str]) -> list[str]:
        if not events:
            return []
        return [
            f"{reason}; add a line to each file (a new one starts with #!/bin/sh and is executable):",
            *(f"  {self.place(event)}: {self.line(event)}" for event in events),
        ]

    def _lefthook_advice(self, events: Sequence[str]) -> list[str]:
        lines = [f"lefthook owns the hooks; add to {self.place(events[0])}, in its syntax, then run: lefthook install"]
        for event in events:
            lines += [f"  {event}:", "    commands:", "      gitckpt:", f"        {self.line(event)}"]
        return lines

    def _pre_commit_advice(self, events: Sequence[str]) -> list[str]:
        types = " ".join(f"--hook-type {event}" for event in events)
        lines = [
            f"or add to {self.place(events[0])} below `repos:`, then run: pre-commit install {types}",
            "  - repo: local",
            "    hooks:",
        ]
        for event in events:
            lines += [
                f"      - id: gitckpt-{event}",
                f"        name: gitckpt {event}",
                f"        {self.line(event)}",
                "        language: system",
                f"        stages: [{event}]",
                "        always_run: true",
                "        pass_filenames: false",
            ]
        return lines


def detect(repository: Repository, hooks_dir: str) -> Manager | None:
    name = _owner(repository, hooks_dir)
    return Manager(name, hooks_dir, repository.worktree) if name else None


def is_to_come(repository: Repository) -> bool:
    """Return whether pre-commit has its file here and may be installed later."""
    return repository.worktree is not None and os.path.exists(os.path.join(repository.worktree, _PRE_COMMIT_FILE))


def unmanaged(repository: Repository, hooks_dir: str) -> Manager:
    """Return the stand-in for a user who fills the hooks directory by hand."""
    return Manager(_HOOKS_PATH, hooks_dir, repository.worktree)


def call(event: str) -> str:
    """Return the shell line that calls gitckpt, safe in a hook under `sh -e`."""
    return f'git ckpt hook {event} "$@" || :'


def calls(path: str, event: str) -> bool:
    """Return whether a file calls `git ckpt hook <event>` outside of comments."""
    lines = _content(path).split(b"\n")
    code = b"\n".join(line for line in lines if not line.lstrip().startswith((b"#", b"//")))
    return any(found[1] == event.encode() for found in _CALL.finditer(code))


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
    try:
        names = sorted(os.listdir(hooks_dir))
    except (FileNotFoundError, NotADirectoryError):
        return b""
    return b"\n".join(_content(os.path.join(hooks_dir, name)) for name in names if "." not in name)


def _lefthook_files(worktree: str) -> list[str]:
    found = []
    for directory in (worktree, os.path.join(worktree, ".config")):
        if os.path.isdir(directory):
            found += [os.path.join(directory, name) for name in sorted(os.listdir(directory)) if _LEFTHOOK_FILE.fullmatch(name)]
    return found


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
_MISSED = ("hook-missing", "hook-external-missing", "hook-not-executable", "hook-shadowed", "interpreter-missing", "package-missing")

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
    repository: Repository, *, version: tuple[int, ...], mode: str = "auto", python: str = sys.executable, package_dir: str = PACKAGE_DIR
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
    changes, advice = _file_changes(repository, settings, pin, directory if used == "files" else None)
    person = manager or unmanaged(repository, directory)
    if used == "external":
        advice = person.advice([event for event in EVENTS if not person.calls(event)], in_full=mode == used)
    elif used == "config":
        advice = [_twice(person, event) for event in EVENTS if person.calls(event)]
    elif used == "none" and mode == "auto":
        advice = [f"no hooks, as chosen before; to have them: git config --unset {CHOSEN}, then {_INIT}"]
    elif used == "files" and changes and manager is None and is_to_come(repository):
        advice.append("pre-commit, once it is installed here, goes on with these hooks: it keeps the files that are there, and calls them")
    with ExitStack() as undo:
        if used == "files":
            _prepare_directory(repository, settings, directory, undo)
        files.apply(changes, undo)
        changed = [change.sentence for change in changes]
        changed += _set_hooks(settings, pin if used == "config" else None, undo)
        changed += follow_rewrites(settings, undo)
        changed += keep_garbage_together(settings, undo)
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
    by_us = settings.all(SET_BY_INIT)
    directory = installed_directory(repository, settings)
    changes, _ = _file_changes(repository, settings, Pin("", ""), None)
    with ExitStack() as undo:
        files.apply(changes, undo)
        changed = [change.sentence for change in changes]
        changed += _set_hooks(settings, None, undo)
        for name, value in VALUES:
            if name in by_us and settings.drop(name, undo, value):
                changed.append(f"took {name} = {value} out of the configuration")
        for name in (MODE, CHOSEN, DIRECTORY, SET_BY_INIT):
            settings.drop(name, undo)
        undo.pop_all()
    if MADE_DIRECTORY in by_us and files.remove_directory(directory):
        changed.append(f"removed the empty directory {directory}")
    return changed


def lines_left(repository: Repository) -> list[str]:
    """Return the files in which the user's own lines call gitckpt."""
    directory = hooks_directory(repository)
    person = detect(repository, directory) or unmanaged(repository, directory)
    return list(dict.fromkeys(path for event in EVENTS for path in person.files(event) if calls(path, event)))


def inspect(
    repository: Repository, *, version: tuple[int, ...], python: str = sys.executable, package_dir: str = PACKAGE_DIR
) -> list[Finding]:
    """Return a finding for each hook or setting that `install` would repair."""
    settings = HookSettings(repository)
    mode = settings.last(MODE)
    if mode not in _MODES[1:]:
        return [Finding("hooks-not-installed", repository.common_dir, "gitckpt was never set up in this repository", _INIT)]
    directory = hooks_directory(repository)
    owner = detect(repository, directory)
    person = owner or unmanaged(repository, directory)
    pin = _pin(python, package_dir)
    findings: list[Finding] = []
    if mode == "config":
        findings = _inspect_config(settings, version, pin, person)
    elif mode == "files":
        findings = _inspect_files(repository, settings, directory, pin, person)
    elif mode == "external":
        is_wanted = owner is not None or settings.last(CHOSEN) is not None
        findings = [_external_missing(person, event, is_wanted=is_wanted) for event in EVENTS if not person.calls(event)]
    if not settings.rewrites_notes():
        ref = REWRITE_REF
        sentence = "amend and rebase leave the links of a commit to its checkpoints behind"
        findings.append(Finding("rewrite-ref-missing", ref, sentence, f"git config --add {ref} '{OUR_NOTES}'"))
    return list(dict.fromkeys(findings))


def outlook(repository: Repository, *, version: tuple[int, ...]) -> str:
    """Return "recorded", "missed", "none" or "not installed" for the next commit."""
    mode = HookSettings(repository).last(MODE)
    if mode not in _MODES[1:]:
        return "not installed"
    if mode == "none":
        return mode
    others = [event for event in EVENTS if event != _AT_COMMIT]
    found = [each for each in inspect(repository, version=version) if each.code in _MISSED]
    return "missed" if any(not any(event in each.sentence for event in others) for each in found) else "recorded"


def _pin(python: str, package_dir: str) -> Pin:
    if not python:
        raise UsageError("there is no Python interpreter that the hooks could start", hint=f"run it as: python3 -m gitckpt {_INIT[9:]}")
    return Pin(os.path.abspath(python), os.path.abspath(package_dir))


def _mode(asked: str, version: tuple[int, ...], settings: HookSettings, *, is_managed: bool) -> str:
    if asked not in _MODES:
        raise UsageError(f"no such way to install hooks: {asked}", hint=f"one of {', '.join(_MODES)}")
    has_config_hooks = version >= CONFIG_HOOKS_SINCE
    if asked == "config" and not has_config_hooks:
        needed, have = (".".join(map(str, numbers)) for numbers in (CONFIG_HOOKS_SINCE, version))
        raise UsageError(
            f"git {have} takes no hooks from its configuration; {needed} is the first that does",
            hint="install a newer git, or choose another way: files, external or auto",
        )
    if asked != "auto":
        return asked
    before = settings.last(MODE)
    if settings.last(CHOSEN) and before in _MODES[1:] and (before != "config" or has_config_hooks):
        return before
    if has_config_hooks:
        return "config"
    return "external" if is_managed else "files"


def _file_changes(repository: Repository, settings: HookSettings, pin: Pin, target: str | None) -> tuple[list[FileChange], list[str]]:
    """Return changes that add the block to one directory and remove all others."""
    changes: list[FileChange] = []
    advice: list[str] = []
    candidates = [hooks_directory(repository), default_directory(repository), installed_directory(repository, settings)]
    for directory in dict.fromkeys(candidates):
        for event in EVENTS:
            file = files.read(os.path.join(directory, event)) if directory != target else _in_use(directory, event)
            change = None
            if directory != target:
                change = file.without_block(event)
            elif not file.obstacle:
                change = file.with_block(event, pin)
            elif not calls(file.path, event):
                advice.append(f"{event}: {file.path} {file.obstacle}; make it call: {call(event)}")
            aside = [files.read(file.path + suffix).without_block(event) for suffix in _ASIDE]
            changes += [each for each in (change, *aside) if each]
    return changes, advice


def _twice(person: Manager, event: str) -> str:
    return f"{event} calls gitckpt twice: {person.place(event)} has a line for it, too; take that line out"


def _prepare_directory(repository: Repository, settings: HookSettings, directory: str, undo: ExitStack) -> None:
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
            done = [settings.set(f"{section}.event", event, undo), settings.set(f"{section}.command", pin.command(event), undo)]
            if any(done):
                changed.append(f"{event}: set {section} in the configuration")
        else:
            done = [settings.drop(f"{section}.{key}", undo) for key in ("command", "event")]
            if any(done):
                changed.append(f"{event}: took {section} out of the configuration")
    return changed


def _inspect_config(settings: HookSettings, version: tuple[int, ...], pin: Pin, person: Manager) -> list[Finding]:
    if version < CONFIG_HOOKS_SINCE:
        have = ".".join(map(str, version))
        return [Finding("hook-missing", MODE, f"git {have} ignores the hooks that are set in its configuration", _INIT)]
    findings = []
    for event in EVENTS:
        section = f"hook.gitckpt-{event}"
        command = settings.last(f"{section}.command")
        enabled = f"{section}.enabled"
        if command is None or event not in settings.all(f"{section}.event"):
            findings.append(Finding("hook-missing", section, f"{event} does not call gitckpt", _INIT))
        elif not config.is_on((settings.all(enabled) or ["true"])[-1]):
            findings.append(Finding("hook-missing", section, f"{event} is switched off by {enabled}", f"git config --unset {enabled}"))
        elif command != pin.command(event):
            findings.append(_stale(section, event, command))
        if person.calls(event):
            findings.append(Finding("hook-twice", section, _twice(person, event)))
    return findings


def _inspect_files(repository: Repository, settings: HookSettings, directory: str, pin: Pin, person: Manager) -> list[Finding]:
    findings = []
    installed = installed_directory(repository, settings)
    for event in EVENTS:
        file = _in_use(directory, event)
        called = person.calls(event)
        if file.block is not None:
            findings += _inspect_block(file, file.block, event, pin)
            if called:
                findings.append(Finding("hook-twice", file.path, _twice(person, event)))
        elif not called:
            findings.append(_moved_aside(file, event) or _shadowed(installed, directory, event) or _missing(file, event))
    return findings


def _inspect_block(file: HookFile, block: bytes, event: str, pin: Pin) -> list[Finding]:
    findings = []
    if not file.is_executable:
        findings.append(
            Finding("hook-not-executable", file.path, f"git ignores {event}: the file is not executable", f"chmod +x {file.quoted}")
        )
    if block not in (pin.block(event), pin.block(event, created=True)):
        findings.append(_stale(file.path, event, os.fsdecode(block)))
    return findings


def _stale(where: str, event: str, text: str) -> Finding:
    pin = files.pinned(text)
    if pin and not os.access(pin.python, os.X_OK):
        return Finding("interpreter-missing", pin.python, "the hooks start a Python interpreter that is gone", _INIT)
    if pin and not os.path.isfile(pin.script):
        return Finding("package-missing", pin.script, "the hooks use a gitckpt that is gone", _INIT)
    return Finding("hook-outdated", where, f"{event} calls gitckpt in another way than this gitckpt would set up", _INIT)


def _moved_aside(file: HookFile, event: str) -> Finding | None:
    for suffix in _ASIDE:
        aside = files.read(file.path + suffix)
        if aside.block is not None:
            return Finding("hook-moved-aside", aside.path, f"another hook manager moved the {event} hook aside; it no longer runs", _INIT)
    return None


def _in_use(directory: str, event: str) -> HookFile:
    """Return the hook file of an event, or the one that pre-commit moved aside."""
    file = files.read(os.path.join(directory, event))
    aside = files.read(file.path + _ASIDE[0])
    # Pre-commit rewrites its own file, so a block there would be lost.
    is_called = aside.block is not None and file.block is None and GENERATED_BY_PRE_COMMIT in (file.data or b"")
    return aside if is_called else file


def _shadowed(installed: str, directory: str, event: str) -> Finding | None:
    if installed == directory or files.read(os.path.join(installed, event)).block is None:
        return None
    sentence = f"git looks for hooks in {directory}, so those of gitckpt in {installed} never run"
    return Finding("hook-shadowed", "core.hooksPath", sentence, _INIT)


def _missing(file: HookFile, event: str) -> Finding:
    if file.obstacle:
        return Finding("hook-missing", file.path, f"{event} does not call gitckpt: the file {file.obstacle}", call(event))
    return Finding("hook-missing", file.path, f"{event} does not call gitckpt", _INIT)


def _external_missing(person: Manager, event: str, *, is_wanted: bool) -> Finding:
    where = person.place(event)
    shorter = f"{BESIDE}; or " if person.name == PRE_COMMIT else ""
    cure = f"{shorter}add to {where}: {person.line(event)}" if is_wanted else _INIT
    return Finding("hook-external-missing", where, f"{event} does not call gitckpt", cure)
