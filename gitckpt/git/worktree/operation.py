"""A merge, cherry-pick, revert, rebase, am or bisect in progress, as what git keeps of it (gitrepository-layout(5)).

Most of it are files of the worktree's administrative directory; a few are refs where refs are kept in a reftable, and `refs/bisect` and
`refs/rewritten` are refs everywhere. All are kept as files, under the names they have where refs are files.
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


# A merge, cherry-pick, revert, rebase, am or bisect in progress, as what git keeps of it (gitrepository-layout(5)).


FILES = (
    *("MERGE_HEAD", "MERGE_MODE", "MERGE_MSG", "MERGE_RR", "SQUASH_MSG"),
    *("BISECT_ANCESTORS_OK", "BISECT_FIRST_PARENT", "BISECT_LOG", "BISECT_NAMES", "BISECT_START", "BISECT_TERMS"),
)
DIRECTORIES = ("sequencer", "rebase-merge", "rebase-apply")
REFS = ("refs/bisect", "refs/rewritten")
"""Refs that each worktree has of its own."""

_TRACE = "ORIG_HEAD"
_AM = ("rebase-apply", "applying")
"""What is there during an `am`. That alone goes back to `ORIG_HEAD`; otherwise it is a trace of what moved HEAD last, be it a `stash`."""

INSTRUCTIONS = "rebase-merge/git-rebase-todo"
"""What a rebase has still to do, a line each."""

FOREIGN = "the operation in progress is left out, as it was not captured in this repository"
"""Said of a checkpoint that was fetched: git runs what these files name, as programs and in todo lists."""

_REBASES = ("rebase-merge", "rebase-apply")
_BRANCH = b"refs/heads/"
_DETACHED = b"detached HEAD\n"
"""What `head-name` says of a rebase that was begun on no branch."""


def collect(repository: Repository) -> dict[str, bytes]:
    """Returns all that git keeps of the operation in progress: content by name.

    Args:
        repository: seen from the worktree.
    """
    found: dict[str, bytes] = {}
    for name in FILES:
        path = os.path.join(repository.git_dir, name)
        if os.path.isfile(path):
            found[name] = _content(path)
    is_am = os.path.exists(os.path.join(repository.git_dir, *_AM))
    for name in PSEUDO_REFS:
        value = repository.pseudo_ref(name) if is_am or name != _TRACE else None
        if value is not None:
            found[name] = value.encode("ascii") + b"\n"
    for directory in DIRECTORIES:
        for parent, _, names in os.walk(os.path.join(repository.git_dir, directory)):
            for name in names:
                path = os.path.join(parent, name)
                found[os.path.relpath(path, repository.git_dir)] = _content(path)
    for ref, oid in _own_refs(repository).items():
        found[ref] = oid.encode("ascii") + b"\n"
    return found


def holder_of(repository: Repository, objects: Objects, files: Mapping[str, bytes], head: str) -> str | None:
    """Returns a commit that keeps every commit which an operation needs, written for the purpose; None where HEAD leads to them.

    Branches and reflogs that lead to them today may be gone when the operation is to go on.

    Args:
        files: what `collect` returned.
        head: what HEAD points to; "" on an unborn branch.
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
    """Puts what `collect` returned into a worktree that has no operation in progress.

    Only names and values that `collect` can return are written: they may come from a ref that was fetched.

    Args:
        repository: seen from the worktree.
        files: content by name.

    Raises:
        WorktreeError: as `require_objects`; nothing was written.
    """
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
    """Returns the branch, by its short name, that a rebase in progress moves when it ends or is given up; None where there is none."""
    for directory in _REBASES:
        words = files.get(f"{directory}/head-name", b"").split()
        if len(words) == 1 and words[0].startswith(_BRANCH):
            return os.fsdecode(words[0].removeprefix(_BRANCH))
    return None


def is_at_its_start(repository: Repository, files: Mapping[str, bytes]) -> bool:
    """Tells whether the branch that a rebase is about is where it was when that began; of any other operation, that nothing has moved.

    Args:
        repository: seen from any of its worktrees.
        files: what `collect` returned.
    """
    branch = rebased_branch(files)
    if branch is None:
        return True
    starts = [files[f"{directory}/orig-head"].strip() for directory in _REBASES if f"{directory}/orig-head" in files]
    found = repository.cat_file.info(os.fsdecode(_BRANCH) + branch)
    return found is not None and [found[0].encode("ascii")] == starts


def would_move(files: Mapping[str, bytes], branch: str | None, source: str | None) -> bool:
    """Tells whether to go on with an operation, or to give it up, moves a branch that it was not begun on.

    A rebase commits to what HEAD points to, and takes it back to where it began; so do picks and `git am` (sequencer.c, builtin/am.c).

    Args:
        files: what `collect` returned.
        branch: what HEAD points to where it comes back; None where it is detached.
        source: the branch that its checkpoint names; None where that was made with a detached HEAD.
    """
    moves = any(name.startswith(tuple(f"{directory}/" for directory in DIRECTORIES)) for name in files)
    return moves and branch is not None and branch != source


def moves_nothing(repository: Repository, files: Mapping[str, bytes]) -> bool:
    """Tells whether an operation may come back to the worktree of its branch as it was: the branch has not moved, or it is there as it is.

    Args:
        repository: seen from the worktree.
        files: what `collect` returned.
    """
    return is_at_its_start(repository, files) or collect(repository) == files


def detached(repository: Repository, files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Returns an operation as one that was begun on no branch: whoever ends it, or gives it up, moves none, and comes back to none.

    A rebase sets its branch back to where that was, whatever has become of it since, and others with it (git-rebase(1), `--update-refs`).

    Args:
        repository: seen from any of its worktrees.
        files: what `collect` returned.
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
    """Returns what is to be said of a rebase of a branch that was brought back detached."""
    from gitckpt.model.arguments import shell_word

    return f"the rebase in progress moves no branch; to put what comes of it on {branch}: git branch --force {shell_word(branch)} HEAD"


def require_objects(repository: Repository, files: Mapping[str, bytes]) -> None:
    """Raises `WorktreeError` if something that the refs of an operation point to is missing.

    Args:
        files: what `collect` returned.
    """
    for name, oid in _refs_in(files).items():
        if repository.cat_file.info(oid) is None:
            hint = "see what is wrong: git ckpt verify"
            raise WorktreeError(f"{oid} is missing, which the operation in progress needs as {name}", hint=hint)


def clear(repository: Repository) -> None:
    """Ends the operation in progress without a trace; files and index stay as they are. A checkpoint must hold it.

    Args:
        repository: seen from the worktree.
    """
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
    """Returns the refs among what `collect` returned, with what they point to; others than it can return are left out."""
    found: dict[str, str] = {}
    for name, content in sorted(files.items()):
        above = {name[:at] for at, character in enumerate(name) if character == "/"}
        is_ref = name in PSEUDO_REFS or (
            name.startswith(tuple(f"{space}/" for space in REFS)) and _is_plain(name) and not above & found.keys()
        )
        words = content.split()
        if is_ref and len(words) == 1 and len(words[0]) in (40, 64) and not words[0].strip(b"0123456789abcdef"):
            found[name] = words[0].decode("ascii")
    return found


def _is_plain(name: str) -> bool:
    return not {"", ".", ".."} & set(name.split("/"))


def _tips(repository: Repository, commits: set[str], head: str) -> list[str]:
    """Returns those of some commits to which neither HEAD nor another one of them leads.

    Only what HEAD does not lead to is walked, as a history may be long, or damaged far below. Git is told by its input, as a long rebase
    names more commits than a command takes words.
    """
    if not commits or (len(commits) == 1 and not head):
        return [*commits]
    revs = "".join(f"{rev}\n" for rev in (*commits, *([f"^{head}"] if head else [])))
    listed, led_to = set[str](), set[str]()
    for line in repository.git.run("rev-list", "--parents", "--stdin", data=revs.encode("ascii")).out.decode("ascii").splitlines():
        commit, *parents = line.split()
        listed.add(commit)
        led_to.update(parents)
    return sorted(commits & listed - led_to)


def _commits_named(repository: Repository, files: Mapping[str, bytes]) -> set[str]:
    """Returns the commits that the files name, in full or abbreviated, as todo lists do."""
    words: set[str] = set()
    for name, content in files.items():
        if name in ("AUTO_MERGE", "MERGE_MSG", "MERGE_RR", "SQUASH_MSG", "BISECT_NAMES") or name.endswith(
            ("message", "author-script", "patch")
        ):
            continue
        for line in content.decode("utf-8", "replace").splitlines():
            words |= {word for word in line.split()[:3] if 7 <= len(word) <= 64 and not word.strip("0123456789abcdef")}
    found = [repository.cat_file.info(f"{word}^{{commit}}") for word in words]
    return {commit[0] for commit in found if commit is not None}


def _content(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


# Read which commits an amend, a rebase, am or filter-repo has rewritten.


_MERGING, _APPLYING = "rebase-merge", "rebase-apply"
_MERGED, _APPLIED = os.path.join(_MERGING, "rewritten-list"), os.path.join(_APPLYING, "rewritten")
_BEFORE = tuple(os.path.join(name, "orig-head") for name in (_MERGING, _APPLYING))
"""One for each backend of `git rebase`."""

_LARGEST = 8 << 20
_LARGEST_MAP = 256 << 20
"""In bytes: three million commits, of 82 each."""

_LINES = 64 << 10
"""In bytes: a line of a reflog is much shorter."""


def amended(repository: Repository) -> list[tuple[str, str]]:
    """Returns the commit that was amended just now, and the one in its place: what HEAD was and is; nothing where no reflog says it."""
    head = repository.cat_file.info("HEAD")
    old, new = (*_newest_of_reflog(repository).split()[:2], b"", b"")[:2]
    return _pairs([b"%s %s" % (old, new)]) if head and new == head[0].encode("ascii") else []


def rebased(repository: Repository) -> list[tuple[str, str]]:
    """Returns the commits of a rebase that ends just now, each with the one in its place."""
    return [*_noted(repository, _MERGED), *applied(repository)]


def applied(repository: Repository) -> list[tuple[str, str]]:
    """Returns what `rebased` does, of the apply backend alone: with it, the branch still is where it was when git tells of its end."""
    return _noted(repository, _APPLIED)


def has_moved(repository: Repository) -> bool:
    """Tells whether HEAD is elsewhere, at the end of a rebase, than before it; where git has not noted that, it is taken to be."""
    head = repository.cat_file.info("HEAD")
    return head is None or head[0].encode("ascii") not in [_end(os.path.join(repository.git_dir, name), _LINES).strip() for name in _BEFORE]


def branch(repository: Repository) -> str:
    """Returns the branch that a rebase with the apply backend is about to come back to, which git notes down only where it had stopped."""
    return _end(os.path.join(repository.git_dir, _APPLYING, "head-name"), _LINES).strip().decode("utf-8", "replace")  # as what HEAD says


def filtered(repository: Repository) -> dict[str, str]:
    """Return the new commits by those that `git filter-repo` has rewritten.

    "" stands for a commit that is gone.
    """
    try:
        data = regular.content(os.path.join(repository.common_dir, "filter-repo", "commit-map"), _LARGEST_MAP, follow=False)
    except OSError:
        return {}
    return {old: new if new.strip("0") else "" for old, new in _pairs(data.splitlines()) if old != new}


def is_last_patch(repository: Repository) -> bool:
    """Tells whether `git am` has come to the last patch.

    Raises:
        OSError, ValueError: git's own files do not say.
    """
    numbers = []
    for name in ("next", "last"):
        with open(os.path.join(repository.git_dir, _APPLYING, name), encoding="ascii") as file:
            numbers.append(int(file.read()))
    return numbers[0] >= numbers[1]


def _noted(repository: Repository, name: str) -> list[tuple[str, str]]:
    return _pairs(_end(os.path.join(repository.git_dir, name), _LARGEST).splitlines())


def _pairs(lines: list[bytes]) -> list[tuple[str, str]]:
    found = [line.decode("ascii", "replace").split() for line in lines]
    return [(old, new) for old, new in (pair for pair in found if len(pair) == 2) if ids.is_oid(old) and ids.is_oid(new)]


def _newest_of_reflog(repository: Repository) -> bytes:
    """Returns the newest line of the reflog of HEAD, which begins with what HEAD was and is; nothing where there is none."""
    if repository.has_reftable:
        return repository.git.run("rev-parse", "--quiet", "HEAD@{1}", "HEAD", ok=(0, 1, 128)).out
    return _end(os.path.join(repository.git_dir, "logs", "HEAD"), _LINES).rstrip(b"\n").rpartition(b"\n")[2]


def _end(path: str, size: int) -> bytes:
    """Returns the end of a file, at most so many bytes; nothing where it is missing."""
    try:
        return regular.tail(path, size)
    except OSError:
        return b""
