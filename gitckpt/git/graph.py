"""Find and fetch missing objects, and walk the history for reachability."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice

from gitckpt.git import config
from gitckpt.git.command import BOUNDED, LEAN
from gitckpt.git.filesystem import read_or_empty
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
    for name, values in config.read(repository, r"^remote\..*\.promisor$").items():
        if config.is_on(values[-1]):
            return name.removeprefix("remote.").removesuffix(".promisor")
    return None


def on_purpose(repository: Repository) -> Mapping[str, str]:
    """Return variables that let git fetch in a partial clone while it writes files."""
    return MAY_FETCH if promisor(repository) is not None else {}


def missing(
    repository: Repository, tree: str, known: str | None, *, blobs: bool = True
) -> list[str]:
    """Return the missing objects below a tree but not below `known`; fetch none."""
    words = ["rev-list", "--objects", "--no-object-names", "--missing=print"]
    words += [] if blobs else ["--filter=blob:none"]
    done = repository.git.run(*words, tree, *(["--not", known] if known else []), ok=(0, 128))
    if done.code != 0 and tree in done.complaint:  # git dies if the top itself is missing
        return [tree]
    return [line[1:].decode("ascii") for line in done.out.splitlines() if line.startswith(b"?")]


def fetch_missing(
    repository: Repository, tree: str, known: str | None, *, blobs: bool = True
) -> None:
    """Fetch exactly what a partial clone lacks below a tree, level by level."""
    remote = promisor(repository)
    if remote is None:
        return
    options = ("--no-tags", "--no-write-fetch-head", "--recurse-submodules=no")
    words = ["-c", "fetch.negotiationAlgorithm=noop", "fetch", "--quiet", remote, *options]
    words += ["--filter=blob:none", "--stdin"]
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
    """Fetch the trees and lists that are read from a snapshot before its files."""
    if promisor(repository) is None:
        return
    if snapshot is not None:
        fetch_missing(repository, snapshot, None, blobs=False)
        files = repository.cat_file.info(f"{snapshot}:files")
        fetch_missing(repository, snapshot, files[0] if files is not None else None)
    elif commit and (header := next(repository.cat_file.contents([commit]))) is not None:
        tree = header[2][:80].split()[1].decode("ascii")
        fetch_missing(repository, tree, None, blobs=False)


def unreachable(oids: Sequence[str], *, is_promised: bool = True) -> WorktreeError:
    fetch = "this is a partial clone: run the command again where its remote can be reached"
    message = f"{len(oids)} objects of the files are missing here: {first_of(oids)}"
    return WorktreeError(message, hint=fetch if is_promised else SEE_DAMAGE)


# Reachability of commits: one walk for any number of them

_AT_ONCE = 1000


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
    unreached_commits = _walk(git, chain(commits, (f"^{tip}" for tip in tips)))
    return unreached_commits.intersection(commits) if unreached_commits else unreached_commits


def unreached(git: Git, commits: Iterable[str], tips: Collection[str]) -> set[str]:
    """Return what `outside` returns, but correct whatever the commit dates are."""
    # Few wrong dates make git stop a walk with exclusions early: six commits of 1970 are enough.
    candidates = outside(git, commits, tips)
    return candidates - _walk(git, tips) if candidates and tips else candidates


def above(git: Git, tips: Collection[str], commits: Iterable[str]) -> set[str]:
    """Return the tips that reach one of the commits, and that no commit reaches."""
    if not tips or next(iter(commits), None) is None:
        return set()
    revs = chain(tips, (f"^{commit}" for commit in commits))
    return _walk(git, revs, "--ancestry-path").intersection(tips)


def _walk(git: Git, revs: Iterable[str], *options: str) -> set[str]:
    oids: set[str] = set()

    def add(lines: list[bytes]) -> None:
        oids.update(line.decode("ascii") for line in lines)

    words = (*LEAN, "rev-list", "--ignore-missing", *options, "--stdin")
    git.each_line(*words, take=add, data=lines_of(revs))
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
    repository: Repository,
    objects: Objects,
    roots: Iterable[str],
    damaged: Collection[str] = (),
    *,
    with_history: bool = True,
) -> Lacking:
    """Return what is missing or damaged beneath `roots`, except in blobs."""
    if next(iter(roots), None) is None:
        return Lacking()
    promised = promisor(repository) is not None
    # Without the commit-graph: git trusts it for commits that are missing.
    words = [*LEAN, "-c", "core.commitGraph=false", "rev-list", "--objects", "--stdin"]
    words += ["--no-object-names"] if damaged else ["--quiet"]
    words += [] if with_history else ["--no-walk=unsorted"]
    words.append("--exclude-promisor-objects" if promised else "--missing=print")
    lost = {oid.encode("ascii") for oid in damaged}
    flagged: list[bytes] = []

    def look(lines: list[bytes]) -> None:
        # With `--quiet` git prints missing objects only; otherwise it marks them with `?`.
        flagged.extend(line for line in lines if line.startswith(b"?") or line in lost)

    done = repository.git.each_line(*words, take=look, data=lines_of(roots), ok=(0, 128))
    if not done.code and not flagged:
        return Lacking()
    walk = _Walk(
        repository, objects, roots, damaged, is_promised=promised, with_history=with_history
    )
    last = done.complaint.strip().rpartition("\n")[2].removeprefix("fatal: ") if done.code else ""
    return Lacking(walk.found(), "" if walk.missing else last)


class _Walk:
    def __init__(
        self,
        repository: Repository,
        objects: Objects,
        roots: Iterable[str],
        damaged: Collection[str],
        *,
        is_promised: bool,
        with_history: bool,
    ) -> None:
        self._objects = objects
        self._format = repository.object_format
        self._roots = dict.fromkeys(roots)
        self._promised = _promised(repository, objects) if is_promised else frozenset()
        self._present = set(present(repository)).difference(damaged)
        # Commits whose parents a shallow clone lacks.
        shallow = read_or_empty(os.path.join(repository.common_dir, "shallow"))
        self._cut = set(shallow.decode("ascii").split())
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
                new = [sample for sample in samples[oid] if sample not in have]
                if new := new[: SHOWN + 1 - len(have)]:
                    have += new
                    waiting.append(above)
        return {root: sorted(samples[root]) for root in self._roots if root in samples}

    def _below(self, level: list[str]) -> Iterator[str]:
        present = [oid for oid in level if oid in self._present]
        self.missing.update(set(level).difference(present, self._promised))
        for oid, item in zip(present, self._objects.read(present, None), strict=True):
            if item is None:
                self.missing.add(oid)
                continue
            is_cut = oid in self._cut or not self._with_history
            try:
                references = list(_references(item, self._format, is_cut=is_cut))
            except ValueError:  # the oid matches, but the object is malformed
                self.missing.add(oid)
                continue
            for child, is_blob in references:
                if is_blob and child in self._present:
                    continue
                self._referrers.setdefault(child, []).append(oid)
                if not is_blob:
                    yield child
                elif child not in self._promised:
                    self.missing.add(child)


def _references(
    item: tuple[str, bytes], object_format: str, *, is_cut: bool
) -> Iterator[tuple[str, bool]]:
    kind, data = item
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


def present(repository: Repository) -> list[str]:
    """Return the objects of a repository, damaged ones too."""
    words = ("cat-file", "--batch-all-objects", "--unordered", "--buffer")
    return repository.git.run(*words, "--batch-check=%(objectname)").text.split()


def _promised(repository: Repository, objects: Objects) -> set[str]:
    # The remote promises all that it sent, and all that this refers to.
    place = os.path.join(repository.common_dir, "objects", "pack")
    sent: list[str] = []
    for name in sorted(os.listdir(place)):
        if name.endswith(".promisor"):
            sent += listed_in(repository, f"{place}/{name.removesuffix('.promisor')}.idx")
    promised, object_format = set(sent), repository.object_format
    for item in objects.read(sent, None):
        if item is not None and item[0] != "blob":
            promised.update(oid for oid, _ in _references(item, object_format, is_cut=False))
    return promised


def listed_in(repository: Repository, index: str, deadline: float | None = None) -> list[str]:
    words = ("show-index", f"--object-format={repository.object_format}")
    with open(index, "rb") as file:
        done = repository.git.run(*words, data=file.read(), deadline=deadline)
    return [line.split(" ")[1] for line in done.text.splitlines()]


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
