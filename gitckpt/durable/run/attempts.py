"""Attempts at a phase: how each one ends, what follows, and when it is tried again."""

from __future__ import annotations

import contextlib
import copy
import hashlib
import json
import math
import os
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from gitckpt.durable.run.writer import Writer
from gitckpt.git.repository import Repository
from gitckpt.model import phase as phase_labels
from gitckpt.model import times
from gitckpt.model.arguments import closest, folded, instances, mapping, refused, require, require_callable, require_number, shell_word
from gitckpt.model.checkpoint import PHASE, Attempt, Checkpoint, Progress
from gitckpt.model.errors import CkptError, StateError, UsageError
from gitckpt.model.times import MICRO
from gitckpt.model.values import dataclass, field, replace
from gitckpt.store import log
from gitckpt.store.checkpoints import Checkpoints
from gitckpt.store.leases.leases import Hold, LeaseLost
from gitckpt.store.runs.run_files import RunFiles
from gitckpt.store.runs.summary import Attempts
from gitckpt.store.snapshot import assurance
from gitckpt.store.snapshot.limits import MORE_TIME, Limits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gitckpt.durable.run.opener import Opening
    from gitckpt.store.records.recorder import Guard


# How a phase can end other than well, each with the status that its checkpoint gets. Whatever else it raises is a failure.


class PhaseFailed(CkptError):
    """A phase failed; its run can be resumed.

    Args:
        message: what failed, and why.
        errors: all that went wrong, in order, for the checkpoint; by default the message.
        code: the exit code of its command; None where there was none.
        output: the end of what it printed.
        hint: the command to run next.
    """

    exit_code = 20
    status = "failed"

    def __init__(
        self, message: str, *, errors: tuple[str, ...] = (), code: int | None = None, output: str | None = None, hint: str | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.errors = errors or (message,)
        self.code = code
        self.output = output


class PhaseBlocked(PhaseFailed):
    """A phase cannot go on without somebody's help."""

    exit_code = 4
    status = "blocked"


class AgentUnusable(PhaseFailed):
    """An agent cannot be asked until somebody does something: it is not there, not logged in, or does not know its options."""

    exit_code = 4


class PhaseDeferred(PhaseFailed):
    """A phase asks to be tried again later."""

    status = "partial"


class Cancelled(PhaseFailed):
    """Somebody asked the driver to stop."""

    exit_code = 130


class DeadlineReached(PhaseFailed):
    """The run took as long as it may."""


class Changed(UsageError):
    """A run was to go on under other inputs or another definition than it was started with.

    Args:
        what: what changed, each thing in words.
        hint: what can be done about it.
    """

    def __init__(self, run: str, what: list[str], *, hint: str = "put it back, or go on with what is there now: --accept-changes") -> None:
        super().__init__(f"run {run} was started with something else: {'; '.join(what)}", hint=hint)
        self.what = what


# What a run, the phases it performs and the attempt under way hold in common, so that none of them has to know another.


_SLICE = 0.5
"""How long a wait lasts until somebody looks whether the run shall stop, in seconds."""


class Session:
    """A run while this process drives it.

    Args:
        opening: the run, its worktree and its lease.
        sleep: waits for a time in seconds.

    Attributes:
        run: its id.
        store: as seen from its worktree.
        hold: its lease.
        files: its files that lie beside the worktree.
        attempts: what its checkpoints say of its phases.
        writer: writes its checkpoints.
        state: what they carry; a phase may change it.
        last_attempt: the last attempt at a phase.
    """

    def __init__(self, opening: Opening, sleep: Callable[[float], None]) -> None:
        self._sleep = sleep
        self.run = opening.run
        self.store = opening.store
        self.hold = opening.hold
        self.files = opening.files
        made_at = time.time() if opening.made else None
        self.attempts = Attempts(opening.store, opening.run, is_new=(opening.newest.sequence or 0) <= 1)
        self.writer = Writer(opening.store, opening.run, opening.hold, opening.files, opening.newest, made_at=made_at)
        self.state: dict[str, Any] = dict(opening.newest.state)
        self.last_attempt: Attempt | None = opening.newest.attempt

    def check(self) -> None:
        """Looks whether the run shall stop.

        Raises:
            Cancelled: somebody asked for it.
            DeadlineReached: the run took as long as it may.
            LeaseLost: somebody else drives it by now.
        """
        self.hold.check()
        if self.hold.lease.cancelled:
            raise Cancelled(f"run {self.run} was cancelled", hint=f"to go on with it: git ckpt resume {self.run}")
        left = self.seconds_left()
        if left is not None and left <= 0:
            raise DeadlineReached(f"run {self.run} took longer than it may, until {self.writer.pipeline.deadline}")

    def wait(self, seconds: float) -> None:
        """As `Run.wait`."""
        require("seconds", seconds, (int, float), "a number of seconds")
        until = self.store.clock() + seconds * times.MICRO
        # By the clock, as a machine that sleeps does not count; never longer than was said, where the clock is set back meanwhile.
        while (left := min((until - self.store.clock()) / times.MICRO, seconds)) > 0:
            self.check()
            pause = min(left, _SLICE)
            self._sleep(pause)
            seconds -= pause

    def seconds_left(self) -> float | None:
        """Returns how long the run may still take; None for as long as it likes."""
        deadline = self.writer.pipeline.deadline
        return None if deadline is None else (times.from_text(deadline) - self.store.clock()) / times.MICRO


# What goes on beside a run while its driver works: the lease is renewed, and files are saved now and then.


LOOK = 2.0
"""How often the driver looks whether there is a new commit, in seconds."""


class Attendant:
    """Does something again and again in a thread of its own, until it is closed; `close` waits for what is under way.

    Args:
        interval: in seconds.
        action: what is done. It returns whether to go on.
    """

    def __init__(self, interval: float, action: Callable[[], bool]) -> None:
        self._interval = interval
        self._action = action
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._attend, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Ends it."""
        self._ending.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _attend(self) -> None:
        while not self._ending.wait(self._interval):
            if not self._action():
                return


def heartbeat(hold: Hold, repository: Repository, interval: float) -> Attendant:
    """Returns what renews a lease. Once it is lost, nothing is renewed; the driver finds out when it writes.

    Args:
        hold: the lease.
        repository: where failures are logged.
        interval: in seconds.
    """

    def beat() -> bool:
        try:
            hold.renew()
        except LeaseLost:
            return False
        except CkptError as error:
            _log(repository, f"the lease of {hold.lease.run} was not renewed: {error.message}")
        return True

    return Attendant(interval, beat)


class Autosaver:
    """Saves the files of a run while a phase is under way: at each new commit, and at intervals where they have changed.

    Args:
        store: the driver's, as seen from the run's worktree.
        phase: the phase that is under way.
        saved: the commit and the snapshot that the newest checkpoint holds.
        guard: the run's lease.
        beside: files of the run that lie beside its worktree.
        limits: what a snapshot leaves out.

    Attributes:
        failures: what went wrong, a sentence each.
    """

    def __init__(self, store: Checkpoints, phase: str, run: str, saved: Content, *, guard: Guard, beside: RunFiles, limits: Limits) -> None:
        self._driver = store
        self._repository = store.repository
        self._phase = phase
        self._run = run
        self._saved = saved
        self._guard = guard
        self._beside = beside
        self._limits = limits
        self._store: Checkpoints | None = None
        self._saving = threading.Lock()
        self._is_told = False
        self.failures: list[str] = []

    def attendant(self, interval: float) -> Attendant:
        """Returns what does it, at an interval in seconds."""
        step = min(interval, LOOK)
        waited = 0.0

        def look() -> bool:
            nonlocal waited
            waited += step
            try:
                with self._saving:
                    store = self._own_store()
                    if waited >= interval or store.objects.head()[0] != self._saved[0]:
                        waited = 0.0
                        self._save(store)
            except LeaseLost:
                return False
            except CkptError as error:
                self.failures.append(error.message)
                _log(self._repository, f"the files of {self._run} were not saved in between: {error.message}")
            return True

        return Attendant(step, look)

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Saves nothing meanwhile."""
        with self._saving:
            yield

    def saved(self, newest: Content) -> None:
        """Notes what the newest checkpoint holds, by now."""
        self._saved = newest

    def close(self) -> None:
        """Lets go of processes; to be called after the attendant has ended."""
        if self._store is not None:
            self._store.close()

    def _own_store(self) -> Checkpoints:
        """Returns a store for the thread that saves; the driver's belongs to another one."""
        if self._store is None:
            here = self._repository
            self._store = self._driver.seen_from(Repository(here.git_dir, here.worktree, here.object_format), "plumbing")
        return self._store

    def _save(self, store: Checkpoints) -> None:
        commit = store.objects.head()[0]
        newest = store.heads.read(self._run)
        if newest.git_sha == commit != self._saved[0]:  # the hook has recorded the commit, with the files
            self._saved = held(newest)
            return
        files = store.capture(self._limits, self._beside)
        if files.degraded and not self._is_told:
            self._is_told = True
            store.announce(f"files of {self._run} are not saved in between: {files.degraded}; {MORE_TIME}")
        if (commit, files.tree) == self._saved and not files.degraded:
            return
        made = store.record(f"{self._phase}-progress", worktree=files, run=self._run, trigger=PHASE, guard=self._guard)
        failure = assurance.failure(store.repository, store.objects, made, store.announce)
        if failure is not None:
            store.remove([made.id])
            raise failure
        self._saved = held(made)


Content = tuple[str, str | None]
"""The commit and the snapshot that a checkpoint holds."""


def held(checkpoint: Checkpoint) -> Content:
    """Returns what a checkpoint holds."""
    return checkpoint.git_sha, checkpoint.tree


def _log(repository: Repository, text: str) -> None:
    try:
        log.append(repository, text)
    except CkptError:
        return  # the disk is full, perhaps; the driver tells of what it could not write itself


# Which attempt at a phase comes next, from what the run's newest checkpoint says of the last one. Pure.


FAILED, BLOCKED, PARTIAL, COMPLETE = "failed", "blocked", "partial", "complete"


@dataclass(frozen=True, slots=True)
class NextAttempt:
    """What comes next in a phase.

    Attributes:
        attempt: the attempt to make.
        crashed: whether the last one ended without anybody having noted it.
        is_first: whether the phase begins with it.
    """

    attempt: Attempt
    crashed: bool
    is_first: bool


def after(last: Attempt | None, phase: str, inputs: Mapping[str, str], *, number: int = 0) -> NextAttempt:
    """Returns the attempt that follows.

    A crash is no failure: it uses up a recovery, not a retry. What failed for good, was blocked or put off has all its retries again.

    Args:
        last: the last attempt that the run made, at this phase or another one; None where there was none.
        phase: the phase to attempt.
        inputs: digests of what it is called with.
        number: of the last attempt at this phase, where `last` is about another one.
    """
    if last is None or last.phase != phase or last.ended == COMPLETE:
        if last is not None and last.phase == phase:
            number = last.number
        return NextAttempt(Attempt(phase, number + 1, inputs=inputs), crashed=False, is_first=True)
    fresh = Attempt(phase, last.number + 1, began=last.began, inputs=inputs)
    if last.ended is None:
        return NextAttempt(replace(fresh, failures=last.failures, recoveries=last.recoveries + 1), crashed=True, is_first=False)
    if last.ended == FAILED and last.retry_at is not None:
        return NextAttempt(replace(fresh, failures=last.failures, recoveries=last.recoveries), crashed=False, is_first=False)
    return NextAttempt(fresh, crashed=False, is_first=False)


def require_name(name: str) -> None:
    """Raises `UsageError` for what cannot be the name of a phase: labels could not tell it apart."""
    if (
        not isinstance(name, str)
        or not name.strip()
        or not name.isprintable()
        or phase_labels.split(name)[1] in phase_labels.STATUSES
        or name in phase_labels.NOT_PHASES
    ):
        raise UsageError(f"{name!r} cannot be the name of a phase", hint="choose another name, that does not end in a status")


def meant(text: str, names: Sequence[str], run: str) -> str:
    """Returns the phase that a person means.

    Args:
        text: its name, in any case, and with hyphens or underscores for spaces.
        names: of the phases that there are.
        run: whose they are, for the error.

    Raises:
        UsageError: there is none; those there are, and the closest, are named.
    """
    known = {folded(name): name for name in reversed(names)}
    if text in names or folded(text) in known:
        return text if text in names else known[folded(text)]
    close = closest(folded(text), known)
    hint = f"its phases: {', '.join(names)}" if names else "it has none yet; leave out --from"
    raise UsageError(f"run {run} has no phase {text!r}", hint=f"did you mean {known[close]}? I{hint[1:]}" if close else hint)


def digests(values: Mapping[str, Any]) -> dict[str, str]:
    """Returns a digest for each of the values that a phase is called with.

    Args:
        values: JSON values by name.

    Raises:
        StateError: one is no JSON value.
    """
    return {name: hashlib.sha256(to_json(value, f"/{name}").encode()).hexdigest()[:16] for name, value in values.items()}


def to_json(value: Any, path: str = "") -> str:
    """Returns a value as JSON from which it comes back equal.

    Args:
        value: the value.
        path: JSON pointer to it, for the error.

    Raises:
        StateError: it is no JSON value: it would come back as another one.
    """
    try:
        _require_json(value, path)
    except RecursionError:
        raise StateError(path, "nested too deeply") from None
    try:
        return json.dumps(value, sort_keys=path != "")
    except ValueError as error:
        raise StateError(path, f"an integer is too long to be read again: {error}", hint="return it as a string") from None


def _require_json(value: Any, path: str) -> None:
    if type(value) is dict:
        for key, inner in value.items():
            if type(key) is not str:
                raise StateError(f"{path}/{key}", f"a key must be a string, not {key!r:.60}")
            _require_json(inner, f"{path}/{key}")
    elif type(value) is list:
        for number, inner in enumerate(value):
            _require_json(inner, f"{path}/{number}")
    elif value is not None and type(value) not in (str, int, float, bool):
        raise StateError(path, f"{type(value).__name__} is no JSON value, and would not come back as it is: {value!r:.60}")


def differing_inputs(old: Mapping[str, str], new: Mapping[str, str], kind: str) -> list[str]:
    """Returns what differs between two maps of digests or values, in words, by name.

    Args:
        old: what was recorded.
        new: what is there now.
        kind: what the names are names of, such as "input".
    """
    found = []
    for name in dict.fromkeys([*old, *new]):
        if name not in new:
            found.append(f"{kind} {name!r} is gone")
        elif name not in old:
            found.append(f"{kind} {name!r} is new")
        elif old[name] != new[name]:
            found.append(f"{kind} {name!r} has changed")
    return found


# How a phase is carried out and tried again, and how an attempt at it ended.


KEEP, RESET = "keep", "reset"
ON_RESUME = (KEEP, RESET)
"""What becomes of the files of an attempt that did not end well: they stay, or are what they were when the phase began."""

_LONGEST = 100 * 365 * 86_400 * MICRO
"""The longest wait, in microseconds: what comes after it has a year of four digits."""

_MOST_SAID, _MOST_ERRORS = 20_000, 100
"""In characters, of one error or the end of an output; and of how many errors. With more, a checkpoint could not be written that says a
phase has failed."""

AUTOSAVE = 300 * MICRO
MAX_RECOVERIES = 3


@dataclass(frozen=True, slots=True)
class Retries:
    """How often a phase is tried again after a failure, and how long it waits before. Lengths of time are in microseconds."""

    attempts: int = 0
    """So many attempts more than the first."""

    delay: int = MICRO
    """The wait before the first of them."""

    backoff: float = 2.0
    """Each further wait is so many times as long as the one before."""

    max_delay: int = 3600 * MICRO
    jitter: float = 0.1
    """A wait is longer or shorter by up to this share, so that many runs do not all come back at the same time."""

    on: tuple[int, ...] = ()
    """The exit codes after which there is another attempt; any, where there are none."""

    def __post_init__(self) -> None:
        for name in ("attempts", "delay", "max_delay"):
            require_number(name, getattr(self, name))
        # Said now, as with `Conduct`: what a wait cannot be worked out of would take the place of the failure.
        for name, most, what in (("backoff", math.inf, "a number from 0 on"), ("jitter", 1, "a number from 0 to 1")):
            value = getattr(self, name)
            if not isinstance(value, int | float) or not 0 <= value <= most:
                raise refused(name, value, what)
        object.__setattr__(self, "on", instances("on", self.on, int, "an exit code"))

    @property
    def longest_wait(self) -> int:
        """How long a wait is at most, in microseconds."""
        return round(min(self.max_delay, _LONGEST) * (1 + self.jitter))

    def wait_before(self, attempt: int, random: float) -> int:
        """Returns how long to wait before an attempt, in microseconds.

        Args:
            attempt: its number; 1 is the first attempt, before which there is no wait, and 2 the first retry.
            random: at least 0 and less than 1; where in its range the wait lies, in the middle at 0.5.
        """
        if attempt < 2 or not self.delay:
            return 0
        longest = min(self.max_delay, _LONGEST)
        try:
            wait = min(self.delay * self.backoff ** (attempt - 2), longest)
        except OverflowError:
            wait = longest
        return round(wait * (1 + self.jitter * (2 * random - 1)))

    def retries(self, code: int | None) -> bool:
        """Tells whether a failure is one after which there is another attempt, so long as `attempts` are left.

        Args:
            code: the exit code; None where the attempt ended without one, by a time limit for example.
        """
        return self.attempts > 0 and (not self.on or code in self.on)


@dataclass(frozen=True, slots=True)
class Ended:
    """How an attempt ended that did not fail.

    Attributes:
        result: what the phase returns, a JSON value.
        code: the exit code of its command; None where there was none.
        output: the end of what it printed.
    """

    result: Any = None
    code: int | None = None
    output: str | None = None


@dataclass(frozen=True, slots=True)
class Conduct:
    """How a phase is carried out. Lengths of time are in microseconds.

    Attributes:
        retries: how often it is tried again, and when.
        retry_on: the exceptions after which it is.
        autosave: how often its files are saved in between; 0 for never.
        max_recoveries: after more crashes than that the run is blocked.
        on_resume: `keep`, or `reset`: whether a further attempt begins with the files as they are, or as they were at first.
    """

    retries: Retries = field(default_factory=Retries)
    retry_on: tuple[type[Exception], ...] = (Exception,)
    autosave: int = AUTOSAVE
    max_recoveries: int = MAX_RECOVERIES
    on_resume: str = KEEP

    def __post_init__(self) -> None:
        # Said now, and not when a phase has failed, whose failure could then not be recorded.
        require("retries", self.retries, Retries, "a Retries")
        for each in self.retry_on if isinstance(self.retry_on, tuple) else (self.retry_on,):
            if not (isinstance(each, type) and issubclass(each, BaseException)):
                raise refused("retry_on", self.retry_on, "a tuple of exceptions")
        require_number("autosave", self.autosave)
        require_number("max_recoveries", self.max_recoveries)
        if self.on_resume not in ON_RESUME:
            raise refused("on_resume", self.on_resume, " or ".join(map(repr, ON_RESUME)))


USUAL = Conduct()
"""A phase that is tried once."""


def require_call(work: Callable[..., Any], inputs: Mapping[str, Any] | None, conduct: Conduct) -> dict[str, Any]:
    """Returns the inputs that a phase is called with.

    Raises:
        UsageError: an argument is of a wrong type; it is named.
    """
    require_callable("work", work)
    require("conduct", conduct, Conduct, "a Conduct")
    return mapping("inputs", inputs)


def failed(attempt: Attempt, error: BaseException, conduct: Conduct, *, seconds: float, now: int) -> Attempt:
    """Returns an attempt that ended with an exception; it says whether there will be another one, and when.

    Args:
        attempt: as it began.
        error: the exception.
        conduct: how often the phase is tried.
        seconds: how long it took.
        now: the current instant, in microseconds since the epoch.
    """
    ending = error if isinstance(error, PhaseFailed) else None
    code = ending.code if ending is not None and isinstance(ending.code, int) and ending.code.bit_length() < 64 else None
    failures = attempt.failures + 1
    again = (
        isinstance(error, conduct.retry_on)
        and not isinstance(error, PhaseBlocked | Cancelled | DeadlineReached | StateError)
        and failures <= conduct.retries.attempts
        and (conduct.retries.retries(code) or isinstance(error, PhaseDeferred))
    )
    retry_at = None
    if again:
        chance = int.from_bytes(os.urandom(4)) / 2**32
        retry_at = times.to_text(now + conduct.retries.wait_before(failures + 1, chance))
    return replace(
        attempt,
        ended=FAILED if again or ending is None else ending.status,
        failures=failures,
        retry_at=retry_at,
        exit_code=code,
        seconds=seconds,
        output=_storable(ending.output)[-_MOST_SAID:] if ending is not None and ending.output is not None else None,
    )


def errors(error: BaseException) -> list[str]:
    """Returns what a checkpoint says of an exception that ended an attempt, whatever that says of itself."""
    if isinstance(error, PhaseFailed):
        found = [_cut(each) for each in error.errors[:_MOST_ERRORS]]
        more = len(error.errors) - len(found)
        return [*found, f"and {more:,} more"] if more else found
    if isinstance(error, KeyboardInterrupt):
        return ["interrupted"]
    said = str(traceback.TracebackException(type(error), error, None, compact=True))  # which a class that fails at saying it does not hide
    return [_cut(f"{type(error).__name__}: {said}" if said else type(error).__name__)]


def _cut(text: object) -> str:
    whole = _storable(text)
    return whole if len(whole) <= _MOST_SAID else f"{whole[:_MOST_SAID]}… ({len(whole):,} characters)"


def _storable(text: object) -> str:
    """Returns a text that UTF-8 can hold: names of files and outputs of programs come with lone surrogates for other bytes."""
    return str(text).encode("utf-8", "backslashreplace").decode("utf-8")


# One attempt at a phase, from its start to its end, with the milestones in between.


class Attempting:
    """An attempt that is under way.

    Args:
        session: the run, whose `last_attempt` this is.
        conduct: how the phase is carried out.
        followed: whether another phase begins at once where it succeeds: its end is recorded with that, or by `Writer.flush`.
    """

    def __init__(self, session: Session, conduct: Conduct, *, followed: bool = False) -> None:
        assert session.last_attempt is not None
        self._session = session
        self._writer = session.writer
        self._conduct = conduct
        self._followed = followed
        self._attempt = session.last_attempt
        self._before = copy.deepcopy(session.state)
        self._started = time.monotonic()
        newest, limits = held(self._writer.newest), self._writer.limits
        self._saver = Autosaver(
            session.store, self._attempt.phase, session.run, newest, guard=session.hold, beside=session.files, limits=limits
        )

    def carry_out(self, action: Callable[[Attempt], Ended]) -> Any:
        """Does it, and returns its result.

        Args:
            action: what is to be done.

        Raises:
            LeaseLost: somebody else drives the run by now.
            Exception: what it raised, after it was recorded.
        """
        try:
            ended = self._act(action)
            result = to_json(ended.result, f"/{self._attempt.phase}")
            self._session.last_attempt = replace(
                self._attempt,
                ended=COMPLETE,
                exit_code=ended.code,
                seconds=self._seconds(),
                output=_masked(ended.output),
                result=_masked(result),
            )
            self._write("complete", followed=self._followed)
        except LeaseLost:
            raise
        except BaseException as error:
            if self._writer.has_ended(self._attempt.phase):
                raise  # an interrupt came when it was recorded as complete already, or is going to be
            self._session.state = self._before
            self._fail(error)
            raise
        finally:
            self._saver.close()
            self._writer.notice(self._saver.failures)
        return json.loads(result)

    def milestone(self, *, trigger: str, message: str | None, progress: Progress | None, errors: Sequence[str] | None) -> None:
        """See `Run.milestone`."""
        reached = replace(self._attempt, began=self._session.store.new_id(), recoveries=0)
        label = f"{reached.phase}-progress"
        with self._saver.paused():
            self._writer.write(
                label,
                self._session.state,
                capture=True,
                id=str(reached.began),
                trigger=trigger,
                attempt=reached,
                message=message,
                progress=progress,
                errors=errors,
            )
            self._saver.saved(held(self._writer.newest))
        if not self._writer.unwritten:
            self._attempt = self._session.last_attempt = reached
            self._before = copy.deepcopy(self._session.state)

    def _act(self, action: Callable[[Attempt], Ended]) -> Ended:
        if not self._conduct.autosave:
            return action(self._attempt)
        with self._saver.attendant(self._conduct.autosave / times.MICRO):
            return action(self._attempt)

    def _fail(self, error: BaseException) -> None:
        """Records how the attempt ended."""
        ended = failed(self._attempt, error, self._conduct, seconds=self._seconds(), now=self._session.store.clock())
        self._session.last_attempt = replace(ended, output=_masked(ended.output))
        self._write(str(ended.ended), errors=[str(_masked(each)) for each in errors(error)])

    def _write(self, status: str, errors: Sequence[str] = (), *, followed: bool = False) -> None:
        label, attempt = f"{self._attempt.phase}-{status}", self._session.last_attempt
        self._writer.write(label, self._session.state, capture=True, followed=followed, trigger=PHASE, attempt=attempt, errors=errors)

    def _seconds(self) -> float:
        return round(time.monotonic() - self._started, 3)


def _masked(text: str | None) -> str | None:
    """Returns what a phase said as it is stored: with what looks like a secret masked."""
    if not text:
        return text
    from gitckpt.store import secrets

    return secrets.masked(text)


# Performs the phases of a run: attempt after attempt at each, until it is complete or there shall be no other.


class Performer:
    """Performs phases.

    Args:
        session: the run.
        accepts_changes: whether a phase that is complete may be called with other inputs than it was done with.
    """

    def __init__(self, session: Session, *, accepts_changes: bool) -> None:
        self._session = session
        self._writer = session.writer
        self._accepts = accepts_changes
        self._attempting: Attempting | None = None

    def perform(
        self,
        name: str,
        action: Callable[[Attempt], Ended],
        *,
        inputs: Mapping[str, str],
        conduct: Conduct,
        followed: bool = False,
    ) -> Any:
        """See `ActiveRun.perform`."""
        session = self._session
        require_name(name)
        if name in self._writer.completed:
            return self._recorded(name, inputs)
        coming = after(session.last_attempt, name, inputs, number=session.attempts.attempts_at(name))
        if coming.crashed and coming.attempt.recoveries > conduct.max_recoveries:
            self._block(coming.attempt, conduct)
        while True:
            self._wait(session.last_attempt, conduct)
            self._begin(coming, conduct)
            try:
                return self._attempt(action, conduct, followed=followed)
            except conduct.retry_on as error:
                if (
                    isinstance(error, LeaseLost | Cancelled | PhaseBlocked | DeadlineReached)
                    or session.last_attempt is None
                    or session.last_attempt.retry_at is None
                ):
                    raise
            coming = after(session.last_attempt, name, inputs)

    def milestone(self, *, trigger: str, message: str | None, progress: Progress | None, errors: Sequence[str] | None) -> None:
        """See `Run.milestone`."""
        if self._attempting is None:
            raise UsageError("a milestone belongs to a phase, and none is under way", hint="call it from the work of a phase")
        self._attempting.milestone(trigger=trigger, message=message, progress=progress, errors=errors)
        self._session.check()

    def _recorded(self, name: str, inputs: Mapping[str, str]) -> Any:
        """Returns the result of a phase that is complete."""
        attempt = self._writer.ended(name)
        if attempt is None:
            return None  # somebody else recorded the phase as complete
        differing = differing_inputs(attempt.inputs, inputs, f"phase {name!r}: input")
        if differing and attempt.ended == COMPLETE and not self._accepts:
            raise Changed(self._session.run, differing)
        return None if attempt.result is None else json.loads(attempt.result)

    def _begin(self, coming: NextAttempt, conduct: Conduct) -> None:
        """Records that an attempt begins."""
        session = self._session
        session.check()
        attempt = coming.attempt
        if not coming.is_first:
            self._writer.flush()
            # Where the last attempt ended orderly and the files have changed since, somebody has worked there.
            attempts, last = session.attempts, self._writer.newest.id
            resets = conduct.on_resume != KEEP and (coming.crashed or not attempts.was_worked_on(attempt.phase, last))
            attempt = replace(attempt, began=attempt.began or attempts.began(attempt.phase))
            self._writer.remove_locks()
            if resets and attempt.began is not None:
                self._writer.bring_back(attempt.began)
        session.last_attempt = attempt
        session.attempts.count_attempt(attempt)
        self._writer.write(f"{attempt.phase}-started", session.state, trigger=PHASE, attempt=attempt)

    def _attempt(self, action: Callable[[Attempt], Ended], conduct: Conduct, *, followed: bool) -> Any:
        self._attempting = Attempting(self._session, conduct, followed=followed)
        try:
            return self._attempting.carry_out(action)
        finally:
            self._attempting = None

    def _block(self, attempt: Attempt, conduct: Conduct) -> None:
        """Records that a phase is blocked, and raises `PhaseBlocked`."""
        session = self._session
        count = f"{attempt.recoveries} times without anybody having seen why; the limit is {conduct.max_recoveries}"
        message = f"phase {attempt.phase!r} ended {count}"
        blocked = session.last_attempt = replace(attempt, number=attempt.number - 1, ended=BLOCKED)
        self._writer.write(f"{attempt.phase}-blocked", session.state, capture=True, trigger=PHASE, attempt=blocked, errors=[message])
        raise PhaseBlocked(message, hint=f"see what it did, then: git ckpt resume {session.run} --from {shell_word(attempt.phase)}")

    def _wait(self, last: Attempt | None, conduct: Conduct) -> None:
        """Waits until the next attempt is due, and no longer than it can be to that: the clock may have been ahead when that was noted."""
        due = times.from_text(last.retry_at) if last is not None and last.retry_at is not None else 0
        self._session.wait(min(due - self._session.store.clock(), conduct.retries.longest_wait) / times.MICRO)
