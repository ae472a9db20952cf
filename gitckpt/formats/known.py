"""What was imported before: by its bytes, and by the key of its run."""

from __future__ import annotations

import os

from gitckpt.formats.systems.record import Record
from gitckpt.git.refs import RefMoved, Update
from gitckpt.model.checkpoint import IMPORT, Checkpoint
from gitckpt.model.errors import InvalidCheckpoint, NotFoundError
from gitckpt.model.names import quoted
from gitckpt.store.checkpoints import Checkpoints
from gitckpt.store.records import keys, layout

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gitckpt.store.records.keys import Claim


def trigger(format_: str) -> str:
    """Returns the trigger of checkpoints that were made of files of a format."""
    return IMPORT + format_


def shown(path: str) -> str:
    """Returns the path of a file as a checkpoint has it: a document holds nothing but UTF-8."""
    return quoted(os.fsencode(path))


class KnownImports:
    """What a repository has of files that were imported."""

    def __init__(self, store: Checkpoints) -> None:
        self._store = store
        self._by_original: dict[str, list[str]] = {}
        for ref, oid in store.refs.each(layout.ORIGINALS):
            self._by_original.setdefault(oid, []).append(ref.removeprefix(layout.ORIGINALS))

    def of_bytes(self, record: Record, path: str, original: str) -> Checkpoint | None:
        """Returns the checkpoint that was made of a file; None where none was.

        Args:
            record: what the file becomes.
            path: of the file, as it is shown.
            original: the oid that its bytes have as a blob.
        """
        for name in self._by_original.get(original, ()):
            try:
                found = self._store.read(name)
            except (NotFoundError, InvalidCheckpoint):
                continue  # a kill has left the bytes alone, or somebody has removed the checkpoint
            is_same = found.trigger == trigger(record.format) and found.imported is not None
            if is_same and (not record.by_path or (found.imported is not None and found.imported.path == shown(path))):
                return found
        return None

    def note(self, original: str, checkpoint_id: str) -> None:
        """Takes in what was imported just now."""
        self._by_original.setdefault(original, []).append(checkpoint_id)

    def clear(self, checkpoint_id: str) -> None:
        """Deletes the bytes that an import has kept which was killed before their checkpoint was there.

        Args:
            checkpoint_id: the id that a file says its checkpoint has.
        """
        for space in layout.HOLDERS:
            oid = self._store.refs.read(space + checkpoint_id)
            if oid is not None:
                try:
                    self._store.refs.update([Update(layout.CHECKPOINTS + checkpoint_id, "", ""), Update(space + checkpoint_id, "", oid)])
                except RefMoved:
                    return  # another import is at it

    def claim(self, record: Record) -> Claim:
        """Returns the key of the run that a file is of."""
        key = f"{trigger(record.format)}:{record.identity}"
        if len(key) > keys.MAX_LENGTH or not key.isprintable():
            import hashlib

            key = f"{trigger(record.format)}:{hashlib.sha256(os.fsencode(record.identity)).hexdigest()}"
        return self._store.claim(key)

    def run(self, record: Record) -> str | None:
        """Returns the run that files with the same identity became; None where there is none."""
        return self.claim(record).run()
