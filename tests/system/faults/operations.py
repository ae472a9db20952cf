"""Define the operations that faults strike, and copy the repositories for them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from tests.system.faults import promises
from tests.system.faults.further_operations import FILE_OPERATIONS, RUN_OPERATIONS
from tests.system.faults.operation import CKPT, Operation, Place
from tests.system.power.scenarios import AS_MANY, PROJECT, environment

_HOOK = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); from gitckpt.hook import run; "
    "run(sys.argv[1:])"
)
_BASE = """
git init --quiet .
mkdir -p sub/deep
for n in 1 2 3 4 5 6 7 8 9 10; do echo "$n" >"file-$n"; echo "$n" >"sub/deep/$n"; done
echo '#!/bin/sh' >run.sh; chmod +x run.sh; ln -s file-1 link; printf 'a\\0b' >binary; \
echo 'n' >"$(printf 'na\\303\\257ve name')"
echo ignored >.gitignore; echo secret >ignored
git add .; git commit --quiet --message first
git ckpt init >/dev/null 2>&1
cat >>gitckpt.toml <<'END'

[pipelines.ci]
phases = [
    { name = "one", run = "sh $BESIDE/one" },
    { name = "two", run = "sh $BESIDE/two" },
]
END
mkdir -p .git/ckpt; : >.git/ckpt/maintained
git add .; git commit --quiet --message second
git branch other
echo stashed >>file-9; git stash --quiet
echo one >new; git ckpt --quiet save >>"$BESIDE/known"
git gc --quiet
echo two >>file-2; git add file-2; echo three >>file-2; \
git ckpt --quiet save --state "$BESIDE/state.json" >>"$BESIDE/known"
echo more >>file-3; git commit --quiet --message third file-3
"""

_DIRTY = """
echo staged >staged; git add staged; echo unstaged >>file-4; rm file-5; chmod +x file-6; \
echo '#!/bin/sh' >tool; chmod +x tool
mkdir -p fresh/sub; echo x >fresh/sub/file; ln -s nowhere dangling; \
printf '\\377\\0\\n' >fresh/bytes; git rm --quiet --cached file-7
"""

_PHASES = {
    "one": (
        'git for-each-ref --format="%(refname:lstrip=2)" refs/checkpoints '
        '>>"$BESIDE/acknowledged"; echo one >>"$BESIDE/calls"\n'
        "echo one >one; mkdir -p made; echo x >made/x\n"
    ),
    "two": (
        'git for-each-ref --format="%(refname:lstrip=2)" refs/checkpoints '
        '>>"$BESIDE/acknowledged"; echo two >>"$BESIDE/calls"\n'
        '[ ! -e "$BESIDE/fail" ] || { rm "$BESIDE/fail"; exit 1; }\n'
        "echo two >>one; git add one; git commit --quiet --message one\n"
    ),
}
"""A phase notes the checkpoints that exist when it begins: all are acknowledged."""


_FILES = frozenset({"files", "index"})
_SET_UP = frozenset({"hooks", "config", "files"})

OPERATIONS = {
    each.name: each
    for each in (
        Operation(
            "save",
            [*CKPT, "save", "--message", "a fault", "--state", "@BESIDE/state.json"],
            promises.saved,
            _DIRTY,
        ),
        Operation(
            "hook",
            [sys.executable, "-I", "-S", "-c", _HOOK, str(PROJECT), "post-commit"],
            promises.hooked,
            (
                f"{_DIRTY} git commit --quiet --amend --message amended; git add fresh; "
                "GITCKPT_SKIP=1 git commit --quiet --message fourth"
            ),
        ),
        Operation(
            "run",
            [*CKPT, "run", "ci"],
            promises.ran,
            again=("resume", "latest:any"),
            again_codes=(0, 2, 12),
        ),
        Operation(
            "resume-run",
            [*CKPT, "resume", "@ID"],
            promises.ran,
            (
                'touch "$BESIDE/fail"; git ckpt --quiet run ci >"$BESIDE/id" 2>/dev/null || :; '
                ': >"$BESIDE/acknowledged"'
            ),
            again=("resume", "@ID"),
            again_codes=(0, 2),
        ),
        Operation(
            "step",
            [*CKPT, "step", "pass", "PLAN", "--track", "login", "--files"],
            promises.stepped,
            f"{_DIRTY} git ckpt step start PLAN --track login >/dev/null",
        ),
        Operation(
            "remove",
            [*CKPT, "remove", "@ID"],
            promises.removed,
            (
                'echo x >x; git ckpt --quiet save >"$BESIDE/id"; '
                'cp "$BESIDE/id" "$BESIDE/doomed"; rm x'
            ),
            again=("remove", "@ID"),
            again_codes=(0, 12),
        ),
        *(
            Operation(
                name,
                [*words, "expire", "--all", "--older-than", "0s", "--keep-last", "4"],
                promises.removed,
                'for n in 1 2 3; do echo "$n" >x; git ckpt --quiet save; done >"$BESIDE/newer"\n'
                "git commit --quiet --amend --message other\n"
                'git for-each-ref --format="%(refname:lstrip=2)" refs/checkpoints >"$BESIDE/all"\n'
                'git ckpt list -n 4 | cut -f1 >"$BESIDE/kept"; '
                'grep -vFf "$BESIDE/kept" "$BESIDE/all" >"$BESIDE/doomed"; rm x',
                again=("expire", "--all", "--older-than", "0s", "--keep-last", "4"),
            )
            for name, words in (
                ("expire", CKPT),
                ("expire-many", (sys.executable, "-P", "-c", AS_MANY, "--quiet")),
            )
        ),
        Operation(
            "restore",
            [*CKPT, "restore", "@ID"],
            promises.replaced,
            f'tail -n 1 "$BESIDE/known" >"$BESIDE/id"; {_DIRTY}',
            changes=_FILES,
            again=("restore", "@ID"),
            ends_alike=True,
        ),
        Operation(
            "undo",
            [*CKPT, "undo"],
            promises.replaced,
            (
                'tail -n 1 "$BESIDE/known" >"$BESIDE/id"; '
                f'{_DIRTY} git ckpt --quiet restore "$(cat "$BESIDE/id")"'
            ),
            changes=_FILES,
            again=("undo",),
            again_codes=(0, 12),
            ends_alike=True,
        ),
        Operation(
            "redo",
            [*CKPT, "redo"],
            promises.replaced,
            (
                f'{_DIRTY} git ckpt --quiet restore "$(tail -n 1 "$BESIDE/known")"; '
                "echo edited >>file-1; git ckpt --quiet undo"
            ),
            changes=_FILES,
            again=("redo",),
            again_codes=(0, 12),
            ends_alike=True,
        ),
        Operation(
            "open",
            [*CKPT, "resume", "@ID"],
            promises.opened,
            f'tail -n 1 "$BESIDE/known" >"$BESIDE/id"; {_DIRTY}',
            again=("resume", "@ID"),
        ),
        Operation(
            "repair",
            [*CKPT, "verify", "--repair"],
            promises.nothing,
            "git update-ref -d refs/notes/checkpoints; "
            'git for-each-ref --format="delete %(refname)" refs/ckpt refs/keep | '
            "git update-ref --stdin; rm -f .git/ckpt/index*",
            again=("verify", "--repair"),
            begins_damaged=True,
            is_report=True,
        ),
        Operation(
            "init",
            [*CKPT, "init"],
            promises.installed,
            "git ckpt --quiet uninit 2>/dev/null",
            changes=_SET_UP,
            again=("init",),
            ends_alike=True,
        ),
        Operation(
            "uninit",
            [*CKPT, "uninit"],
            promises.installed,
            changes=_SET_UP,
            again=("uninit",),
            ends_alike=True,
        ),
        *RUN_OPERATIONS,
        *FILE_OPERATIONS,
    )
}


class Bench:
    """Repositories in which operations begin: each is made once, copied for each try.

    Args:
        directory: where they are kept.
        git: the git to use; by default the one on PATH.
    """

    def __init__(self, directory: Path, git: str | None = None) -> None:
        self._directory = directory
        self.env = environment(directory / "home", git) | {"PYTHONPATH": str(PROJECT)}
        for name in ("PYTHONDONTWRITEBYTECODE", "GITCKPT_GIT", "CKPT_RUN"):
            self.env.pop(name, None)
        if git:
            self.env["GITCKPT_GIT"] = git

    def make(self, operation: Operation) -> Place:
        """Return the original repository of an operation, made at the first call.

        It must not be changed.
        """
        top = self._directory / "begins" / operation.name
        place = self._place(top)
        if not (top / "made").exists():
            place.project.mkdir(parents=True)
            place.beside.mkdir()
            (place.beside / "state.json").write_text(promises.STATE)
            for name, text in _PHASES.items():
                (place.beside / name).write_text(text)
            script = f"{_BASE}{operation.before}\n"
            done = subprocess.run(
                ["sh", "-euc", script],
                cwd=place.project,
                env=place.env,
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode:
                raise AssertionError(f"{operation.name} cannot begin: {done.stderr}")
            (top / "made").touch()
        return place

    def copy(self, operation: Operation, top: Path) -> Place:
        """Copy the original repository of an operation to a new path."""
        made = self.make(operation)
        top.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["cp", "-a", str(made.top), str(top)], check=True)
        for linked in (
            *top.glob("project/.git/worktrees/*/gitdir"),
            *top.glob("project/.ckpt/worktrees/*/.git"),
        ):
            linked.write_text(linked.read_text().replace(str(made.top), str(top)))
        return self._place(top)

    def _place(self, top: Path) -> Place:
        return Place(top, self.env | {"BESIDE": str(top / "beside")})

    def forget(self, place: Place) -> None:
        """Delete a copy."""
        shutil.rmtree(place.top, ignore_errors=True)
