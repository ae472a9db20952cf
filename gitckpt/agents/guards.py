"""Keep what a shell command may destroy: files, commits, and the files of other worktrees.

No list of destructive commands is complete: redirections, scripts and formatters destroy work, too.
So every command that is not known to only read is preceded by a look at the worktree.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex

from gitckpt.git.objects import encoding
from gitckpt.git.repository import Repository, open_repository
from gitckpt.model.checkpoint import GUARD, Checkpoint
from gitckpt.model.errors import CkptError
from gitckpt.store.checkpoints import Checkpoints
from gitckpt.store.store import Store, checkpoints_of_store

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# Commands without an option that writes a file or runs another command.
_READERS = (
    *("basename", "cat", "cmp", "cut", "date", "df", "diff", "dirname", "du", "echo", "egrep"),
    *("false", "fgrep", "grep", "head", "id", "jobs", "less", "ls", "more", "nl", "printenv"),
    *("ps", "pwd", "readlink", "realpath", "stat", "tail", "test", "true", "tty", "type"),
    *("uname", "uptime", "wc", "which", "whoami"),
)
_GIT_READERS = (
    *("blame", "cat-file", "describe", "diff", "for-each-ref", "grep", "log", "ls-files"),
    *("merge-base", "name-rev", "rev-list", "rev-parse", "shortlog", "show", "show-ref"),
    *("status", "var", "version", "whatchanged"),
)
# A redirection, an expansion or a second command.
_NOT_PLAIN = re.compile(r"[<>|;&`$()\n\r\\]")
# Options of git's readers that write a file or run a program, also abbreviated.
_WRITING = re.compile(r"--(?:ou|ext-d|textc|open|filters)|-O")

_REF = re.compile(r"[^\s~^:?*\[\\\x00-\x1f\x7f]+")
MAX_MESSAGE = 200  # characters of a message
_MOST = 16  # worktrees that one command is searched for


def only_reads(command: str) -> bool:
    """Return whether a shell command surely changes no file."""
    if _NOT_PLAIN.search(command):
        return False
    words = command.split()
    if not words:
        return True
    if words[0] != "git":
        return words[0] in _READERS
    is_reader = len(words) > 1 and words[1] in _GIT_READERS
    return is_reader and not any(_WRITING.match(word) for word in words)


def words_of(command: str) -> list[str]:
    """Split a shell command into words, also those checkpoints_of_store of quoted commands."""
    lexer = shlex.shlex(command, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    try:
        words = list(lexer)
    except ValueError:  # an unclosed quote, such as in a here-document
        words = command.split()
    inner = [part for word in words if any(c.isspace() for c in word) for part in word.split()]
    return words + [part.strip("\"'();&|") for part in inner]


def worktrees_named(command: str, directory: str) -> list[str]:
    """Return the directories named by a command that lie outside of `directory`'s worktree.

    Each is the top of a worktree, or of a submodule; relative words count from `directory` and
    from the directories that the command names before (`cd ../other && rm -r src`).
    """
    own = _top_of(directory)
    bases, tops = [directory], dict[str, None]()
    for word in words_of(command):
        path = os.path.expanduser(os.path.expandvars(word.rpartition("=")[2]))
        if not path or path.startswith("-") or "\0" in path:
            continue
        for base in bases[:_MOST]:
            absolute = os.path.normpath(os.path.join(base, path))
            if not os.path.isdir(absolute):
                absolute = os.path.dirname(absolute)
                if "/" not in path or not os.path.isdir(absolute):
                    continue
            if absolute not in bases:
                bases.append(absolute)
            top = _top_of(absolute)
            if top is not None and top != own:
                tops[top] = None
    return list(tops)[:_MOST]


def _top_of(directory: str) -> str | None:
    """Return the nearest directory above with a `.git`; None without one."""
    path = os.path.realpath(directory)
    while not os.path.lexists(os.path.join(path, ".git")):
        parent = os.path.dirname(path)
        if parent == path:
            return None
        path = parent
    return path


def guard(user_store: Store, command: str) -> Checkpoint | None:
    """Keep what a command may destroy that is about to run in the current directory.

    Returns the new checkpoint; None if the files are as in the last one, or if the command only
    reads.
    """
    if only_reads(command):
        return None
    store, directory = checkpoints_of_store(user_store), os.getcwd()
    message = f"before: {' '.join(command.split())}"[:MAX_MESSAGE]
    keep_commits(store, command, message)
    capture_elsewhere(store, command, directory, message)
    if store.repository.worktree is None or store.unchanged() or store.is_clean():
        return None
    checkpoint_id = store.new_id()
    limits = store.settings_reader.read_limits().within_budget()
    details: Any = {"message": message, "trigger": GUARD, "if_changed": True, "id": checkpoint_id}
    saved = store.save("guard-complete", {"command": command}, limits=limits, **details)
    return saved if saved.id == checkpoint_id else None


def capture_elsewhere(store: Checkpoints, command: str, directory: str, message: str) -> None:
    """Capture the changed files of the other worktrees that a command names."""
    for top in worktrees_named(command, directory):
        # A repository that cannot be read, or that belongs to another user, is none of an agent's.
        with contextlib.suppress(CkptError):
            repository = open_repository(top, by_variables=False)
            with store.open_store_for(repository, "plumbing") as other:
                limits = other.settings_reader.read_limits().within_budget()
                details: Any = {"message": message, "trigger": GUARD, "if_changed": True}
                if not other.is_clean():
                    other.save("guard-complete", {"command": message}, limits=limits, **details)


# Keep commits

_DELETING = ("-d", "-D", "--delete", "-f", "--force", "-M", "-B", "-C")
_PRUNING = ("expire", "delete", "gc", "prune")


def keep_commits(store: Checkpoints, command: str, message: str, agent: str | None = None) -> None:
    """Record a checkpoint of the commits that a git command may leave without a ref.

    These are the stashes before `stash drop` or `clear`, the branches and tags that are named with
    an option that deletes or moves them, and what only reflogs have before these are pruned.
    """
    words = words_of(command)
    if "git" not in map(os.path.basename, words):
        return
    git, tips = store.repository.git, []
    if "stash" in words and not {"drop", "clear"}.isdisjoint(words):
        tips += git.run("rev-list", "--walk-reflogs", "refs/stash", "--", ok=(0, 128)).text.split()
    if not set(_DELETING).isdisjoint(words) or "update-ref" in words:
        tips += filter(None, (_commit_of(store.repository, word) for word in words))
    if not set(_PRUNING).isdisjoint(words):
        refs = ("--branches", "--tags", "--remotes", "--glob=refs/keep", "--glob=refs/stash")
        lost = git.run("rev-list", "--reflog", "--parents", "--not", *refs, ok=(0, 128)).text
        commits = [line.split() for line in lost.splitlines()]
        parents = {parent for _, *parents in commits for parent in parents}
        tips += [oid for oid, *_ in commits if oid not in parents]
    kept = "--glob=refs/keep/ckpt*"
    tips = [oid for oid in dict.fromkeys(tips) if not _is_reachable(store.repository, oid, kept)]
    if not tips:
        return
    base = tips[0]
    if len(tips) > 1:
        base, items = encoding.encode_merge_commit(tips, 0, store.repository.object_format)
        store.objects.write(items)
    details: Any = {"message": message, "trigger": GUARD, "agent": agent, "base": base}
    store.record("guard-complete", {"command": message, "commits": tips}, **details)


def _commit_of(repository: Repository, name: str) -> str | None:
    """Return the commit of a local branch or tag; None for any other word."""
    for prefix in ("refs/heads/", "refs/tags/", ""):
        ref = prefix + name
        if ref.startswith(("refs/heads/", "refs/tags/")) and _REF.fullmatch(ref):
            info = repository.cat_file.info(f"{ref}^{{commit}}")
            if info is not None:
                return info[0]
    return None


def _is_reachable(repository: Repository, oid: str, refs: str) -> bool:
    out = repository.git.run("rev-list", "--max-count=1", oid, "--not", refs, ok=(0, 128))
    return not out.text
