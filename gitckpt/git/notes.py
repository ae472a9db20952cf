"""Notes: lines of text on commits, edited as trees, and always through a swap of the notes ref.

`git notes add` and libgit2 lose notes without a word when two processes write at once; here the new notes commit goes into a ref
transaction with the value it was made from. The commit has no parent: notes are derived, their history is of no use, and every
commit of it would show up in `git log --all`.
"""

from __future__ import annotations

from gitckpt.git.objects import object_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from gitckpt.git.objects import Objects
    from gitckpt.git.repository import Repository

    Change = Callable[[str, list[str]], list[str]]
    Entries = dict[bytes, tuple[bytes, str]]
    """Of a tree: mode and oid by name."""

_SPLIT_ABOVE = 256
"""A tree with more notes than this is split by the first two digits of the commit, as git does."""

_DIRECTORY = b"40000"
_FILE = b"100644"
_MESSAGE = b"Checkpoints of commits (derived; git ckpt verify --repair makes them anew)\n"


class Notes:
    """The notes of one ref.

    Args:
        repository: where.
        objects: its objects.
        ref: full name of the notes ref.
    """

    def __init__(self, repository: Repository, objects: Objects, ref: str) -> None:
        self._objects = objects
        self._format = repository.object_format
        self._cat_file = repository.cat_file
        self.ref = ref
        self._pending: dict[str, tuple[str, bytes]] = {}

    def tip(self) -> str:
        """Returns the notes commit, "" where there is none."""
        found = self._cat_file.info(self.ref)
        return found[0] if found else ""

    def edited(self, tip: str, commits: Sequence[str], change: Change, instant: int) -> tuple[str, list[tuple[str, bytes]]]:
        """Returns the commit that holds the notes after a change, and the objects to write for it.

        Args:
            tip: the notes commit to start from, "" for none.
            commits: whose notes change.
            change: is given a commit and the lines of its note, and returns the lines it shall have; none removes the note.
            instant: date of the new commit, in microseconds since the epoch.

        Returns:
            The tip itself and no objects where nothing changed.
        """
        self._pending = {}
        root = self._tree_of(tip) if tip else ""
        new_root = self._edit_tree(root, [(commit, commit) for commit in sorted(set(commits))], change)
        if new_root == root:
            return tip, []
        who = b"gitckpt <gitckpt> %d +0000" % (instant // 1_000_000)
        text = b"tree %s\nauthor %s\ncommitter %s\n\n%s" % ((new_root or self._put("tree", b"")).encode(), who, who, _MESSAGE)
        return self._put("commit", text), list(self._pending.values())

    def lines(self, commits: Sequence[str]) -> dict[str, list[str]]:
        """Returns the lines of the notes of some commits; those without a note are left out."""
        wanted = set(commits)
        found = {commit: oid for commit, oid in self.items(wanted) if commit in wanted}
        texts = self._objects.read(list(found.values()))
        return {commit: _lines(text) for commit, text in zip(found, texts, strict=True) if text is not None}

    def items(self, only: set[str] | None = None) -> Iterator[tuple[str, str]]:
        """Yields each annotated commit with the blob of its note.

        Args:
            only: commits of interest; branches of the tree that cannot hold one of them are not read.
        """
        tip = self.tip()
        pending = [("", self._tree_of(tip))] if tip else []
        starts = {length: {commit[:length] for commit in only} for length in range(2, 66, 2)} if only is not None else {}
        while pending:
            prefix, tree = pending.pop()
            for name, (mode, oid) in self._entries(tree).items():
                path = prefix + name.decode("ascii", "replace")
                if mode != _DIRECTORY:
                    yield path, oid
                elif only is None or path in starts.get(len(path), ()):
                    pending.append((path, oid))

    def _tree_of(self, commit: str) -> str:
        found = next(self._objects.read([commit]))
        return found[1][5 : 5 + len(commit)].decode("ascii") if found else ""

    def _edit_tree(self, tree: str, wanted: list[tuple[str, str]], change: Change) -> str:
        """Returns the tree after the change ("" if nothing is left); `wanted` pairs the rest of a commit's name with the whole."""
        entries = self._entries(tree) if tree else {}
        before = dict(entries)
        below: dict[bytes, list[tuple[str, str]]] = {}
        for rest, commit in wanted:
            directory = rest[:2].encode()
            if entries.get(directory, (b"",))[0] == _DIRECTORY:
                below.setdefault(directory, []).append((rest[2:], commit))
            else:
                self._edit_entry(entries, rest.encode(), commit, change)
        for directory, inner in below.items():
            self._set(entries, directory, _DIRECTORY, self._edit_tree(entries[directory][1], inner, change))
        if entries == before:
            return tree
        if sum(mode != _DIRECTORY for mode, _ in entries.values()) > _SPLIT_ABOVE:
            entries = self._split(entries)
        return self._put("tree", _tree_data(entries)) if entries else ""

    def _edit_entry(self, entries: Entries, name: bytes, commit: str, change: Change) -> None:
        old: list[str] = []
        if name in entries:
            found = next(self._objects.read([entries[name][1]]))
            old = _lines(found) if found else []
        new = change(commit, old)
        if new != old:
            self._set(
                entries,
                name,
                _FILE,
                self._put("blob", "".join(f"{line}\n" for line in new).encode("utf-8", "surrogateescape")) if new else "",
            )

    @staticmethod
    def _set(entries: Entries, name: bytes, mode: bytes, oid: str) -> None:
        if oid:
            entries[name] = (mode, oid)
        else:
            entries.pop(name, None)

    def _split(self, entries: Entries) -> Entries:
        groups: dict[bytes, Entries] = {}
        kept: Entries = {}
        for name, entry in entries.items():
            if entry[0] == _DIRECTORY or len(name) <= 2:
                kept[name] = entry
            else:
                groups.setdefault(name[:2], {})[name[2:]] = entry
        for directory, group in groups.items():
            there = self._entries(kept[directory][1]) if directory in kept else {}
            kept[directory] = (_DIRECTORY, self._put("tree", _tree_data(there | group)))
        return kept

    def _entries(self, tree: str) -> Entries:
        found = self._pending.get(tree) or next(self._objects.read([tree]))
        data = found[1] if found else b""
        size = len(tree) // 2
        entries: Entries = {}
        at = 0
        while at < len(data):
            space = data.index(b" ", at)
            end = data.index(b"\0", space)
            entries[data[space + 1 : end]] = (data[at:space], data[end + 1 : end + 1 + size].hex())
            at = end + 1 + size
        return entries

    def _put(self, kind: str, data: bytes) -> str:
        oid = object_id(kind, data, self._format)
        self._pending[oid] = (kind, data)
        return oid


def _lines(found: tuple[str, bytes]) -> list[str]:
    return [line for line in found[1].decode("utf-8", "surrogateescape").split("\n") if line.strip()]


def _tree_data(entries: Entries) -> bytes:
    ordered = sorted(entries.items(), key=lambda item: item[0] + b"/" if item[1][0] == _DIRECTORY else item[0])
    return b"".join(b"%s %s\0%s" % (mode, name, bytes.fromhex(oid)) for name, (mode, oid) in ordered)
