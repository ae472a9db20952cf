"""Make repositories with many checkpoints, by fast-import and a packed-refs file."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping

from gitckpt import Checkpoint, Lease
from gitckpt.git.notes import GitNotes
from gitckpt.git.objects import writer
from gitckpt.git.objects.plumbing import open_objects
from gitckpt.git.repository import discover_repository
from gitckpt.model import codec, note, times
from gitckpt.model.checkpoint import CLEAN, PHASE, POST_COMMIT
from gitckpt.store.leases.leases import render_lease
from gitckpt.store.records import ref_names

DAY = 86400 * times.MICRO

_GET_FLAGS, _SET_FLAGS, _TOP_DIR = 0x80086601, 0x40086602, 0x20000
"""Constants of <linux/fs.h> on 64-bit systems: FS_IOC_GETFLAGS and the next two."""

_SETTLED = 0.2
"""Seconds after which changed refs are trusted; before that, each listing reads them again."""


class Scratch:
    """A directory with repositories, and an environment without the user's configuration.

    Args:
        path: the directory; made where it is missing.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        os.makedirs(path, exist_ok=True)
        _spread(path)
        config = os.path.join(path, "gitconfig")
        with open(config, "w", encoding="utf-8") as file:
            file.write(
                "[user]\n\tname = Bench\n\temail = bench@example.org\n"
                "[gc]\n\tauto = 0\n[maintenance]\n\tauto = false\n"
            )
            file.write("[init]\n\tdefaultBranch = main\n")
        os.environ.update(GIT_CONFIG_GLOBAL=config, GIT_CONFIG_NOSYSTEM="1", HOME=path)
        for name in [
            name
            for name in os.environ
            if name.startswith("GIT_") and not name.startswith("GIT_CONFIG")
        ]:
            del os.environ[name]

    def store(self, count: int, *, linked: bool = True) -> str:
        """Return a repository with a checkpoint on each commit; 10 % are 40 days old.

        Args:
            count: how many; at least one commit is made.
            linked: whether there are checkpoints at all, or only the commits.
        """
        path = os.path.join(self.path, f"store-{count}{'' if linked else '-without'}")
        if not os.path.exists(path):
            _build(f"{path}.new", count, linked=linked)
            os.rename(f"{path}.new", path)
        return path

    def tree(self, count: int) -> str:
        """Return a checked-out repository with one commit of 2 KB files, 100 a directory."""
        path = os.path.join(self.path, f"tree-{count}")
        if not os.path.exists(path):
            _build_tree(f"{path}.new", count)
            os.rename(f"{path}.new", path)
        return path

    def runs(self, count: int, checkpoints: int) -> str:
        """Return a repository with complete runs whose leases were released."""
        path = os.path.join(self.path, f"runs-{count}-{checkpoints}")
        if not os.path.exists(path):
            _build_runs(f"{path}.new", count, checkpoints)
            os.rename(f"{path}.new", path)
        return path

    def copy(self, source: str, name: str) -> str:
        """Return a copy of a repository; `clear` deletes it (`_spread`: why not at once)."""
        path = os.path.join(
            self.path, f"{name}~{os.urandom(4).hex()}"
        )  # where it comes to lie depends on its name
        shutil.copytree(source, path, symlinks=True)
        os.sync()  # or the first flushes that are measured would pay for the copy
        time.sleep(_SETTLED)
        return path

    def put_aside(self, path: str) -> None:
        """Takes a directory out of the way, until `clear`."""
        os.rename(path, f"{path}~{os.urandom(4).hex()}")

    def clear(self) -> None:
        """Deletes the copies, and what was put aside."""
        for name in os.listdir(self.path):
            if "~" in name:
                shutil.rmtree(os.path.join(self.path, name), ignore_errors=True)


def _spread(path: str) -> None:
    """Put each repository into its own block group (`chattr +T`, ioctl_iflags(2)).

    Without a journal, ext4 checks each inode of a group that was freed in the last minute when a
    file is made (`recently_deleted` in fs/ext4/ialloc.c): 0.4 ms instead of 0.02 after a `rm -r`.
    """
    flags = bytearray(8)
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.ioctl(fd, _GET_FLAGS, flags)
        fcntl.ioctl(
            fd,
            _SET_FLAGS,
            (int.from_bytes(flags, sys.byteorder) | _TOP_DIR).to_bytes(8, sys.byteorder),
        )
    except OSError:  # another file system
        pass
    finally:
        os.close(fd)


def git(path: str, *args: str, data: bytes = b"") -> str:
    """Runs git in a repository and returns what it printed."""
    return subprocess.run(
        ["git", *args], cwd=path, input=data, check=True, capture_output=True
    ).stdout.decode()


def _build(path: str, count: int, *, linked: bool) -> None:
    shutil.rmtree(path, ignore_errors=True)
    subprocess.run(["git", "init", "--quiet", path], check=True)
    now = times.now()
    commits = _import_commits(path, max(count, 1), now)
    refs = {"refs/heads/main": commits[-1]}
    if linked and count:
        checkpoints = _documents(commits, now)
        blobs = _import_blobs(path, [codec.encode(checkpoint) for checkpoint in checkpoints])
        for checkpoint, blob in zip(checkpoints, blobs, strict=True):
            refs[ref_names.CHECKPOINTS + checkpoint.id] = blob
        refs[ref_names.KEEP + commits[-1]] = commits[-1]
        refs[ref_names.NOTES] = _write_notes(path, checkpoints)
    _write_refs(path, refs)
    git(path, "reset", "--quiet", "--hard")


def _build_runs(path: str, count: int, checkpoints: int) -> None:
    shutil.rmtree(path, ignore_errors=True)
    subprocess.run(["git", "init", "--quiet", path], check=True)
    (commit,) = _import_commits(path, 1, times.now())
    _write_refs(path, {"refs/heads/main": commit, ref_names.KEEP + commit: commit})
    add_runs(path, count, checkpoints)
    git(path, "reset", "--quiet", "--hard")


def add_runs(path: str, count: int, checkpoints: int, age: int = 0) -> None:
    """Add complete runs, a minute apart, whose leases were released.

    Args:
        path: of a repository whose refs are packed.
        count: how many.
        checkpoints: how many each has, at least two.
        age: how long ago the last one ended, in microseconds.
    """
    now = times.now() - age
    commit = git(path, "rev-parse", "HEAD").strip()
    documents, leased = [], []
    for number in range(count):
        start = now - (count - number) * 60 * times.MICRO
        run = f"{times.to_run_id_stamp(start)}-run-{number}"
        documents += _chain(run, commit, checkpoints, start)
        leased.append(_lease(run, times.to_text(now)))
    blobs = _import_blobs(
        path, [*(codec.encode(document) for document in documents), *map(render_lease, leased)]
    )
    refs = {}
    for document, blob in zip(documents, blobs[: len(documents)], strict=True):
        refs[ref_names.CHECKPOINTS + document.id] = blob
        refs[ref_names.RUNS + str(document.run)] = blob
    for lease, blob in zip(leased, blobs[len(documents) :], strict=True):
        refs[ref_names.LEASES + lease.run] = blob
    with open(os.path.join(path, ".git", "packed-refs"), encoding="ascii") as file:
        there = (line.split() for line in file if line[0] not in "#^")
        _write_refs(path, {ref: oid for oid, ref in there} | refs)


def _write_refs(path: str, refs: Mapping[str, str]) -> None:
    with open(os.path.join(path, ".git", "packed-refs"), "w", encoding="ascii") as file:
        file.write("# pack-refs with: peeled fully-peeled sorted \n")
        file.writelines(f"{oid} {ref}\n" for ref, oid in sorted(refs.items()))


def _chain(run: str, commit: str, length: int, start: int) -> list[Checkpoint]:
    ids = [str(uuid.uuid4()) for _ in range(length)]
    labels = [
        "run-started",
        *(
            f"phase {number // 2}-{('started', 'complete')[number % 2]}"
            for number in range(length - 2)
        ),
        "run-complete",
    ]
    return [
        Checkpoint(
            id=ids[number],
            label=labels[number],
            timestamp=times.to_text(start + number * times.MICRO),
            git_sha=commit,
            trigger=PHASE,
            run=run,
            parent=ids[number - 1] if number else None,
            sequence=number + 1,
            worktree=CLEAN,
        )
        for number in range(length)
    ]


def _lease(run: str, when: str) -> Lease:
    return Lease(
        run,
        1,
        "bench",
        host="bench",
        boot="",
        namespace="",
        pid=1,
        started="1",
        acquired=when,
        renewed=when,
        expires=when,
        released=when,
    )


def _import_commits(path: str, count: int, now: int) -> list[str]:
    lines = []
    for number in range(count):
        when = (now // times.MICRO) - 60 * (count - number)
        lines.append(
            f"commit refs/import/main\nmark :{number + 1}\n"
            f"committer Bench <bench@example.org> {when} +0000\ndata 6\nchange\n"
        )
        lines.append(f"M 644 inline file-{number % 50}\ndata {len(str(number))}\n{number}\n\n")
    return _imported(path, "".join(lines), count, "refs/import/main")


def _documents(commits: list[str], now: int) -> list[Checkpoint]:
    old = len(commits) // 10
    return [
        Checkpoint(
            id=str(uuid.uuid4()),
            label="commit-complete",
            timestamp=times.to_text(now - (40 * DAY if number < old else DAY) + number),
            git_sha=commit,
            branch="main",
            trigger=POST_COMMIT,
            message="change",
        )
        for number, commit in enumerate(commits)
    ]


def _import_blobs(path: str, documents: list[bytes]) -> list[str]:
    text = "".join(
        f"blob\nmark :{number + 1}\ndata {len(data)}\n{data.decode()}\n"
        for number, data in enumerate(documents)
    )
    return _imported(path, text, len(documents), None)


def _write_notes(path: str, checkpoints: list[Checkpoint]) -> str:
    """Write notes in trees as gitckpt does, in one pack; return their commit."""
    lines = {
        each.git_sha: [note.format_note_line(each.id, each.label, each.timestamp)]
        for each in checkpoints
    }
    repository = discover_repository(path)
    commit, items = GitNotes(repository, open_objects(repository), ref_names.NOTES).edit_notes(
        "", list(lines), lambda sha, _: lines[sha], 0
    )
    writer.write_pack(repository, items)
    repository.close()
    return commit


def path_of(number: int) -> str:
    """Returns the path of a file in a repository that `Scratch.tree` made."""
    return f"part-{number // 1000:03d}/group-{number // 100 % 10}/file-{number:06d}.txt"


def _build_tree(path: str, count: int) -> None:
    shutil.rmtree(path, ignore_errors=True)
    subprocess.run(["git", "init", "--quiet", path], check=True)
    lines = [
        (
            "commit refs/heads/main\n"
            "committer Bench <bench@example.org> 1700000000 +0000\ndata 5\nfiles\n"
        )
    ]
    for number in range(count):
        text = "".join(
            f"line {line} of file {number}: {hash_of(number * 64 + line)}\n" for line in range(64)
        )[:2048]
        lines.append(f"M 644 inline {path_of(number)}\ndata {len(text)}\n{text}\n")
    git(path, "fast-import", "--quiet", data="".join(lines).encode())
    git(
        path,
        "-c",
        "checkout.workers=0",
        "-c",
        "checkout.thresholdForParallelism=1",
        "reset",
        "--quiet",
        "--hard",
        "main",
    )


def hash_of(number: int) -> str:
    """Returns digits that look random and are the same each time."""
    return f"{number * 2654435761 % 2**32:08x}"


def _imported(path: str, stream: str, count: int, ref: str | None) -> list[str]:
    marks = os.path.join(path, ".git", "marks")
    git(path, "fast-import", "--quiet", "--force", f"--export-marks={marks}", data=stream.encode())
    with open(marks, encoding="ascii") as file:
        found = {int(mark[1:]): oid for mark, oid in (line.split() for line in file)}
    os.unlink(marks)
    if ref:
        git(path, "update-ref", "-d", ref)
    return [found[number + 1] for number in range(count)]


def state_of_10_kb() -> dict[str, object]:
    """Return a 10 KB state like a pipeline's: results, artifacts, times and text."""
    text = (
        "The parser accepts both spellings; tests cover the empty input, a cut-off line "
        "and a byte order mark. " * 9
    )
    phases = [
        "research",
        "decomposition",
        "tdd_planning",
        "multi_doc",
        "beads_sync",
        "implementation",
    ]
    results = {
        name: {
            "status": "complete",
            "started_at": "2026-01-09T20:53:34.123456",
            "duration_seconds": 123.456,
            "errors": [],
            "artifacts": [f"docs/{name}/{number}.md" for number in range(12)],
            "metadata": {
                "cwa_entry_ids": [f"entry-{number:04d}" for number in range(8)],
                "output": text,
                "user_action": "continue",
            },
        }
        for name in phases
    }
    state: dict[str, object] = {
        "project_path": "/home/ada/project",
        "autonomy_mode": "batch",
        "checkpoint_id": None,
        "phase_results": results,
    }
    assert 9_000 < len(json.dumps(state)) < 11_000, len(json.dumps(state))
    return state
