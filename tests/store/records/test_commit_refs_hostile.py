"""Keep refs beside cut histories, missing objects and foreign refs."""

from __future__ import annotations

import os

import pytest

from gitckpt import GitError, Store
from gitckpt.git.refs import RefUpdate
from gitckpt.store.audit import doctor
from gitckpt.store.retention import sweep
from gitckpt.store.store import checkpoints_of_store
from tests.conftest import Checkout
from tests.store.records.test_commit_refs import age, kept, linked

PLACES = (
    "refs/keep",
    "refs/keep/ckpt",
    "refs/ckpt",
    "refs/ckpt/trees",
    "refs/checkpoints",
    "refs/keep/ckpt-operations",
)


def collect(checkout: Checkout) -> None:
    """Let git delete every unreachable object."""
    checkout.git("reflog", "expire", "--expire=now", "--all")
    checkout.git("gc", "--quiet", "--prune=now")


def gone(checkout: Checkout) -> set[str]:
    """Return the linked commits that are missing."""
    said = checkout.git(
        "cat-file", "--batch-check", data="".join(f"{oid}\n" for oid in linked(checkout))
    )
    return {line.split()[0] for line in said.splitlines() if line.endswith("missing")}


class TestNamesOfOthers:
    def test_an_oid_of_another_format_drops_nothing(
        self, plain: Store, main_checkout: Checkout, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        commit = plain.record("one-complete").git_sha
        main_checkout.git("update-ref", f"refs/keep/ckpt/{'0' * 64}", "HEAD")
        age(main_checkout)
        seen: list[list[RefUpdate]] = []
        monkeypatch.setattr(checkpoints_of_store(plain).refs, "apply_updates", seen.append)
        checkpoints_of_store(plain).make_remover().update_keep_refs()
        assert seen == []
        monkeypatch.undo()
        assert sweep.delete_orphans(
            checkpoints_of_store(plain).repository, checkpoints_of_store(plain).refs
        ) == [f"refs/keep/ckpt/{'0' * 64}"]
        assert kept(main_checkout) == {commit: commit}

    def test_a_symbolic_ref_goes_and_its_branch_stays(
        self, plain: Store, main_checkout: Checkout
    ) -> None:
        commit = plain.record("one-complete").git_sha
        main_checkout.git("branch", "work")
        main_checkout.git("symbolic-ref", "refs/keep/ckpt/mine", "refs/heads/work")
        age(main_checkout)
        sweep.delete_orphans(
            checkpoints_of_store(plain).repository, checkpoints_of_store(plain).refs
        )
        assert kept(main_checkout) == {commit: commit}
        assert set(main_checkout.refs("refs/heads")) == {"refs/heads/main", "refs/heads/work"}

    def test_a_symbolic_ref_of_a_parent_goes_and_its_branch_stays(
        self, plain: Store, main_checkout: Checkout
    ) -> None:
        parent = plain.record("one-complete").git_sha
        main_checkout.git("branch", "work")
        main_checkout.git("symbolic-ref", "refs/keep/ckpt/" + parent, "refs/heads/work")
        commit = main_checkout.commit()
        plain.record("two-complete")
        assert kept(main_checkout) == {commit: commit}
        assert set(main_checkout.refs("refs/heads")) == {"refs/heads/main", "refs/heads/work"}

    def test_a_clone_that_fetched_only_checkpoints_keeps_their_commits(
        self, plain: Store, main_checkout: Checkout
    ) -> None:
        commit = plain.record("one-complete").git_sha
        main_checkout.git("update-ref", "-d", "refs/keep/ckpt/" + commit)
        main_checkout.git("checkout", "--quiet", "--orphan", "other")
        main_checkout.commit()
        main_checkout.git("branch", "-D", "main")
        checkpoints_of_store(plain).make_remover().update_keep_refs()
        assert kept(main_checkout) == {commit: commit}
        collect(main_checkout)
        assert gone(main_checkout) == set()

    @pytest.mark.parametrize("packed", [False, True])
    def test_a_foreign_ref_below_a_keep_ref_does_not_block_records(
        self, plain: Store, main_checkout: Checkout, packed: bool
    ) -> None:
        commit = main_checkout.git("rev-parse", "HEAD")
        foreign = f"refs/keep/ckpt/{commit}/x"
        main_checkout.git("update-ref", foreign, "HEAD")
        if packed:
            main_checkout.git("pack-refs", "--all")
        for _ in range(2):
            plain.record("one-complete")
        assert set(kept(main_checkout)) == {f"{commit}/x"}
        if not packed:
            os.utime(main_checkout.path / ".git" / foreign, (0, 0))
        sweep.delete_orphans(
            checkpoints_of_store(plain).repository, checkpoints_of_store(plain).refs
        )
        age(main_checkout)
        checkpoints_of_store(plain).make_remover().update_keep_refs()
        assert kept(main_checkout) == {commit: commit}

    def test_a_foreign_ref_below_a_missing_keep_ref_does_not_stop_settling(
        self, plain: Store, main_checkout: Checkout
    ) -> None:
        commit = plain.record("one-complete").git_sha
        main_checkout.git("update-ref", "-d", f"refs/keep/ckpt/{commit}")
        main_checkout.git("update-ref", f"refs/keep/ckpt/{commit}/x", "HEAD")
        age(main_checkout)
        for _ in range(2):
            checkpoints_of_store(plain).make_remover().update_keep_refs()
            assert set(kept(main_checkout)) == {f"{commit}/x"}
        other = main_checkout.commit()
        plain.record("two-complete")
        age(main_checkout)
        checkpoints_of_store(plain).make_remover().update_keep_refs()
        assert set(kept(main_checkout)) == {f"{commit}/x", other}

    def test_a_ref_below_the_name_is_cleared_before_the_right_one_is_made(
        self, plain: Store, main_checkout: Checkout
    ) -> None:
        commit = plain.record("one-complete").git_sha
        plain.write_notes()
        main_checkout.git("update-ref", "-d", "refs/keep/ckpt/" + commit)
        main_checkout.git("update-ref", f"refs/keep/ckpt/{commit}/x", "HEAD")
        os.utime(main_checkout.path / f".git/refs/keep/ckpt/{commit}/x", (0, 0))
        report = plain.verify(repair=True)
        assert sorted(one.code for one in report.findings) == ["commit-ref-missing", "ref-leftover"]
        assert (report.is_clean, report.refused) == (True, [])
        assert kept(main_checkout) == {commit: commit}

    @pytest.mark.sampled(2)
    @pytest.mark.parametrize("ref", PLACES)
    def test_a_ref_in_the_place_of_a_directory_is_named(
        self, plain: Store, main_checkout: Checkout, ref: str
    ) -> None:
        main_checkout.git("update-ref", ref, "HEAD")
        main_checkout.write("new", "not committed")
        if ref != "refs/keep/ckpt-operations":
            with pytest.raises(GitError) as caught:
                plain.save("one-complete")
            assert caught.value.hint == "find the obstacle: git ckpt doctor"
        for found in (
            doctor.list_findings(checkpoints_of_store(plain), (2, 39)),
            plain.verify().findings,
        ):
            (finding,) = (one for one in found if one.code == "ref-barring")
            assert finding.object == ref
        main_checkout.git("tag", "away", ref)
        main_checkout.git("update-ref", "--no-deref", "-d", ref)
        plain.save("one-complete")

    @pytest.mark.sampled(2)
    @pytest.mark.parametrize("what", ["settle", "record", "verify"])
    def test_a_symbolic_ref_keeps_nothing_and_is_replaced(
        self, plain: Store, main_checkout: Checkout, what: str
    ) -> None:
        commit = plain.record("one-complete").git_sha
        plain.write_notes()
        main_checkout.git("update-ref", "-d", "refs/keep/ckpt/" + commit)
        main_checkout.git("symbolic-ref", "refs/keep/ckpt/" + commit, "refs/heads/main")
        (finding,) = plain.verify().findings
        assert (finding.code, finding.object) == ("commit-ref-wrong", "refs/keep/ckpt/" + commit)
        assert finding.sentence.startswith("is a symbolic ref: if refs/heads/main moves, ")
        if what == "settle":
            age(main_checkout)
            checkpoints_of_store(plain).make_remover().update_keep_refs()
        elif what == "record":
            plain.record("two-complete")
        else:
            assert plain.verify(repair=True).is_clean
        assert (
            main_checkout.git("symbolic-ref", "--quiet", "refs/keep/ckpt/" + commit, ok=(1,)) == ""
        )
        main_checkout.git("checkout", "--quiet", "--orphan", "other")
        main_checkout.commit()
        main_checkout.git("branch", "-D", "main")
        collect(main_checkout)
        assert gone(main_checkout) == set()

    def test_symbolic_refs_of_others_of_ours(self, plain: Store, main_checkout: Checkout) -> None:
        main_checkout.write("new", "not committed")
        one = plain.save("one-complete", start="r")
        plain.write_notes()
        for ref in (f"refs/ckpt/trees/{one.id}", f"refs/ckpt/runs/{one.run}"):
            target = f"refs/tags/{ref.rpartition('/')[2]}"
            main_checkout.git("update-ref", target, ref)
            main_checkout.git("symbolic-ref", ref, target)
        assert {each.code for each in plain.verify(repair=True).findings} == {"ref-symbolic"}
        assert plain.verify().findings == []
        document = "refs/checkpoints/" + one.id
        main_checkout.git("update-ref", "refs/tags/document", document)
        main_checkout.git("symbolic-ref", document, "refs/tags/document")
        (finding,) = plain.verify(repair=True).findings
        assert (finding.code, finding.repaired) == ("ref-symbolic", False)
        main_checkout.git(*str(finding.cure).split()[1:])
        assert plain.verify().findings == []


class TestDates:
    def test_commits_of_1970_hide_nothing_from_verify(
        self, plain: Store, main_checkout: Checkout
    ) -> None:
        """Verify sees every commit, though git ends its walk early at odd dates.

        Git may conclude from dates that no older commit is an ancestor.
        """
        for _ in range(3):
            linked = main_checkout.commit()
        plain.record("one-complete")
        main_checkout.commit()
        for _ in range(6):
            main_checkout.write("more", os.urandom(4).hex())
            main_checkout.git("add", "more")
            main_checkout.git(
                "commit", "--quiet", "-m", "x", env={"GIT_COMMITTER_DATE": "@1 +0000"}
            )
        plain.record("two-complete")
        plain.write_notes()
        main_checkout.git("update-ref", "-d", "refs/keep/ckpt/" + linked, ok=(0, 1))
        assert plain.verify().findings == []


class TestAHistoryThatIsCut:
    @pytest.mark.parametrize("name", ["shallow", "info/grafts"])
    def test_keeps_what_is_below_the_cut(
        self, plain: Store, main_checkout: Checkout, name: str
    ) -> None:
        below = plain.record("one-complete").git_sha
        commit = main_checkout.commit()
        main_checkout.write(f".git/{name}", f"{commit}\n")
        plain.record("two-complete")
        assert set(kept(main_checkout)) == {below, commit}
        collect(main_checkout)
        assert gone(main_checkout) == set()
