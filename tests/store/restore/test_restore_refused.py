"""What restore refuses or saves first: obstacles, locks, hostile snapshots."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gitckpt import BusyError, Checkpoint, CkptError, LockHeld, Store, Worktree, WorktreeError
from tests import planted
from tests.conftest import Checkout
from tests.planted import plant
from tests.store.conftest import after_recording, view

HINT = "move these paths away, then run the command again; nothing was changed"


def refused(store: Store, made: Checkpoint, *paths: bytes) -> CkptError:
    with pytest.raises(CkptError) as caught:
        store.restore(made, paths or None)
    return caught.value


def everything(place: Path) -> dict[str, bytes | str]:
    """Return every file below a directory, without objects, logs and derived data."""
    found: dict[str, bytes | str] = {}
    for path in sorted(place.rglob("*")):
        parts = path.relative_to(place).parts
        if path.is_symlink():
            found[str(path)] = os.readlink(path)
        elif path.is_file() and not {"objects", "ckpt", "logs"} & set(parts):
            found[str(path)] = path.read_bytes()
    return found


@pytest.fixture
def adapter(checkout: Checkout) -> str:
    """libgit2 in the main worktree, plumbing in the linked one."""
    return "libgit2" if checkout.path == checkout.main else "plumbing"


class TestInTheWay:
    @pytest.fixture
    def ignoring(self, main_checkout: Checkout) -> Checkout:
        """A checkout whose commit ignores `*.o` and every `build`."""
        main_checkout.commit("rules", **{".gitignore": "*.o\nbuild\n"})
        return main_checkout

    @pytest.mark.parametrize(("count", "more"), [(1, ""), (5, ""), (7, " and 2 more")])
    def test_ignored_files_in_a_directory_where_a_file_belongs(
        self, plain: Store, ignoring: Checkout, count: int, more: str
    ) -> None:
        ignoring.write("place", "a file\n")
        made = plain.save("a-complete", {})
        (ignoring.path / "place").unlink()
        ignoring.write("place/kept", "x")
        for number in range(count):
            ignoring.write(f"place/{number}.o", "x")
        before = ignoring.fingerprint()
        error = refused(plain, made)
        names = ", ".join(f"place/{number}.o" for number in range(min(count, 5)))
        assert (error.message, error.hint) == (
            f"the restore would overwrite paths that are in no checkpoint: {names}{more}",
            HINT,
        )
        assert (ignoring.fingerprint(), type(error)) == (before, WorktreeError)

    @pytest.mark.parametrize("kind", ["fifo", "repository", "directory of a link"])
    def test_what_no_checkpoint_can_hold(self, plain: Store, ignoring: Checkout, kind: str) -> None:
        ignoring.write("place", "a file\n")
        made = plain.save("a-complete", {})
        (ignoring.path / "place").unlink()
        if kind == "fifo":
            os.mkfifo(ignoring.path / "place")
        elif kind == "repository":
            ignoring.git("init", "--quiet", "place")
        else:
            (ignoring.path / "place").mkdir()
            (ignoring.path / "place/a.o").symlink_to("/")
        before = everything(ignoring.path)
        error = refused(plain, made)
        assert error.message.startswith(
            "the restore would overwrite paths that are in no checkpoint: place"
        )
        assert (everything(ignoring.path), error.hint) == (before, HINT)

    @pytest.mark.sampled(2)
    @pytest.mark.parametrize("here", ["file", "link", "link to a directory"])
    @pytest.mark.parametrize("there", ["file", "directory"])
    def test_an_ignored_file_goes_into_the_safety_checkpoint(
        self, plain: Store, ignoring: Checkout, here: str, there: str
    ) -> None:
        wanted = "build" if there == "file" else "build/inside"
        ignoring.write(wanted, "captured\n")
        ignoring.git("add", "--force", wanted)
        made = plain.save("a-complete", {})
        ignoring.git("reset", "--quiet", "--hard")
        outside = ignoring.path.parent / "outside"
        outside.mkdir()
        (outside / "inside").write_text("mine")
        place = ignoring.path / "build"
        if here == "file":
            place.write_text("precious")
        else:
            place.symlink_to(outside if here == "link to a directory" else "nowhere")
        before = everything(ignoring.path)
        plain.restore(made)
        assert (ignoring.path / wanted).read_text() == "captured\n"
        assert (outside / "inside").read_text() == "mine"
        plain.undo()
        after = everything(ignoring.path)
        assert {name: after.get(name) for name in before if "/.git/" not in name} == {
            name: said for name, said in before.items() if "/.git/" not in name
        }
        assert sorted(path.name for path in outside.iterdir()) == ["inside"]

    @pytest.mark.parametrize("name", [".env", "large"])
    def test_what_the_settings_leave_out_goes_into_the_safety_checkpoint(
        self, plain: Store, main_checkout: Checkout, name: str
    ) -> None:
        main_checkout.write(name, "captured\n")
        main_checkout.git("add", name)
        made = plain.save("a-complete", {})
        main_checkout.git("rm", "--quiet", "--cached", name)
        main_checkout.git("config", "ckpt.maxFileSize", "20 B")
        main_checkout.write(name, "precious and not captured otherwise\n")
        done = plain.restore(made)
        assert (main_checkout.path / name).read_text() == "captured\n"
        assert plain.read(str(done.safety)).worktree is not None
        plain.undo()
        assert (main_checkout.path / name).read_text() == "precious and not captured otherwise\n"


class TestOthersAtWork:
    def test_the_lock_of_the_index(self, store: Store, checkout: Checkout) -> None:
        checkout.write("README", "wanted\n")
        checkout.git("add", "README")
        wanted = view(checkout.path)
        made = store.save("a-complete", {})
        checkout.write("README", "before\n")
        checkout.write("new", "x\n")
        before = view(checkout.path)
        lock = Path(checkout.git("rev-parse", "--absolute-git-dir"), "index.lock")
        lock.write_text("somebody else's")
        index = lock.with_name("index").read_bytes()
        error = refused(store, made)
        assert isinstance(error, LockHeld)
        assert (error.message, error.exit_code) == (f"another process holds {lock}", 11)
        assert (lock.read_text(), lock.with_name("index").read_bytes()) == (
            "somebody else's",
            index,
        )
        lock.unlink()
        store.restore(made)
        assert view(checkout.path) == wanted
        store.undo()
        assert view(checkout.path) == before

    def test_undo_after_the_lock_of_the_index(self, store: Store, checkout: Checkout) -> None:
        made = store.save("a-complete", {})
        checkout.write("README", "before\n")
        checkout.git("add", "README")
        before = view(checkout.path)
        lock = Path(checkout.git("rev-parse", "--absolute-git-dir"), "index.lock")
        lock.touch()
        refused(store, made)
        lock.unlink()
        store.undo()
        assert view(checkout.path) == before

    @pytest.mark.parametrize("is_converted", [False, True])
    def test_a_file_that_changes_meanwhile(
        self,
        plain: Store,
        main_checkout: Checkout,
        monkeypatch: pytest.MonkeyPatch,
        *,
        is_converted: bool,
    ) -> None:
        if is_converted:
            main_checkout.commit("converted", **{".gitattributes": "*.txt text\n"})
        made = plain.save("a-complete", {})
        main_checkout.write("README", "before\n")
        main_checkout.write("new", "x")
        after_recording(
            plain, monkeypatch, lambda: main_checkout.write("README", "typed in this moment\n")
        )
        error = refused(plain, made)
        assert isinstance(error, BusyError)
        assert error.message.startswith(
            "a file changed while it was to be replaced: git read-tree failed: "
        )
        assert "README" in error.message
        assert (
            (main_checkout.path / "README").read_text(),
            (main_checkout.path / "new").read_text(),
        ) == ("typed in this moment\n", "x")
        monkeypatch.undo()
        plain.restore(made)
        assert main_checkout.git("status", "--porcelain") == ""

    @pytest.mark.parametrize("paths", [(), (b"README",)])
    def test_what_is_staged_meanwhile_stays_staged(
        self,
        plain: Store,
        main_checkout: Checkout,
        monkeypatch: pytest.MonkeyPatch,
        paths: tuple[bytes, ...],
    ) -> None:
        """Staged contents survive: they may exist in the index alone."""
        made = plain.save("a-complete", {})
        main_checkout.write("README", "before\n")
        main_checkout.write("later", "1\n")

        def stage() -> None:
            main_checkout.write("later", "staged in this moment\n")
            main_checkout.git("add", "later")
            main_checkout.write("later", "1\n")

        after_recording(plain, monkeypatch, stage)
        if paths:
            plain.restore(made, paths or None)
        else:
            error = refused(plain, made)
            assert isinstance(error, BusyError), error.message
        assert main_checkout.git("cat-file", "blob", ":later") == "staged in this moment"
        assert (main_checkout.path / "README").read_text() == ("hello\n" if paths else "before\n")
        monkeypatch.undo()
        plain.restore(made)
        plain.undo()
        assert main_checkout.git("cat-file", "blob", ":later") == "staged in this moment"

    @pytest.fixture
    def to_git(self, plain: Store, main_checkout: Checkout) -> Checkpoint:
        """A checkpoint whose conversion rules make git replace the files."""
        main_checkout.commit("rules", **{".gitattributes": "*.txt text\n"})
        made = plain.save("a-complete", {})
        main_checkout.write("README", "before\n")
        return made

    def test_what_is_staged_while_files_are_written_stays_staged(
        self,
        plain: Store,
        main_checkout: Checkout,
        to_git: Checkpoint,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        really = planted.original(planted.REPLACE_FILES)

        def replace_files(*args: Any) -> object:
            done = really(*args)
            main_checkout.git("rm", "--quiet", "--cached", "README")
            return done

        plant(monkeypatch, planted.REPLACE_FILES, replace_files)
        assert isinstance(refused(plain, to_git), BusyError)
        assert main_checkout.git("status", "--porcelain") == "D  README\n?? README"
        assert not (main_checkout.path / ".git/index.lock").exists()
        monkeypatch.undo()
        plain.undo()
        assert (main_checkout.path / "README").read_text() == "before\n"

    def test_an_index_that_git_has_only_looked_through_meanwhile_is_replaced(
        self,
        plain: Store,
        main_checkout: Checkout,
        to_git: Checkpoint,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        really = planted.original(planted.REPLACE_FILES)
        inodes = []

        def replace_files(*args: Any) -> object:
            main_checkout.git("update-index", "--force-write-index")
            inodes.append((main_checkout.path / ".git/index").stat().st_ino)
            return really(*args)

        before = (main_checkout.path / ".git/index").stat().st_ino
        plant(monkeypatch, planted.REPLACE_FILES, replace_files)
        plain.restore(to_git)
        assert before not in inodes != []
        assert main_checkout.git("status", "--porcelain") == ""


class TestMissing:
    @pytest.fixture
    def made(self, plain: Store, main_checkout: Checkout) -> Checkpoint:
        main_checkout.write("deep/new", "x\n")
        main_checkout.write("README", "changed\n")
        made = plain.save("a-complete", {})
        main_checkout.git("reset", "--quiet", "--hard")
        main_checkout.git("clean", "--quiet", "--force", "-d")
        return made

    @pytest.mark.sampled(2)
    @pytest.mark.parametrize("what", ["files/deep/new", "files/deep", "files", "files/README", ""])
    def test_an_object_is_named_before_anything_changed(
        self, plain: Store, main_checkout: Checkout, made: Checkpoint, what: str
    ) -> None:
        oid = main_checkout.git("rev-parse", f"refs/ckpt/trees/{made.id}:{what}")
        (main_checkout.path / ".git/objects" / oid[:2] / oid[2:]).unlink()
        before = everything(main_checkout.path)
        error = refused(plain, made)
        named = {"files/deep/new": "deep/new", "files/README": "README"}.get(what)
        assert (f"{named} (blob {oid})" if named else oid) in error.message
        assert everything(main_checkout.path) == before

    def test_the_commit(self, plain: Store, main_checkout: Checkout) -> None:
        commit = main_checkout.commit("second")
        made = plain.save("a-complete", {})
        main_checkout.git("reset", "--quiet", "--hard", "HEAD^")
        (main_checkout.path / ".git/objects" / commit[:2] / commit[2:]).unlink()
        error = refused(plain, made)
        hint = "fetch the commit from a clone that has it, or find the cause: git ckpt verify"
        assert (error.message, error.hint) == (
            f"commit {commit} of checkpoint {made.id} is missing",
            hint,
        )


class Forge:
    """Makes snapshots that no honest program makes.

    Args:
        checkout: the checkout to write to.
        store: the store of the checkout.
    """

    def __init__(self, checkout: Checkout, store: Store) -> None:
        self._checkout = checkout
        self._store = store

    def blob(self, text: str) -> str:
        return self._checkout.git("hash-object", "-w", "--stdin", data=text)

    def tree(self, *entries: tuple[str, str, str]) -> str:
        """Write a tree of entries (mode, name, oid) without checking the names."""
        data = b"".join(
            b"%s %s\0%s" % (mode.encode(), os.fsencode(name), bytes.fromhex(oid))
            for mode, name, oid in entries
        )
        return self._checkout.git(
            "hash-object", "-w", "-t", "tree", "--literally", "--stdin", data=data
        )

    def below(self, path: str, oid: str, mode: str = "100644") -> str:
        """Write trees that lead to one file, one tree for each part of the path."""
        *parents, name = path.split("/")
        tree = self.tree((mode, name, oid))
        for parent in reversed(parents):
            tree = self.tree(("40000", parent, tree))
        return tree

    def checkpoint(self, *entries: tuple[str, str, str]) -> Checkpoint:
        """Record a checkpoint whose snapshot has these entries."""
        return self._store.record(
            "a-complete", {}, worktree=Worktree(dirty=True, tree=self.tree(*entries))
        )


@pytest.fixture
def forge(plain: Store, main_checkout: Checkout) -> Forge:
    main_checkout.git("config", "core.protectNTFS", "true")
    main_checkout.git("config", "core.protectHFS", "true")
    return Forge(main_checkout, plain)


@pytest.fixture(params=[Store.restore, Store.resume], ids=lambda action: action.__name__)
def use(request: pytest.FixtureRequest) -> Callable[[Store, Checkpoint], object]:
    """Restore or resume, applied to a snapshot."""
    action: Callable[[Store, Checkpoint], object] = request.param
    return action


Use = Callable[[Store, Checkpoint], object]


@pytest.mark.turns("use")
class TestAnEnemysSnapshot:
    PATHS = (
        *(
            ".git/hooks/post-checkout",
            "../x",
            "a/../../x",
            ".GIT/config",
            "git~1/config",
            ".g\u200cit/config",
            "a/.git/config",
        ),
        *("..", ".", ".git", "x/.Git/hooks/y", "sub/.."),
    )

    @pytest.mark.sampled(3)
    @pytest.mark.parametrize("path", PATHS)
    def test_paths_that_lead_astray(
        self, plain: Store, main_checkout: Checkout, forge: Forge, use: Use, path: str
    ) -> None:
        made = forge.checkpoint(("40000", "files", forge.below(path, forge.blob("evil"))))
        before = everything(main_checkout.path.parent)
        with pytest.raises(CkptError) as caught:
            use(plain, made)
        assert caught.value.exit_code == 14
        assert self.changed(main_checkout, before) == {}

    @pytest.mark.parametrize("name", ["x/../../y", "/tmp/gitckpt-evil", ""])
    def test_names_with_slashes(
        self, plain: Store, main_checkout: Checkout, forge: Forge, use: Use, name: str
    ) -> None:
        made = forge.checkpoint(
            ("40000", "files", forge.tree(("100644", name, forge.blob("evil"))))
        )
        before = everything(main_checkout.path.parent)
        with pytest.raises(CkptError):
            use(plain, made)
        assert self.changed(main_checkout, before) == {}

    @pytest.mark.parametrize("first", ["link", "directory"])
    def test_a_file_behind_a_link(
        self,
        plain: Store,
        main_checkout: Checkout,
        forge: Forge,
        use: Use,
        first: str,
        tmp_path: Path,
    ) -> None:
        (tmp_path / "outside").mkdir()
        link = ("120000", "a", forge.blob(str(tmp_path / "outside")))
        directory = ("40000", "a", forge.below("b", forge.blob("evil")))
        made = forge.checkpoint(
            (
                "40000",
                "files",
                forge.tree(*((link, directory) if first == "link" else (directory, link))),
            )
        )
        before = everything(main_checkout.path.parent)
        with pytest.raises(CkptError):
            use(plain, made)
        assert self.changed(main_checkout, before) == {}
        assert list((tmp_path / "outside").iterdir()) == []

    @pytest.mark.sampled(2)
    @pytest.mark.parametrize(
        "flag", ["absent", "skip-worktree", "assume-unchanged", "intent-to-add"]
    )
    def test_flags_of_paths_outside(
        self,
        plain: Store,
        main_checkout: Checkout,
        forge: Forge,
        use: Use,
        flag: str,
        tmp_path: Path,
    ) -> None:
        victim = tmp_path / "victim"
        victim.write_text("precious")
        paths = [str(victim), "../../../../victim", "../victim"]
        flags = forge.blob("".join(f"{flag} {path}\0" for path in paths))
        readme = ("100644", "README", forge.blob("changed\n"))
        made = forge.checkpoint(("40000", "files", forge.tree(readme)), ("100644", "flags", flags))
        with contextlib.suppress(CkptError):  # a harmless snapshot need not be refused
            use(plain, made)
        assert victim.read_text() == "precious"

    OPERATION = (
        *(
            ("../x", "x"),
            ("hooks/post-checkout", "#!/bin/sh\n"),
            ("config", "[core]\n"),
            ("HEAD", "ref: refs/heads/evil\n"),
        ),
        *(
            ("rebase-merge/../hooks/x", "x"),
            ("sequencer/../../x", "x"),
            ("refs/heads/main", "0" * 40),
            ("index", "x"),
            ("ckpt-run", "x"),
        ),
        *(
            ("MERGE_HEAD/../config", "x"),
            ("rebase-merge", "x"),
            ("commondir", "/tmp"),
            ("refs/bisect/../heads/main", "HEAD"),
        ),
        *(
            ("CHERRY_PICK_HEAD", "ref: refs/heads/evil\n"),
            ("ORIG_HEAD", "ref: HEAD\n"),
            ("refs/bisect/bad", "ref: refs/heads/main\n"),
        ),
    )

    @pytest.mark.sampled(6)
    @pytest.mark.parametrize(("name", "content"), OPERATION, ids=[name for name, _ in OPERATION])
    def test_an_operation(
        self, plain: Store, main_checkout: Checkout, forge: Forge, use: Use, name: str, content: str
    ) -> None:
        files = forge.tree(("100644", "README", forge.blob("changed\n")))
        content = main_checkout.git("rev-parse", "HEAD") if content == "HEAD" else content
        made = forge.checkpoint(
            ("40000", "files", files),
            ("40000", "operation", forge.below(name, forge.blob(content))),
        )
        before = everything(main_checkout.path.parent)
        with contextlib.suppress(CkptError):  # a harmless snapshot need not be refused
            use(plain, made)
        changed = self.changed(main_checkout, before)
        own = (f".ckpt/worktrees/{made.id}/", f".git/worktrees/{made.id}/")
        there = {
            path.removeprefix(place) for path in changed for place in own if path.startswith(place)
        }
        assert there <= {
            "README",
            ".git",
            "HEAD",
            "index",
            "commondir",
            "gitdir",
            "locked",
            "ckpt-run",
            "logs/HEAD",
        }
        assert {path for path in changed if not path.startswith(own)} <= {
            "README",
            ".git/index",
            ".git/ckpt-undo",
            ".ckpt/.gitignore",
        }
        assert not [
            path
            for path, new in changed.items()
            if new == content.encode() and not path.endswith("/HEAD")
        ]
        for hook in main_checkout.path.rglob("post-checkout"):
            pytest.fail(f"{hook} was made")

    def test_an_operation_that_needs_a_commit_which_is_missing(
        self, plain: Store, main_checkout: Checkout, forge: Forge
    ) -> None:
        content = forge.blob("1" * 40 + "\n")
        files = ("40000", "files", forge.tree(("100644", "README", forge.blob("changed\n"))))
        made = forge.checkpoint(
            files, ("40000", "operation", forge.below("CHERRY_PICK_HEAD", content))
        )
        before = everything(main_checkout.path.parent)
        error = refused(plain, made)
        assert ("1" * 40 in error.message, error.exit_code) == (True, 14)
        assert self.changed(main_checkout, before) == {}

    @staticmethod
    def changed(
        checkout: Checkout, before: dict[str, bytes | str]
    ) -> dict[str, bytes | str | None]:
        """Return new and different files by path.

        Refs of checkpoints and files that a resume may write are left out.
        """
        after = everything(checkout.path.parent)
        paths = [
            path for path in before.keys() | after.keys() if before.get(path) != after.get(path)
        ]
        found = {os.path.relpath(path, checkout.path): after.get(path) for path in paths}
        own = (".git/refs/checkpoints/", ".git/refs/notes/", ".ckpt/.gitignore")
        return {path: said for path, said in found.items() if not path.startswith(own)}
