"""What `verify` judges: all refs of ours, and every document behind one, each read once."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from gitckpt.git.refs import Update
from gitckpt.git.repository import Repository
from gitckpt.model.checkpoint import Checkpoint
from gitckpt.model.errors import InvalidCheckpoint, NewerCheckpoint
from gitckpt.model.names import shell_word
from gitckpt.model.readers.codec import decode
from gitckpt.model.readers.fence import fenced
from gitckpt.model.values import dataclass
from gitckpt.store.audit.repairable import Flaw, lasting
from gitckpt.store.checkpoints import Checkpoints
from gitckpt.store.records import layout
from gitckpt.store.records.entry import Entry

_BROKEN = "ignoring broken ref "
_CURE_OF_BAR = "look at it: git show {ref}; move it away: git tag NAME {ref} && git update-ref --no-deref -d {ref}"


@dataclass(frozen=True, slots=True)
class Record:
    """What the document of a valid checkpoint says, less what nothing depends on.

    Attributes:
        entry: what a listing should know of it.
        parent: the checkpoint before it in its run, as it says.
        holds: namespace of refs → the oid that its ref there should point to, or, below `refs/keep/ckpt/`, keep.
        names: the other checkpoints it names, each with the key that does.
    """

    entry: Entry
    parent: str | None
    holds: Mapping[str, str]
    names: Sequence[tuple[str, str]]

    @property
    def ref(self) -> str:
        """Full name of its ref."""
        return layout.CHECKPOINTS + self.entry.id

    @property
    def is_there(self) -> Update:
        """What a transaction that depends on it begins with."""
        return Update(self.ref, self.entry.oid, self.entry.oid)


@dataclass(frozen=True, slots=True)
class Evidence:
    """What there is.

    Attributes:
        listing: what git said of the refs.
        refs: oid by full name, without those of other tools below `refs/checkpoints/`.
        symbolic: what a ref stands for that points to no object itself, by its full name.
        records: the valid checkpoints by id.
        unjudged: oid by name, below `refs/checkpoints/`, of what is no valid checkpoint or of a newer gitckpt.
        kinds: kind of each object that a ref of a checkpoint should point to; those that are missing are left out.
        flaws: what was wrong with refs and documents as such.
    """

    listing: bytes
    refs: Mapping[str, str]
    symbolic: Mapping[str, str]
    records: Mapping[str, Record]
    unjudged: Mapping[str, str]
    kinds: Mapping[str, str]
    flaws: Sequence[Flaw]

    def is_there(self, checkpoint_id: str) -> bool:
        """Tells whether a checkpoint has its ref, whatever that holds."""
        return checkpoint_id in self.records or checkpoint_id in self.unjudged

    def below(self, space: str) -> list[tuple[str, str, str]]:
        """Returns name, full name and oid of each ref below a namespace."""
        return [(ref.removeprefix(space), ref, oid) for ref, oid in self.refs.items() if ref.startswith(space)]

    def runs(self) -> dict[str, list[Record]]:
        """Returns the valid checkpoints of each run, by sequence."""
        found: dict[str, list[Record]] = {}
        for record in self.records.values():
            if record.entry.run:
                found.setdefault(record.entry.run, []).append(record)
        for chain in found.values():
            chain.sort(key=lambda record: (record.entry.sequence or 0, record.entry.id))
        return found


def list_refs(repository: Repository) -> tuple[bytes, str]:
    """Returns a line for each ref of ours, with oid, name, and the ref that it stands for if it is symbolic; and git's complaints."""
    done = repository.git.run("for-each-ref", "--format=%(objectname) %(refname) %(symref)", *layout.OWN, layout.NOTES)
    return done.out, done.complaint


def gather(store: Checkpoints) -> Evidence:
    """Returns what there is, read through three processes however much that is.

    Raises:
        GitError: git cannot list the refs.
    """
    listing, complaint = list_refs(store.repository)
    lines = listing.decode("utf-8", "surrogateescape").split("\n")[:-1]
    found = [(oid, ref, target) for oid, ref, target in (line.split(" ") for line in lines) if not layout.is_foreign(ref)]
    refs = {ref: oid for oid, ref, _ in found}
    symbolic = {ref: target for _, ref, target in found if target}
    own = [(ref, oid) for ref, oid in refs.items() if ref.startswith(layout.CHECKPOINTS)]
    records: dict[str, Record] = {}
    unjudged: dict[str, str] = {}
    flaws = [*broken(store.repository, complaint), *in_the_way(store.repository, listing)]
    for (ref, oid), read in zip(own, store.objects.read([oid for _, oid in own]), strict=True):
        try:
            record = fenced(ref, partial(_record, ref, oid, read))
        except InvalidCheckpoint as error:
            unjudged[ref.removeprefix(layout.CHECKPOINTS)] = oid
            flaws.append(_invalid(error, is_missing=read is None))
        else:
            records[record.entry.id] = record
    held = {oid for record in records.values() for oid in record.holds.values()}
    return Evidence(listing, refs, symbolic, records, unjudged, _kinds(store, held), flaws)


def _record(ref: str, oid: str, found: tuple[str, bytes] | None) -> Record:
    checkpoint = decode(layout.document(found, ref, oid, lack="missing or damaged"), ref)
    files = checkpoint.worktree
    tree, operation_commit = (files.tree, files.operation_commit) if files else (None, None)
    original = checkpoint.imported.original if checkpoint.imported is not None else None
    kept = zip((*layout.HOLDERS, layout.KEEP), (tree, operation_commit, original, checkpoint.git_sha), strict=True)
    return Record(Entry.of(checkpoint, oid), checkpoint.parent, {space: held for space, held in kept if held}, _names(checkpoint))


def _names(checkpoint: Checkpoint) -> tuple[tuple[str, str], ...]:
    named = [("forked_from", checkpoint.forked_from), ("rewound_to", checkpoint.rewound_to)]
    if checkpoint.attempt is not None:
        named.append(("attempt.began", checkpoint.attempt.began))
    if checkpoint.pipeline is not None:
        named += [(f"pipeline.completed.{phase}", each) for phase, each in checkpoint.pipeline.completed.items()]
    return tuple((key, each) for key, each in named if each is not None)


def _invalid(error: InvalidCheckpoint, *, is_missing: bool) -> Flaw:
    ref = shell_word(error.ref)
    sentence = error.message.removeprefix(f"{error.ref}: ")
    if isinstance(error, NewerCheckpoint):
        return lasting("checkpoint-newer", error.ref, f"cannot be judged: {sentence}", error.hint)
    if is_missing:
        fetch = f"fetch it from a clone that has it: git fetch --no-tags --no-prune REMOTE +{ref}:{ref}"
        cure = f"{fetch}; or give it up: git ckpt remove {error.ref.removeprefix(layout.CHECKPOINTS)}"
        return lasting("checkpoint-unreadable", error.ref, sentence, cure)
    misnamed = error.field == "id" and error.problem.endswith("is not the ref's name")
    code = "checkpoint-misnamed" if misnamed else "checkpoint-invalid"
    return lasting(code, error.ref, sentence, cure_of_invalid(error.ref))


def cure_of_invalid(ref: str) -> str:
    """Returns what to do about a ref of a checkpoint that is none."""
    return f"look at it: git cat-file -p {shell_word(ref)}; remove it: git ckpt remove {ref.removeprefix(layout.CHECKPOINTS)}"


def broken(repository: Repository, complaint: str) -> list[Flaw]:
    """Returns the refs that git itself cannot read, such as the empty files that a power cut leaves; it lists all but those.

    Args:
        repository: where.
        complaint: what `list_refs` returned.
    """
    refs = [line.partition(_BROKEN)[2] for line in complaint.splitlines() if _BROKEN in line]
    refs = [ref for ref in refs if not layout.is_foreign(ref)]
    return [
        lasting("broken-ref", ref, "git cannot read this ref", f"rm {shell_word(os.path.join(repository.common_dir, ref))}") for ref in refs
    ]


def in_the_way(repository: Repository, listing: bytes) -> list[Flaw]:
    """Returns the refs that stand where git needs a directory for ours: as long as they do, nothing can be recorded.

    Args:
        repository: where.
        listing: what `list_refs` returned.
    """
    spaces = (*layout.OWN, *(space.rstrip("/") for space in (layout.TREES, layout.ORIGINALS, layout.RUNS, layout.LEASES, layout.KEYS)))
    listed = {line.split(b" ")[1].decode("utf-8", "surrogateescape") for line in listing.splitlines()}
    there = [ref for ref in spaces if ref in listed]
    there += [ref for ref in ("refs/keep", "refs/notes") if repository.cat_file.info(ref) is not None]  # others live below as well
    return [
        lasting(
            "ref-barring", ref, "bars all refs below its name, so that nothing can be recorded", _CURE_OF_BAR.format(ref=shell_word(ref))
        )
        for ref in there
    ]


def _kinds(store: Checkpoints, oids: Iterable[str]) -> dict[str, str]:
    """Returns the kinds of objects, without fetching any."""
    wanted = sorted(oids)
    if not wanted:
        return {}
    data = "".join(f"{oid}\n" for oid in wanted).encode("ascii")
    words = ("cat-file", "--batch-check=%(objectname) %(objecttype)", "--buffer")
    done = store.repository.git.run(*words, data=data, env={"GIT_NO_LAZY_FETCH": "1"})
    pairs = (line.split(" ") for line in done.out.decode("ascii").splitlines())
    return {oid: kind for oid, kind in pairs if kind != "missing"}
