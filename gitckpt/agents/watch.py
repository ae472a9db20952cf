"""Record a checkpoint whenever the files of a worktree settle after a change."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator

from gitckpt.git import process
from gitckpt.model.checkpoint import WATCH
from gitckpt.model.errors import CkptError
from gitckpt.store.snapshot.limits import LARGER_BUDGET
from gitckpt.store.store import Store, checkpoints_of_store

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_TIMEOUT = 500  # milliseconds between two looks at the clock
_POLL = 10.0  # seconds between two looks where the system reports no changes


class Watch:
    """Watch one worktree until a command ends, or until the user interrupts."""

    def __init__(self, store: Store, quiet: float, tell: Callable[[str], object]) -> None:
        """Take the store of the worktree, and how many seconds files must be left alone.

        Raises WorktreeError in the home directory.
        """
        self._store, self._quiet, self._tell = checkpoints_of_store(store), quiet, tell
        repository = self._store.repository
        self._git_dirs = (repository.git_dir, repository.common_dir)
        self._store.settings_reader.read_limits_within_budget()
        self._pid: int | None = None  # of the command; None before it starts, and without one
        self._signal: int | None = None  # the last SIGTERM or SIGHUP

    def run(self, start: Callable[[], int] | None) -> int:
        """Watch until a command ends, and return its exit code; without one, until Ctrl-C.

        `start` starts the command and returns its process id; an error of `start` is passed on.
        The command gets SIGTERM and SIGHUP that are sent to this process.
        """
        codes: list[int] = []
        has_ended = threading.Event()

        def wait_for_command(pid: int) -> None:
            codes.append(process.wait_for_exit(pid))
            self._pid = None
            has_ended.set()

        with self._passing_signals_on(interrupts=start is None):
            self._record("watch-started")
            if start is not None:
                self._pid = start()
                self._send_signal()  # that came before the process id was known
                threading.Thread(target=wait_for_command, args=(self._pid,), daemon=True).start()
            while not has_ended.is_set():
                try:
                    self._watch(has_ended)
                except KeyboardInterrupt:  # the command gets it from the terminal, too
                    if start is None:
                        codes.append(-(self._signal or signal.SIGINT))
                        break
            self._record("watch-complete")
        return codes[0] if codes[0] >= 0 else 128 - codes[0]

    @contextlib.contextmanager
    def _passing_signals_on(self, *, interrupts: bool) -> Iterator[None]:
        """Pass signals on to the command; without one, they end the watch (`interrupts`)."""

        def pass_on(number: int, _: object) -> None:
            self._signal = number
            if interrupts:
                raise KeyboardInterrupt
            self._send_signal()

        handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
        for number, handler in handlers.items():
            if handler != signal.SIG_IGN:  # else nohup(1) has had it ignored, for the command, too
                signal.signal(number, pass_on)
        try:
            yield
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)

    def _send_signal(self) -> None:
        if self._pid is not None and self._signal is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, self._signal)

    def _watch(self, has_ended: threading.Event) -> None:
        from watchfiles import DefaultFilter, watch  # takes 40 ms to import

        ignored = [os.path.realpath(path) for path in self._git_dirs]
        options: Any = {"watch_filter": DefaultFilter(ignore_paths=ignored)}
        options |= {"stop_event": has_ended, "rust_timeout": _TIMEOUT, "yield_on_timeout": True}
        # When a file last changed; None after a record. The command may have begun before.
        changed: float | None = time.monotonic()
        try:
            # Without a change, an empty set comes at each timeout; Ctrl-C is noticed then.
            for changes in watch(self._store.repository.worktree or "", **options):
                instant = time.monotonic()
                if changes:
                    changed = instant
                elif changed is not None and instant - changed >= self._quiet:
                    self._record("watch-progress")
                    changed = None
        except OSError:  # such as the system's limit of watched directories
            while not has_ended.wait(max(self._quiet, _POLL)):
                self._record("watch-progress")

    def _record(self, label: str) -> None:
        checkpoint_id = self._store.new_id()
        details: Any = {"trigger": WATCH, "id": checkpoint_id, "if_changed": True}
        try:
            limits = self._store.settings_reader.read_limits_within_budget()
            saved = self._store.save(label, {}, limits=limits, **details)
        except CkptError as error:
            self._tell(f"the files were not captured: {error.message}")
            return
        if saved.worktree is not None and saved.worktree.degraded:
            self._tell(f"the files were not captured: {saved.worktree.degraded}; {LARGER_BUDGET}")
        elif saved.id == checkpoint_id:
            self._tell(f"saved the files as {saved.id[:8]}")
