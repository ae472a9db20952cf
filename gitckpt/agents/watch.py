"""Record a checkpoint whenever the files of a worktree settle after a change."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence

from gitckpt.git import process
from gitckpt.model.checkpoint import WATCH
from gitckpt.model.errors import CkptError
from gitckpt.store.store import Store, checkpoints_of_store

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_INTERRUPTED, _NOT_RUN = 130, 126  # exit codes of a shell


_TIMEOUT = 500  # milliseconds between two looks at the clock
_POLL = 10.0  # seconds between two looks where the system reports no changes


class Watch:
    """Watch one worktree until a command ends, or until the user interrupts."""

    def __init__(self, store: Store, quiet: float, tell: Callable[[str], object]) -> None:
        """Take the store of the worktree, and how many seconds files must be left alone."""
        self._store, self._quiet, self._tell = checkpoints_of_store(store), quiet, tell
        repository = self._store.repository
        self._git_dirs = (repository.git_dir, repository.common_dir)

    def run(self, command: Sequence[str]) -> int:
        """Watch while `command` runs, and return its exit code; without one, until Ctrl-C."""
        self._record("watch-started")
        stop = threading.Event()
        codes: list[int] = []

        def run_command() -> None:
            try:
                codes.append(process.run_attached(command, os.environ))
            finally:
                stop.set()

        if command:
            threading.Thread(target=run_command, daemon=True).start()
        while not stop.is_set():
            try:
                self._watch(stop)
            except KeyboardInterrupt:  # the command gets it from the terminal, too
                if not command:
                    codes.append(_INTERRUPTED)
                    break
        self._record("watch-complete")
        code = codes[0] if codes else _NOT_RUN
        return code if code >= 0 else 128 - code

    def _watch(self, stop: threading.Event) -> None:
        from watchfiles import DefaultFilter, watch  # takes 40 ms to import

        ignored = [os.path.realpath(path) for path in self._git_dirs]
        options: Any = {"watch_filter": DefaultFilter(ignore_paths=ignored), "stop_event": stop}
        top = self._store.repository.worktree or ""
        changed: float | None = None  # when a file last changed; None after a record
        try:
            # Without a change, an empty set comes at each timeout; Ctrl-C is noticed then.
            for changes in watch(top, rust_timeout=_TIMEOUT, yield_on_timeout=True, **options):
                instant = time.monotonic()
                if changes:
                    changed = instant
                elif changed is not None and instant - changed >= self._quiet:
                    self._record("watch-progress")
                    changed = None
        except OSError:  # such as the system's limit of watched directories
            while not stop.wait(max(self._quiet, _POLL)):
                self._record("watch-progress")

    def _record(self, label: str) -> None:
        limits = self._store.settings_reader.read_limits_within_budget()
        checkpoint_id = self._store.new_id()
        details: Any = {"trigger": WATCH, "id": checkpoint_id, "if_changed": True}
        try:
            saved = self._store.save(label, {}, limits=limits, **details)
        except CkptError as error:
            self._tell(f"the files were not captured: {error.message}")
            return
        if saved.id == checkpoint_id:
            self._tell(f"saved the files as {saved.id[:8]}")
