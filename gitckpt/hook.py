"""Record a checkpoint when git calls a hook; failures are only reported.

The hook runs without `site` and without third-party packages, with one git process. `benchmarks/`
measures every import here, and a test checks the module list. Rarely needed imports are local.
"""

from __future__ import annotations

import os
import sys

from gitckpt.git.process import git_environment, start_detached
from gitckpt.model.errors import CkptError, UsageError, WorktreeError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, NoReturn

    from gitckpt.git.repository import Repository

MAINTAIN, PACK, RESCUE, KEEP_UP, AGENT = "maintain", "pack", "rescue", "keep-up", "agent"
DAY, HOUR = 86400, 3600
_PHASE, _WITHOUT_FILES = "commit-complete", "commit-partial"
_ALONE = "this checkpoint belongs to no run"
_NO_FILES = "the checkpoint has no uncommitted files"
_BOOTSTRAP = "import sys; sys.path.insert(0, sys.argv.pop(1)); "
_BOOTSTRAP += "from gitckpt.hook import run; run(sys.argv[1:])"


def run(argv: Sequence[str]) -> NoReturn:
    if argv and argv[0] in _RECORDING_EVENTS:
        import gc

        gc.disable()  # garbage collection takes 5 % of a hook's time, and frees nothing
    exit_code = main(argv)
    sys.stderr.flush()
    os._exit(exit_code)


def main(argv: Sequence[str]) -> int:
    """Handle a hook event; return 0 even after an error, so that git goes on."""
    event, argument = [*argv, "", ""][:2]
    if event == AGENT:
        from gitckpt.agents import client_hook

        client_hook.run(argument, _maintain_at)
        return 0
    if os.environ.get("GITCKPT_SKIP", "0") not in ("", "0"):
        return 0
    repository = None
    failure = _FAILURES.get(event, "no checkpoint was recorded")
    try:
        if event not in _KNOWN:
            from gitckpt.store.hooks.files import EVENTS

            hint = f"the events are {', '.join(EVENTS)}"
            raise CkptError(f"unknown hook event: {event!r}", hint=hint)
        repository = _find_repository()
        if event in _BACKGROUND:
            from gitckpt.store.retention import maintenance

            tasks = {
                MAINTAIN: maintenance.run_maintenance,
                PACK: maintenance.pack_repository,
                RESCUE: maintenance.rescue_worktrees,
            }
            maintenance.run_in_background(repository, tasks[event])
        elif event == _GC:
            _start_maintenance(repository)
        elif event == KEEP_UP:
            _maintain_after_event(repository, "")
        else:
            is_recorded = _records_checkpoint(repository, event, argument)
            if event == "post-rewrite":
                from gitckpt.store import notes

                failure = failure if is_recorded else "links to checkpoints were not copied"
                notes.copy_links_to_rewritten(
                    repository, argument
                )  # before the record: git has copied the notes
            if is_recorded:
                revision = argument if event == "post-commit" and argument else "HEAD"
                checkpoint_id = _record_commit(repository, event, revision)
                failure = "the checkpoint is recorded, but maintenance was not started"
                _maintain_after_event(repository, checkpoint_id)
    except CkptError as error:
        advice = f"; {error.hint}" if error.hint else ""
        _report_failure(repository, event, f"{failure}: {error.message}{advice}")
    except KeyboardInterrupt:
        _report_failure(repository, event, f"{failure}: interrupted")
    except Exception as error:  # noqa: BLE001 - a hook never breaks a commit
        _report_failure(repository, event, f"{failure}: {type(error).__name__}: {error}", error)
    return 0


def _maintain_at(directory: str) -> None:
    from gitckpt.git.repository import open_repository

    maintain_if_due(open_repository(directory, by_variables=False), lambda: None)


def _maintain_after_event(repository: Repository, checkpoint_id: str) -> None:
    if _is_maintenance_due(repository):
        # The next command may be a gc, which deletes what no ref reaches in a shallow clone.
        if os.path.exists(os.path.join(repository.common_dir, "shallow")):
            from gitckpt.store.retention import maintenance

            maintenance.update_keep_refs(repository)
        _start_maintenance(repository)
    elif checkpoint_id.startswith("00"):  # once in 256 commits: the check itself takes time
        _start_background_task(repository, PACK)
    else:
        _start_due_rescue(repository)


def _records_checkpoint(repository: Repository, event: str, argument: str) -> bool:
    operation_name = repository.operation_in_progress()
    if event in ("post-commit", "post-merge"):
        is_squash = event == "post-merge" and argument == "1"  # a squash makes no commit
        # A rebase, `am` or bisect records nothing until its end.
        return not is_squash and operation_name not in ("rebase", "am", "bisect")
    is_am = event == "post-applypatch" and operation_name == "am"
    is_rebase = event == "post-rewrite" and argument == "rebase"
    if not is_am and not is_rebase:
        return False
    from gitckpt.git.worktree import operation

    # git calls post-rewrite for a rebase with `--exec` even if nothing was rewritten.
    return (
        operation.is_at_last_patch(repository)
        if is_am
        else operation.has_rebase_moved_head(repository)
    )


# The events that may record a checkpoint.
_RECORDING_EVENTS = ("post-commit", "post-merge", "post-applypatch", "post-rewrite")
_GC = "pre-auto-gc"
_BACKGROUND = (MAINTAIN, PACK, RESCUE)
_KNOWN = (*_RECORDING_EVENTS, _GC, *_BACKGROUND, KEEP_UP)
_FAILURES = {
    KEEP_UP: "maintenance was not started",
    MAINTAIN: "maintenance failed",
    PACK: "refs were not packed",
    RESCUE: "linked worktrees were not captured",
    _GC: "maintenance was not started",
}


def _find_repository() -> Repository:
    from gitckpt.git.repository import Repository, discover_repository

    git_dir = os.environ.get("GIT_DIR", "")
    if not git_dir and not _is_owned_by_user(".git"):
        return discover_repository()  # git applies `safe.directory` (git-config(1))
    git_dir = git_dir or ".git"
    if os.path.isfile(git_dir):
        git_dir = _read_git_file(git_dir)
    elif os.path.islink(git_dir):  # a link that git-annex makes in linked worktrees
        git_dir = os.path.realpath(git_dir)
    if os.path.isfile(os.path.join(git_dir, "HEAD")):
        return Repository(os.path.abspath(git_dir), None)
    return discover_repository()


def _is_owned_by_user(dot_git: str) -> bool:
    """Return whether the user owns the worktree, its `.git` and its git directory."""
    target = _read_git_file(dot_git) if os.path.isfile(dot_git) else os.path.realpath(dot_git)
    try:
        owners = {os.lstat(path).st_uid for path in (os.curdir, dot_git, target)}
    except OSError:
        return False
    return owners == {os.geteuid()}


def _read_git_file(dot_git: str) -> str:
    with open(dot_git, "rb") as file:
        return os.fsdecode(file.read().removesuffix(b"\n").removeprefix(b"gitdir: "))


def _find_branch(repository: Repository, event: str) -> str | None:
    head_ref = repository.head_ref()
    if not head_ref and event == "post-rewrite":
        from gitckpt.git.worktree import operation

        head_ref = operation.read_apply_rebase_branch(repository)
    return head_ref.removeprefix("refs/heads/") if head_ref.startswith("refs/heads/") else None


def _record_commit(repository: Repository, event: str, revision: str) -> str:
    from gitckpt.git.objects.plumbing import PlumbingObjects
    from gitckpt.git.refs import Refs

    objects = PlumbingObjects(repository)

    def clear_stale_lock(path: str) -> bool:
        from gitckpt.store.records import heads

        return heads.clear_stale_locks(
            repository, lambda sentence: _report_failure(repository, event, sentence), path
        )

    refs = Refs(repository, clear_stale_lock)
    if not repository.is_linked:  # else the store of a run may start another one
        refs.start_idle_process()  # the process starts in the background
    from gitckpt.model import document, ids, times
    from gitckpt.store.records import ref_names
    from gitckpt.store.records.recorder import CheckpointRecorder, Proposal

    commit_object = next(repository.cat_file.read_contents([revision]))
    if commit_object is None:
        raise CkptError(f"{revision} names no commit")
    commit, _, commit_text = commit_object
    repository.object_format = "sha256" if len(commit) == 64 else "sha1"
    has_owner = os.path.exists(os.path.join(repository.git_dir, ref_names.RUN_FILE))
    trigger = event if event == "post-merge" else "post-commit"
    message = document.shorten_message(_parse_subject(commit_text)) or None
    details = {"trigger": trigger, "message": message}
    if has_owner and (run_checkpoint_id := _extend_run(repository, details, event)) is not None:
        return run_checkpoint_id
    if repository.is_linked:
        refs.start_idle_process()
    is_commit = event == "post-commit"
    checkpoint_id = ids.id_from_commit(commit) if is_commit else ids.make_checkpoint_id()
    ref = ref_names.CHECKPOINTS + checkpoint_id
    if is_commit and repository.cat_file.info(ref) is not None:
        return checkpoint_id  # another hook recorded this commit
    fields: dict[str, Any] = {
        "version": document.VERSION,
        "id": checkpoint_id,
        "phase": _PHASE,
        "timestamp": times.to_text(times.now()),
        "git_sha": commit,
        "branch": _find_branch(repository, event),
        **details,
        "errors": [],
    }
    try:
        CheckpointRecorder(repository, objects, refs).record_proposals(Proposal(fields, None))
    except UsageError:
        if repository.cat_file.info(ref) is None:
            raise
    return checkpoint_id


def _extend_run(repository: Repository, details: dict[str, Any], event: str) -> str | None:
    import gc

    from gitckpt.git.repository import Repository
    from gitckpt.store.checkpoints import Checkpoints
    from gitckpt.store.config import settings
    from gitckpt.store.leases.leases import LeaseLost
    from gitckpt.store.records import ref_names
    from gitckpt.store.snapshot.limits import MORE_TIME
    from gitckpt.store.worktrees import ownership

    gc.enable()  # a scan of all files may create much garbage
    owner = ownership.owner_of(repository)
    if owner is None or owner.run is None:
        return None
    if repository.cat_file.info(ref_names.RUNS + owner.run) is None:
        _report_failure(repository, event, f"{_ALONE}: the run {owner.run} is gone")
        return None
    worktree = Repository(repository.git_dir, os.getcwd(), repository.object_format)
    with Checkpoints(worktree, adapter="plumbing") as store:
        config = settings.read_settings(worktree)
        for problem in filter(None, (config.problem, config.loosening_notice)):
            _report_failure(repository, event, problem)
        run_options: dict[str, Any] = {
            "run": owner.run,
            "guard": store.leases.bind_writes_to_token(owner.run),
        }
        options = details | {"limits": config.limits.automatic(), "without_files": _WITHOUT_FILES}
        try:
            checkpoint = store.save(_PHASE, **run_options, **options)
        except WorktreeError as error:
            _report_failure(repository, event, f"{_NO_FILES}: {error.message}")
            return store.record(_PHASE, **run_options, **details).id
        except LeaseLost as error:
            _report_failure(repository, event, f"{_ALONE}: {error.message}")
            checkpoint = store.save(_PHASE, **options)
        if checkpoint.worktree is not None and checkpoint.worktree.degraded:
            advice = f"record them now: git ckpt save; {MORE_TIME}"
            problem = f"{_NO_FILES}: {checkpoint.worktree.degraded}; {advice}"
            _report_failure(repository, event, problem)
        return checkpoint.id


def _parse_subject(commit: bytes) -> str:
    header, _, body = commit.partition(b"\n\n")
    lines = [line for line in header.split(b"\n") if line.startswith(b"encoding ")]
    encoding = lines[-1].removeprefix(b"encoding ").decode("ascii", "replace") if lines else "utf-8"
    try:
        text = body.decode(encoding, "replace")
    except LookupError:
        text = body.decode("utf-8", "replace")
    subject = text.lstrip("\n").partition("\n\n")[0].rstrip("\n")
    return " ".join(line.rstrip() for line in subject.split("\n"))


def maintain_if_due(repository: Repository, settle: Callable[[], None]) -> None:
    from gitckpt.store.records import ref_names

    try:
        if not os.path.exists(os.path.join(repository.private_dir, ref_names.MAINTAINED)):
            from gitckpt.store.retention import maintenance  # once per repository

            maintenance.record_never_maintained(repository)
        elif _is_maintenance_due(repository):
            if repository.read_shallow_and_grafts():
                settle()
            _start_maintenance(repository)
        else:
            _start_due_rescue(repository)
    except (CkptError, OSError) as error:
        _report_failure(repository, _GC, f"{_FAILURES[_GC]}: {error}")


def _is_maintenance_due(repository: Repository) -> bool:
    import time

    from gitckpt.store.records import ref_names

    # Also due if the clock went back, or if `git fetch --depth` cut history since: refs no longer
    # keep the commits below the cut alive.
    now = time.time()
    try:
        last_start = os.stat(os.path.join(repository.private_dir, ref_names.MAINTAINED)).st_mtime
    except FileNotFoundError:
        return True
    if not 0 <= now - last_start <= DAY:
        return True
    paths = [os.path.join(repository.common_dir, name) for name in ("shallow", "info/grafts")]
    change_times = (os.stat(path).st_mtime for path in paths if os.path.isfile(path))
    return any(last_start <= change_time <= now for change_time in change_times)


def _start_maintenance(repository: Repository) -> None:
    from gitckpt.git.files import private_dirs
    from gitckpt.store.records import ref_names

    path = os.path.join(repository.make_private_dir(), ref_names.MAINTAINED)
    with open(path, "wb", opener=private_dirs.open_private_file):
        pass
    os.utime(path)  # on some file systems, truncating an empty file does not change its time
    _start_background_task(repository, MAINTAIN)


def _start_due_rescue(repository: Repository) -> None:
    """Capture all linked worktrees in the background, once an hour if there are any."""
    if not os.path.isdir(os.path.join(repository.common_dir, "worktrees")):
        return
    import time

    from gitckpt.git.files import private_dirs
    from gitckpt.model import times
    from gitckpt.store.records import ref_names

    path = os.path.join(repository.make_private_dir(), ref_names.RESCUED)
    try:
        if 0 <= time.time() - os.stat(path).st_mtime < HOUR:
            return
        is_first = False
    except FileNotFoundError:
        is_first = True  # the hour begins now
    with open(path, "w", encoding="ascii", opener=private_dirs.open_private_file) as file:
        file.write(f"{times.to_text(times.now())}\n")
    if not is_first:
        _start_background_task(repository, RESCUE)


def _start_background_task(repository: Repository, task: str) -> None:
    package_dir = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    env = git_environment({"GIT_DIR": repository.git_dir})
    start_detached([sys.executable, "-I", "-S", "-c", _BOOTSTRAP, package_dir, task], env)


def _report_failure(
    repository: Repository | None, event: str, sentence: str, bug: Exception | None = None
) -> None:
    if event not in _BACKGROUND:
        _print_error(f"gitckpt: {event}: {sentence}")
    if repository is not None:
        try:
            from gitckpt.store import error_log  # the import fails if no descriptor is left

            if bug is not None:
                sentence = f"{sentence.partition(': ')[0]}\n{error_log.format_traceback(bug)}"
            name = event if event in _KNOWN else "an unknown event"
            error_log.append_to_log(repository, f"{name}: {sentence}")
        except (CkptError, OSError, ImportError) as error:
            _print_error(f"gitckpt: {event}: cannot write that to the log: {error}")


def _print_error(line: str) -> None:
    sys.stderr.write("".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in line) + "\n")
