"""Return what an operation acknowledged, by how it ended."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

from tests import forked
from tests.system.faults.operation import Acknowledged, Ended, Place, snapshot, snapshots
from tests.system.faults.view import View, is_scratch, worktree_files

STATE = '{"step": 3, "done": ["research", null, 1.5], "big": 123456789012345678901234567890}'
_ID = re.compile(
    r"^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$", re.MULTILINE
)


def ids(text: str) -> list[str]:
    """Return the ids of checkpoints in a text, each on a separate line."""
    return _ID.findall(text)


def nothing(place: Place, ended: Ended, before: View, after: View) -> Acknowledged:
    """Acknowledge nothing."""
    del place, ended, before, after
    return Acknowledged()


def saved(place: Place, ended: Ended, before: View, after: View) -> Acknowledged:
    """Acknowledge files and state of each checkpoint whose id was printed."""
    del place, after
    found = ids(ended.out)
    said = Acknowledged(dict.fromkeys(found, before.files), states=dict.fromkeys(found, STATE))
    if ended.code == 0 and not found:
        said.wrong.append(f"it ended well and named no checkpoint: {ended.out!r}")
    return said


def hooked(place: Place, ended: Ended, before: View, after: View) -> Acknowledged:
    """Acknowledge the commit's checkpoint if the hook succeeded without a message."""
    del after
    head = place.git("rev-parse", "HEAD").decode().strip()
    said = Acknowledged()
    if ended.code not in (0, None) and ended.code > 0:
        said.wrong.append(f"the hook ended with {ended.code}")
    if ended.code == 0 and not ended.err:
        said.commits.add(head)
    del before
    return said


def ran(place: Place, ended: Ended, before: View, after: View) -> Acknowledged:
    """Acknowledge the checkpoints that a phase saw; no complete phase runs twice."""
    del before, after
    noted, calls = place.beside / "acknowledged", place.beside / "calls"
    said = Acknowledged(dict.fromkeys(ids(noted.read_text() if noted.exists() else "")))
    count = calls.read_text().split() if calls.exists() else []
    if ended.code == 0 and "two" not in count:
        said.wrong.append(f"the run ended well, and its phases were called {count}")
    if count.count("one") > 1:
        said.wrong.append(f"a phase that was complete was done again: {count}")
    return said


def stepped(place: Place, ended: Ended, before: View, after: View) -> Acknowledged:
    """Acknowledge each checkpoint whose id was printed."""
    del place, before, after
    return Acknowledged(dict.fromkeys(ids(ended.out)))


def removed(place: Place, ended: Ended, before: View, after: View) -> Acknowledged:
    """Acknowledge the removals that were printed."""
    del before, after
    named = place.beside / "doomed"
    # With a wrong clock fewer checkpoints expire, but `expire` prints each of them.
    return Acknowledged(
        gone=set(named.read_text().split()) & set(re.findall(r"[0-9a-f-]{36}", ended.out))
        if ended.code == 0
        else set()
    )


def replaced(place: Place, ended: Ended, before: View, after: View) -> Acknowledged:
    """Acknowledge the restored files, and a checkpoint of the replaced files."""
    said = Acknowledged()
    now = worktree_files(place.project)
    if ended.code == 0 and now != after.files:
        said.wrong.append("it ended well, and the files are not those of the checkpoint")
    if now != before.files and not any(files == before.files for files in snapshots(place)):
        said.wrong.append("files were replaced, and no checkpoint has those that were there")
    elif now != before.files and not any(
        snapshot(place, each) == before.files for each in _steps(place)
    ):
        said.wrong.append(
            "files were replaced, and neither undo nor redo leads to those that were there"
        )
    return said


def _steps(place: Place) -> list[str]:
    """Return the checkpoints that `undo` and `redo` lead to."""
    listed = forked.git_ckpt("undo", "--list", "--json", directory=place.project, env=place.env)
    return _ID.findall(listed.out.replace('"', "\n"))


def opened(place: Place, ended: Ended, before: View, after: View) -> Acknowledged:
    """Require the checkpoint's files in a worktree whose path was printed."""
    del before, after
    said = Acknowledged()
    if ended.code == 0:
        opened, wanted = Path(ended.out.strip()), (place.beside / "id").read_text().strip()
        if worktree_files(opened) != snapshot(place, wanted):
            said.wrong.append("the worktree that was opened has other files than the checkpoint")
    return said


def installed(place: Place, ended: Ended, before: View, after: View) -> Acknowledged:
    """Require the hooks of an undisturbed installation."""
    del before
    said = Acknowledged()
    if ended.code == 0 and View.of(place).hooks.keys() != after.hooks.keys():
        said.wrong.append("it ended well, and the hooks are not those of an undisturbed one")
    return said


def exported(place: Place, ended: Ended, before: View, after: View) -> Acknowledged:
    """Require each printed file; each file is the old or the new one, whole."""
    said = Acknowledged()
    now = worktree_files(place.project)
    named = [line for line in ended.out.splitlines() if line in after.files]
    said.wrong += [
        f"{path} was written, and is not what it was to be"
        for path in named
        if now.get(path) != after.files[path]
    ]
    whole = [(before.files.get(path), after.files.get(path)) for path in now]
    half = [
        path
        for path, each in zip(now, whole, strict=True)
        if now[path] not in each and not is_scratch(path)
    ]
    said.wrong += [f"{path} is neither what it was nor what it was to be" for path in half]
    if ended.code is not None and any(is_scratch(path) for path in now):
        said.wrong.append(
            "nobody has killed it, and a file is left that was to take the place of another one"
        )
    if ended.code == 0 and not named:
        said.wrong.append(f"it ended well, and named no file: {ended.out!r}")
    return said


def imported(place: Place, ended: Ended, before: View, after: View) -> Acknowledged:
    """Acknowledge each named checkpoint, with the bytes of its file."""
    del after
    said = Acknowledged()
    rows = [line.split("\t") for line in ended.out.splitlines()]
    for path, status, _, _, checkpoint, *_ in rows:
        if status not in ("imported", "known"):
            said.wrong.append(f"{path} is {status}")
            continue
        said.there[checkpoint] = None
        if (
            place.git("cat-file", "blob", f"refs/ckpt/originals/{checkpoint}")
            != before.files[path][1]
        ):
            said.wrong.append(f"of {path}, other bytes are kept than it has")
    if ended.code == 0 and not rows:
        said.wrong.append("it ended well, and named nothing")
    return said


def finished(place: Place, ended: Ended, before: View, after: View) -> Acknowledged:
    """Require the files of the run's worktree in the checkpoint that was printed."""
    del before, after
    return Acknowledged(dict.fromkeys(ids(ended.out), worktree_files(place.run)))


def started(place: Place, ended: Ended, before: View, after: View) -> Acknowledged:
    """Require the first commit's files in a worktree whose path was printed."""
    del before, after
    said = Acknowledged()
    if ended.code == 0:
        there = worktree_files(Path(ended.out.strip()))
        if b"".join(sorted(os.fsencode(f"{path}\n") for path in there)) != _names_of(place, "HEAD"):
            said.wrong.append(
                f"the worktree that was opened has other files than the commit: {sorted(there)}"
            )
    return said


def _names_of(place: Place, commit: str) -> bytes:
    return b"".join(
        sorted(
            name + b"\n"
            for name in place.git("ls-tree", "-r", "-z", "--name-only", commit).split(b"\0")[:-1]
        )
    )


def taken_back(place: Place, ended: Ended, before: View, after: View) -> Acknowledged:
    """Require the checkpoint's files in the run's worktree, and a copy of the old."""
    del before, after
    said = Acknowledged()
    now, was = worktree_files(place.run), worktree_files(place.beside / "was")
    if ended.code == 0 and now != snapshot(place, (place.beside / "id").read_text().strip()):
        said.wrong.append("it ended well, and the files are not those of the checkpoint")
    if now != was and not any(files == was for files in snapshots(place)):
        said.wrong.append(
            "files of the run were replaced, and no checkpoint has those that were there"
        )
    return said


def allowed(place: Place, ended: Ended, before: View, after: View) -> Acknowledged:
    """Require that the settings are approved."""
    del before, after
    said = Acknowledged()
    looser = forked.git_ckpt("allow", "--dry-run", "--json", directory=place.project, env=place.env)
    if ended.code == 0 and not json.loads(looser.out)["allowed"]:
        said.wrong.append("it ended well, and what the file loosens is not allowed")
    return said


def counted(place: Place, ended: Ended, before: View, after: View) -> Acknowledged:
    """Acknowledge each milestone that was recorded before the program went on."""
    del before, after
    noted = place.beside / "counted"
    names = [line.split() for line in noted.read_text().splitlines()] if noted.exists() else []
    said = Acknowledged(states={name: json.dumps({"seen": int(number)}) for name, number in names})
    said.there = dict.fromkeys(said.states)
    if ended.code == 0 and not names:
        said.wrong.append("it ended well, and recorded no milestone")
    return said


def hooked_in_run(place: Place, ended: Ended, before: View, after: View) -> Acknowledged:
    """Acknowledge a commit in the worktree of a run, as `hooked` does."""
    del before, after
    said = Acknowledged()
    if ended.code is not None and ended.code > 0:
        said.wrong.append(f"the hook ended with {ended.code}")
    if ended.code == 0 and not ended.err:
        said.commits.add(place.git("-C", str(place.run), "rev-parse", "HEAD").decode().strip())
    return said


def removed_run(place: Place, ended: Ended, before: View, after: View) -> Acknowledged:
    """Acknowledge the removal of all checkpoints of the run, if it succeeded."""
    del before, after
    return Acknowledged(
        gone=set((place.beside / "doomed").read_text().split()) if ended.code == 0 else set()
    )


def cancelled(place: Place, ended: Ended, before: View, after: View) -> Acknowledged:
    """Require that no driver holds the run after success, and that this is recorded.

    The run may be crashed if the driver's git failed or was killed.
    """
    said = ran(place, Ended(None, ended.out, ended.err), before, after)
    runs = forked.git_ckpt("runs", "--json", directory=place.project, env=place.env)
    found = [run["status"] for run in json.loads(runs.out)["runs"]]
    if ended.code == 0 and found not in (["failed"], ["crashed"], ["paused"]):
        said.wrong.append(f"it ended well, and the runs are {', '.join(found)}")
    return said
