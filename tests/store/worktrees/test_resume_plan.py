"""`resume` chooses a plan or a refusal for each situation, without git or files."""

from __future__ import annotations

from typing import Any

import pytest

from gitckpt import WorktreeError
from gitckpt.store.records.ref_names import WorktreeOwner
from gitckpt.store.worktrees.plan import (
    ADOPT,
    MAKE,
    USE,
    PathState,
    ResumeFacts,
    ResumePlan,
    RunBranch,
    WorktreeEntry,
    plan_resume,
)

RUN, ID = "20261127-login", "0a1b2c3d-0000-4000-8000-000000000000"
OWNER = WorktreeOwner(ID, RUN)
HERE, ASKED, OTHER = f"/p/.ckpt/worktrees/{RUN}", "/asked", "/other"
GIT_DIR = f"/p/.git/worktrees/{RUN}"


def state(path: str, **more: Any) -> PathState:
    return PathState(
        path,
        path,
        exists=True,
        has_dot_git=True,
        git_dir=GIT_DIR,
        git_dir_exists=True,
        is_of_this_repository=True,
        **more,
    )


def registration(path: str = HERE, **more: Any) -> WorktreeEntry:
    return WorktreeEntry(GIT_DIR, path, path, is_owned=True, **more)


def situation(*states: PathState, **more: Any) -> ResumeFacts:
    path_states = {path: PathState(path, path, lacks_submodules=True) for path in (HERE, ASKED)}
    return ResumeFacts(
        more.pop("target", OWNER),
        default=HERE,
        path_states=path_states | {each.path: each for each in states},
        **more,
    )


OURS, ELSEWHERE = state(HERE, owner=OWNER), state(OTHER, owner=OWNER)
THERE, GONE = registration(is_there=True), registration(is_gone=True)
MOVED = "the worktree was moved from "

PLANS = {
    "nothing is there": (
        situation(),
        ResumePlan((), relink=False, action=MAKE, path=HERE, fills_submodules=True),
    ),
    "somewhere else is asked for": (
        situation(requested=ASKED),
        ResumePlan((), relink=False, action=MAKE, path=ASKED, fills_submodules=True),
    ),
    "the worktree is there": (
        situation(OURS, registrations=(THERE,)),
        ResumePlan((), relink=True, action=USE, path=HERE),
    ),
    "a kill came before git was told": (
        situation(OURS),
        ResumePlan((), relink=True, action=USE, path=HERE),
    ),
    "a kill came before its submodules": (
        situation(state(HERE, owner=OWNER, lacks_submodules=True), registrations=(THERE,)),
        ResumePlan((), relink=True, action=USE, path=HERE, fills_submodules=True),
    ),
    "others went on with the run": (
        situation(state(HERE, owner=OWNER, behind="before"), registrations=(THERE,)),
        ResumePlan((), relink=True, action=USE, path=HERE, behind="before"),
    ),
    "it stands at what is resumed": (
        situation(state(HERE, owner=OWNER, behind=ID), registrations=(THERE,)),
        ResumePlan((), relink=True, action=USE, path=HERE),
    ),
    "the worktree is elsewhere": (
        situation(ELSEWHERE, registrations=(registration(OTHER, is_there=True),)),
        ResumePlan((), relink=True, action=USE, path=OTHER),
    ),
    "of two, that at the usual place counts": (
        situation(OURS, ELSEWHERE, registrations=(THERE, registration(OTHER, is_there=True))),
        ResumePlan((), relink=True, action=USE, path=HERE),
    ),
    "it was moved by hand": (
        situation(ELSEWHERE, registrations=(registration(moved_to=OTHER),)),
        ResumePlan((), relink=True, action=USE, path=OTHER, remarks=(f"{MOVED}{HERE}",)),
    ),
    "its repository was moved": (
        situation(ELSEWHERE, registrations=(registration("/old/place", left_at=OTHER),)),
        ResumePlan((), relink=True, action=USE, path=OTHER),
    ),
    "it was moved together with its repository": (
        situation(
            PathState(
                HERE,
                HERE,
                exists=True,
                has_dot_git=True,
                git_dir="/old/git",
                is_kept=True,
                owner=OWNER,
            )
        ),
        ResumePlan((), relink=True, action=USE, path=HERE),
    ),
    "its directory was deleted": (
        situation(registrations=(GONE,)),
        ResumePlan((GONE,), relink=False, action=MAKE, path=HERE, fills_submodules=True),
    ),
    "one of the same run was deleted elsewhere": (
        situation(OURS, registrations=(THERE, registration("/deleted", is_gone=True))),
        ResumePlan((registration("/deleted", is_gone=True),), relink=True, action=USE, path=HERE),
    ),
    "one that was deleted elsewhere has submodules": (
        situation(registrations=(registration("/deleted", is_gone=True, has_submodules=True),)),
        ResumePlan((), relink=False, action=MAKE, path=HERE, fills_submodules=True),
    ),
    "git has forgotten it": (
        situation(
            PathState(
                HERE,
                HERE,
                exists=True,
                has_dot_git=True,
                git_dir=GIT_DIR,
                is_of_this_repository=True,
            )
        ),
        ResumePlan((), relink=False, action=ADOPT, path=HERE),
    ),
    "of one checkpoint, moved by hand": (
        situation(
            target=WorktreeOwner(ID, None),
            registrations=(WorktreeEntry("/g", HERE, HERE, is_owned=False, moved_to=OTHER),),
        ),
        ResumePlan(
            (),
            relink=True,
            action=USE,
            path=OTHER,
            fills_submodules=True,
            remarks=(f"{MOVED}{HERE}",),
        ),
    ),
    "its branch is free": (
        situation(commit="c", branch=RunBranch("topic", "c")),
        ResumePlan((), relink=False, action=MAKE, path=HERE, branch="topic", fills_submodules=True),
    ),
    "its branch has moved": (
        situation(commit="c", branch=RunBranch("topic", "d")),
        ResumePlan(
            (),
            relink=False,
            action=MAKE,
            path=HERE,
            fills_submodules=True,
            remarks_made=("HEAD is detached: the branch topic is at another commit now",),
        ),
    ),
    "its branch is gone": (
        situation(commit="c", branch=RunBranch("topic", None)),
        ResumePlan(
            (),
            relink=False,
            action=MAKE,
            path=HERE,
            fills_submodules=True,
            remarks_made=("HEAD is detached: the branch topic is gone",),
        ),
    ),
    "its branch is checked out": (
        situation(commit="c", branch=RunBranch("topic", "c", is_free=False, used_in=("/a", "/b"))),
        ResumePlan(
            (),
            relink=False,
            action=MAKE,
            path=HERE,
            fills_submodules=True,
            remarks_made=(
                (
                    "HEAD is detached: the branch topic is checked out in /a and /b; "
                    "commits of the run do not move it"
                ),
            ),
        ),
    ),
}

IN_THE_WAY = "move that away, or choose another directory: git ckpt resume ID --into DIR"
REFUSALS = {
    "no directory for worktrees": (
        ResumeFacts(OWNER, no_default=("/p/.git is bare", "say where")),
        "/p/.git is bare",
        "say where",
    ),
    "the run has its worktree elsewhere": (
        situation(ELSEWHERE, requested=ASKED, registrations=(registration(OTHER, is_there=True),)),
        f"run {RUN} has a worktree already, at {OTHER}",
        (
            "omit the directory to continue in that worktree; or move the worktree: "
            f"git worktree move -f -f {OTHER} {ASKED}"
        ),
    ),
    "the same, and git could not move it": (
        situation(
            ELSEWHERE,
            requested=ASKED,
            has_submodules=True,
            registrations=(registration(OTHER, is_there=True),),
        ),
        f"run {RUN} has a worktree already, at {OTHER}",
        "omit the directory to continue in that worktree",
    ),
    "a directory is in the way": (
        situation(PathState(HERE, HERE, exists=True)),
        f"{HERE} exists and is not the worktree of {RUN}",
        IN_THE_WAY,
    ),
    "a worktree of another run is in the way": (
        situation(state(ASKED, owner=WorktreeOwner(ID, "another")), requested=ASKED),
        f"{ASKED} exists and is not the worktree of {RUN}",
        IN_THE_WAY,
    ),
    "a worktree of another checkpoint is in the way": (
        situation(
            state(ASKED, owner=WorktreeOwner("other", None)),
            requested=ASKED,
            target=WorktreeOwner(ID, None),
        ),
        f"{ASKED} exists and is not the worktree of {ID}",
        IN_THE_WAY,
    ),
    "a forgotten worktree under another name": (
        situation(
            PathState(
                ASKED,
                ASKED,
                exists=True,
                has_dot_git=True,
                git_dir=GIT_DIR,
                is_of_this_repository=True,
            ),
            requested=ASKED,
        ),
        f"{ASKED} exists and is not the worktree of {RUN}",
        IN_THE_WAY,
    ),
    "a worktree of another repository": (
        situation(state(ASKED, other_repository="/q/.git"), requested=ASKED),
        f"{ASKED} is a worktree of another repository: /q/.git",
        f"choose another directory: git ckpt resume {RUN} --into DIR",
    ),
    "its .git is gone": (
        situation(PathState(HERE, HERE, exists=True), registrations=(registration(),)),
        f"{HERE} is a worktree of gitckpt whose .git is gone",
        f"to continue with its files: git worktree repair; or move it away: mv {HERE} {HERE}.old",
    ),
    "its .git is a directory": (
        situation(
            PathState(HERE, HERE, exists=True, has_dot_git=True), registrations=(registration(),)
        ),
        f"{HERE} is a worktree of gitckpt whose .git is not a regular file",
        f"move it away: mv {HERE} {HERE}.old",
    ),
    "it does not say what it was made for": (
        situation(
            state(HERE, removal="git worktree remove"),
            registrations=(WorktreeEntry(GIT_DIR, HERE, HERE, is_owned=False),),
        ),
        f"{HERE} is a worktree of gitckpt that names no run or checkpoint",
        "copy the files that you need, then remove it: git worktree remove",
    ),
    "it was deleted, and its submodules are left": (
        situation(registrations=(registration(is_gone=True, has_submodules=True),)),
        f"{HERE} is gone, but {GIT_DIR} has repositories of its submodules",
        (
            "if the worktree was moved: git worktree repair NEW-PATH; else, "
            f"when you need none of these: git worktree remove -f -f {HERE}"
        ),
    ),
}


@pytest.mark.parametrize("case", PLANS)
def test_plan(case: str) -> None:
    given, expected = PLANS[case]
    assert plan_resume(given) == expected


@pytest.mark.parametrize("case", REFUSALS)
def test_refusal(case: str) -> None:
    given, message, hint = REFUSALS[case]
    with pytest.raises(WorktreeError) as caught:
        plan_resume(given)
    assert (caught.value.message, caught.value.hint) == (message, hint)
