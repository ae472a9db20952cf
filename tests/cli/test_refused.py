"""Commands report refusals of the system, and escape text for the terminal."""

from __future__ import annotations

import ctypes
import os
import shlex
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests import planted
from tests.cli.conftest import Ckpt, Outcome, Spawn, document, store_text
from tests.conftest import Checkout, git_program
from tests.planted import plant

Save = Callable[..., str]
NAME = "11111111-1111-4111-8111-111111111111"
REF = f"refs/checkpoints/{NAME}"


def test_a_lock_that_is_held_is_waited_for_then_named_and_left(
    ckpt: Ckpt, checkout: Checkout, save: Save, monkeypatch: pytest.MonkeyPatch
) -> None:
    store_text(checkout, REF, document())
    save(checkout)
    plant(monkeypatch, planted.LOCK_TIMEOUT_MS, 20)
    lock = checkout.main / ".git" / f"{REF}.lock"
    lock.write_text("")
    cure = f"rm {shlex.quote(str(lock))}"
    before = checkout.fingerprint()
    args = ["remove", NAME]
    assert ckpt(*args, at=checkout) == Outcome(
        11,
        "",
        f"error: another process holds {lock}\n"
        "hint: wait and try again; if nothing is running, the lock is left from a crash; remove "
        f"it with {cure}\n",
    )
    assert lock.exists()
    assert checkout.fingerprint() == before
    lock.unlink()
    assert ckpt(*args, at=checkout).code == 0


def test_a_lock_that_was_left_on_a_ref_of_ours_is_removed_with_a_word(
    ckpt: Ckpt, checkout: Checkout, save: Save, monkeypatch: pytest.MonkeyPatch
) -> None:
    store_text(checkout, REF, document())
    save(checkout)
    plant(monkeypatch, planted.LOCK_TIMEOUT_MS, 20)
    lock = checkout.main / ".git" / f"{REF}.lock"
    lock.write_text("")
    os.utime(lock, (1_000_000_000, 1_000_000_000))
    word = f"warning: removed {lock}: left behind by a killed git\n"
    assert ckpt("remove", NAME, at=checkout) == Outcome(0, f"{NAME}\n", word)
    assert not lock.exists()


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("refs/notes/checkpoints.lock", "; the next command that needs the ref removes the lock"),
        ("packed-refs.lock", ""),
        ("packed-refs.new", ""),
        ("config.lock", ""),
        ("HEAD.lock", ""),
        ("index.lock", ""),
        ("refs/heads/main.lock", ""),
        ("objects/info/commit-graph.lock", ""),
    ],
)
def test_a_lock_that_nobody_can_hold_is_reported_at_once(
    ckpt: Ckpt, main_checkout: Checkout, save: Save, name: str, what: str
) -> None:
    save(main_checkout)
    lock = main_checkout.path / ".git" / name
    lock.parent.mkdir(exist_ok=True, parents=True)
    lock.write_text("")
    assert "stale-lock" not in ckpt("doctor", at=main_checkout).out
    os.utime(lock, (time.time() - 60, time.time() - 60))
    *_, finding, cure = ckpt("doctor", at=main_checkout).out.splitlines()
    assert finding == f"stale-lock: {lock}: is 1m old, and no running git process created it{what}"
    assert (
        cure == f"    cure: make sure that no git process runs in this repository, then: rm {lock}"
    )


@pytest.mark.parametrize("name", ["HEAD.lock", "index.lock", "refs/bisect/bad.lock"])
def test_a_lock_of_a_linked_worktree_is_reported_too(
    ckpt: Ckpt, main_checkout: Checkout, save: Save, name: str
) -> None:
    save(main_checkout)
    main_checkout.git(
        "worktree", "add", "--quiet", "--detach", str(main_checkout.path.parent / "aside")
    )
    lock = main_checkout.path / ".git/worktrees/aside" / name
    lock.parent.mkdir(exist_ok=True, parents=True)
    lock.write_text("")
    os.utime(lock, (time.time() - 60, time.time() - 60))
    assert (
        f"stale-lock: {lock}: is 1m old, and no running git process created it"
        in ckpt("doctor", at=main_checkout).out.splitlines()
    )


def test_an_old_lock_is_reported_with_its_age_and_left(
    ckpt: Ckpt, main_checkout: Checkout, save: Save
) -> None:
    save(main_checkout)
    lock = main_checkout.path / ".git/refs/ckpt/it's.lock"
    lock.parent.mkdir(exist_ok=True)
    lock.write_text("")
    os.utime(lock, (1_000_000_000, 1_000_000_000))
    done = ckpt("doctor", at=main_checkout)
    assert done.code == 1
    *_, finding, cure = done.out.splitlines()
    start = f"stale-lock: {lock}: is "
    assert finding.startswith(start)
    said = (
        "old, and no running git process created it; the next command that needs the ref "
        "removes the lock"
    )
    assert finding.removeprefix(start).partition(" ")[2] == said
    quoted = "'" + str(lock).replace("'", "'\"'\"'") + "'"
    assert (
        cure
        == f"    cure: make sure that no git process runs in this repository, then: rm {quoted}"
    )
    assert lock.exists()


def without_root_s_rights() -> None:
    """Drop root's right to ignore permissions, in the child process."""
    for capability in (1, 2):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
        ctypes.CDLL(None).prctl(24, capability, 0, 0, 0)  # PR_CAPBSET_DROP


@pytest.fixture
def read_only(
    main_checkout: Checkout, save: Save, request: pytest.FixtureRequest
) -> Iterator[Checkout]:
    """Make `.git` read-only, for one parameter without gitckpt's directory in it."""
    main_checkout.write("README", "dirty\n")
    save(main_checkout)
    git_dir = main_checkout.path / ".git"
    if request.param:
        shutil.rmtree(git_dir / "ckpt")
    everything = [git_dir, *git_dir.rglob("*")]
    modes = [(path, path.stat().st_mode) for path in everything]
    for path, mode in modes:
        path.chmod(mode & ~0o222)
    probe = subprocess.run(
        ["touch", str(git_dir / "probe")],
        preexec_fn=without_root_s_rights,
        capture_output=True,
        check=False,
    )
    if probe.returncode == 0:
        pytest.skip(
            "this user may write to read-only directories, and that right cannot be given up here"
        )
    yield main_checkout
    for path, mode in modes:
        path.chmod(mode)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("read_only", [False, True], indirect=True)
@pytest.mark.parametrize(
    "args",
    [
        ["save"],
        ["save", "--no-worktree"],
        ["remove", "latest:any"],
        ["init"],
        ["resume", "latest:any"],
    ],
)
def test_a_repository_that_cannot_be_written_to(
    spawn: Spawn, read_only: Checkout, args: list[str]
) -> None:
    before = read_only.fingerprint()
    done = spawn(*args, at=read_only, preexec=without_root_s_rights)
    assert done.code in (1, 10, 14)
    assert done.out == ""
    error, hint = done.err.splitlines()
    assert error.startswith("error: ")
    assert "ermission denied" in error or "insufficient permission" in error
    assert "writable" in hint
    assert _without_own_directory(read_only.fingerprint()) == before


def _without_own_directory(fingerprint: dict[str, object]) -> dict[str, object]:
    """Return a fingerprint without `.ckpt`.

    The directory ignores itself, and may exist before the failure.
    """
    files = fingerprint["files"]
    assert isinstance(files, dict)
    return fingerprint | {
        "files": {name: each for name, each in files.items() if not name.startswith(".ckpt/")}
    }


@pytest.mark.long
@pytest.mark.parametrize("read_only", [False, True], indirect=True)
def test_reading_needs_no_right_to_write(spawn: Spawn, read_only: Checkout) -> None:
    for args in (
        ["list"],
        ["show", "latest:any"],
        ["list", "--json"],
        ["show", "latest:any", "--raw"],
    ):
        done = spawn(*args, at=read_only, preexec=without_root_s_rights)
        assert (done.code, done.err) == (0, ""), args
        assert done.out, args


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Checkout]:
    """Return a repository with a checkpoint on a disk of 1 MB, which `fill` fills."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if (
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(disk)],
            capture_output=True,
            check=False,
        ).returncode
        != 0
    ):
        pytest.skip("no disk of its own can be mounted here")
    try:
        subprocess.run([git_program(), "init", "--quiet", str(disk / "r")], check=True)
        checkout = Checkout(disk / "r")
        checkout.commit("first", README="hello\n")
        yield checkout
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


def test_a_full_disk_leaves_everything_whole(ckpt: Ckpt, full_disk: Checkout, save: Save) -> None:
    made = save(full_disk)
    before = full_disk.fingerprint()
    fill = full_disk.path.parent / "fill"
    with fill.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"\0" * 4096)
        except OSError:
            pass
    for args in (["save"], ["save", "--no-worktree"], ["init"], ["resume", "latest"]):
        done = ckpt(*args, at=full_disk)
        assert done.code in (1, 10, 14), args
        assert done.out == "", args
        assert done.err.startswith("error: "), args
        # Of its configuration, git reports only that the write failed.
        if args != ["init"]:
            assert "No space left on device" in done.err, args
            assert "\nhint: " in done.err, args
        assert _without_own_directory(full_disk.fingerprint()) == before, args
    assert ckpt("list", at=full_disk).out.startswith(made)
    assert ckpt("remove", made, at=full_disk).out == f"{made}\n"  # which makes room
    fill.unlink()
    full_disk.git("fsck", "--strict")
    assert ckpt("save", at=full_disk).code == 0


def test_a_private_directory_that_a_full_disk_left_without_its_gitignore_is_mended(
    ckpt: Ckpt, main_checkout: Checkout, save: Save
) -> None:
    save(main_checkout)
    main_checkout.write(".ckpt/.gitignore", "")
    assert ckpt("resume", "latest", at=main_checkout).code == 0
    assert main_checkout.git("status", "--porcelain") == ""


EVIL = "\x1b[31m\x07"
SHOWN = r"\x1b[31m\x07"


def test_escape_sequences_from_anywhere_are_shown_not_sent(
    ckpt: Ckpt, main_checkout: Checkout, save: Save
) -> None:
    """Every printed field is escaped, except in git's own diff."""
    main_checkout.write(f"dir/{EVIL}", "text\n")
    save(
        main_checkout,
        "-m",
        f"m{EVIL}",
        "--state",
        "-",
        stdin='{"k\\u001b[31m\\u0007": "v\\u009b31m"}',
    )
    escaped = '"x\\u001b[31m\\u0007"'
    fields = {
        "phase": escaped,
        "agent": escaped,
        "errors": f"[{escaped}]",
        "branch": escaped,
        "message": escaped,
    }
    store_text(main_checkout, REF, document(**fields) + f"k = {escaped}\n")
    store_text(main_checkout, "refs/checkpoints/\u202eevil\u009b", "x\x1b[31m")
    store_text(
        main_checkout,
        f"refs/checkpoints/2{NAME[1:]}",
        document(id=f'"2{NAME[1:]}"', timestamp=escaped),
    )
    for args in (
        *(
            ["list"],
            ["show", "latest"],
            ["show", NAME],
            ["show", f"2{NAME[1:]}"],
            ["diff", "latest", NAME, "--state"],
            ["doctor"],
        ),
        *(
            ["resume", NAME],
            ["expire", "--dry-run", "--all"],
            ["remove", EVIL],
            ["list", "--run", EVIL],
            ["save", "--state", EVIL],
        ),
        *(["list", "--json"], ["show", NAME, "--json"], ["du"]),
    ):
        done = ckpt(*args, at=main_checkout)
        assert done.code != 3, (args, done.err)
        both = done.out + done.err
        assert not {c for c in both if not c.isprintable()} - {"\n", "\t"}, args
    page = ckpt("show", "latest", at=main_checkout).out
    assert f"message:     m{SHOWN}\n" in page
    assert r'    "k\u001B[31m\u0007" = "v\u009B31m"' in page
    assert f"error:       x{SHOWN}\n" in ckpt("show", NAME, at=main_checkout).out
    # `doctor` counts refs of other tools, and does not name them.
    assert "evil" not in ckpt("doctor", at=main_checkout).out
