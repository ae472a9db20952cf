"""Carry out the phases of a run, record each attempt, and retry failed attempts."""

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
from typing import Any, Unpack

from gitckpt.durable.run.writer import CheckpointWriter, log_error
from gitckpt.git.repository import Repository
from gitckpt.model import arguments, runstate, times
from gitckpt.model import phase as phase_labels
from gitckpt.model.arguments import normalize_name, require_number, require_type, shell_quoted
from gitckpt.model.checkpoint import PHASE, Attempt, Checkpoint, Pipeline
from gitckpt.model.errors import CkptError, StateError, UsageError
from gitckpt.model.times import MICRO
from gitckpt.model.values import dataclass, field, replace
from gitckpt.store.checkpoints import Checkpoints
from gitckpt.store.leases.leases import RENEWAL, HeldLease, LeaseLost
from gitckpt.store.runs import trust
from gitckpt.store.runs.summary import PhaseAttempts
from gitckpt.store.snapshot import capture
from gitckpt.store.snapshot.limits import MORE_TIME

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gitckpt.durable.run.opener import ReopenedRun
    from gitckpt.store.records.draft import CheckpointDetails


# Failures of a phase; `status` is that of their checkpoint. Other exceptions are failures, too.


class PhaseFailed(CkptError):
    """Raised if a phase fails, with the exit code and output of the phase's command."""

    exit_code = 20
    status = "failed"

    def __init__(
        self,
        message: str,
        *,
        errors: tuple[str, ...] = (),
        code: int | None = None,
        output: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.errors = errors or (message,)
        self.code = code
        self.output = output


class PhaseBlocked(PhaseFailed):
    """Raised if a phase cannot continue until a person solves a problem."""

    exit_code = 4
    status = "blocked"


class AgentUnusable(PhaseFailed):
    """Raised if an AI agent is not installed, not logged in, or rejects its options."""

    exit_code = 4


class PhaseDeferred(PhaseFailed):
    """Raised if a phase asks to be retried later, for example by exit code 75."""

    status = "partial"


class Cancelled(PhaseFailed):
    """Raised if a person asked the process that drives the run to stop."""

    exit_code = 130


class DeadlineReached(PhaseFailed):
    """Raised if the deadline of the run has passed."""


class Changed(UsageError):
    """Raised if a run's inputs or pipeline changed; `what` describes each change."""

    def __init__(
        self,
        run: str,
        what: list[str],
        *,
        hint: str = "undo the change, or accept it with --accept-changes",
    ) -> None:
        super().__init__(f"run {run} has changed since its start: {'; '.join(what)}", hint=hint)
        self.what = what


# Seconds between two checks whether the run must stop, and whether there is a new commit.
_STOP_POLL, _COMMIT_POLL = 0.5, 2.0


@contextlib.contextmanager
def repeat_in_thread(interval: float, action: Callable[[], bool]) -> Iterator[None]:
    stop_event = threading.Event()

    def repeat_action() -> None:
        while not stop_event.wait(interval) and action():
            pass

    thread = threading.Thread(target=repeat_action, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop_event.set()
        thread.join()


def renew_lease_in_thread(
    hold: HeldLease, repository: Repository
) -> contextlib.AbstractContextManager[None]:
    def renew_lease() -> bool:
        try:
            hold.renew_lease()
        except LeaseLost:
            return False  # the driver notices when it writes
        except CkptError as error:
            log_error(repository, f"cannot renew the lease of {hold.lease.run}: {error.message}")
        return True

    return repeat_in_thread(RENEWAL, renew_lease)


class Autosaver:
    """Records checkpoints while a phase runs: at intervals, and after each git commit."""

    def __init__(self, session: RunSession, phase: str) -> None:
        self._session, self._phase = session, phase
        self._saved = _get_commit_and_tree(session.writer.newest)
        self._store: Checkpoints | None = None
        self._saving = threading.Lock()
        self._has_warned = False
        self.failures: list[str] = []

    def autosave_in_thread(self, interval: float) -> contextlib.AbstractContextManager[None]:
        check_interval, elapsed = min(interval, _COMMIT_POLL), 0.0

        def save_if_due() -> bool:
            nonlocal elapsed
            elapsed += check_interval
            try:
                with self._saving:
                    store = self._open_thread_store()
                    if elapsed >= interval or store.objects.read_head()[0] != self._saved[0]:
                        elapsed = 0.0
                        self._save_changes(store)
            except LeaseLost:
                return False
            except CkptError as error:
                self.failures.append(error.message)
                log_line = f"autosave of run {self._session.id} failed: {error.message}"
                log_error(self._session.store.repository, log_line)
            return True

        return repeat_in_thread(check_interval, save_if_due)

    @contextlib.contextmanager
    def prevent_autosaves(self) -> Iterator[None]:
        with self._saving:
            yield
            self._saved = _get_commit_and_tree(self._session.writer.newest)

    def close_store(self) -> None:
        if self._store is not None:
            self._store.close()

    def _open_thread_store(self) -> Checkpoints:
        # The session's store belongs to the driver's thread.
        if self._store is None:
            source = self._session.store.repository
            repository = Repository(source.git_dir, source.worktree, source.object_format)
            self._store = self._session.store.open_store_for(repository, "plumbing")
        return self._store

    def _save_changes(self, store: Checkpoints) -> None:
        session, commit = self._session, store.objects.read_head()[0]
        run_head = store.heads.read(session.id)
        if run_head.git_sha == commit != self._saved[0]:  # the hook has recorded commit and files
            self._saved = _get_commit_and_tree(run_head)
            return
        snapshot = store.capture_worktree(session.writer.limits, session.files.added)
        if snapshot.degraded and not self._has_warned:
            self._has_warned = True
            store.announce(f"no autosaves of run {session.id}: {snapshot.degraded}; {MORE_TIME}")
        if (commit, snapshot.tree) == self._saved and not snapshot.degraded:
            return
        label = f"{self._phase}-progress"
        record_options: Any = {"run": session.id, "trigger": PHASE, "guard": session.hold}
        checkpoint = store.record(label, worktree=snapshot, **record_options)
        error = capture.repair_snapshot(store.repository, store.objects, checkpoint, store.announce)
        if error is not None:
            store.remove([checkpoint.id])
            raise error
        self._saved = _get_commit_and_tree(checkpoint)


def _get_commit_and_tree(checkpoint: Checkpoint) -> tuple[str, str | None]:
    return checkpoint.git_sha, checkpoint.tree


FAILED, BLOCKED, PARTIAL, COMPLETE = "failed", "blocked", "partial", "complete"


@dataclass(frozen=True, slots=True)
class AttemptPlan:
    attempt: Attempt
    crashed: bool  # the process of the last attempt ended before the result was recorded
    is_first: bool  # the first attempt at the phase


def plan_attempt(
    last: Attempt | None, phase: str, inputs: Mapping[str, str], number: int = 0
) -> AttemptPlan:
    is_same_phase = last is not None and last.phase == phase
    if last is None or not is_same_phase or last.ended == COMPLETE:
        number = last.number if last is not None and is_same_phase else number
        return AttemptPlan(Attempt(phase, number + 1, inputs=inputs), crashed=False, is_first=True)
    has_crashed = last.ended is None
    attempt = Attempt(phase, last.number + 1, began=last.began, inputs=inputs)
    if has_crashed or (last.ended == FAILED and last.retry_at is not None):
        attempt = replace(attempt, failures=last.failures, recoveries=last.recoveries + has_crashed)
    return AttemptPlan(attempt, crashed=has_crashed, is_first=False)


def require_valid_phase_name(name: str) -> None:
    if (
        not isinstance(name, str)
        or not name.strip()
        or not name.isprintable()
        or phase_labels.split_label(name)[1] in phase_labels.STATUSES
        or name in phase_labels.NOT_PHASES
    ):
        hint = "use printable text that does not end in a status such as -failed"
        raise UsageError(f"{name!r} cannot be the name of a phase", hint=hint)


def find_phase(text: str, names: Sequence[str], run: str) -> str:
    # An exact name has precedence over a name with other case or hyphens.
    folded_names = {normalize_name(name): name for name in reversed(names)}
    if text in names or normalize_name(text) in folded_names:
        return text if text in names else folded_names[normalize_name(text)]
    closest_name = arguments.closest_word(normalize_name(text), folded_names)
    hint = f"the phases: {', '.join(names)}" if names else "the run has no phases; omit --from"
    hint = f"did you mean {folded_names[closest_name]}? T{hint[1:]}" if closest_name else hint
    raise UsageError(f"run {run} has no phase {text!r}", hint=hint)


def digest_inputs(values: Mapping[str, Any]) -> dict[str, str]:
    texts = {name: to_json(value, f"/{name}") for name, value in values.items()}
    return {name: hashlib.sha256(text.encode()).hexdigest()[:16] for name, text in texts.items()}


def to_json(value: Any, path: str = "") -> str:
    try:
        _require_json(value, path)
    except RecursionError:
        raise StateError(path, "nested too deeply") from None
    try:
        return json.dumps(value, sort_keys=path != "")
    except ValueError as error:
        problem = f"an integer is too long to be read again: {error}"
        raise StateError(path, problem, hint="return the integer as a string") from None


def _require_json(value: Any, path: str) -> None:
    if type(value) is dict:
        for key, inner_value in value.items():
            if type(key) is not str:
                raise StateError(f"{path}/{key}", f"a key must be a string, not {key!r:.60}")
            _require_json(inner_value, f"{path}/{key}")
    elif type(value) is list:
        for position, inner_value in enumerate(value):
            _require_json(inner_value, f"{path}/{position}")
    elif value is not None and type(value) not in (str, int, float, bool):
        type_name = type(value).__name__
        raise StateError(path, f"{type_name} is not a JSON value: {value!r:.60}")


def describe_input_changes(old: Mapping[str, str], new: Mapping[str, str], kind: str) -> list[str]:
    sentences = []
    for name in {**old, **new}:
        if old.get(name) != new.get(name):
            change = "is gone" if name not in new else "has changed" if name in old else "is new"
            sentences.append(f"{kind} {name!r} {change}")
    return sentences


KEEP, RESET = "keep", "reset"
# What another attempt does first: keep the files, or reset them to the start of the phase.
ON_RESUME = (KEEP, RESET)

# Maximum wait, in microseconds: the year of a retry must have four digits.
_MAX_WAIT = 100 * 365 * 86_400 * MICRO

# Limits of an error or output in characters, and of the number of errors: beyond them, the
# checkpoint of a failure could be too large to write.
_MAX_TEXT, _MAX_ERRORS = 20_000, 100

AUTOSAVE = 300 * MICRO  # default interval
MAX_RECOVERIES = 3


@dataclass(frozen=True, slots=True)
class Retries:
    """Settings for retrying a failed phase. Durations are in microseconds."""

    attempts: int = 0  # after the first
    delay: int = MICRO  # before the first retry
    backoff: float = 2.0  # factor between successive waits
    max_delay: int = 3600 * MICRO
    jitter: float = 0.1  # share by which waits vary, so that runs do not retry together
    on: tuple[int, ...] = ()  # exit codes that are retried; empty: all

    def __post_init__(self) -> None:
        for name in ("attempts", "delay", "max_delay"):
            require_number(name, getattr(self, name))
        # Check now, as in `PhaseOptions`: a later error would hide the failure of the phase.
        for name, maximum in (("backoff", math.inf), ("jitter", 1)):
            value = getattr(self, name)
            if not isinstance(value, int | float) or not 0 <= value <= maximum:
                expected_text = "a number from 0 " + ("on" if maximum > 1 else "to 1")
                raise arguments.wrong_value_error(name, value, expected_text)
        object.__setattr__(self, "on", arguments.as_tuple("on", self.on, int, "an exit code"))

    @property
    def longest_wait(self) -> int:
        return round(min(self.max_delay, _MAX_WAIT) * (1 + self.jitter))

    def wait_before(self, attempt: int, random: float) -> int:
        """Return the microseconds to wait before an attempt; `random` (0 to 1) is jitter."""
        if attempt < 2 or not self.delay:
            return 0
        longest_wait = min(self.max_delay, _MAX_WAIT)
        try:
            wait = min(self.delay * self.backoff ** (attempt - 2), longest_wait)
        except OverflowError:
            wait = longest_wait
        return round(wait * (1 + self.jitter * (2 * random - 1)))

    def retries(self, code: int | None) -> bool:
        # A timeout, for example, has no code.
        return self.attempts > 0 and (not self.on or code in self.on)


@dataclass(frozen=True, slots=True)
class PhaseResult:
    result: Any = None  # a JSON value
    code: int | None = None  # of the command; None without one
    output: str | None = None  # the end of the command's output


@dataclass(frozen=True, slots=True)
class PhaseOptions:
    """Options for carrying out a phase. Durations are in microseconds."""

    retries: Retries = field(default_factory=Retries)
    retry_on: tuple[type[Exception], ...] = (Exception,)
    autosave: int = AUTOSAVE  # interval; 0 disables autosaves
    max_recoveries: int = MAX_RECOVERIES  # more crashes than this block the run
    on_resume: str = KEEP  # `keep` or `reset` the files before another attempt

    def __post_init__(self) -> None:
        # Check now: after a failed phase, an error here would prevent the record of the failure.
        require_type("retries", self.retries, Retries, "a Retries")
        for error_type in self.retry_on if isinstance(self.retry_on, tuple) else (self.retry_on,):
            if not (isinstance(error_type, type) and issubclass(error_type, BaseException)):
                expected = "a tuple of exceptions"
                raise arguments.wrong_value_error("retry_on", self.retry_on, expected)
        require_number("autosave", self.autosave)
        require_number("max_recoveries", self.max_recoveries)
        if self.on_resume not in ON_RESUME:
            expected = " or ".join(map(repr, ON_RESUME))
            raise arguments.wrong_value_error("on_resume", self.on_resume, expected)


USUAL = PhaseOptions()


def make_failed_attempt(
    attempt: Attempt, error: BaseException, conduct: PhaseOptions, now: int
) -> Attempt:
    failure = error if isinstance(error, PhaseFailed) else PhaseFailed("")
    exit_code, output, status = failure.code, failure.output, failure.status
    if not isinstance(exit_code, int) or exit_code.bit_length() >= 64:
        exit_code = None
    failures, retries, retry_at = attempt.failures + 1, conduct.retries, None
    is_final_error = isinstance(error, PhaseBlocked | Cancelled | DeadlineReached | StateError)
    may_retry = retries.retries(exit_code) or isinstance(error, PhaseDeferred)
    may_retry = may_retry and isinstance(error, conduct.retry_on) and not is_final_error
    if may_retry and failures <= retries.attempts:
        jitter = int.from_bytes(os.urandom(4)) / 2**32
        status, retry_at = FAILED, times.to_text(now + retries.wait_before(failures + 1, jitter))
    if output is not None:
        output = _mask_secrets(_escape_surrogates(output)[-_MAX_TEXT:])
    attempt = replace(attempt, ended=status, failures=failures, retry_at=retry_at)
    return replace(attempt, exit_code=exit_code, output=output)


def describe_error(error: BaseException) -> list[str]:
    if isinstance(error, PhaseFailed):
        lines = [_shorten(line) for line in error.errors[:_MAX_ERRORS]]
        omitted_count = len(error.errors) - len(lines)
        lines += [f"and {omitted_count:,} more"] if omitted_count else []
    elif isinstance(error, KeyboardInterrupt):
        lines = ["interrupted"]
    else:
        # Works for exceptions whose __str__ raises, too.
        text = str(traceback.TracebackException(type(error), error, None, compact=True))
        lines = [_shorten(f"{type(error).__name__}: {text}" if text else type(error).__name__)]
    return [str(_mask_secrets(line)) for line in lines]


def _shorten(text: object) -> str:
    full_text = _escape_surrogates(text)
    cut_text = f"{full_text[:_MAX_TEXT]}… ({len(full_text):,} characters)"
    return full_text if len(full_text) <= _MAX_TEXT else cut_text


def _escape_surrogates(text: object) -> str:
    # File names and program output may contain lone surrogates, which UTF-8 cannot encode.
    return str(text).encode("utf-8", "backslashreplace").decode("utf-8")


def _mask_secrets(text: str | None) -> str | None:
    if not text:
        return text
    from gitckpt.store import secrets

    return secrets.mask_text(text)


class CurrentAttempt:
    def __init__(self, session: RunSession, conduct: PhaseOptions, *, followed: bool) -> None:
        assert session.last_attempt is not None
        self._session, self._attempt = session, session.last_attempt
        self._conduct, self._followed = conduct, followed
        self._state_before = copy.deepcopy(session.state)
        self._started = time.monotonic()
        self._saver = Autosaver(session, self._attempt.phase)

    def perform_and_record(self, action: Callable[[Attempt], PhaseResult]) -> Any:
        session, phase = self._session, self._attempt.phase
        try:
            interval = self._conduct.autosave / MICRO
            with self._saver.autosave_in_thread(interval) if interval else contextlib.nullcontext():
                outcome = action(self._attempt)
            result = to_json(outcome.result, f"/{phase}")
            output = _mask_secrets(outcome.output)
            attempt = replace(self._attempt, exit_code=outcome.code, output=output, ended=COMPLETE)
            attempt = replace(attempt, result=_mask_secrets(result))
            self._record_attempt_end(attempt, followed=self._followed)
        except LeaseLost:
            raise
        except BaseException as error:
            if session.writer.is_phase_complete(phase):
                raise  # interrupted after the completion was recorded or queued
            session.state = self._state_before
            self._record_failure(error)
            raise
        finally:
            self._saver.close_store()
            session.writer.log_failures(self._saver.failures)
        return json.loads(result)

    def record_milestone(self, **details: Unpack[CheckpointDetails]) -> None:
        session = self._session
        attempt = replace(self._attempt, began=session.store.new_id(), recoveries=0)
        with self._saver.prevent_autosaves():
            details |= {"id": str(attempt.began), "attempt": attempt}
            label = f"{attempt.phase}-progress"
            session.writer.write_checkpoint(label, session.state, capture=True, **details)
        if not session.writer.unwritten:
            self._attempt = session.last_attempt = attempt
            self._state_before = copy.deepcopy(session.state)

    def _record_failure(self, error: BaseException) -> None:
        now = self._session.store.clock()
        attempt = make_failed_attempt(self._attempt, error, self._conduct, now)
        self._record_attempt_end(attempt, errors=describe_error(error))

    def _record_attempt_end(
        self, attempt: Attempt, *, errors: Sequence[str] = (), followed: bool = False
    ) -> None:
        session, seconds = self._session, round(time.monotonic() - self._started, 3)
        session.last_attempt = attempt = replace(attempt, seconds=seconds)
        session.record_attempt(str(attempt.ended), capture=True, followed=followed, errors=errors)


class RunSession:
    """A run that this process drives: its lease, worktree, state and attempts."""

    def __init__(self, opening: ReopenedRun, sleep: Callable[[float], None] = time.sleep) -> None:
        self._opening, self._sleep = opening, sleep
        self.id, self.path, self.store = opening.run, opening.path, opening.store
        self.hold, self.files, newest = opening.hold, opening.files, opening.newest
        created_at = time.time() if opening.is_new else None
        self.attempts = PhaseAttempts(opening.store, self.id, is_new=(newest.sequence or 0) <= 1)
        self.writer = CheckpointWriter(
            self.store, self.id, self.hold, self.files, newest, made_at=created_at
        )
        self.state: dict[str, Any] = dict(newest.state)  # a phase may change it
        self.last_attempt: Attempt | None = newest.attempt
        self._current: CurrentAttempt | None = None
        self._renewer = contextlib.ExitStack()
        self._renewer.enter_context(renew_lease_in_thread(self.hold, self.store.repository))
        if (
            runstate.interrupted_rewind_target(newest) is not None
        ):  # the last driver was killed in a rewind
            self.writer.go_back_to_checkpoint(newest)

    @property
    def pipeline(self) -> Pipeline:
        return self.writer.pipeline

    def close_and_release_lease(self) -> None:
        self._renewer.close()
        try:
            self.writer.write_pending()
            self.store.close()  # writes pending notes, so the lease must still be held
            self.hold.release_lease()
        except LeaseLost:
            return  # another driver has taken over
        except CkptError as error:
            # The lease ends with this process anyway.
            self.writer.log_failures([f"cannot release the lease: {error.message}"])
        finally:
            self._opening.close_stores()

    def check(self) -> None:
        self.hold.require_lease_held()
        if self.hold.lease.cancelled:
            hint = f"to continue: git ckpt resume {self.id}"
            raise Cancelled(f"run {self.id} was cancelled", hint=hint)
        seconds = self.seconds_to_deadline()
        if seconds is not None and seconds <= 0:
            raise DeadlineReached(f"run {self.id} reached its deadline, {self.pipeline.deadline}")

    def wait(self, seconds: float) -> None:
        require_type("seconds", seconds, (int, float), "a number of seconds")
        end_time = self.store.clock() + seconds * MICRO
        # Use the store's clock: other clocks stop while the machine sleeps. Limit the wait by
        # `seconds`, as that clock may be set back.
        while (remaining_seconds := min((end_time - self.store.clock()) / MICRO, seconds)) > 0:
            self.check()
            pause_seconds = min(remaining_seconds, _STOP_POLL)
            self._sleep(pause_seconds)
            seconds -= pause_seconds

    def seconds_to_deadline(self) -> float | None:
        deadline = self.pipeline.deadline
        if deadline is None:
            return None
        return (times.parse_timestamp(deadline) - self.store.clock()) / MICRO

    def has_changed_files(self, attempt: Attempt) -> bool:
        return self.attempts.have_files_changed_since(attempt.began or self.writer.newest.id)

    def record_attempt(
        self, status: str, *, capture: bool = False, followed: bool = False, **details: Any
    ) -> None:
        attempt = self.last_attempt
        label = f"{attempt.phase}-{status}" if attempt is not None else status
        details = {"trigger": PHASE, "attempt": attempt, **details}
        self.writer.write_checkpoint(
            label, self.state, capture=capture, followed=followed, **details
        )

    def perform_phase(
        self,
        name: str,
        action: Callable[[Attempt], PhaseResult],
        *,
        inputs: Mapping[str, str],
        conduct: PhaseOptions,
        followed: bool = False,
    ) -> Any:
        """Carry out a phase as `Run.phase` does, but pass the current attempt to `action`.

        `inputs` maps names of inputs to digests of their values. With `followed`, the completion
        of the phase is not recorded at once, but together with the start of the next phase.
        """
        require_valid_phase_name(name)
        if name in self.writer.completed:
            return self._read_phase_result(name, inputs)
        plan = plan_attempt(self.last_attempt, name, inputs, self.attempts.attempts_at(name))
        if plan.crashed and plan.attempt.recoveries > conduct.max_recoveries:
            self._block_phase(plan.attempt, conduct)
        while True:
            self._wait_for_retry(conduct)
            self._begin_attempt(plan, conduct)
            self._current = CurrentAttempt(self, conduct, followed=followed)
            try:
                return self._current.perform_and_record(action)
            except conduct.retry_on as error:
                last_attempt = self.last_attempt
                ends_run = isinstance(error, LeaseLost | Cancelled | PhaseBlocked | DeadlineReached)
                if ends_run or last_attempt is None or last_attempt.retry_at is None:
                    raise
            finally:
                self._current = None
            plan = plan_attempt(self.last_attempt, name, inputs)

    def milestone(self, **details: Unpack[CheckpointDetails]) -> None:
        if self._current is None:
            message = "a milestone belongs to a phase, and no phase is in progress"
            raise UsageError(message, hint="call milestone() in the function of a phase")
        details.setdefault("trigger", PHASE)
        self._current.record_milestone(**details)
        self.check()

    def _read_phase_result(self, name: str, inputs: Mapping[str, str]) -> Any:
        attempt = self.writer.find_completing_attempt(name)
        if attempt is None:
            return None  # recorded as complete by another tool
        input_changes = describe_input_changes(attempt.inputs, inputs, f"phase {name!r}: input")
        if input_changes and attempt.ended == COMPLETE and not self._opening.accepts_changes:
            raise Changed(self.id, input_changes)
        return None if attempt.result is None else json.loads(attempt.result)

    def _begin_attempt(self, plan: AttemptPlan, conduct: PhaseOptions) -> None:
        self.check()
        attempt = plan.attempt
        if not plan.is_first:
            self.writer.write_pending()
            # Files that changed after an orderly end are the work of a person: keep them.
            keeps_files = conduct.on_resume == KEEP
            if not keeps_files and not plan.crashed:
                keeps_files = self.attempts.has_work_since(attempt.phase, self.writer.newest.id)
            began = attempt.began or self.attempts.find_newest_start(attempt.phase)
            attempt = replace(attempt, began=began)
            self.writer.remove_stale_locks()
            if not keeps_files and attempt.began is not None:
                self.writer.go_back_to_checkpoint(trust.read(self.store, self.id, attempt.began))
        self.last_attempt = attempt
        self.attempts.count_attempt(attempt)
        self.record_attempt("started")

    def _block_phase(self, attempt: Attempt, conduct: PhaseOptions) -> None:
        phase, limit = attempt.phase, f"the limit is {conduct.max_recoveries}"
        message = f"phase {phase!r} crashed {attempt.recoveries} times for unknown reasons; {limit}"
        self.last_attempt = replace(attempt, number=attempt.number - 1, ended=BLOCKED)
        self.record_attempt("blocked", capture=True, errors=[message])
        redo_command = f"git ckpt resume {self.id} --from {shell_quoted(phase)}"
        raise PhaseBlocked(message, hint=f"find the cause, then: {redo_command}")

    def _wait_for_retry(self, conduct: PhaseOptions) -> None:
        last_attempt = self.last_attempt
        if last_attempt is not None and last_attempt.retry_at is not None:
            # Limit the wait: the clock may have been ahead when `retry_at` was recorded.
            wait_microseconds = times.parse_timestamp(last_attempt.retry_at) - self.store.clock()
            self.wait(min(wait_microseconds, conduct.retries.longest_wait) / MICRO)
