"""Save and restore a merge, cherry-pick, revert, rebase, am or bisect in progress.

git stores this state (gitrepository-layout(5)) in files and refs. A snapshot stores the refs as
files, too, under the names of loose refs.
"""

from __future__ import annotations

import os

from gitckpt.git.files import private_dirs, regular
from gitckpt.git.repository import PSEUDO_REFS
from gitckpt.model import ids
from gitckpt.model.errors import WorktreeError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from gitckpt.git.objects.writer import ObjectDatabase
    from gitckpt.git.repository import Repository


FILES = (
    *("MERGE_HEAD", "MERGE_MODE", "MERGE_MSG", "MERGE_RR", "SQUASH_MSG", "BISECT_ANCESTORS_OK"),
    *("BISECT_FIRST_PARENT", "BISECT_LOG", "BISECT_NAMES", "BISECT_START", "BISECT_TERMS"),
)
DIRECTORIES = ("sequencer", "rebase-merge", "rebase-apply")
REFS = ("refs/bisect", "refs/rewritten")  # refs that belong to a single worktree
_BELOW_REFS = tuple(f"{space}/" for space in REFS)

_TRACE = "ORIG_HEAD"
# Exists during `git am`, which alone goes back to `ORIG_HEAD`. Otherwise, that ref is a trace of
# the last move of HEAD, even by a `stash`.
_AM = ("rebase-apply", "applying")

INSTRUCTIONS = "rebase-merge/git-rebase-todo"  # the remaining steps of a rebase, one per line

# For a checkpoint that was fetched: git runs commands that these files name.
FOREIGN = "the operation in progress is not restored, as it was captured in another repository"

_REBASES = ("rebase-merge", "rebase-apply")
# The commit that a rebase began at.
_STARTS = tuple(f"{directory}/orig-head" for directory in _REBASES)
_WITHOUT_COMMITS = ("AUTO_MERGE", "MERGE_MSG", "MERGE_RR", "SQUASH_MSG", "BISECT_NAMES")
_HEX = "0123456789abcdef"
_BRANCH = b"refs/heads/"
_DETACHED = b"detached HEAD\n"  # the content of `head-name` for a rebase that began on no branch


def collect_operation_files(repository: Repository) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    for name in FILES:
        path = os.path.join(repository.git_dir, name)
        if os.path.isfile(path):
            files[name] = _read_file(path)
    is_am = os.path.exists(os.path.join(repository.git_dir, *_AM))
    for name in PSEUDO_REFS:
        value = repository.read_pseudo_ref(name) if is_am or name != _TRACE else None
        if value is not None:
            files[name] = value.encode("ascii") + b"\n"
    for directory in DIRECTORIES:
        for parent, _, names in os.walk(os.path.join(repository.git_dir, directory)):
            for name in names:
                path = os.path.join(parent, name)
                files[os.path.relpath(path, repository.git_dir)] = _read_file(path)
    for ref, oid in _list_worktree_refs(repository).items():
        files[ref] = oid.encode("ascii") + b"\n"
    return files


def write_keep_commit(
    repository: Repository, objects: ObjectDatabase, files: Mapping[str, bytes], head: str
) -> str | None:
    """Write a commit that protects an operation's commits from gc; None if unneeded."""
    # Branches and reflogs that lead to these commits may be gone when the operation goes on.
    tips = _find_tips(repository, _find_named_commits(repository, files), head)
    if not tips:
        return None
    from gitckpt.git.objects import encoding

    commits = repository.cat_file.read_contents(tips)
    dates = [encoding.parse_committer_date(commit[2]) for commit in commits if commit is not None]
    oid, items = encoding.encode_merge_commit(tips, max(dates, default=0), repository.object_format)
    objects.write(items)
    return oid


def restore_operation(repository: Repository, files: Mapping[str, bytes]) -> None:
    """Restore an operation from `files`; ignore other files than git's."""
    require_ref_objects(repository, files)
    for name, oid in _select_refs(files).items():
        repository.git.run("update-ref", "--no-deref", name, oid)
    for name, content in files.items():
        if name in FILES or (name.split("/")[0] in DIRECTORIES and "/" in name and _is_safe(name)):
            path = os.path.join(repository.git_dir, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as file:
                file.write(content)


def find_rebased_branch(files: Mapping[str, bytes]) -> str | None:
    for directory in _REBASES:
        words = files.get(f"{directory}/head-name", b"").split()
        if len(words) == 1 and words[0].startswith(_BRANCH):
            return os.fsdecode(words[0].removeprefix(_BRANCH))
    return None


def is_branch_unmoved(repository: Repository, files: Mapping[str, bytes]) -> bool:
    """Return whether a rebase's branch has not moved; True for other operations."""
    branch = find_rebased_branch(files)
    if branch is None:
        return True
    starts = [files[name].strip() for name in _STARTS if name in files]
    tip = repository.cat_file.info(os.fsdecode(_BRANCH) + branch)
    return tip is not None and [tip[0].encode("ascii")] == starts


def would_move_branch(files: Mapping[str, bytes], branch: str | None, source: str | None) -> bool:
    # To continue or abort it moves HEAD (sequencer.c, builtin/am.c).
    moves_head = any(name.split("/")[0] in DIRECTORIES for name in files)
    return moves_head and branch is not None and branch != source


def moves_no_branch(repository: Repository, files: Mapping[str, bytes]) -> bool:
    # If the branch has moved, only where this very operation is in progress.
    return is_branch_unmoved(repository, files) or collect_operation_files(repository) == files


def detach_operation(repository: Repository, files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the files of an operation, edited so that its end moves no branch."""
    # A rebase sets its branch and others (git-rebase(1), `--update-refs`), even if they moved.
    new_files = {name: data for name, data in files.items() if name != "rebase-merge/update-refs"}
    for directory in _REBASES:
        if new_files.get(f"{directory}/head-name", b"").startswith(b"refs/"):
            new_files[f"{directory}/head-name"] = _DETACHED
    if INSTRUCTIONS in new_files:
        lines = new_files[INSTRUCTIONS].splitlines(keepends=True)
        new_files[INSTRUCTIONS] = b"".join(
            line for line in lines if line.split(None, 1)[:1] not in ([b"update-ref"], [b"u"])
        )
    words = new_files.get("BISECT_START", b"").split()
    tip = repository.cat_file.info(os.fsdecode(_BRANCH + words[0])) if len(words) == 1 else None
    if tip is not None:
        new_files["BISECT_START"] = tip[0].encode("ascii") + b"\n"
    return new_files


def hint_on_branch(branch: str) -> str:
    from gitckpt.model.arguments import shell_quoted

    command = f"git branch --force {shell_quoted(branch)} HEAD"
    return f"the rebase in progress moves no branch; to move {branch} to its result: {command}"


def require_ref_objects(repository: Repository, files: Mapping[str, bytes]) -> None:
    for name, oid in _select_refs(files).items():
        if repository.cat_file.info(oid) is None:
            message = f"the operation in progress needs {oid} as {name}, and the object is missing"
            raise WorktreeError(message, hint="find the cause: git ckpt verify")


def end_operation(repository: Repository) -> None:
    """Delete the state of the operation in progress; leave files and index unchanged."""
    for directory in DIRECTORIES:
        private_dirs.discard_directory(os.path.join(repository.git_dir, directory))
    for name in FILES:
        try:
            os.unlink(os.path.join(repository.git_dir, name))
        except FileNotFoundError:
            pass
    refs = [*(name for name in PSEUDO_REFS if name != _TRACE), *_list_worktree_refs(repository)]
    commands = "".join(f"delete {ref}\n" for ref in refs if repository.cat_file.info(ref))
    repository.git.run("update-ref", "--stdin", data=commands.encode("ascii"))


def _list_worktree_refs(repository: Repository) -> dict[str, str]:
    words = ("for-each-ref", "--format=%(refname) %(objectname)", *REFS)
    ref_lines = repository.git.run(*words).out.decode("utf-8", "surrogateescape")
    return dict(line.split(" ") for line in ref_lines.splitlines())


def _select_refs(files: Mapping[str, bytes]) -> dict[str, str]:
    # Only refs that `collect_operation_files` can return: the names may have been fetched.
    refs: dict[str, str] = {}
    for name, content in sorted(files.items()):
        parents = {name[:end] for end, character in enumerate(name) if character == "/"}
        is_local = name.startswith(_BELOW_REFS) and _is_safe(name) and not parents & refs.keys()
        is_ref = is_local or name in PSEUDO_REFS
        oid = content.decode("ascii", "replace").strip()
        if is_ref and ids.is_oid(oid):
            refs[name] = oid
    return refs


def _is_safe(name: str) -> bool:
    return not {"", ".", ".."} & set(name.split("/"))


def _find_tips(repository: Repository, commits: set[str], head: str) -> list[str]:
    if not commits or (len(commits) == 1 and not head):
        return [*commits]
    # Walk only what HEAD does not lead to: the history may be long, or damaged far below.
    # Use stdin: a long rebase names more commits than a command line holds.
    revs = "".join(f"{rev}\n" for rev in (*commits, *([f"^{head}"] if head else [])))
    output = repository.git.run("rev-list", "--parents", "--stdin", data=revs.encode("ascii")).text
    lines = [line.split() for line in output.splitlines()]
    parents = {parent for line in lines for parent in line[1:]}
    return sorted(commits & {line[0] for line in lines} - parents)


def _find_named_commits(repository: Repository, files: Mapping[str, bytes]) -> set[str]:
    # Todo lists abbreviate commits.
    oids: set[str] = set()
    for name, content in files.items():
        if name in _WITHOUT_COMMITS or name.endswith(("message", "author-script", "patch")):
            continue
        for line in content.decode("utf-8", "replace").splitlines():
            candidates = (text for text in line.split()[:3] if 7 <= len(text) <= 64)
            oids.update(oid for oid in candidates if not oid.strip(_HEX))
    commits = [repository.cat_file.info(f"{oid}^{{commit}}") for oid in oids]
    return {commit[0] for commit in commits if commit is not None}


def _read_file(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


# Commits that amend, rebase, am or filter-repo has rewritten.

_MERGED, _APPLIED = "rebase-merge/rewritten-list", "rebase-apply/rewritten"

_LARGEST = 8 << 20
_LARGEST_MAP = 256 << 20  # bytes: three million commits of 82 bytes each

_LINES = 64 << 10  # bytes: a reflog line is much shorter


def read_amended_commits(repository: Repository) -> list[tuple[str, str]]:
    head = repository.cat_file.info("HEAD")
    old, new = (*_newest_reflog_line(repository).split()[:2], b"", b"")[:2]
    return _oid_pairs([b"%s %s" % (old, new)]) if head and new == head[0].encode("ascii") else []


def read_rebased_commits(repository: Repository) -> list[tuple[str, str]]:
    return [*_read_rewritten(repository, _MERGED), *read_applied_patches(repository)]


def read_applied_patches(repository: Repository) -> list[tuple[str, str]]:
    return _read_rewritten(repository, _APPLIED)


def has_rebase_moved_head(repository: Repository) -> bool:
    head = repository.cat_file.info("HEAD")
    starts = [_tail_of(os.path.join(repository.git_dir, name), _LINES).strip() for name in _STARTS]
    return head is None or head[0].encode("ascii") not in starts


def read_apply_rebase_branch(repository: Repository) -> str:
    data = _tail_of(os.path.join(repository.git_dir, "rebase-apply/head-name"), _LINES)
    return data.strip().decode("utf-8", "replace")  # decoded as HEAD is


def read_filter_repo_map(repository: Repository) -> dict[str, str]:
    path = os.path.join(repository.common_dir, "filter-repo", "commit-map")
    try:
        pairs = _oid_pairs(regular.read_content(path, _LARGEST_MAP, follow=False).splitlines())
    except OSError:
        return {}
    return {old: new if new.strip("0") else "" for old, new in pairs if old != new}


def is_at_last_patch(repository: Repository) -> bool:
    directory = f"{repository.git_dir}/rebase-apply"
    return int(_read_file(f"{directory}/next")) >= int(_read_file(f"{directory}/last"))


def _read_rewritten(repository: Repository, name: str) -> list[tuple[str, str]]:
    return _oid_pairs(_tail_of(os.path.join(repository.git_dir, name), _LARGEST).splitlines())


def _oid_pairs(lines: list[bytes]) -> list[tuple[str, str]]:
    fields = (line.decode("ascii", "replace").split() for line in lines)
    return [(pair[0], pair[1]) for pair in fields if len(pair) == 2 and all(map(ids.is_oid, pair))]


def _newest_reflog_line(repository: Repository) -> bytes:
    if repository.has_reftable:
        return repository.git.run("rev-parse", "--quiet", "HEAD@{1}", "HEAD", ok=(0, 1, 128)).out
    data = _tail_of(os.path.join(repository.git_dir, "logs", "HEAD"), _LINES)
    return data.rstrip(b"\n").rpartition(b"\n")[2]


def _tail_of(path: str, size: int) -> bytes:
    try:
        return regular.read_tail(path, size)
    except OSError:
        return b""
