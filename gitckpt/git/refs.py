"""Refs: written by git's own transactions only, each update with the value it expects to replace.

A long-lived `git update-ref --stdin` serves many transactions; a long-lived `git cat-file` reads refs, fresh each time.
"""

from __future__ import annotations

import os

from gitckpt.git.process import GitError
from gitckpt.git.repository import DURABLE
from gitckpt.model.errors import BusyError, CkptError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gitckpt.git.process import Child
    from gitckpt.git.repository import Repository

LOCK_TIMEOUT_MS = 2000
"""How long git waits for somebody else's `.lock` file."""

PACK_FROM = 1000
"""So many loose refs of ours are packed together."""


class RefMoved(BusyError):
    """A ref did not have the value that the update expected; nothing was changed."""


class LockHeld(BusyError):
    """A `.lock` file stayed in place for as long as we were willing to wait; nothing was changed.

    Args:
        path: the lock file.
    """

    def __init__(self, path: str) -> None:
        super().__init__(
            f"another process holds {path}",
            hint=f"wait and try again; if nothing is running, a crash left it behind: look at it, then remove it with rm '{path}'",
        )
        self.path = path


class Update:
    """One change of a ref within a transaction.

    Args:
        ref: full name.
        new: the oid it gets; "" deletes it.
        old: the oid it must have; "" if it must not exist.
    """

    __slots__ = ("new", "old", "ref")

    def __init__(self, ref: str, new: str, old: str) -> None:
        self.ref = ref
        self.new = new
        self.old = old

    def line(self) -> str:
        """The command of `git update-ref --stdin` for it."""
        if not self.new:
            return f"delete {self.ref} {self.old}\n"
        if not self.old:
            return f"create {self.ref} {self.new}\n"
        return f"update {self.ref} {self.new} {self.old}\n"


class Refs:
    """Reads and writes the refs of a repository.

    Args:
        repository: where.
    """

    def __init__(self, repository: Repository) -> None:
        self._repository = repository
        self._writer: Child | None = None

    def update(self, updates: Iterable[Update]) -> None:
        """Applies all updates in one transaction, in this order, flushed to the disk.

        On the files backend a kill in between leaves the first ones done: the order is the safety.

        Raises:
            RefMoved: a ref did not have its expected value; none was changed.
            LockHeld: a lock file stayed in the way; none was changed.
            GitError: git refused for another reason; none was changed.
        """
        lines = "".join(update.line() for update in updates)
        writer = self._started_writer()
        try:
            writer.write(f"start\n{lines}commit\n".encode())
            committed = writer.read_line() == b"start: ok" and writer.read_line() == b"commit: ok"
        except BrokenPipeError:
            committed = False
        except BaseException:
            self._forget_writer()
            raise
        if not committed:
            raise self._failure()

    def read(self, ref: str) -> str | None:
        """Returns the oid that a ref points to, or None where there is no such ref or its object is missing."""
        found = self._repository.cat_file.info(ref)
        return None if found is None else found[0]

    def list(self, *patterns: str, fields: str = "%(objectname) %(refname)") -> bytes:
        """Returns a line for each ref below the patterns, sorted by name.

        Args:
            patterns: complete directories such as `refs/checkpoints`, or globs.
            fields: a format of `git for-each-ref`.
        """
        return self._repository.git.run("for-each-ref", f"--format={fields}", *patterns).out

    def close(self) -> None:
        """Ends the long-lived process."""
        writer = self._forget_writer()
        if writer is not None:
            writer.close()

    def _started_writer(self) -> Child:
        if self._writer is None or self._writer.owner != os.getpid():
            self._writer = self._repository.git.start(*_update_ref_options())
        return self._writer

    def _forget_writer(self) -> Child | None:
        writer, self._writer = self._writer, None
        return writer

    def _failure(self) -> CkptError:
        writer = self._forget_writer()
        done = writer.communicate() if writer is not None else None
        return failure(done.code if done else 0, done.complaint if done else "")


def update_once(repository: Repository, updates: Sequence[Update]) -> None:
    """Applies updates as `Refs.update` does, by a process that lives for this transaction only.

    Raises:
        RefMoved, LockHeld, GitError: as `Refs.update`.
    """
    lines = "".join(update.line() for update in updates)
    try:
        repository.git.run(*_update_ref_options(), data=f"start\n{lines}commit\n".encode())
    except GitError as error:
        raise failure(error.code, error.stderr) from None


def failure(code: int, said: str) -> CkptError:
    """Returns the error for what `git update-ref` said on standard error."""
    if "Unable to create '" in said and "File exists" in said:
        return LockHeld(said.partition("Unable to create '")[2].partition("': File exists")[0])
    moved = ("reference already exists", "but expected", "unable to resolve reference", "reference is missing")
    if any(words in said for words in moved):
        return RefMoved(said.strip().splitlines()[0].removeprefix("fatal: "), hint="somebody else was faster; run the command again")
    return GitError(["update-ref"], code, said)


def _update_ref_options() -> tuple[str, ...]:
    timeouts = (f"core.filesRefLockTimeout={LOCK_TIMEOUT_MS}", f"core.packedRefsTimeout={2 * LOCK_TIMEOUT_MS}")
    return (*DURABLE, "-c", timeouts[0], "-c", timeouts[1], "update-ref", "--stdin")
