"""Read git notes, and edit them by writing note trees without git.

`git notes add` and libgit2 lose notes when two processes write at once. This module updates the ref
only from its old value. A notes commit has no parent, which `git log --all` would list.
"""

from __future__ import annotations

from gitckpt.git.objects import encoding
from gitckpt.git.refs import Refs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from gitckpt.git.objects.encoding import Entries
    from gitckpt.git.objects.writer import Item, ObjectDatabase
    from gitckpt.git.repository import Repository

    Edit = Callable[[str, list[str]], list[str]]

# Limit of tree entries to read: trees that contain each other 256 times may exceed any disk.
MAX_ENTRIES = 4_000_000
MAX_NOTE_SIZE = 4 << 20  # bytes: a longer note is neither read nor changed
# Notes above which git splits a tree by the next two oid digits; by whether it is the root.
_SPLIT_ABOVE = {True: 256, False: 1024}
_MESSAGE = b"Checkpoints of commits (derived)\n"


class _NotesTree:
    __slots__ = ("below", "entries", "is_changed", "is_split")

    def __init__(self, entries: Entries) -> None:
        self.entries = entries
        self.below: dict[bytes, _NotesTree] = {}
        self.is_changed = False
        self.is_split = any(
            mode == encoding.DIRECTORY and _is_hex(name, 2) for name, (mode, _) in entries.items()
        )

    def prepare_for_change(self) -> None:
        if not self.is_changed:
            # The entries may be shared by several trees.
            self.entries, self.is_changed = dict(self.entries), True


class GitNotes:
    def __init__(self, repository: Repository, objects: ObjectDatabase, ref: str) -> None:
        self._objects = objects
        self._format = repository.object_format
        self._width = 2 * encoding.oid_length(self._format)
        self._cat_file = repository.cat_file
        self._refs = Refs(repository)
        self._items: list[Item] = []
        self.ref = ref

    def tip_oid(self) -> str:
        """Return the oid of the notes commit, even if damaged; "" if there is no ref."""
        info = self._cat_file.info(self.ref)
        return info[0] if info else self._refs.read_ref(self.ref) or ""

    def read_note_lines(self, commits: Sequence[str]) -> dict[str, list[str]]:
        tree = self._read_tree(self._find_root(self.tip_oid()), set(commits))
        commit_blobs = {commit: blobs for commit in commits if (blobs := _find_blobs(tree, commit))}
        texts = self._read_merged_lines(commit_blobs)
        return {commit: lines for commit, lines in texts if lines is not None}

    def read_all_notes(self) -> Iterator[tuple[str, list[str] | None]]:
        """Yield each annotated commit with the lines of its note, or None if unreadable."""
        commit_blobs: dict[str, list[str]] = {}
        for commit, blob in self._list_blobs(
            self._read_tree(self._find_root(self.tip_oid()), None), ""
        ):
            commit_blobs.setdefault(commit, []).append(blob)
        return self._read_merged_lines(commit_blobs)

    def edit_notes(
        self, tip: str, commits: Sequence[str], change: Edit, instant: int
    ) -> tuple[str, list[Item]]:
        """Edit notes without writing; return a notes commit's oid and the new objects.

        If nothing changes, the oid is `tip`, that of the old notes commit. `change` gets a commit
        and the lines of its note, and returns the new lines. `instant` is the date of the new notes
        commit in microseconds.
        """
        self._items = []
        sorted_commits = sorted(set(commits))
        old_root = self._find_root(tip)
        root_tree = self._read_tree(old_root, set(sorted_commits))
        blobs = {commit: _find_blobs(root_tree, commit) for commit in sorted_commits}
        missing_commits: list[str] = []
        for commit, lines in self._read_merged_lines(blobs, missing_commits):
            if lines is None and commit not in missing_commits:
                continue  # too long, left as it is
            new_lines = change(commit, lines or [])
            if new_lines != (lines or []):
                blob = self._add_object("blob", encode_note_lines(new_lines)) if new_lines else ""
                self._set_note(root_tree, commit, len(blobs[commit]), blob)
        new_root = self._encode_tree(root_tree, self._width) if root_tree.is_changed else old_root
        if new_root == old_root:
            return tip, self._items
        new_root = new_root or self._add_object("tree", b"")
        author = b"gitckpt <gitckpt> %d +0000" % (instant // 1_000_000)
        fields = (new_root.encode(), author, author, _MESSAGE)
        text = b"tree %s\nauthor %s\ncommitter %s\n\n%s" % fields
        return self._add_object("commit", text), self._items

    def _find_root(self, tip: str) -> str:
        kind, data = (next(self._objects.read([tip])) if tip else None) or ("", b"")
        return data[5 : 5 + len(tip)].decode("ascii", "replace") if kind == "commit" else ""

    def _read_tree(self, root: str, commits: set[str] | None) -> _NotesTree:
        # None for all commits. An unreadable tree counts as empty: notes are derived.
        top_trees: dict[bytes, _NotesTree] = {}
        decoded_trees: dict[str, Entries] = {}
        pending_trees = [(top_trees, b"", root, "")] if root else []
        count = 0
        for digit_count in range(2, self._width + 2, 2):
            trees, pending_trees = pending_trees, []
            if not trees:
                break
            prefixes = None if commits is None else {commit[:digit_count] for commit in commits}
            oids = list(dict.fromkeys(oid for _, _, oid, _ in trees if oid not in decoded_trees))
            for oid, item in zip(oids, self._objects.read(oids), strict=True):
                decoded_trees[oid] = self._decode_tree(item)
            for parent, name, oid, prefix in trees:
                count += len(decoded_trees[oid])
                if count > MAX_ENTRIES:
                    return _NotesTree({}) if commits is None else top_trees[b""]
                tree = parent[name] = _NotesTree(decoded_trees[oid])
                for entry, (mode, child_oid) in tree.entries.items() if tree.is_split else ():
                    path = prefix + entry.decode("ascii", "replace")
                    is_selected = prefixes is None or path in prefixes
                    if mode == encoding.DIRECTORY and _is_hex(entry, 2) and is_selected:
                        pending_trees.append((tree.below, entry, child_oid, path))
        return top_trees.get(b"", _NotesTree({}))

    def _list_blobs(self, tree: _NotesTree, prefix: str) -> Iterator[tuple[str, str]]:
        for name, (mode, oid) in tree.entries.items():
            if mode != encoding.DIRECTORY and _is_hex(name, self._width - len(prefix)):
                yield prefix + name.decode("ascii"), oid
        for name, subtree in tree.below.items():
            yield from self._list_blobs(subtree, prefix + name.decode("ascii"))

    def _read_merged_lines(
        self, blobs: dict[str, list[str]], missing: list[str] | None = None
    ) -> Iterator[tuple[str, list[str] | None]]:
        # git joins the notes that a commit has in several places. Yields None for a note that is
        # too long or missing; a commit is added to `missing` before it is yielded.
        texts = self._objects.read([oid for oids in blobs.values() for oid in oids], MAX_NOTE_SIZE)
        for commit, oids in blobs.items():
            items = [next(texts) for _ in oids]
            readable_items = [item for item in items if item and item[0] != encoding.OVERSIZED]
            lines = [decode_note_lines(item) for item in readable_items]
            if missing is not None and any(text is None for text in items):
                missing.append(commit)
            merged_lines = dict.fromkeys(line for part in lines for line in part)
            note_lines = lines[0] if len(lines) == 1 else list(merged_lines)
            yield commit, note_lines if len(lines) == len(items) else None

    def _set_note(self, root: _NotesTree, commit: str, count: int, blob: str) -> None:
        # Replaces the note where the commit has one, else adds it; an empty `blob` removes it.
        tree, name = root, commit.encode()
        while True:
            tree.prepare_for_change()
            if name in tree.entries and tree.entries[name][0] != encoding.DIRECTORY:
                count -= 1
                del tree.entries[name]
                if not count and blob:
                    tree.entries[name] = (encoding.FILE, blob)
                if not count:
                    return
            subtree = tree.below.get(name[:2])
            if subtree is None and not blob:
                return
            if subtree is None and (not tree.is_split or name[:2] in tree.entries):
                tree.entries[name] = (encoding.FILE, blob)
                return
            if subtree is None:
                subtree = tree.below[name[:2]] = _NotesTree({})
            tree, name = subtree, name[2:]

    def _encode_tree(self, tree: _NotesTree, digits: int) -> str:
        # `digits`: length of the full names here. Returns "" for an empty tree.
        files = (name for name, (mode, _) in tree.entries.items() if mode != encoding.DIRECTORY)
        names = [name for name in files if _is_hex(name, digits)]
        if len(names) > _SPLIT_ABOVE[digits == self._width] and not tree.is_split and digits > 2:
            for name in names:
                if name[:2] not in tree.entries:
                    subtree = tree.below.setdefault(name[:2], _NotesTree({}))
                    subtree.is_changed = True
                    subtree.entries[name[2:]] = tree.entries.pop(name)
        for name, subtree in tree.below.items():
            if subtree.is_changed:
                oid = self._encode_tree(subtree, digits - 2)
                tree.entries.pop(name, None)
                if oid:
                    tree.entries[name] = (encoding.DIRECTORY, oid)
        return self._add_object("tree", encoding.encode_tree(tree.entries)) if tree.entries else ""

    def _decode_tree(self, item: Item | None) -> Entries:
        kind, data = item or ("", b"")
        try:
            return encoding.decode_tree(data, self._format) if kind == "tree" else {}
        except encoding.MalformedTree:
            return {}

    def _add_object(self, kind: str, data: bytes) -> str:
        self._items.append((kind, data))
        return encoding.object_id(kind, data, self._format)


def _find_blobs(tree: _NotesTree, commit: str) -> list[str]:
    # Of all notes of the commit, the one in the root first.
    blobs = []
    name = commit.encode()
    subtree: _NotesTree | None = tree
    while subtree is not None:
        mode, oid = subtree.entries.get(name, (encoding.DIRECTORY, ""))
        if mode != encoding.DIRECTORY:
            blobs.append(oid)
        subtree, name = subtree.below.get(name[:2]), name[2:]
    return blobs


def _is_hex(name: bytes, size: int) -> bool:
    return len(name) == size and not name.strip(b"0123456789abcdef")


def decode_note_lines(item: tuple[str, bytes]) -> list[str]:
    text = item[1].decode("utf-8", "surrogateescape")
    return text.removesuffix("\n").split("\n") if text else []


def encode_note_lines(lines: Sequence[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode("utf-8", "surrogateescape")
