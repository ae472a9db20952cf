"""Checkpoints that a forced fetch replaced are shown as replaced, and never used."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from gitckpt import NotFoundError, Pipelines, Store, WorktreeError
from tests.cli.conftest import Ckpt
from tests.conftest import Checkout
from tests.stores import DAY, clock_of, set_clock
from tests.system.hostile.forger import LATE, Forger

FORCED = ("+refs/checkpoints/*:refs/checkpoints/*", "+refs/ckpt/*:refs/ckpt/*")
GONE = "error: a fetch has replaced the document of checkpoint {}\n"


def replace_all(victim: Checkout, place: Path, content: str = "evil\n") -> None:
    """Replace every document and snapshot by a fetch of the attacker's, dated ahead."""
    forger = Forger(victim, place)
    evil = forger.checkout
    files = evil.git("mktree", data=f"100644 blob {forger.blob(content)}\tREADME\n")
    tree = evil.git("mktree", data=f"040000 tree {files}\tfiles\n")
    for ref in evil.refs("refs/checkpoints"):
        checkpoint = ref.rpartition("/")[2]
        text = evil.git("cat-file", "blob", ref)
        text = re.sub(r"(?m)^timestamp = .*$", f'timestamp = "{LATE}"', text) + "\n"
        text = re.sub(r"(?ms)^\[worktree\]$.*?(?=^\[|\Z)", "", text)
        text = text.replace(
            "\n[state]", f'\n[worktree]\ndirty = true\ntree = "{tree}"\n\n[state]', 1
        )
        run = re.search(r'(?m)^run = "(.*)"$', text)
        forger.documented(text, checkpoint=checkpoint, run=run[1] if run else None, tree=tree)
    victim.git("fetch", "--quiet", str(evil.path), *FORCED)


@pytest.fixture
def restored(plain: Store, main_checkout: Checkout) -> tuple[str, str]:
    """The ids of a checkpoint with README "one" and of a safety checkpoint with "two"."""
    main_checkout.write("README", "one\n")
    saved = plain.save("a-complete", {})
    main_checkout.write("README", "two\n")
    return saved.id, str(plain.restore(saved.id).safety)


def readme(checkout: Checkout) -> str:
    return (checkout.path / "README").read_text()


class TestNothingGoesByThem:
    """`latest`, `undo`, thinning and a noted id ignore the replacements."""

    def test_latest_and_the_id(
        self, plain: Store, main_checkout: Checkout, tmp_path: Path, restored: tuple[str, str]
    ) -> None:
        saved, _ = restored
        replace_all(main_checkout, tmp_path / "evil")
        for text in ("latest", "latest:any", "HEAD"):
            with pytest.raises(NotFoundError):
                plain.find(text)
        with pytest.raises(WorktreeError, match="a fetch has replaced the document"):
            plain.restore(saved)
        assert readme(main_checkout) == "one\n"
        main_checkout.write("README", "three\n")
        made = plain.save("b-complete", {})
        assert [plain.find(text) for text in ("latest", "latest:any", "HEAD")] == [made.id] * 3

    @pytest.mark.parametrize("file_is_lost", [False, True])
    def test_undo(
        self,
        plain: Store,
        main_checkout: Checkout,
        tmp_path: Path,
        restored: tuple[str, str],
        file_is_lost: bool,
    ) -> None:
        replace_all(main_checkout, tmp_path / "evil")
        if file_is_lost:
            (main_checkout.path / ".git/ckpt-undo").unlink()
        assert plain.undo_steps() == []
        with pytest.raises(NotFoundError):
            plain.undo()
        assert readme(main_checkout) == "one\n"

    @pytest.mark.long
    def test_undo_goes_further_back_where_one_step_is_replaced(
        self, plain: Store, main_checkout: Checkout, tmp_path: Path, restored: tuple[str, str]
    ) -> None:
        _, first = restored
        before = main_checkout.refs("refs/checkpoints")
        main_checkout.write("README", "three\n")
        plain.restore(restored[0])
        replace_all(main_checkout, tmp_path / "evil")
        main_checkout.git(
            "update-ref", f"refs/checkpoints/{first}", before[f"refs/checkpoints/{first}"]
        )
        assert [step.checkpoint.id for step in plain.undo_steps()] == [first]
        done = plain.undo()
        assert (readme(main_checkout), "replaced by a fetch" in done.remarks[0]) == ("two\n", True)

    def test_a_run(self, plain: Store, main_checkout: Checkout, tmp_path: Path) -> None:
        made = plain.save("a-complete", {"x": 1}, start="work")
        replace_all(main_checkout, tmp_path / "evil")
        assert not plain.is_ours(made.id)
        with pytest.raises(NotFoundError):
            plain.find("latest")
        with pytest.raises(WorktreeError, match="a fetch has replaced the document"):
            plain.restore(plain.find(str(made.run)))

    def test_thinning(self, plain: Store, main_checkout: Checkout) -> None:
        for content in ("one\n", "two\n"):
            main_checkout.write("README", content)
            newest = plain.save("a-complete", {}, agent="x").id
        rules, clock = replace(plain.policy(), keep_last=0), clock_of(plain)
        set_clock(plain, lambda: clock() + 2 * DAY)
        assert len(plain.expire(rules, dry_run=True).checkpoints) == 1
        forged = main_checkout.git("hash-object", "-w", "--stdin", data=plain.raw(newest) + b"\n")
        main_checkout.git("update-ref", f"refs/checkpoints/{newest}", forged)
        assert plain.expire(rules, dry_run=True).checkpoints == []

    def test_a_checkpoint_of_a_submodule(
        self, plain: Store, main_checkout: Checkout, tmp_path: Path
    ) -> None:
        library = Checkout(tmp_path / "library")
        main_checkout.git("clone", "--quiet", "--bare", str(main_checkout.path), str(library.path))
        allowed = ("-c", "protocol.file.allow=always")
        main_checkout.git(*allowed, "submodule", "--quiet", "add", str(library.path), "lib")
        main_checkout.commit("submodule")
        lib = Checkout(main_checkout.path / "lib")
        lib.write("README", "one\n")
        saved = plain.save("a-complete", {})
        replace_all(lib, tmp_path / "evil")
        lib.write("README", "two\n")
        with pytest.raises(WorktreeError, match="a fetch has replaced the document"):
            plain.restore(saved.id)
        assert readme(lib) == "two\n"
        assert [each.code for each in plain.verify().findings if "replaced" in each.sentence] == [
            "submodule-missing"
        ]


class TestTheyAreShown:
    """Replaced checkpoints are marked; the original returns while git has it."""

    def test_by_list_and_doctor(
        self,
        plain: Store,
        main_checkout: Checkout,
        ckpt: Ckpt,
        tmp_path: Path,
        restored: tuple[str, str],
    ) -> None:
        saved, safety = restored
        replace_all(main_checkout, tmp_path / "evil")
        fresh = plain.record("b-complete", {})
        done = ckpt("list", at=main_checkout)
        assert f"{safety[:8]}, {saved[:8]}" in done.err or f"{saved[:8]}, {safety[:8]}" in done.err
        found = json.loads(ckpt("list", "--json").out)["checkpoints"]
        assert {each["id"]: each["replaced"] for each in found} == {
            saved: True,
            safety: True,
            fresh.id: False,
        }
        said = ckpt("doctor").out
        assert all(f"checkpoint-replaced: refs/checkpoints/{each}: " in said for each in restored)
        assert ckpt("restore", saved).err.endswith(
            f"{GONE.format(saved[:8])}hint: put back what was written here: "
            "git ckpt verify --repair; "
            f"if you trust the fetched one: git ckpt restore {saved[:8]} --trust\n"
        )
        assert readme(main_checkout) == "one\n"

    @pytest.mark.long
    def test_verify_puts_back_what_was_written_here(
        self, plain: Store, main_checkout: Checkout, tmp_path: Path, restored: tuple[str, str]
    ) -> None:
        run = plain.save("a-complete", {}, start="work").run
        before = main_checkout.refs("refs/checkpoints", "refs/ckpt")
        replace_all(main_checkout, tmp_path / "evil")
        replaced = {
            each.object for each in plain.verify().findings if each.code == "checkpoint-replaced"
        }
        assert replaced == {ref for ref in before if ref.startswith("refs/checkpoints/")}
        assert plain.verify(repair=True).is_clean
        assert plain.verify().findings == []
        after = main_checkout.refs("refs/checkpoints", "refs/ckpt")
        assert {ref: after.get(ref) for ref in before} == before
        assert plain.is_ours(plain.newest(str(run)))
        plain.undo()
        assert readme(main_checkout) == "two\n"

    def test_one_that_no_reader_takes(self, plain: Store, main_checkout: Checkout) -> None:
        made = plain.record("a-complete", {})
        main_checkout.git(
            "update-ref",
            f"refs/checkpoints/{made.id}",
            main_checkout.git("hash-object", "-w", "--stdin", data="x"),
        )
        assert {each.code for each in plain.verify().findings} >= {
            "checkpoint-replaced",
            "checkpoint-invalid",
        }
        assert plain.verify(repair=True).is_clean
        assert plain.read(made.id) == made

    def test_where_git_has_collected_it_that_is_said(
        self, plain: Store, main_checkout: Checkout, tmp_path: Path
    ) -> None:
        made = plain.save("a-complete", {})
        replace_all(main_checkout, tmp_path / "evil")
        main_checkout.git("prune", "--expire=now")
        (found,) = [
            each
            for each in plain.verify(repair=True).findings
            if each.code == "checkpoint-replaced"
        ]
        assert (found.repaired, found.object) == (False, f"refs/checkpoints/{made.id}")


def test_an_adopted_run_is_replaced_by_a_later_fetch(
    plain: Store, main_checkout: Checkout, tmp_path: Path
) -> None:
    """Adopting a run approves only the documents that were shown."""
    made = plain.save("a-complete", {}, start="work")
    replace_all(main_checkout, tmp_path / "evil")
    Pipelines(plain).require_ours([plain.newest(str(made.run))], trust=True)
    assert (plain.is_ours(made.id), plain.replaced(plain.list())) == (True, {})
    replace_all(main_checkout, tmp_path / "worse", "worse\n")
    assert (plain.is_ours(made.id), list(plain.replaced(plain.list()))) == (False, [made.id])
