"""Which repository and worktree we are in, and how to call git there."""

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

    ConfigEntries: TypeAlias = list[tuple[str, str, str]]
    """Of each entry of a configuration the file that it stands in ("" for none), its name and its value, in the order git reads them."""
    Stamps: TypeAlias = tuple[dict[str, str], dict[str, str]]
    """What the environment says of a configuration; and what each file of it looks like, "" for one that is not there."""

BRANCHES = "refs/heads/"
OF_A_WORKTREE = ("refs/bisect/", "refs/worktree/", "refs/rewritten/")
"""Where each worktree has refs of its own."""

PSEUDO_REFS = (
    *("CHERRY_PICK_HEAD", "REVERT_HEAD", "REBASE_HEAD", "ORIG_HEAD", "AUTO_MERGE", "MERGE_AUTOSTASH"),
    *("BISECT_EXPECTED_REV", "BISECT_HEAD"),
)
"""What stands beside HEAD as a ref, in files or in a reftable."""


class Repository:
    """A repository as seen from one of its worktrees.

    Attributes:
        git_dir: absolute path of this worktree's administrative directory.
        common_dir: absolute path of the directory that all worktrees share; equals `git_dir` in the main worktree.
        worktree: absolute path of the top of this worktree; None in a bare repository or inside a git directory.
        object_format: "sha1" or "sha256".
        git: calls git here.
        cat_file: reads refs and objects here, through one long-lived process that the first question starts.
        main: the top of the main worktree, in a tuple once `administration.main_worktree` has found it, or that there is none.
        configuration: what `config` has read of git's, and what tells whether it is as it was; None before, and where nothing would tell.
    """

    def __init__(self, git_dir: str, worktree: str | None, object_format: str = "sha1") -> None:
        self.git_dir = git_dir
        self.common_dir = common_dir(git_dir)
        self.worktree = worktree
        self.object_format = object_format
        self.git = Git(git_dir, worktree)
        self.cat_file = CatFile(self.git)
        self.main: tuple[str | None] | None = None
        self.configuration: tuple[ConfigEntries, Stamps] | None = None

    @property
    def is_linked(self) -> bool:
        """Whether this is a linked worktree."""
        return self.git_dir != self.common_dir

    @property
    def has_reftable(self) -> bool:
        """Whether refs are kept in reftables rather than in files."""
        return os.path.isdir(f"{self.common_dir}/reftable")

    def cuts(self) -> bytes:
        """Return what `shallow` and `info/grafts` say: git, a gc too, takes the commits there to have other parents."""
        contents = []
        for name in ("shallow", "info/grafts"):
            try:
                with open(os.path.join(self.common_dir, name), "rb") as file:
                    contents.append(file.read())
            except OSError:  # mostly there is none
                continue
        return b"".join(contents)

    @property
    def private_dir(self) -> str:
        """Where derived data and logs live; everything in it may be deleted at any time.

        Raises:
            WorktreeError: it is a link, or somebody else's.
        """
        path = os.path.join(self.common_dir, "ckpt")
        premises.private(path, self.common_dir, make=False)
        return path

    def make_private_dir(self) -> str:
        """Returns `private_dir`, created where it was missing, for those alone with whom the repository is shared.

        Raises:
            RepositoryError: it cannot be created.
            WorktreeError: as `private_dir`.
        """
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
        """Returns a path in the private directory for a file or a directory of this process's own. Errors: as `make_private_dir`.

        Args:
            kind: what it is for. Who sweeps knows each kind, and by the name whether the process is alive.
        """
        return os.path.join(self.make_private_dir(), f"{kind}.{os.getpid()}.{os.urandom(4).hex()}")

    def head_ref(self) -> str:
        """Returns the full name of the ref that HEAD stands for, without a process where its file says so; "" when detached.

        Raises:
            WorktreeError: it cannot be read: git keeps nothing of this worktree any more, perhaps.
        """
        path = os.path.join(self.git_dir, "HEAD")
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                said = file.read().removesuffix("\n")
        except OSError as error:
            raise WorktreeError(f"cannot read {path}: {error.strerror}", hint="see what is wrong: git ckpt doctor") from None
        ref = said.removeprefix("ref: ").strip()
        if ref == "refs/heads/.invalid" or os.path.islink(path):  # kept in a reftable, or as git did it long ago
            done = self.git.run("symbolic-ref", "--quiet", "HEAD", ok=(0, 1))
            return done.out.decode("utf-8", "replace").removesuffix("\n")
        return ref if said.startswith("ref:") else ""

    def point_head(self, to: str, said: str = "", *, options: Sequence[str] = ()) -> None:
        """Lets HEAD stand for a branch, or point to a commit itself; index and files stay.

        Args:
            to: full name of the branch, or oid of the commit.
            said: what the reflog says of it; "" for nothing.
            options: those of git itself, such as `-c`.

        Raises:
            GitError: git refuses it.
        """
        reason = ("-m", said) if said else ()
        words = ("symbolic-ref",) if to.startswith("refs/") else ("update-ref", "--no-deref")
        self.git.run(*DURABLE, *options, *words, *reason, "HEAD", to)
        fsync.flush([os.path.join(self.git_dir, "HEAD"), self.git_dir])  # git flushes no symbolic ref

    def tip_of(self, branch: str) -> str | None:
        """Returns the commit that a branch points to; "" where there is none, None where none can have such a name.

        Args:
            branch: its short name, which somebody else may have chosen.
        """
        if self.git.run("check-ref-format", BRANCHES + branch, ok=(0, 1)).code != 0:
            return None
        found = self.cat_file.info(BRANCHES + branch)
        return found[0] if found is not None else ""

    def pseudo_ref(self, name: str) -> str | None:
        """Returns what a ref beside HEAD points to; None where it is not there, or its object is gone, as that of an old ORIG_HEAD may be.

        Args:
            name: such as "MERGE_HEAD".
        """
        is_there = self.has_reftable or os.path.isfile(os.path.join(self.git_dir, name))
        found = self.cat_file.info(name) if is_there else None
        return found[0] if found else None

    def operation(self) -> str | None:
        """Returns the operation in progress: "rebase", "am", "bisect", "merge", "cherry-pick" or "revert"; None where there is none."""

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
        if os.path.exists(todo):  # of several, the one that had stopped was committed or reset
            with open(todo, "rb") as file:
                return "revert" if file.read().split(None, 1)[:1] in ([b"revert"], [b"r"]) else "cherry-pick"
        return "bisect" if there("BISECT_LOG") else None

    def commit(self, rev: str) -> str:
        """Returns the oid of the commit that a rev names.

        Args:
            rev: what a person typed; gitrevisions(7) says what it may be. A tag stands for the commit that it points at.

        Raises:
            NotFoundError: it names none.
            UsageError: it is no string.
        """
        from gitckpt.model.arguments import require_text  # not for those who ask for no commit

        require_text("rev", rev)
        name = rev if rev.startswith(":/") else f"{rev}^{{commit}}"  # all that follows `:/` is a pattern
        try:
            is_argument = b"\0" not in os.fsencode(name)
        except UnicodeEncodeError:
            is_argument = False
        if is_argument:
            done = self.git.run("rev-parse", "--quiet", "--verify", "--end-of-options", name, ok=(0, 1, 128))
            oid = done.out.decode("ascii", "replace").strip()
            if done.code == 0 and ids.is_oid(oid):  # of `^HEAD` git prints `^` and the oid
                return oid
        raise NotFoundError(f"no commit goes by {rev!r}", hint="name a branch, a tag or a commit: git log --oneline --all")

    def commit_or_unborn(self, rev: str) -> str:
        """As `commit`; "" for HEAD on an unborn branch."""
        try:
            return self.commit(rev)
        except NotFoundError:
            if rev != "HEAD":
                raise
        self.require_unborn()
        return ""

    def require_unborn(self) -> None:
        """Raises `RepositoryError` where HEAD has a commit after all, which is missing: a power cut takes what `git commit` wrote."""
        oid = self.git.run("rev-parse", "--quiet", "--verify", "HEAD", ok=(0, 1, 128)).out.decode("ascii", "replace").strip()
        if oid:
            raise lost_commit(oid)
        emptied = self.emptied_refs()
        if emptied is not None:
            raise RepositoryError(f"{emptied} is empty: the branch may have been in it", hint=EMPTIED)

    def emptied_refs(self) -> str | None:
        """Returns the file of packed refs where it is of length zero, as a cut leaves it: git, which writes a header, says nothing."""
        path = os.path.join(self.common_dir, "packed-refs")
        try:
            return path if os.stat(path).st_size == 0 else None
        except OSError:
            return None

    def close(self) -> None:
        """Ends the long-lived process."""
        self.cat_file.close()


_WHICH = ("GIT_DIR", "GIT_WORK_TREE", "GIT_COMMON_DIR")
_NONE = "not a git repository: "
_ELSEWHERE = ("not a git repository", "Invalid path", "not a valid path", "gitfile")
"""What git says where a variable leads to nothing; what else it says is of a repository that is there."""

_SEARCHED = "(or any"
"""What else it says where it has found nothing in any directory above, either."""

EMPTIED = "fetch what was in it from a clone, or look up in .git/logs where refs were; then delete the file; see more: git ckpt verify"
"""What to do about a file of packed refs that holds nothing."""


def lost_commit(oid: str) -> RepositoryError:
    """Returns what to say of a commit that HEAD points to, and that cannot be read."""
    return RepositoryError(
        f"the commit {oid}, which HEAD points to, is missing or damaged",
        hint="fetch it from where it still is, or go back to where HEAD was before: git reset --soft HEAD@{1}; see all: git ckpt verify",
    )


def open_repository(path: str = ".", *, meanwhile: Callable[[], object] | None = None, by_variables: bool = True) -> Repository:
    """Returns what `discover` does, after a look at the version of git; `meanwhile` and `by_variables` as there.

    Raises:
        RepositoryError: there is none, git refuses it, or git is too old.
    """
    asked = ask_version()
    try:
        return discover(path, meanwhile=meanwhile, by_variables=by_variables)
    finally:
        require_git(asked)  # if it is too old, that is why


def discover(path: str = ".", *, meanwhile: Callable[[], object] | None = None, by_variables: bool = True) -> Repository:
    """Returns the repository that `path` is in, found as git finds it.

    Args:
        path: a directory.
        meanwhile: is called while git looks.
        by_variables: whether `GIT_DIR` and the like are respected.

    Raises:
        RepositoryError: there is none, git refuses it, or git itself is older than `command.MINIMUM`;
            or it is a bare one that lies in the worktree of another.
    """
    if not os.path.isdir(path):
        raise RepositoryError(f"no such directory: {path}")
    ask = [git_executable(), "-C", path, "rev-parse", "--path-format=absolute"]
    what = ["--is-bare-repository", "--is-inside-git-dir", "--show-object-format", "--git-dir", "--show-toplevel"]
    child = Child([*ask, *what], environment(keep_local=by_variables))
    if meanwhile is not None:
        meanwhile()
    done = child.communicate()
    # The last question is one too many where there is no worktree; the others are answered all the same.
    said = os.fsdecode(done.out).split("\n", 3)
    if done.code != 0 and len(said) < 4:
        raise _refused(path, done, by_variables=by_variables)
    if said[0] not in ("true", "false") or len(said) < 4:  # git before 2.31 repeats the option that it does not know
        require_git()
        raise RepositoryError(f"{git_executable()} does not answer as git does", hint="name another one in GITCKPT_GIT")
    bare, inside, object_format, rest = said
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
    """Refuse a repository without `.git` that was only found, in the worktree of another one.

    A branch can track such a directory, with a configuration whose commands git runs. It cannot
    track one called `.git`. git's own remedy, `safe.bareRepository`, refuses all bare repositories.
    What the configuration says, `core.bare` and `core.worktree` too, decides nothing here.
    """
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
                return  # a worktree of its own around it: `.git` leads to `.bare` beside it
        elif not os.path.lexists(os.path.join(dot_git, "HEAD")):
            continue
        from gitckpt.model.arguments import shell_word

        message = f"{own} is a bare repository in the worktree {above}: its settings may come from a branch"
        trusted = f"if you trust it: git --git-dir={shell_word(own)} ckpt …"
        raise RepositoryError(message, hint=f"{trusted}; for the repository around it: cd {shell_word(above)}")


def _two_paths(lines: str) -> tuple[str, str]:
    """Splits two absolute paths, the first that of a directory, which a line break separates; they may hold others."""
    at = lines.find("\n/")
    while at >= 0 and not os.path.isdir(lines[:at]):
        at = lines.find("\n/", at + 1)
    return lines[:at], lines[at + 1 :]


def common_dir(git_dir: str) -> str:
    """Returns the directory that all worktrees of a repository share (gitrepository-layout(5), `commondir`)."""
    try:
        with open(os.path.join(git_dir, "commondir"), "rb") as file:
            relative = os.fsdecode(file.read().removesuffix(b"\n"))
    except FileNotFoundError:
        return git_dir
    return os.path.normpath(os.path.join(git_dir, relative))


def _refused(path: str, done: Completed, *, by_variables: bool) -> RepositoryError:
    """Returns why there is no repository, in git's words or plainer ones; `by_variables` as for `discover`."""
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
        given.remove("GIT_WORK_TREE")  # it says nothing of where a repository is
    if given:
        values = ", ".join(f"{name} is {os.environ[name]!r}" for name in given)
        return RepositoryError(f"git finds no repository at {where}, as {values}: {first}", hint=f"go without: unset {' '.join(given)}")
    if named := first.partition(_NONE)[2].strip("'"):  # a `.git` file says so
        named = _named_above(where) if named == "(null)" else named
        return RepositoryError(f"{where} belongs to {named}, which is no git repository any more", hint=_cure_of_worktree(named))
    if "not a git repository" in done.complaint:
        return RepositoryError(f"not in a git repository: {where}", hint="go to one, or make one: git init")
    cure = next((line for line in lines if line.startswith("git config")), None)
    return RepositoryError(f"git refuses the repository at {where}: {first}", hint=cure)


def _named_above(path: str) -> str:
    """Returns what the next `.git` file says, from a directory upwards: git 2.55 has forgotten it by the time it complains."""
    while True:
        try:
            with open(os.path.join(path, ".git"), "rb") as file:
                return os.path.normpath(os.path.join(path, os.fsdecode(file.read().removesuffix(b"\n").removeprefix(b"gitdir: "))))
        except OSError:
            above = os.path.dirname(path)
            if above == path:  # somebody has just deleted it
                return path
            path = above


def _cure_of_worktree(git_dir: str) -> str:
    """Returns what to do where git does not take that for a repository which a worktree names as its own."""
    from gitckpt.model.arguments import shell_word

    common, name = os.path.split(os.path.dirname(git_dir))
    if name != "worktrees" or not os.path.isdir(common):
        return f"see whether it was moved: {git_dir}"
    there = f"git -C {shell_word(os.path.dirname(common) if os.path.basename(common) == '.git' else common)}"
    if os.path.isdir(git_dir):
        return f"see what is wrong: {there} ckpt verify"
    what = "git has forgotten it, and its files are as they were: make another worktree, and copy there what you need"
    return f"{what}: {there} worktree add DIR"
