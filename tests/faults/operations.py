"""What is done while something goes wrong, and what has been acknowledged by then."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests import forked
from tests.faults.view import Files, View, worktree_files
from tests.power.scenarios import PROJECT, environment

CKPT = (sys.executable, "-m", "gitckpt", "--quiet")
_HOOK = "import sys; sys.path.insert(0, sys.argv.pop(1)); from gitckpt.hook import run; run(sys.argv[1:])"
_ID = re.compile(r"^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$", re.MULTILINE)

STATE = '{"step": 3, "done": ["research", null, 1.5], "big": 123456789012345678901234567890}'


@dataclass(frozen=True)
class Place:
    """Where an operation is done.

    Attributes:
        top: a directory with nothing else in it.
        env: for all that is started.
    """

    top: Path
    env: dict[str, str]

    @property
    def project(self) -> Path:
        """The repository."""
        return self.top / "project"

    @property
    def beside(self) -> Path:
        """What lies beside it, and no fault touches: `$BESIDE`."""
        return self.top / "beside"

    def git(self, *args: str, data: bytes = b"") -> bytes:
        """Returns what git says here; fails where it fails."""
        return subprocess.run(["git", *args], cwd=self.project, env=self.env, input=data, capture_output=True, check=True).stdout


@dataclass(frozen=True)
class Ended:
    """How an operation ended.

    Attributes:
        code: the exit code, negative for a signal; None where it was killed with all it had started.
    """

    code: int | None
    out: str
    err: str


@dataclass
class Acknowledged:
    """What may be relied on from now on.

    Attributes:
        there: checkpoint → its files, byte for byte; None where they are not known.
        gone: checkpoints that are not to come back.
        states: checkpoint → the JSON of its state.
        commits: that have a checkpoint.
    """

    there: dict[str, Files | None] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
    states: dict[str, str] = field(default_factory=dict)
    commits: set[str] = field(default_factory=set)
    wrong: list[str] = field(default_factory=list)
    """What it said that it had done, and has not."""


@dataclass(frozen=True)
class Operation:
    """Something that gitckpt does to a repository in which there is something of everything.

    Attributes:
        name: what it is called.
        argv: the program. `@ID` stands for the checkpoint whose id is in the file `id` beside the repository.
        before: a shell script that has come to its end before.
        promised: what is acknowledged by how it ended.
        changes: which parts of a view it may change, to what they are after an undisturbed one.
        again: completes it after an interruption; by default nothing does.
        again_codes: how that may end: where there is nothing to go on with, too.
        ends_alike: whether all that is the user's own is then what it is after an undisturbed one.
        begins_damaged: whether it mends what was damaged before.
        is_report: whether it prints what is wrong, and ends with 1 if that stays so.
    """

    name: str
    argv: Sequence[str]
    promised: Callable[[Place, Ended, View, View], Acknowledged]
    before: str = ""
    changes: frozenset[str] = frozenset()
    again: tuple[str, ...] = ()
    again_codes: tuple[int, ...] = (0,)
    ends_alike: bool = False
    begins_damaged: bool = False
    is_report: bool = False

    def named(self, place: Place, words: Sequence[str]) -> list[str]:
        """Returns words of a command line with the checkpoint that is meant."""
        named = place.beside / "id"
        checkpoint = named.read_text().strip() if named.exists() else ""
        return [checkpoint if word == "@ID" else word.replace("@BESIDE", str(place.beside)) for word in words]

    def command(self, place: Place) -> list[str]:
        """Returns the program to start."""
        return self.named(place, self.argv)


_BASE = r"""
git init --quiet .
mkdir -p sub/deep
for n in 1 2 3 4 5 6 7 8 9 10; do echo "$n" >"file-$n"; echo "$n" >"sub/deep/$n"; done
echo '#!/bin/sh' >run.sh; chmod +x run.sh; ln -s file-1 link; printf 'a\0b' >binary; echo 'n' >"$(printf 'na\303\257ve name')"
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
echo two >>file-2; git add file-2; echo three >>file-2; git ckpt --quiet save --state "$BESIDE/state.json" >>"$BESIDE/known"
echo more >>file-3; git commit --quiet --message third file-3
"""

_DIRTY = r"""
echo staged >staged; git add staged; echo unstaged >>file-4; rm file-5; chmod +x file-6; echo '#!/bin/sh' >tool; chmod +x tool
mkdir -p fresh/sub; echo x >fresh/sub/file; ln -s nowhere dangling; printf '\377\0\n' >fresh/bytes; git rm --quiet --cached file-7
"""

_PHASES = {
    "one": 'git for-each-ref --format="%(refname:lstrip=2)" refs/checkpoints >>"$BESIDE/acknowledged"; echo one >>"$BESIDE/calls"\n'
    "echo one >one; mkdir -p made; echo x >made/x\n",
    "two": 'git for-each-ref --format="%(refname:lstrip=2)" refs/checkpoints >>"$BESIDE/acknowledged"; echo two >>"$BESIDE/calls"\n'
    '[ ! -e "$BESIDE/fail" ] || { rm "$BESIDE/fail"; exit 1; }\n'
    "echo two >>one; git add one; git commit --quiet --message one\n",
}
"""The phases of a run say which checkpoints there are when they begin: these have been acknowledged."""


def _ids(text: str) -> list[str]:
    return _ID.findall(text)


def _nothing(place: Place, ended: Ended, before: View, after: View) -> Acknowledged:
    del place, ended, before, after
    return Acknowledged()


def _saved(place: Place, ended: Ended, before: View, after: View) -> Acknowledged:
    del place, after
    ids = _ids(ended.out)
    said = Acknowledged(dict.fromkeys(ids, before.files), states=dict.fromkeys(ids, STATE))
    if ended.code == 0 and not ids:
        said.wrong.append(f"it ended well and named no checkpoint: {ended.out!r}")
    return said


def _hooked(place: Place, ended: Ended, before: View, after: View) -> Acknowledged:
    del after
    head = place.git("rev-parse", "HEAD").decode().strip()
    said = Acknowledged()
    if ended.code not in (0, None) and ended.code > 0:
        said.wrong.append(f"the hook ended with {ended.code}")
    if ended.code == 0 and not ended.err:
        said.commits.add(head)
    del before
    return said


def _ran(place: Place, ended: Ended, before: View, after: View) -> Acknowledged:
    del before, after
    noted, calls = place.beside / "acknowledged", place.beside / "calls"
    said = Acknowledged(dict.fromkeys(_ids(noted.read_text() if noted.exists() else "")))
    count = calls.read_text().split() if calls.exists() else []
    if ended.code == 0 and "two" not in count:
        said.wrong.append(f"the run ended well, and its phases were called {count}")
    if count.count("one") > 1:
        said.wrong.append(f"a phase that was complete was done again: {count}")
    return said


def _stepped(place: Place, ended: Ended, before: View, after: View) -> Acknowledged:
    del place, before, after
    return Acknowledged(dict.fromkeys(_ids(ended.out)))


def _removed(place: Place, ended: Ended, before: View, after: View) -> Acknowledged:
    del before, after
    named = place.beside / "doomed"
    # What a clock is wrong for does not go; what goes is named.
    return Acknowledged(gone=set(named.read_text().split()) & set(re.findall(r"[0-9a-f-]{36}", ended.out)) if ended.code == 0 else set())


def _replaced(place: Place, ended: Ended, before: View, after: View) -> Acknowledged:
    said = Acknowledged()
    now = worktree_files(place.project)
    if ended.code == 0 and now != after.files:
        said.wrong.append("it ended well, and the files are not those of the checkpoint")
    if now != before.files and not any(files == before.files for files in snapshots(place)):
        said.wrong.append("files were replaced, and no checkpoint has those that were there")
    elif now != before.files and not any(snapshot(place, each) == before.files for each in _steps(place)):
        said.wrong.append("files were replaced, and neither undo nor redo leads to those that were there")
    return said


def _steps(place: Place) -> list[str]:
    """Returns the checkpoints that `undo` and `redo` lead to."""
    listed = forked.git_ckpt("undo", "--list", "--json", directory=place.project, env=place.env)
    return _ID.findall(listed.out.replace('"', "\n"))


def _opened(place: Place, ended: Ended, before: View, after: View) -> Acknowledged:
    del before, after
    said = Acknowledged()
    if ended.code == 0:
        opened, wanted = Path(ended.out.strip()), (place.beside / "id").read_text().strip()
        if worktree_files(opened) != snapshot(place, wanted):
            said.wrong.append("the worktree that was opened has other files than the checkpoint")
    return said


def _installed(place: Place, ended: Ended, before: View, after: View) -> Acknowledged:
    del before
    said = Acknowledged()
    if ended.code == 0 and View.of(place).hooks.keys() != after.hooks.keys():
        said.wrong.append("it ended well, and the hooks are not those of an undisturbed one")
    return said


def snapshot(place: Place, checkpoint: str) -> Files | None:
    """Returns the files of a checkpoint, as git alone reads them; None where it has no tree of its own."""
    tree = subprocess.run(
        ["git", "ls-tree", "-r", "-z", "--full-tree", f"refs/ckpt/trees/{checkpoint}:files"],
        cwd=place.project,
        env=place.env,
        capture_output=True,
        check=False,
    )
    if tree.returncode:
        return None
    entries = [line.split(b"\t", 1) for line in tree.stdout.split(b"\0") if line]
    heads = [head.split() for head, _ in entries]
    read = place.git("cat-file", "--batch", data=b"".join(oid + b"\n" for _, _, oid in heads))
    files: Files = {}
    for (_, name), (mode, _, _) in zip(entries, heads, strict=True):
        head, _, read = read.partition(b"\n")
        if head.endswith(b" missing"):
            files[name.decode("utf-8", "surrogateescape")] = ("missing", b"")
            continue
        size = int(head.split()[2])
        files[name.decode("utf-8", "surrogateescape")] = (mode.decode(), read[:size])
        read = read[size + 1 :]
    return files


def snapshots(place: Place) -> list[Files]:
    """Returns the files of all checkpoints that have a tree of their own."""
    named = place.git("for-each-ref", "--format=%(refname:lstrip=3)", "refs/ckpt/trees").decode().split()
    return [files for name in named if (files := snapshot(place, name)) is not None]


_FILES = frozenset({"files", "index"})
_SET_UP = frozenset({"hooks", "config", "files"})

OPERATIONS = {
    each.name: each
    for each in (
        Operation("save", [*CKPT, "save", "--message", "a fault", "--state", "@BESIDE/state.json"], _saved, _DIRTY),
        Operation(
            "hook",
            [sys.executable, "-I", "-S", "-c", _HOOK, str(PROJECT), "post-commit"],
            _hooked,
            f"{_DIRTY} git commit --quiet --amend --message amended; git add fresh; GITCKPT_SKIP=1 git commit --quiet --message fourth",
        ),
        Operation("run", [*CKPT, "run", "ci"], _ran, again=("resume", "latest"), again_codes=(0, 2, 12)),
        Operation(
            "resume-run",
            [*CKPT, "resume", "@ID"],
            _ran,
            'touch "$BESIDE/fail"; git ckpt --quiet run ci >"$BESIDE/id" 2>/dev/null || :; : >"$BESIDE/acknowledged"',
            again=("resume", "@ID"),
            again_codes=(0, 2),
        ),
        Operation(
            "step",
            [*CKPT, "step", "pass", "PLAN", "--track", "login", "--files"],
            _stepped,
            f"{_DIRTY} git ckpt step start PLAN --track login >/dev/null",
        ),
        Operation(
            "remove",
            [*CKPT, "remove", "@ID"],
            _removed,
            'echo x >x; git ckpt --quiet save >"$BESIDE/id"; cp "$BESIDE/id" "$BESIDE/doomed"; rm x',
            again=("remove", "@ID"),
            again_codes=(0, 12),
        ),
        Operation(
            "expire",
            [*CKPT, "expire", "--all", "--older-than", "0s", "--keep-last", "4"],
            _removed,
            'for n in 1 2 3; do echo "$n" >x; git ckpt --quiet save; done >"$BESIDE/newer"; git commit --quiet --amend --message other\n'
            'git for-each-ref --format="%(refname:lstrip=2)" refs/checkpoints >"$BESIDE/all"\n'
            'git ckpt list -n 4 | cut -f1 >"$BESIDE/kept"; grep -vFf "$BESIDE/kept" "$BESIDE/all" >"$BESIDE/doomed"; rm x',
            again=("expire", "--all", "--older-than", "0s", "--keep-last", "4"),
        ),
        Operation(
            "restore",
            [*CKPT, "restore", "@ID"],
            _replaced,
            f'tail -n 1 "$BESIDE/known" >"$BESIDE/id"; {_DIRTY}',
            changes=_FILES,
            again=("restore", "@ID"),
            ends_alike=True,
        ),
        Operation(
            "undo",
            [*CKPT, "undo"],
            _replaced,
            f'tail -n 1 "$BESIDE/known" >"$BESIDE/id"; {_DIRTY} git ckpt --quiet restore "$(cat "$BESIDE/id")"',
            changes=_FILES,
            again=("undo",),
            again_codes=(0, 12),
            ends_alike=True,
        ),
        Operation(
            "redo",
            [*CKPT, "redo"],
            _replaced,
            f'{_DIRTY} git ckpt --quiet restore "$(tail -n 1 "$BESIDE/known")"; echo edited >>file-1; git ckpt --quiet undo',
            changes=_FILES,
            again=("redo",),
            again_codes=(0, 12),
            ends_alike=True,
        ),
        Operation(
            "open",
            [*CKPT, "resume", "@ID"],
            _opened,
            f'tail -n 1 "$BESIDE/known" >"$BESIDE/id"; {_DIRTY}',
            again=("resume", "@ID"),
        ),
        Operation(
            "repair",
            [*CKPT, "verify", "--repair"],
            _nothing,
            'git update-ref -d refs/notes/checkpoints; git for-each-ref --format="delete %(refname)" refs/ckpt refs/keep | '
            "git update-ref --stdin; rm -f .git/ckpt/index*",
            again=("verify", "--repair"),
            begins_damaged=True,
            is_report=True,
        ),
        Operation(
            "init", [*CKPT, "init"], _installed, "git ckpt --quiet uninit 2>/dev/null", changes=_SET_UP, again=("init",), ends_alike=True
        ),
        Operation("uninit", [*CKPT, "uninit"], _installed, changes=_SET_UP, again=("uninit",), ends_alike=True),
    )
}


class Bench:
    """Repositories in which operations begin: each is made once, and copied for each try.

    Args:
        directory: where they are kept.
        git: the git that is used; by default the one on PATH.
    """

    def __init__(self, directory: Path, git: str | None = None) -> None:
        self._directory = directory
        self.env = environment(directory / "home", git) | {"PYTHONPATH": str(PROJECT)}
        for name in ("PYTHONDONTWRITEBYTECODE", "GITCKPT_GIT", "CKPT_RUN"):
            self.env.pop(name, None)
        if git:
            self.env["GITCKPT_GIT"] = git

    def make(self, operation: Operation) -> Place:
        """Returns where an operation may begin, which nobody is to change; made at the first call."""
        top = self._directory / "begins" / operation.name
        place = self._place(top)
        if not (top / "made").exists():
            place.project.mkdir(parents=True)
            place.beside.mkdir()
            (place.beside / "state.json").write_text(STATE)
            for name, text in _PHASES.items():
                (place.beside / name).write_text(text)
            script = f"{_BASE}{operation.before}\n"
            done = subprocess.run(["sh", "-euc", script], cwd=place.project, env=place.env, capture_output=True, text=True, check=False)
            if done.returncode:
                raise AssertionError(f"{operation.name} cannot begin: {done.stderr}")
            (top / "made").touch()
        return place

    def copy(self, operation: Operation, top: Path) -> Place:
        """Returns a copy of where an operation begins, at a path where nothing is."""
        made = self.make(operation)
        top.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["cp", "-a", str(made.top), str(top)], check=True)
        for linked in (*top.glob("project/.git/worktrees/*/gitdir"), *top.glob("project/.ckpt/worktrees/*/.git")):
            linked.write_text(linked.read_text().replace(str(made.top), str(top)))
        return self._place(top)

    def _place(self, top: Path) -> Place:
        return Place(top, self.env | {"BESIDE": str(top / "beside")})

    def forget(self, place: Place) -> None:
        """Deletes a copy."""
        shutil.rmtree(place.top, ignore_errors=True)
