"""Build every kind of worktree in as many states as git allows, and wreck it."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from gitckpt import Checkpoint, Store
from gitckpt.git.process import git_executable
from gitckpt.store.store import checkpoints_of_store
from gitckpt.store.worktrees.resumption import resume_checkpoint
from tests.conftest import Checkout

SUBMODULES = ("sub/clean", "sub/dirty", "sub/moved")
ODD = (b"caf\xe9", b"new\nline", b'q"uote\\', b"-x", b"in/\xff\xfe")
MANY = 25_000
OURS = ("refs/checkpoints/", "refs/ckpt/", "refs/keep/", "refs/notes/checkpoints")


def nothing(here: Checkout) -> None:
    """Do nothing, as most kinds do at most steps."""


@dataclass(frozen=True)
class Kind:
    """A kind of worktree, and its particular steps while it is built.

    Attributes:
        name: its name in the ids of the tests.
        begin: runs in the repository before its first commit.
        clone: options of `git clone`; None to use the repository itself.
        checkout: whether git writes the files before `settle` runs.
        settle: runs in the worktree before any file is changed.
        enrich: makes the changes that only this kind can have.
        newline: ends the lines of its texts.
        needs: a program that this kind requires.
    """

    name: str
    begin: Callable[[Checkout], None] = nothing
    clone: tuple[str, ...] | None = None
    checkout: bool = True
    settle: Callable[[Checkout], None] = nothing
    enrich: Callable[[Checkout], None] = nothing
    newline: str = "\n"
    needs: str | None = None


@dataclass(frozen=True)
class Cell:
    """A worktree under test.

    Attributes:
        kind: of worktree.
        place: "main" or "linked".
        hashing: "sha1" or "sha256".
        refs: "files" or "reftable".
    """

    kind: Kind
    place: str
    hashing: str
    refs: str

    def __str__(self) -> str:
        return f"{self.kind.name}-{self.place}-{self.hashing}-{self.refs}"


@dataclass
class Files:
    """Write files with the line ends of a kind."""

    here: Checkout
    newline: str
    written: list[str] = field(default_factory=list)

    def __call__(self, **contents: str) -> None:
        for name, content in contents.items():
            self.here.write(name, content.replace("\n", self.newline))


def build(cell: Cell, tmp_path: Path) -> Checkout:
    """Return a clean worktree of the kind with two commits on its branch."""
    kind = cell.kind
    if kind.needs and shutil.which(kind.needs) is None:
        pytest.skip(f"{kind.needs} is not installed")
    options = [
        f"--object-format={cell.hashing}",
        *(["--ref-format=reftable"] if cell.refs == "reftable" else []),
    ]
    first = Checkout(tmp_path / ("origin" if kind.clone is not None else "project"))
    subprocess.run([git_executable(), "init", "--quiet", *options, str(first.path)], check=True)
    kind.begin(first)
    if kind is not MANY_FILES:
        base(first, kind)
    here = first
    if kind.clone is not None:
        here = Checkout(tmp_path / "project")
        first.git("config", "uploadpack.allowFilter", "true")
        reftable = ["--ref-format=reftable"] if cell.refs == "reftable" else []
        wait = [] if kind.checkout else ["--no-checkout"]
        first.git(
            "clone",
            "--quiet",
            *kind.clone,
            *reftable,
            *wait,
            f"file://{first.path}",
            str(here.path),
        )
    if cell.place == "linked":
        path = tmp_path / "linked worktree"
        here.git(
            "worktree",
            "add",
            "--quiet",
            *([] if kind.checkout else ["--no-checkout"]),
            "-b",
            "side",
            str(path),
        )
        here = Checkout(path, here.path)
    kind.settle(here)
    return here


def base(here: Checkout, kind: Kind) -> None:
    """Create a commit with a file for each later change, and a second commit."""
    write = Files(here, kind.newline)
    write(
        **{
            ".gitignore": "*.o\nbuild/\n",
            "README": "hello\n",
            "in/text": "one\ntwo\nthree\n",
            "in/twice": "1\n",
            "in/back": "1\n",
        }
    )
    write(
        **{
            "in/gone": "g\n",
            "in/removed": "r\n",
            "in/renamed": "a name\n",
            "in/mode": "#!/bin/sh\n",
            "in/dir": "no directory\n",
        }
    )
    write(
        **{
            "in/clash": "base\n",
            "in/type": "a file\n",
            "out/kept": "o\n",
            "out/there": "o\n",
            "out/deep/er": "e\n",
            "tool": "t\n",
        }
    )
    (here.path / "tool").chmod(0o755)
    (here.path / "in/link").symlink_to("text")
    here.git("-c", "core.safecrlf=false", "add", "--all")
    here.git("commit", "--quiet", "--message", "first")
    write(README="hello again\n")
    here.git("-c", "core.safecrlf=false", "commit", "--quiet", "--all", "--message", "second")


def enrich(here: Checkout, kind: Kind) -> None:
    """Give a built worktree every state at once, including a conflicting merge."""
    write = Files(here, kind.newline)
    write(README="stashed\n")
    here.git("stash", "push", "--quiet")
    start = here.git("rev-parse", "HEAD")
    write(**{"in/clash": "theirs\n", "in/merged": "clean\n"})
    here.git("add", "in/clash", "in/merged")
    here.git("commit", "--quiet", "--message", "theirs")
    theirs = here.git("rev-parse", "HEAD")
    here.git("reset", "--quiet", "--hard", start)
    write(**{"in/clash": "ours\n"})
    here.git("commit", "--quiet", "--all", "--message", "ours")
    here.git("merge", theirs, ok=(1,))
    write(
        **{
            "in/text": "one\ntwo and a half\nthree\n",
            "in/twice": "2\n",
            "in/back": "2\n",
            "in/new": "n\n",
            "deep/er/new": "n\n",
        }
    )
    here.git("add", "in/twice", "in/back")
    write(
        **{
            "in/twice": "3\n",
            "in/back": "1\n",
            "in/later": "l\n",
            "a.o": "ignored\n",
            "build/b": "ignored\n",
        }
    )
    here.git("add", "--intent-to-add", "in/later")
    here.git("rm", "--quiet", "in/removed")
    here.git("mv", "in/renamed", "in/an other name")
    for name in ("in/gone", "in/type", "in/dir", "in/link"):
        (here.path / name).unlink()
    (here.path / "in/mode").chmod(0o755)
    (here.path / "tool").chmod(0o644)
    (here.path / "in/type").symlink_to("nowhere at all")
    (here.path / "in/link").symlink_to("twice")
    write(**{"in/dir/inside": "a directory\n"})
    kind.enrich(here)


def lose_index(here: Checkout) -> None:
    """Delete the index, as people do when git calls it corrupt."""
    Path(here.git("rev-parse", "--path-format=absolute", "--git-path", "index")).unlink()


def reset(here: Checkout) -> None:
    """Discard all uncommitted changes and the merge in progress."""
    here.git(
        "-c", "checkout.workers=0", "-c", "submodule.recurse=false", "reset", "--quiet", "--hard"
    )


def wreck(here: Checkout) -> None:
    """Delete half of the files, scramble the others and add new ones.

    Ignored files and submodules stay.
    """
    spared = ("a.o", "build/", ".git", "sub/", ".ckpt/")
    for number, name in enumerate(sorted(files(here.path))):
        path = here.path / os.fsdecode(name)
        if os.fsdecode(name).startswith(spared):
            continue
        if number % 2:
            path.unlink()
        elif number % 4:
            path.chmod(path.lstat().st_mode ^ 0o100) if not path.is_symlink() else None
            path.write_bytes(b"scrambled\0")
        else:
            path.unlink()
            path.symlink_to("scrambled")
    here.write("stray", "s")
    here.write("in/stray/deep", "s")
    here.write("README/in the way", "s") if not os.path.lexists(here.path / "README") else None


def files(top: Path) -> dict[bytes, tuple[int, bytes]]:
    """Return type and content of every file, except those of other worktrees.

    The type includes the executable bit; ignored files count.
    """
    found = {}
    for parent, directories, names in os.walk(os.fsencode(top)):
        directories[:] = [name for name in directories if name not in (b".git", b".ckpt")]
        links = [name for name in directories if os.path.islink(os.path.join(parent, name))]
        for name in [*names, *links]:
            path = os.path.join(parent, name)
            mode = os.lstat(path).st_mode
            content = (
                os.readlink(path) if stat.S_ISLNK(mode) else Path(os.fsdecode(path)).read_bytes()
            )
            if name != b".git":
                found[os.path.relpath(path, os.fsencode(top))] = (
                    stat.S_IFMT(mode) | mode & 0o100,
                    content,
                )
    return found


def seen(here: Checkout, *, without: tuple[str, ...] = (), ignored: bool = True) -> dict[str, Any]:
    """Return the state of a worktree as git and a person see it; git writes nothing.

    Args:
        here: the worktree.
        without: directories to leave out.
        ignored: whether files that git ignores count.
    """
    only = ["--", ".", *(f":(exclude){name}" for name in without)]
    quiet = {"GIT_OPTIONAL_LOCKS": "0"}
    there = files(here.path)
    if not ignored:
        hidden = here.git(
            "ls-files", "--others", "--ignored", "--exclude-standard", "-z", env=quiet
        ).split("\0")
        there = {name: one for name, one in there.items() if os.fsdecode(name) not in hidden}
    return {
        "status": here.git(
            "status", "--porcelain=v2", "--untracked-files=all", "-z", *only, env=quiet
        ),
        "index": here.git("ls-files", "--stage", "-v", "-z", *only, env=quiet),
        "diff": here.git("diff", "--binary", "--no-ext-diff", "--full-index", *only, env=quiet),
        "staged": here.git(
            "diff", "--cached", "--binary", "--no-ext-diff", "--full-index", *only, env=quiet
        ),
        "merging": here.git("rev-parse", "--quiet", "--verify", "MERGE_HEAD", env=quiet, ok=(0, 1)),
        "files": {
            name: one for name, one in there.items() if not os.fsdecode(name).startswith(without)
        }
        if without
        else there,
    }


def require_resumed(
    here: Checkout, store: Store, made: Checkpoint, submodules: Sequence[str]
) -> None:
    """Assert that a resumed worktree equals this one.

    Ignored files do not count, nor do submodules with `submodules`.
    """
    without = ("sub",) if submodules else ()
    expected = seen(here, without=without, ignored=False)
    opened = resume_checkpoint(checkpoints_of_store(store), made)
    assert opened.made
    assert seen(Checkout(Path(opened.path)), without=without) == expected


def own_refs(here: Checkout) -> dict[str, str]:
    """Return HEAD, the stash and all refs that are not gitckpt's."""
    found = {name: oid for name, oid in here.refs().items() if not name.startswith(OURS)}
    return found | {
        "HEAD": here.git("rev-parse", "HEAD"),
        "branch": here.git("branch", "--show-current"),
    }


def kept(here: Checkout) -> dict[str, bytes]:
    """Return git's files of a repository and its worktrees.

    Objects, reftables and gitckpt's own files are left out.
    """
    common = Path(here.git("rev-parse", "--path-format=absolute", "--git-common-dir"))
    beside = (
        "objects/",
        "ckpt/",
        "modules/",
        "lfs/",
        "reftable/",
        *OURS,
        *(f"logs/{space}" for space in OURS),
    )
    found = {}
    for path in sorted(common.rglob("*")):
        name = str(path.relative_to(common))
        if (
            path.is_file()
            and not name.startswith(beside)
            and "/modules/" not in name
            and not path.name.startswith("ckpt-")
        ):
            found[name] = path.read_bytes()
    return found


def _sparse(*options: str) -> Callable[[Checkout], None]:
    def settle(here: Checkout) -> None:
        here.git("sparse-checkout", "set", *options)

    return settle


def _beyond(here: Checkout) -> None:
    """Write a file outside the patterns of the sparse checkout."""
    here.write("out/there", "written beyond\n")


def _partial(here: Checkout) -> None:
    here.git("sparse-checkout", "set", "--no-cone", "/*", "!/out/")
    here.git("checkout", "--quiet")


def _split(here: Checkout) -> None:
    here.git("config", "core.splitIndex", "true")
    here.git("update-index", "--split-index")


def _untracked_cache(here: Checkout) -> None:
    here.git("config", "core.untrackedCache", "true")
    here.git("update-index", "--force-untracked-cache")


def _watched_by_hook(here: Checkout) -> None:
    """Install a hook that answers with a token and reports everything as changed."""
    hook = here.main / ".git" / "monitor"
    hook.write_text("#!/bin/sh\nprintf 'token\\0/\\0'\n")
    hook.chmod(0o755)
    here.git("config", "core.fsmonitor", str(hook))
    here.git("status")


def _watched(here: Checkout) -> None:
    here.git("config", "core.fsmonitor", "true")


def _submodules(here: Checkout) -> None:
    hashing = here.git("rev-parse", "--show-object-format")
    sub = Checkout(here.path.parent / "sub")
    subprocess.run(
        [git_executable(), "init", "--quiet", f"--object-format={hashing}", str(sub.path)],
        check=True,
    )
    sub.commit("inner", inner="i\n")
    for path in SUBMODULES:
        here.git("submodule", "--quiet", "add", str(sub.path), path)


def _update_submodules(here: Checkout) -> None:
    here.git("submodule", "--quiet", "update", "--init")


def _move_submodules(here: Checkout) -> None:
    Checkout(here.path / "sub/dirty").write("inner", "changed\n")
    Checkout(here.path / "sub/dirty").write("untracked", "u\n")
    Checkout(here.path / "sub/moved").commit("moved on", inner="ii\n")


def _lfs(here: Checkout) -> None:
    here.git("lfs", "install", "--local")
    here.git("lfs", "track", "*.lfs")
    for name in ("big", "changed", "staged"):
        here.write(f"in/{name}.lfs", f"{name}\0" * 2000)


def _more_lfs(here: Checkout) -> None:
    here.write("in/staged.lfs", b"staged anew")
    here.git("add", "in/staged.lfs")
    here.write("in/staged.lfs", b"and changed again")
    here.write("in/changed.lfs", b"changed" * 500)
    here.write("new.lfs", b"untracked")


def _odd(here: Checkout) -> None:
    for name in ODD:
        here.write(os.fsdecode(name), "odd\n")


def _more_odd(here: Checkout) -> None:
    for name, content in zip(
        ODD, ("changed\n", "odd\n", "staged\n", "", "changed too\n"), strict=True
    ):
        here.write(os.fsdecode(name), content)
    here.git("add", "--", os.fsdecode(ODD[2]))
    here.write(os.fsdecode(b"new \xe9\xff"), "untracked\n")


def _clash(here: Checkout) -> None:
    for name in ("readme", "in/Text", "DIR/a", "dir/A"):
        here.write(name, f"it is {name}\n")


def _more_clash(here: Checkout) -> None:
    here.write("readme", "changed\n")
    here.write("README", "CHANGED\n")
    here.write("dir/A", "staged\n")
    here.git("-c", "core.ignoreCase=false", "add", "dir/A")
    here.write("NEW", "untracked\n")
    here.write("new", "untracked, too\n")


def _ignoring_case(here: Checkout) -> None:
    _more_clash(here)
    here.git("config", "core.ignoreCase", "true")


def _config(name: str, value: str) -> Callable[[Checkout], None]:
    def begin(here: Checkout) -> None:
        here.git("config", name, value)

    return begin


def _attributes(here: Checkout) -> None:
    here.write(".gitattributes", "* text=auto eol=crlf\r\n")


def _many(here: Checkout) -> None:
    names = (
        (f"{number:03}", f"{other:03}") for number in range(100) for other in range(MANY // 100)
    )
    lines = "".join(f"M 100644 :1 {top}/{top}{end}\n" for top, end in names)
    commit = "commit refs/heads/main\ncommitter A <a@example.org> 1700000000 +0000\ndata 5\nmany\n"
    here.git("fast-import", "--quiet", data=f"blob\nmark :1\ndata 2\nx\n{commit}{lines}\n")


PLAIN = Kind("plain")
MANY_FILES = Kind("many", begin=_many, checkout=False, settle=reset)
KINDS = (
    PLAIN,
    Kind("sparse cone", settle=_sparse("--cone", "--no-sparse-index", "in"), enrich=_beyond),
    Kind("sparse no-cone", settle=_sparse("--no-cone", "/*", "!/out/"), enrich=_beyond),
    Kind("sparse index", settle=_sparse("--cone", "--sparse-index", "in")),
    Kind("sparse index, beyond", settle=_sparse("--cone", "--sparse-index", "in"), enrich=_beyond),
    Kind("split index", settle=_split),
    Kind("untracked cache", settle=_untracked_cache),
    Kind("fsmonitor", settle=_watched),
    Kind("fsmonitor hook", settle=_watched_by_hook),
    Kind("partial", clone=("--filter=blob:none",), checkout=False, settle=_partial),
    Kind("shallow", clone=("--depth=1",)),
    Kind("submodules", begin=_submodules, settle=_update_submodules, enrich=_move_submodules),
    Kind("lfs", begin=_lfs, enrich=_more_lfs, needs="git-lfs"),
    Kind("autocrlf", begin=_config("core.autocrlf", "true"), newline="\r\n"),
    Kind("eol crlf", begin=_attributes, newline="\r\n"),
    Kind("case clash", begin=_clash, enrich=_more_clash),
    Kind("case ignored", begin=_clash, enrich=_ignoring_case),
    Kind("odd names", begin=_odd, enrich=_more_odd),
)
CELLS = [
    Cell(kind, place, hashing, refs)
    for kind in KINDS
    for place in ("main", "linked")
    for hashing in ("sha1", "sha256")
    for refs in ("files", "reftable")
]
