"""Nothing is written, made or removed through a link or in another user's place."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gitckpt import CkptError, Store, WorktreeError
from gitckpt.git.files import private_dirs
from gitckpt.git.lock import FileLock
from gitckpt.store.config import settings
from gitckpt.store.retention.worktree import delete_directory
from gitckpt.store.runs import run_files
from gitckpt.store.store import checkpoints_of_store
from tests.cli.conftest import PROJECT, Ckpt
from tests.conftest import Checkout, git_program
from tests.house_rules import SOURCES
from tests.stores import make_private_dir, private_dir
from tests.system.hostile import places

NOBODY = 65534
as_root = pytest.mark.skipif(
    os.geteuid() != 0, reason="gives files to somebody else, which root alone may do"
)


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """A directory of the user's outside of the repository."""
    path = tmp_path / "elsewhere"
    path.mkdir()
    return path


@pytest.mark.parametrize(
    "build",
    [places.linked_private, places.linked_worktrees, places.linked_ignore],
    ids=lambda each: each.__name__,
)
def test_no_worktree_is_made_behind_a_link(
    plain: Store, main_checkout: Checkout, elsewhere: Path, build: Callable[[Checkout, Path], None]
) -> None:
    build(main_checkout, elsewhere)
    made = plain.save("a-complete", {})
    with pytest.raises(WorktreeError, match="is a symbolic link, so gitckpt does not use it"):
        plain.resume(made)
    assert list(elsewhere.iterdir()) == []


@pytest.mark.parametrize(
    "build", [places.linked_private, places.linked_runs], ids=lambda each: each.__name__
)
def test_no_file_of_a_run_is_written_or_read_behind_a_link(
    plain: Store, main_checkout: Checkout, elsewhere: Path, build: Callable[[Checkout, Path], None]
) -> None:
    build(main_checkout, elsewhere)
    files = run_files.files_of_run(checkpoints_of_store(plain).repository, "20270115-080001-x")
    with pytest.raises(WorktreeError, match="symbolic link"):
        run_files.replace_file(os.path.join(files.path, "input", "plan"), b"x")
    with pytest.raises(WorktreeError, match="symbolic link"):
        run_files.make_directory(os.path.join(files.path, "output"))
    with pytest.raises(WorktreeError, match="symbolic link"):
        checkpoints_of_store(plain).capture_worktree(beside=files.added)
    assert list(elsewhere.iterdir()) == []


def test_what_killed_processes_left_is_not_looked_for_behind_a_link(
    plain: Store, main_checkout: Checkout, elsewhere: Path
) -> None:
    places.linked_worktrees(main_checkout, elsewhere)
    (elsewhere / ".making-0").mkdir()
    with pytest.raises(WorktreeError):
        plain.resume(plain.save("a-complete", {}))
    assert [each.name for each in elsewhere.iterdir()] == [".making-0"]


def test_a_link_at_the_place_of_a_worktree_is_none(
    plain: Store, main_checkout: Checkout, elsewhere: Path
) -> None:
    made = plain.save("a-complete", {})
    root = main_checkout.path / ".ckpt/worktrees"
    root.mkdir(parents=True)
    (root / made.id).symlink_to(elsewhere)
    with pytest.raises(WorktreeError, match="symbolic link"):
        plain.resume(made)


def test_a_place_that_is_replaced_meanwhile_is_noticed(tmp_path: Path, elsewhere: Path) -> None:
    place = tmp_path / ".ckpt/worktrees"
    place.mkdir(parents=True)

    def swap() -> None:
        with private_dirs.hold_directory_open(str(place)):
            place.rename(tmp_path / "away")
            place.symlink_to(elsewhere)

    with pytest.raises(WorktreeError, match="was replaced while it was in use"):
        swap()


def test_the_users_own_place_may_be_a_link(
    plain: Store, main_checkout: Checkout, elsewhere: Path, tmp_path: Path
) -> None:
    (tmp_path / "link").symlink_to(elsewhere)
    main_checkout.git("config", "ckpt.worktreeDir", str(tmp_path / "link"))
    made = plain.resume(plain.save("a-complete", {}))
    assert Path(made.path).resolve().parent == elsewhere


@pytest.mark.parametrize(
    "build", [places.linked_settings, places.dangling_settings], ids=lambda each: each.__name__
)
def test_settings_behind_a_link_are_neither_read_nor_written(
    plain: Store,
    main_checkout: Checkout,
    elsewhere: Path,
    ckpt: Ckpt,
    build: Callable[[Checkout, Path], None],
) -> None:
    build(main_checkout, elsewhere)
    before = {path: path.read_bytes() for path in elsewhere.iterdir()}
    plain.save("a-complete", {})
    error = settings.read_settings(checkpoints_of_store(plain).repository).error
    assert "gitckpt.toml is a symbolic link" in str(error)
    done = ckpt("init", at=main_checkout)
    assert "gitckpt.toml is a symbolic link" in done.err
    assert "hunter2" not in done.out + done.err
    assert {path: path.read_bytes() for path in elsewhere.iterdir()} == before


@pytest.mark.parametrize(
    "words",
    [["save"], ["list"], ["verify"], ["hook", "post-commit"], ["expire"], ["runs"], ["du"]],
    ids=lambda each: each[0],
)
def test_the_private_directory_is_no_link(
    main_checkout: Checkout, elsewhere: Path, ckpt: Ckpt, words: list[str]
) -> None:
    places.linked_git_private(main_checkout, elsewhere)
    done = ckpt(*words, at=main_checkout)
    assert done.code in (0, 1, 14), done
    assert "bug" not in done.err
    assert list(elsewhere.iterdir()) == []


@as_root
@pytest.mark.parametrize("place", [".git/ckpt", ".ckpt"])
def test_a_directory_of_somebody_else_is_not_used(
    plain: Store, main_checkout: Checkout, place: str
) -> None:
    made = plain.save("a-complete", {})
    (main_checkout.path / place).mkdir(exist_ok=True)
    os.chown(main_checkout.path / place, NOBODY, NOBODY)
    with pytest.raises(CkptError, match="is another user's, so gitckpt does not use it"):
        plain.resume(made)


def test_a_lock_or_a_log_is_no_link(plain: Store, main_checkout: Checkout, elsewhere: Path) -> None:
    lock = str(make_private_dir(plain) / "x.lock")
    os.symlink(elsewhere / "made", lock)
    with FileLock(lock, 0) as is_got:
        assert not is_got
    assert list(elsewhere.iterdir()) == []


def test_removal_follows_no_link(tmp_path: Path, elsewhere: Path) -> None:
    (elsewhere / "precious").write_text("x")
    elsewhere.chmod(0o500)
    doomed = tmp_path / "doomed"
    (doomed / "inner").mkdir(parents=True)
    (doomed / "inner/link").symlink_to(elsewhere)
    (doomed / "inner").chmod(0o500)
    delete_directory(str(doomed))
    assert not doomed.exists()
    assert (stat.S_IMODE(elsewhere.stat().st_mode), (elsewhere / "precious").read_text()) == (
        0o500,
        "x",
    )


@pytest.mark.long
def test_removal_is_as_deep_as_it_takes(tmp_path: Path) -> None:
    """`remove` needs no recursion, few descriptors, and no long path."""
    doomed = tmp_path / "doomed"
    doomed.mkdir()
    fd = os.open(doomed, os.O_RDONLY)
    for _ in range(3000):
        os.mkdir("d", dir_fd=fd)
        os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=fd))
        inner = os.open("d", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = inner
    os.close(fd)
    private_dirs.delete_directory(str(doomed))
    assert not doomed.exists()


def test_one_module_knows_the_names_of_our_directories() -> None:
    found = [
        path
        for path, text in SOURCES.items()
        if re.search(r'"\.ckpt["/]|"ckpt-runs"|common_dir\}/ckpt"', text)
    ]
    assert sorted(found) == [
        "gitckpt/cli/commands/demo.py",
        "gitckpt/git/files/private_dirs.py",
        "gitckpt/git/repository.py",
    ]


@pytest.fixture(params=[0, 0o022, 0o077], ids=oct)
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    """Any umask."""
    before = os.umask(request.param)
    yield
    os.umask(before)


@pytest.mark.usefixtures("umask")
def test_what_is_ours_is_for_nobody_else(plain: Store, main_checkout: Checkout, ckpt: Ckpt) -> None:
    main_checkout.write("README", "changed\n")
    assert ckpt("save", at=main_checkout).code == 0
    assert ckpt("list", at=main_checkout).code == 0
    files = run_files.files_of_run(checkpoints_of_store(plain).repository, "20270115-080001-x")
    run_files.replace_file(os.path.join(files.path, "input", "plan"), b"x")
    private = Path(private_dir(plain))
    found = [
        private,
        *private.rglob("*"),
        Path(files.path).parent,
        *Path(files.path).parent.rglob("*"),
    ]
    assert {each.name for each in found} >= {"index.sqlite", "write.lock", "plan"}
    assert {stat.S_IMODE(each.stat().st_mode) for each in found} == {0o700, 0o600}


MEMBER = (
    "import os, sys; os.umask(0o022); from gitckpt.cli.main import run; sys.exit(run(sys.argv[1:]))"
)


@pytest.fixture
def public() -> Iterator[Path]:
    """A directory that all users may enter."""
    path = Path(
        tempfile.mkdtemp(dir="/tmp")
    )  # tmp_path may be below a directory that other users may not enter
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


@pytest.mark.long
@as_root
@pytest.mark.skipif(
    shutil.which("setpriv") is None, reason="there is no setpriv to become somebody else with"
)
def test_a_shared_repository_is_shared_with_its_group(
    public: Path, sealed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (public / ".gitconfig").write_text(
        f"{(sealed / '.gitconfig').read_text()}[safe]\n    directory = *\n"
    )
    monkeypatch.setenv("HOME", str(public))
    here = Checkout(public / "shared")
    subprocess.run([git_program(), "init", "--quiet", "--shared=group", str(here.path)], check=True)
    here.commit(README="x\n")
    for path in [here.path, *here.path.rglob("*")]:
        os.chown(path, 5001, 5000)
        path.chmod(path.stat().st_mode | 0o060 | (0o2000 if path.is_dir() else 0))

    def member(uid: int, *words: str) -> str:
        # Python may be installed where the user may not read; the test is about writing only.
        rights = (
            "--inh-caps=-all,+dac_read_search",
            "--ambient-caps=-all,+dac_read_search",
            "--bounding-set=-all,+dac_read_search",
        )
        become = ["setpriv", f"--reuid={uid}", "--regid=5000", "--clear-groups", *rights]
        done = subprocess.run(
            [*become, sys.executable, "-c", MEMBER, *words],
            cwd=here.path,
            env={**os.environ, "PYTHONPATH": str(PROJECT), "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    for uid in (5001, 5002, 5001):
        here.write("README", f"of {uid}\nghp_{'aB3dE6gH9jK2mN5pQ8rS1tU4vW7xY0zA2bC4'}\n")
        member(uid, "save")
        assert "github-pat" in member(uid, "show", "latest")
    assert len(member(5002, "list").splitlines()) == 3
    for uid, line in zip((5001, 5002), member(5001, "list").splitlines(), strict=False):
        member(uid, "resume", "--no-run", line.split()[0])
    private = here.path / ".git/ckpt"
    assert {stat.S_IMODE(each.stat().st_mode) for each in private.iterdir()} == {0o660}
    assert stat.S_IMODE(private.stat().st_mode) == 0o2770


@as_root
class TestAHookInAnothersRepository:
    """A hook called by hand refuses a repository of another user, as git does."""

    @pytest.fixture
    def theirs(self, main_checkout: Checkout, ckpt: Ckpt) -> Checkout:
        """A repository of another user, whose settings name a program."""
        assert ckpt("init", at=main_checkout).code == 0
        for path in [main_checkout.path, *main_checkout.path.rglob("*")]:
            os.lchown(path, NOBODY, NOBODY)
        return main_checkout

    def test_it_does_nothing(self, theirs: Checkout, ckpt: Ckpt) -> None:
        before = sorted((theirs.path / ".git").rglob("*"))
        done = ckpt("hook", "post-commit", at=theirs)
        assert (done.code, "dubious ownership" in done.err) == (0, True)
        assert sorted((theirs.path / ".git").rglob("*")) == before

    @pytest.mark.sampled(2)
    @pytest.mark.parametrize(
        "event", ["post-merge", "post-rewrite", "pre-auto-gc", "maintain", "pack"]
    )
    def test_nor_at_any_event(self, theirs: Checkout, ckpt: Ckpt, event: str) -> None:
        before = sorted((theirs.path / ".git").rglob("*"))
        ckpt("hook", event, at=theirs)
        assert sorted((theirs.path / ".git").rglob("*")) == before

    @pytest.mark.parametrize("part", [".", ".git"])
    def test_one_part_of_somebody_else_is_enough(
        self, main_checkout: Checkout, ckpt: Ckpt, part: str
    ) -> None:
        os.chown(main_checkout.path / part, NOBODY, NOBODY)
        assert "dubious ownership" in ckpt("hook", "post-commit", at=main_checkout).err

    def test_what_the_user_calls_safe_is_recorded(
        self, theirs: Checkout, ckpt: Ckpt, sealed: Path
    ) -> None:
        (sealed / ".gitconfig").write_text(
            f"{(sealed / '.gitconfig').read_text()}[safe]\n    directory = *\n"
        )
        assert ckpt("hook", "post-commit", at=theirs).err == ""
        assert len(theirs.refs("refs/checkpoints")) == 1
