"""Save the files and commits that a shell command may destroy.

No list of destructive commands is complete: redirections, scripts and formatters destroy work, too.
So every command that is not known to only read is preceded by a look at the worktree.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence

from gitckpt.agents.shell_command import is_destructive, only_reads, words_of
from gitckpt.git.objects import encoding
from gitckpt.git.repository import open_repository
from gitckpt.git.worktree import administration
from gitckpt.model.checkpoint import GUARD, Checkpoint
from gitckpt.model.errors import CkptError
from gitckpt.store import error_log, secrets
from gitckpt.store.checkpoints import Checkpoints
from gitckpt.store.store import Store, checkpoints_of_store

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MAX_MESSAGE = 200  # characters of a message
_MOST = 16  # worktrees, and directories that a command changes to


def protect(
    store: Checkpoints,
    command: str,
    directory: str,
    save: Callable[[str], Checkpoint | None],
    agent: str | None = None,
) -> Checkpoint | None:
    """Save what a command may destroy; return the checkpoint that has the files.

    Returns None if no file has changed. Also if the last checkpoint has the changes, unless the
    command is destructive.

    Args:
        command: the shell command that is about to run.
        directory: where it runs.
        save: records a checkpoint of the current worktree with a message; called only if the
            worktree has changed.
        agent: the client that runs the command; None for a person.
    """
    if only_reads(command):
        return None
    message = secrets.mask_text(f"before: {' '.join(command.split())}")[:MAX_MESSAGE]
    saved = None
    if store.repository.worktree is not None:
        last = store.unchanged()
        if last is None:
            saved = save(message) if not store.is_clean() else None
        elif last.worktree is not None and last.worktree.dirty and is_destructive(command):
            saved = last
    for keep in (keep_commits, capture_other_worktrees):
        try:
            keep(store, command, directory, message, agent)
        except (CkptError, OSError) as error:  # the current worktree is safe; the command runs
            error_log.append_to_log(store.repository, f"guard: {type(error).__name__}: {error}")
    return saved


def guard(user_store: Store, command: str) -> Checkpoint | None:
    """Keep what a command may destroy that is about to run in the current directory.

    Returns what `protect` does. The checkpoint has no files if the time limit passed: see
    `Worktree.degraded`.
    """
    store = checkpoints_of_store(user_store)
    return protect(store, command, os.getcwd(), lambda message: _save(store, message))


def _save(store: Checkpoints, message: str, agent: str | None = None) -> Checkpoint | None:
    checkpoint_id = store.new_id()
    limits = store.settings_reader.read_limits_within_budget()
    details: Any = {"message": message, "trigger": GUARD, "agent": agent, "id": checkpoint_id}
    state = {"command": message.removeprefix("before: ")}
    saved = store.save("guard-complete", state, limits=limits, if_changed=True, **details)
    return saved if saved.id == checkpoint_id else None


# Other worktrees of the repository


def capture_other_worktrees(
    store: Checkpoints, command: str, directory: str, message: str, agent: str | None
) -> None:
    """Capture the changed files of the other worktrees that a command may touch."""
    own = store.repository.worktree
    tops = [top for _, top in administration.list_worktrees(store.repository)]
    main = administration.main_worktree(store.repository)
    others = [top for top in [*tops, *([main] if main else [])] if top != own]
    for top in worktrees_named(command, directory, others, own)[:_MOST]:
        repository = open_repository(top, by_variables=False)
        with store.open_store_for(repository, "plumbing") as other:
            if not other.is_clean():
                _save(other, message, agent)


def worktrees_named(
    command: str, directory: str, tops: Iterable[str], own: str | None
) -> list[str]:
    """Return which worktrees, given by their tops, a command may touch.

    These lie inside of the worktree `own`, or at, above or below a path that the command names:
    relative to `directory`, or to a directory named before (`cd ../other && make clean`). git also
    takes the last part of a worktree's path for it.
    """
    existing = [top for top in tops if os.path.isdir(top)]
    named = {top for top in existing if own is not None and top.startswith(f"{own}/")}
    if not existing:
        return []
    words = words_of(command)
    bases = [directory]
    for word in words:
        text = word.rpartition("=")[2] if "=" in word else word.removeprefix("-C")
        path = os.path.expanduser(os.path.expandvars(text)).rstrip("/")
        if not path or "\0" in path:
            continue
        named |= {top for top in existing if top.endswith(f"/{path}")}
        stem = path.partition("*")[0].partition("?")[0]  # such as `../wt-*`
        for base in bases[:_MOST]:
            absolute = os.path.realpath(os.path.join(base, path))
            start = os.path.realpath(base) if path == "." else absolute
            prefix = os.path.normpath(os.path.join(base, stem)) if stem != path else f"{start}/"
            named |= {top for top in existing if f"{top}/".startswith(prefix)}
            named |= {top for top in existing if absolute.startswith(f"{top}/")}
            if os.path.isdir(absolute) and absolute not in bases:
                bases.append(absolute)
    return [top for top in existing if top in named]


# Commits

# `-d`, `-D`, `-f`, `-M`, `-B`, `-C`, `--delete`, `--force` and their abbreviations and bundles.
_DELETING = re.compile(r"-[A-Za-z]*[dDfMBC]|--(?:de|fo)")
_PRUNING = ("expire", "delete", "drop", "gc", "prune")
_REFS = ("--branches", "--tags", "--remotes", "--glob=refs/keep", "--glob=refs/stash")


def keep_commits(store: Checkpoints, command: str, _: str, message: str, agent: str | None) -> None:
    """Record a checkpoint of the commits that a git command may leave without a ref.

    These are the stashes before `stash drop` or `clear`; the tips of all branches and tags before
    an option that deletes or moves one; and what only reflogs have before these are pruned.
    """
    words = words_of(command)
    if "git" not in map(os.path.basename, words):
        return
    git, tips = store.repository.git, set[str]()
    if "stash" in words and not {"drop", "clear", "pop"}.isdisjoint(words):
        tips |= {*git.run("rev-list", "-g", "refs/stash", "--", ok=(0, 128)).text.split()}
    if any(map(_DELETING.match, words)) and not {"branch", "tag", "checkout", "switch"}.isdisjoint(
        words
    ):
        tips |= _list_tips(store)
    if "update-ref" in words or "fetch" in words:
        tips |= _list_tips(store)
    if not set(_PRUNING).isdisjoint(words):
        options = ("--reflog", "--parents", "--not", *_REFS)
        lines = git.run("rev-list", *options, ok=(0, 128)).text.splitlines()
        commits = [line.split() for line in lines]
        parents = {parent for _, *parents in commits for parent in parents}
        tips |= {oid for oid, *_ in commits} - parents
    _link(store, sorted(tips), message, agent)


def _list_tips(store: Checkpoints) -> set[str]:
    listing = store.refs.list_refs("refs/heads", "refs/tags", fields="%(objectname) %(*objectname)")
    oids = [line.split()[-1] for line in listing.decode("ascii").splitlines() if line.split()]
    infos = {oid: store.repository.cat_file.info(oid) for oid in dict.fromkeys(oids)}
    return {oid for oid, info in infos.items() if info is not None and info[1] == "commit"}


def _link(store: Checkpoints, tips: Sequence[str], message: str, agent: str | None) -> None:
    """Record a checkpoint of commits, unless one of them has been recorded before."""
    if len(tips) == 1:
        kept = store.repository.git.run(
            "rev-list", "-n1", tips[0], "--not", "--glob=refs/keep/ckpt*", ok=(0, 128)
        )
        if not kept.text:
            return
    elif not tips:
        return
    base = tips[0]
    if len(tips) > 1:
        base, items = encoding.encode_merge_commit(tips, 0, store.repository.object_format)
        if store.repository.cat_file.info(base) is not None:
            return  # the same tips as before
        store.objects.write(items)
    details: Any = {"message": message, "trigger": GUARD, "agent": agent, "base": base}
    store.record("guard-complete", {"commits": [*tips]}, **details)
