"""Resolve addresses, which name a checkpoint or a run: see docs/addresses.md."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from gitckpt.git.files.refs_stat import read_loose_ref
from gitckpt.model import ids, times
from gitckpt.model import phase as phases
from gitckpt.model.arguments import closest_word, require_text
from gitckpt.model.errors import AmbiguousError, CkptError, NotFoundError, UsageError
from gitckpt.model.skip_invalid import read_or_raise_invalid
from gitckpt.store.records import finder, heads, ref_names, turns
from gitckpt.store.records.entry import CheckpointInfo, Query
from gitckpt.store.records.finder import LATEST, LATEST_ANY, LIST

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeAlias

    from gitckpt.git.repository import Repository
    from gitckpt.store.records.finder import Linked
    from gitckpt.store.records.index import Index
    from gitckpt.store.records.turns import Turn

    OnRevision: TypeAlias = Callable[[str, str, CheckpointInfo], object]

_GIT_AT = ("u", "upstream", "push")  # `@{u}` is a revision, as are `@{1}` and `@{-1}`
_MOST_LISTED = 10
_DATE_LENGTH = len("20261128-105000-")  # before the name of a run


class Addresses:
    """Find the checkpoint or run that a text names in one repository.

    Args:
        linked: returns the checkpoints of a commit.
        find_tagged: returns the checkpoint with a tag.
        run_of: returns the run that was started with a key.
        clock: returns the time, for ages.
        on_revision: gets each git revision, its commit, and the checkpoint taken for it.
    """

    def __init__(
        self,
        repository: Repository,
        index: Index,
        *,
        linked: Linked,
        find_tagged: Callable[[str], str | None],
        run_of: Callable[[str], str | None],
        clock: Callable[[], int],
        on_revision: OnRevision | None = None,
    ) -> None:
        self._repository, self._index, self._linked = repository, index, linked
        self._find_tagged, self._run_of, self._clock = find_tagged, run_of, clock
        self._on_revision = on_revision

    def find_checkpoint(self, text: str) -> str:
        """Return the id of the checkpoint; raise NotFoundError or AmbiguousError."""
        require_text("id", text)
        if not text.strip():
            raise UsageError("the id is empty", hint=LIST)
        try:
            checkpoint_id = self._resolve_to_id(text)
        except AmbiguousError:
            raise
        except NotFoundError as error:
            raise error.but(hint=_find_hint_for_reflog(text) or error.hint) from None
        if checkpoint_id is None:
            raise self._not_found_error(text)
        return checkpoint_id

    def split_path(self, text: str) -> tuple[str, str | None]:
        """Split ADDRESS or ADDRESS:PATH into a checkpoint's id and the path, or None.

        As a path may contain colons, and an address too, the longest address counts.
        """
        require_text("id", text)
        end = len(text)
        while end > 0:
            if text[:end].strip() and (checkpoint_id := self._resolve_to_id(text[:end])):
                return checkpoint_id, text[end + 1 :] if end < len(text) else None
            end = text.rfind(":", 0, end)
        return self.find_checkpoint(text.partition(":")[0] or text), None

    def find_named_run(self, text: str) -> str | None:
        """Return the run if the text names a whole run, not one of its checkpoints."""
        require_text("id", text)
        if text in (LATEST, LATEST_ANY) or not text.strip():
            return None
        return self._resolve(text)[1]

    def is_beginning(self, text: str) -> bool:
        """Return whether ids of checkpoints or runs begin with the text."""
        require_text("text", text)
        try:
            return any(self._resolve_beginning(text))
        except AmbiguousError:
            return True

    def find_run(self, text: str) -> str:
        """Return the run where only a run can be meant, or raise NotFoundError."""
        require_text("text", text)
        runs = self._index.list_runs()
        if matching := _match_runs(text, runs):
            return self._require_one(text, matching)
        if run := self._find_session_by_key(text):
            return run
        similar = closest_word(text, runs, likeness=0.7)
        hint = f"did you mean {similar}?" if similar else "list the runs: git ckpt runs"
        raise NotFoundError(f"no run is named {text!r}", hint=hint)

    def find_session(self, text: str) -> str:
        """Return the run of a session by the client's id, or by a part of its name."""
        if run := self._find_session_by_key(text):
            return run
        sessions = dict.fromkeys(turn.run for turn in turns.list_turns(self._index))
        if matching := _match_runs(text, list(sessions)):
            return self._require_one(text, matching)
        raise NotFoundError(f"no session {text!r}", hint="list the sessions: git ckpt turns")

    def find_turn(self, text: str) -> Turn | None:
        """Return the turn at SESSION:NUMBER; None if the text has another form."""
        base, number = _split_number(text, ":")
        if number is None:
            return None
        run = self.find_session(base)
        if turn := self._find_turn_of(run, number):
            return turn
        hint = f"list the turns: git ckpt turns {run}"
        raise NotFoundError(f"the session {run} has no turn {number}", hint=hint)

    def _resolve_to_id(self, text: str) -> str | None:
        checkpoint_id, run = self._resolve(text)
        if run is not None:
            newest = heads.find_newest_of_run(self._index, self._repository, run)
            return newest.id if newest is not None else None
        return checkpoint_id

    def _resolve(self, text: str) -> tuple[str | None, str | None]:
        # Returns a checkpoint's id or a run. The order is documented in docs/addresses.md.
        if text == LATEST:
            return finder.find_latest_checkpoint(self._repository, self._index).id, None
        if text == LATEST_ANY:
            return finder.find_latest_of_all(self._repository, self._index), None
        if any(named := self._resolve_beginning(text)):
            return named
        if checkpoint_id := self._find_tagged(text):
            return checkpoint_id, None
        if checkpoint_id := self._find_in_worktree(text):
            return checkpoint_id, None
        before, has_path, _ = text.partition("}:")
        if not (has_path and "@{" in before):  # git takes `1}:src^{commit` for a time
            repository, linked = self._repository, self._linked
            if found := finder.find_by_revision(text, repository, linked):
                commit, entry = found
                if self._on_revision is not None:
                    self._on_revision(text, commit, entry)
                return entry.id, None
        if checkpoint_id := self._find_in_run(text):
            return checkpoint_id, None
        return None, self._find_run_by_part(text, in_part=len(text) >= ids.MIN_PREFIX)

    def _resolve_beginning(self, text: str) -> tuple[str | None, str | None]:
        lowered_text = text.lower()
        ref = ref_names.CHECKPOINTS + lowered_text
        is_id = ids.is_checkpoint_id(lowered_text)
        if is_id and (read_loose_ref(self._repository, ref) or self._repository.cat_file.info(ref)):
            return lowered_text, None  # needs no new process
        checkpoint_ids = self._list_ids_starting_with(lowered_text)
        if lowered_text in checkpoint_ids:
            return lowered_text, None  # an exact id wins, even if runs cannot be listed
        try:
            is_run = len(text) >= ids.MIN_PREFIX and text[:1].isdigit()
            runs = [run for run in self._list_runs() if run.startswith(text)] if is_run else []
        except CkptError:
            if not checkpoint_ids:
                raise  # not "no such run", which would be wrong
            runs = []  # the user may want to remove the broken checkpoint
        if text in runs:
            return None, text
        if len(checkpoint_ids) + len(runs) > 1:
            raise self._ambiguous_error(text, [*checkpoint_ids, *runs])
        return next(iter(checkpoint_ids), None), next(iter(runs), None)

    def _find_in_worktree(self, text: str) -> str | None:
        """Return the checkpoint at `latest~N` or `@{TIME}`, None for other text."""
        base, count = _split_number(text, "~")
        if base == LATEST and count is not None:
            entries = list(islice(self._iterate_worktree(), count + 1))
            if len(entries) > count:
                return entries[count].id
            problem = f"this worktree has only {_count_text(len(entries))}"
            raise NotFoundError(f"{text}: {problem}", hint=LIST)
        inner = text[2:-1].lower()
        is_git_revision = inner in _GIT_AT or inner.removeprefix("-").isdigit()
        if not (text.startswith("@{") and text.endswith("}")) or is_git_revision:
            return None
        from gitckpt.git import dates  # imports `datetime`

        instant = dates.parse_instant(inner, self._clock())
        if newest := next(self._iterate_worktree(instant), None):
            return newest.id
        entries = list(self._iterate_worktree())
        if not entries:
            raise NotFoundError("no checkpoint was made in this worktree", hint=LIST)
        oldest = entries[-1]
        age, short_id = self._age_text(oldest), oldest.id[: ids.SHORT]
        hint = f"the oldest is {short_id}, {age} old: git ckpt show {short_id}"
        raise NotFoundError(f"no checkpoint of this worktree is as old as {text}", hint=hint)

    def _iterate_worktree(self, until: int | None = None) -> Iterator[CheckpointInfo]:
        return finder.iterate_worktree(self._index, self._repository, until)

    def _find_in_run(self, text: str) -> str | None:
        """Return the checkpoint at RUN~N, RUN:PHASE or SESSION:TURN, None for others."""
        base, steps = _split_number(text, "~")
        if steps is not None and (run := self._find_base_run(base)):
            entries = heads.list_run_checkpoints(self._index, self._repository, run)
            if steps < len(entries):
                return entries[steps].id
            problem = f"the run {run} has only {_count_text(len(entries))}"
            raise NotFoundError(f"{text}: {problem}", hint=f"list them: git ckpt list --run {run}")
        base, _, phase = text.rpartition(":")
        if not base or not phase or (run := self._find_base_run(base)) is None:
            return None
        number = _split_number(text, ":")[1]
        if number is not None and (turn := self._find_turn_of(run, number)):
            if turn.after is not None:
                return turn.after.id
            hint = f"its newest checkpoint: git ckpt show {turn.entries[-1].id[: ids.SHORT]}"
            raise NotFoundError(f"turn {number} of {run} is not over", hint=hint)
        is_label = phases.split_label(phase)[1] in phases.STATUSES
        for entry in heads.list_run_checkpoints(self._index, self._repository, run):
            if phase == (entry.label if is_label else entry.phase_name):
                return entry.id
        return None

    def _find_base_run(self, text: str) -> str | None:
        """Return the run that an address begins with, None if it begins otherwise."""
        if not text.strip() or text in (LATEST, LATEST_ANY):
            return None
        checkpoint_id, run = self._resolve_beginning(text)
        if checkpoint_id or run:
            return run
        if self._find_tagged(text):
            return None
        try:
            self._repository.resolve_commit(text)
        except NotFoundError:
            return self._find_run_by_part(text)
        return None  # `main:src` is a path in a commit

    def _find_turn_of(self, run: str, number: int) -> Turn | None:
        found = turns.list_turns(self._index, run)
        return next((turn for turn in found if turn.number == number), None)

    def _find_run_by_part(self, text: str, *, in_part: bool = True) -> str | None:
        if run := self._find_session_by_key(text):
            return run
        matching = _match_runs(text, self._list_runs(), in_part=in_part)
        return self._require_one(text, matching) if matching else None

    def _find_session_by_key(self, text: str) -> str | None:
        for agent in self._index.list_agents():
            with contextlib.suppress(UsageError):  # the text cannot be a key
                if run := self._run_of(f"agent:{agent}:{text}"):
                    return run
        return None

    def _list_ids_starting_with(self, text: str) -> list[str]:
        if not ids.is_checkpoint_id_prefix(text):
            return []
        pattern = f"{ref_names.CHECKPOINTS}{text}*"
        listing = self._repository.git.run("for-each-ref", "--format=%(refname)", pattern).out
        refs = filter(
            ref_names.is_uuid_ref, listing.decode("utf-8", "backslashreplace").split("\n")
        )
        return [ref.removeprefix(ref_names.CHECKPOINTS) for ref in refs]

    def _list_runs(self) -> list[str]:
        return read_or_raise_invalid(ref_names.CHECKPOINTS, self._index.list_runs)

    def _require_one(self, text: str, runs: Sequence[str]) -> str:
        if len(runs) > 1:
            raise self._ambiguous_error(text, runs)
        return runs[0]

    def _ambiguous_error(self, text: str, names: Sequence[str]) -> AmbiguousError:
        is_beginning = all(name.startswith(text.lower()) for name in names)
        relation = "ids begin with" if is_beginning else "runs have names with"
        lines = list(map(self._describe, names[:_MOST_LISTED]))
        hint = (
            "give more characters of the id" if is_beginning else "give a longer part of the name"
        )
        return AmbiguousError(f"{len(names)} {relation} {text!r}", lines, hint=hint)

    def _describe(self, name: str) -> str:
        """Return the id of a checkpoint or run with its age and message."""
        query = Query(run=name, limit=1) if ids.is_run_id(name) else Query(ids=[name])
        entry = next(iter(self._index.select(query)), None)
        if entry is None:  # its document is invalid
            return name
        return f"{name}  {self._age_text(entry)}  {entry.message or entry.label}"

    def _age_text(self, entry: CheckpointInfo) -> str:
        return times.age_text(self._clock() - entry.time)

    def _not_found_error(self, text: str) -> NotFoundError:
        base, colon, phase = text.rpartition(":")
        if colon and (run := self._find_base_run(base)):
            hint = f"see its phases: git ckpt status {run}"
            return NotFoundError(f"the run {run} has no phase {phase!r}", hint=hint)
        recent_ids = [entry.id for entry in self._index.select(Query(limit=1000))]
        known = [LATEST, LATEST_ANY, *self._index.list_runs(), *recent_ids]
        similar = closest_word(text, [*known, *(name[: len(text)] for name in known)], likeness=0.7)
        hint = _find_hint_for_reflog(text) or LIST
        if similar and hint == LIST:
            hint = f"did you mean {next(name for name in known if name.startswith(similar))}?"
        elif len(text) < ids.MIN_PREFIX:
            hint = f"give at least {ids.MIN_PREFIX} characters of an id, or {LIST}"
        return NotFoundError(f"no checkpoint, run or commit is named {text!r}", hint=hint)


def _match_runs(text: str, runs: Sequence[str], *, in_part: bool = True) -> list[str]:
    if text in runs:
        return [text]
    # A name without its date and time, which every list shows.
    if named := [run for run in runs if run[_DATE_LENGTH:] == text]:
        return named
    if not text or not in_part:
        return []
    return [run for run in runs if run.startswith(text)] or [run for run in runs if text in run]


def _split_number(text: str, separator: str) -> tuple[str, int | None]:
    """Split BASE~N or BASE:N into base and number; `BASE~` is `BASE~1`."""
    base, found, digits = text.rpartition(separator)
    if found and base and digits == "" and separator == "~":
        return base, 1
    is_number = digits.isascii() and digits.isdigit() and len(digits) < 10
    return (base, int(digits)) if found and base and is_number else (text, None)


def _find_hint_for_reflog(text: str) -> str | None:
    """Return a hint for `@{5}`, which names an entry of git's reflog; None for others."""
    number = text.removeprefix(LATEST).removeprefix("@{").removesuffix("}")
    if not text.endswith(f"@{{{number}}}") or not (number.isascii() and number.isdigit()):
        return None
    return f"{LATEST}~{number} counts checkpoints, @{{{number}m}} minutes"


def _count_text(count: int) -> str:
    return f"{count} checkpoint{'' if count == 1 else 's'}"
