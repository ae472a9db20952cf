"""Entry point of the hooks: never fails a commit, never hides a failure.

It runs without `site` and without third-party packages, with one git process. `benchmarks/`
measures every import here, and a test checks the module list. Imports for few calls are local.
"""

from __future__ import annotations

import os
import sys

from gitckpt.git.process import detach, environment
from gitckpt.model.errors import CkptError, UsageError, WorktreeError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, NoReturn

    from gitckpt.git.repository import Repository

MAINTAIN, PACK, KEEP_UP = "maintain", "pack", "keep-up"
DAY = 86400
_PHASE, _WITHOUT_FILES = "commit-complete", "commit-partial"
_DEFERRING = ("rebase", "am", "bisect")
_BOOTSTRAP = "import sys; sys.path.insert(0, sys.argv.pop(1)); from gitckpt.hook import run; run(sys.argv[1:])"


def run(argv: Sequence[str]) -> NoReturn:
    """Run `main`, then exit without Python's clean-up."""
    if argv and argv[0] in _ENDS:
        import gc

        gc.disable()  # it takes 5 % of the time here, and frees nothing
    code = main(argv)
    sys.stderr.flush()
    os._exit(code)


def main(argv: Sequence[str]) -> int:
    """Handle one event.

    An error is one line on standard error and an entry in the log.

    Args:
        argv: the event, then the arguments that git passed to the hook.

    Returns:
        Always 0: a failure here is no reason to fail the user's git command.
    """
    if os.environ.get("GITCKPT_SKIP", "0") not in ("", "0"):
        return 0
    event = argv[0] if argv else ""
    repository = None
    failed = _FAILURES.get(event, "no checkpoint was recorded")
    try:
        if event not in _KNOWN:
            from gitckpt.store.hooks.files import EVENTS

            raise CkptError(f"no such event: {event!r}", hint=f"the events are {', '.join(EVENTS)}")
        repository = _here()
        if event in (MAINTAIN, PACK):
            from gitckpt.store.retention import maintenance

            maintenance.work(repository, only_pack=event == PACK)
        elif event == _GC:
            _start_maintenance(repository)
        elif event == KEEP_UP:
            _follow_up(repository, "")
        elif _is_due(repository, event, argv[1:]):
            if event == "post-rewrite":
                _carry_links(repository, argv[1:])  # before the record: git has copied the notes
            checkpoint_id = _record(repository, event, *argv[1:2] if event == "post-commit" else ())
            failed = "the checkpoint is recorded; what follows it was not done"
            _follow_up(repository, checkpoint_id)
        elif event == "post-rewrite":
            failed = "links were not carried over"
            _carry_links(repository, argv[1:])
    except CkptError as error:
        advice = f"; {error.hint}" if error.hint else ""
        _report(repository, event, f"{failed}: {error.message}{advice}")
    except KeyboardInterrupt:
        _report(repository, event, f"{failed}: interrupted")
    except Exception as error:  # noqa: BLE001 - a hook never breaks a commit
        _report(repository, event, f"{failed}: {type(error).__name__}: {error}", error)
    return 0


def _follow_up(repository: Repository, checkpoint_id: str) -> None:
    if _wants_maintenance(repository):
        # The next command may be a gc, which would delete what a shallow clone keeps by no ref.
        if os.path.exists(os.path.join(repository.common_dir, "shallow")):
            from gitckpt.store.retention import maintenance

            maintenance.settle(repository)
        _start_maintenance(repository)
    elif checkpoint_id.startswith("00"):  # one in 256: the check itself takes time
        _detach(repository, PACK)


def _is_due(repository: Repository, event: str, args: Sequence[str]) -> bool:
    # Inside a rebase, `am` or bisect, nothing is recorded until its end.
    return _ENDS[event](repository, repository.operation(), args[0] if args else "")


def _is_commit(_: Repository, under_way: str | None, __: str) -> bool:
    return under_way not in _DEFERRING


def _is_merge(_: Repository, under_way: str | None, is_squash: str) -> bool:
    return is_squash != "1" and under_way not in _DEFERRING  # a squash makes no commit


def _is_rebase(repository: Repository, __: str | None, command: str) -> bool:
    if command != "rebase":
        return False
    from gitckpt.git.worktree import operation

    # git calls post-rewrite for a rebase with `--exec` even if nothing was rewritten.
    return operation.has_moved(repository)


def _is_last_patch(repository: Repository, under_way: str | None, _: str) -> bool:
    if under_way != "am":
        return False
    from gitckpt.git.worktree import operation

    return operation.is_last_patch(repository)


# Event -> whether it records a checkpoint, by the operation in progress and git's first argument.
_ENDS = {"post-commit": _is_commit, "post-merge": _is_merge, "post-applypatch": _is_last_patch, "post-rewrite": _is_rebase}
_GC = "pre-auto-gc"
_KNOWN = (*_ENDS, _GC, MAINTAIN, PACK, KEEP_UP)
_FAILURES = {
    KEEP_UP: "maintenance was not started",
    MAINTAIN: "maintenance failed",
    PACK: "refs were not packed",
    _GC: "maintenance was not started",
}


def _here() -> Repository:
    """Return the repository that git runs the hook for.

    git starts hooks at the top of the worktree, or in a bare repository. It sets `GIT_DIR` where
    that does not suffice (githooks(5)).

    Raises:
        RepositoryError: another user owns it, and git refuses it.
    """
    from gitckpt.git.repository import Repository, discover

    git_dir = os.environ.get("GIT_DIR", "")
    if not git_dir and not _is_own(".git"):
        return discover()  # git decides whether to trust it (git-config(1), `safe.directory`)
    git_dir = git_dir or ".git"
    if os.path.isfile(git_dir):
        git_dir = _named_by(git_dir)
    elif os.path.islink(git_dir):  # git-annex makes one in a linked worktree
        git_dir = os.path.realpath(git_dir)
    if os.path.isfile(os.path.join(git_dir, "HEAD")):
        return Repository(os.path.abspath(git_dir), None)
    return discover()


def _is_own(dot_git: str) -> bool:
    """Check the owner of a worktree, its `.git` and its git directory, as git does."""
    named = [_named_by(dot_git)] if os.path.isfile(dot_git) else [os.path.realpath(dot_git)]
    places = [os.curdir, dot_git, *named]
    try:
        return all(os.lstat(place).st_uid == os.geteuid() for place in places)
    except OSError:
        return False


def _named_by(dot_git: str) -> str:
    with open(dot_git, "rb") as file:
        return os.fsdecode(file.read().removesuffix(b"\n").removeprefix(b"gitdir: "))


def _branch(repository: Repository, event: str) -> str | None:
    target = repository.head_ref()
    if not target and event == "post-rewrite":
        from gitckpt.git.worktree import operation

        target = operation.branch(repository)
    return target.removeprefix("refs/heads/") if target.startswith("refs/heads/") else None


def _record(repository: Repository, event: str, revision: str = "HEAD") -> str:
    from gitckpt.git.objects.plumbing import Plumbing
    from gitckpt.git.refs import Refs

    objects = Plumbing(repository)
    refs = Refs(repository, lambda path: _clear(repository, event, path))
    if not repository.is_linked:  # else a run may have it, whose store starts its own process
        refs.warm_up()  # the process starts in the background
    from gitckpt.model import document, ids, times
    from gitckpt.store.records import layout
    from gitckpt.store.records.recorder import Proposal, Recorder

    head = next(repository.cat_file.contents([revision]))
    if head is None:
        raise CkptError(f"{revision} points to no commit")
    commit, _, text = head
    repository.object_format = "sha256" if len(commit) == 64 else "sha1"
    message = document.message_of(_subject(text)) or None
    is_made = os.path.exists(os.path.join(repository.git_dir, layout.RUN_FILE))
    if is_made and (extended := _extend_run(repository, message, event)) is not None:
        return extended
    if repository.is_linked:
        refs.warm_up()
    now = times.now()
    checkpoint_id = ids.of_commit(commit) if event == "post-commit" else ids.new_id()
    if event == "post-commit" and repository.cat_file.info(layout.CHECKPOINTS + checkpoint_id) is not None:
        return checkpoint_id  # another hook recorded this commit
    fields: dict[str, Any] = {
        "version": document.VERSION,
        "id": checkpoint_id,
        "phase": _PHASE,
        "timestamp": times.to_text(now),
        "git_sha": commit,
        "branch": _branch(repository, event),
        "trigger": _trigger(event),
        "message": message,
        "errors": [],
    }
    try:
        Recorder(repository, objects, refs).record(Proposal(fields, None))
    except UsageError:
        if repository.cat_file.info(layout.CHECKPOINTS + checkpoint_id) is None:
            raise
    return checkpoint_id


def _clear(repository: Repository, event: str, path: str) -> bool:
    from gitckpt.store.records import heads

    return heads.clear(repository, lambda sentence: _report(repository, event, sentence), path)


def _carry_links(repository: Repository, args: Sequence[str]) -> None:
    from gitckpt.store import notes

    notes.carry(repository, args[0] if args else "")


def _extend_run(repository: Repository, message: str | None, event: str) -> str | None:
    """Record a checkpoint with uncommitted files in the run that has this worktree.

    Returns:
        Its id; None where this is no run's worktree, or its run is gone.
    """
    import gc

    from gitckpt.git.repository import Repository
    from gitckpt.store.checkpoints import Checkpoints
    from gitckpt.store.config import settings
    from gitckpt.store.leases.leases import LeaseLost
    from gitckpt.store.records import layout
    from gitckpt.store.snapshot.limits import MORE_TIME
    from gitckpt.store.worktrees import ownership

    gc.enable()  # a scan of all files may need the memory
    owner = ownership.owner(repository)
    if owner is None or owner.run is None:
        return None
    if repository.cat_file.info(layout.RUNS + owner.run) is None:
        _report(repository, event, f"the run {owner.run} is gone, so this checkpoint stands alone")
        return None
    here = Repository(repository.git_dir, os.getcwd(), repository.object_format)
    with Checkpoints(here, adapter="plumbing") as store:
        config = settings.read(here)
        limits = config.limits.automatic()
        if config.problem:
            _report(repository, event, config.problem)
        if config.notice:
            _report(repository, event, config.notice)
        guard = store.leases.bound(owner.run)
        how: dict[str, Any] = {"message": message, "trigger": _trigger(event), "limits": limits, "without_files": _WITHOUT_FILES}
        try:
            checkpoint = store.save(_PHASE, run=owner.run, guard=guard, **how)
        except WorktreeError as error:
            _report(repository, event, f"the checkpoint holds no uncommitted files: {error.message}")
            return store.record(_PHASE, run=owner.run, message=message, trigger=_trigger(event), guard=guard).id
        except LeaseLost as error:
            _report(repository, event, f"this checkpoint stands alone: {error.message}")
            checkpoint = store.save(_PHASE, **how)
        if checkpoint.worktree is not None and checkpoint.worktree.degraded:
            cure = f"record them now: git ckpt save; {MORE_TIME}"
            _report(repository, event, f"the checkpoint holds no uncommitted files: {checkpoint.worktree.degraded}; {cure}")
        return checkpoint.id


def _trigger(event: str) -> str:
    return event if event == "post-merge" else "post-commit"


def _subject(commit: bytes) -> str:
    """Return the subject of a commit as `git log --format=%s` prints it."""
    head, _, body = commit.partition(b"\n\n")
    encoding = "utf-8"
    for line in head.split(b"\n"):
        if line.startswith(b"encoding "):
            encoding = line[9:].decode("ascii", "replace")
    try:
        text = body.decode(encoding, "replace")
    except LookupError:
        text = body.decode("utf-8", "replace")
    return " ".join(line.rstrip() for line in text.lstrip("\n").partition("\n\n")[0].rstrip("\n").split("\n"))


def keep_up(repository: Repository, settle: Callable[[], None]) -> None:
    """Start maintenance for a command that records, if it is due.

    It is due a day after the first such command where it never ran. Failures go to standard error
    and the log.

    Args:
        settle: lets refs keep what is below where history is cut off: a gc may be the next command.
    """
    from gitckpt.store.records import layout

    try:
        if not os.path.exists(os.path.join(repository.private_dir, layout.MAINTAINED)):
            from gitckpt.store.retention import maintenance  # once per repository

            maintenance.expect(repository)
        elif _wants_maintenance(repository):
            if repository.cuts():
                settle()
            _start_maintenance(repository)
    except (CkptError, OSError) as error:
        _report(repository, _GC, f"{_FAILURES[_GC]}: {error}")


def _wants_maintenance(repository: Repository) -> bool:
    import time

    from gitckpt.store.records import layout

    # Also due: the clock went back, or history was cut off since (`git fetch --depth`), below which
    # no ref keeps commits.
    try:
        started, now = os.stat(os.path.join(repository.private_dir, layout.MAINTAINED)).st_mtime, time.time()
    except FileNotFoundError:
        return True
    cuts = (os.path.join(repository.common_dir, name) for name in ("shallow", "info/grafts"))
    return not 0 <= now - started <= DAY or any(started <= os.stat(cut).st_mtime <= now for cut in cuts if os.path.isfile(cut))


def _start_maintenance(repository: Repository) -> None:
    from gitckpt.git.files import premises
    from gitckpt.store.records import layout

    path = os.path.join(repository.make_private_dir(), layout.MAINTAINED)
    with open(path, "wb", opener=premises.create):
        pass
    os.utime(path)  # some file systems keep the time of an empty file that is truncated
    _detach(repository, MAINTAIN)


def _detach(repository: Repository, task: str) -> None:
    package_dir = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    env = environment({"GIT_DIR": repository.git_dir})
    detach([sys.executable, "-I", "-S", "-c", _BOOTSTRAP, package_dir, task], env)


def _report(repository: Repository | None, event: str, sentence: str, bug: Exception | None = None) -> None:
    if event not in (MAINTAIN, PACK):
        _say(f"gitckpt: {event}: {sentence}")
    if repository is not None:
        try:
            from gitckpt.store import log  # fails as well if no descriptor is left

            entry = sentence if bug is None else f"{sentence.partition(': ')[0]}\n{log.trace(bug)}"
            log.append(repository, f"{event if event in _KNOWN else 'an unknown event'}: {entry}")
        except (CkptError, OSError, ImportError) as error:
            _say(f"gitckpt: {event}: nor could the log be written: {error}")


def _say(line: str) -> None:
    sys.stderr.write("".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in line) + "\n")
