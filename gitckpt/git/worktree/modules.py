"""Find and copy submodule repositories, in worktrees and in git's `modules`.

Names in `.gitmodules` never become paths: this module walks git's directories, without following
links.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Collection, Iterable, Iterator, Sequence

from gitckpt.git.catfile import CatFileProcess
from gitckpt.git.command import GitRunner
from gitckpt.git.files import regular
from gitckpt.git.files.refs_stat import may_ref_exist, read_loose_ref
from gitckpt.git.filesystem import names_in
from gitckpt.git.objects.diff import find_leaf, list_leaves
from gitckpt.git.objects.encoding import GITLINK
from gitckpt.git.process import LOCAL_ONLY, OFFLINE, git_environment, git_executable, run_program
from gitckpt.git.repository import Repository
from gitckpt.git.worktree import administration
from gitckpt.model.errors import WorktreeError

# Name of a submodule, its repository, and that of the same submodule elsewhere, if any.
Pair = tuple[str, Repository, Repository | None]

_OCTAL = re.compile(rb"\\([0-3][0-7]{2})")
_LOCALLY = ("-c", "protocol.file.allow=always", "-c", "core.hooksPath=/dev/null")
# Overrides `transfer.hideRefs` (git-config(1)): the repository is local and belongs to the user.
_ALL_REFS = "git -c transfer.hideRefs=!refs/ -c uploadpack.hideRefs=!refs/ upload-pack"
_FETCH = (
    *("fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--recurse-submodules=no"),
    f"--upload-pack={_ALL_REFS}",
)

_FLUSHED = ("-c", "core.fsync=all", "-c", "core.fsyncMethod=fsync")
_STORAGE_SETTINGS = (b"core.repositoryformatversion", b"core.bare", b"core.worktree")
_FORBIDDEN_PARTS = (b"", b".", b"..", b".git")
# Besides `HEAD`, what git looks for (`is_git_directory` in its setup.c).
_REPOSITORY_DIRS = (b"objects", b"refs")


def open_submodule(repository: Repository, path: bytes) -> Repository | None:
    top = checkout_path(repository, path)
    if top is None:
        return None
    dot_git = os.path.join(top, ".git")
    git_dir = dot_git if os.path.isdir(dot_git) else administration.git_dir_of(top)
    if git_dir is None or os.path.islink(dot_git) or not os.path.isfile(f"{git_dir}/HEAD"):
        return None
    submodule = Repository(git_dir, top, repository.object_format)
    is_same = os.path.realpath(submodule.common_dir) == os.path.realpath(repository.common_dir)
    return None if is_same else submodule


def may_have_submodules(repository: Repository) -> bool:
    # Starts no process.
    tops = [repository.worktree, os.path.dirname(repository.common_dir)]
    has_modules = any(map(os.path.isdir, _module_dirs(repository)))
    return has_modules or any(os.path.lexists(f"{top}/.gitmodules") for top in tops if top)


def read_submodule_head(top: bytes) -> str | None:
    words = ("rev-parse", "--quiet", "--verify", "HEAD^{commit}")
    result = run_program(
        [git_executable(), "-C", os.fsdecode(top), *words], env=git_environment(OFFLINE)
    )
    return result.text or None if result.code == 0 else None


def find_git_dirs_inside(repository: Repository) -> list[bytes]:
    top = os.path.realpath(repository.worktree or os.curdir)
    git_dirs = {os.path.realpath(repository.git_dir), os.path.realpath(repository.common_dir)}
    module_dirs = {os.path.relpath(git_dir, top) for git_dir in git_dirs}
    outside = (os.curdir, os.pardir, ".git")
    return sorted(os.fsencode(path) for path in module_dirs if path.split("/")[0] not in outside)


def find_bare_repositories(top: bytes, paths: Iterable[bytes]) -> list[bytes]:
    paths = {os.path.dirname(path) for path in paths if os.path.basename(path) == b"HEAD"} - {b""}
    return sorted(path for path in paths if _has_repository_dirs(os.path.join(top, path)))


def is_below(path: bytes, directories: Collection[bytes]) -> bool:
    return any(path == directory or path.startswith(directory + b"/") for directory in directories)


def has_modules_dir(git_dir: str) -> bool:
    # git deletes them with the worktree.
    return os.path.isdir(os.path.join(git_dir, "modules"))


def list_submodule_repos(repository: Repository, paths: Collection[bytes] = ()) -> list[Repository]:
    """Return submodule repositories: all in `modules`, and each `.git` at `paths`."""
    git_dirs = [git_dir for modules in _module_dirs(repository) for git_dir in _git_dirs(modules)]
    worktrees = [
        repository.worktree,
        *(path for _, path in administration.list_worktrees(repository)),
    ]
    if repository.is_linked:
        worktrees.append(administration.main_worktree(repository))
    for worktree in dict.fromkeys(filter(None, worktrees)):
        for path in paths:
            dot_git = os.path.join(worktree, os.fsdecode(path), ".git")
            if is_valid_path(path) and not _has_link(worktree, path) and _is_git_dir(dot_git):
                git_dirs.append(dot_git)
    return [_open_store(git_dir, repository.object_format) for git_dir in dict.fromkeys(git_dirs)]


def _open_store(git_dir: str, object_format: str) -> Repository:
    # Without a worktree: git would die if `core.worktree` leads to a missing directory.
    store = Repository(git_dir, None, object_format)
    store.git = GitRunner(git_dir, git_dir)
    store.cat_file = CatFileProcess(store.git)
    return store


def clone_submodule(
    superproject: Repository,
    store: Repository,
    target: Repository,
    path: bytes,
    refs: Sequence[str],
) -> Repository:
    """Copy `store`, a submodule's repository, into `modules` of the worktree `target`.

    `refs` are patterns of refs to copy besides branches, tags and remote-tracking branches.
    """
    module_dirs = [
        parent for parent in _module_dirs(superproject) if store.git_dir.startswith(parent + os.sep)
    ]
    name = os.path.relpath(store.git_dir, module_dirs[0]) if module_dirs else os.fsdecode(path)
    final_path = os.path.join(target.git_dir, "modules", name)
    if not os.path.lexists(final_path):
        scratch = os.path.join(target.git_dir, f"ckpt-making-{os.urandom(4).hex()}")
        words = ("clone", "--quiet", "--bare", "--local", "--template=", store.git_dir, scratch)
        store.git.run(*_LOCALLY, *words, env=LOCAL_ONLY)
        copy = _open_store(scratch, store.object_format)
        refspecs = [f"+{ref}:{ref}" for ref in ("refs/remotes/*", *refs)]
        copy.git.run(*_LOCALLY, *_FETCH, store.git_dir, *refspecs, env=LOCAL_ONLY)
        _copy_settings(store, copy)
        copy.close()
        try:
            os.makedirs(os.path.dirname(final_path), exist_ok=True)
            os.rename(scratch, final_path)
        except OSError as error:
            raise WorktreeError(f"cannot create {final_path}: {error.strerror}") from None
    return _open_store(final_path, store.object_format)


def iterate_submodule_pairs(repository: Repository, git_dir: str) -> Iterator[Pair]:
    """Yield the name and the repository of each submodule in `git_dir`.

    The third item is the repository of the same submodule in the main worktree, or None.
    """
    for name, submodule, main_repository in _pairs(
        git_dir, repository.common_dir, "", repository.object_format
    ):
        with contextlib.closing(submodule):
            yield name, submodule, main_repository
        if main_repository is not None:
            main_repository.close()


def iterate_nested_pairs(submodule: Repository, copy: Repository) -> Iterator[Pair]:
    return _pairs(submodule.git_dir, copy.git_dir, "", submodule.object_format)


def _pairs(git_dir: str, other_dir: str, name_prefix: str, object_format: str) -> Iterator[Pair]:
    modules_dir = os.path.join(git_dir, "modules")
    for inner_git_dir in _git_dirs(modules_dir):
        name = os.path.relpath(inner_git_dir, modules_dir)
        twin_git_dir = os.path.join(other_dir, "modules", name)
        twin_store = _open_store(twin_git_dir, object_format) if _is_git_dir(twin_git_dir) else None
        yield name_prefix + name, _open_store(inner_git_dir, object_format), twin_store
        yield from _pairs(inner_git_dir, twin_git_dir, f"{name_prefix}{name}/", object_format)


def is_copy_of_submodule(repository: Repository, candidate: Repository, commit: str) -> bool:
    """Return whether `candidate` lies in a `modules` directory, or has `commit`."""
    module_dirs = tuple(os.path.realpath(modules) + os.sep for modules in _module_dirs(repository))
    is_in_modules = os.path.realpath(candidate.common_dir).startswith(module_dirs)
    return is_in_modules or (
        bool(commit) and candidate.cat_file.info(f"{commit}^{{commit}}") is not None
    )


def fetch_refs(to: Repository, source: Repository, refs: Sequence[str]) -> None:
    if refs:
        data = "".join(f"{ref}:{ref}\n" for ref in refs).encode()
        words = (*_LOCALLY, *_FLUSHED, *_FETCH, "--stdin", source.git_dir)
        to.git.run(*words, data=data, env=LOCAL_ONLY)


def _copy_settings(store: Repository, copy: Repository) -> None:
    file = os.path.join(copy.git_dir, "config")
    copy.git.run("config", "--file", file, "--remove-section", "remote.origin", ok=(0, 128))
    copy.git.run("config", "--file", file, "core.bare", "false")
    source = os.path.join(store.common_dir, "config")
    text = b""
    for entry in store.git.run("config", "--file", source, "--list", "-z").out.split(b"\0")[:-1]:
        key, is_set, value = entry.partition(b"\n")
        section, _, subkey = key.partition(b".")
        name, _, last_part = subkey.rpartition(b".")
        # The copy keeps the settings on its storage.
        if section == b"extensions" or key in _STORAGE_SETTINGS:
            continue
        section_title = b'%s "%s"' % (section, _escape_value(name)) if name else section
        quoted_value = b' = "%s"' % _escape_value(value).replace(b"\n", b"\\n") if is_set else b""
        text += b"[%s]\n\t%s%s\n" % (section_title, last_part, quoted_value)
    try:
        with open(file, "ab") as config:
            config.write(text)
    except OSError as error:
        raise WorktreeError(f"cannot write {file}: {error.strerror}") from None


def _escape_value(value: bytes) -> bytes:
    return value.replace(b"\\", b"\\\\").replace(b'"', b'\\"')


def attach_worktree(store: Repository, top: str) -> Repository | None:
    """Make an empty directory the worktree of a submodule's repository, without files.

    Returns None if the directory is not empty, or the repository has another worktree.
    """
    recorded_top = _read_recorded_worktree(store) or top
    has_moved = os.path.realpath(recorded_top) != os.path.realpath(top)
    has_other_worktree = has_moved and os.path.lexists(os.path.join(recorded_top, ".git"))
    if has_other_worktree or store.is_linked or os.path.basename(store.git_dir) == ".git":
        return None
    try:
        os.makedirs(top, exist_ok=True)
        if os.listdir(top):
            return None
        set_worktree(store, top)
        _write_dot_git(store, top)
    except OSError as error:
        raise WorktreeError(f"cannot create {top}: {error.strerror}") from None
    return Repository(store.git_dir, top, store.object_format)


def _read_recorded_worktree(store: Repository) -> str | None:
    words = ("config", "--file", f"{store.git_dir}/config", "core.worktree")
    value = os.fsdecode(store.git.run(*words, ok=(0, 1)).out.removesuffix(b"\n"))
    return os.path.normpath(os.path.join(store.git_dir, value)) if value else None


def has_lost_worktree(store: Repository) -> bool:
    recorded_top = _read_recorded_worktree(store)
    return recorded_top is not None and not os.path.lexists(os.path.join(recorded_top, ".git"))


def set_worktree(store: Repository, top: str) -> None:
    target = os.path.relpath(os.path.realpath(top), os.path.realpath(store.git_dir))
    store.git.run("config", "--file", f"{store.git_dir}/config", "core.worktree", target)


def _write_dot_git(store: Repository, top: str) -> None:
    target = os.path.relpath(os.path.realpath(store.git_dir), os.path.realpath(top))
    # A kill must leave no file in `top`: a submodule is checked out into empty directories only.
    scratch = os.path.join(store.git_dir, administration.WORKTREE_SCRATCH)
    regular.write(os.path.join(top, ".git"), os.fsencode(f"gitdir: {target}\n"), scratch=scratch)


def find_checkout_path(repository: Repository, store: Repository) -> bytes | None:
    recorded_top = _read_recorded_worktree(store)
    if recorded_top is None or repository.worktree is None:
        return None
    worktree = os.path.realpath(repository.worktree)
    path = os.fsencode(os.path.relpath(os.path.realpath(recorded_top), worktree))
    top = checkout_path(repository, path)
    git_dir = administration.git_dir_of(top) if top is not None else None
    is_same = os.path.realpath(git_dir or "/") == os.path.realpath(store.git_dir)
    return path if is_same else None


def move_submodule(repository: Repository, store: Repository, path: bytes, top: str) -> Repository:
    worktree = repository.worktree or ""
    old_path = os.path.join(worktree, os.fsdecode(path))
    try:
        os.makedirs(top, exist_ok=True)
        os.rename(old_path, top)
        _reconnect(store, old_path, top)
        parent_dir = os.path.dirname(old_path)
        while parent_dir != worktree and not os.listdir(parent_dir):
            os.rmdir(parent_dir)
            parent_dir = os.path.dirname(parent_dir)
    except OSError as error:
        raise WorktreeError(f"cannot move {old_path} to {top}: {error.strerror}") from None
    return Repository(store.git_dir, top, store.object_format)


def _reconnect(store: Repository, old_top: str, top: str) -> None:
    for git_dir in _git_dirs(os.path.join(store.git_dir, "modules")):
        with contextlib.closing(_open_store(git_dir, store.object_format)) as inner_store:
            subpath = os.path.relpath(_read_recorded_worktree(inner_store) or old_top, old_top)
            if subpath != "." and not subpath.startswith(".."):
                _reconnect(inner_store, os.path.join(old_top, subpath), os.path.join(top, subpath))
    if os.path.isfile(os.path.join(top, ".git")):
        set_worktree(store, top)
        _write_dot_git(store, top)


def checkout_path(repository: Repository, path: bytes) -> str | None:
    top = repository.worktree
    if top is None or not is_valid_path(path) or _has_link(top, path):
        return None
    return os.path.join(top, os.fsdecode(path))


def find_submodule_with_ref(repository: Repository, path: bytes, ref: str) -> Repository | None:
    return _find_first_with(
        [open_submodule(repository, path), *list_submodule_repos(repository, [path])], ref
    )


def _find_first_with(candidates: Iterable[Repository | None], ref: str) -> Repository | None:
    for candidate in filter(None, candidates):
        if has_ref(candidate, ref):
            return candidate
        candidate.close()
    return None


def find_nested_with_ref(repository: Repository, ref: str) -> Repository | None:
    # git clones a submodule again for each linked worktree, without the submodules nested in it.
    parts, object_format = repository.common_dir.split(os.sep), repository.object_format
    for start in (number for number, part in enumerate(parts) if part == "modules"):
        prefix = parts[: start - 2] if parts[start - 2] == "worktrees" else parts[:start]
        superproject = _open_store(os.sep.join(prefix), object_format)
        if not _is_git_dir(superproject.git_dir):
            continue
        copies = [os.path.join(place, *parts[start + 1 :]) for place in _module_dirs(superproject)]
        copies = [twin for twin in copies if twin != repository.common_dir]
        git_dirs = (path for twin in copies for path in _git_dirs(os.path.join(twin, "modules")))
        store = _find_first_with((_open_store(git_dir, object_format) for git_dir in git_dirs), ref)
        if store is not None:
            return store
    return None


def is_ref_in_submodule(repository: Repository, path: bytes, ref: str) -> bool:
    submodule = find_submodule_with_ref(repository, path, ref)
    if submodule is not None:
        submodule.close()
    return submodule is not None


def has_ref(repository: Repository, ref: str) -> bool:
    if read_loose_ref(repository, ref) is not None:
        return True
    return may_ref_exist(repository, ref) and repository.cat_file.info(ref) is not None


def is_valid_path(path: bytes) -> bool:
    return (
        not any(part.lower() in _FORBIDDEN_PARTS for part in path.split(b"/")) and b"\0" not in path
    )


def is_submodule(repository: Repository, tree: str, path: bytes) -> bool:
    entry = find_leaf(repository, tree, path)
    return entry is not None and entry[1] == GITLINK


def list_submodules(repository: Repository, tree: str) -> list[tuple[bytes, str]]:
    return [(path, oid) for path, mode, oid in list_leaves(repository, tree) if mode == GITLINK]


def unquote_path(text: str) -> bytes:
    """Decode a path from a checkpoint's document; only non-UTF-8 paths are C-quoted."""
    data = os.fsencode(text)
    if len(data) > 1 and data[:1] == data[-1:] == b'"' and _OCTAL.search(data):
        path = _OCTAL.sub(lambda match: bytes([int(match[1], 8)]), data[1:-1])
        try:
            path.decode("utf-8")
        except UnicodeDecodeError:
            return path
    return data


def _module_dirs(repository: Repository) -> list[str]:
    tops = (repository.common_dir, *administration.list_git_dirs(repository))
    return [os.path.join(top, "modules") for top in tops]


def _git_dirs(directory: str) -> Iterator[str]:
    for name in names_in(directory) if not os.path.islink(directory) else ():
        path = os.path.join(directory, name)
        if _is_git_dir(path):
            yield path
        elif os.path.isdir(path):
            yield from _git_dirs(path)  # names of submodules may have slashes


def _is_git_dir(path: str) -> bool:
    has_parts = _has_repository_dirs(os.fsencode(path))
    return has_parts and not os.path.islink(path) and os.path.isfile(os.path.join(path, "HEAD"))


def _has_repository_dirs(path: bytes) -> bool:
    return all(os.path.isdir(os.path.join(path, name)) for name in _REPOSITORY_DIRS)


def _has_link(top: str, path: bytes) -> bool:
    parts = os.fsdecode(path).split("/")
    depths = range(1, len(parts) + 1)
    return any(os.path.islink(os.path.join(top, *parts[:depth])) for depth in depths)
