"""Plan how `resume` opens a worktree: from the situation to what is done. Pure: no git, no files."""

from __future__ import annotations

import os

from gitckpt.model.arguments import shell_word
from gitckpt.model.errors import WorktreeError
from gitckpt.model.values import dataclass, field

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from gitckpt.store.records.layout import Owner

USE, ADOPT, MAKE = "use", "adopt", "make"
"""What is done at the path: open the worktree as it stands, make a forgotten directory one again, or make a new one."""


@dataclass(frozen=True, slots=True)
class Registration:
    """What git keeps of a linked worktree.

    Attributes:
        git_dir: its administrative directory.
        path: where git believes the worktree to be.
        real: the same with links resolved.
        of_run: whether it was made for the run that is resumed.
        is_there: whether the directory at `path` names `git_dir`.
        is_gone: whether the directory was deleted: it is at no place where one that was moved would be, and no other person locked it.
        is_locked_by_us: whether gitckpt locked it, as it does with those that it makes.
        has_submodules: whether `git_dir` holds repositories of submodules.
        moved_to: where the worktree was moved by hand.
        left_at: where it is after its repository was moved, with or without it.
    """

    git_dir: str
    path: str
    real: str
    of_run: bool
    is_there: bool = False
    is_gone: bool = False
    is_locked_by_us: bool = True
    has_submodules: bool = False
    moved_to: str | None = None
    left_at: str | None = None


@dataclass(frozen=True, slots=True)
class PathState:
    """What lies at a path at which the worktree may be.

    Attributes:
        path: absolute.
        real: the same with links resolved.
        exists: whether anything is there.
        has_dot_git: whether it has a `.git`.
        git_dir: the administrative directory that its `.git` file names.
        git_dir_exists: whether that is there.
        is_kept: whether this repository has an administrative directory of that name: the repository was moved.
        is_of_this_repository: whether `git_dir` is, or would be, one of this repository.
        owner: what gitckpt made it for.
        other: the other repository whose worktree it is.
        behind: the checkpoint at which it stands, where others have gone on with the run.
        lacks_submodules: whether submodules are still to be made there, as after a kill.
        removal: the commands that remove the worktree; git would delete what is mounted in it.
    """

    path: str
    real: str
    exists: bool = False
    has_dot_git: bool = False
    git_dir: str | None = None
    git_dir_exists: bool = False
    is_kept: bool = False
    is_of_this_repository: bool = False
    owner: Owner | None = None
    other: str | None = None
    behind: str | None = None
    lacks_submodules: bool = False
    removal: str = ""


@dataclass(frozen=True, slots=True)
class Branch:
    """The branch that the newest checkpoint of a run was recorded on, where that is the run's own.

    Attributes:
        name: without `refs/heads/`.
        tip: the commit at which it is; None where it is gone.
        is_free: whether it is checked out in no worktree.
        used_in: the worktrees that have it checked out.
    """

    name: str
    tip: str | None
    is_free: bool = True
    used_in: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Situation:
    """All that decides how a worktree is opened.

    Attributes:
        wanted: what the worktree is for: a checkpoint, and the run where it is the newest one of that.
        commit: the linked commit of the checkpoint; "" for none.
        asked: the directory that the caller named; None for none.
        default: where one is made unless the caller says; None where the repository has no such place.
        no_default: why not, as message and hint.
        registrations: the linked worktrees.
        places: by path: `asked`, `default`, and the paths of the run's worktrees.
        branch: of a run.
        has_submodules: whether the repository has any; git moves no worktree with submodules.
    """

    wanted: Owner
    commit: str = ""
    asked: str | None = None
    default: str | None = None
    no_default: tuple[str, str | None] = ("there is no place for worktrees", None)
    registrations: tuple[Registration, ...] = ()
    places: Mapping[str, PathState] = field(default_factory=dict)
    branch: Branch | None = None
    has_submodules: bool = False


@dataclass(frozen=True, slots=True)
class ResumePlan:
    """What is done to open a worktree, in this order.

    Attributes:
        forget: worktrees whose directories were deleted: what was staged there is recorded, then git forgets them.
        relink: whether git and the worktree are told of each other anew.
        action: `USE`, `ADOPT` or `MAKE`.
        path: where.
        branch: the branch of one that is made; None for a detached HEAD.
        fills_submodules: whether submodules are made there.
        remarks: what the person should know, where a worktree is opened.
        remarks_made: the same, where one is made.
        behind: the checkpoint at which it stands, where that is not the one that is resumed.
    """

    forget: tuple[Registration, ...]
    relink: bool
    action: str
    path: str
    branch: str | None = None
    fills_submodules: bool = False
    remarks: tuple[str, ...] = ()
    remarks_made: tuple[str, ...] = ()
    behind: str | None = None


def plan_resume(situation: Situation) -> ResumePlan:
    """Decide how a worktree is opened.

    Raises:
        WorktreeError: another thing is in the way, the run has its worktree elsewhere, or somebody has to look first. Nothing has changed.
    """
    mine = [each for each in situation.registrations if each.of_run] if situation.wanted.run is not None else []
    forget = [each for each in mine if each.is_gone and not each.has_submodules]
    known, remarks = _known(situation, mine)
    relink = known is not None and known not in [each.path for each in mine if each.is_there]
    path = _chosen(situation, known)
    place = situation.places[path]
    if place.exists:
        action = _existing(situation, place)
        relink = relink or action == USE
    else:
        moved = None
        for each in situation.registrations:
            if each.real == place.real and each.is_locked_by_us and each not in forget:
                moved = moved or each.moved_to
                if moved is None:
                    forget.append(_forgettable(each, path))
        action = USE if moved is not None else MAKE
        if moved is not None:
            path, relink, remarks = moved, True, [f"it was moved there from {path}"]
    branch, remark = _branch(situation) if action == MAKE else (None, None)
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
        behind=behind if behind != situation.wanted.checkpoint else None,
    )


def _known(situation: Situation, mine: list[Registration]) -> tuple[str | None, list[str]]:
    """Return where the worktree of the run is, moved ones included, and what to say of that."""
    present = [each for each in mine if each.is_there]
    if present:
        preferred = situation.asked or situation.default
        real = situation.places[preferred].real if preferred is not None else None
        return next((each.path for each in present if each.real == real), present[-1].path), []
    for each in mine:
        if each.moved_to is not None and not each.is_gone:
            return each.moved_to, [f"it was moved there from {each.path}"]
        if each.left_at is not None and not each.is_gone:
            return each.left_at, []
    return None, []


def _chosen(situation: Situation, known: str | None) -> str:
    asked = situation.asked
    if asked is None:
        path = known or situation.default
        if path is None:
            raise WorktreeError(situation.no_default[0], hint=situation.no_default[1])
        return path
    place = situation.places[asked]
    if known is None or situation.places[known].real == place.real:
        return asked
    hint = "leave the directory out to go on there"
    if not place.exists and not situation.has_submodules:
        hint += f"; or move it: git worktree move -f -f {shell_word(known)} {shell_word(asked)}"
    raise WorktreeError(f"run {situation.wanted.run} has its worktree already, at {known}", hint=hint)


def _existing(situation: Situation, place: PathState) -> str:
    """Decide what is done with what lies at the path."""
    wanted, path = situation.wanted, place.path
    name = wanted.run or wanted.checkpoint
    is_forgotten = place.git_dir is not None and not place.git_dir_exists and not place.is_kept and place.is_of_this_repository
    if is_forgotten and os.path.basename(path) == name:
        return ADOPT
    if place.owner is not None and (place.owner.run == wanted.run if wanted.run else place.owner == wanted):
        return USE
    if place.other is not None:
        hint = f"make one of this repository elsewhere: git ckpt resume {shell_word(name)} --into DIR"
        raise WorktreeError(f"{path} is a worktree of another repository: {place.other}", hint=hint)
    is_registered = any(each.real == place.real and each.is_locked_by_us for each in situation.registrations)
    if place.owner is None and is_registered:
        if place.git_dir is None:  # git does not remove such a worktree
            away = f"move it out of the way: mv {shell_word(path)} {shell_word(f'{path}.old')}"
            raise WorktreeError(
                f"{path} is a worktree of gitckpt whose .git {'is no file any more' if place.has_dot_git else 'is gone'}",
                hint=away if place.has_dot_git else f"to go on with its files: git worktree repair; or {away}",
            )
        raise WorktreeError(
            f"{path} is a worktree of gitckpt that does not say what it was made for",
            hint=f"save what you need of it, then: {place.removal}",
        )
    raise WorktreeError(
        f"{path} exists and is not the worktree of {name}",
        hint="move it out of the way, or choose another place: git ckpt resume --into DIR",
    )


def _forgettable(gone: Registration, path: str) -> Registration:
    if gone.has_submodules:
        raise WorktreeError(
            f"the directory {path} is gone, and {gone.git_dir} still holds repositories of its submodules",
            hint=f"if it was moved: git worktree repair NEW-PATH; if not, look there, then: git worktree remove -f -f {shell_word(path)}",
        )
    return gone


def _branch(situation: Situation) -> tuple[str | None, str | None]:
    """Return the branch that the worktree of a run shall be on; or why it cannot be on that."""
    branch = situation.branch
    if branch is None or situation.wanted.run is None:
        return None, None
    if branch.tip != situation.commit:
        return None, f"HEAD is detached: the branch {branch.name} is {'gone' if branch.tip is None else 'elsewhere by now'}"
    if not branch.is_free:
        where = " and ".join(branch.used_in) or "another worktree"
        behind = "stays behind there when the run commits or pushes"
        return None, f"HEAD is detached: the branch {branch.name} is checked out in {where}, and {behind}"
    return branch.name, None
