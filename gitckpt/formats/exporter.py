"""Checkpoints and runs as files of other tools: what was imported and has not changed as the same bytes, all else in the tool's style."""

from __future__ import annotations

import hashlib
import os

from gitckpt.formats.importer import trigger
from gitckpt.formats.systems import detection, forge, quasar, rlm_act, superpowers
from gitckpt.formats.systems.content import FORGE, NEBULA, QUASAR, RLM_ACT, SUPERPOWERS, WORKFLOW, Unreadable
from gitckpt.git import fsync
from gitckpt.git.files import atomic, premises, regular
from gitckpt.git.objects.encoding import object_id
from gitckpt.git.worktree import administration
from gitckpt.model.arguments import require, require_path, require_text, shell_word
from gitckpt.model.checkpoint import IMPORT, Checkpoint
from gitckpt.model.errors import CkptError, UsageError, WorktreeError
from gitckpt.model.phase import NOT_PHASES, split
from gitckpt.model.values import dataclass, replace
from gitckpt.store.records import finder, heads, layout
from gitckpt.store.store import Store, inside

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from gitckpt.store.checkpoints import Checkpoints
    from gitckpt.store.records.entry import Entry

_WRITERS: dict[str, Callable[[Checkpoint, list[str]], bytes]] = {
    RLM_ACT: rlm_act.write,
    FORGE: forge.write,
    QUASAR: quasar.write,
    SUPERPOWERS: superpowers.write,
}
_OLD = {WORKFLOW: RLM_ACT}
_DIRECTORIES = (RLM_ACT,)
"""The formats in which a run is a directory, with a file for each phase that ended."""

_ENDS = ("complete", "failed", "skipped")
_NOTES, _LONGEST = "exports", 1024 * 1024
_MOST_NOTES = 5000
"""A line has 130 bytes at most, so that `_LONGEST` has room for them."""

_LARGEST = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Exported:
    """A file of another tool.

    Attributes:
        checkpoint: the one that it tells of.
        name: what the tool would call it.
        data: the bytes.
        losses: what the format cannot say, a clause each.
        is_original: whether these are the bytes that were imported.
    """

    checkpoint: str
    name: str
    data: bytes
    losses: tuple[str, ...]
    is_original: bool


class Exporter:
    """Writes checkpoints and runs of a repository as files of other tools."""

    def __init__(self, store: Store) -> None:
        self._checkpoints = inside(store)

    def files(self, text: str, format: str, *, every: bool = False) -> list[Exported]:  # noqa: A002 - the word for it
        """Returns a checkpoint or a run as files of another tool; nothing is written.

        Args:
            text: what a person calls the checkpoint, or the run: as for `Store.find`.
            format: of the files: one of `detection.NAMES`.
            every: whether each checkpoint of a run that ends a phase becomes a file, where the tool has such; else its newest one alone.

        Raises:
            NotFoundError, AmbiguousError: nothing, or several things, go by the text.
            UsageError: there is no such format, or it has no place for it.
            InvalidCheckpoint: it cannot be read.
        """
        here, format_ = self._checkpoints, format
        require_text("text", text)
        require_text("format", format_)
        if format_ not in detection.NAMES:
            raise UsageError(f"there is no format {format_!r}", hint=f"it is one of {', '.join(detection.NAMES)}")
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
        """Return whether `files` with `every` belong into a directory, however many there are.

        They do of a run, in a format that has a file for each phase.

        Args:
            text: as for `files`.
            format: as for `files`.
        """
        require_text("text", text)
        here = self._checkpoints
        return format in _DIRECTORIES and finder.named_run(text, here.repository, here.index) is not None

    def write(self, path: str, found: Exported, *, force: bool = False) -> None:
        """Writes a file, whole or not at all.

        Args:
            path: of the file.
            found: what it shall hold.
            force: whether it may take the place of a file that holds neither what was imported nor what was exported there last.

        Raises:
            UsageError: such a file is there, or a link on the way leads out of the worktree; or an
                argument is of a wrong type.
            WorktreeError: it cannot be written, or its directory is not there.
        """
        require_path("path", path, as_text=True)
        require("found", found, Exported, "what Exporter.files returned")
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
            raise WorktreeError(f"cannot write {path}: {error.strerror}", hint="choose another place: -o PATH") from None
        fsync.flush(_above(place))  # a directory that was made just now, by us or by whoever calls us
        _note(here, place, found.data)

    def make_directory(self, path: str) -> None:
        """Make a directory for files, unless it is there.

        Raises:
            UsageError: a link on the way leads out of the worktree.
            WorktreeError: it cannot be made, or what it should lie in is not there.
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
            hint = "choose another place: -o PATH; or name one checkpoint of the run, to get one file"
            raise WorktreeError(f"cannot make the directory {path}: {error.strerror}", hint=hint) from None


def _no_directory(path: str) -> WorktreeError:
    directory = os.path.dirname(path.rstrip(os.sep)) or os.curdir
    return WorktreeError(
        f"cannot write {path}: there is no directory {directory}",
        hint=f"make it: mkdir -p {shell_word(directory)}; or choose another place: -o PATH",
    )


def _require_no_way_out(store: Checkpoints, place: str) -> None:
    """Refuse a path in the worktree where a link on the way leads out of it, or into `.git`."""
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
    """Tells whether a file is one that a capture may find, and with it what a kill leaves beside it."""
    top = store.repository.worktree
    return top is not None and f"{os.path.realpath(os.path.dirname(place))}{os.sep}".startswith(os.path.realpath(top) + os.sep)


def _is_end(entry: Entry) -> bool:
    """Tells whether a phase ended with a checkpoint, or it was a file of its own."""
    name, status = split(entry.label)
    return entry.trigger.startswith(IMPORT) or (status in _ENDS and name not in NOT_PHASES)


def _one(store: Checkpoints, checkpoint: Checkpoint, format_: str) -> Exported:
    imported = checkpoint.imported
    same = (trigger(format_), *([trigger(NEBULA)] if format_ == QUASAR else []))
    if imported is not None and checkpoint.trigger in same:
        found = next(store.objects.read([imported.original], None))
        if found is None or found[0] != "blob":
            raise CkptError(f"the file that {checkpoint.id} was imported from is missing", hint="look at the store: git ckpt verify")
        return Exported(checkpoint.id, _named(imported.path) or _name(checkpoint, format_), found[1], (), is_original=True)
    writer = _WRITERS.get(format_)
    if writer is None:
        hint = f"write it as {_OLD[format_]}: --format {_OLD[format_]}" if format_ in _OLD else f"it is one of {', '.join(_WRITERS)}"
        raise UsageError(f"nothing new is written as {format_}", hint=hint)
    losses: list[str] = []
    try:
        data = writer(checkpoint, losses)
    except Unreadable as error:
        hint = f"see what it has: git ckpt show {checkpoint.id[:8]} --state"
        raise UsageError(f"checkpoint {checkpoint.id[:8]} is nothing for {format_}: {error}", hint=hint) from None
    losses += _lost_by_all(checkpoint, format_)
    return Exported(checkpoint.id, _name(checkpoint, format_), data, tuple(dict.fromkeys(losses)), is_original=False)


def _lost_by_all(checkpoint: Checkpoint, format_: str) -> list[str]:
    """Returns what a checkpoint has and none of the formats, or all but some."""
    said = {"message": checkpoint.message, "agent": checkpoint.agent, "branch": checkpoint.branch, "commit": checkpoint.git_sha or None}
    losses = [f"{name} = {value}" for name, value in said.items() if value is not None and format_ not in _SAY[name]]
    inputs = checkpoint.pipeline.inputs if checkpoint.pipeline is not None else {}
    names = [name for name, value in inputs.items() if value and name not in _INPUTS.get(format_, ())]
    losses += [f"the inputs {', '.join(names)} of the pipeline"] if names else []
    if checkpoint.worktree is not None and checkpoint.worktree.dirty:
        losses.append("the files that were not committed")
    if checkpoint.sequence is not None and checkpoint.sequence > 1 and format_ != RLM_ACT:
        losses.append(f"the history of the run before it: {checkpoint.sequence - 1} of its checkpoints")
    return losses


_SAY = {"message": (), "agent": (SUPERPOWERS,), "branch": (FORGE,), "commit": (RLM_ACT, QUASAR)}
_INPUTS = {FORGE: ("plan",), QUASAR: ("task", "title", "max_cycles", "max_budget")}
"""Which formats have a place for what."""


def _named(path: str) -> str | None:
    """Returns the name that an imported file had; None where no tool gives such a one, as checkpoints of others may say anything."""
    name = os.path.basename(path)
    return name if name.endswith(detection.SUFFIXES) and not name.startswith(".") and name.isprintable() else None


def _apart(found: list[Exported]) -> list[Exported]:
    """Returns files for one directory: of those that had the same name, all but the first are named by their checkpoints."""
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


def _require_ours(store: Checkpoints, place: str, found: Exported) -> None:
    try:
        there = regular.content(place, _LARGEST, follow=False)
    except OSError as error:
        raise UsageError(f"{place} is in the way: {error.strerror}", hint="move it away, or choose another place: -o PATH") from None
    oid = object_id("blob", there, store.repository.object_format)
    originals = store.refs.list(layout.ORIGINALS.rstrip("/"), fields="%(objectname)").decode("ascii").split()
    if there != found.data and oid not in originals and _noted(store).get(_digest(place)) != oid:
        raise UsageError(
            f"{place} is there, and is neither what was imported nor what was exported there last",
            hint="look at it; to replace it: --force; or choose another place: -o PATH",
        )


def _above(place: str) -> list[str]:
    """Returns the directories above a file, but for the one that it lies in, and for those that we may not open: they are none of ours."""
    found = []
    at = os.path.dirname(place)
    while (above := os.path.dirname(at)) != at:
        found.append(above)
        at = above
    return [each for each in found if os.access(each, os.R_OK)]


def _digest(place: str) -> str:
    return hashlib.sha256(os.fsencode(place)).hexdigest()


def _noted(store: Checkpoints) -> dict[str, str]:
    """Returns which bytes were exported last, by the digest of the path."""
    try:
        data = regular.content(os.path.join(store.repository.private_dir, _NOTES), _LONGEST, follow=False)
    except OSError:
        return {}  # whoever exports there again is asked for --force
    lines = data.decode("ascii", "replace").splitlines()  # after a power cut, perhaps, with anything in them
    return dict(pair for line in lines if len(pair := line.split(" ")) == 2 and not line.strip("0123456789abcdef "))


def _note(store: Checkpoints, place: str, data: bytes) -> None:
    """Notes what was exported, outside of what is ever fetched."""
    repository, digest = store.repository, _digest(place)
    path = os.path.join(repository.make_private_dir(), _NOTES)
    with layout.turn(repository):  # else one of two exports at the same time would lose what the other has noted
        known = _noted(store)
        known.pop(digest, None)  # what was noted last is forgotten last
        known[digest] = object_id("blob", data, repository.object_format)
        lines = [f"{where} {oid}\n" for where, oid in known.items()][-_MOST_NOTES:]
        try:
            atomic.write_own(path, "".join(lines).encode("ascii"), flushed=True, opener=premises.create)
        except OSError as error:
            raise WorktreeError(f"{path} cannot be written: {error.strerror}", hint=f"{place} is written all the same") from None
    fsync.flush([repository.private_dir, repository.common_dir])
