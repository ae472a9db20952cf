"""Read refs, and write them in git's own transactions with expected values.

A long-lived `git update-ref --stdin` serves many transactions; a long-lived `git cat-file` reads
refs, fresh each time.
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

LOCK_TIMEOUT_MS = 2000  # for a `.lock` file of another process

# Seconds until git's input is closed: if its answer is lost, both sides would wait forever.
PATIENCE = 30.0

_PATIENCE = 20.0  # seconds; a million refs are listed in three

# Directory of the refs that need the others: once its name is flushed, the checkpoint exists.
_CHECKPOINTS = "refs/checkpoints"


class RefMoved(BusyError):
    """A ref did not have the expected value; nothing was changed."""


class LockHeld(BusyError):
    """A lock file stayed in place until the timeout; nothing was changed."""

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

    An empty `new` deletes the ref; `new` equal to `old` verifies it. An empty `old`: it must not
    exist. A symbolic ref is replaced itself, even where its target has the new oid.
    """

    __slots__ = ("is_symbolic", "new", "old", "ref")

    def __init__(self, ref: str, new: str, old: str, *, is_symbolic: bool = False) -> None:
        self.ref = ref
        self.new = new
        self.old = old
        self.is_symbolic = is_symbolic

    def command(self) -> str:
        if self.new == self.old and not self.is_symbolic:
            return f"verify {self.ref}\0{self.old}\0"  # deleting with an empty old value checks nothing
        if not self.new:
            return f"delete {self.ref}\0{self.old}\0"
        if not self.old:
            return f"create {self.ref}\0{self.new}\0"
        return f"update {self.ref}\0{self.new}\0{self.old}\0"


class Refs:
    """The refs of a repository.

    `heal` receives the lock file that blocks an update. If it returns True, the file is gone, and
    the update is tried once more.
    """

    def __init__(self, repository: Repository, heal: Callable[[str], bool] | None = None) -> None:
        self._repository = repository
        self._heal = heal
        self._standby = Standby(lambda: repository.git.start(*_update_ref_options()))

    def update(self, updates: Iterable[Update], meanwhile: Callable[[], None] | None = None) -> None:
        """Apply all updates in one transaction, in this order, and flush them to the disk.

        With the files backend, a kill, a power cut or a full disk may leave only the first ones
        applied: callers choose a safe order. If git alone is killed, its answer is lost or the disk
        is full for a moment, a second git applies the rest. Objects must be on the disk before.

        Args:
            meanwhile: flushes the objects that the refs point to, while git flushes its locks.
                Nothing is applied before it returns, or if it raises. It runs again if git was
                killed.

        Raises:
            CkptError: the updates were applied, but could not be flushed.
            RefMoved: a ref did not have its expected value; none was changed.
            LockHeld: a lock file stayed in the way; none was changed.
            GitError: git refused and changed none; or it failed twice with the first ones applied.
        """
        meant = list(updates)
        try:
            self._apply_healed(meant, meanwhile)
        except GitError as error:
            # "write failure": git's answers were lost. "couldn't set": a later rename failed.
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
        # All of the transaction if nothing was applied.
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
                meanwhile()  # git may still prepare; if that fails, it never reads the commit
                committed = _goes(writer, b"commit\0", "start", "prepare", "commit")
        except BrokenPipeError:
            committed = False
        except BaseException:
            writer.close()  # waits until git has applied it or not
            raise
        if not committed:
            done = writer.communicate()
            raise failure(self._repository, done.code, done.complaint)
        self._standby.give_back(writer)

    def _flush(self, changes: list[Update]) -> None:
        # git flushes the files that it renames, but not their new names. Refs before the checkpoint
        # are what it needs and go first; the checkpoint and what follows go together.
        common = self._repository.common_dir
        if self._repository.has_reftable:
            # If the table list names a table that is not on the disk, git can read no ref at all.
            place = os.path.join(common, "reftable")
            fsync.flush([*(os.path.join(place, name) for name in os.listdir(place)), place])
            return
        if any(not change.new for change in changes):
            fsync.flush([os.path.join(common, "packed-refs"), common])  # git writes it first
        names = [change.ref for change in changes]
        first_checkpoint = next((at for at, name in enumerate(names) if name.startswith(f"{_CHECKPOINTS}/")), len(names))
        flushed: set[str] = set()
        for group in (names[:first_checkpoint], names[first_checkpoint:]):
            directories = {above for name in group for above in _above(name)} - flushed
            fsync.flush(os.path.join(common, directory) for directory in directories)
            flushed |= directories

    def read(self, ref: str) -> str | None:
        """Return the oid of a ref, whether its object exists or not; None without a ref."""
        loose = plain(self._repository, ref)
        if loose is not None:
            return loose
        entry = self._repository.cat_file.info(ref)
        if entry is not None:
            return entry[0]
        if not may_be_there(self._repository, ref):
            return None
        done = self._repository.git.run("rev-parse", "--quiet", "--verify", ref, ok=(0, 1, 128))
        return done.out.decode("ascii").strip() or None

    def list(self, *patterns: str, fields: str = "%(objectname) %(refname)") -> bytes:
        """Return a line for each ref below complete directories or globs, sorted by name."""
        words = ("for-each-ref", f"--format={fields}", *patterns)
        try:
            return self._repository.git.run(*words, deadline=time.monotonic() + _PATIENCE).out
        except DeadlinePassed:
            require_no_pipes(self._repository)
            return self._repository.git.run(*words).out  # many refs, or a slow disk

    def each(self, *patterns: str) -> Iterator[tuple[str, str]]:
        """Yield full name (surrogates for bytes that are not UTF-8) and oid, sorted."""
        listing = self.list(*(pattern.rstrip("/") for pattern in patterns))
        for line in listing.decode("utf-8", "surrogateescape").split("\n")[:-1]:
            oid, _, ref = line.partition(" ")
            yield ref, oid

    def warm_up(self) -> None:
        self._standby.warm_up()

    def close(self) -> None:
        self._standby.close()


def failure(repository: Repository, code: int, said: str) -> CkptError:
    if "Unable to create '" in said and "File exists" in said:
        return LockHeld(said.partition("Unable to create '")[2].partition("': File exists")[0])
    if "cannot lock references" in said or "data is locked" in said:
        return LockHeld(os.path.join(repository.common_dir, "reftable", "tables.list.lock"))
    for line in said.split("\n"):
        # For a broken ref, the line ends differently: "…: reference broken".
        vanished = "unable to resolve reference '" in line and line.endswith("'")
        if vanished or any(words in line for words in ("reference already exists", "but expected", "reference is missing")):
            what = line.removeprefix("fatal: ").removeprefix("prepare: ").removeprefix("commit: ")
            return RefMoved(what, hint="somebody else was faster; run the command again")
    is_barred = "exists; cannot create" in said
    return GitError(["update-ref"], code, said, hint="see what is in the way: git ckpt doctor" if is_barred else None)


def _above(ref: str) -> Iterator[str]:
    # Up to `refs`: git may have created each of them for this ref.
    while ref := os.path.dirname(ref):
        yield ref


def _goes(writer: Child, commands: bytes, *steps: str) -> bool:
    writer.write(commands)
    return all(writer.read_line(PATIENCE) == f"{step}: ok".encode("ascii") for step in steps)


def _update_ref_options() -> tuple[str, ...]:
    names = ("core.filesRefLockTimeout", "core.packedRefsTimeout", "reftable.lockTimeout")
    timeouts = [option for name in names for option in ("-c", f"{name}={LOCK_TIMEOUT_MS * (2 if 'packed' in name else 1)}")]
    # No reflogs: one of the notes ref would keep all their old trees alive. `--no-deref` because a
    # symbolic ref in place of gitckpt's own may point to a branch.
    return (*DURABLE, *timeouts, "-c", "core.logAllRefUpdates=false", "update-ref", "--no-deref", "--stdin", "-z")
