"""A process that captures a worktree again need not look as closely, and misses nothing: it finds what a fresh one does."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gitckpt.git.worktree.fingerprint import Fingerprint
from gitckpt.model.checkpoint import CLEAN
from gitckpt.model.errors import CkptError
from gitckpt.store.snapshot.limits import Limits
from gitckpt.store.store import Store, inside
from tests.conftest import Checkout, allow
from tests.store.conftest import MakeStore

TRIES = 300


@pytest.fixture
def checkout(checkout: Checkout, sealed: Path) -> Checkout:
    """A worktree with what a capture goes by: rules, directories, links, modes."""
    checkout.write("sub/deep/file", "in a directory\n")
    checkout.write("program", "#!/bin/sh\n").chmod(0o755)
    (checkout.path / "link").symlink_to("README")
    checkout.write(".gitignore", "*.log\nignored/\n/gitckpt.toml\n")
    checkout.write("inner/.gitignore", "*\n")
    checkout.git("add", "--force", "README", "sub", "program", "link", ".gitignore")
    checkout.git("commit", "--quiet", "--message", "what there is")
    checkout.write("ignored/some", "x\n")
    checkout.write("inner/some", "x\n")
    excluded(checkout).write_text("/hidden\n")
    checkout.write("hidden", "h\n")
    (sealed / "included").write_text("")
    checkout.git("config", "include.path", str(sealed / "included"))
    return checkout


def excluded(checkout: Checkout) -> Path:
    path = Path(checkout.git("rev-parse", "--path-format=absolute", "--git-path", "info/exclude"))
    path.parent.mkdir(exist_ok=True)
    return path


def index(checkout: Checkout) -> Path:
    return Path(checkout.git("rev-parse", "--path-format=absolute", "--git-path", "index"))


def remember(store: Store) -> None:
    """Captures until the store remembers: what changed within the last tick of the clock is looked at again."""
    for _ in range(TRIES):
        store.capture()
        if remembers(store):
            return
    raise AssertionError("it never remembers")


def remembers(store: Store, limits: Limits | None = None) -> bool:
    """Tells whether a capture would find nothing without a look."""
    checkpoints = inside(store)
    guess = checkpoints._memory.guess(checkpoints.objects.head()[0], limits)
    return guess is not None and guess.holds()


def same_size(checkout: Checkout) -> None:
    path = checkout.path / "README"
    before = path.stat()
    path.write_bytes(path.read_bytes().swapcase())
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def replaced_directory(checkout: Checkout) -> None:
    shutil.copytree(checkout.path / "sub", checkout.path / "other")
    shutil.rmtree(checkout.path / "sub")
    (checkout.path / "other").rename(checkout.path / "sub")
    checkout.write("sub/deep/new", "n\n")


def staged_and_back(checkout: Checkout) -> None:
    checkout.write("README", "staged\n")
    checkout.git("add", "README")
    checkout.write("README", "hello\n")


def link_for_file(checkout: Checkout) -> None:
    (checkout.path / "README").unlink()
    (checkout.path / "README").symlink_to("program")


def link_for_directory(checkout: Checkout) -> None:
    (checkout.path / "sub").rename(checkout.path / "ignored/sub")
    (checkout.path / "sub").symlink_to("ignored/sub")


def everybody(checkout: Checkout) -> None:
    checkout.write("gitckpt.toml", '[snapshot]\ninclude = ["*/some"]\n')
    allow(checkout)


def rules_of_user(checkout: Checkout) -> None:
    checkout.git("config", "core.excludesFile", str(checkout.write("ignored/rules", "!/ignored/\n")))


def nested(checkout: Checkout) -> None:
    checkout.git("init", "--quiet", "sub/repository")


def merging(checkout: Checkout) -> None:
    checkout.git("merge", "--quiet", "--no-commit", "--no-ff", "--strategy=ours", checkout.git("commit-tree", "-m", "x", "HEAD^{tree}"),
                 "--allow-unrelated-histories")  # fmt: skip


def filtered(checkout: Checkout) -> None:
    checkout.git("config", "filter.upper.clean", "tr a-z A-Z")
    checkout.write("sub/.gitattributes", "* filter=upper\n")
    (checkout.path / "sub/deep/file").touch()


CHANGES: dict[str, Callable[[Checkout], object]] = {
    "a file of the same size and time": same_size,
    "a new file": lambda checkout: checkout.write("new", "n\n"),
    "a new file in a directory": lambda checkout: checkout.write("sub/deep/new", "n\n"),
    "a new directory": lambda checkout: checkout.write("sub/more/and/more/new", "n\n"),
    "a file that is gone": lambda checkout: (checkout.path / "sub/deep/file").unlink(),
    "another mode": lambda checkout: (checkout.path / "README").chmod(0o755),
    "a link for a file": link_for_file,
    "a link for a directory": link_for_directory,
    "another directory": replaced_directory,
    "a fifo": lambda checkout: os.mkfifo(checkout.path / "sub/fifo"),
    "a directory nobody may read": lambda checkout: (checkout.path / "closed").mkdir(mode=0),
    "a repository within": nested,
    "staged, and changed back": staged_and_back,
    "a commit": lambda checkout: checkout.git("commit", "--quiet", "--allow-empty", "--message", "x"),
    "a commit of a change": lambda checkout: checkout.commit(README="committed\n"),
    "a merge": merging,
    "rules in the worktree": lambda checkout: checkout.write(".gitignore", "ignored/\n/gitckpt.toml\n") and checkout.write("a.log", "l\n"),
    "rules that are ignored": lambda checkout: checkout.write("inner/.gitignore", "other\n"),
    "rules for the repository": lambda checkout: excluded(checkout).write_text(""),
    "rules for the user": rules_of_user,
    "settings of git": lambda checkout: checkout.git("config", "ckpt.include", "*/some"),
    "settings of git that are included": lambda checkout: (
        checkout.git("config", "--file", str(Path(os.environ["HOME"]) / "included"), "ckpt.include", "*/some")
    ),
    "settings for everybody": everybody,
    "a filter": filtered,
    "assumed to be unchanged": lambda checkout: checkout.git("update-index", "--assume-unchanged", "README"),
    "to be skipped": lambda checkout: checkout.git("update-index", "--skip-worktree", "README"),
    "added in intent": lambda checkout: checkout.write("intended", "") and checkout.git("add", "--intent-to-add", "intended"),
    "a sparse checkout": lambda checkout: checkout.git("sparse-checkout", "set", "sub"),
    "a damaged index": lambda checkout: index(checkout).write_bytes(b"DIRC nonsense"),
    "no index": lambda checkout: index(checkout).unlink(),
}  # fmt: skip


NAMES = ["README", "sub/deep/file", "sub/new", "inner/new", "x.log", ".gitignore", "sub/.gitignore"]
TEXTS = ["a\n", "b\n", "*\n", "!*\n", None]


class TestWhatHasChanged:
    @pytest.mark.sampled(12)
    @pytest.mark.parametrize("change", CHANGES)
    def test_is_found_as_by_a_process_that_remembers_nothing(self, make_store: MakeStore, checkout: Checkout, change: str) -> None:
        store = make_store(checkout)
        remember(store)
        CHANGES[change](checkout)
        assert not remembers(store)
        assert store.capture() == make_store(checkout).capture()

    def test_is_found_between_two_looks(self, make_store: MakeStore, checkout: Checkout) -> None:
        """Before it remembers, too: what git cannot read is for the capture to tell."""
        store = make_store(checkout)
        store.capture()
        index(checkout).write_bytes(b"DIRC nonsense")
        assert store.capture() == make_store(checkout).capture()

    def test_in_what_is_ignored_changes_nothing(self, make_store: MakeStore, checkout: Checkout) -> None:
        store = make_store(checkout)
        remember(store)
        checkout.write("ignored/some", "y\n")
        checkout.write("ignored/deep/new", "y\n")
        assert remembers(store)
        assert store.capture() == CLEAN

    @pytest.mark.long
    @settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(steps=st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(TEXTS), st.booleans()), min_size=3, max_size=8))
    def test_is_found_at_once_however_it_comes(
        self, make_store: MakeStore, main_checkout: Checkout, steps: list[tuple[str, str | None, bool]]
    ) -> None:
        """Nothing is waited for: what changes again within one tick of the clock is found as well."""
        store = make_store(main_checkout)
        for name, text, commits in steps:
            if text is not None:
                main_checkout.write(name, text)
            elif (main_checkout.path / name).exists():
                (main_checkout.path / name).unlink()
            if commits:
                main_checkout.git("add", "--all")
                main_checkout.git("commit", "--quiet", "--allow-empty", "--message", "x")
            for _ in range(3):
                assert store.capture() == make_store(main_checkout).capture()


def locks(checkout: Checkout) -> list[Path]:
    return [path for path in Path(checkout.git("rev-parse", "--git-common-dir")).resolve().rglob("*.lock") if path.parent.name != "ckpt"]


class TestASave:
    """It expects to find nothing, and looks while the disk is waited for."""

    @pytest.mark.sampled(12)
    @pytest.mark.parametrize("change", CHANGES)
    def test_holds_what_has_changed(self, make_store: MakeStore, checkout: Checkout, change: str, monkeypatch: pytest.MonkeyPatch) -> None:
        store = make_store(checkout)
        remember(store)
        CHANGES[change](checkout)
        monkeypatch.chdir(checkout.path)
        try:
            expected = make_store(checkout).capture()
        except CkptError as error:
            with pytest.raises(type(error)):
                store.save("x-complete")
            assert (store.list(), locks(checkout)) == ([], [])
            return
        made = store.save("x-complete")
        assert (made.worktree, [entry.id for entry in store.list()], locks(checkout)) == (expected, [made.id], [])

    def test_holds_what_changes_once_it_has_begun(self, make_store: MakeStore, checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
        store = make_store(checkout)
        store.save("before-complete")
        remember(store)
        ids: list[str] = []

        def new_id() -> str:
            ids.append(make_store(checkout).save("other-complete").id if not ids else "")
            checkout.write("README", "changed meanwhile\n")
            return str(uuid.uuid4())

        monkeypatch.setattr(inside(store), "new_id", new_id)
        monkeypatch.chdir(checkout.path)
        made = store.save("x-complete")
        assert made.worktree == make_store(checkout).capture()
        assert len(ids) == 2
        assert [entry.label for entry in store.list()] == ["x-complete", "other-complete", "before-complete"]
        assert locks(checkout) == []
        store.save("y-complete")  # by a git that was started anew

    def test_of_what_is_the_same_looks_once(self, make_store: MakeStore, checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
        store = make_store(checkout)
        remember(store)
        looks: list[Fingerprint] = []
        holds = Fingerprint.holds

        def look(fingerprint: Fingerprint) -> bool:
            looks.append(fingerprint)
            return holds(fingerprint)

        monkeypatch.setattr(Fingerprint, "holds", look)
        assert store.save("x-complete").worktree == CLEAN
        assert len(looks) == 1


class TestWhatIsTheSame:
    def test_takes_no_process(self, make_store: MakeStore, checkout: Checkout, sealed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        store = make_store(checkout)
        remember(store)
        monkeypatch.setenv("GIT_TRACE2_EVENT", str(sealed / "trace"))
        assert store.capture() == CLEAN
        assert not (sealed / "trace").exists()
        checkout.write("README", "changed\n")
        assert store.capture() != CLEAN
        assert (sealed / "trace").exists()

    def test_is_looked_at_with_limits_that_bring_ignored_files_in(self, make_store: MakeStore, checkout: Checkout) -> None:
        store = make_store(checkout)
        remember(store)
        assert remembers(store, Limits())
        files = store.capture(Limits(include=("some",)))
        assert files == make_store(checkout).capture(Limits(include=("some",)))
        assert files.dirty

    def test_is_not_taken_from_a_capture_with_limits_for_one_by_the_settings(self, make_store: MakeStore, checkout: Checkout) -> None:
        checkout.git("config", "ckpt.include", "*/some")
        store = make_store(checkout)
        for _ in range(3):
            assert store.capture(Limits()) == CLEAN
        assert store.capture().dirty

    def test_of_very_many_files_is_left_to_git(self, make_store: MakeStore, checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("gitckpt.git.worktree.fingerprint.MOST", 3)
        store = make_store(checkout)
        for _ in range(5):
            assert store.capture() == CLEAN
            assert not remembers(store)
