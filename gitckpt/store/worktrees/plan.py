"""Plan how `resume` opens a worktree. Pure: no git, no files."""

from __future__ import annotations

import os

from gitckpt.model.arguments import shell_word
from gitckpt.model.errors import WorktreeError
from gitckpt.model.values import dataclass, field

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from gitckpt.store.records.ref_names import Owner

# Open the worktree as it stands, turn a forgotten directory into one again, or make a new one.
USE, ADOPT, MAKE = "use", "adopt", "make"


@dataclass(frozen=True, slots=True)
class Registration:
    """What git keeps of a linked worktree."""

    git_dir: str  # its administrative directory
    path: str  # where git has it registered
    real: str  # the same with links resolved
    of_run: bool  # whether it belongs to the run that is resumed
    is_there: bool = False  # whether the directory at `path` names `git_dir`
    is_gone: bool = False  # whether it was deleted: not moved, and not locked by another person
    is_locked_by_us: bool = True
    has_submodules: bool = False  # whether `git_dir` holds repositories of submodules
    moved_to: str | None = None  # where it was moved by hand
    left_at: str | None = None  # where it is after its repository was moved


@dataclass(frozen=True, slots=True)
class PathState:
    """What lies at a path where the worktree may be."""

    path: str  # absolute
    real: str  # the same with links resolved
    exists: bool = False
    has_dot_git: bool = False
    git_dir: str | None = None  # the administrative directory that its `.git` file names
    git_dir_exists: bool = False
    is_kept: bool = False  # whether this repository, moved since, has a directory of that name
    is_of_this_repository: bool = False  # whether `git_dir` is or would be one of this repository
    owner: Owner | None = None
    other_repository: str | None = None  # whose worktree it is, if not of this one
    behind: str | None = None  # the checkpoint at which it stands, if others continued the run
    lacks_submodules: bool = False  # whether submodules are still to be made, as after a kill
    removal: str = ""  # commands that remove it; git would delete what is mounted in it


@dataclass(frozen=True, slots=True)
class Branch:
    """The run's own branch on which its newest checkpoint was recorded."""

    name: str  # without `refs/heads/`
    tip: str | None  # its commit; None if the branch is gone
    is_free: bool = True  # whether no worktree has it checked out
    used_in: tuple[str, ...] = ()  # the worktrees that do


@dataclass(frozen=True, slots=True)
class Situation:
    """All that decides how a worktree is opened."""

    target: Owner  # a checkpoint, and its run if it is the newest one of that
    commit: str = ""  # the linked commit; "" for none
    requested: str | None = None  # the directory that the caller named
    default: str | None = None  # the directory otherwise; None if there is no place for one
    no_default: tuple[str, str | None] = ("there is no place for worktrees", None)  # message, hint
    registrations: tuple[Registration, ...] = ()
    # By path: `requested`, `default`, and the paths of the run's worktrees.
    places: Mapping[str, PathState] = field(default_factory=dict)
    branch: Branch | None = None
    has_submodules: bool = False  # of the repository: git moves no worktree with submodules


@dataclass(frozen=True, slots=True)
class ResumePlan:
    """What is done to open a worktree, in the order of the attributes."""

    forget: tuple[Registration, ...]  # deleted ones: record what was staged, then forget
    relink: bool  # whether to link git and the worktree to each other again
    action: str  # `USE`, `ADOPT` or `MAKE`
    path: str
    branch: str | None = None  # of a new one; None for a detached HEAD
    fills_submodules: bool = False
    remarks: tuple[str, ...] = ()  # for the user, if a worktree is opened
    remarks_made: tuple[str, ...] = ()  # for the user, if one is made
    behind: str | None = None  # the checkpoint at which it stands, if not the resumed one


def plan_resume(situation: Situation) -> ResumePlan:
    """Decide how a worktree is opened.

    Raises:
        WorktreeError: the path is taken, the run's worktree is elsewhere, or a person has to look.
    """
    is_run = situation.target.run is not None
    of_run = [entry for entry in situation.registrations if is_run and entry.of_run]
    forget = [entry for entry in of_run if entry.is_gone and not entry.has_submodules]
    path, remarks = _find_worktree(situation, of_run)
    relink = path is not None and path not in [entry.path for entry in of_run if entry.is_there]
    path = _choose_path(situation, path)
    place = situation.places[path]
    if place.exists:
        action = _choose_action(situation, place)
        relink = relink or action == USE
    else:
        action, moved_to = MAKE, None
        for entry in situation.registrations:
            if entry.real == place.real and entry.is_locked_by_us and entry not in forget:
                moved_to = moved_to or entry.moved_to
                if moved_to is None:
                    _require_forgettable(entry, path)
                    forget.append(entry)
        if moved_to is not None:
            remarks = [f"it was moved there from {path}"]
            action, path, relink = USE, moved_to, True
    branch, remark = _choose_branch(situation) if action == MAKE else (None, None)
    behind = situation.places[path].behind if action == USE and path in situation.places else None
    return ResumePlan(
        forget=tuple(forget),
        relink=relink,
        action=action,
        path=path,
        branch=branch,
        fills_submodules=action == MAKE or place.lacks_submodules,
        remarks=tuple(remarks),
        remarks_made=(remark,) if remark is not None else (),
        behind=behind if behind != situation.target.checkpoint else None,
    )


def _find_worktree(
    situation: Situation, of_run: list[Registration]
) -> tuple[str | None, list[str]]:
    """Return where the run's worktree is, or None; and remarks."""
    if present := [entry for entry in of_run if entry.is_there]:
        preferred = situation.requested or situation.default
        real = situation.places[preferred].real if preferred is not None else None
        return next((entry.path for entry in present if entry.real == real), present[-1].path), []
    for entry in of_run:
        if entry.is_gone:
            continue
        if entry.moved_to is not None:
            return entry.moved_to, [f"it was moved there from {entry.path}"]
        if entry.left_at is not None:
            return entry.left_at, []
    return None, []


def _choose_path(situation: Situation, current: str | None) -> str:
    requested, places = situation.requested, situation.places
    if requested is None:
        path = current or situation.default
        if path is None:
            raise WorktreeError(situation.no_default[0], hint=situation.no_default[1])
        return path
    if current is None or places[current].real == places[requested].real:
        return requested
    hint = "leave the directory out to go on there"
    if not places[requested].exists and not situation.has_submodules:
        words = f"{shell_word(current)} {shell_word(requested)}"
        hint += f"; or move it: git worktree move -f -f {words}"
    message = f"run {situation.target.run} has its worktree already, at {current}"
    raise WorktreeError(message, hint=hint)


def _choose_action(situation: Situation, place: PathState) -> str:
    target, path, owner = situation.target, place.path, place.owner
    name = target.run or target.checkpoint
    is_forgotten = place.git_dir is not None and not place.git_dir_exists and not place.is_kept
    if is_forgotten and place.is_of_this_repository and os.path.basename(path) == name:
        return ADOPT
    if owner is not None and (owner.run == target.run if target.run else owner == target):
        return USE
    into = "choose another place: git ckpt resume"
    message = f"{path} exists and is not the worktree of {name}"
    hint = f"move it out of the way, or {into} --into DIR"
    is_ours = owner is None and any(
        entry.real == place.real and entry.is_locked_by_us for entry in situation.registrations
    )
    if place.other_repository is not None:
        message = f"{path} is a worktree of another repository: {place.other_repository}"
        hint = f"{into} {shell_word(name)} --into DIR"
    elif is_ours and place.git_dir is None:  # git does not remove it
        hint = f"move it out of the way: mv {shell_word(path)} {shell_word(f'{path}.old')}"
        message = f"{path} is a worktree of gitckpt whose .git is no file any more"
        if not place.has_dot_git:
            message = f"{path} is a worktree of gitckpt whose .git is gone"
            hint = f"to go on with its files: git worktree repair; or {hint}"
    elif is_ours:
        message = f"{path} is a worktree of gitckpt that does not say what it was made for"
        hint = f"save what you need of it, then: {place.removal}"
    raise WorktreeError(message, hint=hint)


def _require_forgettable(entry: Registration, path: str) -> None:
    if entry.has_submodules:
        message = f"{path} is gone, but {entry.git_dir} still holds repositories of its submodules"
        remove = f"if not, look there, then: git worktree remove -f -f {shell_word(path)}"
        hint = f"if it was moved: git worktree repair NEW-PATH; {remove}"
        raise WorktreeError(message, hint=hint)


def _choose_branch(situation: Situation) -> tuple[str | None, str | None]:
    """Return the branch of a run's worktree; or why it cannot be on that branch."""
    branch = situation.branch
    if branch is None or situation.target.run is None:
        return None, None
    detached = f"HEAD is detached: the branch {branch.name} is"
    if branch.tip != situation.commit:
        return None, f"{detached} {'gone' if branch.tip is None else 'elsewhere by now'}"
    if not branch.is_free:
        places = " and ".join(branch.used_in) or "another worktree"
        behind = "stays behind there when the run commits or pushes"
        return None, f"{detached} checked out in {places}, and {behind}"
    return branch.name, None
