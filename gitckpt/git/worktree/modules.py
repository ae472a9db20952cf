"""Find and copy the repositories of submodules: checked out, or kept in `modules`.

Names from `.gitmodules` are never used as paths: git's own directories are walked, without
following links.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Collection, Iterable, Iterator, Sequence

from gitckpt.git.catfile import CatFile
from gitckpt.git.command import Git
from gitckpt.git.files import atomic
from gitckpt.git.files.refs_stat import may_be_there, plain
from gitckpt.git.filesystem import names_in
from gitckpt.git.objects.diff import leaf, leaves
from gitckpt.git.objects.encoding import GITLINK
from gitckpt.git.process import LOCAL_ONLY, OFFLINE, environment, git_executable, run
from gitckpt.git.repository import Repository
from gitckpt.git.worktree import administration
from gitckpt.model.errors import WorktreeError

_OCTAL = re.compile(rb"\\([0-3][0-7]{2})")
_LOCALLY = ("-c", "protocol.file.allow=always", "-c", "core.hooksPath=/dev/null")
# Overrides `transfer.hideRefs` (git-config(1)): the repository is local and belongs to the user.
_ALL_REFS = "--upload-pack=git -c transfer.hideRefs=!refs/ -c uploadpack.hideRefs=!refs/ upload-pack"

_FLUSHED = ("-c", "core.fsync=all", "-c", "core.fsyncMethod=fsync")
_STORAGE = (b"core.repositoryformatversion", b"core.bare", b"core.worktree")
_ELSEWHERE = (b"", b".", b"..", b".git")
# Besides `HEAD`, what git looks for (`is_git_directory` in its setup.c).
_OF_REPOSITORY = (b"objects", b"refs")


def seen_from(repository: Repository, path: bytes) -> Repository | None:
    """Return a submodule's repository as seen from its checkout; None without one."""
    top = place(repository, path)
    if top is None:
        return None
    own = os.path.join(top, ".git")
    git_dir = own if os.path.isdir(own) else administration.named_by(top)
    if git_dir is None or os.path.islink(own) or not os.path.isfile(os.path.join(git_dir, "HEAD")):
        return None
    there = Repository(git_dir, top, repository.object_format)
    return None if os.path.realpath(there.common_dir) == os.path.realpath(repository.common_dir) else there


def are_there(repository: Repository) -> bool:
    """Return whether a repository may have submodules, without starting a process."""
    tops = [repository.worktree, os.path.dirname(repository.common_dir)]
    return any(map(os.path.isdir, _places(repository))) or any(os.path.lexists(os.path.join(top, ".gitmodules")) for top in tops if top)


def head_of(top: bytes) -> str | None:
    """Return the commit checked out at a path, even in another user's repository."""
    words = ("rev-parse", "--quiet", "--verify", "HEAD^{commit}")
    done = run([git_executable(), "-C", os.fsdecode(top), *words], env=environment(OFFLINE))
    return done.out.decode("ascii").strip() or None if done.code == 0 else None


def own_directories(repository: Repository) -> list[bytes]:
    """Return git directories inside the worktree other than `.git`."""
    top = os.path.realpath(repository.worktree or os.curdir)
    places = {os.path.relpath(os.path.realpath(place), top) for place in (repository.git_dir, repository.common_dir)}
    inside = (place for place in places if place.split(os.sep)[0] not in (os.curdir, os.pardir, ".git"))
    return sorted(map(os.fsencode, inside))


def bare_above(top: bytes, paths: Iterable[bytes]) -> list[bytes]:
    """Return the directories of these files that look like bare repositories."""
    candidates = {os.path.dirname(path) for path in paths if os.path.basename(path) == b"HEAD"}
    return sorted(path for path in candidates if path and all(os.path.isdir(os.path.join(top, path, name)) for name in _OF_REPOSITORY))


def lies_in(path: bytes, directories: Collection[bytes]) -> bool:
    return any(path == directory or path.startswith(directory + b"/") for directory in directories)


def has_own(git_dir: str) -> bool:
    # git deletes them with the worktree.
    return os.path.isdir(os.path.join(git_dir, "modules"))


def stores(repository: Repository, paths: Collection[bytes] = ()) -> list[Repository]:
    """Return submodules' repositories; `paths` adds their own `.git` directories."""
    git_dirs = [git_dir for place in _places(repository) for git_dir in _git_dirs(place)]
    tops = [repository.worktree, *(path for _, path in administration.registered(repository))]
    if repository.is_linked:
        tops.append(administration.main_worktree(repository))
    for top in dict.fromkeys(filter(None, tops)):
        for path in paths:
            own = os.path.join(top, os.fsdecode(path), ".git")
            if is_plain(path) and not _is_through_link(top, path) and _is_git_dir(own):
                git_dirs.append(own)
    return [_kept(git_dir, repository.object_format) for git_dir in dict.fromkeys(git_dirs)]


def _kept(git_dir: str, object_format: str) -> Repository:
    # Without a worktree: git would die if `core.worktree` leads to a missing directory.
    kept = Repository(git_dir, None, object_format)
    kept.git = Git(git_dir, git_dir)
    kept.cat_file = CatFile(kept.git)
    return kept


def copied(around: Repository, kept: Repository, made: Repository, path: bytes, refs: Sequence[str]) -> Repository:
    """Copy a submodule's repository for another worktree, to where git would put it.

    Works offline. Objects are hard links: a gc or removal of the original does not affect them.

    Args:
        around: the repository that the submodule belongs to.
        refs: patterns of refs to copy besides branches, tags and remote-tracking branches.
    """
    inside = (os.path.relpath(kept.git_dir, place) for place in _places(around) if kept.git_dir.startswith(place + os.sep))
    final = os.path.join(made.git_dir, "modules", next(inside, os.fsdecode(path)))
    if not os.path.lexists(final):
        scratch = os.path.join(made.git_dir, f"ckpt-making-{os.urandom(4).hex()}")
        kept.git.run(*_LOCALLY, "clone", "--quiet", "--bare", "--local", "--template=", kept.git_dir, scratch, env=LOCAL_ONLY)
        copy = _kept(scratch, kept.object_format)
        specs = [f"+{ref}:{ref}" for ref in ("refs/remotes/*", *refs)]
        options = ("--quiet", "--no-tags", "--no-write-fetch-head", "--recurse-submodules=no")
        copy.git.run(*_LOCALLY, "fetch", *options, _ALL_REFS, kept.git_dir, *specs, env=LOCAL_ONLY)
        _copy_settings(kept, copy)
        copy.close()
        try:
            os.makedirs(os.path.dirname(final), exist_ok=True)
            os.rename(scratch, final)
        except OSError as error:
            raise WorktreeError(f"cannot make {final}: {error.strerror}") from None
    return _kept(final, kept.object_format)


def pairs(repository: Repository, git_dir: str) -> Iterator[tuple[str, Repository, Repository | None]]:
    """Yield name, repository and main worktree's repository of all submodules."""
    yield from _pairs(os.path.join(git_dir, "modules"), os.path.join(repository.common_dir, "modules"), "", repository.object_format)


def within(one: Repository, other: Repository) -> Iterator[tuple[str, Repository, Repository | None]]:
    """Yield nested repositories of a submodule with those of another copy, as `pairs`."""
    yield from _pairs(os.path.join(one.git_dir, "modules"), os.path.join(other.git_dir, "modules"), "", one.object_format)


def _pairs(place: str, beside: str, above: str, object_format: str) -> Iterator[tuple[str, Repository, Repository | None]]:
    for own in _git_dirs(place):
        inside = os.path.relpath(own, place)
        other = os.path.join(beside, inside)
        yield above + inside, _kept(own, object_format), _kept(other, object_format) if _is_git_dir(other) else None
        yield from _pairs(os.path.join(own, "modules"), os.path.join(other, "modules"), f"{above}{inside}/", object_format)


def is_copy(repository: Repository, there: Repository, commit: str) -> bool:
    """Return whether a repository is kept for a submodule or has its commit."""
    is_kept = any(os.path.realpath(there.common_dir).startswith(os.path.realpath(place) + os.sep) for place in _places(repository))
    return is_kept or (bool(commit) and there.cat_file.info(f"{commit}^{{commit}}") is not None)


def fetch(to: Repository, source: Repository, refs: Sequence[str]) -> None:
    """Copy refs from a local repository under the same names; existing ones stay."""
    options = ("--quiet", "--no-tags", "--no-write-fetch-head", "--recurse-submodules=no")
    data = "".join(f"{ref}:{ref}\n" for ref in refs).encode()
    if refs:
        to.git.run(*_LOCALLY, *_FLUSHED, "fetch", *options, _ALL_REFS, "--stdin", source.git_dir, data=data, env=LOCAL_ONLY)


def _copy_settings(kept: Repository, copy: Repository) -> None:
    file = os.path.join(copy.git_dir, "config")
    copy.git.run("config", "--file", file, "--remove-section", "remote.origin", ok=(0, 128))
    copy.git.run("config", "--file", file, "core.bare", "false")
    listing = kept.git.run("config", "--file", os.path.join(kept.common_dir, "config"), "--list", "-z").out
    text = b""
    for entry in listing.split(b"\0")[:-1]:
        key, is_set, value = entry.partition(b"\n")
        section, _, rest = key.partition(b".")
        name, _, last = rest.rpartition(b".")
        # How the copy is stored stays its own.
        if section == b"extensions" or key in _STORAGE:
            continue
        title = b'%s "%s"' % (section, _escaped(name)) if name else section
        text += b"[%s]\n\t%s" % (title, last) + (b' = "%s"\n' % _escaped(value).replace(b"\n", b"\\n") if is_set else b"\n")
    try:
        with open(file, "ab") as config:
            config.write(text)
    except OSError as error:
        raise WorktreeError(f"cannot write {file}: {error.strerror}") from None


def _escaped(value: bytes) -> bytes:
    return value.replace(b"\\", b"\\\\").replace(b'"', b'\\"')


def attach(kept: Repository, top: str) -> Repository | None:
    """Make an empty place the worktree of a submodule's repository, without files.

    Return None if the place is not empty, or the repository (one of `stores`) has another worktree.
    """
    there = _recorded(kept) or top
    is_elsewhere = os.path.realpath(there) != os.path.realpath(top) and os.path.lexists(os.path.join(there, ".git"))
    if is_elsewhere or kept.is_linked or os.path.basename(kept.git_dir) == ".git":
        return None
    try:
        os.makedirs(top, exist_ok=True)
        if os.listdir(top):
            return None
        claim(kept, top)
        _link(kept, top)
    except OSError as error:
        raise WorktreeError(f"cannot make {top}: {error.strerror}") from None
    return Repository(kept.git_dir, top, kept.object_format)


def _recorded(kept: Repository) -> str | None:
    words = ("config", "--file", os.path.join(kept.git_dir, "config"), "core.worktree")
    own = os.fsdecode(kept.git.run(*words, ok=(0, 1)).out.removesuffix(b"\n"))
    return os.path.normpath(os.path.join(kept.git_dir, own)) if own else None


def is_lost(kept: Repository) -> bool:
    """Return whether `core.worktree` of a submodule leads to a place without it."""
    there = _recorded(kept)
    return there is not None and not os.path.lexists(os.path.join(there, ".git"))


def claim(kept: Repository, top: str) -> None:
    way = os.path.relpath(os.path.realpath(top), os.path.realpath(kept.git_dir))
    kept.git.run("config", "--file", os.path.join(kept.git_dir, "config"), "core.worktree", way)


def _link(kept: Repository, top: str) -> None:
    way = os.path.relpath(os.path.realpath(kept.git_dir), os.path.realpath(top))
    # A kill must leave nothing there: only an empty place is taken for a submodule.
    scratch = os.path.join(kept.git_dir, administration.AWAY)
    atomic.write(os.path.join(top, ".git"), os.fsencode(f"gitdir: {way}\n"), scratch=scratch)


def checked_out_at(repository: Repository, kept: Repository) -> bytes | None:
    """Return the path at which a worktree has one of `stores` checked out, if any."""
    there = _recorded(kept)
    if there is None or repository.worktree is None:
        return None
    path = os.fsencode(os.path.relpath(os.path.realpath(there), os.path.realpath(repository.worktree)))
    top = place(repository, path)
    named = administration.named_by(top) if top is not None else None
    is_same = named is not None and os.path.realpath(named) == os.path.realpath(kept.git_dir)
    return path if is_same else None


def move(repository: Repository, kept: Repository, path: bytes, top: str) -> Repository:
    worktree = repository.worktree or ""
    old = os.path.join(worktree, os.fsdecode(path))
    try:
        os.makedirs(top, exist_ok=True)
        os.rename(old, top)
        _reconnect(kept, old, top)
        above = os.path.dirname(old)
        while above != worktree and not os.listdir(above):
            os.rmdir(above)
            above = os.path.dirname(above)
    except OSError as error:
        raise WorktreeError(f"cannot move {old} to {top}: {error.strerror}") from None
    return Repository(kept.git_dir, top, kept.object_format)


def _reconnect(kept: Repository, old: str, top: str) -> None:
    for git_dir in _git_dirs(os.path.join(kept.git_dir, "modules")):
        with contextlib.closing(_kept(git_dir, kept.object_format)) as inner:
            below = os.path.relpath(_recorded(inner) or old, old)
            if below != "." and not below.startswith(".."):
                _reconnect(inner, os.path.join(old, below), os.path.join(top, below))
    if os.path.isfile(os.path.join(top, ".git")):
        claim(kept, top)
        _link(kept, top)


def place(repository: Repository, path: bytes) -> str | None:
    if repository.worktree is None or not is_plain(path) or _is_through_link(repository.worktree, path):
        return None
    return os.path.join(repository.worktree, os.fsdecode(path))


def holding(repository: Repository, path: bytes, ref: str) -> Repository | None:
    """Return the repository of a submodule, checked out or kept, that has a ref."""
    here = seen_from(repository, path)
    for candidate in (*([here] if here is not None else []), *stores(repository, [path])):
        if has(candidate, ref):
            return candidate
        candidate.close()
    return None


def beside(repository: Repository, ref: str) -> Repository | None:
    """Return the repository of a nested submodule in another worktree that has a ref.

    git clones a submodule again for each linked worktree, without the submodules nested in it.
    """
    parts = repository.common_dir.split(os.sep)
    for start in (number for number, part in enumerate(parts) if part == "modules"):
        above = parts[: start - 2] if parts[start - 2] == "worktrees" else parts[:start]
        around = _kept(os.sep.join(above), repository.object_format)
        if not _is_git_dir(around.git_dir):
            continue
        for twin in (os.path.join(place, *parts[start + 1 :]) for place in _places(around)):
            for git_dir in _git_dirs(os.path.join(twin, "modules")) if twin != repository.common_dir else ():
                candidate = _kept(git_dir, repository.object_format)
                if has(candidate, ref):
                    return candidate
                candidate.close()
    return None


def is_held(repository: Repository, path: bytes, ref: str) -> bool:
    there = holding(repository, path, ref)
    if there is not None:
        there.close()
    return there is not None


def has(repository: Repository, ref: str) -> bool:
    if plain(repository, ref) is not None:
        return True
    return may_be_there(repository, ref) and repository.cat_file.info(ref) is not None


def is_plain(path: bytes) -> bool:
    """Return whether git would take a path for one of a submodule in the worktree."""
    return not any(part.lower() in _ELSEWHERE for part in path.split(b"/")) and b"\0" not in path


def is_submodule(repository: Repository, tree: str, path: bytes) -> bool:
    entry = leaf(repository, tree, path)
    return entry is not None and entry[1] == GITLINK


def of_tree(repository: Repository, tree: str) -> list[tuple[bytes, str]]:
    return [(path, oid) for path, mode, oid in leaves(repository, tree) if mode == GITLINK]


def unquoted(text: str) -> bytes:
    """Return the path that a document names, C-quoted if it is not UTF-8."""
    data = os.fsencode(text)
    if len(data) > 1 and data[:1] == data[-1:] == b'"' and _OCTAL.search(data):
        path = _OCTAL.sub(lambda found: bytes([int(found[1], 8)]), data[1:-1])
        try:
            path.decode("utf-8")
        except UnicodeDecodeError:
            return path
    return data


def _places(repository: Repository) -> list[str]:
    linked = administration.administration(repository)
    tops = (repository.common_dir, *(os.path.join(linked, name) for name in names_in(linked)))
    return [os.path.join(top, "modules") for top in tops]


def _git_dirs(place: str) -> Iterator[str]:
    for name in names_in(place) if not os.path.islink(place) else ():
        path = os.path.join(place, name)
        if _is_git_dir(path):
            yield path
        elif os.path.isdir(path):
            yield from _git_dirs(path)  # names of submodules may have slashes


def _is_git_dir(path: str) -> bool:
    has_all = all(os.path.isdir(os.path.join(path, name)) for name in ("objects", "refs"))
    return has_all and not os.path.islink(path) and os.path.isfile(os.path.join(path, "HEAD"))


def _is_through_link(top: str, path: bytes) -> bool:
    parts = os.fsdecode(path).split("/")
    return any(os.path.islink(os.path.join(top, *parts[:count])) for count in range(1, len(parts) + 1))
