"""Refs: written by git's own transactions only, each update with the value it expects to replace.

A long-lived `git update-ref --stdin` serves many transactions; a long-lived `git cat-file` reads refs, fresh each time.
"""

from __future__ import annotations

import os
import time

from gitckpt.git import fsync
from gitckpt.git.command import DURABLE, Standby
from gitckpt.git.files.refs_stat import may_be_there, plain, require_no_pipes
from gitckpt.git.process import DeadlinePassed, GitError
from gitckpt.model.errors import BusyError, CkptError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from gitckpt.git.process import Child
    from gitckpt.git.repository import Repository

LOCK_TIMEOUT_MS = 2000
"""How long git waits for somebody else's `.lock` file."""

PATIENCE = 30.0
"""After how many seconds without an answer git is told that there is no more to come: its answer may be lost, and it would wait for us."""

_PATIENCE = 20.0  # seconds; a million refs are listed in three

_CHECKPOINTS = "refs/checkpoints"
"""The directory of what needs the others: once its name is flushed, a checkpoint is there."""


class RefMoved(BusyError):
    """A ref did not have the value that the update expected; nothing was changed."""


class LockHeld(BusyError):
    """A `.lock` file stayed in place for as long as we were willing to wait; nothing was changed.

    Args:
        path: the lock file.
    """

    def __init__(self, path: str) -> None:
        from gitckpt.model.arguments import shell_word

        super().__init__(
            f"another process holds {path}",
            hint="wait and try again; if nothing is running, a crash left it behind: "
            f"look at it, then remove it with rm {shell_word(path)}",
        )
        self.path = path


class Update:
    """One change of a ref within a transaction.

    Args:
        ref: full name.
        new: the oid it gets; "" deletes it; the old one only looks whether it still has that.
        old: the oid it must have; "" if it must not exist.
        is_symbolic: whether it is a symbolic ref, which gets the new oid itself even where what it stands for has that.
    """

    __slots__ = ("is_symbolic", "new", "old", "ref")

    def __init__(self, ref: str, new: str, old: str, *, is_symbolic: bool = False) -> None:
        self.ref = ref
        self.new = new
        self.old = old
        self.is_symbolic = is_symbolic

    def command(self) -> str:
        """The command of `git update-ref --stdin -z` for it."""
        if self.new == self.old and not self.is_symbolic:
            return f"verify {self.ref}\0{self.old}\0"  # a deletion without an old value would not ask for any
        if not self.new:
            return f"delete {self.ref}\0{self.old}\0"
        if not self.old:
            return f"create {self.ref}\0{self.new}\0"
        return f"update {self.ref}\0{self.new}\0{self.old}\0"


class Refs:
    """Reads and writes the refs of a repository.

    Args:
        heal: is given the lock file that is in the way of an update, and tells whether it is gone, so that the update is tried once more.
    """

    def __init__(self, repository: Repository, heal: Callable[[str], bool] | None = None) -> None:
        self._repository = repository
        self._heal = heal
        self._standby = Standby(lambda: repository.git.start(*_update_ref_options()))

    def update(self, updates: Iterable[Update], meanwhile: Callable[[], None] | None = None) -> None:
        """Applies all updates in one transaction, in this order; when this returns, they are on the disk.

        On the files backend a kill, a power cut or a full disk in between leaves the first ones done: the order is the safety. Where git
        alone is killed, its answer is lost, or the disk is full for a moment, what it has left undone is done by another one. What a
        ref points to has to be on the disk before the first one is done.

        Args:
            updates: what is to change.
            meanwhile: flushes what the refs point to, while git flushes its locks with the new values; nothing is done before it
                returns, nor where it raises. It is called again where git was killed.

        Raises:
            CkptError: the disk reports an error; they were applied, and may be gone after a power cut.
            RefMoved: a ref did not have its expected value; none was changed.
            LockHeld: a lock file stayed in the way; none was changed.
            GitError: git refused for another reason: none was changed; or it could not go on, twice, and the first ones are done.
        """
        meant = list(updates)
        try:
            self._apply_healed(meant, meanwhile)
        except GitError as error:
            # What git says at its end where its answers were lost; and where a ref could not get its name, when others had theirs.
            if error.code > 0 and not any(words in error.stderr for words in ("write failure", "couldn't set '")):
                raise
            left = self._left_undone(meant)
            if left == meant and error.code > 0 and "write failure" not in error.stderr:
                raise
            if left == meant or any(update.new != update.old for update in left):
                self._apply_healed(left, meanwhile)
        changes = [update for update in meant if update.new != update.old]
        if changes:
            self._flush(changes)

    def _left_undone(self, updates: list[Update]) -> list[Update]:
        """Returns what of a transaction is still to do, by the refs as they are; all of it where nothing was done."""
        values = dict(self.each())
        return [update for update in updates if update.new == update.old or values.get(update.ref, "") != update.new]

    def _apply_healed(self, updates: list[Update], meanwhile: Callable[[], None] | None) -> None:
        try:
            self._apply(updates, meanwhile)
        except LockHeld as error:
            if self._heal is None or not self._heal(error.path):
                raise
            self._apply(updates, meanwhile)

    def _apply(self, updates: list[Update], meanwhile: Callable[[], None] | None) -> None:
        commands = b"start\0" + "".join(update.command() for update in updates).encode("utf-8", "surrogateescape")
        writer = self._standby.take()
        try:
            if meanwhile is None:
                committed = _goes(writer, commands + b"commit\0", "start", "commit")
            else:
                writer.write(commands + b"prepare\0")
                meanwhile()  # git may still be at it afterwards: where it fails, it never reads what comes then
                committed = _goes(writer, b"commit\0", "start", "prepare", "commit")
        except BrokenPipeError:
            committed = False
        except BaseException:
            writer.close()  # waits until git has either done it or not
            raise
        if not committed:
            done = writer.communicate()
            raise failure(self._repository, done.code, done.complaint)
        self._standby.give_back(writer)

    def _flush(self, changes: list[Update]) -> None:
        """Flushes the directories where refs have changed: git flushes what it renames, and not the new name.

        What stands before a checkpoint in the transaction is what it needs, and goes first; what comes with it, and after it, at once.
        """
        common = self._repository.common_dir
        if self._repository.has_reftable:
            # The list of tables is on the disk by now: where it names one of the user's that is not, git can read no ref at all.
            place = os.path.join(common, "reftable")
            fsync.flush([*(os.path.join(place, name) for name in os.listdir(place)), place])
            return
        if any(not change.new for change in changes):
            fsync.flush([os.path.join(common, "packed-refs"), common])  # which git writes first
        names = [change.ref for change in changes]
        own = next((at for at, name in enumerate(names) if name.startswith(f"{_CHECKPOINTS}/")), len(names))
        flushed: set[str] = set()
        for lot in (names[:own], names[own:]):
            directories = {above for name in lot for above in _above(name)} - flushed
            fsync.flush(os.path.join(common, directory) for directory in directories)
            flushed |= directories

    def read(self, ref: str) -> str | None:
        """Returns the oid that a ref points to, whether its object is there or not; None where there is no such ref."""
        loose = plain(self._repository, ref)
        if loose is not None:
            return loose
        found = self._repository.cat_file.info(ref)
        if found is not None:
            return found[0]
        if not may_be_there(self._repository, ref):
            return None
        done = self._repository.git.run("rev-parse", "--quiet", "--verify", ref, ok=(0, 1, 128))
        return done.out.decode("ascii").strip() or None

    def list(self, *patterns: str, fields: str = "%(objectname) %(refname)") -> bytes:
        """Returns a line for each ref below the patterns, sorted by name.

        Args:
            patterns: complete directories such as `refs/checkpoints`, or globs.
            fields: a format of `git for-each-ref`.
        """
        words = ("for-each-ref", f"--format={fields}", *patterns)
        try:
            return self._repository.git.run(*words, deadline=time.monotonic() + _PATIENCE).out
        except DeadlinePassed:
            require_no_pipes(self._repository)
            return self._repository.git.run(*words).out  # there are many, or the disk is slow

    def each(self, *patterns: str) -> Iterator[tuple[str, str]]:
        """Yields full name and oid of each ref below the patterns, sorted by name; bytes that are not UTF-8 become surrogates.

        Args:
            patterns: as for `list`, also with a slash at their ends.
        """
        listing = self.list(*(pattern.rstrip("/") for pattern in patterns))
        for line in listing.decode("utf-8", "surrogateescape").split("\n")[:-1]:
            oid, _, ref = line.partition(" ")
            yield ref, oid

    def warm_up(self) -> None:
        """Starts the process now, so that it stands by when it is needed."""
        self._standby.warm_up()

    def close(self) -> None:
        """Ends the long-lived process."""
        self._standby.close()


def failure(repository: Repository, code: int, said: str) -> CkptError:
    """Returns the error for what `git update-ref` said on standard error."""
    if "Unable to create '" in said and "File exists" in said:
        return LockHeld(said.partition("Unable to create '")[2].partition("': File exists")[0])
    if "cannot lock references" in said or "data is locked" in said:
        return LockHeld(os.path.join(repository.common_dir, "reftable", "tables.list.lock"))
    for line in said.split("\n"):
        # A ref that is broken rather than gone cannot be resolved either: "…: reference broken".
        vanished = "unable to resolve reference '" in line and line.endswith("'")
        if vanished or any(words in line for words in ("reference already exists", "but expected", "reference is missing")):
            what = line.removeprefix("fatal: ").removeprefix("prepare: ").removeprefix("commit: ")
            return RefMoved(what, hint="somebody else was faster; run the command again")
    is_barred = "exists; cannot create" in said
    return GitError(["update-ref"], code, said, hint="see what is in the way: git ckpt doctor" if is_barred else None)


def _above(ref: str) -> Iterator[str]:
    """Yield the directories above a ref, up to `refs`: git may have made all of them for it."""
    while ref := os.path.dirname(ref):
        yield ref


def _goes(writer: Child, commands: bytes, *steps: str) -> bool:
    """Has git do what the commands say, and tells whether it confirms each step."""
    writer.write(commands)
    return all(writer.read_line(PATIENCE) == f"{step}: ok".encode("ascii") for step in steps)


def _update_ref_options() -> tuple[str, ...]:
    names = ("core.filesRefLockTimeout", "core.packedRefsTimeout", "reftable.lockTimeout")
    timeouts = [option for name in names for option in ("-c", f"{name}={LOCK_TIMEOUT_MS * (2 if 'packed' in name else 1)}")]
    # No reflogs: one of the notes would keep every old tree of theirs alive. A symbolic ref in the place of one of ours is what changes,
    # never what it points to: that may be a branch.
    return (*DURABLE, *timeouts, "-c", "core.logAllRefUpdates=false", "update-ref", "--no-deref", "--stdin", "-z")
