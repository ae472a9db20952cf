"""Open stores with a test's clock and ids; inspect refs and files with plain git."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from gitckpt import Checkpoint, Lease, Pipeline, Store, Worktree, as_datetime, as_instant
from gitckpt.git.lock import FileLock
from gitckpt.git.repository import discover_repository
from gitckpt.model import codec, ids, times
from gitckpt.store import local_checkpoints
from gitckpt.store.checkpoints import Checkpoints
from gitckpt.store.store import checkpoints_of_store
from tests.conftest import Checkout, repository_of

if TYPE_CHECKING:
    from gitckpt.store.leases.leases import HeldLease

SECOND = 1_000_000
HOUR = 3600 * SECOND
DAY = 24 * HOUR

HOOKS = ("post-commit", "post-merge", "post-applypatch", "post-rewrite", "pre-auto-gc")
"""The hooks that `git ckpt init` installs."""

OWN_REFS = ("refs/checkpoints", "refs/ckpt", "refs/keep/ckpt", "refs/keep/ckpt-operations")
"""The namespaces of gitckpt, without its notes."""

PRESETS = ("plan-to-pr", "rlm-act", "loop", "review")
"""The pipelines that gitckpt brings along."""

Place = Store | Checkout | Path | str


def open_store(
    place: Checkout | Path | str,
    adapter: str = "plumbing",
    *,
    clock: Callable[[], int] = times.now,
    new_id: Callable[[], str] = ids.make_checkpoint_id,
) -> Store:
    """Open a store as `Store.open` does, but with a test's clock and ids."""
    repository = (
        repository_of(place)
        if isinstance(place, Checkout)
        else discover_repository(os.fspath(place))
    )
    return Store(Checkpoints(repository, adapter=adapter, clock=clock, new_id=new_id))


def set_clock(store: Store, clock: Callable[[], int]) -> None:
    """Replace the clock of a store."""
    checkpoints_of_store(store).clock = clock


def clock_of(store: Store) -> Callable[[], int]:
    """Return the clock of a store."""
    return checkpoints_of_store(store).clock


def hold_run(store: Store, run: str | None, holder: str = "a test") -> HeldLease:
    """Take the lease of a run, as a driver does, and return it for a release."""
    return checkpoints_of_store(store).leases.acquire_lease(str(run), holder)


def git(place: Place, *args: str, data: str = "", ok: tuple[int, ...] = (0,)) -> str:
    """Run git in the repository of a store or checkout."""
    return _checkout(place).git(*args, data=data, ok=ok)


def _checkout(place: Place) -> Checkout:
    if isinstance(place, Store):
        place = place.worktree or checkpoints_of_store(place).repository.git_dir
    return place if isinstance(place, Checkout) else Checkout(Path(place))


def git_dir(place: Place) -> Path:
    """Return the directory that git keeps for this worktree."""
    return Path(git(place, "rev-parse", "--absolute-git-dir"))


def common_dir(place: Place) -> Path:
    """Return the directory that the worktrees of a repository share."""
    return Path(git(place, "rev-parse", "--path-format=absolute", "--git-common-dir"))


def private_dir(place: Place) -> Path:
    """Return gitckpt's directory of derived data, `ckpt` in git's common directory."""
    return common_dir(place) / "ckpt"


def make_private_dir(place: Place) -> Path:
    """Create `private_dir` if it is missing."""
    path = private_dir(place)
    path.mkdir(mode=0o700, exist_ok=True)
    return path


def ref_oid(place: Place, ref: str) -> str | None:
    """Return the oid of a ref; None if the ref does not exist."""
    return git(place, "rev-parse", "--verify", "--quiet", ref, ok=(0, 1)) or None


def update_refs(place: Place, *changes: tuple[str, str, str]) -> None:
    """Change refs in one transaction.

    Args:
        changes: name, new oid ("" to delete) and old oid ("" for a ref that does not exist).
    """
    commands = []
    for ref, new, old in changes:
        if not new:
            commands.append(f"delete {ref} {old}")
        else:
            commands.append(f"update {ref} {new} {old}" if old else f"create {ref} {new}")
    git(place, "update-ref", "--no-deref", "--stdin", data="".join(f"{c}\n" for c in commands))


@functools.cache
def default_settings() -> str:
    """Return the `gitckpt.toml` that `git ckpt init` writes."""
    with tempfile.TemporaryDirectory() as directory:
        Checkout(Path(directory)).git("init", "--quiet")
        with Store.open(directory) as store:
            store.install("none")
        return Path(directory, "gitckpt.toml").read_text()


def preset_text(name: str) -> str:
    """Return the file of a pipeline that gitckpt brings along."""
    package = Path(__file__).parents[1] / "gitckpt"
    return (package / "durable/pipeline/presets" / f"{name}.toml").read_text(encoding="utf-8")


def document_of(checkpoint: Checkpoint) -> bytes:
    """Return the document of a checkpoint, to plant it in a repository."""
    return codec.encode(checkpoint)


def lock_file(path: Path | str) -> FileLock:
    """Return a lock on a file, to hold it in a `with` block as another process would."""
    return FileLock(os.fspath(path), 0)


class LeftOut(NamedTuple):
    """A path that a capture left out, with the fields of `Worktree.omitted`."""

    path: str
    reason: str
    size: int | None = None
    oid: str | None = None
    dirty: bool | None = None


def left_out(files: Worktree) -> tuple[LeftOut, ...]:
    """Return the omitted paths; fail if an entry has an unknown field."""
    assert not any(entry.unknown for entry in files.omitted)
    return tuple(
        LeftOut(entry.path, entry.reason, entry.size, entry.oid, entry.dirty)
        for entry in files.omitted
    )


def maintain(place: Place) -> None:
    """Run the background maintenance that a hook starts, and wait for its end."""
    command = [
        sys.executable,
        "-c",
        "import sys; from gitckpt.hook import main; main(sys.argv[1:])",
    ]
    subprocess.run([*command, "maintain"], cwd=_checkout(place).path, check=True)


def close_index(store: Store) -> None:
    """Close the index of a store, so that a test may delete or damage its file."""
    checkpoints_of_store(store).index.close()


def owner_of(store: Store) -> tuple[str, str | None] | None:
    """Return the checkpoint and run of a worktree from its file `ckpt-run`."""
    file = git_dir(store) / "ckpt-run"
    if not file.exists():
        return None
    owner = json.loads(file.read_text(encoding="utf-8"))
    return owner["checkpoint"], owner.get("run")


def run_worktrees(store: Store) -> dict[str, str]:
    """Map each run to the path at which git has its worktree registered."""
    return {run.run: run.path for run in store.runs() if run.path is not None}


def forget_local(store: Store, run: str) -> None:
    """Let a run look fetched: forget that its checkpoints were written in this clone."""
    local_checkpoints.delete_run_file(checkpoints_of_store(store).repository, run)


def change_lease(store: Store, run: str, **fields: Any) -> None:
    """Write a lease as another driver would: the present one with other fields."""
    leases = checkpoints_of_store(store).leases
    found = leases.read(run)
    assert found is not None
    leases.replace_lease(dataclasses.replace(found[1], **fields), found[0])


def lease_document(lease: Lease) -> bytes:
    """Return the document of a lease, to plant it in a repository."""
    from gitckpt.store.leases.leases import render_lease

    return render_lease(lease)


def messages_of(store: Store) -> list[str]:
    """Return a list to which a store adds the messages for its listener."""
    told: list[str] = []
    checkpoints_of_store(store)._listener.tell = told.append
    return told


def write_lock(place: Place) -> FileLock:
    """Return the lock that a writer of refs holds, without waiting for it."""
    return FileLock(os.fspath(make_private_dir(place) / "write.lock"), 0)


def run_hook(*argv: str) -> int:
    """Run the hook of an event in this process, as git would run `git ckpt hook`."""
    from gitckpt.hook import main

    return main(list(argv))


def install_hooks(checkout: Checkout) -> None:
    """Install only gitckpt's hooks, for the git that the tests use."""
    from gitckpt.git.command import require_git_version
    from gitckpt.store.hooks.installation import install_hooks

    install_hooks(discover_repository(str(checkout.path)), version=require_git_version())


def hook_command(event: str) -> list[str]:
    """Return the command that the shell of a hook's file starts."""
    from gitckpt.hook import _BOOTSTRAP
    from gitckpt.store.hooks.files import PACKAGE_DIR

    return [sys.executable, "-I", "-S", "-c", _BOOTSTRAP, PACKAGE_DIR, event]


def begin_run(store: Store, name: str, pipeline: Pipeline | None = None) -> Checkpoint:
    """Record the first checkpoint of a run without a worktree, as `git ckpt start`."""
    from gitckpt.durable.run import opener

    return opener.begin_run(
        checkpoints_of_store(store), name, state={}, pipeline=pipeline or Pipeline()
    )


def operation_of(place: Place) -> str | None:
    """Return the operation in progress in a worktree, as git's own files tell it."""
    directory = git_dir(place)
    files = {
        "rebase-merge": "rebase",
        "rebase-apply": "rebase",
        "CHERRY_PICK_HEAD": "cherry-pick",
        "REVERT_HEAD": "revert",
        "MERGE_HEAD": "merge",
    }
    return next((name for file, name in files.items() if (directory / file).exists()), None)


def plant_snapshot(store: Store, files: str, **parts: Any) -> str:
    """Write the tree of a snapshot as another program could, and return its oid.

    Args:
        files: the tree of the files.
        parts: `flags`, `directories` or `modes`, which a git tree cannot represent.
    """
    from gitckpt.store.snapshot.manifest import Snapshot, write

    checkpoints = checkpoints_of_store(store)
    return write(checkpoints.repository, checkpoints.objects, Snapshot(files, **parts))


def set_ids(store: Store, new_id: Callable[[], str]) -> None:
    """Replace the source of checkpoint ids of a store."""
    checkpoints_of_store(store).new_id = new_id


def head_of(store: Store, run: str | None) -> Checkpoint:
    """Return the checkpoint at `refs/ckpt/runs/<run>`; do not move the ref."""
    document = tomllib.loads(git(store, "cat-file", "blob", f"refs/ckpt/runs/{run}"))
    return store.read(document["id"])


def timestamp(instant: int) -> str:
    """Format microseconds since the epoch: 2027-01-15T08:00:00.000000Z."""
    return as_datetime(instant).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def instant_of(text: str) -> int:
    """Return a timestamp of a document in microseconds since the epoch."""
    return as_instant(as_datetime(text))
