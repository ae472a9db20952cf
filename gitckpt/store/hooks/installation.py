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
from gitckpt.store.hooks.files import EVENTS, PACKAGE_DIR, PRE_COMMIT_ARGUMENTS, PinnedPython
from gitckpt.store.records.ref_names import NOTES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from gitckpt.git.repository import Repository
    from gitckpt.store.hooks.files import HookFile, HookFileChange


# Git settings that belong to the hooks.
MODE = "ckpt.hooks"
CHOSEN = "ckpt.hooksChosen"  # whether the user chose the mode, so that `init` keeps the mode
DIRECTORY = "ckpt.hooksDirectory"  # where the hooks were installed; unset for `hooks`
SET_BY_INIT = "ckpt.setByInit"  # names of settings that `init` added and `uninit` removes
_OURS = (MODE, CHOSEN, DIRECTORY, SET_BY_INIT)
SETTINGS = tuple(name.lower() for name in _OURS)  # as git spells them

REWRITE_REF = "notes.rewriteRef"
_REWRITE_MODE = "notes.rewriteMode"
# A pattern that matches only gitckpt's notes ref: for a plain name, git warns at each amend while
# the ref is missing.
OUR_NOTES = f"{NOTES[:-1]}[{NOTES[-1]}]"
# Whether git keeps unreachable objects in packs until they expire: git before 2.41 writes each as a
# file by default, and warns.
_CRUFT_PACKS = "gc.cruftPacks"
MADE_DIRECTORY = "hooks directory"

_SORTED_UNION = "cat_sort_uniq"
# Settings that some version of `init` adds; `uninit` removes those with exactly these values.
VALUES = [(REWRITE_REF, OUR_NOTES), (REWRITE_REF, NOTES)]
VALUES += [(_REWRITE_MODE, _SORTED_UNION), (_CRUFT_PACKS, "true")]


class HookSettings:
    def __init__(self, repository: Repository) -> None:
        self.repository = repository
        self._everywhere = config.read_settings(repository, r"^(notes\.rewrite|gc\.cruftpacks$)")
        # Only values in the repository's file: gitckpt changes no global settings.
        names = r"^(ckpt\.|notes\.rewrite|gc\.cruftpacks$|hook\.gitckpt-)"
        self._values = config.read_local_settings(repository, names)

    def get_values(self, name: str) -> list[str]:
        return self._values.get(_setting_key(name), [])

    def last_value(self, name: str) -> str | None:
        return next(reversed(self.get_values(name)), None)

    @property
    def rewrites_notes(self) -> bool:
        ref_patterns = self.get_values(REWRITE_REF) + self._everywhere.get(REWRITE_REF.lower(), [])
        return any(fnmatch.fnmatchcase(NOTES, pattern) for pattern in ref_patterns)

    def set(self, name: str, value: str | None, undo: ExitStack) -> bool:
        """Set a setting to one value, or remove it with None; return whether it changed."""
        if value is None:
            return self.unset(name, undo)
        if self.get_values(name) == [value]:
            return False
        self.unset(name, undo)
        self.add_value(name, value, undo)
        return True

    def add_value(self, name: str, value: str, undo: ExitStack) -> None:
        if value not in self.get_values(name):
            # Registered before the write: git may fail after it has written the value.
            undo.callback(config.unset_setting, self.repository, name, value)
            config.write_setting(self.repository, name, value, add=True)
            self._values.setdefault(_setting_key(name), []).append(value)

    def unset(self, name: str, undo: ExitStack, value: str | None = None) -> bool:
        old_values = self.get_values(name)
        removed = [old for old in old_values if value in (None, old)]
        if removed:
            config.unset_setting(self.repository, name, value)
            for old in reversed(removed):
                undo.callback(config.write_setting, self.repository, name, old, add=True)
            self._values[_setting_key(name)] = [old for old in old_values if old not in removed]
        return bool(removed)

    def add_missing_settings(self, undo: ExitStack) -> list[str]:
        """Set git to copy notes and to pack unreachable objects; return the changes."""
        set_by_init = self.get_values(SET_BY_INIT)
        additions = [] if self.rewrites_notes else [(REWRITE_REF, OUR_NOTES)]
        # The mode applies to all notes refs, and would sort lines in the user's notes.
        foreign_refs = {*self._everywhere.get(REWRITE_REF.lower(), [])} - {NOTES, OUR_NOTES}
        user_has_mode = bool(foreign_refs or self._everywhere.get(_REWRITE_MODE.lower()))
        may_set_mode = _REWRITE_MODE in set_by_init or not user_has_mode
        copies_notes = REWRITE_REF in set_by_init or bool(additions)
        if copies_notes and may_set_mode and not self.get_values(_REWRITE_MODE):
            additions.append((_REWRITE_MODE, _SORTED_UNION))
        if _CRUFT_PACKS.lower() not in self._everywhere:
            additions.append((_CRUFT_PACKS, "true"))
        for name, _ in additions:
            # Recorded first: else `uninit` would not remove a setting of a killed `init`.
            self.add_value(SET_BY_INIT, name, undo)
        for name, value in additions:
            self.add_value(name, value, undo)
        return [f"added {name} = {value} to the configuration" for name, value in additions]


def _find_hooks_directory(repository: Repository) -> str:
    location_options = [] if repository.worktree is not None else ["-C", repository.git_dir]
    arguments = ("rev-parse", "--path-format=absolute", "--git-path", "hooks")
    return os.path.realpath(repository.git.run_for_text(*location_options, *arguments))


def _resolve_hooks_path(repository: Repository, path: str | None = None) -> str:
    return os.path.realpath(os.path.join(repository.common_dir, path or "hooks"))


def _setting_key(name: str) -> str:
    section, _, remainder = name.partition(".")
    subsection, dot, key = remainder.rpartition(".")
    return f"{section.lower()}.{subsection}{dot}{key.lower()}"


# Hook managers such as husky, and the lines that users add to a manager's files to call gitckpt.

_HUSKY, _LEFTHOOK, PRE_COMMIT, _HOOKS_PATH = "husky", "lefthook", "pre-commit", "core.hooksPath"
GENERATED_BY_PRE_COMMIT = b"File generated by pre-commit"

_CALL = re.compile(rb"\bckpt\W+hook\W+([\w-]+)")
_LEFTHOOK_FILE = re.compile(r"\.?lefthook(-local)?\.(ya?ml|toml|jsonc?)")
_PRE_COMMIT_FILE = ".pre-commit-config.yaml"
_PRE_COMMIT_TYPES = [name for name in EVENTS if PRE_COMMIT_ARGUMENTS[name] is not None]

# pre-commit writes only the hook types that it is installed for, and calls hooks it replaced.
BESIDE = "git ckpt init --hooks files"
_BESIDE_ADVICE = "pre-commit owns the hooks, and not all of them call gitckpt; "
_BESIDE_ADVICE += f"to add gitckpt's hook files in this clone: {BESIDE}"


@dataclass(frozen=True, slots=True)
class HookManager:
    name: str  # one of the names above; `_HOOKS_PATH` if the user chose the directory
    hooks_dir: str  # real path, as `.git/hooks` may be a link
    worktree: str | None
    # Whether gitckpt must not write there: a manager does, or the directory is not in `.git`.
    is_foreign: bool

    def calls_hook(self, event: str) -> bool:
        return any(calls_hook(path, event) for path in self.files_at(event))

    def files_at(self, event: str) -> list[str]:
        """Return the files that may call gitckpt at an event, the recommended one first."""
        top, paths = self.worktree, []
        if top is not None and self.name == _HUSKY:
            paths = [os.path.join(top, ".husky", event)]
        elif top is not None and self.name == _LEFTHOOK:
            paths = _lefthook_files(top) or [os.path.join(top, "lefthook.yml")]
        elif top is not None and self.name == PRE_COMMIT and event in _PRE_COMMIT_TYPES:
            paths = [os.path.join(top, _PRE_COMMIT_FILE)]
        return [*paths, os.path.join(self.hooks_dir, event)]

    def advise_one_call(self, event: str) -> str:
        return f"{event} calls gitckpt twice; remove the call from {self.files_at(event)[0]}"

    def line_to_add(self, event: str) -> str:
        if self.name == _LEFTHOOK:
            return f"run: git ckpt hook {event} {{0}} || :"
        if self.name == PRE_COMMIT and event in _PRE_COMMIT_TYPES:
            command, variable = f"git ckpt hook {event}", PRE_COMMIT_ARGUMENTS[event]
            return f"entry: sh -c '{command} \"${variable}\"'" if variable else f"entry: {command}"
        return shell_line(event)

    def list_advice(self, events: Sequence[str], *, in_full: bool) -> list[str]:
        """Return lines that tell what to add to which file; more lines if `in_full`."""
        if not events:
            return []
        if self.name == _LEFTHOOK:
            path = self.files_at(events[0])[0]
            advice = [f"lefthook owns the hooks; add to {path}, then run: lefthook install"]
            for event in events:
                line = f"        {self.line_to_add(event)}"
                advice += [f"  {event}:", "    commands:", "      gitckpt:", line]
            return advice
        if self.name == PRE_COMMIT and in_full:
            return [_BESIDE_ADVICE, *self._advise_on_pre_commit(events)]
        if self.name == PRE_COMMIT:
            path = self.files_at(_PRE_COMMIT_TYPES[0])[0]
            shared_advice = f"or add hooks for all clones to {path}: git ckpt init --hooks external"
            return [_BESIDE_ADVICE, shared_advice]
        if os.path.exists(self.hooks_dir) and not os.path.isdir(self.hooks_dir):
            cure = "git config --unset core.hooksPath, then git ckpt init"
            return [f"git runs no hooks, as {self.hooks_dir} is not a directory; run: {cure}"]
        is_husky = self.name == _HUSKY
        reason = "husky owns the hooks" if is_husky else f"gitckpt does not write {self.hooks_dir}"
        return self._advise_on_files(reason, events)

    def _advise_on_files(self, reason: str, events: Sequence[str]) -> list[str]:
        lines = [f"  {self.files_at(event)[0]}: {self.line_to_add(event)}" for event in events]
        action = "add these lines (begin a new file with #!/bin/sh, make it executable)"
        return [f"{reason}; {action}:", *lines] if lines else []

    def _advise_on_pre_commit(self, events: Sequence[str]) -> list[str]:
        supported = [event for event in events if event in _PRE_COMMIT_TYPES]
        lines = []
        if supported:
            type_options = " ".join(f"--hook-type {event}" for event in supported)
            action = f"or add to {self.files_at(supported[0])[0]} below `repos:`"
            command = f"pre-commit install {type_options}"
            lines = [f"{action}, then run: {command}", "  - repo: local", "    hooks:"]
        for event in supported:
            keys = [f"name: gitckpt {event}", self.line_to_add(event), "language: system"]
            keys += [f"stages: [{event}]", "always_run: true", "pass_filenames: false"]
            lines += [f"      - id: gitckpt-{event}", *(f"        {key}" for key in keys)]
        unsupported = [event for event in events if event not in supported]
        return lines + self._advise_on_files("pre-commit does not support these hooks", unsupported)


def _find_hook_manager(repository: Repository) -> HookManager:
    directory = _find_hooks_directory(repository)
    name = _detect_hook_manager(repository, directory)
    return HookManager(name or _HOOKS_PATH, directory, repository.worktree, is_foreign=bool(name))


def shell_line(event: str) -> str:
    """Return a shell line that calls gitckpt and succeeds even if gitckpt fails."""
    return f'git ckpt hook {event} "$@" || :'


def calls_hook(path: str, event: str) -> bool:
    """Return whether a file calls `git ckpt hook <event>` outside of comments."""
    lines = _read_foreign_lines(path).split(b"\n")
    code = b"\n".join(line for line in lines if not line.lstrip().startswith((b"#", b"//")))
    return event.encode() in _CALL.findall(code)


def _detect_hook_manager(repository: Repository, hooks_dir: str) -> str | None:
    if os.path.basename(hooks_dir) == ".husky" or hooks_dir.endswith("/.husky/_"):
        return _HUSKY
    # A hook manager that owns one active hook file may take over the other hooks, too.
    names = [name for name in sorted(names_in(hooks_dir)) if "." not in name]
    all_hooks = b"\n".join(_read_foreign_lines(os.path.join(hooks_dir, name)) for name in names)
    if GENERATED_BY_PRE_COMMIT in all_hooks:
        return PRE_COMMIT
    if b"lefthook" in all_hooks:
        return _LEFTHOOK
    if not hooks_dir.startswith(os.path.join(os.path.realpath(repository.common_dir), "")):
        return _HOOKS_PATH
    if repository.worktree is None:
        return None
    if os.path.isdir(os.path.join(repository.worktree, ".husky")):
        return _HUSKY
    if _lefthook_files(repository.worktree):
        return _LEFTHOOK
    # The tracked file does not prove that pre-commit is installed; calls of gitckpt in the file
    # count as proof.
    settings = os.path.join(repository.worktree, _PRE_COMMIT_FILE)
    return PRE_COMMIT if any(calls_hook(settings, event) for event in _PRE_COMMIT_TYPES) else None


def _lefthook_files(worktree: str) -> list[str]:
    paths = []
    for directory in (worktree, os.path.join(worktree, ".config")):
        names = filter(_LEFTHOOK_FILE.fullmatch, sorted(names_in(directory)))
        paths += [os.path.join(directory, name) for name in names]
    return paths


def _read_foreign_lines(path: str) -> bytes:
    try:
        return files.remove_blocks(regular.read_content(path, budget.FILE.size))
    except OSError:
        return b""


_MODES = ("auto", "config", "files", "external", "none")
CONFIG_HOOKS_SINCE = (2, 54)  # the first git that reads hooks from its configuration

_INIT = "git ckpt init"
# Codes of findings that mean: git does not call gitckpt.
_MISSED = {"hook-missing", "hook-external-missing", "hook-not-executable", "hook-shadowed"}
_MISSED |= {"interpreter-missing", "package-missing"}
_ASIDE = (".legacy", ".old")  # suffixes of hook files that pre-commit and lefthook renamed


@dataclass(frozen=True, slots=True)
class Installation:
    mode: str  # "config", "files", "external" or "none"
    changed: list[str]  # a sentence for each change
    advice: list[str]  # lines that tell the user what to do next


def install_hooks(
    repository: Repository,
    *,
    version: tuple[int, ...],
    mode: str = "auto",
    python: str = sys.executable,
    package_dir: str = PACKAGE_DIR,
) -> Installation:
    """Set up or repair the hooks that call gitckpt, and the copying of notes on amend."""
    settings = HookSettings(repository)
    manager = _find_hook_manager(repository)
    directory = manager.hooks_dir
    # A manager that was installed later, but left all blocks of gitckpt, is no conflict.
    block_of_each = (_active_hook_file(directory, event).block for event in EVENTS)
    is_managed = manager.is_foreign and not all(block_of_each)
    hook_mode = _choose_hook_mode(mode, version, settings, is_managed=is_managed)
    pin = _pin_python(python, package_dir)
    changes, advice = _plan_file_changes(settings, pin, directory, adds=hook_mode == "files")
    if hook_mode == "external":
        missing_events = [event for event in EVENTS if not manager.calls_hook(event)]
        advice = manager.list_advice(missing_events, in_full=mode == hook_mode)
    elif hook_mode == "config":
        advice = [manager.advise_one_call(event) for event in EVENTS if manager.calls_hook(event)]
    elif hook_mode == "none" and mode == "auto":
        cure = f"git config --unset {CHOSEN}, then {_INIT}"
        advice = [f"no hooks installed, as chosen before; to install them: {cure}"]
    with ExitStack() as undo:
        if hook_mode == "files":
            _prepare_hooks_dir(settings, directory, undo)
        sentences = files.apply_file_changes(changes, undo)
        sentences += _set_hooks(settings, pin if hook_mode == "config" else None, undo)
        sentences += settings.add_missing_settings(undo)
        settings.set(MODE, hook_mode, undo)
        if mode != "auto":
            settings.set(CHOSEN, "true", undo)
        undo.pop_all()
    return Installation(hook_mode, sentences, advice)


def uninstall_hooks(repository: Repository) -> list[str]:
    """Remove what `install_hooks` added; return a sentence for each change."""
    settings = HookSettings(repository)
    set_by_init = settings.get_values(SET_BY_INIT)
    directory = _resolve_hooks_path(repository, settings.last_value(DIRECTORY))
    hooks_dir = _find_hooks_directory(repository)
    changes, _ = _plan_file_changes(settings, PinnedPython("", ""), hooks_dir, adds=False)
    with ExitStack() as undo:
        sentences = files.apply_file_changes(changes, undo)
        sentences += _set_hooks(settings, None, undo)
        for name, value in VALUES:
            if name in set_by_init and settings.unset(name, undo, value):
                sentences.append(f"removed {name} = {value} from the configuration")
        for name in _OURS:
            settings.unset(name, undo)
        undo.pop_all()
    if MADE_DIRECTORY in set_by_init and files.remove_directory(directory):
        sentences.append(f"removed the empty directory {directory}")
    return sentences


def files_calling_hook(repository: Repository) -> list[str]:
    owner = _find_hook_manager(repository)
    paths = (path for event in EVENTS for path in owner.files_at(event) if calls_hook(path, event))
    return list(dict.fromkeys(paths))


def inspect_hooks(
    repository: Repository,
    *,
    version: tuple[int, ...],
    python: str = sys.executable,
    package_dir: str = PACKAGE_DIR,
) -> list[Finding]:
    """Return a finding for each hook that differs from what `install_hooks` set up."""
    settings = HookSettings(repository)
    mode = settings.last_value(MODE)
    if mode not in _MODES[1:]:
        sentence = "gitckpt was never set up in this repository"
        return [Finding("hooks-not-installed", repository.common_dir, sentence, _INIT)]
    owner = _find_hook_manager(repository)
    pin = _pin_python(python, package_dir)
    findings: list[Finding] = []
    if mode == "config":
        findings = _inspect_config_hooks(settings, version, pin, owner)
    elif mode == "files":
        findings = _inspect_files(settings, pin, owner)
    elif mode == "external":
        is_wanted = owner.is_foreign or settings.last_value(CHOSEN) is not None
        uncalled = [event for event in EVENTS if not owner.calls_hook(event)]
        findings = [_missing_external_call(owner, event, is_wanted=is_wanted) for event in uncalled]
    if not settings.rewrites_notes:
        sentence = "git does not copy links from commits to checkpoints on amend and rebase"
        cure = f"git config --add {REWRITE_REF} '{OUR_NOTES}'"
        findings.append(Finding("rewrite-ref-missing", REWRITE_REF, sentence, cure))
    return list(dict.fromkeys(findings))


def predict_next_commit(repository: Repository, *, version: tuple[int, ...]) -> str:
    """Predict what gitckpt's hook does at the next commit.

    Returns "recorded" or "missed"; "none" if the user chose no hooks; else "not installed".
    """
    mode = HookSettings(repository).last_value(MODE)
    if mode not in _MODES[1:]:
        return "not installed"
    if mode == "none":
        return mode
    other_events = [event for event in EVENTS if event != "post-commit"]
    for finding in inspect_hooks(repository, version=version):
        is_other_event = any(event in finding.sentence for event in other_events)
        if finding.code in _MISSED and not is_other_event:
            return "missed"
    return "recorded"


def _pin_python(python: str, package_dir: str) -> PinnedPython:
    if not python:
        hint = f"run the command as: python3 -m gitckpt {_INIT.removeprefix('git ckpt ')}"
        message = "the hooks need a Python interpreter, but sys.executable is empty"
        raise UsageError(message, hint=hint)
    return PinnedPython(os.path.abspath(python), os.path.abspath(package_dir))


def _choose_hook_mode(
    mode: str, version: tuple[int, ...], settings: HookSettings, *, is_managed: bool
) -> str:
    if mode not in _MODES:
        raise UsageError(f"unknown hook mode: {mode}", hint=f"one of {', '.join(_MODES)}")
    has_config_hooks = version >= CONFIG_HOOKS_SINCE
    if mode == "config" and not has_config_hooks:
        required, installed = (".".join(map(str, part)) for part in (CONFIG_HOOKS_SINCE, version))
        problem = f"git {installed} cannot read hooks from its configuration; git {required} can"
        hint = "install a newer git, or choose another mode: files, external or auto"
        raise UsageError(problem, hint=hint)
    if mode != "auto":
        return mode
    last_mode = settings.last_value(MODE) or ""
    modes = _MODES[1:] if has_config_hooks else _MODES[2:]
    if last_mode in modes and settings.last_value(CHOSEN):
        return last_mode
    if has_config_hooks:
        return "config"
    return "external" if is_managed else "files"


def _plan_file_changes(
    settings: HookSettings, pin: PinnedPython, hooks_dir: str, *, adds: bool
) -> tuple[list[HookFileChange], list[str]]:
    """Return changes that remove blocks, or add them if `adds`; and lines of advice."""
    changes: list[HookFileChange] = []
    advice: list[str] = []
    repository, installed_dir = settings.repository, settings.last_value(DIRECTORY)
    directories = (_resolve_hooks_path(repository), _resolve_hooks_path(repository, installed_dir))
    for directory in dict.fromkeys((hooks_dir, *directories)):
        for event in EVENTS:
            if adds and directory == hooks_dir:
                file = _active_hook_file(directory, event)
                change = None if file.obstacle else file.add_block(event, pin)
                if file.obstacle and not calls_hook(file.path, event):
                    advice.append(f"{event}: {file.path} {file.obstacle}; add: {shell_line(event)}")
            else:
                file = files.read_hook(os.path.join(directory, event))
                change = file.remove_block(event)
            asides = [files.read_hook(file.path + suffix).remove_block(event) for suffix in _ASIDE]
            changes += filter(None, (change, *asides))
    return changes, advice


def _prepare_hooks_dir(settings: HookSettings, directory: str, undo: ExitStack) -> None:
    if not os.path.isdir(directory):
        # Recorded first: else `uninit` would not remove the directory of a killed `init`.
        settings.add_value(SET_BY_INIT, MADE_DIRECTORY, undo)
        files.make_directory(directory, undo)
    relative_path = os.path.relpath(directory, os.path.realpath(settings.repository.common_dir))
    # A path below the git directory is stored as relative, as it moves with the repository.
    path = directory if relative_path.startswith(os.pardir) else relative_path
    is_default = directory == _resolve_hooks_path(settings.repository)
    settings.set(DIRECTORY, None if is_default else path, undo)


def _set_hooks(settings: HookSettings, pin: PinnedPython | None, undo: ExitStack) -> list[str]:
    sentences = []
    for event in EVENTS:
        section = f"hook.gitckpt-{event}"
        values: list[tuple[str, str | None]] = [("command", None), ("event", None)]
        sentence = f"{event}: removed {section} from the configuration"
        if pin is not None:
            values = [("event", event), ("command", pin.make_command(event))]
            sentence = f"{event}: set {section} in the configuration"
        were_changed = [settings.set(f"{section}.{key}", value, undo) for key, value in values]
        sentences += [sentence] if any(were_changed) else []
    return sentences


def _inspect_config_hooks(
    settings: HookSettings, version: tuple[int, ...], pin: PinnedPython, owner: HookManager
) -> list[Finding]:
    if version < CONFIG_HOOKS_SINCE:
        version_text = ".".join(map(str, version))
        sentence = f"git {version_text} does not run hooks that its configuration defines"
        return [_missing_call(MODE, sentence)]
    findings = []
    for event in EVENTS:
        section = f"hook.gitckpt-{event}"
        command = settings.last_value(f"{section}.command")
        switch = f"{section}.enabled"
        if command is None or event not in settings.get_values(f"{section}.event"):
            findings.append(_missing_call(section, f"{event} does not call gitckpt"))
        elif not config.is_true((settings.get_values(switch) or ["true"])[-1]):
            cure = f"git config --unset {switch}"
            findings.append(_missing_call(section, f"{switch} turns the hook {event} off", cure))
        elif command != pin.make_command(event):
            findings.append(_outdated_call_finding(section, event, command))
        if owner.calls_hook(event):
            findings.append(Finding("hook-twice", section, owner.advise_one_call(event)))
    return findings


def _inspect_files(settings: HookSettings, pin: PinnedPython, owner: HookManager) -> list[Finding]:
    findings = []
    installed_dir = _resolve_hooks_path(settings.repository, settings.last_value(DIRECTORY))
    for event in EVENTS:
        file = _active_hook_file(owner.hooks_dir, event)
        is_called = owner.calls_hook(event)
        if file.block is not None:
            if not file.is_executable:
                sentence = f"git ignores {event}: the file is not executable"
                cure = f"chmod +x {shlex.quote(file.path)}"
                findings.append(Finding("hook-not-executable", file.path, sentence, cure))
            if file.block not in (pin.block(event), pin.block(event, created=True)):
                findings.append(_outdated_call_finding(file.path, event, os.fsdecode(file.block)))
            if is_called:
                findings.append(Finding("hook-twice", file.path, owner.advise_one_call(event)))
        elif not is_called:
            findings.append(_missing_block_finding(file, event, installed_dir, owner.hooks_dir))
    return findings


def _missing_block_finding(file: HookFile, event: str, installed: str, directory: str) -> Finding:
    for suffix in _ASIDE:
        renamed_file = files.read_hook(file.path + suffix)
        if renamed_file.block is not None:
            sentence = f"another hook manager renamed the {event} hook, so git no longer runs it"
            return Finding("hook-moved-aside", renamed_file.path, sentence, _INIT)
    if installed != directory and files.read_hook(os.path.join(installed, event)).block is not None:
        sentence = f"git runs the hooks in {directory}, not the hooks of gitckpt in {installed}"
        return Finding("hook-shadowed", "core.hooksPath", sentence, _INIT)
    if file.obstacle:
        sentence = f"{event} does not call gitckpt: the file {file.obstacle}"
        return _missing_call(file.path, sentence, shell_line(event))
    return _missing_call(file.path, f"{event} does not call gitckpt")


def _missing_call(where: str, sentence: str, cure: str = _INIT) -> Finding:
    return Finding("hook-missing", where, sentence, cure)


def _outdated_call_finding(where: str, event: str, text: str) -> Finding:
    pin = files.parse_pinned_python(text)
    if pin and not os.access(pin.python, os.X_OK):
        sentence = "the hooks need a Python interpreter that was removed"
        return Finding("interpreter-missing", pin.python, sentence, _INIT)
    if pin and not os.path.isfile(pin.script_path):
        sentence = "the hooks run a gitckpt that was removed"
        return Finding("package-missing", pin.script_path, sentence, _INIT)
    return Finding("hook-outdated", where, f"{event} calls gitckpt in an outdated form", _INIT)


def _active_hook_file(directory: str, event: str) -> HookFile:
    """Return the hook file of an event; its `.legacy` file if that calls gitckpt."""
    file = files.read_hook(os.path.join(directory, event))
    renamed_file = files.read_hook(file.path + _ASIDE[0])
    # pre-commit rewrites its hook file, so a block in that file would be lost.
    is_generated = file.block is None and GENERATED_BY_PRE_COMMIT in (file.data or b"")
    return renamed_file if is_generated and renamed_file.block is not None else file


def _missing_external_call(owner: HookManager, event: str, *, is_wanted: bool) -> Finding:
    where = owner.files_at(event)[0]
    shorter_cure = f"{BESIDE}; or " if owner.name == PRE_COMMIT else ""
    cure = f"{shorter_cure}add to {where}: {owner.line_to_add(event)}" if is_wanted else _INIT
    return Finding("hook-external-missing", where, f"{event} does not call gitckpt", cure)
