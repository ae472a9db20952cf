"""Puts the hooks and settings of gitckpt into a repository, takes out exactly those, and tells what became of them."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack

from gitckpt.git import config
from gitckpt.model.errors import UsageError
from gitckpt.model.finding import Finding
from gitckpt.model.values import dataclass
from gitckpt.store.hooks import files, git_settings, managers
from gitckpt.store.hooks.events import EVENTS
from gitckpt.store.hooks.files import PACKAGE_DIR, Pin
from gitckpt.store.hooks.git_settings import HookSettings, default_directory, hooks_directory, installed_directory

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gitckpt.git.repository import Repository
    from gitckpt.store.hooks.files import FileChange, HookFile
    from gitckpt.store.hooks.managers import Manager

_MODES = ("auto", "config", "files", "external", "none")
CONFIG_HOOKS_SINCE = (2, 54)
"""The first git that takes hooks from its configuration."""

_OURS = (git_settings.MODE, git_settings.CHOSEN, git_settings.DIRECTORY, git_settings.SET_BY_INIT)
SETTINGS = tuple(name.lower() for name in _OURS)
"""The settings of git that hooks have, as git spells them."""

_INIT = "git ckpt init"
_AT_COMMIT = "post-commit"
_MISSED = ("hook-missing", "hook-external-missing", "hook-not-executable", "hook-shadowed", "interpreter-missing", "package-missing")
"""The codes of findings that keep a hook from being called."""

_ASIDE = (".legacy", ".old")
"""What pre-commit and lefthook append to the name of a hook file that they replace."""


@dataclass(frozen=True, slots=True)
class Installation:
    """What `install` did.

    Attributes:
        mode: "config", "files", "external" or "none": who calls gitckpt.
        changed: a sentence for each thing that was done; empty where all was in place.
        advice: lines for the person, who has to do the rest; empty where nothing is left to do.
    """

    mode: str
    changed: list[str]
    advice: list[str]


def install(
    repository: Repository, *, version: tuple[int, ...], mode: str = "auto", python: str = sys.executable, package_dir: str = PACKAGE_DIR
) -> Installation:
    """Makes git call gitckpt, and notes follow rewritten commits. Done again, it changes only what is not as it should be.

    Args:
        version: of git.
        mode: "config" (hooks in git's configuration), "files" (a block in each hook file), "external" (a person adds lines to another
            manager's files), "none", or "auto": what a person chose before, or else what suits the repository.
        python: the interpreter that the hooks start.
        package_dir: the directory that holds the package `gitckpt`.

    Returns:
        What was done, and what is left to the person.

    Raises:
        UsageError: no such mode, git is too old for it, or there is no interpreter.
        RepositoryError: a hook file cannot be read or written; nothing was changed.
        GitError: the configuration cannot be written; nothing was changed.
    """
    settings = HookSettings(repository)
    directory = hooks_directory(repository)
    manager = managers.detect(repository, directory)
    # A manager that came later and left all our blocks in place need not be fought.
    is_standing = all(_in_use(directory, event).block for event in EVENTS)
    used = _mode(mode, version, settings, is_managed=manager is not None and not is_standing)
    pin = _pin(python, package_dir)
    changes, advice = _file_changes(repository, settings, pin, directory if used == "files" else None)
    person = manager or managers.unmanaged(repository, directory)
    if used == "external":
        advice = person.advice([event for event in EVENTS if not person.calls(event)], in_full=mode == used)
    elif used == "config":
        advice = [_twice(person, event) for event in EVENTS if person.calls(event)]
    elif used == "none" and mode == "auto":
        advice = [f"no hooks, as chosen before; to have them: git config --unset {git_settings.CHOSEN}, then {_INIT}"]
    elif used == "files" and changes and manager is None and managers.is_to_come(repository):
        advice.append("pre-commit, once it is installed here, goes on with these hooks: it keeps the files that are there, and calls them")
    with ExitStack() as undo:
        if used == "files":
            _prepare_directory(repository, settings, directory, undo)
        files.apply(changes, undo)
        changed = [change.sentence for change in changes]
        changed += _set_hooks(settings, pin if used == "config" else None, undo)
        changed += git_settings.follow_rewrites(settings, undo)
        changed += git_settings.keep_garbage_together(settings, undo)
        settings.set(git_settings.MODE, used, undo)
        if mode != "auto":
            settings.set(git_settings.CHOSEN, "true", undo)
        undo.pop_all()
    return Installation(used, changed, advice)


def uninstall(repository: Repository) -> list[str]:
    """Takes out what `install` put in, and nothing else: checkpoints and other people's text stay as they are.

    Returns:
        A sentence for each thing that was taken out.

    Raises:
        RepositoryError: a hook file cannot be read or written; nothing was changed.
        GitError: the configuration cannot be written; nothing was changed.
    """
    settings = HookSettings(repository)
    by_us = settings.all(git_settings.SET_BY_INIT)
    directory = installed_directory(repository, settings)
    changes, _ = _file_changes(repository, settings, Pin("", ""), None)
    with ExitStack() as undo:
        files.apply(changes, undo)
        changed = [change.sentence for change in changes]
        changed += _set_hooks(settings, None, undo)
        for name, value in git_settings.VALUES:
            if name in by_us and settings.drop(name, undo, value):
                changed.append(f"took {name} = {value} out of the configuration")
        for name in (git_settings.MODE, git_settings.CHOSEN, git_settings.DIRECTORY, git_settings.SET_BY_INIT):
            settings.drop(name, undo)
        undo.pop_all()
    if git_settings.MADE_DIRECTORY in by_us and files.remove_directory(directory):
        changed.append(f"removed the empty directory {directory}")
    return changed


def lines_left(repository: Repository) -> list[str]:
    """Returns the files in which a person has lines, outside of our blocks, that call gitckpt."""
    directory = hooks_directory(repository)
    person = managers.detect(repository, directory) or managers.unmanaged(repository, directory)
    return list(dict.fromkeys(path for event in EVENTS for path in person.files(event) if managers.calls(path, event)))


def inspect(
    repository: Repository, *, version: tuple[int, ...], python: str = sys.executable, package_dir: str = PACKAGE_DIR
) -> list[Finding]:
    """Returns what is not as `install` left it.

    Args:
        version: of git.
        python: the interpreter that the hooks should start.
        package_dir: the directory that should hold the package `gitckpt`.

    Raises:
        RepositoryError: a hook file cannot be read.
    """
    settings = HookSettings(repository)
    mode = settings.last(git_settings.MODE)
    if mode not in _MODES[1:]:
        return [Finding("hooks-not-installed", repository.common_dir, "gitckpt was never set up in this repository", _INIT)]
    directory = hooks_directory(repository)
    owner = managers.detect(repository, directory)
    person = owner or managers.unmanaged(repository, directory)
    pin = _pin(python, package_dir)
    findings: list[Finding] = []
    if mode == "config":
        findings = _inspect_config(settings, version, pin, person)
    elif mode == "files":
        findings = _inspect_files(repository, settings, directory, pin, person)
    elif mode == "external":
        is_wanted = owner is not None or settings.last(git_settings.CHOSEN) is not None
        findings = [_external_missing(person, event, is_wanted=is_wanted) for event in EVENTS if not person.calls(event)]
    if not settings.rewrites_notes():
        ref = git_settings.REWRITE_REF
        sentence = "amend and rebase leave the links of a commit to its checkpoints behind"
        findings.append(Finding("rewrite-ref-missing", ref, sentence, f"git config --add {ref} '{git_settings.OUR_NOTES}'"))
    return list(dict.fromkeys(findings))


def outlook(repository: Repository, *, version: tuple[int, ...]) -> str:
    """Returns what the next commit comes to: "recorded"; "missed", where a person has to do something first; "none"; or "not installed".

    Args:
        version: of git.

    Raises:
        RepositoryError: a hook file cannot be read.
    """
    mode = HookSettings(repository).last(git_settings.MODE)
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
    before = settings.last(git_settings.MODE)
    if settings.last(git_settings.CHOSEN) and before in _MODES[1:] and (before != "config" or has_config_hooks):
        return before
    if has_config_hooks:
        return "config"
    return "external" if is_managed else "files"


def _file_changes(repository: Repository, settings: HookSettings, pin: Pin, target: str | None) -> tuple[list[FileChange], list[str]]:
    """Returns the changes that put the block into the hook files of one directory and take it out of all other places.

    Returns:
        The changes, and advice about the files that must not be written.
    """
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
            elif not managers.calls(file.path, event):
                advice.append(f"{event}: {file.path} {file.obstacle}; make it call: {managers.call(event)}")
            aside = [files.read(file.path + suffix).without_block(event) for suffix in _ASIDE]
            changes += [each for each in (change, *aside) if each]
    return changes, advice


def _twice(person: Manager, event: str) -> str:
    return f"{event} calls gitckpt twice: {person.place(event)} has a line for it, too; take that line out"


def _prepare_directory(repository: Repository, settings: HookSettings, directory: str, undo: ExitStack) -> None:
    if not os.path.isdir(directory):
        settings.add(
            git_settings.SET_BY_INIT, git_settings.MADE_DIRECTORY, undo
        )  # before it is made, as who is killed in between notes nothing any more
        files.make_directory(directory, undo)
    if directory == default_directory(repository):
        settings.drop(git_settings.DIRECTORY, undo)
        return
    relative = os.path.relpath(directory, os.path.realpath(repository.common_dir))
    # Below the git directory it moves with the repository.
    settings.set(git_settings.DIRECTORY, directory if relative.startswith(os.pardir) else relative, undo)


def _set_hooks(settings: HookSettings, pin: Pin | None, undo: ExitStack) -> list[str]:
    """Sets the hooks in git's configuration, or takes them out where there is no pin; returns what it did."""
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
        return [Finding("hook-missing", git_settings.MODE, f"git {have} ignores the hooks that are set in its configuration", _INIT)]
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
    """Returns what is wrong with a block or command that is not the one we would write."""
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
    """Returns the hook file of an event; of one that pre-commit has moved aside, and calls, that: its own file it writes anew."""
    file = files.read(os.path.join(directory, event))
    aside = files.read(file.path + _ASIDE[0])
    is_called = aside.block is not None and file.block is None and managers.GENERATED_BY_PRE_COMMIT in (file.data or b"")
    return aside if is_called else file


def _shadowed(installed: str, directory: str, event: str) -> Finding | None:
    if installed == directory or files.read(os.path.join(installed, event)).block is None:
        return None
    sentence = f"git looks for hooks in {directory}, so those of gitckpt in {installed} never run"
    return Finding("hook-shadowed", "core.hooksPath", sentence, _INIT)


def _missing(file: HookFile, event: str) -> Finding:
    if file.obstacle:
        return Finding("hook-missing", file.path, f"{event} does not call gitckpt: the file {file.obstacle}", managers.call(event))
    return Finding("hook-missing", file.path, f"{event} does not call gitckpt", _INIT)


def _external_missing(person: Manager, event: str, *, is_wanted: bool) -> Finding:
    """Returns the finding; where nobody owns the hooks any more, and nobody chose to add lines, with what adds them."""
    where = person.place(event)
    shorter = f"{managers.BESIDE}; or " if person.name == managers.PRE_COMMIT else ""
    cure = f"{shorter}add to {where}: {person.line(event)}" if is_wanted else _INIT
    return Finding("hook-external-missing", where, f"{event} does not call gitckpt", cure)
