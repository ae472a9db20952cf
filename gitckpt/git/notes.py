"""Notes: lines of text on commits, edited as trees, and always through a swap of the notes ref.

`git notes add` and libgit2 lose notes without a word when two processes write at once; here the new notes commit goes into a ref
transaction with the value it was made from. The commit has no parent: notes are derived, their history is of no use, and every
commit of it would show up in `git log --all`.
"""

from __future__ import annotations

from itertools import islice

from gitckpt.git.catfile import OVERSIZED
from gitckpt.git.objects.encoding import DIRECTORY, FILE, MalformedTree, blob_ids, decode_tree, encode_tree, object_id, place_in

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from gitckpt.git.objects.encoding import Entries
    from gitckpt.git.objects.port import Objects
    from gitckpt.git.repository import Repository

    Edit = Callable[[str, list[str]], list[str]]

    Trees = Sequence[tuple[str, str]]

_SPLIT_ABOVE = {True: 256, False: 1024}
"""A tree with more notes than this is split by the next two digits of the commit, as git does; the root sooner than what is below it."""

MOST = 500_000
"""How many notes, and trees of them, are looked at in trees that have been seen before."""

_LONGEST = 4 << 20
"""The longest note that is read, in bytes; no line is added to a longer one."""

_PORTION = 50_000
"""So many notes are read at once, where they are not all wanted together."""

_REBUILD_FROM, _PARTS, _SAMPLE = 500, 16, 16
"""With so many changes at once, and of a large tree one for so many notes, the whole is made anew: most of it would change anyway, and it
comes out with fewer parts. That is told by so many of the parts."""

_MESSAGE = b"Checkpoints of commits (derived)\n"


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
        self._fetched: dict[str, tuple[str, bytes] | None] = {}
        self._read: tuple[str, dict[str, tuple[bytes, str]]] | None = None

    def tip(self) -> str:
        """Returns the notes commit, "" where there is none."""
        found = self._cat_file.info(self.ref)
        return found[0] if found else ""

    def remark(self, tip: str) -> str:
        """Returns what the message of a notes commit says besides, as `edited` was told to; "" where there is nothing."""
        found = next(self._objects.read([tip])) if tip else None
        return found[1].partition(b"\n\n")[2].removeprefix(_MESSAGE).decode("ascii", "replace").strip() if found else ""

    def edited(self, tip: str, commits: Sequence[str], change: Edit, instant: int, remark: str = "") -> tuple[str, list[tuple[str, bytes]]]:
        """Returns the commit that holds the notes after a change, and the objects to write for it.

        Args:
            tip: the notes commit to start from, "" for none.
            commits: whose notes change.
            change: is given a commit and the lines of its note, and returns the lines it shall have; none removes the note.
            instant: date of the new commit, in microseconds since the epoch.
            remark: a line, in ASCII, that the message of the new commit says besides; "" for none.

        Returns:
            The tip itself and no objects where nothing changed.
        """
        self._pending = {}
        root = self._tree_of(tip) if tip else ""
        wanted = sorted(set(commits))
        new_root = self._rebuilt(root, wanted, change) if len(wanted) >= _REBUILD_FROM and self._is_worth_it(root, len(wanted)) else None
        if new_root is None:
            if len(wanted) > 1:
                self._fetch(root, set(wanted))
            new_root = self._edit_tree(root, [(commit, commit) for commit in wanted], change)
        if new_root == root:
            return tip, []
        who = b"gitckpt <gitckpt> %d +0000" % (instant // 1_000_000)
        self._fetched = {}
        message = _MESSAGE + (f"\n{remark}\n".encode("ascii") if remark else b"")
        text = b"tree %s\nauthor %s\ncommitter %s\n\n%s" % ((new_root or self._put("tree", b"")).encode(), who, who, message)
        return self._put("commit", text), list(self._pending.values())

    def lines(self, commits: Sequence[str]) -> dict[str, list[str]]:
        """Returns the lines of the notes of some commits; those without a note are left out."""
        wanted = set(commits)
        found = dict(self.items(wanted))
        texts = self._objects.read(list(found.values()), _LONGEST)
        return {commit: _lines(text) for commit, text in zip(found, texts, strict=True) if text is not None}

    def everything(self) -> dict[str, list[str]]:
        """Returns the lines of every note, by commit."""
        tip = self.tip()
        entries = self._entries_of(self._tree_of(tip)) if tip else {}
        found = {commit: oid for commit, (mode, oid) in entries.items() if mode != DIRECTORY}
        return {commit: lines for commit, lines in zip(found, self.texts(list(found.values())), strict=True) if lines is not None}

    def beyond(self, unknown: Callable[[Trees], Trees], seen: dict[str, str]) -> Iterator[tuple[str, str]]:
        """Yields commit and blob of each note that is in none of the trees that are known.

        Args:
            unknown: returns those of some trees that are not known, each by the digits that lead to it, in order, and its oid.
            seen: in the end, the other trees, likewise; empty where that were more than are looked at.
        """
        tip = self.tip()
        for path, mode, oid in self._walk(self._tree_of(tip) if tip else "", unknown=unknown, seen=seen):
            if mode != DIRECTORY:
                yield path, oid

    def each(self, seen: dict[str, str]) -> Iterator[tuple[str, list[str] | None]]:
        """Yields each annotated commit with the lines of its note, None for one that cannot be read, without all of them in memory.

        Args:
            seen: in the end, the trees, as for `beyond`.
        """
        tip = self.tip()
        root = self._tree_of(tip) if tip else ""
        notes = ((commit, oid) for commit, mode, oid in self._walk(root, seen=seen) if mode != DIRECTORY)
        while some := list(islice(notes, _PORTION)):
            for (commit, _), lines in zip(some, self.texts([oid for _, oid in some]), strict=True):
                yield commit, lines

    def blobs(self, texts: Iterable[Sequence[str]]) -> list[str]:
        """Returns the blob of each note that has certain lines, whether it is there or not."""
        return blob_ids(map(_text, texts), self._format)

    def tree(self, path: str, notes: Sequence[tuple[str, Sequence[str]]]) -> str:
        """Returns the tree in which certain notes are and nothing else, whether it is there or not.

        Args:
            path: the digits that lead to it.
            notes: each by its commit, with its lines, in the order of the commits.
        """
        blobs = blob_ids([_text(lines) for _, lines in notes], self._format)
        at = len(path)
        entries = (b"%s %s\0%s" % (FILE, commit[at:].encode(), bytes.fromhex(oid)) for (commit, _), oid in zip(notes, blobs, strict=True))
        return object_id("tree", b"".join(entries), self._format)

    def texts(self, blobs: Sequence[str]) -> Iterator[list[str] | None]:
        """Yields the lines of each note, given by its blob; None for one that is missing or damaged."""
        wanted = list(dict.fromkeys(blobs))
        texts = zip(wanted, self._objects.read(wanted, _LONGEST), strict=True)
        read: dict[str, list[str] | None] = {}
        for oid in blobs:
            while oid not in read:
                one, text = next(texts)
                read[one] = None if text is None or text[0] == OVERSIZED else _lines(text)
            yield read[oid]

    def items(self, only: set[str] | None = None) -> Iterator[tuple[str, str]]:
        """Yields each annotated commit with the blob of its note.

        Args:
            only: commits of interest; branches of the tree that cannot hold one of them are not read. None for all.
        """
        tip = self.tip()
        for path, mode, oid in self._walk(self._tree_of(tip) if tip else "", only):
            if mode != DIRECTORY:
                yield path, oid

    def _walk(
        self,
        root: str,
        only: set[str] | None = None,
        unknown: Callable[[Trees], Trees] = lambda trees: trees,
        seen: dict[str, str] | None = None,
    ) -> Iterator[tuple[str, bytes, str]]:
        """Yields path, mode and oid of each note, with the path as the commit's name; anything else as a directory without a name.

        No path comes twice: where two places of the tree have a note of one commit, the deeper one counts.

        A few trees, each of which has the next one 256 times, may stand for more than any disk holds. So trees that were seen before are
        looked at up to `MOST`; where that is not all, something without a name comes last.

        Args:
            root: where it begins.
            only: as for `items`; notes of other commits do not come.
            unknown: as for `beyond`.
            seen: likewise.
        """
        whole = 64 if self._format == "sha256" else 40
        starts = {length: {commit[:length] for commit in only} for length in range(2, whole, 2)} if only is not None else {}
        level = [("", root)] if root else []
        left = MOST
        twice: set[str] = set()
        seen = {} if seen is None else seen
        above: dict[str, tuple[bytes, str]] = {}
        while level := _doubtful(level, above, unknown):
            prefixes, trees = zip(*level, strict=True)
            level = []
            for prefix, tree, found in zip(prefixes, trees, self._objects.read(trees), strict=True):
                entries = self._decoded(found)
                left -= len(entries) + 1 if tree in twice else 0
                twice.add(tree)
                seen[prefix] = tree
                if left < 0:
                    seen.clear()
                    yield from ((path, mode, oid) for path, (mode, oid) in above.items())
                    yield "", DIRECTORY, root
                    return
                below = {name for name, (mode, _) in entries.items() if mode == DIRECTORY}
                for name, (mode, oid) in entries.items():
                    path = prefix + name.decode("ascii", "replace")
                    if only is not None and len(path) == whole and path not in only:
                        continue
                    if _is_note(name, mode, whole - len(prefix)):
                        if name[:2] in below:
                            above[path] = mode, oid
                            continue
                        above.pop(path, None)
                        yield path, mode, oid
                    elif mode != DIRECTORY or not _is_hex(name, 2):
                        yield "", DIRECTORY, oid
                    elif only is None or path in starts.get(len(path), ()):
                        level.append((path, oid))
        yield from ((path, mode, oid) for path, (mode, oid) in above.items())

    def _rebuilt(self, root: str, commits: Sequence[str], change: Edit) -> str | None:
        """Returns a new tree with the notes of some commits changed; None where something else than notes is in it."""
        entries = dict(self._entries_of(root))
        if "" in entries:
            return None
        there = [commit for commit in commits if commit in entries]
        lines = dict(zip(there, self.texts([entries[commit][1] for commit in there]), strict=True))
        for commit in commits:
            old = lines.get(commit) or []
            new = change(commit, old)
            if new and new != old:
                entries[commit] = (FILE, self._put("blob", _text(new)))
            elif not new:
                entries.pop(commit, None)
        return self._build({commit.encode(): entry for commit, entry in entries.items()}, is_root=True) if entries else ""

    def _fetch(self, root: str, commits: set[str]) -> None:
        """Reads at once what the notes of some commits are in, and these, instead of one after the other."""
        self._fetched = {}
        trees: dict[str, str] = {}
        blobs = [oid for path, mode, oid in self._walk(root, commits, seen=trees) if mode != DIRECTORY]
        for oids, most in (([*trees.values()], ()), (blobs, (_LONGEST,))):
            once = list(dict.fromkeys(oids))
            self._fetched.update(zip(once, self._objects.read(once, *most), strict=True))

    def _texts(self, blobs: Sequence[str]) -> list[tuple[str, bytes] | None]:
        """Returns each note, given by its blob."""
        if all(oid in self._fetched for oid in blobs):
            return [self._fetched[oid] for oid in blobs]
        return list(self._objects.read(blobs, _LONGEST))

    def _is_worth_it(self, root: str, changes: int) -> bool:
        """Tells, by a part of it, whether the whole is made anew for so many changes: most parts change, or have little in them."""
        size, level, depth = 1, [root] if root else [], 0
        while level:
            entries = [entry for found in self._objects.read(level) for entry in self._decoded(found).values()]
            size = size * len(entries) // len(level)
            level = [oid for mode, oid in entries if mode == DIRECTORY][:_SAMPLE]
            depth += 1
        return changes * _PARTS >= size or size < 2 * 256 ** (depth - 1)

    def _entries_of(self, root: str) -> dict[str, tuple[bytes, str]]:
        """Returns mode and oid by commit; the last answer is kept, as whoever changes many notes has just read them all."""
        read = self._read
        if read is None or read[0] != root:
            read = self._read = root, {path: (mode, oid) for path, mode, oid in self._walk(root)}
        return read[1]

    def _build(self, entries: Entries, *, is_root: bool) -> str:
        if len(entries) > _SPLIT_ABOVE[is_root]:
            groups: dict[bytes, Entries] = {}
            for name, entry in entries.items():
                groups.setdefault(name[:2], {})[name[2:]] = entry
            entries = {directory: (DIRECTORY, self._build(group, is_root=False)) for directory, group in groups.items()}
        return self._put("tree", encode_tree(entries))

    def _tree_of(self, commit: str) -> str:
        found = next(self._objects.read([commit]))
        return found[1][5 : 5 + len(commit)].decode("ascii") if found and found[0] == "commit" else ""

    def _edit_tree(self, tree: str, wanted: list[tuple[str, str]], change: Edit) -> str:
        """Returns the tree after the change ("" if nothing is left); `wanted` pairs the rest of a commit's name with the whole."""
        data = self._content(tree) if tree else b""
        edited = self._edit_in_place(data, *wanted[0], change) if data and len(wanted) == 1 else None
        if edited is not None:
            return self._put("tree", edited) if edited != data else tree
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
        if sum(_is_note(name, mode, size) for name, (mode, _) in entries.items()) > _SPLIT_ABOVE[size == len(wanted[0][1])]:
            entries = self._split(entries, size)
        return self._put("tree", encode_tree(entries)) if entries else ""

    def _edit_in_place(self, data: bytes, rest: str, commit: str, change: Edit) -> bytes | None:
        """Returns a tree with one note changed, where all else stays as it lies there; None where more changes than that."""
        found = place_in(data, DIRECTORY, rest[:2].encode(), self._format)
        if found is not None:
            at, end, is_there = found
            below = self._edit_tree(_oid_before(data, end, len(commit)), [(rest[2:], commit)], change) if is_there else ""
            return data[:at] + encode_tree({rest[:2].encode(): (DIRECTORY, below)}) + data[end:] if below else None
        found = place_in(data, FILE, rest.encode(), self._format)
        if found is None:
            return None
        at, end, is_there = found
        if not is_there and len(data) // len(encode_tree({rest.encode(): (FILE, commit)})) >= _SPLIT_ABOVE[len(rest) == len(commit)]:
            return None
        text = self._texts([_oid_before(data, end, len(commit))])[0] if is_there else None
        old = _lines(text) if text else []
        new = change(commit, old)
        if new == old or (text and text[0] == OVERSIZED):
            return data
        return data[:at] + encode_tree({rest.encode(): (FILE, self._put("blob", _text(new)))}) + data[end:] if new else None

    def _edit_entries(self, entries: Entries, wanted: list[tuple[bytes, str]], change: Edit) -> None:
        there = [name for name, _ in wanted if name in entries]
        texts = dict(zip(there, self._texts([entries[name][1] for name in there]), strict=True))
        for name, commit in wanted:
            found = texts.get(name)
            old = _lines(found) if found else []
            new = change(commit, old)
            if new != old and not (found and found[0] == OVERSIZED):
                self._set(entries, name, FILE, self._put("blob", _text(new)) if new else "")

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
            if _is_note(name, entry[0], size):
                groups.setdefault(name[:2], {})[name[2:]] = entry
            else:
                kept[name] = entry
        for directory, group in groups.items():
            there = self._entries(kept[directory][1]) if directory in kept else {}
            kept[directory] = (DIRECTORY, self._put("tree", encode_tree(there | group)))
        return kept

    def _entries(self, tree: str) -> Entries:
        return self._decoded(("tree", self._content(tree)))

    def _decoded(self, found: tuple[str, bytes] | None) -> Entries:
        """Returns the entries of a tree; none where it is malformed, missing, or none: notes are derived, and made anew."""
        try:
            return decode_tree(found[1], self._format) if found is not None and found[0] == "tree" else {}
        except MalformedTree:
            return {}

    def _content(self, tree: str) -> bytes:
        found = self._pending.get(tree) or self._fetched.get(tree) or next(self._objects.read([tree]))
        return found[1] if found and found[0] == "tree" else b""

    def _put(self, kind: str, data: bytes) -> str:
        oid = object_id(kind, data, self._format)
        self._pending[oid] = (kind, data)
        return oid


def _doubtful(level: list[tuple[str, str]], above: Iterable[str], unknown: Callable[[Trees], Trees]) -> list[tuple[str, str]]:
    """Returns those of some trees, all as deep, that are not known, or may have another note of a commit which has one above."""
    size = len(level[0][0]) if level else 0
    twice = {commit[:size] for commit in above}
    wanted = {path for path, _ in unknown([one for one in level if one[0] not in twice])}
    return [one for one in level if one[0] in twice or one[0] in wanted]


def _is_note(name: bytes, mode: bytes, size: int) -> bool:
    """Tells a note from the other things that people may keep in the tree; `size` is what is left of the commit's name there."""
    return mode != DIRECTORY and _is_hex(name, size)


def _is_hex(name: bytes, size: int) -> bool:
    return len(name) == size and not name.strip(b"0123456789abcdef")


def _oid_before(tree: bytes, end: int, digits: int) -> str:
    """Returns the oid that ends at a place of a tree."""
    return tree[end - digits // 2 : end].hex()


def _lines(found: tuple[str, bytes]) -> list[str]:
    return [line for line in found[1].decode("utf-8", "surrogateescape").split("\n") if line.strip()]


def _text(lines: Sequence[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode("utf-8", "surrogateescape")
