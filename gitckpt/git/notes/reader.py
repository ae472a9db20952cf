"""Notes of commits, as they are: lines of text, in trees of which a level more begins where there are many."""

from __future__ import annotations

from itertools import islice

from gitckpt.git.objects.encoding import DIRECTORY, FILE, OVERSIZED, MalformedTree, blob_ids, decode_tree, object_id, oid_size, uniform
from gitckpt.git.refs import Refs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from gitckpt.git.objects.encoding import Entries
    from gitckpt.git.objects.port import Objects
    from gitckpt.git.repository import Repository

    Trees = Sequence[tuple[str, str]]

MOST = 500_000
"""How many notes, and trees of them, are looked at in trees that have been seen before."""

LONGEST = 4 << 20
"""The longest note that is read, in bytes; no line is added to a longer one."""

_PORTION = 50_000
"""So many notes are read at once, where they are not all wanted together."""

MESSAGE = b"Checkpoints of commits (derived)\n"
"""What the message of a notes commit begins with."""


class NotesReader:
    """Reads the notes of one ref.

    Args:
        ref: full name of the notes ref.
    """

    def __init__(self, repository: Repository, objects: Objects, ref: str) -> None:
        self._objects = objects
        self._format = repository.object_format
        self._cat_file = repository.cat_file
        self._refs = Refs(repository)
        self.ref = ref
        self._read: tuple[str, dict[str, tuple[bytes, str]]] | None = None

    def tip(self) -> str:
        """Returns what the ref points to, "" where there is none: the notes commit, which may be missing or damaged."""
        found = self._cat_file.info(self.ref)
        return found[0] if found else self._refs.read(self.ref) or ""

    def remark(self, tip: str) -> str:
        """Returns what the message of a notes commit says besides, as `edited` was told to; "" where there is nothing."""
        found = next(self._objects.read([tip])) if tip else None
        return found[1].partition(b"\n\n")[2].removeprefix(MESSAGE).decode("ascii", "replace").strip() if found else ""

    def lines(self, commits: Sequence[str]) -> dict[str, list[str]]:
        """Returns the lines of the notes of some commits; those without a note are left out."""
        wanted = set(commits)
        found = dict(self.items(wanted))
        texts = self._objects.read(list(found.values()), LONGEST)
        return {commit: lines_of(text) for commit, text in zip(found, texts, strict=True) if text is not None}

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
            seen: in the end, the other trees, likewise, but for those that cannot be read and those that lead to them; empty where that
                were more than are looked at.
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
        return blob_ids(map(text_of, texts), self._format)

    def tree(self, path: str, notes: Sequence[tuple[str, Sequence[str]]]) -> str:
        """Returns the tree in which certain notes are and nothing else, whether it is there or not.

        Args:
            path: the digits that lead to it.
            notes: each by its commit, with its lines, in the order of the commits.
        """
        blobs = blob_ids([text_of(lines) for _, lines in notes], self._format)
        at = len(path)
        entries = (b"%s %s\0%s" % (FILE, commit[at:].encode(), bytes.fromhex(oid)) for (commit, _), oid in zip(notes, blobs, strict=True))
        return object_id("tree", b"".join(entries), self._format)

    def texts(self, blobs: Sequence[str]) -> Iterator[list[str] | None]:
        """Yields the lines of each note, given by its blob; None for one that is missing or damaged."""
        wanted = list(dict.fromkeys(blobs))
        texts = zip(wanted, self._objects.read(wanted, LONGEST), strict=True)
        read: dict[str, list[str] | None] = {}
        for oid in blobs:
            while oid not in read:
                one, text = next(texts)
                read[one] = None if text is None or text[0] == OVERSIZED else lines_of(text)
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
        *,
        unknown: Callable[[Trees], Trees] = lambda trees: trees,
        seen: dict[str, str] | None = None,
        read: dict[str, tuple[str, bytes] | None] | None = None,
    ) -> Iterator[tuple[str, bytes, str]]:
        """Yields path, mode and oid of each note, with the path as the commit's name; anything else as a directory without a name.

        A tree that cannot be read counts as one, and so does a note that is passed over.

        No path comes twice: where two places of the tree have a note of one commit, the deeper one counts.

        A few trees, each of which has the next one 256 times, may stand for more than any disk holds. So trees that were seen before are
        looked at up to `MOST`; where that is not all, something without a name comes last.

        Args:
            root: where it begins.
            only: as for `items`; notes of other commits do not come.
            unknown: as for `beyond`.
            seen: likewise.
            read: in the end, what was read, by oid; nobody has to read it again.
        """
        whole = 2 * oid_size(self._format)
        ordered = sorted(only) if only is not None else None
        level = [("", root)] if root else []
        left = MOST
        twice: set[str] = set()
        seen = {} if seen is None else seen
        above: dict[str, tuple[bytes, str]] = {}
        while level := _doubtful(level, above, unknown):
            trees, level = level, []
            for prefix, tree, found in self._contents(trees, read):
                is_again = tree in twice
                twice.add(tree)
                seen[prefix] = tree
                notes = None if above or is_again else self._flat(found, prefix, whole, ordered)
                if notes is not None:  # as it is with nearly all of them
                    yield from ((path, FILE, oid) for path, oid in notes)
                    continue
                entries = self._decoded(found)
                left -= len(entries) + 1 if is_again else 0
                if not entries and (found is None or found[1]):  # nobody knows what is in it, nor below those that lead to it
                    _forget(seen, prefix)
                    yield "", DIRECTORY, tree
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
                    if is_note(name, mode, whole - len(prefix)):
                        if name[:2] in below:
                            above[path] = mode, oid
                            continue
                        if above.pop(path, None) is not None:
                            yield "", DIRECTORY, oid
                        yield path, mode, oid
                    elif mode != DIRECTORY or not _is_hex(name, 2):
                        yield "", DIRECTORY, oid
                    elif ordered is None or (len(path) < whole and _below(path, ordered)):
                        level.append((path, oid))
        yield from ((path, mode, oid) for path, (mode, oid) in above.items())

    def _contents(
        self, trees: Trees, read: dict[str, tuple[str, bytes] | None] | None
    ) -> Iterator[tuple[str, str, tuple[str, bytes] | None]]:
        """Yields some trees, each by the digits that lead to it and its oid, with what is in it. Args: `read` as for `_walk`."""
        oids = [tree for _, tree in trees]
        for (prefix, tree), found in zip(trees, self._objects.read(oids), strict=True):
            if read is not None:
                read[tree] = found
            yield prefix, tree, found

    def _entries_of(self, root: str) -> dict[str, tuple[bytes, str]]:
        """Returns mode and oid by commit; the last answer is kept, as whoever changes many notes has just read them all."""
        read = self._read
        if read is None or read[0] != root:
            read = self._read = root, {path: (mode, oid) for path, mode, oid in self._walk(root)}
        return read[1]

    def _tree_of(self, commit: str) -> str:
        found = next(self._objects.read([commit]))
        return found[1][5 : 5 + len(commit)].decode("ascii") if found and found[0] == "commit" else ""

    def _flat(
        self, found: tuple[str, bytes] | None, prefix: str, whole: int, only: Sequence[str] | None
    ) -> Iterable[tuple[str, str]] | None:
        """Returns commit and blob of each note of a tree that has nothing else; None for another tree.

        Args:
            found: the tree.
            prefix: the digits that lead to it.
            whole: the digits of a commit's name.
            only: the commits of interest, in order; None for all.
        """
        digits = whole - len(prefix)
        notes = uniform(found[1], FILE, digits, self._format) if found is not None and found[0] == "tree" else None
        if notes is None:
            return None
        if only is None:
            oids = notes.oids()
            return None if oids is None else ((prefix + name, oid) for name, oid in oids.items())
        commits = _below(prefix, only)
        blobs = notes.oids_of([commit[len(prefix) :].encode() for commit in commits])
        return ((commit, oid) for commit, oid in zip(commits, blobs, strict=True) if oid)

    def _decoded(self, found: tuple[str, bytes] | None) -> Entries:
        """Returns the entries of a tree; none where it is malformed, missing, or none: notes are derived, and made anew."""
        try:
            return decode_tree(found[1], self._format) if found is not None and found[0] == "tree" else {}
        except MalformedTree:
            return {}


def _below(prefix: str, commits: Sequence[str]) -> Sequence[str]:
    """Returns those of some commits, which are in order, whose names begin with some digits."""
    from bisect import bisect_left

    return commits[bisect_left(commits, prefix) : bisect_left(commits, f"{prefix}g")]


def _forget(trees: dict[str, str], path: str) -> None:
    """Takes away a tree, and those that lead to it."""
    for digits in range(0, len(path) + 1, 2):
        trees.pop(path[:digits], None)


def _doubtful(level: list[tuple[str, str]], above: Iterable[str], unknown: Callable[[Trees], Trees]) -> list[tuple[str, str]]:
    """Returns those of some trees, all as deep, that are not known, or may have another note of a commit which has one above."""
    size = len(level[0][0]) if level else 0
    twice = {commit[:size] for commit in above}
    wanted = {path for path, _ in unknown([one for one in level if one[0] not in twice])}
    return [one for one in level if one[0] in twice or one[0] in wanted]


def is_note(name: bytes, mode: bytes, size: int) -> bool:
    """Tells a note from the other things that people may keep in the tree; `size` is what is left of the commit's name there."""
    return mode != DIRECTORY and _is_hex(name, size)


def _is_hex(name: bytes, size: int) -> bool:
    return len(name) == size and not name.strip(b"0123456789abcdef")


def lines_of(found: tuple[str, bytes]) -> list[str]:
    """Returns the lines of a note, given by the kind and the content of its blob."""
    return [line for line in found[1].decode("utf-8", "surrogateescape").split("\n") if line.strip()]


def text_of(lines: Sequence[str]) -> bytes:
    """Returns the content of the blob of a note."""
    return "".join(f"{line}\n" for line in lines).encode("utf-8", "surrogateescape")
