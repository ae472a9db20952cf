"""Find the repository and worktree of a path, and call git there."""

from __future__ import annotations

import os

from gitckpt.git import fsync
from gitckpt.git.catfile import CatFile
from gitckpt.git.command import DURABLE, Git, ask_version, require_git
from gitckpt.git.files import premises
from gitckpt.git.process import Child, ending, environment, git_executable
from gitckpt.model import ids
from gitckpt.model.errors import NotFoundError, RepositoryError, WorktreeError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypeAlias

    from gitckpt.git.process import Completed

    ConfigEntries: TypeAlias = list[tuple[str, str, str]]  # file ("" for none), name, value
    # Relevant environment variables; stamp of each configuration file, "" for a missing one.
    Stamps: TypeAlias = tuple[dict[str, str], dict[str, str]]

BRANCHES = "refs/heads/"
OF_A_WORKTREE = ("refs/bisect/", "refs/worktree/", "refs/rewritten/")

# Refs beside HEAD, in files or in a reftable.
PSEUDO_REFS = (
    *("CHERRY_PICK_HEAD", "REVERT_HEAD", "REBASE_HEAD", "ORIG_HEAD", "AUTO_MERGE", "MERGE_AUTOSTASH"),
    *("BISECT_EXPECTED_REV", "BISECT_HEAD"),
)


class Repository:
    """A repository as seen from one of its worktrees.

    `worktree` is None in a bare repository or inside a git directory. `common_dir` is shared by all
    worktrees, and equals `git_dir` in the main one. All paths are absolute.
    """

    def __init__(self, git_dir: str, worktree: str | None, object_format: str = "sha1") -> None:
        self.git_dir = git_dir
        self.common_dir = common_dir(git_dir)
        self.worktree = worktree
        self.object_format = object_format
        self.git = Git(git_dir, worktree)
        self.cat_file = CatFile(self.git)
        self.main: tuple[str | None] | None = None  # set by `administration.main_worktree`
        self.configuration: tuple[ConfigEntries, Stamps] | None = None  # cached by `config`

    @property
    def is_linked(self) -> bool:
        return self.git_dir != self.common_dir

    @property
    def has_reftable(self) -> bool:
        return os.path.isdir(f"{self.common_dir}/reftable")

    def cuts(self) -> bytes:
        # git, and its gc, replaces the parents of the commits in these files.
        contents = []
        for name in ("shallow", "info/grafts"):
            try:
                with open(os.path.join(self.common_dir, name), "rb") as file:
                    contents.append(file.read())
            except OSError:  # usually missing
                continue
        return b"".join(contents)

    @property
    def private_dir(self) -> str:
        """The directory of derived data and logs; it may be deleted at any time."""
        path = os.path.join(self.common_dir, "ckpt")
        premises.private(path, self.common_dir, make=False)
        return path

    def make_private_dir(self) -> str:
        path = os.path.join(self.common_dir, "ckpt")
        try:
            premises.private(path, self.common_dir, make=True)
        except OSError as error:
            from gitckpt.model.arguments import shell_word

            message = f"cannot write to {self.common_dir}: {error.strerror}"
            hint = f"make it writable: chmod -R u+w {shell_word(self.common_dir)}"
            raise RepositoryError(message, hint=hint) from None
        return path

    def scratch(self, kind: str) -> str:
        """Return a new path in the private directory; cleanup knows each kind and the pid."""
        return os.path.join(self.make_private_dir(), f"{kind}.{os.getpid()}.{os.urandom(4).hex()}")

    def head_ref(self) -> str:
        """Return the full name of the ref that HEAD points to; "" when detached."""
        path = os.path.join(self.git_dir, "HEAD")
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                content = file.read().removesuffix("\n")
        except OSError as error:
            raise WorktreeError(f"cannot read {path}: {error.strerror}", hint="see what is wrong: git ckpt doctor") from None
        ref = content.removeprefix("ref: ").strip()
        if ref == "refs/heads/.invalid" or os.path.islink(path):  # a reftable, or a symlink of an old git
            done = self.git.run("symbolic-ref", "--quiet", "HEAD", ok=(0, 1))
            return done.out.decode("utf-8", "replace").removesuffix("\n")
        return ref if content.startswith("ref:") else ""

    def point_head(self, to: str, said: str = "", *, options: Sequence[str] = ()) -> None:
        """Point HEAD to a branch (full name) or a commit; index and files stay."""
        reason = ("-m", said) if said else ()
        words = ("symbolic-ref",) if to.startswith("refs/") else ("update-ref", "--no-deref")
        self.git.run(*DURABLE, *options, *words, *reason, "HEAD", to)
        fsync.flush([os.path.join(self.git_dir, "HEAD"), self.git_dir])  # git flushes no symbolic ref

    def tip_of(self, branch: str) -> str | None:
        """Return the commit of a branch; "" if missing, None if the name is invalid."""
        if self.git.run("check-ref-format", BRANCHES + branch, ok=(0, 1)).code != 0:
            return None
        entry = self.cat_file.info(BRANCHES + branch)
        return entry[0] if entry is not None else ""

    def pseudo_ref(self, name: str) -> str | None:
        """Return the oid of a ref beside HEAD; None if it or its object is missing."""
        exists = self.has_reftable or os.path.isfile(os.path.join(self.git_dir, name))
        found = self.cat_file.info(name) if exists else None
        return found[0] if found else None

    def operation(self) -> str | None:
        """Return the operation in progress, such as "rebase", or None."""

        def there(name: str) -> bool:
            if os.path.exists(os.path.join(self.git_dir, name)):
                return True
            return name in PSEUDO_REFS and self.has_reftable and self.pseudo_ref(name) is not None

        if there("rebase-apply"):
            return "am" if there("rebase-apply/applying") else "rebase"
        for name, operation in (
            ("rebase-merge", "rebase"),
            ("MERGE_HEAD", "merge"),
            ("CHERRY_PICK_HEAD", "cherry-pick"),
            ("REVERT_HEAD", "revert"),
        ):
            if there(name):
                return operation
        todo = os.path.join(self.git_dir, "sequencer", "todo")
        if os.path.exists(todo):  # a series whose stopped commit was committed or reset
            with open(todo, "rb") as file:
                return "revert" if file.read().split(None, 1)[:1] in ([b"revert"], [b"r"]) else "cherry-pick"
        return "bisect" if there("BISECT_LOG") else None

    def commit(self, rev: str) -> str:
        """Return the oid of the commit that a rev names; tags are peeled.

        Raises:
            NotFoundError: it names no commit.
        """
        from gitckpt.model.arguments import require_text  # lazy: most callers need no commit

        require_text("rev", rev)
        name = rev if rev.startswith(":/") else f"{rev}^{{commit}}"  # the rest of `:/…` is a pattern
        try:
            is_argument = b"\0" not in os.fsencode(name)
        except UnicodeEncodeError:
            is_argument = False
        if is_argument:
            done = self.git.run("rev-parse", "--quiet", "--verify", "--end-of-options", name, ok=(0, 1, 128))
            oid = done.out.decode("ascii", "replace").strip()
            if done.code == 0 and ids.is_oid(oid):  # for `^HEAD` git prints `^` and the oid
                return oid
        raise NotFoundError(f"no commit goes by {rev!r}", hint="name a branch, a tag or a commit: git log --oneline --all")

    def commit_or_unborn(self, rev: str) -> str:
        """Return what `commit` returns, or "" for HEAD on an unborn branch."""
        try:
            return self.commit(rev)
        except NotFoundError:
            if rev != "HEAD":
                raise
        self.require_unborn()
        return ""

    def require_unborn(self) -> None:
        """Raise `RepositoryError` if a power cut has lost the commit of HEAD."""
        oid = self.git.run("rev-parse", "--quiet", "--verify", "HEAD", ok=(0, 1, 128)).out.decode("ascii", "replace").strip()
        if oid:
            raise lost_commit(oid)
        emptied = self.emptied_refs()
        if emptied is not None:
            raise RepositoryError(f"{emptied} is empty: the branch may have been in it", hint=EMPTIED)

    def emptied_refs(self) -> str | None:
        """Return the path of `packed-refs` if it is empty, as a power cut leaves it.

        git always writes a header, but reads an empty file without an error.
        """
        path = os.path.join(self.common_dir, "packed-refs")
        try:
            return path if os.stat(path).st_size == 0 else None
        except OSError:
            return None

    def close(self) -> None:
        self.cat_file.close()


_WHICH = ("GIT_DIR", "GIT_WORK_TREE", "GIT_COMMON_DIR")
_NONE = "not a git repository: "
# git's complaints where a variable leads to no repository; others concern an existing one.
_ELSEWHERE = ("not a git repository", "Invalid path", "not a valid path", "gitfile")

_SEARCHED = "(or any"  # git searched the parent directories, too

EMPTIED = "fetch what was in it from a clone, or look up in .git/logs where refs were; then delete the file; see more: git ckpt verify"


def lost_commit(oid: str) -> RepositoryError:
    return RepositoryError(
        f"the commit {oid}, which HEAD points to, is missing or damaged",
        hint="fetch it from where it still is, or go back to where HEAD was before: git reset --soft HEAD@{1}; see all: git ckpt verify",
    )


def open_repository(path: str = ".", *, meanwhile: Callable[[], object] | None = None, by_variables: bool = True) -> Repository:
    """Return the repository of a path, like `discover`, and check git's version."""
    asked = ask_version()
    try:
        return discover(path, meanwhile=meanwhile, by_variables=by_variables)
    finally:
        require_git(asked)  # an old git explains a failure of `discover`


def discover(path: str = ".", *, meanwhile: Callable[[], object] | None = None, by_variables: bool = True) -> Repository:
    """Return the repository that a directory is in, found as git finds it.

    `meanwhile` is called while git runs. `by_variables` respects `GIT_DIR` and the like.
    """
    if not os.path.isdir(path):
        raise RepositoryError(f"no such directory: {path}")
    ask = [git_executable(), "-C", path, "rev-parse", "--path-format=absolute"]
    what = ["--is-bare-repository", "--is-inside-git-dir", "--show-object-format", "--git-dir", "--show-toplevel"]
    child = Child([*ask, *what], environment(keep_local=by_variables))
    if meanwhile is not None:
        meanwhile()
    done = child.communicate()
    # `--show-toplevel` fails without a worktree; git still answers the others.
    answers = os.fsdecode(done.out).split("\n", 3)
    if done.code != 0 and len(answers) < 4:
        raise _refused(path, done, by_variables=by_variables)
    if answers[0] not in ("true", "false") or len(answers) < 4:  # git before 2.31 echoes unknown options
        require_git()
        raise RepositoryError(f"{git_executable()} does not answer as git does", hint="name another one in GITCKPT_GIT")
    bare, inside, object_format, rest = answers
    if bare == "true" or inside == "true":
        git_dir, worktree = rest.removesuffix("\n"), None
    elif done.code != 0:
        raise _refused(path, done, by_variables=by_variables)
    else:
        git_dir, worktree = _two_paths(rest.removesuffix("\n"))
    if not (by_variables and "GIT_DIR" in os.environ):
        _require_no_stranger(path, git_dir)
    return Repository(git_dir, worktree, object_format)


def _require_no_stranger(path: str, git_dir: str) -> None:
    # Refuse a repository not called `.git` that was only found inside the worktree of another one:
    # a branch can track such a directory, with a configuration whose commands git runs. It cannot
    # track `.git`. git's `safe.bareRepository` would refuse all bare repositories. The found
    # configuration, including `core.bare` and `core.worktree`, must not decide here.
    own = os.path.realpath(git_dir)
    if ".git" in own.split(os.sep) or not f"{os.path.realpath(path)}/".startswith(f"{own}/"):
        return
    above = own
    while (parent := os.path.dirname(above)) != above:
        above = parent
        dot_git = os.path.join(above, ".git")
        if os.path.isfile(dot_git):
            common = common_dir(os.path.realpath(_named_above(above)))
            if own == common or own.startswith((f"{common}/worktrees/", f"{common}/modules/")):
                return  # its own worktree, whose `.git` leads to a `.bare` beside it
        elif not os.path.lexists(os.path.join(dot_git, "HEAD")):
            continue
        from gitckpt.model.arguments import shell_word

        message = f"{own} is a bare repository in the worktree {above}: its settings may come from a branch"
        trusted = f"if you trust it: git --git-dir={shell_word(own)} ckpt …"
        raise RepositoryError(message, hint=f"{trusted}; for the repository around it: cd {shell_word(above)}")


def _two_paths(lines: str) -> tuple[str, str]:
    # The paths may contain newlines themselves; the first one is a directory.
    offset = lines.find("\n/")
    while offset >= 0 and not os.path.isdir(lines[:offset]):
        offset = lines.find("\n/", offset + 1)
    return lines[:offset], lines[offset + 1 :]


def common_dir(git_dir: str) -> str:
    # gitrepository-layout(5), `commondir`
    try:
        with open(os.path.join(git_dir, "commondir"), "rb") as file:
            relative = os.fsdecode(file.read().removesuffix(b"\n"))
    except FileNotFoundError:
        return git_dir
    return os.path.normpath(os.path.join(git_dir, relative))


def _refused(path: str, done: Completed, *, by_variables: bool) -> RepositoryError:
    try:
        where = os.path.abspath(path)
    except FileNotFoundError:
        return RepositoryError("the current directory does not exist any more", hint="go to another one: cd DIR")
    lines = [line.strip() for line in done.complaint.splitlines() if line.strip()]
    first = lines[0].removeprefix("fatal: ") if lines else f"git was {ending(done.code)}" if done.code < 0 else "git gave no reason"
    if first.endswith(":"):
        first = " ".join([first, ", ".join(lines[1:])])
    is_elsewhere = any(words in first for words in _ELSEWHERE)
    given = [name for name in _WHICH if name in os.environ] if by_variables and is_elsewhere else []
    if _SEARCHED in first and "GIT_WORK_TREE" in given:
        given.remove("GIT_WORK_TREE")  # it does not locate the repository
    if given:
        values = ", ".join(f"{name} is {os.environ[name]!r}" for name in given)
        return RepositoryError(f"git finds no repository at {where}, as {values}: {first}", hint=f"go without: unset {' '.join(given)}")
    if named := first.partition(_NONE)[2].strip("'"):  # named by a `.git` file
        named = _named_above(where) if named == "(null)" else named
        return RepositoryError(f"{where} belongs to {named}, which is no git repository any more", hint=_cure_of_worktree(named))
    if "not a git repository" in done.complaint:
        return RepositoryError(f"not in a git repository: {where}", hint="go to one, or make one: git init")
    cure = next((line for line in lines if line.startswith("git config")), None)
    return RepositoryError(f"git refuses the repository at {where}: {first}", hint=cure)


def _named_above(path: str) -> str:
    # Reads the next `.git` file upwards: git 2.55 prints "(null)" instead of its content.
    while True:
        try:
            with open(os.path.join(path, ".git"), "rb") as file:
                return os.path.normpath(os.path.join(path, os.fsdecode(file.read().removesuffix(b"\n").removeprefix(b"gitdir: "))))
        except OSError:
            above = os.path.dirname(path)
            if above == path:  # deleted meanwhile
                return path
            path = above


def _cure_of_worktree(git_dir: str) -> str:
    from gitckpt.model.arguments import shell_word

    common, name = os.path.split(os.path.dirname(git_dir))
    if name != "worktrees" or not os.path.isdir(common):
        return f"see whether it was moved: {git_dir}"
    git = f"git -C {shell_word(os.path.dirname(common) if os.path.basename(common) == '.git' else common)}"
    if os.path.isdir(git_dir):
        return f"see what is wrong: {git} ckpt verify"
    what = "git has forgotten it, and its files are as they were: make another worktree, and copy there what you need"
    return f"{what}: {git} worktree add DIR"
