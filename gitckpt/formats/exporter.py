"""Export checkpoints and runs as files of other tools.

An imported and unchanged checkpoint yields the original bytes; others are written in the tool's
style.
"""

from __future__ import annotations

import hashlib
import os

from gitckpt.formats.importer import trigger
from gitckpt.formats.systems import detection, forge, quasar, rlm_act, superpowers
from gitckpt.formats.systems.content import (
    FORGE,
    NEBULA,
    QUASAR,
    RLM_ACT,
    SUPERPOWERS,
    WORKFLOW,
    Unreadable,
)
from gitckpt.git import fsync
from gitckpt.git.files import atomic, private_dirs, regular
from gitckpt.git.objects.encoding import object_id
from gitckpt.git.worktree import administration
from gitckpt.model.arguments import require, require_path, require_text, shell_word
from gitckpt.model.checkpoint import IMPORT, Checkpoint
from gitckpt.model.errors import CkptError, UsageError, WorktreeError
from gitckpt.model.phase import NOT_PHASES, split
from gitckpt.model.values import dataclass, replace
from gitckpt.store.records import finder, heads, ref_names
from gitckpt.store.store import Store, inside

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from gitckpt.store.checkpoints import Checkpoints
    from gitckpt.store.records.entry import CheckpointInfo

# A writer adds what the format cannot express to the list, a clause each. It raises `Unreadable` if
# the checkpoint does not fit the format.
_WRITERS: dict[str, Callable[[Checkpoint, list[str]], bytes]] = {
    RLM_ACT: rlm_act.write,
    FORGE: forge.write,
    QUASAR: quasar.write,
    SUPERPOWERS: superpowers.write,
}
_OLD = {WORKFLOW: RLM_ACT}
# Formats in which a run is a directory with a file for each ended phase.
_DIRECTORIES = (RLM_ACT,)

_ENDS = ("complete", "failed", "skipped")
_NOTES, _LONGEST = "exports", 1024 * 1024
# A line has at most 130 bytes, so that all fit into `_LONGEST`.
_MOST_NOTES = 5000

_LARGEST = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class ExportResult:
    """A checkpoint as a file of another tool."""

    checkpoint: str  # id
    name: str  # the file name that the tool would use
    data: bytes
    losses: tuple[str, ...]  # what the format cannot express, a clause each
    is_original: bool  # whether these are the imported bytes


class Exporter:
    """Exports checkpoints and runs of a repository as files of other tools."""

    def __init__(self, store: Store) -> None:
        self._checkpoints = inside(store)

    def files(self, text: str, format: str, *, every: bool = False) -> list[ExportResult]:  # noqa: A002 - the word for it
        """Return a checkpoint or a run as files of another tool, without writing them.

        Args:
            text: names a checkpoint or a run, as for `Store.find`.
            format: one of `detection.NAMES`.
            every: export each checkpoint that ends a phase, if the tool has such files; else only
                the newest one.

        Raises:
            NotFoundError, AmbiguousError: the text names nothing, or several things.
            UsageError: the format is unknown, or cannot hold the checkpoint.
            InvalidCheckpoint: the checkpoint cannot be read.
        """
        here, format_ = self._checkpoints, format
        require_text("text", text)
        require_text("format", format_)
        if format_ not in detection.NAMES:
            raise UsageError(
                f"there is no format {format_!r}", hint=f"it is one of {', '.join(detection.NAMES)}"
            )
        run = finder.named_run(text, here.repository, here.index)
        if run is None:
            return [_one(here, here.read(here.find(text)), format_)]
        entries = list(reversed(heads.chain(here.index, here.repository, run)))
        if format_ in (RLM_ACT, WORKFLOW):
            entries = [entry for entry in entries if _is_end(entry)] or entries[-1:]
        if not (every and format_ in _DIRECTORIES):
            entries = entries[-1:]
        return _apart([_one(here, here.read(entry.id), format_) for entry in entries])

    def is_directory(self, text: str, format: str) -> bool:  # noqa: A002 - the word for it
        """Return whether `files` with `every` makes a directory: a run, a file per phase."""
        require_text("text", text)
        here = self._checkpoints
        return (
            format in _DIRECTORIES
            and finder.named_run(text, here.repository, here.index) is not None
        )

    def write(self, path: str, found: ExportResult, *, force: bool = False) -> None:
        """Write a file atomically.

        Args:
            force: replace a file even if it is neither the import nor the last export.

        Raises:
            UsageError: such a file exists, a link leads out of the worktree, or an argument is of a
                wrong type.
            WorktreeError: the file cannot be written, or its directory does not exist.
        """
        require_path("path", path, as_text=True)
        require("found", found, ExportResult, "what Exporter.files returned")
        here, place = self._checkpoints, os.path.abspath(path)
        _require_no_way_out(here, place)
        if os.path.lexists(place) and not force:
            _require_ours(here, place, found)
        if not os.path.isdir(os.path.dirname(place)):
            raise _no_directory(path)
        try:
            if _is_in_worktree(here, place):
                administration.write_file(here.repository, place, found.data)
            else:
                atomic.write(place, found.data)
        except OSError as error:
            raise WorktreeError(
                f"cannot write {path}: {error.strerror}", hint="choose another place: -o PATH"
            ) from None
        fsync.flush(_above(place))  # the directory may be new
        _note(here, place, found.data)

    def make_directory(self, path: str) -> None:
        """Create a directory unless it exists.

        Raises:
            UsageError: a link in its path leads out of the worktree.
            WorktreeError: it cannot be created, or its parent does not exist.
        """
        require_path("path", path, as_text=True)
        place = os.path.abspath(path)
        if os.path.isdir(place):
            return
        _require_no_way_out(self._checkpoints, place)
        if not os.path.isdir(os.path.dirname(place)):
            raise _no_directory(path)
        try:
            os.mkdir(place)
        except OSError as error:
            hint = (
                "choose another place: -o PATH; or name one checkpoint of the run, to get one file"
            )
            raise WorktreeError(
                f"cannot make the directory {path}: {error.strerror}", hint=hint
            ) from None


def _no_directory(path: str) -> WorktreeError:
    directory = os.path.dirname(path.rstrip(os.sep)) or os.curdir
    return WorktreeError(
        f"cannot write {path}: there is no directory {directory}",
        hint=f"make it: mkdir -p {shell_word(directory)}; or choose another place: -o PATH",
    )


def _require_no_way_out(store: Checkpoints, place: str) -> None:
    """Refuse a path in the worktree if a link leads out of it, or into `.git`."""
    repository = store.repository
    top = os.path.realpath(repository.worktree or os.devnull)
    directory = os.path.dirname(place)
    if not f"{directory}/".startswith(f"{top}/"):
        return
    real = os.path.realpath(directory)
    within = [f"{os.path.realpath(each)}/" for each in (repository.git_dir, repository.common_dir)]
    is_out = not f"{real}/".startswith(f"{top}/") or f"{real}/".startswith(tuple(within))
    if is_out and real != directory:
        message = f"{directory} leads out of the worktree through a link, to {real}"
        raise UsageError(message, hint="name a place without links: -o PATH")


def _is_in_worktree(store: Checkpoints, place: str) -> bool:
    """Return whether a capture may find a file, and with it leftovers of a kill."""
    top = store.repository.worktree
    return top is not None and f"{os.path.realpath(os.path.dirname(place))}{os.sep}".startswith(
        os.path.realpath(top) + os.sep
    )


def _is_end(entry: CheckpointInfo) -> bool:
    name, status = split(entry.label)
    return entry.trigger.startswith(IMPORT) or (status in _ENDS and name not in NOT_PHASES)


def _one(store: Checkpoints, checkpoint: Checkpoint, format_: str) -> ExportResult:
    imported = checkpoint.imported
    same = (trigger(format_), *([trigger(NEBULA)] if format_ == QUASAR else []))
    if imported is not None and checkpoint.trigger in same:
        found = next(store.objects.read([imported.original], None))
        if found is None or found[0] != "blob":
            raise CkptError(
                f"the file that {checkpoint.id} was imported from is missing",
                hint="look at the store: git ckpt verify",
            )
        return ExportResult(
            checkpoint.id,
            _named(imported.path) or _name(checkpoint, format_),
            found[1],
            (),
            is_original=True,
        )
    writer = _WRITERS.get(format_)
    if writer is None:
        hint = (
            f"write it as {_OLD[format_]}: --format {_OLD[format_]}"
            if format_ in _OLD
            else f"it is one of {', '.join(_WRITERS)}"
        )
        raise UsageError(f"nothing new is written as {format_}", hint=hint)
    losses: list[str] = []
    try:
        data = writer(checkpoint, losses)
    except Unreadable as error:
        hint = f"see what it has: git ckpt show {checkpoint.id[:8]} --state"
        raise UsageError(
            f"checkpoint {checkpoint.id[:8]} is nothing for {format_}: {error}", hint=hint
        ) from None
    losses += _lost_by_all(checkpoint, format_)
    return ExportResult(
        checkpoint.id,
        _name(checkpoint, format_),
        data,
        tuple(dict.fromkeys(losses)),
        is_original=False,
    )


def _lost_by_all(checkpoint: Checkpoint, format_: str) -> list[str]:
    said = {
        "message": checkpoint.message,
        "agent": checkpoint.agent,
        "branch": checkpoint.branch,
        "commit": checkpoint.git_sha or None,
    }
    losses = [
        f"{name} = {value}"
        for name, value in said.items()
        if value is not None and format_ not in _SAY[name]
    ]
    inputs = checkpoint.pipeline.inputs if checkpoint.pipeline is not None else {}
    names = [
        name for name, value in inputs.items() if value and name not in _INPUTS.get(format_, ())
    ]
    losses += [f"the inputs {', '.join(names)} of the pipeline"] if names else []
    if checkpoint.worktree is not None and checkpoint.worktree.dirty:
        losses.append("the files that were not committed")
    if checkpoint.sequence is not None and checkpoint.sequence > 1 and format_ != RLM_ACT:
        losses.append(
            f"the history of the run before it: {checkpoint.sequence - 1} of its checkpoints"
        )
    return losses


# Which formats can hold a value or an input.
_SAY = {"message": (), "agent": (SUPERPOWERS,), "branch": (FORGE,), "commit": (RLM_ACT, QUASAR)}
_INPUTS = {FORGE: ("plan",), QUASAR: ("task", "title", "max_cycles", "max_budget")}


def _named(path: str) -> str | None:
    # An imported checkpoint can contain any path; only names that a tool would use are reused.
    name = os.path.basename(path)
    return (
        name
        if name.endswith(detection.SUFFIXES) and not name.startswith(".") and name.isprintable()
        else None
    )


def _apart(found: list[ExportResult]) -> list[ExportResult]:
    names: set[str] = set()
    apart = []
    for each in found:
        apart.append(replace(each, name=f"{each.checkpoint}.json") if each.name in names else each)
        names.add(each.name)
    return apart


def _name(checkpoint: Checkpoint, format_: str) -> str:
    if format_ == FORGE:
        return f"{checkpoint.run}.yaml"
    if format_ == QUASAR:
        return "checkpoint.toml"
    return "metadata.json" if format_ == SUPERPOWERS else f"{checkpoint.id}.json"


def _require_ours(store: Checkpoints, place: str, found: ExportResult) -> None:
    try:
        there = regular.content(place, _LARGEST, follow=False)
    except OSError as error:
        raise UsageError(
            f"{place} is in the way: {error.strerror}",
            hint="move it away, or choose another place: -o PATH",
        ) from None
    oid = object_id("blob", there, store.repository.object_format)
    originals = (
        store.refs.list(ref_names.ORIGINALS.rstrip("/"), fields="%(objectname)")
        .decode("ascii")
        .split()
    )
    if there != found.data and oid not in originals and _noted(store).get(_digest(place)) != oid:
        raise UsageError(
            f"{place} is there, and is neither what was imported nor what was exported there last",
            hint="look at it; to replace it: --force; or choose another place: -o PATH",
        )


def _above(place: str) -> list[str]:
    """Return the readable directories above a file, except its own."""
    found = []
    at = os.path.dirname(place)
    while (above := os.path.dirname(at)) != at:
        found.append(above)
        at = above
    return [each for each in found if os.access(each, os.R_OK)]


def _digest(place: str) -> str:
    return hashlib.sha256(os.fsencode(place)).hexdigest()


def _noted(store: Checkpoints) -> dict[str, str]:
    """Return the oid of the last export by the digest of its path."""
    try:
        data = regular.content(
            os.path.join(store.repository.private_dir, _NOTES), _LONGEST, follow=False
        )
    except OSError:
        return {}  # the next export there needs --force
    lines = data.decode("ascii", "replace").splitlines()  # arbitrary content after a power cut
    return dict(
        pair
        for line in lines
        if len(pair := line.split(" ")) == 2 and not line.strip("0123456789abcdef ")
    )


def _note(store: Checkpoints, place: str, data: bytes) -> None:
    """Record an export in the private directory, which is never fetched."""
    repository, digest = store.repository, _digest(place)
    path = os.path.join(repository.make_private_dir(), _NOTES)
    with ref_names.turn(repository):  # a concurrent export must not lose its note
        known = _noted(store)
        known.pop(digest, None)  # move to the end: the oldest are dropped
        known[digest] = object_id("blob", data, repository.object_format)
        lines = [f"{where} {oid}\n" for where, oid in known.items()][-_MOST_NOTES:]
        try:
            atomic.write_own(
                path, "".join(lines).encode("ascii"), flushed=True, opener=private_dirs.create
            )
        except OSError as error:
            raise WorktreeError(
                f"{path} cannot be written: {error.strerror}",
                hint=f"{place} is written all the same",
            ) from None
    fsync.flush([repository.private_dir, repository.common_dir])
