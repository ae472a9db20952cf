"""Which refs have changed since the index was made from them, where that can be told without listing them all."""

from __future__ import annotations

import time

from gitckpt.git.files import validity
from gitckpt.git.files.packed import Packed
from gitckpt.git.files.ref_files import plain
from gitckpt.git.objects.encoding import oid_size
from gitckpt.model import ids
from gitckpt.model.values import dataclass
from gitckpt.store.records import layout
from gitckpt.store.records.rows import tables

TYPE_CHECKING = False
if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Collection, Mapping, Sequence

    from gitckpt.git.files.validity import State
    from gitckpt.git.refs import Refs
    from gitckpt.git.repository import Repository

_FEW = 20
"""So many refs whose files are gone are looked up one by one; of more, git is asked for all."""

_MANY = 20_000
"""So many packed refs that differ are taken one by one: of more, the documents are better read in portions."""

_MOMENT = 0.06
"""In seconds: until times of files can be relied on where they are fine (`validity`)."""

_DIRECTORY = layout.CHECKPOINTS.rstrip("/")


@dataclass(frozen=True, slots=True)
class Changes:
    """What has become of refs.

    Attributes:
        files: what the files of refs look like, by id, that are not as they were.
        vanished: the ids of refs whose files are gone.
        gone: those of refs that are.
        new: what the others point to now, where it is of no row.
    """

    files: Sequence[tuple[bytes, str | None]]
    vanished: Collection[bytes]
    gone: Sequence[bytes]
    new: Sequence[tables.Ref]


class Watch:
    """Looks after the refs that an index is made from."""

    def __init__(self, repository: Repository, refs: Refs) -> None:
        self._repository = repository
        self._refs = refs
        self._packed = Packed()

    def look(self) -> State:
        """Returns what the refs look like now; of packed refs that changed just now that is waited for, where listing takes longer."""
        state = validity.look(self._repository, _DIRECTORY)
        if state.packed is None and self._packed.is_held:
            time.sleep(_MOMENT)
            state = validity.look(self._repository, _DIRECTORY)
        return state

    def hold(self, state: State) -> None:
        """Holds the packed refs that the index was made from, so that what differs from them can be told later."""
        if not self._repository.has_reftable:
            self._packed.hold(self._repository, state.packed)

    def close(self) -> None:
        """Lets them go."""
        self._packed.close()

    def files(self) -> dict[bytes, str | None]:
        """Returns what each file of a ref looks like, by id."""
        found = validity.files(self._repository, _DIRECTORY)
        return {ids.to_bytes(name): stamp for name, stamp in found.items() if ids.is_id(name)}

    def changes(self, connection: sqlite3.Connection, state: State) -> Changes | None:
        """Returns what has become of the refs that the index was made from; None where git has to be asked for all.

        Args:
            connection: to the index.
            state: what the refs looked like before this.
        """
        if state.packed is None or self._repository.has_reftable:
            return None
        packed = self._differing(tables.noted(connection).get("packed"), state.packed)
        files = self.files()
        before = dict(connection.execute("SELECT id, stamp FROM loose"))
        vanished = before.keys() - files.keys()
        asked = [id_ for id_ in vanished if packed is not None and not packed.get(id_)]
        if packed is None or len(asked) > _FEW or len(packed) > _MANY:
            return None
        now = {id_: oid for id_, oid in packed.items() if oid and id_ not in files}
        gone = [id_ for id_, oid in packed.items() if not oid and id_ not in files]
        for id_ in asked:  # deleted, or packed between two of our looks
            if self._refs.read(layout.CHECKPOINTS + ids.from_bytes(id_)) is not None:
                return None
            gone.append(id_)
        changed = [(id_, stamp) for id_, stamp in files.items() if stamp is None or before.get(id_) != stamp]
        for id_, _ in changed:
            oid = plain(self._repository, layout.CHECKPOINTS + ids.from_bytes(id_))
            if oid is None:
                return None
            now[id_] = bytes.fromhex(oid)
        return Changes(changed, vanished, gone, tables.unknown(connection, sorted(now.items())))

    def _differing(self, noted: str | None, now: str) -> Mapping[bytes, bytes] | None:
        """Returns the packed refs that differ from those that the index was made from: the oid by id, an empty one where there is none now.

        None where that cannot be told.
        """
        if noted == now:
            return {}
        later = Packed()
        if noted is None or self._packed.stamp != noted or not later.hold(self._repository, now):
            return None
        differing = {}
        try:
            for name, oid in self._packed.changed(later, 2 * oid_size(self._repository.object_format)):
                place, _, last = name.decode("utf-8", "surrogateescape").rpartition("/")
                if place == _DIRECTORY and ids.is_id(last):
                    differing[ids.to_bytes(last)] = bytes.fromhex(oid.decode("ascii"))
        except (OSError, ValueError):
            later.close()
            return None
        self._packed.close()
        self._packed = later
        return differing
