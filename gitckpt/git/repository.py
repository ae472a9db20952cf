"""Find the repository and worktree of a path, and call git there."""

from __future__ import annotations

import os

from gitckpt.git import fsync
from gitckpt.git.catfile import CatFileProcess
from gitckpt.git.command import DURABLE, GitRunner, require_git_version, start_git_version
from gitckpt.git.files import private_dirs
from gitckpt.git.process import Child, describe_exit, git_environment, git_executable
from gitckpt.model import ids
from gitckpt.model.errors import NotFoundError, RepositoryError, WorktreeError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypeAlias

    from gitckpt.git.command import Counted
    from gitckpt.git.process import ProcResult

    ConfigEntries: TypeAlias = list[tuple[str, str, str]]  # file ("" for none), name, value
    # Relevant environment variables; stamp of each configuration file, "" for a missing one.
    Stamps: TypeAlias = tuple[dict[str, str], dict[str, str]]

BRANCHES = "refs/heads/"
OF_A_WORKTREE = ("refs/bisect/", "refs/worktree/", "refs/rewritten/")
# Refs beside HEAD, in files or in a reftable.
PSEUDO_REFS = (
    *("CHERRY_PICK_HEAD", "REVERT_HEAD", "REBASE_HEAD", "ORIG_HEAD", "AUTO_MERGE"),
    *("MERGE_AUTOSTASH", "BISECT_EXPECTED_REV", "BISECT_HEAD"),
)


class Repository:
    """A repository and one of its worktrees (None if bare); all paths are absolute."""

    def __init__(self, git_dir: str, worktree: str | None, object_format: str = "sha1") -> None:
        self.git_dir = git_dir
        self.common_dir = read_common_dir(git_dir)
        self.worktree = worktree
        self.object_format = object_format
        self.git = GitRunner(git_dir, worktree)
        self.cat_file = CatFileProcess(self.git)
        self.main: tuple[str | None] | None = None  # set by `administration.main_worktree`
        self.configuration: tuple[ConfigEntries, Stamps] | None = None  # cached by `config`
        # Receives the name of a task, the number of files done, and the total.
        self.progress: Callable[[str, int, int], object] | None = None

    def counter(self, task: str, start: int = 0, total: int | None = None) -> Counted | None:
        """Return a function that reports the progress of a task; None if it is not wanted.

        `start` and `total` are for one of several calls: the items done before, and all items.
        """
        progress = self.progress
        if progress is None:
            return None
        return lambda count, maximum: progress(task, start + count, total or maximum)

    @property
    def is_linked(self) -> bool:
        return self.git_dir != self.common_dir

    @property
    def has_reftable(self) -> bool:
        return os.path.isdir(f"{self.common_dir}/reftable")

    def read_shallow_and_grafts(self) -> bytes:
        # git, and its gc, replaces the parents of the commits in these files.
        from gitckpt.git.filesystem import read_or_empty  # the hook does not need it

        names = ("shallow", "info/grafts")  # usually missing
        return b"".join(read_or_empty(os.path.join(self.common_dir, name)) for name in names)

    @property
    def private_dir(self) -> str:
        """The directory of gitckpt's derived data and logs, which users may delete."""
        return private_dirs.check_private(f"{self.common_dir}/ckpt", self.common_dir, make=False)

    def make_private_dir(self) -> str:
        try:
            return private_dirs.check_private(f"{self.common_dir}/ckpt", self.common_dir, make=True)
        except OSError as error:
            from gitckpt.model.arguments import shell_quoted

            message = f"cannot write to {self.common_dir}: {error.strerror}"
            hint = f"make it writable: chmod -R u+w {shell_quoted(self.common_dir)}"
            raise RepositoryError(message, hint=hint) from None

    def scratch_path(self, kind: str) -> str:
        """Return an unused path in the private directory, named `<kind>.<pid>.<digits>`."""
        return os.path.join(self.make_private_dir(), f"{kind}.{os.getpid()}.{os.urandom(4).hex()}")

    def head_ref(self) -> str:
        """Return the full name of the branch that HEAD points to; "" if HEAD is detached."""
        path = os.path.join(self.git_dir, "HEAD")
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                content = file.read().removesuffix("\n")
        except OSError as error:
            hint = "find the cause: git ckpt doctor"
            raise WorktreeError(f"cannot read {path}: {error.strerror}", hint=hint) from None
        ref = content.removeprefix("ref: ").strip()
        # A reftable, or a symlink of an old git.
        if ref == "refs/heads/.invalid" or os.path.islink(path):
            result = self.git.run("symbolic-ref", "--quiet", "HEAD", ok=(0, 1))
            return result.out.decode("utf-8", "replace").removesuffix("\n")
        return ref if content.startswith("ref:") else ""

    def set_head(self, to: str, message: str = "", *, options: Sequence[str] = ()) -> None:
        """Set HEAD to a commit or a branch (full name); leave index and files unchanged."""
        message_options = ("-m", message) if message else ()
        words = ("symbolic-ref",) if to.startswith("refs/") else ("update-ref", "--no-deref")
        self.git.run(*DURABLE, *options, *words, *message_options, "HEAD", to)
        # git flushes no symbolic ref.
        fsync.flush([os.path.join(self.git_dir, "HEAD"), self.git_dir])

    def read_branch_tip(self, branch: str) -> str | None:
        """Return a branch's commit; "" for a missing branch, None for an invalid name."""
        if self.git.run("check-ref-format", BRANCHES + branch, ok=(0, 1)).code != 0:
            return None
        entry = self.cat_file.info(BRANCHES + branch)
        return entry[0] if entry is not None else ""

    def read_pseudo_ref(self, name: str) -> str | None:
        """Return the oid of a ref such as ORIG_HEAD; None if it or its object is missing."""
        exists = self.has_reftable or os.path.isfile(os.path.join(self.git_dir, name))
        target = self.cat_file.info(name) if exists else None
        return target[0] if target else None

    def operation_in_progress(self) -> str | None:
        # Such as "rebase".

        def has_state(name: str) -> bool:
            is_file = os.path.exists(os.path.join(self.git_dir, name))
            return is_file or (name in PSEUDO_REFS and self.read_pseudo_ref(name) is not None)

        operation = next((operation for name, operation in _OPERATIONS if has_state(name)), None)
        if operation is not None:
            return operation
        todo_path = os.path.join(self.git_dir, "sequencer", "todo")
        if os.path.exists(todo_path):  # a series whose stopped commit was committed or reset
            with open(todo_path, "rb") as file:
                is_revert = file.read().split(None, 1)[:1] in ([b"revert"], [b"r"])
            return "revert" if is_revert else "cherry-pick"
        return "bisect" if has_state("BISECT_LOG") else None

    def resolve_commit(self, rev: str) -> str:
        """Return the oid of the commit that a rev names, or raise `NotFoundError`."""
        from gitckpt.model.arguments import require_text  # lazy: most callers need no commit

        require_text("rev", rev)
        # The rest of `:/…` is a pattern.
        name = rev if rev.startswith(":/") else f"{rev}^{{commit}}"
        words = ("rev-parse", "--quiet", "--verify", "--end-of-options", name)
        try:
            result = self.git.run(*words, ok=(0, 1, 128))
            # For `^HEAD`, git prints `^` and the oid.
            if result.code == 0 and ids.is_oid(result.text):
                return result.text
        except ValueError:
            pass  # a NUL or a lone surrogate cannot be an argument
        hint = "name a branch, a tag or a commit: git log --oneline --all"
        raise NotFoundError(f"no commit is named {rev!r}", hint=hint)

    def resolve_commit_or_unborn(self, rev: str) -> str:
        """Return the oid of a commit, but "" for HEAD on an unborn branch."""
        try:
            return self.resolve_commit(rev)
        except NotFoundError:
            if rev != "HEAD":
                raise
        self.require_unborn_head()
        return ""

    def require_unborn_head(self) -> None:
        """Raise `RepositoryError` if HEAD names a commit that is missing or damaged."""
        oid = self.git.run("rev-parse", "--quiet", "--verify", "HEAD", ok=(0, 1, 128)).text
        if oid:
            raise lost_commit_error(oid)

    def close(self) -> None:
        self.cat_file.close()


# A file or ref in the git directory, and the operation in progress that it shows.
_OPERATIONS = (
    ("rebase-apply/applying", "am"),
    *(("rebase-apply", "rebase"), ("rebase-merge", "rebase"), ("MERGE_HEAD", "merge")),
    *(("CHERRY_PICK_HEAD", "cherry-pick"), ("REVERT_HEAD", "revert")),
)
_LOCATION_VARIABLES = ("GIT_DIR", "GIT_WORK_TREE", "GIT_COMMON_DIR")
_NOT_A_REPOSITORY = "not a git repository: "
# git's complaints where a variable leads to no repository; others concern an existing one.
_MISLEADING = ("not a git repository", "Invalid path", "not a valid path", "gitfile")
_SEARCHED = "(or any"  # git searched the parent directories, too


def lost_commit_error(oid: str) -> RepositoryError:
    message = f"the commit {oid}, which HEAD points to, is missing or damaged"
    undo = "go back to the previous one: git reset --soft HEAD@{1}; see all damage: git ckpt verify"
    return RepositoryError(message, hint=f"fetch the commit from another clone, or {undo}")


def open_repository(
    path: str = ".", *, meanwhile: Callable[[], object] | None = None, by_variables: bool = True
) -> Repository:
    child = start_git_version()
    try:
        return discover_repository(path, meanwhile=meanwhile, by_variables=by_variables)
    finally:
        require_git_version(child)  # an old git explains a failure of `discover_repository`


def discover_repository(
    path: str = ".", *, meanwhile: Callable[[], object] | None = None, by_variables: bool = True
) -> Repository:
    """Return the repository and worktree that contain the directory `path`.

    `meanwhile` is called while git runs. With `by_variables`, git obeys variables such as GIT_DIR.
    Raises `RepositoryError` if git finds no repository.
    """
    if not os.path.isdir(path):
        raise RepositoryError(f"no such directory: {path}")
    command = [git_executable(), "-C", path, "rev-parse", "--path-format=absolute"]
    command += ["--is-bare-repository", "--is-inside-git-dir", "--show-object-format"]
    command += ["--git-dir", "--show-toplevel"]
    child = Child(command, git_environment(keep_local=by_variables))
    if meanwhile is not None:
        meanwhile()
    result = child.communicate()
    # `--show-toplevel` fails without a worktree; git still answers the others.
    answers = os.fsdecode(result.out).split("\n", 3)
    if result.code != 0 and len(answers) < 4:
        raise _explain_failure(path, result, by_variables=by_variables)
    # git before 2.31 echoes unknown options.
    if answers[0] not in ("true", "false") or len(answers) < 4:
        require_git_version()
        message = f"{git_executable()} does not behave like git"
        raise RepositoryError(message, hint="set GITCKPT_GIT to the path of git")
    bare_answer, inside_answer, object_format, paths = answers
    if bare_answer == "true" or inside_answer == "true":
        git_dir, worktree = paths.removesuffix("\n"), None
    elif result.code != 0:
        raise _explain_failure(path, result, by_variables=by_variables)
    else:
        git_dir, worktree = _split_path_lines(paths.removesuffix("\n"))
    if not (by_variables and "GIT_DIR" in os.environ):
        _reject_tracked_git_dir(path, git_dir)
    return Repository(git_dir, worktree, object_format)


def _reject_tracked_git_dir(path: str, git_dir: str) -> None:
    # Refuse a repository not called `.git` that was only found inside the worktree of another one:
    # a branch can track such a directory, with a configuration whose commands git runs. It cannot
    # track `.git`. git's `safe.bareRepository` would refuse all bare repositories. The found
    # configuration, including `core.bare` and `core.worktree`, must not decide here.
    git_path = os.path.realpath(git_dir)
    if ".git" in git_path.split(os.sep):
        return
    if not f"{os.path.realpath(path)}/".startswith(f"{git_path}/"):
        return
    parent_dir = git_path
    while parent_dir != os.path.dirname(parent_dir):
        parent_dir = os.path.dirname(parent_dir)
        dot_git = os.path.join(parent_dir, ".git")
        if os.path.isfile(dot_git):
            found_common_dir = read_common_dir(os.path.realpath(_read_git_file(parent_dir)))
            own_directories = (f"{found_common_dir}/worktrees/", f"{found_common_dir}/modules/")
            if git_path == found_common_dir or git_path.startswith(own_directories):
                return  # its own worktree, whose `.git` leads to a `.bare` beside it
        elif not os.path.lexists(os.path.join(dot_git, "HEAD")):
            continue
        from gitckpt.model.arguments import shell_quoted

        message = f"{git_path} is a bare repository in the worktree {parent_dir}"
        override_hint = f"to use it all the same: git --git-dir={shell_quoted(git_path)} ckpt …"
        hint = f"{override_hint}; to use the enclosing repository: cd {shell_quoted(parent_dir)}"
        raise RepositoryError(
            f"{message}: a commit may have put it and its settings there", hint=hint
        )


def _split_path_lines(lines: str) -> tuple[str, str]:
    # The paths may contain newlines themselves; the first one is a directory.
    offset = lines.find("\n/")
    while offset >= 0 and not os.path.isdir(lines[:offset]):
        offset = lines.find("\n/", offset + 1)
    return lines[:offset], lines[offset + 1 :]


def read_common_dir(git_dir: str) -> str:
    # gitrepository-layout(5), `commondir`
    try:
        with open(os.path.join(git_dir, "commondir"), "rb") as file:
            relative_path = os.fsdecode(file.read().removesuffix(b"\n"))
    except FileNotFoundError:
        return git_dir
    return os.path.normpath(os.path.join(git_dir, relative_path))


def _explain_failure(path: str, result: ProcResult, *, by_variables: bool) -> RepositoryError:
    try:
        directory = os.path.abspath(path)
    except FileNotFoundError:
        message = "the current directory does not exist any more"
        return RepositoryError(message, hint="change to another directory: cd DIR")
    lines = [line.strip() for line in result.error_text.splitlines() if line.strip()]
    default_reason = (
        f"git was {describe_exit(result.code)}" if result.code < 0 else "git gave no reason"
    )
    reason = lines[0].removeprefix("fatal: ") if lines else default_reason
    if reason.endswith(":"):
        reason = " ".join([reason, ", ".join(lines[1:])])
    is_location_wrong = any(words in reason for words in _MISLEADING)
    variables = (
        [name for name in _LOCATION_VARIABLES if name in os.environ]
        if by_variables and is_location_wrong
        else []
    )
    if _SEARCHED in reason and "GIT_WORK_TREE" in variables:
        variables.remove("GIT_WORK_TREE")  # it does not locate the repository
    if variables:
        values = ", ".join(f"{name} is {os.environ[name]!r}" for name in variables)
        message = f"git finds no repository at {directory}, as {values}: {reason}"
        return RepositoryError(message, hint=f"ignore the variables: unset {' '.join(variables)}")
    if git_dir := reason.partition(_NOT_A_REPOSITORY)[2].strip("'"):  # named by a `.git` file
        git_dir = _read_git_file(directory) if git_dir == "(null)" else git_dir
        message = f"{directory} belongs to {git_dir}, which is no longer a git repository"
        return RepositoryError(message, hint=_hint_for_lost_git_dir(git_dir))
    if "not a git repository" in result.error_text:
        message = f"not in a git repository: {directory}"
        return RepositoryError(message, hint="change to a repository, or create one: git init")
    command = next((line for line in lines if line.startswith("git config")), None)
    return RepositoryError(f"git refuses the repository at {directory}: {reason}", hint=command)


def _read_git_file(path: str) -> str:
    # Reads the next `.git` file upwards: git 2.55 prints "(null)" instead of its content.
    while True:
        try:
            with open(os.path.join(path, ".git"), "rb") as file:
                content = file.read().removesuffix(b"\n").removeprefix(b"gitdir: ")
            return os.path.normpath(os.path.join(path, os.fsdecode(content)))
        except OSError:
            parent_dir = os.path.dirname(path)
            if parent_dir == path:  # deleted meanwhile
                return path
            path = parent_dir


def _hint_for_lost_git_dir(git_dir: str) -> str:
    from gitckpt.model.arguments import shell_quoted

    common_path, name = os.path.split(os.path.dirname(git_dir))
    if name != "worktrees" or not os.path.isdir(common_path):
        return f"see whether this directory was moved: {git_dir}"
    top = os.path.dirname(common_path) if os.path.basename(common_path) == ".git" else common_path
    git_command = f"git -C {shell_quoted(top)}"
    if os.path.isdir(git_dir):
        return f"see what is wrong: {git_command} ckpt verify"
    return f"make another worktree and copy your files there: {git_command} worktree add DIR"
