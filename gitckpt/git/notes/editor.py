"""Notes edited as trees, and always through a swap of the notes ref.

`git notes add` and libgit2 lose notes without a word when two processes write at once; here the new notes commit goes into a ref
transaction with the value it was made from. The commit has no parent: notes are derived, their history is of no use, and every
commit of it would show up in `git log --all`.
"""

from __future__ import annotations

from gitckpt.git.notes.reader import LONGEST, MESSAGE, NotesReader, is_note, lines_of, text_of
from gitckpt.git.objects.encoding import DIRECTORY, FILE, OVERSIZED, encode_tree, object_id, uniform

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from gitckpt.git.objects.encoding import Entries
    from gitckpt.git.objects.port import Objects
    from gitckpt.git.repository import Repository

    Edit = Callable[[str, list[str]], list[str]]

_SPLIT_ABOVE = {True: 256, False: 1024}
"""A tree with more notes than this is split by the next two digits of the commit, as git does; the root sooner than what is below it."""

_REBUILD_FROM, _PARTS, _SAMPLE = 500, 4, 16
"""With so many changes at once, and of a large tree one for so many notes, the whole is made anew, and comes out with fewer parts, or as
many as it takes. That is told by so many of the parts."""


class Notes(NotesReader):
    """Reads and edits the notes of one ref; arguments as for `NotesReader`."""

    def __init__(self, repository: Repository, objects: Objects, ref: str) -> None:
        super().__init__(repository, objects, ref)
        self._pending: dict[str, tuple[str, bytes]] = {}
        self._fetched: dict[str, tuple[str, bytes] | None] = {}

    def edited(self, tip: str, commits: Sequence[str], change: Edit, instant: int, remark: str = "") -> tuple[str, list[tuple[str, bytes]]]:
        """Returns the commit that holds the notes after a change, and the objects to write for it.

        Args:
            tip: the notes commit to start from, "" for none.
            commits: whose notes change.
            change: is given a commit and the lines of its note, and returns the lines it shall have; none removes the note.
            instant: date of the new commit, in microseconds since the epoch.
            remark: a line, in ASCII, that the message of the new commit says besides; "" for none.

        Returns:
            The tip itself where nothing changed; then what was made of the notes is there, unless it is damaged.
        """
        self._pending, self._fetched = {}, {}
        root = self._tree_of(tip) if tip else ""
        wanted = sorted(set(commits))
        new_root = self._rebuilt(root, wanted, change) if len(wanted) >= _REBUILD_FROM and self._is_worth_it(root, len(wanted)) else None
        if new_root is None:
            if len(wanted) > 1:
                self._fetch(root, set(wanted))
            new_root = self._edit_tree(root, [(commit, commit) for commit in wanted], change)
        if new_root == root:
            return tip, list(self._pending.values())
        who = b"gitckpt <gitckpt> %d +0000" % (instant // 1_000_000)
        self._fetched = {}
        message = MESSAGE + (f"\n{remark}\n".encode("ascii") if remark else b"")
        text = b"tree %s\nauthor %s\ncommitter %s\n\n%s" % ((new_root or self._put("tree", b"")).encode(), who, who, message)
        return self._put("commit", text), list(self._pending.values())

    def _rebuilt(self, root: str, commits: Sequence[str], change: Edit) -> str | None:
        """Returns a new tree with the notes of some commits changed; None where something else is in it, or cannot be read."""
        entries = dict(self._entries_of(root))
        if "" in entries:
            return None
        there = [commit for commit in commits if commit in entries]
        lines = dict(zip(there, self.texts([entries[commit][1] for commit in there]), strict=True))
        if None in lines.values():  # a note that is too long, or missing now, is not to be taken for one without lines
            return None
        for commit in commits:
            old = lines.get(commit) or []
            new = change(commit, old)
            if new and new != old:
                entries[commit] = (FILE, self._put("blob", text_of(new)))
            elif not new:
                entries.pop(commit, None)
        return self._build({commit.encode(): entry for commit, entry in entries.items()}, is_root=True) if entries else ""

    def _fetch(self, root: str, commits: set[str]) -> None:
        """Reads at once what the notes of some commits are in, and these, instead of one after the other."""
        blobs = {oid: None for _, mode, oid in self._walk(root, commits, read=self._fetched) if mode != DIRECTORY}
        self._fetched.update(zip(blobs, self._objects.read([*blobs], LONGEST), strict=True))

    def _texts(self, blobs: Sequence[str]) -> list[tuple[str, bytes] | None]:
        """Returns each note, given by its blob."""
        if all(oid in self._fetched for oid in blobs):
            return [self._fetched[oid] for oid in blobs]
        return list(self._objects.read(blobs, LONGEST))

    def _is_worth_it(self, root: str, changes: int) -> bool:
        """Tells, by a part of it, whether the whole is made anew for so many changes: most parts change, or have little in them."""
        size, level, depth = 1, [root] if root else [], 0
        while level:
            count, below = 0, []
            for found in self._objects.read(level):
                notes = uniform(found[1], FILE, len(root) - 2 * depth, self._format) if found is not None else None
                entries = self._decoded(found) if notes is None else {}
                count += len(entries) if notes is None else len(notes)
                below += [oid for mode, oid in entries.values() if mode == DIRECTORY]
            size = size * count // len(level)
            level = below[:_SAMPLE]
            depth += 1
        return changes * _PARTS >= size or size - changes < 2 * 256 ** (depth - 1)

    def _build(self, entries: Entries, *, is_root: bool) -> str:
        if len(entries) > _SPLIT_ABOVE[is_root]:
            groups: dict[bytes, Entries] = {}
            for name, entry in entries.items():
                groups.setdefault(name[:2], {})[name[2:]] = entry
            entries = {directory: (DIRECTORY, self._build(group, is_root=False)) for directory, group in groups.items()}
        return self._put("tree", encode_tree(entries))

    def _edit_tree(self, tree: str, wanted: list[tuple[str, str]], change: Edit) -> str:
        """Returns the tree after the change ("" if nothing is left); `wanted` pairs the rest of a commit's name with the whole."""
        data = self._content(tree) if tree else b""
        edited = self._edit_in_place(data, wanted, change) if data and wanted else None
        if edited is not None:
            return (tree if edited == data else self._put("tree", edited)) if edited else ""
        entries = self._decoded(("tree", data))
        before = dict(entries)
        here: list[tuple[bytes, str]] = []
        below: dict[bytes, list[tuple[str, str]]] = {}
        for rest, commit in wanted:
            directory = rest[:2].encode()
            if entries.get(directory, (b"",))[0] == DIRECTORY:
                below.setdefault(directory, []).append((rest[2:], commit))
            else:
                here.append((rest.encode(), commit))
        self._edit_entries(entries, here, change)
        for directory, inner in below.items():
            self._set(entries, directory, DIRECTORY, self._edit_tree(entries[directory][1], inner, change))
        if entries == before:
            return tree
        size = len(wanted[0][0])
        if sum(is_note(name, mode, size) for name, (mode, _) in entries.items()) > _SPLIT_ABOVE[size == len(wanted[0][1])]:
            entries = self._split(entries, size)
        return self._put("tree", encode_tree(entries)) if entries else ""

    def _edit_in_place(self, data: bytes, wanted: list[tuple[str, str]], change: Edit) -> bytes | None:
        """Returns a tree after the change, where all else stays as it lies there; None where more changes than that."""
        parts = uniform(data, DIRECTORY, 2, self._format)
        if parts is not None:
            below: dict[bytes, list[tuple[str, str]]] = {}
            for rest, commit in wanted:
                below.setdefault(rest[:2].encode(), []).append((rest[2:], commit))
            trees = dict(zip(below, parts.oids_of([*below]), strict=True))
            if "" in trees.values():
                return None
            return parts.with_oids({name: self._edit_tree(tree, below[name], change) for name, tree in trees.items()})
        rest, commit = wanted[0]
        notes = uniform(data, FILE, len(rest), self._format)
        if notes is None:
            return None
        names = [rest.encode() for rest, _ in wanted]
        blobs = dict(zip(names, notes.oids_of(names), strict=True))
        if len(notes) + sum(not blob for blob in blobs.values()) > _SPLIT_ABOVE[len(rest) == len(commit)]:
            return None
        return notes.with_oids(self._changed(blobs, [commit for _, commit in wanted], change))

    def _edit_entries(self, entries: Entries, wanted: list[tuple[bytes, str]], change: Edit) -> None:
        blobs = {name: entries[name][1] if name in entries else "" for name, _ in wanted}
        for name, oid in self._changed(blobs, [commit for _, commit in wanted], change).items():
            self._set(entries, name, FILE, oid)

    def _changed(self, blobs: Mapping[bytes, str], commits: Iterable[str], change: Edit) -> dict[bytes, str]:
        """Returns the blobs of those notes that change, "" for one that goes.

        Args:
            blobs: of the notes, by their names in a tree; "" where there is none.
            commits: theirs, in the same order.
        """
        texts = iter(self._texts([blob for blob in blobs.values() if blob]))
        changed = {}
        for (name, blob), commit in zip(blobs.items(), commits, strict=True):
            found = next(texts) if blob else None
            old = lines_of(found) if found else []
            new = change(commit, old)
            if new != old and not (found and found[0] == OVERSIZED):
                changed[name] = self._put("blob", text_of(new)) if new else ""
        return changed

    @staticmethod
    def _set(entries: Entries, name: bytes, mode: bytes, oid: str) -> None:
        if oid:
            entries[name] = (mode, oid)
        else:
            entries.pop(name, None)

    def _split(self, entries: Entries, size: int) -> Entries:
        groups: dict[bytes, Entries] = {}
        kept: Entries = {}
        for name, entry in entries.items():
            if is_note(name, entry[0], size):
                groups.setdefault(name[:2], {})[name[2:]] = entry
            else:
                kept[name] = entry
        for directory, group in groups.items():
            there = self._entries(kept[directory][1]) if directory in kept else {}
            kept |= {directory + name: entry for name, entry in group.items() if name in there}  # somebody has made two notes of one commit
            kept[directory] = (DIRECTORY, self._put("tree", encode_tree(group | there)))
        return kept

    def _entries(self, tree: str) -> Entries:
        return self._decoded(("tree", self._content(tree)))

    def _content(self, tree: str) -> bytes:
        found = self._pending.get(tree) or self._fetched.get(tree) or next(self._objects.read([tree]))
        return found[1] if found and found[0] == "tree" else b""

    def _put(self, kind: str, data: bytes) -> str:
        oid = object_id(kind, data, self._format)
        self._pending[oid] = (kind, data)
        return oid
