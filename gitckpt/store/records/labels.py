"""Store the tags, pins and notes that a user attaches to checkpoints.

They are deleted with their checkpoint. A tag or pin is a ref to the document of its checkpoint, a
note is a ref to a blob with its text.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Collection, Iterable, Mapping

from gitckpt.git.files.refs_stat import may_have_refs_below, may_ref_exist
from gitckpt.git.objects.encoding import object_id
from gitckpt.git.refs import RefMoved, Refs, RefUpdate
from gitckpt.git.repository import Repository
from gitckpt.model import ids
from gitckpt.model.arguments import require_no_surrogates, require_text
from gitckpt.model.codec import decode_summary
from gitckpt.model.errors import InvalidCheckpoint, NotFoundError, UsageError
from gitckpt.model.values import dataclass
from gitckpt.store.records import ref_names
from gitckpt.store.records.commit_refs import is_recently_written
from gitckpt.store.records.ref_names import CHECKPOINTS, LABELS, PINS, TAGS, TEXTS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gitckpt.git.objects.writer import ObjectDatabase

MAX_NOTE = 10_000  # characters
_MAX_NAME = 200  # bytes: git appends ".lock" to the file of a ref
_REFUSED = frozenset(" ~^:?*[\\")
_RESERVED = ("HEAD", "@", "latest", "list")
_ID = re.compile(rb'^id = "([0-9a-f-]{36})"$', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Labels:
    """What a user has attached to a checkpoint, beside its document."""

    tags: tuple[str, ...] = ()
    pinned: bool = False
    note: str | None = None


def is_tag_name(name: str) -> bool:
    """Return whether git accepts a tag's name, and people can read and type it."""
    parts = name.split("/")
    return (
        name.isprintable()
        and _REFUSED.isdisjoint(name)
        and len(name.encode()) <= _MAX_NAME
        and name not in _RESERVED
        and not any(text in name for text in ("..", "@{"))
        and not name.startswith("-")
        and not name.endswith(".")
        and all(part and part[0] != "." and not part.endswith(".lock") for part in parts)
    )


class LabelRefs:
    def __init__(self, repository: Repository, objects: ObjectDatabase, refs: Refs) -> None:
        self._repository, self._objects, self._refs = repository, objects, refs

    def find_tagged(self, name: str) -> str | None:
        """Return the id of the checkpoint with a tag, or None."""
        if not is_tag_name(name) or not may_ref_exist(self._repository, TAGS + name):
            return None
        oid = self._refs.read_ref(TAGS + name)
        return self._read_ids([oid]).get(oid) if oid is not None else None

    def read_tags(self) -> dict[str, str]:
        """Map the name of each valid tag to the id of its checkpoint."""
        refs = self._list_refs(TAGS)
        id_by_oid = self._read_ids(refs.values())
        return {
            ref.removeprefix(TAGS): id_by_oid[oid]
            for ref, oid in refs.items()
            if oid in id_by_oid and is_tag_name(ref.removeprefix(TAGS))
        }

    def read_kept_ids(self) -> set[str]:
        """Return the ids of pinned and tagged checkpoints, which never expire."""
        pinned = {ref.removeprefix(PINS) for ref in self._list_refs(PINS)}
        return pinned.union(self.read_tags().values())

    def read_labels(self, checkpoint_ids: Collection[str]) -> dict[str, Labels]:
        """Map the ids that have labels to these."""
        refs = self._list_refs(*LABELS)
        if not refs:
            return {}
        tags: dict[str, list[str]] = {}
        for name, id_ in self.read_tags().items():
            tags.setdefault(id_, []).append(name)
        text_oids = {id_: refs[TEXTS + id_] for id_ in checkpoint_ids if TEXTS + id_ in refs}
        texts = dict(zip(text_oids, self._objects.read(list(text_oids.values())), strict=True))
        labels_by_id = {}
        for id_ in checkpoint_ids:
            content = texts.get(id_)
            is_text = content is not None and content[0] == "blob"
            note = content[1].decode("utf-8", "replace") if content and is_text else None
            labels = Labels(tuple(tags.get(id_, ())), PINS + id_ in refs, note)
            if labels != Labels():
                labels_by_id[id_] = labels
        return labels_by_id

    def add_tag(self, checkpoint_id: str, name: str) -> None:
        """Tag a checkpoint; raise UsageError if the name is invalid or taken."""
        require_valid_tag_name(name)
        for other in self._list_refs(TAGS):
            taken = other.removeprefix(TAGS)
            if taken == name or taken.startswith(f"{name}/") or name.startswith(f"{taken}/"):
                hint = f"choose another name, or delete that tag: git ckpt tag -d {taken}"
                raise UsageError(f"the tag {taken!r} exists", hint=hint)
        self._point_at_document(TAGS + name, checkpoint_id)

    def delete_tag(self, name: str) -> None:
        require_text("name", name)
        if not is_tag_name(name) or not self._delete(TAGS + name):
            raise NotFoundError(f"no tag is named {name!r}", hint="list the tags: git ckpt tag")

    def pin(self, checkpoint_id: str) -> None:
        if self._refs.read_ref(PINS + checkpoint_id) is None:
            self._point_at_document(PINS + checkpoint_id, checkpoint_id)

    def unpin(self, checkpoint_id: str) -> bool:
        """Return whether the checkpoint was pinned."""
        return self._delete(PINS + checkpoint_id)

    def write_note(self, checkpoint_id: str, text: str | None) -> None:
        """Replace the note of a checkpoint, or delete it if the text is None."""
        ref = TEXTS + checkpoint_id
        if text is None:
            self._delete(ref)
            return
        require_text("text", text)
        require_no_surrogates("text", text)
        if not text.strip() or len(text) > MAX_NOTE:
            hint = f"give a text of 1 to {MAX_NOTE:,} characters"
            raise UsageError(f"{text!r:.60} is not a valid note", hint=hint)
        with ref_names.write_lock(self._repository):
            data = text.encode()
            self._objects.write([("blob", data)])
            oid = object_id("blob", data, self._repository.object_format)
            old_oid = self._refs.read_ref(ref) or ""
            if old_oid != oid:
                unchanged = self._require_checkpoint(checkpoint_id)
                self._refs.apply_updates([unchanged, RefUpdate(ref, oid, old_oid)])

    def list_deletions(self, removed: Mapping[str, str]) -> list[RefUpdate]:
        """Return the updates that delete the labels of removed checkpoints (id -> oid)."""
        refs = self._list_refs(*LABELS)
        owners = self.find_owners(refs)
        return [RefUpdate(ref, "", oid) for ref, oid in refs.items() if owners.get(ref) in removed]

    def find_owners(self, refs: Mapping[str, str]) -> dict[str, str | None]:
        """Map the labels among `refs` to the ids of their checkpoints, None if unreadable."""
        id_by_oid = self._read_ids(oid for ref, oid in refs.items() if ref.startswith(TAGS))
        return {
            ref: id_by_oid.get(oid) if ref.startswith(TAGS) else ref.rpartition("/")[2]
            for ref, oid in refs.items()
            if ref.startswith(LABELS)
        }

    def delete_orphans(self, existing: Callable[[], Collection[str]]) -> None:
        """Delete the labels of checkpoints that do not exist, such as fetched ones."""
        refs = self._list_refs(*LABELS)
        existing_ids = existing() if refs else ()
        for ref, owner in self.find_owners(refs).items():
            is_recent = is_recently_written(self._repository, ref)
            if owner is not None and owner not in existing_ids and not is_recent:
                with contextlib.suppress(RefMoved):  # it was just set again
                    self._refs.apply_updates([RefUpdate(ref, "", refs[ref])])

    def _list_refs(self, *namespaces: str) -> dict[str, str]:
        if not may_have_refs_below(self._repository, *namespaces):
            return {}
        return dict(self._refs.iterate_refs(*namespaces))

    def _read_ids(self, oids: Iterable[str]) -> dict[str, str]:
        """Map the oids of documents to the ids in them."""
        unique = list(dict.fromkeys(oids))
        id_by_oid = {}
        for oid, content in zip(unique, self._objects.read(unique), strict=True):
            data = content[1] if content is not None and content[0] == "blob" else b""
            if match := _ID.search(data):
                id_ = match[1].decode("ascii")
                try:
                    decode_summary(data, CHECKPOINTS + id_)
                except InvalidCheckpoint:
                    continue
                id_by_oid[oid] = id_
        return id_by_oid

    def _require_checkpoint(self, checkpoint_id: str) -> RefUpdate:
        """Return a ref update that fails if the checkpoint vanishes meanwhile."""
        ref = CHECKPOINTS + checkpoint_id
        ids.require_checkpoint_id(checkpoint_id)
        oid = self._refs.read_ref(ref)
        if oid is None:
            hint = "list the checkpoints: git ckpt list"
            raise NotFoundError(f"no checkpoint {checkpoint_id!r}", hint=hint)
        return RefUpdate(ref, oid, oid)

    def _point_at_document(self, ref: str, checkpoint_id: str) -> None:
        with ref_names.write_lock(self._repository):
            unchanged = self._require_checkpoint(checkpoint_id)
            self._refs.apply_updates([unchanged, RefUpdate(ref, unchanged.new, "")])

    def _delete(self, ref: str) -> bool:
        with ref_names.write_lock(self._repository):
            oid = self._refs.read_ref(ref)
            if oid is not None:
                self._refs.apply_updates([RefUpdate(ref, "", oid)])
        return oid is not None


def require_valid_tag_name(name: str) -> None:
    require_text("name", name)
    if not is_tag_name(name) or ids.is_checkpoint_id_prefix(name.lower()) or ids.is_run_id(name):
        hint = "give a name as for git tag, such as before-refactoring, but not that of an id"
        raise UsageError(f"{name!r:.60} is not a valid name of a tag", hint=hint)
