"""Attempts at a phase: how they end, and when they are retried."""

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

from gitckpt.durable.run.writer import Writer, append_log
from gitckpt.git.repository import Repository
from gitckpt.model import phase as phase_labels
from gitckpt.model import times
from gitckpt.model.arguments import closest, folded, instances, mapping, refused, require, require_callable, require_number, shell_word
from gitckpt.model.checkpoint import PHASE, Attempt, Checkpoint, Progress
from gitckpt.model.errors import CkptError, StateError, UsageError
from gitckpt.model.times import MICRO
from gitckpt.model.values import dataclass, field, replace
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


# Failures with the status of their checkpoint. Any other exception of a phase is a failure, too.


class PhaseFailed(CkptError):
    """A phase failed; its run can be resumed.

    Args:
        errors: all errors in order, for the checkpoint; default: the message.
        code: the exit code of the command; None without one.
        output: the end of its output.
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
    """A phase needs the help of a person to continue."""

    exit_code = 4
    status = "blocked"


class AgentUnusable(PhaseFailed):
    """An agent is missing, not logged in, or rejects its options."""

    exit_code = 4


class PhaseDeferred(PhaseFailed):
    """A phase asks to be retried later."""

    status = "partial"


class Cancelled(PhaseFailed):
    """A person asked the driver to stop."""

    exit_code = 130


class DeadlineReached(PhaseFailed):
    """The run reached its deadline."""


class Changed(UsageError):
    """The inputs or the definition of a run changed since its start; see `what`."""

    def __init__(self, run: str, what: list[str], *, hint: str = "put it back, or go on with what is there now: --accept-changes") -> None:
        super().__init__(f"run {run} was started with something else: {'; '.join(what)}", hint=hint)
        self.what = what


# Seconds between two checks whether the run must stop.
_SLICE = 0.5


class Session:
    """State that a run, its phases and the current attempt share."""

    def __init__(self, opening: Opening, sleep: Callable[[float], None]) -> None:
        self._sleep = sleep
        self.run = opening.run
        self.store = opening.store
        self.hold = opening.hold
        self.files = opening.files
        made_at = time.time() if opening.made else None
        self.attempts = Attempts(opening.store, opening.run, is_new=(opening.newest.sequence or 0) <= 1)
        self.writer = Writer(opening.store, opening.run, opening.hold, opening.files, opening.newest, made_at=made_at)
        self.state: dict[str, Any] = dict(opening.newest.state)  # a phase may change it
        self.last_attempt: Attempt | None = opening.newest.attempt

    def check(self) -> None:
        """Raise Cancelled, DeadlineReached or LeaseLost if the run must stop."""
        self.hold.check()
        if self.hold.lease.cancelled:
            raise Cancelled(f"run {self.run} was cancelled", hint=f"to go on with it: git ckpt resume {self.run}")
        left = self.seconds_left()
        if left is not None and left <= 0:
            raise DeadlineReached(f"run {self.run} took longer than it may, until {self.writer.pipeline.deadline}")

    def wait(self, seconds: float) -> None:
        require("seconds", seconds, (int, float), "a number of seconds")
        until = self.store.clock() + seconds * times.MICRO
        # Use the store's clock, as a sleeping machine stops others; bound the wait by `seconds`, as
        # the clock may be set back.
        while (left := min((until - self.store.clock()) / times.MICRO, seconds)) > 0:
            self.check()
            pause = min(left, _SLICE)
            self._sleep(pause)
            seconds -= pause

    def seconds_left(self) -> float | None:
        deadline = self.writer.pipeline.deadline
        return None if deadline is None else (times.from_text(deadline) - self.store.clock()) / times.MICRO


# Background threads: lease renewal and autosave.

# Seconds between two checks for a new commit.
LOOK = 2.0


class Attendant:
    """A thread that repeats an action until it returns False or is closed."""

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
        self._ending.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _attend(self) -> None:
        while not self._ending.wait(self._interval):
            if not self._action():
                return


def heartbeat(hold: Hold, repository: Repository, interval: float) -> Attendant:
    """Return the thread that renews a lease.

    After a loss it stops; the driver notices when it writes.
    """

    def beat() -> bool:
        try:
            hold.renew()
        except LeaseLost:
            return False
        except CkptError as error:
            append_log(repository, f"the lease of {hold.lease.run} was not renewed: {error.message}")
        return True

    return Attendant(interval, beat)


class Autosaver:
    """Saves the files during a phase: after each commit, and at intervals if changed."""

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
                append_log(self._repository, f"the files of {self._run} were not saved in between: {error.message}")
            return True

        return Attendant(step, look)

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        with self._saving:
            yield

    def saved(self, newest: Content) -> None:
        self._saved = newest

    def close(self) -> None:
        """Close the store; call it after the thread has ended."""
        if self._store is not None:
            self._store.close()

    def _own_store(self) -> Checkpoints:
        # The driver's store belongs to the driver's thread.
        if self._store is None:
            here = self._repository
            self._store = self._driver.seen_from(Repository(here.git_dir, here.worktree, here.object_format), "plumbing")
        return self._store

    def _save(self, store: Checkpoints) -> None:
        commit = store.objects.head()[0]
        newest = store.heads.read(self._run)
        if newest.git_sha == commit != self._saved[0]:  # the hook has recorded commit and files
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


# Commit and snapshot of a checkpoint.
Content = tuple[str, str | None]


def held(checkpoint: Checkpoint) -> Content:
    return checkpoint.git_sha, checkpoint.tree


# The next attempt at a phase, from the last one in the newest checkpoint. Pure.

FAILED, BLOCKED, PARTIAL, COMPLETE = "failed", "blocked", "partial", "complete"


@dataclass(frozen=True, slots=True)
class NextAttempt:
    attempt: Attempt
    crashed: bool  # the last attempt ended unrecorded
    is_first: bool  # of the phase


def after(last: Attempt | None, phase: str, inputs: Mapping[str, str], *, number: int = 0) -> NextAttempt:
    """Return the next attempt at a phase, after the last attempt at any phase.

    A crash uses up a recovery, not a retry. After a final failure, a block or a deferral all
    retries are available again.

    Args:
        number: of the last attempt at this phase, if `last` is at another phase.
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
    """Raise UsageError for a phase name that labels could not tell apart."""
    if (
        not isinstance(name, str)
        or not name.strip()
        or not name.isprintable()
        or phase_labels.split(name)[1] in phase_labels.STATUSES
        or name in phase_labels.NOT_PHASES
    ):
        raise UsageError(f"{name!r} cannot be the name of a phase", hint="choose another name, that does not end in a status")


def meant(text: str, names: Sequence[str], run: str) -> str:
    """Return the phase with a name; ignores case, and hyphens equal spaces."""
    known = {folded(name): name for name in reversed(names)}
    if text in names or folded(text) in known:
        return text if text in names else known[folded(text)]
    close = closest(folded(text), known)
    hint = f"its phases: {', '.join(names)}" if names else "it has none yet; leave out --from"
    raise UsageError(f"run {run} has no phase {text!r}", hint=f"did you mean {known[close]}? I{hint[1:]}" if close else hint)


def digests(values: Mapping[str, Any]) -> dict[str, str]:
    """Return a digest of each JSON value; raise StateError for other values."""
    return {name: hashlib.sha256(to_json(value, f"/{name}").encode()).hexdigest()[:16] for name, value in values.items()}


def to_json(value: Any, path: str = "") -> str:
    """Return a value as JSON that reads back equal, or raise StateError.

    `path` is the JSON pointer to the value, for the error.
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
    found = []
    for name in dict.fromkeys([*old, *new]):
        if name not in new:
            found.append(f"{kind} {name!r} is gone")
        elif name not in old:
            found.append(f"{kind} {name!r} is new")
        elif old[name] != new[name]:
            found.append(f"{kind} {name!r} has changed")
    return found


# Conduct of a phase, retries and the result of an attempt.

KEEP, RESET = "keep", "reset"
# What a further attempt does with the files: keep them or reset them to the phase's start.
ON_RESUME = (KEEP, RESET)

# Maximum wait, in microseconds: keeps years at four digits.
_LONGEST = 100 * 365 * 86_400 * MICRO

# Maximum length of an error or output, in characters, and number of errors. Beyond that,
# the checkpoint of a failure could be too large to write.
_MOST_SAID, _MOST_ERRORS = 20_000, 100

AUTOSAVE = 300 * MICRO
MAX_RECOVERIES = 3


@dataclass(frozen=True, slots=True)
class Retries:
    """Retries of a phase after a failure. Durations are in microseconds."""

    attempts: int = 0  # after the first
    delay: int = MICRO  # before the first retry
    backoff: float = 2.0  # factor between successive waits
    max_delay: int = 3600 * MICRO
    jitter: float = 0.1  # share by which waits vary, so that runs do not retry together
    on: tuple[int, ...] = ()  # exit codes that are retried; empty: all

    def __post_init__(self) -> None:
        for name in ("attempts", "delay", "max_delay"):
            require_number(name, getattr(self, name))
        # Check now, as in `Conduct`: a later error would hide the failure of the phase.
        for name, most, what in (("backoff", math.inf, "a number from 0 on"), ("jitter", 1, "a number from 0 to 1")):
            value = getattr(self, name)
            if not isinstance(value, int | float) or not 0 <= value <= most:
                raise refused(name, value, what)
        object.__setattr__(self, "on", instances("on", self.on, int, "an exit code"))

    @property
    def longest_wait(self) -> int:
        return round(min(self.max_delay, _LONGEST) * (1 + self.jitter))

    def wait_before(self, attempt: int, random: float) -> int:
        """Return the wait before an attempt, in microseconds.

        `attempt` counts from 1; the first retry is 2. `random` in [0, 1) selects the point in the
        jitter range.
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
        """Return whether a failure can be retried."""
        return self.attempts > 0 and (not self.on or code in self.on)


@dataclass(frozen=True, slots=True)
class Ended:
    result: Any = None  # a JSON value
    code: int | None = None  # of the command; None without one
    output: str | None = None  # the end of it


@dataclass(frozen=True, slots=True)
class Conduct:
    """How a phase is carried out. Durations are in microseconds."""

    retries: Retries = field(default_factory=Retries)
    retry_on: tuple[type[Exception], ...] = (Exception,)
    autosave: int = AUTOSAVE  # interval; 0 disables autosaves
    max_recoveries: int = MAX_RECOVERIES  # more crashes than this block the run
    on_resume: str = KEEP  # `keep` or `reset`: the files that a further attempt starts with

    def __post_init__(self) -> None:
        # Check now: after a failed phase, an error here would prevent the record of the failure.
        require("retries", self.retries, Retries, "a Retries")
        for each in self.retry_on if isinstance(self.retry_on, tuple) else (self.retry_on,):
            if not (isinstance(each, type) and issubclass(each, BaseException)):
                raise refused("retry_on", self.retry_on, "a tuple of exceptions")
        require_number("autosave", self.autosave)
        require_number("max_recoveries", self.max_recoveries)
        if self.on_resume not in ON_RESUME:
            raise refused("on_resume", self.on_resume, " or ".join(map(repr, ON_RESUME)))


USUAL = Conduct()


def require_call(work: Callable[..., Any], inputs: Mapping[str, Any] | None, conduct: Conduct) -> dict[str, Any]:
    require_callable("work", work)
    require("conduct", conduct, Conduct, "a Conduct")
    return mapping("inputs", inputs)


def failed(attempt: Attempt, error: BaseException, conduct: Conduct, *, seconds: float, now: int) -> Attempt:
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
    if isinstance(error, PhaseFailed):
        found = [_cut(each) for each in error.errors[:_MOST_ERRORS]]
        more = len(error.errors) - len(found)
        return [*found, f"and {more:,} more"] if more else found
    if isinstance(error, KeyboardInterrupt):
        return ["interrupted"]
    # Works for exceptions whose __str__ raises, too.
    text = str(traceback.TracebackException(type(error), error, None, compact=True))
    return [_cut(f"{type(error).__name__}: {text}" if text else type(error).__name__)]


def _cut(text: object) -> str:
    whole = _storable(text)
    return whole if len(whole) <= _MOST_SAID else f"{whole[:_MOST_SAID]}… ({len(whole):,} characters)"


def _storable(text: object) -> str:
    # File names and program output may contain lone surrogates, which UTF-8 cannot encode.
    return str(text).encode("utf-8", "backslashreplace").decode("utf-8")


class Attempting:
    """An attempt in progress: `last_attempt` of the session."""

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
        """Run the action, record the outcome and return the result.

        Errors of the action are raised after they are recorded.
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
                raise  # interrupted after the completion was recorded or queued
            self._session.state = self._before
            self._fail(error)
            raise
        finally:
            self._saver.close()
            self._writer.notice(self._saver.failures)
        return json.loads(result)

    def milestone(self, *, trigger: str, message: str | None, progress: Progress | None, errors: Sequence[str] | None) -> None:
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
        ended = failed(self._attempt, error, self._conduct, seconds=self._seconds(), now=self._session.store.clock())
        self._session.last_attempt = replace(ended, output=_masked(ended.output))
        self._write(str(ended.ended), errors=[str(_masked(each)) for each in errors(error)])

    def _write(self, status: str, errors: Sequence[str] = (), *, followed: bool = False) -> None:
        label, attempt = f"{self._attempt.phase}-{status}", self._session.last_attempt
        self._writer.write(label, self._session.state, capture=True, followed=followed, trigger=PHASE, attempt=attempt, errors=errors)

    def _seconds(self) -> float:
        return round(time.monotonic() - self._started, 3)


def _masked(text: str | None) -> str | None:
    if not text:
        return text
    from gitckpt.store import secrets

    return secrets.masked(text)


class Performer:
    """Carries out phases: repeats attempts until one completes or no retry is left."""

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
        if self._attempting is None:
            raise UsageError("a milestone belongs to a phase, and none is under way", hint="call it from the work of a phase")
        self._attempting.milestone(trigger=trigger, message=message, progress=progress, errors=errors)
        self._session.check()

    def _recorded(self, name: str, inputs: Mapping[str, str]) -> Any:
        attempt = self._writer.ended(name)
        if attempt is None:
            return None  # recorded as complete by another tool
        differing = differing_inputs(attempt.inputs, inputs, f"phase {name!r}: input")
        if differing and attempt.ended == COMPLETE and not self._accepts:
            raise Changed(self._session.run, differing)
        return None if attempt.result is None else json.loads(attempt.result)

    def _begin(self, coming: NextAttempt, conduct: Conduct) -> None:
        session = self._session
        session.check()
        attempt = coming.attempt
        if not coming.is_first:
            self._writer.flush()
            # Files that changed after an orderly end are the work of a person: keep them.
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
        session = self._session
        count = f"{attempt.recoveries} times without anybody having seen why; the limit is {conduct.max_recoveries}"
        message = f"phase {attempt.phase!r} ended {count}"
        blocked = session.last_attempt = replace(attempt, number=attempt.number - 1, ended=BLOCKED)
        self._writer.write(f"{attempt.phase}-blocked", session.state, capture=True, trigger=PHASE, attempt=blocked, errors=[message])
        raise PhaseBlocked(message, hint=f"see what it did, then: git ckpt resume {session.run} --from {shell_word(attempt.phase)}")

    def _wait(self, last: Attempt | None, conduct: Conduct) -> None:
        # Bound the wait: the clock may have been ahead when `retry_at` was recorded.
        due = times.from_text(last.retry_at) if last is not None and last.retry_at is not None else 0
        self._session.wait(min(due - self._session.store.clock(), conduct.retries.longest_wait) / times.MICRO)
