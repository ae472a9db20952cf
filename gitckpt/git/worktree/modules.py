"""The repositories of submodules: those that are checked out in a worktree, and those that git keeps for all worktrees (`modules`).

Nothing is looked up by a name out of `.gitmodules`: git's own directories are walked, and no link in them is followed.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Collection, Iterable, Iterator, Sequence

from gitckpt.git.command import Git
from gitckpt.git.files import atomic
from gitckpt.git.files.ref_files import may_be_there, plain
from gitckpt.git.filesystem import names_in
from gitckpt.git.objects.encoding import GITLINK
from gitckpt.git.objects.trees import leaf, leaves
from gitckpt.git.process import LOCAL_ONLY, OFFLINE, environment, git_executable, run
from gitckpt.git.repository import Repository
from gitckpt.git.worktree import administration
from gitckpt.model.errors import WorktreeError

_OCTAL = re.compile(rb"\\([0-3][0-7]{2})")
_LOCALLY = ("-c", "protocol.file.allow=always", "-c", "core.hooksPath=/dev/null")
_ALL_REFS = "--upload-pack=git -c transfer.hideRefs=!refs/ -c uploadpack.hideRefs=!refs/ upload-pack"
"""Whatever the repository hides from others (git-config(1), `transfer.hideRefs`): it is on this machine, and the user's own."""

_FLUSHED = ("-c", "core.fsync=all", "-c", "core.fsyncMethod=fsync")
_STORAGE = (b"core.repositoryformatversion", b"core.bare", b"core.worktree")
_ELSEWHERE = (b"", b".", b"..", b".git")
_OF_REPOSITORY = (b"objects", b"refs")
"""Beside `HEAD`, what git itself looks for (`is_git_directory` in its setup.c)."""


def seen_from(repository: Repository, path: bytes) -> Repository | None:
    """Returns the repository of a submodule, as seen from where it is checked out; None where it is not.

    Args:
        repository: seen from the worktree that the submodule is in.
        path: of the submodule, relative to the top of that worktree.
    """
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
    """Tells whether a repository may have submodules: a look at files, without a process."""
    tops = [repository.worktree, os.path.dirname(repository.common_dir)]
    return any(map(os.path.isdir, _places(repository))) or any(os.path.lexists(os.path.join(top, ".gitmodules")) for top in tops if top)


def head_of(top: bytes) -> str | None:
    """Returns the commit that is checked out in a repository, whoever's it is; None where there is none.

    Args:
        top: of its worktree.
    """
    words = ("rev-parse", "--quiet", "--verify", "HEAD^{commit}")
    done = run([git_executable(), "-C", os.fsdecode(top), *words], env=environment(OFFLINE))
    return done.out.decode("ascii").strip() or None if done.code == 0 else None


def own_directories(repository: Repository) -> list[bytes]:
    """Return the directories of a repository in its own worktree, but `.git`.

    git itself never lists `.git`, and refuses to write there. Paths are relative to the top.
    """
    top = os.path.realpath(repository.worktree or os.curdir)
    places = {os.path.relpath(os.path.realpath(place), top) for place in (repository.git_dir, repository.common_dir)}
    inside = (place for place in places if place.split(os.sep)[0] not in (os.curdir, os.pardir, ".git"))
    return sorted(map(os.fsencode, inside))


def bare_above(top: bytes, paths: Iterable[bytes]) -> list[bytes]:
    """Return the directories of some files that look like bare repositories.

    Args:
        top: of the worktree, to which the paths are relative.
        paths: of files.
    """
    candidates = {os.path.dirname(path) for path in paths if os.path.basename(path) == b"HEAD"}
    return sorted(path for path in candidates if path and all(os.path.isdir(os.path.join(top, path, name)) for name in _OF_REPOSITORY))


def lies_in(path: bytes, directories: Collection[bytes]) -> bool:
    """Tell whether a path is one of some directories, or lies in one."""
    return any(path == directory or path.startswith(directory + b"/") for directory in directories)


def has_own(git_dir: str) -> bool:
    """Tells whether git keeps repositories of submodules for a linked worktree alone: with the worktree it would delete them.

    Args:
        git_dir: what git keeps of the worktree.
    """
    return os.path.isdir(os.path.join(git_dir, "modules"))


def stores(repository: Repository, paths: Collection[bytes] = ()) -> list[Repository]:
    """Returns the repositories of submodules that belong to a repository, and to it alone; not those of submodules within them.

    Args:
        repository: seen from any of its worktrees.
        paths: of submodules, whose own `.git` directories in a worktree are among them.
    """
    found = [git_dir for place in _places(repository) for git_dir in _git_dirs(place)]
    tops = [repository.worktree, *(path for _, path in administration.registered(repository))]
    if repository.is_linked:
        tops.append(administration.main_worktree(repository))
    for top in dict.fromkeys(filter(None, tops)):
        for path in paths:
            own = os.path.join(top, os.fsdecode(path), ".git")
            if is_plain(path) and not _is_through_link(top, path) and _is_git_dir(own):
                found.append(own)
    return [_kept(git_dir, repository.object_format) for git_dir in dict.fromkeys(found)]


def _kept(git_dir: str, object_format: str) -> Repository:
    """Returns a repository as seen from nowhere: where its `core.worktree` leads to may be gone, of which git would die."""
    kept = Repository(git_dir, None, object_format)
    kept.git = Git(git_dir, git_dir)
    return kept


def copied(around: Repository, kept: Repository, made: Repository, path: bytes, refs: Sequence[str]) -> Repository:
    """Returns a copy of a submodule's repository for another worktree of the one around it, where git itself would put it. Offline.

    Objects are hard links: neither a gc nor the end of the other one takes any away.

    Args:
        around: the repository that the submodule belongs to.
        kept: the submodule's, one of `stores` of that, or as it is checked out.
        made: the other worktree.
        path: of the submodule.
        refs: patterns of refs that are copied besides branches, tags and remote-tracking branches.

    Raises:
        GitError: git cannot copy it.
        WorktreeError: the directory cannot be made.
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
    """Yields the repositories of submodules that a linked worktree has of its own, those within them too.

    Args:
        repository: the one around them, seen from any of its worktrees.
        git_dir: what git keeps of the worktree.

    Yields:
        The name of each, the repository, and the one that is kept of the same submodule for the main worktree; None without one.
    """
    yield from _pairs(os.path.join(git_dir, "modules"), os.path.join(repository.common_dir, "modules"), "", repository.object_format)


def within(one: Repository, other: Repository) -> Iterator[tuple[str, Repository, Repository | None]]:
    """Yields the repositories of submodules within a submodule, as `pairs` does, each with its counterpart in another copy of that."""
    yield from _pairs(os.path.join(one.git_dir, "modules"), os.path.join(other.git_dir, "modules"), "", one.object_format)


def _pairs(place: str, beside: str, above: str, object_format: str) -> Iterator[tuple[str, Repository, Repository | None]]:
    for own in _git_dirs(place):
        inside = os.path.relpath(own, place)
        other = os.path.join(beside, inside)
        yield above + inside, _kept(own, object_format), _kept(other, object_format) if _is_git_dir(other) else None
        yield from _pairs(os.path.join(own, "modules"), os.path.join(other, "modules"), f"{above}{inside}/", object_format)


def is_copy(repository: Repository, there: Repository, commit: str) -> bool:
    """Tells whether a repository in the place of a submodule is one of that: git keeps it for one, or it has a commit of it.

    Args:
        repository: the one around it.
        there: as `seen_from` returned it.
        commit: of the submodule; "" for none.
    """
    is_kept = any(os.path.realpath(there.common_dir).startswith(os.path.realpath(place) + os.sep) for place in _places(repository))
    return is_kept or (bool(commit) and there.cat_file.info(f"{commit}^{{commit}}") is not None)


def fetch(to: Repository, source: Repository, refs: Sequence[str]) -> None:
    """Copies refs, under their names, from a repository on this machine into another one; those that are there stay as they are.

    Raises:
        GitError: they cannot be copied.
    """
    options = ("--quiet", "--no-tags", "--no-write-fetch-head", "--recurse-submodules=no")
    data = "".join(f"{ref}:{ref}\n" for ref in refs).encode()
    if refs:
        to.git.run(*_LOCALLY, *_FLUSHED, "fetch", *options, _ALL_REFS, "--stdin", source.git_dir, data=data, env=LOCAL_ONLY)


def _copy_settings(kept: Repository, copy: Repository) -> None:
    """Gives a copy the settings of a repository, remotes among them; what says how it is stored is the copy's own."""
    file = os.path.join(copy.git_dir, "config")
    copy.git.run("config", "--file", file, "--remove-section", "remote.origin", ok=(0, 128))
    copy.git.run("config", "--file", file, "core.bare", "false")
    listing = kept.git.run("config", "--file", os.path.join(kept.common_dir, "config"), "--list", "-z").out
    text = b""
    for entry in listing.split(b"\0")[:-1]:
        key, is_set, value = entry.partition(b"\n")
        section, _, rest = key.partition(b".")
        name, _, last = rest.rpartition(b".")
        if section == b"extensions" or key in _STORAGE:
            continue
        title = b'%s "%s"' % (section, _escaped(name)) if name else section
        text += b"[%s]\n\t%s" % (title, last) + (b' = "%s"\n' % _escaped(value).replace(b"\n", b"\\n") if is_set else b"\n")
    try:
        with open(file, "ab") as written:
            written.write(text)
    except OSError as error:
        raise WorktreeError(f"cannot write {file}: {error.strerror}") from None


def _escaped(value: bytes) -> bytes:
    return value.replace(b"\\", b"\\\\").replace(b'"', b'\\"')


def attach(kept: Repository, top: str) -> Repository | None:
    """Makes a place that is empty the worktree of a repository that git keeps for a submodule, without any files.

    Args:
        kept: one of `stores`.
        top: the place; it need not be there.

    Returns:
        The repository as seen from there; None where something is there, or the repository has another worktree.

    Raises:
        GitError: git cannot write the configuration.
        WorktreeError: the directory cannot be made.
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
    """Return where `core.worktree` of a repository leads to; None where it is not set."""
    words = ("config", "--file", os.path.join(kept.git_dir, "config"), "core.worktree")
    own = os.fsdecode(kept.git.run(*words, ok=(0, 1)).out.removesuffix(b"\n"))
    return os.path.normpath(os.path.join(kept.git_dir, own)) if own else None


def is_lost(kept: Repository) -> bool:
    """Tell whether `core.worktree` of a submodule's repository leads to a place without it."""
    there = _recorded(kept)
    return there is not None and not os.path.lexists(os.path.join(there, ".git"))


def claim(kept: Repository, top: str) -> None:
    """Point `core.worktree` of a submodule's repository to a place: by that git finds the files.

    Raises:
        GitError: git cannot write the configuration.
    """
    way = os.path.relpath(os.path.realpath(top), os.path.realpath(kept.git_dir))
    kept.git.run("config", "--file", os.path.join(kept.git_dir, "config"), "core.worktree", way)


def _link(kept: Repository, top: str) -> None:
    """Write the `.git` file of a submodule's worktree."""
    way = os.path.relpath(os.path.realpath(kept.git_dir), os.path.realpath(top))
    # `attach` refuses a directory that is not empty: a kill must leave no scratch file in this one.
    scratch = os.path.join(kept.git_dir, administration.AWAY)
    atomic.write(os.path.join(top, ".git"), os.fsencode(f"gitdir: {way}\n"), scratch=scratch)


def checked_out_at(repository: Repository, kept: Repository) -> bytes | None:
    """Return the path at which a worktree has a submodule's repository; None where it has not.

    Args:
        repository: seen from the worktree.
        kept: one of `stores`.
    """
    there = _recorded(kept)
    if there is None or repository.worktree is None:
        return None
    path = os.fsencode(os.path.relpath(os.path.realpath(there), os.path.realpath(repository.worktree)))
    top = place(repository, path)
    named = administration.named_by(top) if top is not None else None
    is_same = named is not None and os.path.realpath(named) == os.path.realpath(kept.git_dir)
    return path if is_same else None


def move(repository: Repository, kept: Repository, path: bytes, top: str) -> Repository:
    """Move a submodule, with all that lies in it, to a place that is empty.

    Args:
        repository: seen from the worktree.
        kept: the submodule's repository.
        path: where it is checked out, as `checked_out_at` returned it.
        top: where it is to be; it need not be there.

    Returns:
        The repository as seen from there.

    Raises:
        WorktreeError: it cannot be moved.
    """
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
    """Has a submodule that was moved, and those in it, and their repositories find each other."""
    for git_dir in _git_dirs(os.path.join(kept.git_dir, "modules")):
        with contextlib.closing(_kept(git_dir, kept.object_format)) as inner:
            below = os.path.relpath(_recorded(inner) or old, old)
            if below != "." and not below.startswith(".."):
                _reconnect(inner, os.path.join(old, below), os.path.join(top, below))
    if os.path.isfile(os.path.join(top, ".git")):
        claim(kept, top)
        _link(kept, top)


def place(repository: Repository, path: bytes) -> str | None:
    """Returns where a submodule is to be in a worktree; None where a path leads out of it, or through a link.

    Args:
        repository: seen from the worktree.
        path: of the submodule.
    """
    if repository.worktree is None or not is_plain(path) or _is_through_link(repository.worktree, path):
        return None
    return os.path.join(repository.worktree, os.fsdecode(path))


def holding(repository: Repository, path: bytes, ref: str) -> Repository | None:
    """Returns the repository of a submodule that has a ref: the one that is checked out at its path, or one that is kept.

    Args:
        repository: seen from any of its worktrees.
        path: of the submodule.
        ref: full name of the ref.
    """
    here = seen_from(repository, path)
    for one in (*([here] if here is not None else []), *stores(repository, [path])):
        if has(one, ref):
            return one
        one.close()
    return None


def beside(repository: Repository, ref: str) -> Repository | None:
    """Returns the repository of a submodule within a submodule that has a ref, where another worktree of the repository around both has it.

    Git clones a submodule anew for each linked worktree, and with it none of what is within the one that was there.

    Args:
        repository: the submodule, seen from any of its worktrees.
        ref: full name of the ref.
    """
    parts = repository.common_dir.split(os.sep)
    for at in (number for number, part in enumerate(parts) if part == "modules"):
        above = parts[: at - 2] if parts[at - 2] == "worktrees" else parts[:at]
        around = _kept(os.sep.join(above), repository.object_format)
        if not _is_git_dir(around.git_dir):
            continue
        for twin in (os.path.join(place, *parts[at + 1 :]) for place in _places(around)):
            for git_dir in _git_dirs(os.path.join(twin, "modules")) if twin != repository.common_dir else ():
                one = _kept(git_dir, repository.object_format)
                if has(one, ref):
                    return one
                one.close()
    return None


def is_held(repository: Repository, path: bytes, ref: str) -> bool:
    """Tells whether some repository of a submodule has a ref. Args: as `holding`."""
    there = holding(repository, path, ref)
    if there is not None:
        there.close()
    return there is not None


def has(repository: Repository, ref: str) -> bool:
    """Tells whether a repository has a ref."""
    if plain(repository, ref) is not None:
        return True
    return may_be_there(repository, ref) and repository.cat_file.info(ref) is not None


def is_plain(path: bytes) -> bool:
    """Tells whether a path leads from the top of a worktree to a place within it that git would take for one of a submodule."""
    return not any(part.lower() in _ELSEWHERE for part in path.split(b"/")) and b"\0" not in path


def is_submodule(repository: Repository, tree: str, path: bytes) -> bool:
    """Tells whether a tree has a submodule at a path."""
    found = leaf(repository, tree, path)
    return found is not None and found[1] == GITLINK


def of_tree(repository: Repository, tree: str) -> list[tuple[bytes, str]]:
    """Returns the submodules of a tree or commit: path, and the commit of each."""
    return [(path, oid) for path, mode, oid in leaves(repository, tree) if mode == GITLINK]


def unquoted(text: str) -> bytes:
    """Returns the path that a document names, C-quoted where it is not UTF-8."""
    data = os.fsencode(text)
    if len(data) > 1 and data[:1] == data[-1:] == b'"' and _OCTAL.search(data):
        path = _OCTAL.sub(lambda found: bytes([int(found[1], 8)]), data[1:-1])
        try:
            path.decode("utf-8")
        except UnicodeDecodeError:
            return path
    return data


def _places(repository: Repository) -> list[str]:
    """Returns where git keeps repositories of submodules: for the main worktree, and for each linked one."""
    linked = administration.administration(repository)
    tops = (repository.common_dir, *(os.path.join(linked, name) for name in names_in(linked)))
    return [os.path.join(top, "modules") for top in tops]


def _git_dirs(place: str) -> Iterator[str]:
    """Yields the git directories below a directory; names of submodules may have slashes."""
    for name in names_in(place) if not os.path.islink(place) else ():
        path = os.path.join(place, name)
        if _is_git_dir(path):
            yield path
        elif os.path.isdir(path):
            yield from _git_dirs(path)


def _is_git_dir(path: str) -> bool:
    has_all = all(os.path.isdir(os.path.join(path, name)) for name in ("objects", "refs"))
    return has_all and not os.path.islink(path) and os.path.isfile(os.path.join(path, "HEAD"))


def _is_through_link(top: str, path: bytes) -> bool:
    parts = os.fsdecode(path).split("/")
    return any(os.path.islink(os.path.join(top, *parts[:count])) for count in range(1, len(parts) + 1))
