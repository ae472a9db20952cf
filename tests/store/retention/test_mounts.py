"""A mount inside a directory that gitckpt deletes stays whole."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gitckpt import Store
from tests import planted
from tests.conftest import Checkout
from tests.house_rules import PROJECT, SOURCES
from tests.planted import plant
from tests.store.conftest import MakeStore, view
from tests.store.working import Work, worked

Mounted = Callable[[str], "subprocess.CompletedProcess[str]"]

EXPIRE_ALL = "ckpt expire --all --older-than 0s --keep-last 0"


@pytest.fixture
def mounted(main_checkout: Checkout, tmp_path: Path) -> Mounted:
    """Run a script in its own mount namespace.

    `ckpt` is the command line, `$EXT` a directory with a precious file.
    """
    unshare = ["unshare", "--user", "--map-root-user", "--mount"]
    if (
        not shutil.which("unshare")
        or subprocess.run([*unshare, "true"], capture_output=True, check=False).returncode
    ):
        pytest.skip("mount namespaces are not allowed here")
    (tmp_path / "ext").mkdir()
    (tmp_path / "ext" / "precious").write_text("precious\n")
    ckpt = f'ckpt() {{ "{sys.executable}" -m gitckpt "$@"; }}'

    def run(script: str) -> subprocess.CompletedProcess[str]:
        env = os.environ | {"PYTHONPATH": str(PROJECT), "EXT": str(tmp_path / "ext")}
        argv = [*unshare, "sh", "-c", f"{ckpt}\n{script}"]
        done = subprocess.run(
            argv, cwd=main_checkout.path, env=env, capture_output=True, text=True, check=False
        )
        assert (tmp_path / "ext" / "precious").read_text() == "precious\n", done.stderr
        return done

    return run


@pytest.fixture
def work(plain: Store, main_checkout: Checkout, make_store: MakeStore) -> Work:
    """A run whose worktree has an ignored directory for a mount."""
    main_checkout.write(".git/info/exclude", "the data/\n")
    work = worked(plain, "r", make_store)
    (work.worktree.path / "the data").mkdir()
    return work


@pytest.mark.long
def test_a_run_with_a_mount_in_its_worktree_is_not_removed(
    main_checkout: Checkout, work: Work, mounted: Mounted
) -> None:
    before, place = view(work.worktree.path), work.worktree.path / "the data"
    done = mounted(f"mount --bind $EXT '{place}' && ckpt remove {work.run}")
    assert done.returncode == 14
    assert (
        f"error: run {work.run} stays: {place} is a mount point: umount '{place}'\n" in done.stderr
    )
    assert view(work.worktree.path) == before
    assert mounted(f"ckpt remove {work.run}").returncode == 0
    assert not work.worktree.path.exists()


@pytest.mark.parametrize("where", ["beside the worktree", "what git keeps", "the worktree itself"])
def test_no_place_of_a_run_is_emptied(
    main_checkout: Checkout, work: Work, mounted: Mounted, where: str
) -> None:
    place = {
        "beside the worktree": main_checkout.path / ".ckpt" / "runs" / work.run / "output",
        "what git keeps": main_checkout.path / ".git" / "worktrees" / work.run / "there",
        "the worktree itself": work.worktree.path,
    }[where]
    place.mkdir(parents=True, exist_ok=True)
    done = mounted(f"mount --bind $EXT {place} && ckpt remove {work.run}")
    assert (done.returncode, f"umount {place}" in done.stderr) == (14, True)
    assert work.worktree.path.exists()


@pytest.mark.long
def test_expiry_leaves_that_run_and_removes_the_others(
    main_checkout: Checkout, mounted: Mounted
) -> None:
    main_checkout.write(".git/info/exclude", "the data/\n")
    with Store.open(main_checkout.path) as store:
        work, other = (
            worked(store, name, lambda checkout: Store.open(checkout.path))
            for name in ("r", "other")
        )
    place = work.worktree.path / "the data"
    place.mkdir()
    done = mounted(f"mount --bind $EXT '{place}' && {EXPIRE_ALL}")
    assert done.returncode == 0, done.stderr
    rows = {
        run: (verb, why)
        for verb, run, _, why in (line.split("\t") for line in done.stdout.splitlines())
    }
    assert rows[work.run] == ("stays", f"{place} is a mount point: umount '{place}'")
    assert rows[other.run][0] == "expired"
    assert (work.worktree.path.exists(), other.worktree.path.exists()) == (True, False)


@pytest.mark.long
def test_a_leftover_with_a_mount_keeps_no_other_run(
    plain: Store,
    main_checkout: Checkout,
    make_store: MakeStore,
    work: Work,
    mounted: Mounted,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    other = worked(plain, "other", make_store)

    def killed(_: str) -> None:
        raise KeyboardInterrupt

    plant(monkeypatch, planted.DELETE_DIRECTORY, killed)
    with pytest.raises(KeyboardInterrupt):
        plain.remove_run(work.run)
    (left,) = (main_checkout.path / ".ckpt" / "worktrees").glob(".making-way-*")
    done = mounted(f"mount --bind $EXT '{left}/the data' && ckpt remove {other.run} && ckpt expire")
    assert done.returncode == 0, done.stderr
    assert (
        f"cannot delete {left}: {left}/the data is a mount point: umount '{left}/the data'"
        in done.stderr
    )
    assert (left.exists(), other.worktree.path.exists()) == (True, False)
    assert mounted("ckpt expire").returncode == 0
    assert not left.exists()


def test_what_is_mounted_while_a_directory_is_deleted_stays(
    main_checkout: Checkout, tmp_path: Path, mounted: Mounted
) -> None:
    place = main_checkout.path / "top" / "b" / "c" / "d"
    place.mkdir(parents=True)
    late = (
        "from gitckpt.git.files import mounts, private_dirs; mounts.list_mounts = lambda *_: []; "
        "private_dirs.delete_directory('top')"
    )
    for depth in (place, place.parent, place.parent.parent, place.parent.parent.parent):
        depth.mkdir(parents=True, exist_ok=True)
        done = mounted(f'mount --bind $EXT "{depth}" && exec "{sys.executable}" -c "{late}"')
        assert "something is mounted there" in done.stderr


@pytest.mark.long
def test_undo_leaves_a_submodule_in_which_something_is_mounted(
    plain: Store, main_checkout: Checkout, lib: Checkout, mounted: Mounted
) -> None:
    made = plain.save("a-complete", {})
    shutil.rmtree(lib.path)
    plain.restore(made.id)
    (lib.path / "mnt").mkdir()
    done = mounted(f"mount --bind $EXT {lib.path}/mnt && ckpt undo")
    assert (
        f"the submodule lib was not removed: {lib.path}/mnt is a mount point: umount {lib.path}/mnt"
        in done.stderr
    )
    assert (lib.path / "l").exists()


def test_the_advice_about_a_worktree_unmounts_first(
    plain: Store, main_checkout: Checkout, mounted: Mounted
) -> None:
    made = plain.save("a-complete", {})
    place = Path(plain.resume(made).path, "mnt")
    place.mkdir()
    done = mounted(f"mount --bind $EXT {place} && ckpt remove {made.id}")
    assert (
        f"to remove it: umount {place} && git worktree remove --force --force {place.parent}\n"
        in done.stderr
    )


def test_no_advice_deletes_a_directory_with_all_that_is_in_it() -> None:
    assert [path for path, source in SOURCES.items() if "rm -r" in source] == []
