"""Find and fetch missing objects, and walk the history for reachability."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice

from gitckpt.git import config
from gitckpt.git.command import BOUNDED, LEAN
from gitckpt.git.objects.encoding import DIRECTORY, GITLINK, decode_tree
from gitckpt.git.process import MAY_FETCH, SEE_DAMAGE, GitError
from gitckpt.git.repository import Repository
from gitckpt.model.arguments import first_of
from gitckpt.model.errors import WorktreeError
from gitckpt.model.values import dataclass, field

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gitckpt.git.command import Git
    from gitckpt.git.objects.port import Objects


# Partial clones (git's `partial-clone` document)


def promisor(repository: Repository) -> str | None:
    """Return the promisor remote of a partial clone; None for a full clone."""
    names = config.read(repository, r"^remote\..*\.promisor$")
    return next(
        (name.removeprefix("remote.").removesuffix(".promisor") for name, values in names.items() if config.is_on(values[-1])), None
    )


def on_purpose(repository: Repository) -> Mapping[str, str]:
    """Return variables that let git fetch in a partial clone while it writes files."""
    return MAY_FETCH if promisor(repository) is not None else {}


def missing(repository: Repository, tree: str, known: str | None, *, blobs: bool = True) -> list[str]:
    """Return the missing objects below a tree but not below `known`; fetch none."""
    words = ["rev-list", "--objects", "--no-object-names", "--missing=print"]
    words += [] if blobs else ["--filter=blob:none"]
    done = repository.git.run(*words, tree, *(["--not", known] if known else []), ok=(0, 128))
    if done.code != 0 and tree in done.complaint:  # git dies if the top itself is missing
        return [tree]
    return [line[1:].decode("ascii") for line in done.out.splitlines() if line.startswith(b"?")]


def fetch_missing(repository: Repository, tree: str, known: str | None, *, blobs: bool = True) -> None:
    """Fetch exactly what a partial clone lacks below a tree, level by level."""
    remote = promisor(repository)
    if remote is None:
        return
    options = ("--no-tags", "--no-write-fetch-head", "--recurse-submodules=no", "--filter=blob:none", "--stdin")
    words = ("-c", "fetch.negotiationAlgorithm=noop", "fetch", "--quiet", remote, *options)
    before: list[str] = []
    while wanted := missing(repository, tree, known, blobs=blobs):
        if wanted == before:
            raise unreachable(wanted)
        data = "".join(f"{oid}\n" for oid in wanted).encode("ascii")
        try:
            repository.git.run(*words, data=data, env=MAY_FETCH)
        except GitError:
            raise unreachable(wanted) from None
        before = wanted  # fetched trees may name other missing objects


def fetch_for(repository: Repository, snapshot: str | None, commit: str) -> None:
    """Fetch the trees and lists that are read from a snapshot before its files.

    Without a `snapshot`, the commit's tree is it; the commit may be "".
    """
    if promisor(repository) is None:
        return
    tree = snapshot
    if tree is None and commit:
        header = next(repository.cat_file.contents([commit]))
        tree = header[2][:80].split()[1].decode("ascii") if header is not None else None
    if tree is None:
        return
    fetch_missing(repository, tree, None, blobs=False)
    if snapshot is not None:
        files = repository.cat_file.info(f"{snapshot}:files")
        fetch_missing(repository, snapshot, files[0] if files is not None else None)


def unreachable(oids: Sequence[str], *, is_promised: bool = True) -> WorktreeError:
    return WorktreeError(
        f"{len(oids)} objects of the files are missing here: {first_of(oids)}",
        hint="this is a partial clone: run the command again where its remote can be reached" if is_promised else SEE_DAMAGE,
    )


# Reachability of commits: one walk for any number of them

_AT_ONCE = 1000

# Revisions of one walk, each a kilobyte of git's memory; and how many of them cut off the next lot.
LOT, END = 100_000, 10_000


def newest(git: Git, commits: Collection[str]) -> set[str]:
    """Return the commits that are no ancestors of another one."""
    return _walk(git, [f"{commit}^!" for commit in commits]) if commits else set()


def between(git: Git, above: Iterable[str], below: Iterable[str]) -> set[str]:
    """Return all commits reachable from `above` and not from `below`, both inclusive."""
    return _walk(git, chain(above, (f"^{commit}" for commit in below)))


def outside(git: Git, commits: Iterable[str], tips: Iterable[str]) -> set[str]:
    """Return the existing commits that no tip reaches; a tip reaches itself."""
    if next(iter(commits), None) is None:
        return set()
    found = _walk(git, chain(commits, (f"^{tip}" for tip in tips)))
    return found.intersection(commits) if found else found


def unreached(git: Git, commits: Iterable[str], tips: Collection[str]) -> set[str]:
    """Return what `outside` returns, but correct whatever the commit dates are.

    `commits` come newest first. Both arguments are iterated many times.
    """
    commits = _doubtful(git, commits, tips)
    # Few wrong dates make git stop a walk with exclusions early: six commits of 1970 are enough.
    found = outside(git, commits, tips)
    return found - _walk(git, tips) if found and tips else found


def _doubtful(git: Git, commits: Iterable[str], tips: Collection[str]) -> Iterable[str]:
    # All of a few commits; of many, those that no lot shows to be reached. What the end of a lot
    # reaches is reached by the tips if that end is.
    if len(list(islice(commits, LOT + 1))) <= LOT:
        return commits
    candidates: set[str] = set()
    remaining, inside = iter(commits), tips
    while lot := list(islice(remaining, LOT)):
        doubtful = outside(git, lot, inside)
        candidates |= doubtful
        inside = [commit for commit in lot[-END:] if commit not in doubtful] or tips
    return candidates


def above(git: Git, tips: Collection[str], commits: Iterable[str]) -> set[str]:
    """Return the tips that reach one of the commits, and that no commit reaches."""
    if not tips or next(iter(commits), None) is None:
        return set()
    return _walk(git, chain(tips, (f"^{commit}" for commit in commits)), "--ancestry-path").intersection(tips)


def _walk(git: Git, revs: Iterable[str], *options: str) -> set[str]:
    oids: set[str] = set()
    words = (*LEAN, "rev-list", "--ignore-missing", *options, "--stdin")
    git.each_line(*words, take=lambda lines: oids.update(line.decode("ascii") for line in lines), data=lines_of(revs))
    return oids


def lines_of(words: Iterable[str]) -> Iterator[bytes]:
    remaining = iter(words)
    while some := list(islice(remaining, _AT_ONCE)):
        yield "".join(f"{word}\n" for word in some).encode("ascii")


# Missing objects beneath commits and trees

SHOWN = 3  # missing objects named for each root


@dataclass(frozen=True, slots=True)
class Lacking:
    """Missing and damaged objects: some for each incomplete root."""

    samples: Mapping[str, list[str]] = field(default_factory=dict)
    complaint: str = ""  # of git, where something is missing that cannot be identified


def lacking(
    repository: Repository, objects: Objects, roots: Iterable[str], damaged: Collection[str] = (), *, with_history: bool = True
) -> Lacking:
    """Return missing or damaged objects beneath commits and trees, blobs excepted.

    One `git rev-list` tells whether all is there; only if not, Python looks for what is missing.
    `roots` are iterated more than once, best in the order of their dates: each lot of `LOT`
    excludes what the end of the lot before reaches.
    """
    if next(iter(roots), None) is None:
        return Lacking()
    promised = promisor(repository) is not None
    # Without the commit-graph: git trusts it for commits that are missing.
    words = [*LEAN, "-c", "core.commitGraph=false", "rev-list", "--objects", "--stdin"]
    words += ["--no-object-names"] if damaged else ["--quiet"]
    words += [] if with_history else ["--no-walk=unsorted"]
    words.append("--exclude-promisor-objects" if promised else "--missing=print")
    lost = {oid.encode("ascii") for oid in damaged}
    found: list[bytes] = []

    def look(lines: list[bytes]) -> None:
        # With `--quiet` git prints missing objects only; otherwise it marks them with `?`.
        found.extend(line for line in lines if line.startswith(b"?") or line in lost)

    complaint = None
    remaining, before = iter(roots), list[str]()
    while complaint is None and not found and (lot := list(islice(remaining, LOT))):
        asked = chain(lot, (f"^{root}" for root in before if with_history))
        done = repository.git.each_line(*words, take=look, data=lines_of(asked), ok=(0, 128))
        complaint = done.complaint if done.code else None
        before = lot[-END:]
    if complaint is None and not found:
        return Lacking()
    sent = _promised(repository, objects) if promised else frozenset()
    walk = _Walk(repository, objects, roots, sent, damaged, with_history=with_history)
    complaint = "" if walk.missing else (complaint or "").strip().rpartition("\n")[2].removeprefix("fatal: ")
    return Lacking(walk.found(), complaint)


class _Walk:
    """A walk over all objects beneath some roots, each object once."""

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
        # Some of the missing objects for each root that reaches one.
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
        there = [oid for oid in level if oid in self._present]
        self._lack(oid for oid in level if oid not in self._present)
        for oid, found in zip(there, self._objects.read(there, None), strict=True):
            if found is None:
                self.missing.add(oid)
                continue
            try:
                references = list(_references(found, self._format, is_cut=oid in self._cut or not self._with_history))
            except ValueError:  # the oid matches, but the object is malformed
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
    out = repository.git.run("cat-file", "--batch-all-objects", "--unordered", "--batch-check=%(objectname)").out
    return set(out.decode("ascii").split())


def _cut(repository: Repository) -> set[str]:
    # Commits whose parents a shallow clone lacks.
    with contextlib.suppress(FileNotFoundError), open(os.path.join(repository.common_dir, "shallow"), encoding="ascii") as file:
        return set(file.read().split())
    return set()


def _promised(repository: Repository, objects: Objects) -> set[str]:
    # The remote promises all that it sent, and all that this refers to.
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


def unlike(repository: Repository, oids: Iterable[str], usual: str) -> dict[str, str | None]:
    """Return the kind of each object that is not `usual`; None if it is missing."""
    kinds: dict[str, str | None] = {}
    ending = f" {usual}".encode("ascii")

    def look(lines: list[bytes]) -> None:
        for line in lines:
            if not line.endswith(ending):
                oid, kind = line.decode("ascii").split(" ")
                kinds[oid] = None if kind == "missing" else kind

    words = ("cat-file", "--batch-check=%(objectname) %(objecttype)", "--buffer")
    repository.git.each_line(*BOUNDED, *words, take=look, data=lines_of(oids))
    return kinds
