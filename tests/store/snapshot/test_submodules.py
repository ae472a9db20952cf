"""Each submodule gets its own checkpoint, which that of the superproject names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gitckpt import Checkpoint, Policy, Store, Worktree
from gitckpt.git.worktree import modules
from gitckpt.model.checkpoint import Omitted, Submodule
from gitckpt.store.store import checkpoints_of_store
from tests import planted
from tests.conftest import Checkout, Clock
from tests.planted import plant
from tests.store.audit.verifying import look, told
from tests.store.conftest import ONE, MakeStore, nth
from tests.store.submodules import CHECKPOINTS, dirty, named, names
from tests.stores import DAY


class TestCapture:
    @pytest.mark.long
    def test_what_it_keeps(self, plain: Store, lib: Checkout, inner: Checkout) -> None:
        dirty(lib, inner)
        made = plain.save("a-complete", {"n": 1})
        head = lib.git("rev-parse", "HEAD")
        assert made.worktree is not None
        (one,) = made.worktree.submodules
        assert (one, made.worktree.omitted) == (
            Submodule("lib", names(lib)[0], head, dirty=True),
            (),
        )
        assert plain.read(made.id).worktree == made.worktree
        tree = f"refs/ckpt/trees/{one.checkpoint}"
        assert lib.git("ls-tree", "-r", "--name-only", f"{tree}:files").split() == [
            ".gitmodules",
            "inner",
            "l",
            "more",
            "new",
        ]
        assert lib.git("cat-file", "blob", f"{tree}:files/l") == "changed"
        (nested,) = names(inner)
        assert f'checkpoint = "{nested}"' in lib.git(
            "cat-file", "blob", f"{CHECKPOINTS}/{one.checkpoint}"
        )
        held = [
            inner.git("cat-file", "blob", f"refs/ckpt/trees/{nested}:{place}/i")
            for place in ("files", "index/0")
        ]
        assert held == ["changed", "staged"]

    def test_it_keeps_a_commit_alive_that_nobody_else_has(
        self, plain: Store, lib: Checkout
    ) -> None:
        was = lib.git("rev-parse", "HEAD")
        head = lib.commit("not pushed", more="x\n")
        plain.save("a-complete", {})
        lib.git("reset", "--quiet", "--hard", was)
        lib.git("reflog", "expire", "--expire=now", "--all")
        lib.git("gc", "--quiet", "--prune=now")
        assert lib.git("cat-file", "-t", head) == "commit"

    @pytest.mark.long
    def test_the_user_notices_nothing(
        self, plain: Store, main_checkout: Checkout, lib: Checkout, inner: Checkout
    ) -> None:
        dirty(lib, inner)
        states = [
            [one.git("status", "--porcelain=v2", "--branch"), one.git("stash", "list")]
            for one in (main_checkout, lib, inner)
        ]
        plain.save("a-complete", {})
        again = [
            [one.git("status", "--porcelain=v2", "--branch"), one.git("stash", "list")]
            for one in (main_checkout, lib, inner)
        ]
        assert again == states

    @pytest.mark.long
    def test_what_has_not_changed_is_not_recorded_again(
        self, plain: Store, lib: Checkout, inner: Checkout
    ) -> None:
        dirty(lib, inner)
        first, second = (plain.save("a-complete", {"n": n}) for n in (1, 2))
        assert (named(first), len(names(lib)), len(names(inner))) == (named(second), 1, 1)
        inner.write("i", "changed once more\n")
        third = plain.save("a-complete", {"n": 3})
        assert (named(third) == named(first), len(names(lib)), len(names(inner))) == (False, 2, 2)

    @pytest.mark.long
    def test_one_that_git_modules_does_not_name(
        self, plain: Store, main_checkout: Checkout, lib: Checkout
    ) -> None:
        """A sparse checkout can omit `.gitmodules`."""
        main_checkout.git("sparse-checkout", "set", "--no-cone", "/README")
        assert not (main_checkout.path / ".gitmodules").exists()
        first = plain.save("a-complete", {})
        lib.write("l", "changed\n")
        second = plain.save("b-complete", {})
        assert [len(named(one)) for one in (first, second)] == [1, 1]
        plain.restore(first)
        plain.undo()
        assert (lib.path / "l").read_text() == "changed\n"
        plain.redo()
        assert (lib.path / "l").read_text() == "l\n"

    @pytest.mark.long
    def test_one_whose_checkpoint_is_gone_gets_another(
        self, plain: Store, lib: Checkout, make_store: MakeStore
    ) -> None:
        (first,) = named(plain.save("a-complete", {}))
        with make_store(lib) as theirs:
            theirs.remove([first])
        (second,) = named(plain.save("a-complete", {}))
        assert names(lib) == [second] != [first]

    @pytest.mark.long
    def test_one_that_goes_with_the_last_that_names_it_just_now(
        self,
        plain: Store,
        main_checkout: Checkout,
        lib: Checkout,
        make_store: MakeStore,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        first = plain.save("a-complete", {})
        record = checkpoints_of_store(plain).record

        def late(*args: Any, **details: Any) -> Checkpoint:
            with make_store(main_checkout) as other:
                other.remove([first.id])
            return record(*args, **details)

        monkeypatch.setattr(checkpoints_of_store(plain), "record", late)
        second = plain.save("b-complete", {})
        assert (names(lib), names(main_checkout)) == (named(second), [second.id])
        assert named(second) != named(first)

    def test_the_settings_can_switch_it_off(
        self, plain: Store, main_checkout: Checkout, lib: Checkout
    ) -> None:
        main_checkout.git("config", "ckpt.submodules", "none")
        lib.write("l", "changed\n")
        head = lib.git("rev-parse", "HEAD")
        reason = "a submodule with uncommitted changes: its files stay in it"
        assert plain.save("a-complete", {}).worktree == Worktree(
            dirty=False, omitted=(Omitted("lib", reason, oid=head, dirty=True),)
        )
        assert names(lib) == []

    def test_one_that_cannot_be_captured_is_named(self, plain: Store, lib: Checkout) -> None:
        git_dir = Path(lib.git("rev-parse", "--absolute-git-dir"))
        lib.write("l", "changed\n")
        (git_dir / "ckpt").write_text("in the way")
        files = plain.save("a-complete", {}).worktree
        assert files is not None
        (left,) = files.omitted
        assert (files.submodules, left.path, left.dirty) == ((), "lib", None)
        assert left.reason.startswith("a submodule that could not be captured: cannot write to ")

    def test_one_behind_a_link_is_none(
        self, plain: Store, main_checkout: Checkout, lib: Checkout, tmp_path: Path
    ) -> None:
        (main_checkout.path / "link").symlink_to(main_checkout.path)
        (main_checkout.path / "direct").symlink_to(lib.path)
        repository = checkpoints_of_store(plain).repository
        found = [
            modules.open_submodule(repository, path)
            for path in (b"lib", b"link/lib", b"direct", b"lib/../lib", b"", b"lib/")
        ]
        assert [one is not None for one in found] == [True, False, False, False, False, False]

    def test_one_that_is_not_checked_out_costs_nothing(
        self, plain: Store, main_checkout: Checkout, lib: Checkout
    ) -> None:
        main_checkout.git("submodule", "--quiet", "deinit", "--force", "lib")
        assert plain.save("a-complete", {}).worktree == Worktree(dirty=False)


def test_without_submodules_no_process_is_started_for_them(
    main_checkout: Checkout, make_store: MakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch, planted.REF_FINELY_SETTLED_SECONDS, 0)  # young refs would be read again
    started: list[str] = []
    spawn = planted.original(planted.SPAWN_PROCESS)

    def count(argv: list[str], *rest: object, **more: object) -> object:
        started.append(" ".join(argv))
        return spawn(argv, *rest, **more)

    plant(monkeypatch, planted.SPAWN_PROCESS, count)
    counts = []
    for value in ("none", "all", "none"):  # the first one finds nothing that it could know already
        main_checkout.git("config", "ckpt.submodules", value)
        main_checkout.write("README", f"{value}\n")
        started.clear()
        with make_store(main_checkout) as store:
            store.remove([store.save("a-complete", {}).id])
        counts.append(len(started))
    assert counts[2] == counts[1] > 0


class TestRetention:
    def test_it_goes_with_the_last_one_that_names_it(
        self, plain: Store, lib: Checkout, inner: Checkout
    ) -> None:
        first, second = (plain.save("a-complete", {"n": n}) for n in (1, 2))
        plain.remove([first.id])
        assert (len(names(lib)), len(names(inner))) == (1, 1)
        plain.remove([second.id])
        assert (lib.refs(CHECKPOINTS, "refs/ckpt"), inner.refs(CHECKPOINTS, "refs/ckpt")) == (
            {},
            {},
        )

    @pytest.mark.long
    def test_no_expiry_takes_it_while_it_is_named(
        self, plain: Store, lib: Checkout, make_store: MakeStore, clock: Clock
    ) -> None:
        made = plain.save("a-complete", {})
        clock.instant += 400 * DAY
        everything = Policy(older_than=1, keep_last=0, everything=True)
        with make_store(lib) as theirs:
            decided = theirs.expire(everything)
        assert (decided.checkpoints, decided.total) == ([], 1)
        plain.expire()
        assert names(lib) == named(made)
        plain.expire(everything)
        assert names(lib) == []

    @pytest.mark.long
    def test_what_a_kill_left_goes_after_an_hour(
        self, plain: Store, main_checkout: Checkout, lib: Checkout, inner: Checkout, clock: Clock
    ) -> None:
        made = plain.save("a-complete", {})
        plain.capture()
        lib.write("l", "changed\n")
        plain.capture()  # … and a kill
        assert len(names(lib)) == 2
        plain.expire()
        assert len(names(lib)) == 2
        clock.instant += 3700 * 1_000_000
        plain.expire()
        assert (names(lib), len(names(inner))) == (named(made), 1)

    def test_nothing_goes_while_a_checkpoint_cannot_be_read(
        self, plain: Store, main_checkout: Checkout, lib: Checkout, clock: Clock
    ) -> None:
        made = plain.save("a-complete", {})
        blob = main_checkout.git("hash-object", "-w", "--stdin", data="version = 99\n")
        main_checkout.git("update-ref", f"{CHECKPOINTS}/{nth(4000)}", blob)
        main_checkout.git("update-ref", "-d", f"{CHECKPOINTS}/{made.id}")
        clock.instant += DAY
        plain.expire()
        assert names(lib) == named(made)

    @pytest.mark.long
    def test_checkpoints_of_its_own_stay(
        self, plain: Store, lib: Checkout, make_store: MakeStore, clock: Clock
    ) -> None:
        with make_store(lib) as theirs:
            own = theirs.save("own-complete", {"n": 1})
        plain.remove([plain.save("a-complete", {}).id])
        clock.instant += DAY
        plain.expire()
        assert names(lib) == [own.id]

    @pytest.mark.long
    def test_one_of_its_own_stays_whoever_names_it(
        self,
        plain: Store,
        main_checkout: Checkout,
        lib: Checkout,
        make_store: MakeStore,
        clock: Clock,
    ) -> None:
        """A fetched document may name any checkpoint; its age alone decides."""
        with make_store(lib) as theirs:
            own = theirs.save("own-complete", {"n": 1})
        made = plain.save("a-complete", {}, trigger="post-commit")
        text = plain.raw(made.id).decode().replace(named(made)[0], own.id)
        main_checkout.git(
            "update-ref",
            f"{CHECKPOINTS}/{made.id}",
            main_checkout.git("hash-object", "-w", "--stdin", data=text),
        )
        clock.instant += 400 * DAY
        plain.expire(Policy(older_than=DAY, keep_last=0))
        assert made.id not in names(main_checkout)
        assert names(lib) == [own.id]


class TestVerify:
    def test_all_is_well(
        self, plain: Store, main_checkout: Checkout, lib: Checkout, inner: Checkout
    ) -> None:
        dirty(lib, inner)
        plain.save("a-complete", {})
        plain.close()
        assert [told(look(one)) for one in (main_checkout, lib, inner)] == [[], [], []]

    def test_one_is_missing(self, plain: Store, main_checkout: Checkout, lib: Checkout) -> None:
        made = plain.save("a-complete", {})
        plain.close()
        lib.git("update-ref", "-d", f"{CHECKPOINTS}/{named(made)[0]}")
        sentence = (
            "of the submodule lib: no repository of the submodule has the checkpoint "
            f"{named(made)[0]}"
        )
        assert told(look(main_checkout)) == [
            ("submodule-missing", f"{CHECKPOINTS}/{made.id}", sentence)
        ]

    @pytest.mark.long
    def test_one_within_is_missing(
        self, plain: Store, main_checkout: Checkout, lib: Checkout, inner: Checkout
    ) -> None:
        made = plain.save("a-complete", {})
        plain.close()
        (nested,) = names(inner)
        inner.git("update-ref", "-d", f"{CHECKPOINTS}/{nested}")
        sentence = (
            "of the submodule lib: in the nested submodule inner, "
            f"no repository of the submodule has the checkpoint {nested}"
        )
        assert told(look(main_checkout)) == [
            ("submodule-missing", f"{CHECKPOINTS}/{made.id}", sentence)
        ]

    @pytest.mark.sampled(6)
    @pytest.mark.parametrize("path", ["../outside", "/etc", ".git/x", "lib/../../x", ""])
    def test_a_path_out_of_a_document_leads_nowhere(
        self, plain: Store, main_checkout: Checkout, lib: Checkout, path: str
    ) -> None:
        made = plain.save("a-complete", {})
        document = plain.raw(made.id).replace(b'path = "lib"', f'path = "{path}"'.encode())
        document = document.replace(named(made)[0].encode(), ONE.encode())
        main_checkout.git(
            "update-ref",
            f"{CHECKPOINTS}/{made.id}",
            main_checkout.git("hash-object", "-w", "--stdin", data=document),
        )
        plain.close()
        (main_checkout.path / ".git/ckpt" / "written").unlink()  # as if it was fetched
        assert [code for code, _, _ in told(look(main_checkout))] == ["submodule-missing"]


def test_one_with_a_git_directory_of_its_own(plain: Store, main_checkout: Checkout) -> None:
    lib = Checkout(main_checkout.path / "em bedded")
    main_checkout.git("init", "--quiet", "em bedded")
    lib.commit("first", l="l\n")
    main_checkout.git("-c", "advice.addEmbeddedRepo=false", "add", "em bedded")
    main_checkout.git("commit", "--quiet", "--message", "a submodule")
    clean = plain.save("a-complete", {})
    assert (names(lib), main_checkout.git("status", "--porcelain")) == (named(clean), "")
    plain.remove([clean.id])
    lib.write("l", "changed\n")
    made = plain.save("a-complete", {})
    assert names(lib) == named(made)
    plain.remove([made.id])
    assert names(lib) == []


@pytest.mark.long
def test_in_a_linked_worktree(
    main_checkout: Checkout, lib: Checkout, make_store: MakeStore, tmp_path: Path
) -> None:
    main_checkout.git("worktree", "add", "--quiet", str(tmp_path / "linked"))
    linked = Checkout(tmp_path / "linked", main_checkout.path)
    kept = main_checkout.path / ".git" / "modules" / "lib"
    linked.git("-c", f"submodule.lib.url={kept}", "submodule", "--quiet", "update", "--init", "lib")
    there = Checkout(linked.path / "lib")
    there.write("l", "changed there\n")
    with make_store(linked) as store:
        made = store.save("a-complete", {})
        assert (names(there), names(lib)) == (named(made), [])
    with make_store(main_checkout) as store:
        store.remove([made.id])
    assert names(there) == []
