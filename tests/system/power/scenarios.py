"""Define the scenarios of the power cuts, and check the repository afterwards.

Each scenario is a shell script. It prints `ack ID` for an acknowledged checkpoint, `gone ID` for an
acknowledged removal, and `wrote DIGEST PATH` for a written file with its SHA-256.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

from gitckpt.git.process import LOCAL_VARIABLES
from gitckpt.store.records import ref_names
from tests.conftest import GIT_VARIABLES, GITCONFIG

PROJECT = Path(__file__).resolve().parents[3]

PROJECT_NAME = "project"
"""The directory of the repository, below the top of the disk."""

SPARED = (
    "index",
    "logs",
    "COMMIT_EDITMSG",
    "HEAD",
    "ORIG_HEAD",
    "config",
    "worktrees",
    "hooks",
    "ckpt",
)
"""Git's own files in `.git` that it does not flush, and derived data."""


@dataclass(frozen=True)
class Scenario:
    """A script that works in a repository with one commit and twenty files.

    Attributes:
        name: what it is called.
        script: the script during which the power is cut.
        before: a script whose results are on the disk before.
    """

    name: str
    script: str
    before: str = ""


AS_MANY = (
    "from gitckpt.store.records import remover; remover.MANY = 2; "
    "from gitckpt.__main__ import main; main()"
)
"""The command, which treats two removals as many.

The notes then change in a transaction inside the one that deletes.
"""

_EDIT = """
for number in 1 2 3; do
    mkdir -p "deep/$number"
    date +%s%N >"new-$number"
    date +%s%N >"deep/$number/file"
done
"""
_SYNC = "sync -f ."
"""Flush git's own writes before a checkpoint depends on them.

They are only as durable as git makes them.
"""

_COMMIT = f"{_EDIT} git add new-1 deep; git commit --quiet --message change; {_SYNC}"
_SAVE = 'echo "ack $(git ckpt --quiet save)"'
_NEWEST = (
    "git for-each-ref --format='ack %(refname:lstrip=2)' refs/checkpoints | grep -vFf .git/known"
)
_KNOW = "git for-each-ref --format='%(refname:lstrip=2)' refs/checkpoints >.git/known"
_ALL = "git for-each-ref --format='ack %(refname:lstrip=2)' refs/checkpoints"
_PIPELINE = """
cat >gitckpt.toml <<'END'
[pipelines.ci]
phases = [
    { name = "one", run = "echo one >one; mkdir -p sub; echo two >sub/two" },
    { name = "two", run = "echo more >>one; git add one; git commit -qm one; sync -f ." },
]
[pipelines.told]
inputs = { plan = "" }
files = ["plan"]
phases = [ { name = "one", run = "wc -c <$CKPT_INPUT_PLAN >one" } ]
END
git add gitckpt.toml
git commit --quiet --message pipeline
"""
_PROGRAM = f"""
cat >.git/program.py <<'END'
import os, sys
sys.path.insert(0, {str(PROJECT)!r})
from gitckpt import Run, Store
with Store.open(".") as store, Run.start(store, "short") as run:
    for number in range(6):
        run.phase(f"phase {{number}}", \
lambda: number % 3 or open(f"{{run.path}}/number-{{number}}", "w").write("x"))
        os.write(1, f"ack {{run.completed[f'phase {{number}}']}}\\n".encode())
END
"""
_RAN = (
    f"{_PIPELINE} git ckpt -q run ci >.git/said 2>&1; "
    "git ckpt list | grep one-complete | cut -f1 >.git/middle;"
)
_SAMPLES = PROJECT / "tests/formats/samples/rlm-act"

SCENARIOS = {
    each.name: each
    for each in (
        Scenario("save", f"{_COMMIT}; echo dirty >>new-2; {_SAVE}"),
        Scenario("save twice", f"{_EDIT} {_SAVE}; {_EDIT} git add .; {_SAVE}"),
        Scenario(
            "save clean", f"{_COMMIT}; git add --all; git commit -qm all; {_SYNC}; {_SAVE}; {_SAVE}"
        ),
        Scenario(
            "save many",
            (
                'for n in $(seq 200); do echo "$n" >"many-$n"; done; git add .; '
                f"git commit -qm many; {_SYNC}; {_SAVE}"
            ),
        ),
        Scenario("run", f"git ckpt --quiet run ci >.git/said 2>&1; {_ALL}", _PIPELINE),
        Scenario("short phases", f"{sys.executable} -P .git/program.py", _PROGRAM),
        Scenario(
            "remove",
            f'{_SAVE}; git ckpt -q remove $(cat .git/first); echo "gone $(cat .git/first)"',
            f"{_EDIT} git ckpt -q save >.git/first; {_EDIT} git ckpt -q save >.git/second",
        ),
        *(
            Scenario(
                name,
                (
                    f"{words} expire --all --keep-last 1 --older-than 0s >.git/said; "
                    'sed "s/^/gone /" .git/first; sed "s/^/ack /" .git/last'
                ),
                f"for n in 1 2 3; do {_EDIT} git add .; git commit -qm $n; git ckpt -q save; "
                "done >.git/first; git pack-refs --all; "
                "git commit -q --allow-empty -m end; git ckpt -q save >.git/last",
            )
            for name, words in (
                ("expire", "git ckpt -q"),
                ("expire many", f'{sys.executable} -P -c "{AS_MANY}" -q'),
            )
        ),
        Scenario(
            "import",
            "git ckpt -q import from | cut -f5 | sed 's/^/ack /'",
            f"mkdir from; cp {_SAMPLES}/*.json from; git ckpt -q save",
        ),
        Scenario(
            "export",
            (
                "git ckpt -q export latest:any --format rlm-act -o new/deep/file.json; "
                "echo wrote $(sha256sum new/deep/file.json)"
            ),
            f"{_RAN} mkdir -p new/deep",
        ),
        Scenario(
            "run with a file",
            (
                f"git ckpt -q run told -i plan=plan >.git/said 2>&1; {_ALL}; "
                "echo wrote $(sha256sum .ckpt/runs/*/input/plan)"
            ),
            f"{_PIPELINE} seq 5000 >plan",
        ),
        Scenario("start", f"git ckpt -q start work >.git/said; {_ALL}"),
        Scenario(
            "finish",
            'echo "ack $(git ckpt -q finish $(cat .git/id))"',
            'cd "$(git ckpt -q start work)"; echo x >x; git add x; git commit -qm x; echo y >y\n'
            "cd ../../..; git ckpt runs | cut -f1 >.git/id",
        ),
        Scenario(
            "fork",
            (
                f"{_KNOW}; git ckpt -q resume $(cat .git/middle) --fork --no-run >.git/said; "
                f"{_NEWEST}; {_ALL}"
            ),
            _RAN,
        ),
        Scenario(
            "fork that goes on",
            f"git ckpt -q resume $(cat .git/middle) --fork >.git/said; {_ALL}",
            _RAN,
        ),
        Scenario(
            "rewind",
            f"git ckpt -q resume $(cat .git/middle) --rewind --no-run >.git/said; {_ALL}",
            (
                f"{_RAN} for each in .ckpt/worktrees/*; do echo edited >>$each/one; "
                "echo new >$each/new; done"
            ),
        ),
        Scenario(
            "restore of paths",
            f"git ckpt -q restore latest -- file-1 file-2; {_ALL}",
            (
                "echo one >>file-1; git add file-1; echo two >>file-2; git ckpt -q save; "
                "echo three >file-1; rm file-2"
            ),
        ),
    )
}


@dataclass
class Acknowledged:
    """Checkpoints, removals and files that were acknowledged."""

    there: list[str] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)

    def listen(self, said: bytes) -> None:
        """Read the acknowledgments in a script's output."""
        for line in said.decode().splitlines():
            word, _, name = line.strip().partition(" ")
            if name and word in ("ack", "gone"):  # a failed command prints no id
                (self.there if word == "ack" else self.gone).append(name)
            elif name and word == "wrote":
                digest, _, path = name.partition(" ")
                self.files[path.strip()] = digest


def environment(home: Path, git: str | None = None) -> dict[str, str]:
    """Return the environment of every process; write the configuration that it names."""
    home.mkdir(exist_ok=True)
    (home / ".gitconfig").write_text(GITCONFIG)
    door = home / "bin"
    door.mkdir(exist_ok=True)
    (door / "git-ckpt").write_text(
        f'#!/bin/sh\nPYTHONPATH={PROJECT} exec {sys.executable} -m gitckpt "$@"\n'
    )
    (door / "git-ckpt").chmod(0o755)
    path = [str(door), *([os.path.dirname(git)] if git else []), os.environ["PATH"]]
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in LOCAL_VARIABLES and not name.startswith(("GIT_", "XDG_"))
    }
    return kept | GIT_VARIABLES | {"HOME": str(home), "PATH": os.pathsep.join(path), "TZ": "UTC"}


def fill(top: Path, scenario: Scenario, env: dict[str, str]) -> None:
    """Make the repository of a scenario, and discard the output of its script."""
    project = top / PROJECT_NAME
    project.mkdir()
    for number in range(20):
        (project / f"file-{number}").write_text(f"{number}\n" * 50)
    script = (
        f"git init --quiet && git add . && git commit --quiet --message first\n{scenario.before}\n"
    )
    subprocess.run(
        ["sh", "-ec", script], cwd=project, env=env, stdout=subprocess.DEVNULL, check=True
    )


def flaws(project: Path, said: Acknowledged, env: dict[str, str]) -> list[str]:
    """Return what a repository lacks or has broken after a power cut."""
    refs = ("refs/checkpoints", "refs/ckpt", "refs/keep", "refs/notes")
    listed = _git(project, env, "for-each-ref", "--format=%(objectname) %(refname)", *refs)
    found = [line for line in listed.stderr.decode().splitlines() if "broken" in line]
    if listed.returncode:
        return [f"for-each-ref: {listed.stderr.decode()}"]
    there = {
        name: oid
        for oid, _, name in (line.partition(" ") for line in listed.stdout.decode().splitlines())
    }
    found += [f"{name} is gone" for name in said.there if ref_names.CHECKPOINTS + name not in there]
    found += [
        f"{name} is there again" for name in said.gone if ref_names.CHECKPOINTS + name in there
    ]
    found += [
        f"{path} is not what was written"
        for path, digest in said.files.items()
        if _digest(project / path) != digest
    ]
    roots, linked = list(there.values()), []
    for name, oid in there.items():
        if not name.startswith(ref_names.CHECKPOINTS):
            continue
        document = _git(project, env, "cat-file", "blob", oid)
        if document.returncode:
            return [*found, f"{name}: {document.stderr.decode().strip()}"]
        fields = tomllib.loads(document.stdout.decode())
        linked += [fields["git_sha"]] if fields["git_sha"] else []
        tree = fields.get("worktree", {}).get("tree")
        if tree and there.get(name.replace(ref_names.CHECKPOINTS, ref_names.TREES)) != tree:
            found.append(f"{name}: the ref of its files is missing")
    keeps = [f"^{oid}" for name, oid in there.items() if name.startswith("refs/keep/")]
    unkept = _git(
        project, env, "rev-list", "--stdin", data="".join(f"{oid}\n" for oid in [*linked, *keeps])
    )
    found += [f"nothing keeps commit {oid}" for oid in unkept.stdout.decode().split()]
    if unkept.returncode:
        return [*found, f"rev-list: {unkept.stderr.decode().strip()}"]
    walked = _git(
        project, env, "rev-list", "--objects", "--stdin", data="".join(f"{oid}\n" for oid in roots)
    )
    if walked.returncode:
        return [*found, f"rev-list: {walked.stderr.decode().strip()}"]
    names = "".join(f"{line.split()[0]}\n" for line in walked.stdout.decode().splitlines())
    read = _git(project, env, "cat-file", "--batch", data=names)
    if read.returncode or b" missing\n" in read.stdout or read.stderr:
        found.append(f"cat-file: {read.stderr.decode().strip()}")
    return found


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else "gone"


def _git(
    project: Path, env: dict[str, str], *args: str, data: str = ""
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        ["git", *args], cwd=project, env=env, input=data.encode(), capture_output=True, check=False
    )
