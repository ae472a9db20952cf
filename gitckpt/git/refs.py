"""Read refs, and update them in git transactions that check the old values."""

from __future__ import annotations

import os
import time

from gitckpt.git import fsync
from gitckpt.git.command import DURABLE, StandbyProcess, config_options
from gitckpt.git.files.refs_stat import may_ref_exist, read_loose_ref, require_no_pipes_in_refs
from gitckpt.git.process import DeadlinePassed, GitError
from gitckpt.model.errors import BusyError, CkptError
from gitckpt.model.values import dataclass

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
    """A ref did not have the expected value, so no ref was changed."""


class LockHeld(BusyError):
    """Another process kept a lock file until the timeout, so nothing was changed."""

    def __init__(self, path: str) -> None:
        from gitckpt.model.arguments import shell_quoted

        remedy = f"remove it with rm {shell_quoted(path)}"
        hint = f"wait and try again; if nothing is running, the lock is left from a crash; {remedy}"
        super().__init__(f"another process holds {path}", hint=hint)
        self.path = path


@dataclass(slots=True)
class RefUpdate:
    """A change of a ref from oid `old` ("" creates it) to oid `new` ("" deletes it)."""

    ref: str
    new: str
    old: str
    is_symbolic: bool = False

    def stdin_command(self) -> str:
        if self.new == self.old and not self.is_symbolic:
            # Deleting with an empty old value checks nothing.
            return f"verify {self.ref}\0{self.old}\0"
        if not self.new:
            return f"delete {self.ref}\0{self.old}\0"
        if not self.old:
            return f"create {self.ref}\0{self.new}\0"
        return f"update {self.ref}\0{self.new}\0{self.old}\0"


class Refs:
    """Read and write refs; `heal(path)` returns whether it deleted a stale lock file."""

    def __init__(self, repository: Repository, heal: Callable[[str], bool] | None = None) -> None:
        self._repository = repository
        self._heal = heal
        self._standby = StandbyProcess(lambda: repository.git.start_git(*_update_ref_options()))

    def apply_updates(
        self, updates: Iterable[RefUpdate], meanwhile: Callable[[], None] | None = None
    ) -> None:
        """Apply and flush all updates in one transaction, in this order.

        A kill or a full disk may leave only the first updates applied: callers choose a safe order.
        `meanwhile` flushes the objects that the refs point to, before any update is applied.

        Raises:
            RefMoved, LockHeld: a ref has another value, or is locked; no ref was changed.
            GitError: git changed no ref, or failed twice and applied only the first updates.
            CkptError: the updates were applied, but could not be flushed.
        """
        transaction = list(updates)
        try:
            self._apply_healed(transaction, meanwhile)
        except GitError as error:
            # "write failure": git's answers were lost. "couldn't set": a later rename failed.
            ambiguous_errors = ("write failure", "couldn't set '")
            if error.code > 0 and not any(words in error.stderr for words in ambiguous_errors):
                raise
            current_oids = dict(self.iterate_refs())
            remaining = [  # all of the transaction if nothing was applied
                update
                for update in transaction
                if update.new == update.old or current_oids.get(update.ref, "") != update.new
            ]
            if remaining == transaction and error.code > 0 and "write failure" not in error.stderr:
                raise
            if remaining == transaction or any(update.new != update.old for update in remaining):
                self._apply_healed(remaining, meanwhile)
        changes = [update for update in transaction if update.new != update.old]
        if changes:
            self._flush_changed_refs(changes)

    def _apply_healed(self, updates: list[RefUpdate], meanwhile: Callable[[], None] | None) -> None:
        try:
            self._apply(updates, meanwhile)
        except LockHeld as error:
            if self._heal is None or not self._heal(error.path):
                raise
            self._apply(updates, meanwhile)

    def _apply(self, updates: list[RefUpdate], meanwhile: Callable[[], None] | None) -> None:
        text = "".join(["start\0", *(update.stdin_command() for update in updates)])
        commands = text.encode("utf-8", "surrogateescape")
        writer = self._standby.take_process()
        try:
            if meanwhile is None:
                is_committed = _send_commands(writer, commands + b"commit\0", "start", "commit")
            else:
                writer.write_input(commands + b"prepare\0")
                meanwhile()  # git may still prepare; if that fails, it never reads the commit
                is_committed = _send_commands(writer, b"commit\0", "start", "prepare", "commit")
        except BrokenPipeError:
            is_committed = False
        except BaseException:
            writer.close()  # waits until git has applied it or not
            raise
        if not is_committed:
            result = writer.communicate()
            raise make_update_error(self._repository, result.code, result.error_text)
        self._standby.give_back_process(writer)

    def _flush_changed_refs(self, changes: list[RefUpdate]) -> None:
        # git flushes the files that it renames, but not their new names. Refs before the checkpoint
        # are what it needs and go first; the checkpoint and what follows go together.
        common = self._repository.common_dir
        if self._repository.has_reftable:
            # If the table list names a table that is not on the disk, git can read no ref at all.
            tables = os.path.join(common, "reftable")
            fsync.flush([*(os.path.join(tables, name) for name in os.listdir(tables)), tables])
            return
        if any(not change.new for change in changes):
            fsync.flush([os.path.join(common, "packed-refs"), common])  # git writes it first
        names = [change.ref for change in changes]
        are_checkpoints = [name.startswith(f"{_CHECKPOINTS}/") for name in names]
        first_checkpoint = are_checkpoints.index(True) if True in are_checkpoints else len(names)
        flushed_directories: set[str] = set()
        for group in (names[:first_checkpoint], names[first_checkpoint:]):
            directories = {
                above for name in group for above in _parents(name)
            } - flushed_directories
            fsync.flush(os.path.join(common, directory) for directory in directories)
            flushed_directories |= directories

    def read_ref(self, ref: str) -> str | None:
        """Return the oid of a ref, even if its object is missing; None if there is no ref."""
        loose_oid = read_loose_ref(self._repository, ref)
        if loose_oid is not None:
            return loose_oid
        entry = self._repository.cat_file.info(ref)
        if entry is not None:
            return entry[0]
        if not may_ref_exist(self._repository, ref):
            return None
        words = ("rev-parse", "--quiet", "--verify", ref)
        return self._repository.git.run(*words, ok=(0, 1, 128)).text or None

    def list_refs(self, *patterns: str, fields: str = "%(objectname) %(refname)") -> bytes:
        """Return a line of `fields` for each ref that matches a pattern, sorted by name."""
        words = ("for-each-ref", f"--format={fields}", *patterns)
        try:
            return self._repository.git.run(*words, deadline=time.monotonic() + _PATIENCE).out
        except DeadlinePassed:
            require_no_pipes_in_refs(self._repository)
            return self._repository.git.run(*words).out  # many refs, or a slow disk

    def iterate_refs(self, *patterns: str) -> Iterator[tuple[str, str]]:
        ref_lines = self.list_refs(*(pattern.rstrip("/") for pattern in patterns))
        for line in ref_lines.decode("utf-8", "surrogateescape").split("\n")[:-1]:
            oid, _, ref = line.partition(" ")
            yield ref, oid

    def start_idle_process(self) -> None:
        self._standby.start_idle_process()

    def close(self) -> None:
        self._standby.close()


_MOVED = ("reference already exists", "but expected", "reference is missing")


def make_update_error(repository: Repository, code: int, complaint: str) -> CkptError:
    if "Unable to create '" in complaint and "File exists" in complaint:
        return LockHeld(complaint.partition("Unable to create '")[2].partition("': File exists")[0])
    if "cannot lock references" in complaint or "data is locked" in complaint:
        return LockHeld(os.path.join(repository.common_dir, "reftable", "tables.list.lock"))
    for line in complaint.split("\n"):
        # For a broken ref, the line ends differently: "…: reference broken".
        has_vanished = "unable to resolve reference '" in line and line.endswith("'")
        if has_vanished or any(words in line for words in _MOVED):
            reason = line.removeprefix("fatal: ").removeprefix("prepare: ").removeprefix("commit: ")
            return RefMoved(reason, hint="another process was faster; run the command again")
    is_blocked = "exists; cannot create" in complaint
    hint = "find the obstacle: git ckpt doctor" if is_blocked else None
    return GitError(["update-ref"], code, complaint, hint=hint)


def _parents(ref: str) -> Iterator[str]:
    # Up to `refs`: git may have created each of them for this ref.
    while ref := os.path.dirname(ref):
        yield ref


def _send_commands(writer: Child, commands: bytes, *steps: str) -> bool:
    writer.write_input(commands)
    return all(writer.read_output_line(PATIENCE) == f"{step}: ok".encode("ascii") for step in steps)


def _update_ref_options() -> tuple[str, ...]:
    options = config_options(
        f"core.filesRefLockTimeout={LOCK_TIMEOUT_MS}",
        f"core.packedRefsTimeout={2 * LOCK_TIMEOUT_MS}",
        f"reftable.lockTimeout={LOCK_TIMEOUT_MS}",
        # No reflogs: one of the notes ref would keep all their old trees alive.
        "core.logAllRefUpdates=false",
    )
    # `--no-deref`: a symbolic ref in place of gitckpt's own may point to a branch.
    return (*DURABLE, *options, "update-ref", "--no-deref", "--stdin", "-z")
