"""Objects that a partial clone lacks (git's `partial-clone` document): which they are, and how they are fetched in one go."""

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


# Objects that a partial clone lacks (git's `partial-clone` document): which they are, and how they are fetched in one go.


def promisor(repository: Repository) -> str | None:
    """Returns the remote that promised the objects which a partial clone lacks; None where the clone is whole."""
    names = config.read(repository, r"^remote\..*\.promisor$")
    return next((name.removeprefix("remote.").removesuffix(".promisor") for name, said in names.items() if config.is_on(said[-1])), None)


def on_purpose(repository: Repository) -> Mapping[str, str]:
    """Returns variables for git as it writes the files of a worktree: in a partial clone it may fetch."""
    return MAY_FETCH if promisor(repository) is not None else {}


def missing(repository: Repository, tree: str, known: str | None, *, blobs: bool = True) -> list[str]:
    """Returns the objects below a tree that are not there. Nothing is fetched.

    Args:
        tree: the tree.
        known: a tree whose objects are not asked for; None for none.
        blobs: whether files count, too.
    """
    words = ["rev-list", "--objects", "--no-object-names", "--missing=print"]
    words += [] if blobs else ["--filter=blob:none"]
    done = repository.git.run(*words, tree, *(["--not", known] if known else []), ok=(0, 128))
    if done.code != 0 and tree in done.complaint:  # git ends where the top itself is missing
        return [tree]
    return [line[1:].decode("ascii") for line in done.out.splitlines() if line.startswith(b"?")]


def fetch_missing(repository: Repository, tree: str, known: str | None, *, blobs: bool = True) -> None:
    """Fetches what a partial clone lacks below a tree, and nothing else: all at once, or level by level.

    Args: as `missing`.

    Raises:
        WorktreeError: the remote cannot be reached, or has not got them; they are named.
    """
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
        before = wanted  # trees that came now may name others that are missing


def fetch_for(repository: Repository, snapshot: str | None, commit: str) -> None:
    """Fetches what has to be read of a snapshot before its files: trees, and lists beside them.

    Args:
        snapshot: oid of its tree; None where the commit stands for it.
        commit: full oid; "" for none.

    Raises:
        WorktreeError: as `fetch_missing`.
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
    """Returns the error for objects that are neither here nor to be had."""
    return WorktreeError(
        f"{len(oids)} objects of the files are missing here: {first_of(oids)}",
        hint="this is a partial clone: run the command again where its remote can be reached" if is_promised else SEE_DAMAGE,
    )


# Which commits lead to which: one walk of git's for any number of them.


_AT_ONCE = 1000

LOT, END = 100_000, 10_000
"""So many revisions are told to one walk, which takes a kilobyte of git's memory for each; by so many of them the next lot is cut off."""


def newest(git: Git, commits: Collection[str]) -> set[str]:
    """Returns those of some commits that no other of them leads to.

    Raises:
        GitError: git cannot walk the history.
    """
    return _walk(git, [f"{commit}^!" for commit in commits]) if commits else set()


def between(git: Git, above: Iterable[str], below: Iterable[str]) -> set[str]:
    """Returns the commits to which one of those above leads, and none of those below; each leads to itself.

    Raises:
        GitError: git cannot walk the history.
    """
    return _walk(git, chain(above, (f"^{commit}" for commit in below)))


def outside(git: Git, commits: Iterable[str], tips: Iterable[str]) -> set[str]:
    """Returns those of some commits that no tip leads to, and that are there. A tip leads to itself.

    Args:
        commits: may be gone through twice.
        tips: likewise.

    Raises:
        GitError: git cannot walk the history.
    """
    if next(iter(commits), None) is None:
        return set()
    found = _walk(git, chain(commits, (f"^{tip}" for tip in tips)))
    return found.intersection(commits) if found else found


def unreached(git: Git, commits: Iterable[str], tips: Collection[str]) -> set[str]:
    """Returns what `outside` does, and is never misled by dates; where there is something to return, it walks all that the tips lead to.

    Args:
        commits: may be gone through again and again, the newest first.
        tips: likewise.

    Raises:
        GitError: git cannot walk the history.
    """
    commits = _doubtful(git, commits, tips)
    # git ends a walk that excludes something where a handful of dates say that no more will come: six commits of 1970 are enough.
    found = outside(git, commits, tips)
    return found - _walk(git, tips) if found and tips else found


def _doubtful(git: Git, commits: Iterable[str], tips: Collection[str]) -> Iterable[str]:
    """Returns those of some commits that may be outside of what tips lead to: all of a few; of many, what no lot shows to be inside.

    What the commits at the end of a lot lead to is inside where they are.
    """
    if len(list(islice(commits, LOT + 1))) <= LOT:
        return commits
    found: set[str] = set()
    remaining, inside = iter(commits), tips
    while lot := list(islice(remaining, LOT)):
        doubtful = outside(git, lot, inside)
        found |= doubtful
        inside = [commit for commit in lot[-END:] if commit not in doubtful] or tips
    return found


def above(git: Git, tips: Collection[str], commits: Iterable[str]) -> set[str]:
    """Returns those of some tips that lead to one of some commits, and that none of the commits leads to.

    Raises:
        GitError: git cannot walk the history.
    """
    if not tips or next(iter(commits), None) is None:
        return set()
    return _walk(git, chain(tips, (f"^{commit}" for commit in commits)), "--ancestry-path").intersection(tips)


def _walk(git: Git, revs: Iterable[str], *options: str) -> set[str]:
    """Returns the oids that git says, told many revisions, which need not be in memory at once."""
    found: set[str] = set()
    words = (*LEAN, "rev-list", "--ignore-missing", *options, "--stdin")
    git.each_line(*words, take=lambda lines: found.update(line.decode("ascii") for line in lines), data=lines_of(revs))
    return found


def lines_of(words: Iterable[str]) -> Iterator[bytes]:
    """Yields many words in ASCII, a line each, for the input of a process."""
    remaining = iter(words)
    while some := list(islice(remaining, _AT_ONCE)):
        yield "".join(f"{word}\n" for word in some).encode("ascii")


# Which of many objects lack something beneath them. One `git rev-list` says whether all is there; only if not, Python looks for what.


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
    promised = promisor(repository) is not None
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


# Of which kind many objects are, and whether they are there: git is asked for all of them at once, and nothing is fetched.


def unlike(repository: Repository, oids: Iterable[str], usual: str) -> dict[str, str | None]:
    """Returns the kind of each of some objects that is none of the usual kind; None for one that is missing.

    Args:
        oids: full ones, which need not be in memory at once.
        usual: "blob", "tree", "commit" or "tag".
    """
    found: dict[str, str | None] = {}
    ending = f" {usual}".encode("ascii")

    def look(lines: list[bytes]) -> None:
        for line in lines:
            if not line.endswith(ending):
                oid, kind = line.decode("ascii").split(" ")
                found[oid] = None if kind == "missing" else kind

    words = ("cat-file", "--batch-check=%(objectname) %(objecttype)", "--buffer")
    repository.git.each_line(*BOUNDED, *words, take=look, data=lines_of(oids))
    return found
