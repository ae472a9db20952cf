"""Which of many objects lack something beneath them. One `git rev-list` says whether all is there; only if not, Python looks for what.

In a partial clone nothing is fetched, and what its remote has promised is not missing; in a shallow one history ends where git says.
Submodules are other repositories.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import chain, islice

from gitckpt.git.command import LEAN
from gitckpt.git.graph import partial, reachability
from gitckpt.git.objects.encoding import DIRECTORY, GITLINK, decode_tree
from gitckpt.git.repository import Repository
from gitckpt.model.values import dataclass, field

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gitckpt.git.objects.port import Objects

SHOWN = 3
"""So many missing objects are named for each root."""


@dataclass(frozen=True, slots=True)
class Lacking:
    """What is missing or damaged.

    Attributes:
        samples: for each root that is not complete some of the missing objects, one more than `SHOWN` at most.
        complaint: what git says, where something is missing that cannot be found.
    """

    samples: Mapping[str, list[str]] = field(default_factory=dict)
    complaint: str = ""


def lacking(
    repository: Repository, objects: Objects, roots: Iterable[str], damaged: Collection[str] = (), *, with_history: bool = True
) -> Lacking:
    """Returns what is missing or damaged beneath commits and trees. The contents of blobs are not read.

    Args:
        roots: oids of commits and trees that are there, in any number; gone through more than once. Best in the order of their dates: what
            lots of them lead to is looked at one after the other, less what the end of the lot before does.
        damaged: objects that are known not to be readable.
        with_history: whether the parents of commits are looked at as well.
    """
    if next(iter(roots), None) is None:
        return Lacking()
    promised = partial.promisor(repository) is not None
    # Without the commit-graph, by which git takes commits to be there that are not.
    words = [*LEAN, "-c", "core.commitGraph=false", "rev-list", "--objects", "--stdin"]
    words += ["--no-object-names"] if damaged else ["--quiet"]
    words += [] if with_history else ["--no-walk=unsorted"]
    words.append("--exclude-promisor-objects" if promised else "--missing=print")
    lost = {oid.encode("ascii") for oid in damaged}
    found: list[bytes] = []

    def look(lines: list[bytes]) -> None:
        # With `--quiet` only what is missing is printed; without, it is marked.
        found.extend(line for line in lines if line.startswith(b"?") or line in lost)

    complaint = None
    remaining, before = iter(roots), list[str]()
    while complaint is None and not found and (lot := list(islice(remaining, reachability.LOT))):
        asked = chain(lot, (f"^{root}" for root in before if with_history))
        done = repository.git.each_line(*words, take=look, data=reachability.lines_of(asked), ok=(0, 128))
        complaint = done.complaint if done.code else None
        before = lot[-reachability.END :]
    if complaint is None and not found:
        return Lacking()
    sent = _promised(repository, objects) if promised else frozenset()
    walk = _Walk(repository, objects, roots, sent, damaged, with_history=with_history)
    complaint = "" if walk.missing else (complaint or "").strip().rpartition("\n")[2].removeprefix("fatal: ")
    return Lacking(walk.found(), complaint)


class _Walk:
    """A walk over all that is beneath some roots, each object once.

    Attributes:
        missing: what is missing or damaged.
    """

    def __init__(
        self,
        repository: Repository,
        objects: Objects,
        roots: Iterable[str],
        promised: Collection[str],
        damaged: Collection[str],
        *,
        with_history: bool,
    ) -> None:
        self._objects = objects
        self._format = repository.object_format
        self._roots = dict.fromkeys(roots)
        self._promised = promised
        self._present = _present(repository).difference(damaged)
        self._cut = _cut(repository)
        self._with_history = with_history
        self._referrers: dict[str, list[str]] = {}
        self.missing: set[str] = set()
        level = list(self._roots)
        seen = set(level)
        while level:
            level = list(dict.fromkeys(child for child in self._below(level) if child not in seen))
            seen.update(level)

    def found(self) -> dict[str, list[str]]:
        """Returns some of the missing objects for each root above one."""
        samples = {oid: [oid] for oid in sorted(self.missing)}
        waiting = list(samples)
        while waiting:
            oid = waiting.pop()
            for above in self._referrers.get(oid, ()):
                have = samples.setdefault(above, [])
                new = [each for each in samples[oid] if each not in have][: SHOWN + 1 - len(have)]
                if new:
                    have += new
                    waiting.append(above)
        return {root: sorted(samples[root]) for root in self._roots if root in samples}

    def _below(self, level: list[str]) -> Iterator[str]:
        """Yields the commits and trees that those of a level lead to."""
        there = [oid for oid in level if oid in self._present]
        self._lack(oid for oid in level if oid not in self._present)
        for oid, found in zip(there, self._objects.read(there, None), strict=True):
            if found is None:
                self.missing.add(oid)
                continue
            try:
                references = list(_references(found, self._format, is_cut=oid in self._cut or not self._with_history))
            except ValueError:  # it has the right oid, and was never whole
                self.missing.add(oid)
                continue
            for child, is_blob in references:
                if is_blob and child in self._present:
                    continue
                self._referrers.setdefault(child, []).append(oid)
                if is_blob:
                    self._lack([child])
                else:
                    yield child

    def _lack(self, oids: Collection[str] | Iterator[str]) -> None:
        self.missing.update(oid for oid in oids if oid not in self._promised)


def _references(found: tuple[str, bytes], object_format: str, *, is_cut: bool) -> Iterator[tuple[str, bool]]:
    """Yields what an object leads to, each with whether it is a blob."""
    kind, data = found
    if kind == "commit":
        for line in data.partition(b"\n\n")[0].split(b"\n"):
            word, _, oid = line.partition(b" ")
            if word == b"tree" or (word == b"parent" and not is_cut):
                yield oid.decode("ascii"), False
            elif word != b"parent":
                return
    elif kind == "tree":
        for mode, entry in decode_tree(data, object_format).values():
            if mode != GITLINK:
                yield entry, mode != DIRECTORY


def _present(repository: Repository) -> set[str]:
    """Returns all objects that are there, without fetching any."""
    out = repository.git.run("cat-file", "--batch-all-objects", "--unordered", "--batch-check=%(objectname)").out
    return set(out.decode("ascii").split())


def _cut(repository: Repository) -> set[str]:
    """Returns the commits whose parents a shallow clone leaves out."""
    with contextlib.suppress(FileNotFoundError), open(os.path.join(repository.common_dir, "shallow"), encoding="ascii") as file:
        return set(file.read().split())
    return set()


def _promised(repository: Repository, objects: Objects) -> set[str]:
    """Returns what the remote of a partial clone has promised: all that it sent, and all that this leads to."""
    place = os.path.join(repository.common_dir, "objects", "pack")
    sent: list[str] = []
    for name in sorted(os.listdir(place)):
        if name.endswith(".promisor"):
            with open(os.path.join(place, f"{name.removesuffix('.promisor')}.idx"), "rb") as file:
                out = repository.git.run("show-index", f"--object-format={repository.object_format}", data=file.read()).out
            sent += [line.split(b" ")[1].decode("ascii") for line in out.splitlines()]
    promised = set(sent)
    for found in objects.read(sent, None):
        if found is not None and found[0] != "blob":
            promised.update(oid for oid, _ in _references(found, repository.object_format, is_cut=False))
    return promised
