"""Tell whether a shell command only reads, and which words it consists of.

A hook calls this before each command of an agent, so it imports little.
"""

from __future__ import annotations

import re

# Commands without an option that writes a file or runs another command.
_READERS = (
    *("basename", "cat", "cmp", "cut", "df", "diff", "dirname", "du", "echo", "egrep"),
    *("false", "fgrep", "grep", "head", "id", "jobs", "ls", "nl", "printenv"),
    *("ps", "pwd", "readlink", "realpath", "stat", "tail", "test", "true", "tty", "type"),
    *("uname", "uptime", "wc", "which", "whoami"),
)
_GIT_READERS = (
    *("blame", "cat-file", "describe", "diff", "for-each-ref", "grep", "log", "ls-files"),
    *("merge-base", "name-rev", "rev-list", "rev-parse", "shortlog", "show", "show-ref"),
    *("status", "var", "version", "whatchanged"),
)
# Subcommands of git that can destroy uncommitted work or unreferenced commits. Guards also save
# before other commands; only before these do they announce the checkpoint.
DESTRUCTIVE = (
    *("am", "apply", "bisect", "branch", "checkout", "checkout-index", "cherry-pick", "clean"),
    *("filter-branch", "gc", "merge", "mv", "prune", "pull", "read-tree", "rebase", "reflog"),
    *("reset", "restore", "revert", "rm", "sparse-checkout", "stash", "submodule", "switch"),
    *("tag", "update-ref", "worktree"),
)
# A redirection, an expansion or a second command.
_NOT_PLAIN = re.compile(r"[<>|;&`$()\n\r\\]")
# Options of git's readers that write a file or run a program, also abbreviated and bundled.
_WRITING = re.compile(r"--(?:ou|op|ex|textc|filters)|-[A-Za-z]*O")
_SEPARATORS = re.compile(r"""[\s'"`;&|()<>]+""")
_MAX_SEARCHED = 1 << 16  # characters of a command that are searched for names


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


def is_destructive(command: str) -> bool:
    """Return whether a command deletes files or calls a destructive subcommand of git."""
    words = set(words_of(command))
    return "rm" in words or ("git" in words and not words.isdisjoint(DESTRUCTIVE))


def words_of(command: str) -> list[str]:
    """Split a shell command into words; a quoted command within it as well."""
    import shlex

    lexer = shlex.shlex(command[:_MAX_SEARCHED], posix=True, punctuation_chars=True)
    lexer.whitespace_split, lexer.commenters = True, ""
    try:
        words = list(lexer)
    except ValueError:  # an unclosed quote, such as in a here-document
        words = []
    inner = _SEPARATORS.split(command[:_MAX_SEARCHED])
    return list(dict.fromkeys(filter(None, [*words, *inner])))
