"""Save and restore a merge, cherry-pick, revert, rebase, am or bisect in progress.

git keeps most of its state (gitrepository-layout(5)) as files in the administrative directory.
`refs/bisect` and `refs/rewritten` are refs; with reftables, a few more are. All are kept as files,
under the names that they have where refs are files.
"""

from __future__ import annotations

import os

from gitckpt.git.files import premises, regular
from gitckpt.git.repository import PSEUDO_REFS
from gitckpt.model import ids
from gitckpt.model.errors import WorktreeError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from gitckpt.git.objects.port import Objects
    from gitckpt.git.repository import Repository


FILES = (
    *("MERGE_HEAD", "MERGE_MODE", "MERGE_MSG", "MERGE_RR", "SQUASH_MSG"),
    *("BISECT_ANCESTORS_OK", "BISECT_FIRST_PARENT", "BISECT_LOG", "BISECT_NAMES", "BISECT_START", "BISECT_TERMS"),
)
DIRECTORIES = ("sequencer", "rebase-merge", "rebase-apply")
# Refs that belong to a single worktree.
REFS = ("refs/bisect", "refs/rewritten")

_TRACE = "ORIG_HEAD"
# Exists during `git am`, which alone goes back to `ORIG_HEAD`. Otherwise, that ref is a trace of
# the last move of HEAD, even by a `stash`.
_AM = ("rebase-apply", "applying")

# The remaining steps of a rebase, one per line.
INSTRUCTIONS = "rebase-merge/git-rebase-todo"

# For a checkpoint that was fetched: git runs commands that these files name.
FOREIGN = "the operation in progress is left out, as it was not captured in this repository"

_REBASES = ("rebase-merge", "rebase-apply")
_BRANCH = b"refs/heads/"
# The content of `head-name` for a rebase that began on no branch.
_DETACHED = b"detached HEAD\n"


def collect(repository: Repository) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    for name in FILES:
        path = os.path.join(repository.git_dir, name)
        if os.path.isfile(path):
            files[name] = _content(path)
    is_am = os.path.exists(os.path.join(repository.git_dir, *_AM))
    for name in PSEUDO_REFS:
        value = repository.pseudo_ref(name) if is_am or name != _TRACE else None
        if value is not None:
            files[name] = value.encode("ascii") + b"\n"
    for directory in DIRECTORIES:
        for parent, _, names in os.walk(os.path.join(repository.git_dir, directory)):
            for name in names:
                path = os.path.join(parent, name)
                files[os.path.relpath(path, repository.git_dir)] = _content(path)
    for ref, oid in _own_refs(repository).items():
        files[ref] = oid.encode("ascii") + b"\n"
    return files


def holder_of(repository: Repository, objects: Objects, files: Mapping[str, bytes], head: str) -> str | None:
    """Write a commit that keeps what an operation needs; None if HEAD keeps it.

    Branches and reflogs that lead to these commits may be gone when the operation goes on.
    """
    named = _tips(repository, _commits_named(repository, files), head)
    if not named:
        return None
    from gitckpt.git.objects import alternates

    dates = [alternates.committed_at(found[2]) for found in repository.cat_file.contents(named) if found is not None]
    oid, made = alternates.make(named, max(dates, default=0), repository.object_format)
    objects.write(made)
    return oid


def bring_back(repository: Repository, files: Mapping[str, bytes]) -> None:
    """Restore an operation, with only names and values that `collect` can return."""
    require_objects(repository, files)
    for name, oid in _refs_in(files).items():
        repository.git.run("update-ref", "--no-deref", name, oid)
    for name, content in files.items():
        if name in FILES or (name.split("/")[0] in DIRECTORIES and "/" in name and _is_plain(name)):
            path = os.path.join(repository.git_dir, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as file:
                file.write(content)


def rebased_branch(files: Mapping[str, bytes]) -> str | None:
    """Return the short name of the branch that a rebase moves at its end, if any."""
    for directory in _REBASES:
        words = files.get(f"{directory}/head-name", b"").split()
        if len(words) == 1 and words[0].startswith(_BRANCH):
            return os.fsdecode(words[0].removeprefix(_BRANCH))
    return None


def is_at_its_start(repository: Repository, files: Mapping[str, bytes]) -> bool:
    """Return whether a rebase's branch has not moved; True for other operations."""
    branch = rebased_branch(files)
    if branch is None:
        return True
    starts = [files[f"{directory}/orig-head"].strip() for directory in _REBASES if f"{directory}/orig-head" in files]
    found = repository.cat_file.info(os.fsdecode(_BRANCH) + branch)
    return found is not None and [found[0].encode("ascii")] == starts


def would_move(files: Mapping[str, bytes], branch: str | None, source: str | None) -> bool:
    """Return whether an operation would move a branch that it did not begin on.

    To continue or abort it moves HEAD: a rebase commits to what HEAD points to, and resets it on
    abort; so do picks and `git am` (sequencer.c, builtin/am.c). `branch` is that of the restored
    HEAD, `source` the checkpoint's; None if detached.
    """
    moves = any(name.startswith(tuple(f"{directory}/" for directory in DIRECTORIES)) for name in files)
    return moves and branch is not None and branch != source


def moves_nothing(repository: Repository, files: Mapping[str, bytes]) -> bool:
    # If the branch has moved, only where this very operation is in progress.
    return is_at_its_start(repository, files) or collect(repository) == files


def detached(repository: Repository, files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return an operation as if it had begun on no branch, so that its end moves none.

    A rebase sets its branch and others (git-rebase(1), `--update-refs`), even if they moved.
    """
    found = {name: content for name, content in files.items() if name != "rebase-merge/update-refs"}
    for directory in _REBASES:
        if found.get(f"{directory}/head-name", b"").startswith(b"refs/"):
            found[f"{directory}/head-name"] = _DETACHED
    if INSTRUCTIONS in found:
        lines = found[INSTRUCTIONS].splitlines(keepends=True)
        found[INSTRUCTIONS] = b"".join(line for line in lines if line.split(None, 1)[:1] not in ([b"update-ref"], [b"u"]))
    words = found.get("BISECT_START", b"").split()
    began = repository.cat_file.info(os.fsdecode(_BRANCH + words[0])) if len(words) == 1 else None
    if began is not None:
        found["BISECT_START"] = began[0].encode("ascii") + b"\n"
    return found


def farewell(branch: str) -> str:
    from gitckpt.model.arguments import shell_word

    return f"the rebase in progress moves no branch; to put what comes of it on {branch}: git branch --force {shell_word(branch)} HEAD"


def require_objects(repository: Repository, files: Mapping[str, bytes]) -> None:
    for name, oid in _refs_in(files).items():
        if repository.cat_file.info(oid) is None:
            hint = "see what is wrong: git ckpt verify"
            raise WorktreeError(f"{oid} is missing, which the operation in progress needs as {name}", hint=hint)


def clear(repository: Repository) -> None:
    """End the operation in progress without a trace; files and index stay."""
    for directory in DIRECTORIES:
        premises.discard(os.path.join(repository.git_dir, directory))
    for name in FILES:
        try:
            os.unlink(os.path.join(repository.git_dir, name))
        except FileNotFoundError:
            pass
    gone = [name for name in PSEUDO_REFS if name != _TRACE]
    commands = "".join(f"delete {name}\n" for name in [*gone, *_own_refs(repository)] if repository.cat_file.info(name))
    repository.git.run("update-ref", "--stdin", data=commands.encode("ascii"))


def _own_refs(repository: Repository) -> dict[str, str]:
    lines = repository.git.run("for-each-ref", "--format=%(refname) %(objectname)", *REFS).out.decode("utf-8", "surrogateescape")
    return dict(line.split(" ") for line in lines.splitlines())


def _refs_in(files: Mapping[str, bytes]) -> dict[str, str]:
    # Only refs that `collect` can return: the names may have been fetched.
    refs: dict[str, str] = {}
    for name, content in sorted(files.items()):
        above = {name[:at] for at, character in enumerate(name) if character == "/"}
        is_ref = name in PSEUDO_REFS or (
            name.startswith(tuple(f"{space}/" for space in REFS)) and _is_plain(name) and not above & refs.keys()
        )
        words = content.split()
        if is_ref and len(words) == 1 and len(words[0]) in (40, 64) and not words[0].strip(b"0123456789abcdef"):
            refs[name] = words[0].decode("ascii")
    return refs


def _is_plain(name: str) -> bool:
    return not {"", ".", ".."} & set(name.split("/"))


def _tips(repository: Repository, commits: set[str], head: str) -> list[str]:
    if not commits or (len(commits) == 1 and not head):
        return [*commits]
    # Walk only what HEAD does not lead to: the history may be long, or damaged far below.
    # Use stdin: a long rebase names more commits than a command line holds.
    revs = "".join(f"{rev}\n" for rev in (*commits, *([f"^{head}"] if head else [])))
    listed, parents_seen = set[str](), set[str]()
    for line in repository.git.run("rev-list", "--parents", "--stdin", data=revs.encode("ascii")).out.decode("ascii").splitlines():
        commit, *parents = line.split()
        listed.add(commit)
        parents_seen.update(parents)
    return sorted(commits & listed - parents_seen)


def _commits_named(repository: Repository, files: Mapping[str, bytes]) -> set[str]:
    # Todo lists abbreviate commits.
    words: set[str] = set()
    for name, content in files.items():
        if name in ("AUTO_MERGE", "MERGE_MSG", "MERGE_RR", "SQUASH_MSG", "BISECT_NAMES") or name.endswith(
            ("message", "author-script", "patch")
        ):
            continue
        for line in content.decode("utf-8", "replace").splitlines():
            words |= {word for word in line.split()[:3] if 7 <= len(word) <= 64 and not word.strip("0123456789abcdef")}
    commits = [repository.cat_file.info(f"{word}^{{commit}}") for word in words]
    return {commit[0] for commit in commits if commit is not None}


def _content(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


# Commits that amend, rebase, am or filter-repo has rewritten.

_MERGING, _APPLYING = "rebase-merge", "rebase-apply"
_MERGED, _APPLIED = os.path.join(_MERGING, "rewritten-list"), os.path.join(_APPLYING, "rewritten")
# One for each backend of `git rebase`.
_BEFORE = tuple(os.path.join(name, "orig-head") for name in (_MERGING, _APPLYING))

_LARGEST = 8 << 20
# In bytes: three million commits of 82 bytes each.
_LARGEST_MAP = 256 << 20

# In bytes: a reflog line is much shorter.
_LINES = 64 << 10


def amended(repository: Repository) -> list[tuple[str, str]]:
    head = repository.cat_file.info("HEAD")
    old, new = (*_newest_of_reflog(repository).split()[:2], b"", b"")[:2]
    return _pairs([b"%s %s" % (old, new)]) if head and new == head[0].encode("ascii") else []


def rebased(repository: Repository) -> list[tuple[str, str]]:
    """Return the commits of a rebase that is just ending, each with its replacement."""
    return [*_noted(repository, _MERGED), *applied(repository)]


def applied(repository: Repository) -> list[tuple[str, str]]:
    """Return what `rebased` does, for the apply backend only."""
    return _noted(repository, _APPLIED)


def has_moved(repository: Repository) -> bool:
    """Return whether an ending rebase moved HEAD; True if git did not record it."""
    head = repository.cat_file.info("HEAD")
    return head is None or head[0].encode("ascii") not in [_end(os.path.join(repository.git_dir, name), _LINES).strip() for name in _BEFORE]


def branch(repository: Repository) -> str:
    """Return the branch of a rebase with the apply backend; "" if it never stopped."""
    return _end(os.path.join(repository.git_dir, _APPLYING, "head-name"), _LINES).strip().decode("utf-8", "replace")  # decoded as HEAD is


def filtered(repository: Repository) -> dict[str, str]:
    """Return new commits by those rewritten by `git filter-repo`; "" for dropped ones."""
    try:
        data = regular.content(os.path.join(repository.common_dir, "filter-repo", "commit-map"), _LARGEST_MAP, follow=False)
    except OSError:
        return {}
    return {old: new if new.strip("0") else "" for old, new in _pairs(data.splitlines()) if old != new}


def is_last_patch(repository: Repository) -> bool:
    numbers = []
    for name in ("next", "last"):
        with open(os.path.join(repository.git_dir, _APPLYING, name), encoding="ascii") as file:
            numbers.append(int(file.read()))
    return numbers[0] >= numbers[1]


def _noted(repository: Repository, name: str) -> list[tuple[str, str]]:
    return _pairs(_end(os.path.join(repository.git_dir, name), _LARGEST).splitlines())


def _pairs(lines: list[bytes]) -> list[tuple[str, str]]:
    fields = [line.decode("ascii", "replace").split() for line in lines]
    return [(old, new) for old, new in (pair for pair in fields if len(pair) == 2) if ids.is_oid(old) and ids.is_oid(new)]


def _newest_of_reflog(repository: Repository) -> bytes:
    if repository.has_reftable:
        return repository.git.run("rev-parse", "--quiet", "HEAD@{1}", "HEAD", ok=(0, 1, 128)).out
    return _end(os.path.join(repository.git_dir, "logs", "HEAD"), _LINES).rstrip(b"\n").rpartition(b"\n")[2]


def _end(path: str, size: int) -> bytes:
    try:
        return regular.tail(path, size)
    except OSError:
        return b""
