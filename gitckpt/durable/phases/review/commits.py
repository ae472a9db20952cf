"""The commits of a worktree: one for each cycle, made as the user would make it, hooks and all."""

from __future__ import annotations

from collections.abc import Mapping

from gitckpt.durable.phases.review.errors import CommitRefused
from gitckpt.durable.phases.review.text import first_line
from gitckpt.git import process
from gitckpt.git.command import DURABLE
from gitckpt.git.process import Completed, GitError
from gitckpt.model import ids

SAME, ANCESTOR, DIVERGED, UNKNOWN = "same", "ancestor", "diverged", "unknown"

_SUBJECT = 72
_LAST_LINES = 5
_ERRORS = ("fatal: ", "error: ")
_NO_IDENTITY = ("tell me who you are", "auto-detect email address", "empty ident name", "no email was given", "no name was given")


class Commits:
    """Makes the commits of a worktree.

    Args:
        path: its top.
        env: variables for git and for the hooks that it calls.
    """

    def __init__(self, path: str, env: Mapping[str, str] | None = None) -> None:
        self._prefix = [process.git_executable(), *DURABLE, "-C", path]
        self._env = process.environment(env)

    def head(self) -> str:
        """Returns HEAD's oid; "" on an unborn branch.

        Raises:
            GitError: there is no repository.
        """
        done = self._git("rev-parse", "--quiet", "--verify", "HEAD^{commit}")
        if done.code not in (0, 1):
            raise GitError(["rev-parse"], done.code, done.complaint)
        return done.out.decode("ascii").strip()

    def commit(self, task: str, cycle: int, title: str, suffix: str = "") -> str:
        """Commits all that has changed and is not ignored, and returns HEAD; where nothing has, nothing is committed.

        Args:
            task: the name of the task.
            cycle: the number of the cycle.
            title: the task; its first line, 72 characters at most, ends the subject `<task>/cycle-<n>: <title>`.
            suffix: what follows it, such as " (lint fix)".

        Raises:
            CommitRefused: git cannot commit, or a hook refuses to.
        """
        what = f"the work of cycle {cycle}"
        done = self._git("add", "--all")
        if done.code != 0:
            raise CommitRefused(f"{what} cannot be staged: {_complaint(done)}", output=done.complaint)
        if self._git("diff", "--cached", "--quiet").code == 0:
            return self.head()
        done = self._git(
            "commit", "--quiet", "--message", f"{first_line(task, _SUBJECT)}/cycle-{cycle}: {first_line(title, _SUBJECT)}{suffix}"
        )
        if done.code != 0:
            raise _refused(what, done)
        return self.head()

    def relation(self, recorded: str) -> str:
        """Returns how a recorded commit relates to HEAD.

        Args:
            recorded: its oid; "" for an unborn branch, which every commit comes after.

        Returns:
            SAME; ANCESTOR, where HEAD has moved on from it; DIVERGED; or UNKNOWN, where there is no such commit.
        """
        head = self.head()
        if recorded == head:
            return SAME
        if not recorded:
            return ANCESTOR
        if not ids.is_oid(recorded) or self._git("cat-file", "-e", f"{recorded}^{{commit}}").code != 0:
            return UNKNOWN
        return ANCESTOR if head and self._git("merge-base", "--is-ancestor", recorded, head).code == 0 else DIVERGED

    def _git(self, *args: str) -> Completed:
        return process.run([*self._prefix, *args], env=self._env)


def _refused(what: str, done: Completed) -> CommitRefused:
    said = done.complaint
    if any(words in said.lower() for words in _NO_IDENTITY):
        hint = "tell git who commits: git config --global user.name NAME; git config --global user.email ADDRESS"
        return CommitRefused(f"{what} cannot be committed: git does not know who commits", output=said, hint=hint)
    hint = "see what a hook of yours asks for, change it or the files, then resume the run: the coder is not asked again"
    return CommitRefused(f"{what} was not committed: {_said(done)}", code=done.code, output=said, hint=hint)


def _complaint(done: Completed) -> str:
    """Returns what git complains of, without its advice."""
    lines = [line for line in done.complaint.splitlines() if line.startswith(_ERRORS)]
    return lines[0].partition(": ")[2] if lines else _said(done)


def _said(done: Completed) -> str:
    """Returns the last words of git or of a hook, which may talk on either stream."""
    text = done.complaint + done.out.decode("utf-8", "replace")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return "; ".join(lines[-_LAST_LINES:]) or f"exit code {done.code}"
