"""Find missing and damaged objects, and walk the history for reachability."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice

from gitckpt.git import config
from gitckpt.git.command import BOUNDED, LEAN, STREAMED
from gitckpt.git.filesystem import names_in, read_or_empty
from gitckpt.git.fsync import loose_object_path
from gitckpt.git.objects.encoding import (
    DIRECTORY,
    GITLINK,
    OVERSIZED,
    decode_tree,
    object_hash,
    object_id,
)
from gitckpt.git.process import MAY_FETCH, SEE_DAMAGE, GitError
from gitckpt.git.repository import Repository
from gitckpt.model.arguments import join_first
from gitckpt.model.errors import WorktreeError
from gitckpt.model.values import dataclass, field

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gitckpt.git.command import Counted, GitRunner
    from gitckpt.git.objects.writer import ObjectDatabase


# Partial clones (git's `partial-clone` document)


def find_promisor_remote(repository: Repository) -> str | None:
    for name, values in config.read_settings(repository, r"^remote\..*\.promisor$").items():
        if config.is_true(values[-1]):
            return name.removeprefix("remote.").removesuffix(".promisor")
    return None


def variables_allowing_fetch(repository: Repository) -> Mapping[str, str]:
    """Return variables that let git fetch missing objects; empty in a full clone."""
    return MAY_FETCH if find_promisor_remote(repository) is not None else {}


def list_missing_objects(
    repository: Repository, tree: str, base: str | None, *, blobs: bool = True
) -> list[str]:
    """Return the oids of missing objects reachable from `tree` but not from `base`."""
    command = ["rev-list", "--objects", "--no-object-names", "--missing=print"]
    command += [] if blobs else ["--filter=blob:none"]
    result = repository.git.run(*command, tree, *(["--not", base] if base else []), ok=(0, 128))
    if result.code != 0 and tree in result.error_text:  # git dies if the top itself is missing
        return [tree]
    return [line[1:].decode("ascii") for line in result.out.splitlines() if line.startswith(b"?")]


def fetch_missing_objects(
    repository: Repository, tree: str, base: str | None, *, blobs: bool = True
) -> None:
    remote = find_promisor_remote(repository)
    if remote is None:
        return
    options = ("--no-tags", "--no-write-fetch-head", "--recurse-submodules=no")
    command = ["-c", "fetch.negotiationAlgorithm=noop", "fetch", "--quiet", remote, *options]
    command += ["--filter=blob:none", "--stdin"]
    old_oids: list[str] = []
    while oids := list_missing_objects(repository, tree, base, blobs=blobs):
        if oids == old_oids:
            raise missing_objects_error(oids)
        data = "".join(f"{oid}\n" for oid in oids).encode("ascii")
        try:
            repository.git.run(*command, data=data, env=MAY_FETCH)
        except GitError:
            raise missing_objects_error(oids) from None
        old_oids = oids  # fetched trees may name other missing objects


def fetch_trees_of(repository: Repository, snapshot: str | None, commit: str) -> None:
    if find_promisor_remote(repository) is None:
        return
    if snapshot is not None:
        fetch_missing_objects(repository, snapshot, None, blobs=False)
        files = repository.cat_file.info(f"{snapshot}:files")
        fetch_missing_objects(repository, snapshot, files[0] if files is not None else None)
    elif commit and (header := next(repository.cat_file.read_contents([commit]))) is not None:
        tree = header[2][:80].split()[1].decode("ascii")
        fetch_missing_objects(repository, tree, None, blobs=False)


def missing_objects_error(oids: Sequence[str], *, is_promised: bool = True) -> WorktreeError:
    fetch_hint = "this is a partial clone: run the command again when its remote can be reached"
    message = f"{len(oids)} objects that the files need are missing: {join_first(oids)}"
    return WorktreeError(message, hint=fetch_hint if is_promised else SEE_DAMAGE)


# Reachability of commits: one walk for any number of them

_AT_ONCE = 1000


def find_independent_commits(git: GitRunner, commits: Collection[str]) -> set[str]:
    """Return the commits that are not ancestors of other commits in `commits`."""
    return _walk_commits(git, [f"{commit}^!" for commit in commits]) if commits else set()


def list_commits_between(git: GitRunner, above: Iterable[str], below: Iterable[str]) -> set[str]:
    return _walk_commits(git, chain(above, (f"^{commit}" for commit in below)))


def find_commits_outside(git: GitRunner, commits: Iterable[str], tips: Iterable[str]) -> set[str]:
    if next(iter(commits), None) is None:
        return set()
    oids = _walk_commits(git, chain(commits, (f"^{tip}" for tip in tips)))
    return oids.intersection(commits) if oids else oids


def find_outside_safely(git: GitRunner, commits: Iterable[str], tips: Collection[str]) -> set[str]:
    # Few wrong dates make git stop a walk with exclusions early: six commits of 1970 are enough.
    candidates = find_commits_outside(git, commits, tips)
    return candidates - _walk_commits(git, tips) if candidates and tips else candidates


def find_descendants(git: GitRunner, tips: Collection[str], commits: Iterable[str]) -> set[str]:
    if not tips or next(iter(commits), None) is None:
        return set()
    revs = chain(tips, (f"^{commit}" for commit in commits))
    return _walk_commits(git, revs, "--ancestry-path").intersection(tips)


def _walk_commits(git: GitRunner, revs: Iterable[str], *options: str) -> set[str]:
    oids: set[str] = set()

    def add_oids(lines: list[bytes]) -> None:
        oids.update(line.decode("ascii") for line in lines)

    words = (*LEAN, "rev-list", "--ignore-missing", *options, "--stdin")
    git.stream_lines(*words, handle=add_oids, data=encode_lines(revs))
    return oids


def encode_lines(lines: Iterable[str]) -> Iterator[bytes]:
    line_iterator = iter(lines)
    while chunk := list(islice(line_iterator, _AT_ONCE)):
        yield "".join(f"{line}\n" for line in chunk).encode("ascii")


# Missing objects beneath commits and trees

SHOWN = 3  # missing objects named for each root


@dataclass(frozen=True, slots=True)
class LackingObjects:
    """For each root, the oids of some missing objects that the root reaches."""

    samples: Mapping[str, list[str]] = field(default_factory=dict)
    complaint: str = ""  # of git, where something is missing that cannot be identified


def find_lacking_objects(
    repository: Repository,
    objects: ObjectDatabase,
    roots: Iterable[str],
    damaged: Collection[str] = (),
    *,
    with_history: bool = True,
) -> LackingObjects:
    """Find missing or `damaged` objects that `roots` reach; do not read any blobs."""
    if next(iter(roots), None) is None:
        return LackingObjects()
    # Without the commit-graph: git trusts it for commits that are missing.
    words = [*LEAN, "-c", "core.commitGraph=false", "rev-list", "--objects", "--stdin"]
    words += ["--no-object-names"] if damaged else ["--quiet"]
    words += [] if with_history else ["--no-walk=unsorted"]
    is_partial = find_promisor_remote(repository) is not None
    words.append("--exclude-promisor-objects" if is_partial else "--missing=print")
    damaged_oids = {oid.encode("ascii") for oid in damaged}
    bad_lines: list[bytes] = []

    def keep(lines: list[bytes]) -> None:
        # With `--quiet` git prints missing objects only; otherwise it marks them with `?`.
        bad_lines.extend(line for line in lines if line.startswith(b"?") or line in damaged_oids)

    result = repository.git.stream_lines(*words, handle=keep, data=encode_lines(roots), ok=(0, 128))
    if not result.code and not bad_lines:
        return LackingObjects()
    walk = _LackingObjectsWalk(repository, objects, roots, damaged, with_history=with_history)
    complaint = "" if walk.missing or not result.code else result.error_text
    last_line = complaint.strip().rpartition("\n")[2].removeprefix("fatal: ")
    return LackingObjects(walk.samples_by_root(), last_line)


class _LackingObjectsWalk:
    def __init__(
        self,
        repository: Repository,
        objects: ObjectDatabase,
        roots: Iterable[str],
        damaged: Collection[str],
        *,
        with_history: bool,
    ) -> None:
        self._objects = objects
        self._format = repository.object_format
        self._roots = dict.fromkeys(roots)
        self._promised = _find_promised_objects(repository, objects)
        self._present = set(list_objects(repository)).difference(damaged)
        # Commits whose parents a shallow clone lacks.
        shallow_data = read_or_empty(os.path.join(repository.common_dir, "shallow"))
        self._cut = set(shallow_data.decode("ascii").split())
        self._with_history = with_history
        self._referrers: dict[str, list[str]] = {}
        self.missing: set[str] = set()
        level_oids = list(self._roots)
        visited_oids = set(level_oids)
        while level_oids:
            child_oids = dict.fromkeys(self._list_children(level_oids))
            level_oids = [child for child in child_oids if child not in visited_oids]
            visited_oids.update(level_oids)

    def samples_by_root(self) -> dict[str, list[str]]:
        # Some of the missing objects for each root that reaches one.
        samples = {oid: [oid] for oid in sorted(self.missing)}
        pending_oids = list(samples)
        while pending_oids:
            oid = pending_oids.pop()
            for referrer in self._referrers.get(oid, ()):
                known_samples = samples.setdefault(referrer, [])
                new_samples = [sample for sample in samples[oid] if sample not in known_samples]
                if new_samples := new_samples[: SHOWN + 1 - len(known_samples)]:
                    known_samples += new_samples
                    pending_oids.append(referrer)
        return {root: sorted(samples[root]) for root in self._roots if root in samples}

    def _list_children(self, level_oids: list[str]) -> Iterator[str]:
        present_oids = [oid for oid in level_oids if oid in self._present]
        self.missing.update(set(level_oids).difference(present_oids, self._promised))
        for oid, item in zip(present_oids, self._objects.read(present_oids, None), strict=True):
            if item is None:
                self.missing.add(oid)
                continue
            is_cut = oid in self._cut or not self._with_history
            try:
                references = list(_linked_oids(item, self._format, is_cut=is_cut))
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


def _linked_oids(
    item: tuple[str, bytes], object_format: str, *, is_cut: bool
) -> Iterator[tuple[str, bool]]:
    kind, data = item
    if kind == "commit":
        for line in data.partition(b"\n\n")[0].split(b"\n"):
            key, _, oid = line.partition(b" ")
            if key == b"tree" or (key == b"parent" and not is_cut):
                yield oid.decode("ascii"), False
            elif key != b"parent":
                return
    elif kind == "tree":
        for mode, child in decode_tree(data, object_format).values():
            if mode != GITLINK:
                yield child, mode != DIRECTORY


def list_objects(repository: Repository) -> list[str]:
    # Even damaged objects.
    words = ("cat-file", "--batch-all-objects", "--unordered", "--buffer")
    return repository.git.run(*words, "--batch-check=%(objectname)").text.split()


def _find_promised_objects(repository: Repository, objects: ObjectDatabase) -> set[str]:
    # The remote of a partial clone promises all that it sent, and all that this refers to.
    if find_promisor_remote(repository) is None:
        return set()
    pack_dir = os.path.join(repository.common_dir, "objects", "pack")
    oids: list[str] = []
    for name in sorted(os.listdir(pack_dir)):
        if name.endswith(".promisor"):
            oids += list_pack(repository, f"{pack_dir}/{name.removesuffix('.promisor')}.idx")
    promised_oids, object_format = set(oids), repository.object_format
    for item in objects.read(oids, None):
        if item is not None and item[0] != "blob":
            promised_oids.update(oid for oid, _ in _linked_oids(item, object_format, is_cut=False))
    return promised_oids


def list_pack(repository: Repository, index: str, deadline: float | None = None) -> list[str]:
    words = ("show-index", f"--object-format={repository.object_format}")
    with open(index, "rb") as file:
        result = repository.git.run(*words, data=file.read(), deadline=deadline)
    return [line.split(" ")[1] for line in result.text.splitlines()]


def find_objects_of_other_kinds(
    repository: Repository, oids: Iterable[str], kind: str
) -> dict[str, str | None]:
    kinds: dict[str, str | None] = {}
    expected_ending = f" {kind}".encode("ascii")

    def collect(lines: list[bytes]) -> None:
        for line in lines:
            if not line.endswith(expected_ending):
                oid, other_kind = line.decode("ascii").split(" ")
                kinds[oid] = None if other_kind == "missing" else other_kind

    words = ("cat-file", "--batch-check=%(objectname) %(objecttype)", "--buffer")
    repository.git.stream_lines(*BOUNDED, *words, handle=collect, data=encode_lines(oids))
    return kinds


# Damaged objects: git considers one present once a file has its name, and never writes it again

_LARGE = 32 << 20  # bytes; larger contents are streamed
_CHUNK = 1 << 20
_EVERY = 1000
_NAME_LENGTHS = (38, 62)  # of the files of loose objects: SHA-1, SHA-256


def find_unreadable(
    repository: Repository, oids: Sequence[str], progress: Counted | None = None
) -> set[str]:
    """Return the oids of unreadable objects, except missing ones in a partial clone."""
    unreadable_oids = set()
    contents = repository.cat_file.read_contents(oids, _LARGE)
    for count, (oid, entry) in enumerate(zip(oids, contents, strict=True), 1):
        if entry is not None and entry[1] == OVERSIZED:
            real_oid = _hash_object_in_chunks(repository, oid)
        else:
            real_oid = object_id(*entry[1:], repository.object_format) if entry is not None else ""
        if real_oid != oid:
            unreadable_oids.add(oid)
        if progress is not None and (count % _EVERY == 0 or count == len(oids)):
            progress(count, len(oids))
    if unreadable_oids and find_promisor_remote(repository) is not None:
        unreadable_oids.intersection_update(list_objects(repository))
    return unreadable_oids


def find_all_unreadable(repository: Repository, progress: Counted | None = None) -> set[str]:
    bad_oids = find_unreadable(repository, list_objects(repository), progress)
    # An object that a gc deleted meanwhile is not damaged.
    return find_unreadable(repository, sorted(bad_oids.intersection(list_objects(repository))))


def find_empty_loose_objects(repository: Repository) -> dict[str, str]:
    top = os.path.join(repository.common_dir, "objects")
    paths = {}
    for prefix in (name for name in names_in(top) if len(name) == 2):
        for name in names_in(f"{top}/{prefix}"):
            path = f"{top}/{prefix}/{name}"
            with contextlib.suppress(OSError):  # deleted by a gc
                if len(name) in _NAME_LENGTHS and os.lstat(path).st_size == 0:
                    paths[prefix + name] = path
    return paths


def move_object_aside(repository: Repository, oid: str) -> bool:
    """Move a loose object to `ckpt/damaged/`; return False if the object is not loose."""
    path = loose_object_path(repository.common_dir, oid)
    target = os.path.join(repository.make_private_dir(), "damaged", oid)
    try:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.replace(path, target)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise GitError(["prune"], 1, f"{path}: {error.strerror}") from None
    return True


def _hash_object_in_chunks(repository: Repository, oid: str) -> str:
    header = repository.cat_file.info(oid)
    if header is None:
        return ""
    _, kind, size = header
    digest = object_hash(repository.object_format, f"{kind} {size}\0".encode("ascii"))
    child = repository.git.start_git(*STREAMED, "cat-file", kind, oid)
    try:
        while chunk := child.receive(_CHUNK):
            digest.update(chunk)
    finally:
        child.terminate()
        child.close()
    return digest.hexdigest()
