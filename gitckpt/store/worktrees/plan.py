"""Plan how `resume` opens a worktree, without access to git or files."""

from __future__ import annotations

import os

from gitckpt.model.arguments import shell_quoted
from gitckpt.model.errors import WorktreeError
from gitckpt.model.values import dataclass, field

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from gitckpt.store.records.ref_names import WorktreeOwner

# Open an existing worktree; register again a directory that git forgot; make a new worktree.
USE, ADOPT, MAKE = "use", "adopt", "make"


@dataclass(frozen=True, slots=True)
class WorktreeEntry:
    """A linked worktree as git has it registered, and its state on disk."""

    git_dir: str  # its administrative directory
    path: str  # where git has it registered
    real: str  # `path` with links resolved
    is_owned: bool  # whether it belongs to the run that is resumed
    is_there: bool = False  # whether the directory at `path` names `git_dir`
    is_gone: bool = False  # whether it was deleted, neither moved nor locked by the user
    is_locked_by_gitckpt: bool = True
    has_submodules: bool = False  # whether `git_dir` holds repositories of submodules
    moved_to: str | None = None  # where it was moved by hand
    left_at: str | None = None  # where it is if the repository was moved


@dataclass(frozen=True, slots=True)
class PathState:
    """The state of a path at which the worktree of a run or checkpoint may be."""

    path: str  # absolute
    real: str  # `path` with links resolved
    exists: bool = False
    has_dot_git: bool = False
    git_dir: str | None = None  # the administrative directory that its `.git` file names
    git_dir_exists: bool = False
    is_kept: bool = False  # whether the repository was moved, and has this worktree registered
    is_of_this_repository: bool = False  # whether `git_dir` is a path below this repository
    owner: WorktreeOwner | None = None
    other_repository: str | None = None  # the repository that it is a worktree of, if another
    behind: str | None = None  # the checkpoint it is at, if the run was continued elsewhere
    lacks_submodules: bool = False  # whether submodules are missing, as after a kill
    removal: str = ""  # shell commands that unmount and remove it


@dataclass(frozen=True, slots=True)
class RunBranch:
    """The branch that a run made and on which the run's newest checkpoint is."""

    name: str  # without `refs/heads/`
    tip: str | None  # its commit; None if the branch is gone
    is_free: bool = True  # whether no worktree has it checked out
    used_in: tuple[str, ...] = ()  # paths of the worktrees that do


@dataclass(frozen=True, slots=True)
class ResumeFacts:
    """The facts from which `plan_resume` decides how to open a worktree."""

    target: WorktreeOwner  # a checkpoint; also its run if it is the run's newest one
    commit: str = ""  # the commit of the checkpoint; "" for none
    requested: str | None = None  # the path that the caller asked for
    default: str | None = None  # the path otherwise; None if there is no directory for worktrees
    no_default: tuple[str, str | None] = ("no directory for worktrees", None)  # message and hint
    registrations: tuple[WorktreeEntry, ...] = ()
    # By path: `requested`, `default`, and the paths of the run's worktrees.
    path_states: Mapping[str, PathState] = field(default_factory=dict)
    branch: RunBranch | None = None
    has_submodules: bool = False  # of the repository: git moves no worktree with submodules


@dataclass(frozen=True, slots=True)
class ResumePlan:
    """The steps to open a worktree, in the order of the attributes."""

    forget: tuple[WorktreeEntry, ...]  # deleted: record their index, then unregister
    relink: bool  # whether to link git and the worktree to each other again
    action: str  # `USE`, `ADOPT` or `MAKE`
    path: str
    branch: str | None = None  # to check out in a new worktree; None to detach HEAD
    fills_submodules: bool = False
    remarks: tuple[str, ...] = ()  # for the user, in any case
    remarks_made: tuple[str, ...] = ()  # for the user, if the worktree is made
    behind: str | None = None  # the checkpoint that the worktree is at, if not the target


def plan_resume(situation: ResumeFacts) -> ResumePlan:
    """Decide by which steps to open the worktree of a checkpoint.

    Raises:
        WorktreeError: other files are at the path, the run has a worktree elsewhere, or git has a
            deleted worktree with submodules registered there.
    """
    has_run = situation.target.run is not None
    of_run = [entry for entry in situation.registrations if has_run and entry.is_owned]
    to_forget = [entry for entry in of_run if entry.is_gone and not entry.has_submodules]
    path, remarks = _find_worktree(situation, of_run)
    must_link = path is not None and path not in [entry.path for entry in of_run if entry.is_there]
    path = _choose_worktree_path(situation, path)
    state = situation.path_states[path]
    if state.exists:
        action = _choose_use_or_adopt(situation, state)
        must_link = must_link or action == USE
    else:
        action, moved_to = MAKE, None
        for entry in situation.registrations:
            if entry.real == state.real and entry.is_locked_by_gitckpt and entry not in to_forget:
                moved_to = moved_to or entry.moved_to
                if moved_to is None:
                    _require_no_submodules(entry, path)
                    to_forget.append(entry)
        if moved_to is not None:
            remarks = [f"the worktree was moved from {path}"]
            action, path, must_link = USE, moved_to, True
    branch, remark = _choose_branch(situation) if action == MAKE else (None, None)
    used_state = situation.path_states.get(path) if action == USE else None
    behind_id = used_state.behind if used_state is not None else None
    return ResumePlan(
        forget=tuple(to_forget),
        relink=must_link,
        action=action,
        path=path,
        branch=branch,
        fills_submodules=action == MAKE or state.lacks_submodules,
        remarks=tuple(remarks),
        remarks_made=(remark,) if remark is not None else (),
        behind=behind_id if behind_id != situation.target.checkpoint else None,
    )


def _find_worktree(facts: ResumeFacts, owned: list[WorktreeEntry]) -> tuple[str | None, list[str]]:
    if existing := [entry for entry in owned if entry.is_there]:
        preferred_path = facts.requested or facts.default
        real = facts.path_states[preferred_path].real if preferred_path is not None else None
        return next((entry.path for entry in existing if entry.real == real), existing[-1].path), []
    for entry in owned:
        if entry.is_gone:
            continue
        if entry.moved_to is not None:
            return entry.moved_to, [f"the worktree was moved from {entry.path}"]
        if entry.left_at is not None:
            return entry.left_at, []
    return None, []


def _choose_worktree_path(situation: ResumeFacts, current: str | None) -> str:
    requested, path_states = situation.requested, situation.path_states
    if requested is None:
        path = current or situation.default
        if path is None:
            raise WorktreeError(situation.no_default[0], hint=situation.no_default[1])
        return path
    if current is None or path_states[current].real == path_states[requested].real:
        return requested
    hint = "omit the directory to continue in that worktree"
    if not path_states[requested].exists and not situation.has_submodules:
        arguments = f"{shell_quoted(current)} {shell_quoted(requested)}"
        hint += f"; or move the worktree: git worktree move -f -f {arguments}"
    message = f"run {situation.target.run} has a worktree already, at {current}"
    raise WorktreeError(message, hint=hint)


def _choose_use_or_adopt(situation: ResumeFacts, state: PathState) -> str:
    target, path, owner = situation.target, state.path, state.owner
    name = target.run or target.checkpoint
    is_unregistered = state.git_dir is not None and not state.git_dir_exists and not state.is_kept
    if is_unregistered and state.is_of_this_repository and os.path.basename(path) == name:
        return ADOPT
    if owner is not None and (owner.run == target.run if target.run else owner == target):
        return USE
    into_command = "choose another directory: git ckpt resume"
    message = f"{path} exists and is not the worktree of {name}"
    hint = f"move that away, or {into_command} ID --into DIR"
    made_by_gitckpt = owner is None and any(
        entry.real == state.real and entry.is_locked_by_gitckpt for entry in situation.registrations
    )
    if state.other_repository is not None:
        message = f"{path} is a worktree of another repository: {state.other_repository}"
        hint = f"{into_command} {shell_quoted(name)} --into DIR"
    elif made_by_gitckpt and state.git_dir is None:  # git refuses to remove such a worktree
        hint = f"move it away: mv {shell_quoted(path)} {shell_quoted(f'{path}.old')}"
        message = f"{path} is a worktree of gitckpt whose .git is not a regular file"
        if not state.has_dot_git:
            message = f"{path} is a worktree of gitckpt whose .git is gone"
            hint = f"to continue with its files: git worktree repair; or {hint}"
    elif made_by_gitckpt:
        message = f"{path} is a worktree of gitckpt that names no run or checkpoint"
        hint = f"copy the files that you need, then remove it: {state.removal}"
    raise WorktreeError(message, hint=hint)


def _require_no_submodules(entry: WorktreeEntry, path: str) -> None:
    if entry.has_submodules:
        message = f"{path} is gone, but {entry.git_dir} has repositories of its submodules"
        other = f"else, when you need none of these: git worktree remove -f -f {shell_quoted(path)}"
        hint = f"if the worktree was moved: git worktree repair NEW-PATH; {other}"
        raise WorktreeError(message, hint=hint)


def _choose_branch(situation: ResumeFacts) -> tuple[str | None, str | None]:
    branch = situation.branch
    if branch is None or situation.target.run is None:
        return None, None
    remark = f"HEAD is detached: the branch {branch.name} is"
    if branch.tip != situation.commit:
        return None, f"{remark} {'gone' if branch.tip is None else 'at another commit now'}"
    if not branch.is_free:
        paths = " and ".join(branch.used_in) or "another worktree"
        return None, f"{remark} checked out in {paths}; commits of the run do not move it"
    return branch.name, None
