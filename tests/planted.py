"""Name the points at which tests make gitckpt fail, die or wait less.

Every point is the path of a function, method or constant. Tests name them here only, so that a
module that moves changes one line.
"""

from __future__ import annotations

import importlib
from typing import Any

import pytest

LOGIN_SHELL_PATIENCE = "gitckpt.cli.opening._PATIENCE"
OPEN_REPOSITORY = "gitckpt.cli.opening.open_repository"
QUICK_PARSER = "gitckpt.cli.parser.quick.prepare_command_call"
ASK_USER = "gitckpt.cli.terminal.ask"
IS_TERMINAL = "gitckpt.cli.terminal.is_terminal"
MAY_ASK_USER = "gitckpt.cli.terminal.can_ask_user"
SHOW_WARNING = "gitckpt.cli.terminal.warn"
COMMAND_TICK = "gitckpt.durable.command.execution._TICK"
REOPEN_RUN = "gitckpt.durable.driver.pipelines.reopen_run"
REMOVE_LOCKS = "gitckpt.durable.run.rewind.remove_stale_locks"
WRITE_MIRROR = "gitckpt.durable.steps.journal._write_state_mirror"
MOST_DIR_MODES = "gitckpt.git.contents.exact_files.MOST"
RESTORE_DIR_MODES = "gitckpt.git.contents.exact_files.bring_back"
REF_FINELY_SETTLED_SECONDS = "gitckpt.git.files.refs_stat._FINELY_SETTLED"
REF_SETTLED_SECONDS = "gitckpt.git.files.refs_stat._SETTLED"
FLUSH_FILE = "gitckpt.git.fsync.flush"
EDIT_NOTES = "gitckpt.git.notes.GitNotes.edit_notes"
EXPANDS_TOO_FAR = "gitckpt.git.objects.diff.DiffCounter.exceeds_path_limit"
PACK_FROM = "gitckpt.git.packing.PACK_FROM"
PROCESS_START = "gitckpt.git.process.Child.__init__"
SPAWN_PROCESS = "gitckpt.git.process._spawn"
LOCK_TIMEOUT_MS = "gitckpt.git.refs.LOCK_TIMEOUT_MS"
UPDATE_REFS = "gitckpt.git.refs.Refs.apply_updates"
COPY_INDEX = "gitckpt.git.worktree.index._copy_index"
ATTACH_SUBMODULE = "gitckpt.git.worktree.modules.attach_worktree"
HOOK_FOLLOW_UP = "gitckpt.hook._maintain_after_event"
HOOK_RECORD = "gitckpt.hook._record_commit"
HOOK_DETACH = "gitckpt.hook.start_detached"
OPERATION_SIZE = "gitckpt.model.budget.OPERATION_SIZE"
AUDIT_OBJECTS = "gitckpt.store.audit.objects.audit_objects"
MEND_OBJECTS = "gitckpt.store.audit.verification.repair_flaws"
CAPTURE_FILES = "gitckpt.store.checkpoints.Checkpoints.capture_worktree"
RECORD_CHECKPOINT = "gitckpt.store.checkpoints.Checkpoints.record"
CLEAR_NOTE_QUEUE = "gitckpt.store.notes._clear_queue"
QUEUE_NOTE = "gitckpt.store.notes.queue_links"
HEADS_PATIENCE = "gitckpt.store.records.heads._PATIENCE"
LIST_RUNS_OF_INDEX = "gitckpt.store.records.index.Index.list_runs"
WRITE_RECORD = "gitckpt.store.records.recorder.CheckpointRecorder._apply"
REF_NAMES_PATIENCE = "gitckpt.store.records.ref_names.PATIENCE"
SETTLE_REMOVALS = "gitckpt.store.records.remover.CheckpointRemover.update_keep_refs"
REPLACE_FILES = "gitckpt.store.restore.replacement.replace_files"
RESTORE_PRECHECK = "gitckpt.store.restore.restorer._RestoreTry._require_no_differences"
COLLECT_GARBAGE = "gitckpt.store.retention.maintenance.collect_garbage"
DELETE_DIRECTORY = "gitckpt.store.retention.worktree.delete_directory"
CAPTURE_IN = "gitckpt.store.snapshot.capture.capture_in"
AUTOMATIC_LIMIT = "gitckpt.store.snapshot.limits._AUTOMATIC"
CONTENTS_OF = "gitckpt.store.snapshot.manifest.contents_of"
FILL_SUBMODULE = "gitckpt.store.worktrees.submodules._fill_submodule"


def plant(patch: pytest.MonkeyPatch, point: str, value: Any) -> None:
    """Replace a point until the test ends."""
    owner, name = _locate(point)
    patch.setattr(owner, name, value)


def original(point: str) -> Any:
    """Return the current value of a point, for a replacement that calls it."""
    owner, name = _locate(point)
    return getattr(owner, name)


def _locate(point: str) -> tuple[Any, str]:
    path, _, name = point.rpartition(".")
    try:
        return importlib.import_module(path), name
    except ModuleNotFoundError:
        module, _, owner = path.rpartition(".")
        return getattr(importlib.import_module(module), owner), name
