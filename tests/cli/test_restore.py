"""`git ckpt restore`, `undo` and `redo` print the same in all worktrees.

Both parsers are covered.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from gitckpt import Limits, Store
from tests import planted
from tests.cli.conftest import Ckpt, Outcome, normal, without_names
from tests.cli.test_json import check, documented
from tests.conftest import Checkout
from tests.planted import plant

Save = Callable[..., str]


@pytest.fixture(autouse=True)
def door(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use the quick parser in main worktrees, and Typer in linked ones."""
    if "checkout" in request.fixturenames:
        checkout: Checkout = request.getfixturevalue("checkout")
        if checkout.path != checkout.main:
            plant(monkeypatch, planted.QUICK_PARSER, lambda _: None)


@pytest.fixture
def saved(save: Save, checkout: Checkout) -> str:
    """Save a checkpoint, then change every kind of file; return its id."""
    checkout.commit("more", gone="gone\n", staged="s\n", same="same\n")
    checkout.write("README", "captured\n")
    (checkout.path / "gone").unlink()
    checkout.write("new dir/new", "captured\n")
    made = save(checkout)
    checkout.git("checkout", "--quiet", "--", ".")
    checkout.git("rm", "--quiet", "--cached", "staged")
    checkout.write("README", "typed since\n")
    checkout.write("added\nlater", "typed since\n")
    (checkout.path / "new dir/new").unlink()
    return made


FILES = "change  README\ndelete  added\\nlater\ndelete  gone\nadd     new dir/new\n"
CHANGES = f"{FILES}stage   staged\n"
UNDOING = "undoing: restore SHORT, AGE ago\n"


def said(done: Outcome, *places: Checkout | Path) -> tuple[int, str, str]:
    err = re.sub(r"\b\d+s ago", "AGE ago", normal(done.err, *places))
    return done.code, normal(done.out, *places), err


def files(checkout: Checkout) -> dict[str, str]:
    paths = (
        path
        for path in checkout.path.rglob("*")
        if path.is_file() and ".git" not in path.relative_to(checkout.path).parts
    )
    return {str(path.relative_to(checkout.path)): path.read_text() for path in paths}


class TestRestore:
    @pytest.mark.parametrize("words", [[""], ["--", ""], ["README", ""]])
    def test_an_empty_path_is_not_all_files(
        self, ckpt: Ckpt, checkout: Checkout, saved: str, words: list[str]
    ) -> None:
        before = files(checkout)
        assert ckpt("restore", saved, *words, at=checkout.path) == Outcome(
            2,
            "",
            (
                "error: a path is empty\n"
                "hint: name . for this directory, or no path to restore everything\n"
            ),
        )
        assert files(checkout) == before

    def test_says_what_it_did_and_how_to_go_back(
        self, ckpt: Ckpt, checkout: Checkout, saved: str
    ) -> None:
        before = files(checkout)
        done = ckpt("restore", saved[:8], at=checkout)
        assert said(done) == (
            0,
            CHANGES,
            "the previous files are in checkpoint SHORT; to go back: git ckpt undo\n",
        )
        assert files(checkout) == {
            "README": "captured\n",
            "new dir/new": "captured\n",
            "same": "same\n",
            "staged": "s\n",
        }
        back = ckpt("undo", at=checkout)
        swapped = (
            "change  README\nadd     added\\nlater\nadd     gone\ndelete  new dir/new\n"
            "unstage staged\n"
        )
        assert said(back) == (
            0,
            swapped,
            (
                f"{UNDOING}the previous files are in checkpoint SHORT; "
                "to go forward again: git ckpt redo\n"
            ),
        )
        assert files(checkout) == before

    def test_the_checkpoint_it_names_is_the_safety_checkpoint(
        self, ckpt: Ckpt, checkout: Checkout, saved: str
    ) -> None:
        done = ckpt("restore", saved, at=checkout)
        short = done.err.split(" in checkpoint ")[1][:8]
        shown = ckpt("show", short, at=checkout).out.splitlines()
        assert {"phase:       safety-complete", "trigger:     safety"} <= set(shown)
        assert f"message:     before the restore of checkpoint {saved[:8]}" in shown

    def test_dry_run(self, ckpt: Ckpt, checkout: Checkout, saved: str) -> None:
        before = checkout.fingerprint()
        assert said(ckpt("restore", "--dry-run", saved, at=checkout)) == (
            0,
            CHANGES,
            "nothing was changed\n",
        )
        assert checkout.fingerprint() == before

    def test_quiet(self, ckpt: Ckpt, checkout: Checkout, saved: str) -> None:
        assert said(ckpt("-q", "restore", saved, at=checkout)) == (0, CHANGES, "")

    def test_nothing_to_do(self, ckpt: Ckpt, save: Save, checkout: Checkout) -> None:
        checkout.write("README", "captured\n")
        made = save(checkout)
        before = checkout.fingerprint()
        assert said(ckpt("restore", made, at=checkout)) == (
            0,
            "",
            "nothing to do: the worktree has these files\n",
        )
        assert said(ckpt("restore", "latest", "--", "README", at=checkout)) == (
            0,
            "",
            "nothing to do: the worktree has these files\n",
        )
        assert checkout.fingerprint() == before

    @pytest.mark.sampled(3)
    @pytest.mark.parametrize(
        ("at", "paths", "expected"),
        [
            ("", ["README"], "change  README\n"),
            ("", ["new dir", "gone"], "delete  gone\nadd     new dir/new\n"),
            ("", ["./new dir//new", "new dir/../gone"], "delete  gone\nadd     new dir/new\n"),
            ("", ["."], FILES),
            ("new dir", ["new"], "add     new dir/new\n"),
            ("new dir", ["."], "add     new dir/new\n"),
            ("new dir", ["..", "new"], FILES),
            ("new dir", ["../README"], "change  README\n"),
            ("", ["TOP/README"], "change  README\n"),
        ],
    )
    def test_paths(
        self, ckpt: Ckpt, checkout: Checkout, saved: str, at: str, paths: list[str], expected: str
    ) -> None:
        words = [path.replace("TOP", str(checkout.path)) for path in paths]
        done = ckpt("restore", saved, "--", *words, at=checkout.path / at)
        remark = "the previous files are in checkpoint SHORT; to go back: git ckpt undo\n"
        assert said(done) == (0, expected, remark)

    @pytest.mark.parametrize("index", [False, True])
    def test_paths_change_the_index_only_with_index(
        self, ckpt: Ckpt, save: Save, checkout: Checkout, index: bool
    ) -> None:
        checkout.commit("first", **{"d/a": "one\n"})
        made = save(checkout)
        checkout.commit("later", **{"d/a": "two\n", "d/since": "since\n"})
        checkout.write("d/a", "three\n")
        checkout.git("add", "d/a")
        entries = checkout.git("ls-files", "--stage")
        words = ["--index"] if index else []
        done = ckpt("restore", *words, made, "--", "d", at=checkout)
        assert done.out == "change  d/a\ndelete  d/since\n"
        assert files(checkout) == {"README": "hello\n", "d/a": "one\n"}
        staged = checkout.git("diff", "--cached", "--name-status")
        if index:
            assert staged == "M\td/a\nD\td/since"
        else:
            assert (staged, checkout.git("ls-files", "--stage")) == ("M\td/a", entries)
        ckpt("undo", at=checkout)
        assert files(checkout) == {"README": "hello\n", "d/a": "three\n", "d/since": "since\n"}
        assert checkout.git("ls-files", "--stage") == entries
        assert checkout.git("status", "--porcelain") == "M  d/a"

    @pytest.mark.parametrize(
        "path", ["..", "../x", "new dir/../../x", "/etc/passwd", "TOP-beside/x"]
    )
    def test_paths_outside(self, ckpt: Ckpt, checkout: Checkout, saved: str, path: str) -> None:
        before = checkout.fingerprint()
        word = path.replace("TOP", str(checkout.path))
        done = ckpt("restore", saved, "--", "README", word, at=checkout)
        assert said(done, checkout) == (
            2,
            "",
            (
                f"error: {path} is outside of the worktree TOP\n"
                "hint: name paths inside of the worktree\n"
            ),
        )
        assert checkout.fingerprint() == before

    @pytest.mark.long
    def test_a_path_behind_a_link_to_the_worktree(
        self, ckpt: Ckpt, checkout: Checkout, saved: str, tmp_path: Path
    ) -> None:
        (tmp_path / "link").symlink_to(checkout.path)
        done = ckpt("restore", saved, "README", at=tmp_path / "link" / "new dir" / "..")
        assert done.out == "change  README\n"
        assert ckpt("restore", saved, f"{tmp_path}/link/gone", at=checkout).out == "delete  gone\n"

    def test_a_link_is_a_path_of_its_own(self, ckpt: Ckpt, save: Save, checkout: Checkout) -> None:
        (checkout.path / "link").symlink_to("README")
        made = save(checkout)
        (checkout.path / "link").unlink()
        (checkout.path / "link").symlink_to("/nowhere")
        assert ckpt("restore", made, "link", at=checkout).out == "change  link\n"
        assert os.readlink(checkout.path / "link") == "README"


class TestApart:
    """`restore` warns if the checkpoint's commit, branch or operation differs.

    A dry run prints the same warning.
    """

    BACK = "the previous files are in checkpoint SHORT; to go back: git ckpt undo\n"

    @pytest.fixture
    def branch(self, checkout: Checkout) -> str:
        return checkout.git("branch", "--show-current")

    @staticmethod
    def merge(checkout: Checkout) -> None:
        base = checkout.git("rev-parse", "HEAD")
        branch = checkout.git("branch", "--show-current")
        checkout.commit("ours", README="ours\n")
        checkout.git("checkout", "--quiet", "-b", "theirs", base)
        checkout.commit("theirs", README="theirs\n")
        checkout.git("checkout", "--quiet", branch)
        checkout.git("merge", "theirs", ok=(1,))

    def test_another_commit(self, ckpt: Ckpt, save: Save, checkout: Checkout, branch: str) -> None:
        checkout.write("README", "captured\n")
        made = save(checkout)
        checkout.git("checkout", "--quiet", "--force", "-b", "topic")
        head = checkout.commit("elsewhere", README="elsewhere\n")
        before = (
            "warning: HEAD stays at commit SHORT (topic); to work at commit "
            f"SHORT ({branch}): git ckpt resume SHORT\n"
        )
        assert said(ckpt("restore", "--dry-run", made, at=checkout)) == (
            0,
            "change  README\n",
            f"{before}nothing was changed\n",
        )
        done = ckpt("restore", made, at=checkout)
        assert said(done) == (0, "change  README\n", f"{before}{self.BACK}")
        assert done.err.count(f"commit {head[:8]} (topic)") == 1
        assert done.err.count(f"git ckpt resume {made[:8]}\n") == 1
        assert checkout.git("rev-parse", "HEAD") == head
        assert checkout.git("status", "--porcelain") == "MM README"
        forward = (
            f"{UNDOING}the previous files are in checkpoint SHORT; "
            "to go forward again: git ckpt redo\n"
        )
        assert said(ckpt("undo", at=checkout)) == (0, "change  README\n", forward)
        done = ckpt("-q", "restore", made, "--", "README", at=checkout)
        assert done == Outcome(0, "change  README\n", "")

    def test_undo_across_a_commit(
        self, ckpt: Ckpt, save: Save, checkout: Checkout, branch: str
    ) -> None:
        checkout.write("README", "captured\n")
        made = save(checkout)
        checkout.write("README", "typed since\n")
        ckpt("restore", made, at=checkout)
        checkout.git("commit", "--quiet", "--all", "--message", "in between")
        done = ckpt("undo", at=checkout)
        where = f"commit SHORT ({branch})"
        assert said(done) == (
            0,
            "change  README\n",
            (
                f"warning: HEAD stays at {where}; to work at {where}: git ckpt resume SHORT\n"
                f"{UNDOING}"
                "the previous files are in checkpoint SHORT; to go forward again: git ckpt redo\n"
            ),
        )

    def test_another_branch_at_the_same_commit(
        self, ckpt: Ckpt, save: Save, checkout: Checkout, branch: str
    ) -> None:
        checkout.write("README", "captured\n")
        made = save(checkout)
        checkout.git("checkout", "--quiet", "--force", "-b", "topic")
        checkout.git("checkout", "--quiet", "--", "README")
        assert said(ckpt("restore", made, at=checkout)) == (
            0,
            "change  README\n",
            (
                "warning: HEAD stays at commit SHORT (topic); the checkpoint was made on "
                f"{branch}, at the same commit: git switch {branch}\n"
                f"{self.BACK}"
            ),
        )
        checkout.git("checkout", "--quiet", "--detach")
        assert said(ckpt("undo", "--dry-run", at=checkout)) == (
            0,
            "change  README\n",
            (
                f"{UNDOING}warning: HEAD stays at commit SHORT (detached); the checkpoint was made "
                "on topic, at the same commit: git switch topic\n"
                "nothing was changed\n"
            ),
        )

    @pytest.mark.parametrize("is_step", [False, True])
    def test_each_warning_comes_once_and_is_short(
        self,
        ckpt: Ckpt,
        save: Save,
        checkout: Checkout,
        monkeypatch: pytest.MonkeyPatch,
        is_step: bool,
    ) -> None:
        """Warnings appear before the first file changes."""
        checkout.write("README", "captured\n")
        left = [".env", *(f"{number}.pem" for number in range(9))]
        for name in left:
            checkout.write(name, "secret\n")
        if is_step:
            first = save(checkout)
            checkout.write("README", "typed\n")
            ckpt("restore", first, at=checkout)
            words = ["undo"]
        else:
            words = ["restore", save(checkout)]
        for name in left:
            (checkout.path / name).unlink()
        checkout.git("commit", "--quiet", "--allow-empty", "--message", "since")
        checkout.write("README", "now\n")
        seen: list[str] = []
        warn = planted.original(planted.SHOW_WARNING)

        def note(sentence: str) -> None:
            seen.append((checkout.path / "README").read_text())
            warn(sentence)

        plant(monkeypatch, planted.SHOW_WARNING, note)
        lines = ckpt(*words, at=checkout).err.splitlines()
        warnings = [line for line in lines if line.startswith("warning: ")]
        assert len(warnings) == len(set(warnings)) == 2
        assert all(len(line) <= 160 for line in warnings)
        assert (
            "10 paths neither in the checkpoint nor in the worktree: .env, 0.pem, 1.pem and 7 more"
            in lines[1]
        )
        assert "; see why: git ckpt show " in lines[1]
        assert seen == ["now\n"] * 2
        assert [line for line in lines if "HEAD" in line] == lines[:1]

    @pytest.mark.parametrize("paths", [[], ["d"], ["."]])
    def test_names_only_what_is_missing_within_the_paths(
        self, ckpt: Ckpt, save: Save, checkout: Checkout, paths: list[str]
    ) -> None:
        for name in (".env", "d/.env", "kept.pem"):
            checkout.write(name, "secret\n")
        checkout.write("README", "captured\n")
        checkout.write("d/file", "captured\n")
        made = save(checkout)
        for name in (".env", "d/.env"):
            (checkout.path / name).unlink()
        for words in (["--dry-run"], []):
            done = ckpt("restore", *words, made, "--", *paths, at=checkout)
            count, names = ("1 path", "d/.env") if paths == ["d"] else ("2 paths", ".env, d/.env")
            sentence = f"{count} neither in the checkpoint nor in the worktree: {names}; see why"
            assert done.err.count(sentence) == 1
            assert done.err.startswith(f"warning: {sentence}: git ckpt show {made[:8]}\n")

    def test_nothing_to_do_says_nothing_of_it(
        self, ckpt: Ckpt, save: Save, checkout: Checkout
    ) -> None:
        made = save(checkout)
        checkout.git("checkout", "--quiet", "-b", "topic")
        for words in (["restore", made], ["restore", "--dry-run", made]):
            done = ckpt(*words, at=checkout)
            assert (done.out, "HEAD" in done.err) == ("", False)

    @pytest.mark.long
    def test_a_merge_comes_back_and_goes_away(
        self, ckpt: Ckpt, save: Save, checkout: Checkout
    ) -> None:
        self.merge(checkout)
        made = save(checkout)
        checkout.git("merge", "--abort")
        ends = "to end it: git merge --continue, or git merge --abort\n"
        before = f"warning: the merge of the checkpoint is in progress again; {ends}"
        dry = ckpt("restore", made, "--dry-run", at=checkout)
        assert said(dry) == (0, "change  README\n", f"{before}nothing was changed\n")
        done = ckpt("restore", made, at=checkout)
        assert said(done) == (0, "change  README\n", f"{before}{self.BACK}")
        back = ckpt("undo", at=checkout)
        assert said(back) == (
            0,
            "change  README\n",
            (
                "warning: the merge in progress in the worktree is ended; to return to that "
                f"state: git ckpt redo\n{UNDOING}"
                "the previous files are in checkpoint SHORT; to go forward again: git ckpt redo\n"
            ),
        )
        again = ckpt("redo", at=checkout)
        redoing = "redoing: restore SHORT, undone AGE ago\n"
        assert said(again) == (0, "change  README\n", f"{before}{redoing}{self.BACK}")
        assert checkout.git("rev-parse", "MERGE_HEAD") == checkout.git("rev-parse", "theirs")

    @pytest.mark.long
    def test_a_merge_is_left_out_for_paths_and_for_another_commit(
        self, ckpt: Ckpt, save: Save, checkout: Checkout
    ) -> None:
        self.merge(checkout)
        made = save(checkout)
        checkout.git("merge", "--abort")
        why = (
            "as only some paths are restored; to open a worktree with the merge: git ckpt "
            "resume SHORT\n"
        )
        assert said(ckpt("restore", made, "README", at=checkout)) == (
            0,
            "change  README\n",
            f"warning: the merge of the checkpoint is not restored, {why}{self.BACK}",
        )
        checkout.git("reset", "--quiet", "--hard")
        checkout.commit("on", more="x\n")
        done = ckpt("restore", made, at=checkout)
        lines = normal(done.err).splitlines()
        why = (
            "as the checkpoint was recorded at another commit than HEAD; to open a worktree "
            "with the merge: git ckpt resume SHORT"
        )
        assert lines[1] == f"warning: the merge of the checkpoint is not restored, {why}"
        assert len(lines) == 3

    def test_a_merge_here_goes_on_with_files_of_another_commit(
        self, ckpt: Ckpt, save: Save, checkout: Checkout
    ) -> None:
        made = save(checkout)
        self.merge(checkout)
        lines = normal(ckpt("restore", made, at=checkout).err).splitlines()
        ends = (
            "with the restored files, which belong to another commit; to end it: git merge "
            "--continue, or git merge --abort"
        )
        assert lines[1] == f"warning: the merge in progress continues {ends}"

    def test_a_run_is_not_gone_on_with(self, ckpt: Ckpt, checkout: Checkout) -> None:
        with Store.open(checkout.path, adapter="plumbing") as store:
            made = store.record("a", start="work").id
        checkout.commit("elsewhere", README="elsewhere\n")
        done = ckpt("restore", made, "--dry-run", at=checkout)
        assert f": git ckpt resume --no-run {made[:8]}\n" in done.err

    @pytest.mark.long
    def test_json(self, ckpt: Ckpt, save: Save, checkout: Checkout, branch: str) -> None:
        base = checkout.git("rev-parse", "HEAD")
        self.merge(checkout)
        merged = checkout.git("rev-parse", "HEAD")
        made = save(checkout)
        checkout.git("merge", "--abort")
        head = checkout.commit("on", README="on\n")
        done = ckpt("restore", made, "--json", at=checkout)
        report = json.loads(done.out)
        assert check("restore", report) == set(documented("restore"))
        safety = ckpt("list", "-n", "1", at=checkout).out[:36]
        assert {
            key: report[key]
            for key in ("checkpoint", "changes", "safety", "head", "source", "remarks")
        } == {
            "checkpoint": made,
            "changes": [{"kind": "change", "path": "README"}],
            "safety": safety,
            "head": {"commit": head, "branch": branch, "operation": None},
            "source": {"commit": merged, "branch": branch, "operation": "merge"},
            "remarks": [],
        }
        assert [re.split("[,;]", sentence)[0] for sentence in report["apart"]] == [
            f"HEAD stays at commit {head[:8]} ({branch})",
            "the merge of the checkpoint is not restored",
        ]
        assert base != merged
        dry = json.loads(ckpt("undo", "--dry-run", "--json", at=checkout).out)
        assert (dry["safety"], dry["checkpoint"], dry["apart"]) == (None, safety, [])
        assert json.loads(ckpt("undo", "--json", at=checkout).out)["checkpoint"] == safety
        assert json.loads(ckpt("redo", "--json", at=checkout).out)["changes"] == [
            {"kind": "change", "path": "README"}
        ]


class TestSteps:
    @pytest.fixture
    def made(self, ckpt: Ckpt, save: Save, checkout: Checkout) -> list[str]:
        """Restore two checkpoints in turn over typed changes; return their ids."""
        made = []
        for text in ("one\n", "two\n"):
            checkout.write("README", text)
            made.append(save(checkout))
        checkout.write("README", "typed since\n")
        for each in made:
            assert ckpt("restore", each, at=checkout).code == 0
        return made

    @pytest.mark.long
    def test_the_list(self, ckpt: Ckpt, checkout: Checkout, made: list[str]) -> None:
        branch, head = checkout.git("branch", "--show-current"), checkout.git("rev-parse", "HEAD")
        first, second = (
            line.split("\t")[:2]
            for line in ckpt("list", "-n", "2", at=checkout).out.splitlines()[::-1]
        )

        def line(step: str, checkpoint: list[str], change: str) -> str:
            return "\t".join([step, *checkpoint, head, branch, f"before the {change}"]) + "\n"

        restores = [f"restore of checkpoint {restored[:8]}" for restored in made]
        assert ckpt("undo", "--list", at=checkout) == Outcome(
            0, line("undo 1", second, restores[1]) + line("undo 2", first, restores[0]), ""
        )
        ckpt("undo", at=checkout)
        ckpt("undo", at=checkout)
        third, fourth = (
            line.split("\t")[:2]
            for line in ckpt("list", "-n", "2", at=checkout).out.splitlines()[::-1]
        )
        undos = [f"undo of restore {restored[:8]}" for restored in made]
        listed = line("redo 2", third, undos[1]) + line("redo 1", fourth, undos[0])
        before = checkout.fingerprint()
        assert ckpt("undo", "--list", at=checkout) == Outcome(0, listed, "")
        report = json.loads(ckpt("undo", "--list", "--json", at=checkout).out)
        steps = [
            {
                "id": id_,
                "timestamp": time,
                "git_sha": head,
                "branch": branch,
                "message": f"before the {undo}",
            }
            for (id_, time), undo in ((fourth, undos[0]), (third, undos[1]))
        ]
        assert report == {"undo": [], "redo": steps, "cut_off": False}
        assert checkout.fingerprint() == before
        ckpt("redo", at=checkout)
        report = json.loads(ckpt("undo", "--list", "--json", at=checkout).out)
        assert check("undo --list", report) == set(documented("undo --list"))
        assert (checkout.path / "README").read_text() == "one\n"

    def test_for_people(
        self, ckpt: Ckpt, checkout: Checkout, made: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        plant(monkeypatch, planted.IS_TERMINAL, lambda: True)
        lines = normal(ckpt("undo", "--list", at=checkout).out).splitlines()
        assert [line.split() for line in lines] == [
            ["STEP", "ID", "AGE", "MESSAGE"],  # the others say the same in each row
            *(
                [
                    "undo",
                    str(n),
                    "SHORT",
                    "now",
                    *["before", "the", "restore", "of", "checkpoint", "SHORT"],
                ]
                for n in (1, 2)
            ),
        ]
        assert made

    def test_of_nothing(self, ckpt: Ckpt, checkout: Checkout) -> None:
        assert ckpt("undo", "--list", at=checkout) == Outcome(
            0, "", "nothing was restored in this worktree\n"
        )
        assert json.loads(ckpt("undo", "--list", "--json", at=checkout).out) == {
            "undo": [],
            "redo": [],
            "cut_off": False,
        }

    @pytest.mark.long
    def test_a_step_that_is_gone_is_skipped_with_a_word(
        self, ckpt: Ckpt, checkout: Checkout, made: list[str]
    ) -> None:
        gone = ckpt("list", "-n", "1", at=checkout).out[:36]
        ckpt("remove", gone, at=checkout)
        assert ckpt("undo", "--list", at=checkout).out.startswith("undo 1\t")
        assert said(ckpt("undo", at=checkout)) == (
            0,
            "change  README\n",
            (
                f"{UNDOING}warning: skipped steps whose checkpoints are gone (removed, expired, or "
                "replaced by a fetch): SHORT\n"
                "the previous files are in checkpoint SHORT; to go forward again: git ckpt redo\n"
            ),
        )
        assert ((checkout.path / "README").read_text(), len(made)) == ("typed since\n", 2)

    def test_undo_names_the_edits_since_the_restore(
        self, ckpt: Ckpt, checkout: Checkout, made: list[str]
    ) -> None:
        checkout.write("README", "edited\n")
        checkout.write("new", "edited\n")
        step = "SHORT, AGE ago\n"
        planned = "a checkpoint would keep your edits since then to README, new\n"
        dry = ckpt("undo", "--dry-run", at=checkout)
        assert said(dry)[2] == f"undoing: restore {step}{planned}nothing was changed\n"
        done = ckpt("undo", at=checkout)
        assert f"undoing: restore {made[1][:8]}, " in done.err
        assert said(done)[2] == (
            f"undoing: restore {step}the previous files, with your edits since then to README, "
            "new, are in checkpoint SHORT; to go forward again: git ckpt redo\n"
        )
        assert f"undoing: restore {made[0][:8]}, " in ckpt("undo", at=checkout).err
        assert f"redoing: restore {made[0][:8]}, undone " in ckpt("redo", at=checkout).err
        ckpt("redo", at=checkout)
        assert (checkout.path / "README").read_text() == "edited\n"
        assert f"undoing: restore {made[1][:8]}, " in ckpt("undo", at=checkout).err

    def test_edits_beside_a_restored_path_are_named(
        self, ckpt: Ckpt, checkout: Checkout, saved: str
    ) -> None:
        ckpt("restore", saved, "README", at=checkout)
        checkout.write("same", "edited\n")
        assert "with your edits since then to same, are in" in ckpt("undo", at=checkout).err

    @pytest.mark.long
    def test_nothing_further(self, ckpt: Ckpt, checkout: Checkout, made: list[str]) -> None:
        nothing = (
            "error: no undo follows the newest restore\nhint: see the steps: git ckpt undo --list\n"
        )
        assert ckpt("redo", at=checkout) == Outcome(12, "", nothing)
        ckpt("undo", at=checkout)
        ckpt("undo", at=checkout)
        further = Outcome(
            12,
            "",
            (
                "error: no earlier restore is left to undo\n"
                "hint: redo the newest undo: git ckpt redo\n"
            ),
        )
        assert ckpt("undo", at=checkout) == ckpt("undo", "--json", at=checkout) == further
        assert made

    def test_a_list_is_no_plan(self, ckpt: Ckpt, checkout: Checkout) -> None:
        assert ckpt("undo", "--list", "--dry-run", at=checkout) == Outcome(
            2,
            "",
            "error: --list and --dry-run exclude each other\nhint: give only one of them\n",
        )


class TestRefused:
    def test_no_such_checkpoint(self, ckpt: Ckpt, checkout: Checkout, saved: str) -> None:
        done = ckpt("restore", "ffffffff", at=checkout)
        assert (done.code, done.out) == (12, "")
        assert (
            done.err.startswith("error: no checkpoint, run or rev 'ffffffff'")
            or "ffffffff" in done.err.splitlines()[0]
        )

    def test_in_the_way(self, ckpt: Ckpt, save: Save, checkout: Checkout) -> None:
        checkout.commit("rules", **{".gitignore": "*.o\n"})
        checkout.write("place", "x\n")
        made = save(checkout)
        (checkout.path / "place").unlink()
        checkout.write("place/a.o", "precious")
        before = checkout.fingerprint()
        assert said(ckpt("restore", made, at=checkout)) == (
            14,
            "",
            (
                "error: the restore would overwrite paths that are in no checkpoint: place/a.o\n"
                "hint: move these paths away, then run the command again; nothing was changed\n"
            ),
        )
        assert checkout.fingerprint() == before

    @pytest.mark.long
    def test_a_locked_index(self, ckpt: Ckpt, checkout: Checkout, saved: str) -> None:
        lock = Path(checkout.git("rev-parse", "--absolute-git-dir"), "index.lock")
        lock.touch()
        done = ckpt("restore", saved, at=checkout)
        assert (done.code, done.out, done.err.splitlines()[0]) == (
            11,
            "",
            f"error: another process holds {lock}",
        )
        lock.unlink()
        assert ckpt("restore", saved, at=checkout).code == 0
        assert ckpt("undo", at=checkout).code == 0
        assert (checkout.path / "README").read_text() == "typed since\n"

    def test_a_checkpoint_without_files(self, ckpt: Ckpt, save: Save, checkout: Checkout) -> None:
        checkout.write("README", "changed\n")
        checkout.git("config", "ckpt.snapshotTimeout", "0s")
        asked = ckpt("save", at=checkout)
        assert said(asked) == (
            0,
            "ID\n",
            "saved manual-complete with uncommitted changes on commit SHORT\n",
        )
        with Store.open(checkout.path, adapter="plumbing") as store:
            saved = store.record("manual", worktree=store.capture(Limits(timeout=0))).id
        shown = without_names(ckpt("show", saved, at=checkout).out).splitlines()
        assert [line.split(None, 1)[1] for line in shown if line.startswith("files")] == [
            (
                "not captured: capturing the files took more than 0 seconds; only the "
                "commit is recorded"
            )
        ]
        before = checkout.fingerprint()
        code, out, err = said(ckpt("restore", saved, at=checkout))
        assert (code, out, without_names(err)) == (
            14,
            "",
            (
                "error: checkpoint ID has no files: capturing the files took more than 0 seconds\n"
                "hint: the files of its commit: git restore --source=SHORT --staged --worktree .\n"
            ),
        )
        assert checkout.fingerprint() == before
        opened = ckpt("resume", saved, at=checkout)
        assert (opened.code, without_names(normal(opened.err))) == (
            0,
            (
                "made the worktree of SHORT (manual-complete)\n"
                "warning: the worktree has the files of the commit only: capturing the files took "
                "more than 0 seconds\n"
            ),
        )
        assert Path(opened.out.strip(), "README").read_text() == "hello\n"

    def test_nothing_to_undo(self, ckpt: Ckpt, checkout: Checkout, saved: str) -> None:
        for words in (["undo"], ["undo", "--dry-run"]):
            assert said(ckpt(*words, at=checkout)) == (
                12,
                "",
                (
                    "error: nothing was restored in this worktree\n"
                    "hint: see other checkpoints: git ckpt list\n"
                ),
            )

    def test_a_bare_repository(
        self, ckpt: Ckpt, save: Save, main_checkout: Checkout, tmp_path: Path
    ) -> None:
        main_checkout.git("clone", "--quiet", "--bare", ".", str(tmp_path / "bare"))
        made = save(tmp_path / "bare", "--no-worktree")
        assert said(ckpt("restore", made, at=tmp_path / "bare")) == (
            14,
            "",
            (
                "error: the repository has no worktree to restore files into\n"
                "hint: open a worktree: git ckpt resume SHORT\n"
            ),
        )

    def test_no_checkpoint_named(self, ckpt: Ckpt, checkout: Checkout) -> None:
        done = ckpt("restore", at=checkout)
        assert (done.code, done.out) == (2, "")
        assert done.err.startswith("error: ")


@pytest.mark.long
def test_undo_dry_run(ckpt: Ckpt, checkout: Checkout, saved: str) -> None:
    ckpt("restore", saved, "README", at=checkout)
    before = checkout.fingerprint()
    assert said(ckpt("undo", "--dry-run", at=checkout)) == (
        0,
        "change  README\n",
        "undoing: restore SHORT -- README, AGE ago\nnothing was changed\n",
    )
    assert checkout.fingerprint() == before


@pytest.mark.long
def test_a_filter_that_fails(ckpt: Ckpt, save: Save, checkout: Checkout) -> None:
    checkout.git("config", "filter.turn.smudge", "false")
    checkout.git("config", "filter.turn.clean", "cat")
    checkout.git("config", "filter.turn.required", "true")
    checkout.write(".gitattributes", "*.dat filter=turn\n")
    checkout.write("a.dat", "content\n")
    made = save(checkout)
    (checkout.path / "a.dat").unlink()
    for changes in ("add     a.dat\n", ""):
        done = ckpt("restore", made[:8])
        assert (done.code, done.out) == (14, changes)
        assert done.err.endswith(
            "error: 1 file is in the worktree only as git stores it, because a filter "
            "fails: a.dat\n"
            f"hint: once the filter works: git ckpt restore {made[:8]}\n"
        )
    done = ckpt("resume", made[:8])
    assert (done.code, Path(done.out.strip(), "a.dat").read_text()) == (14, "content\n")
    checkout.git("config", "filter.turn.smudge", "cat")
    assert ckpt("restore", made[:8]).code == 0
    assert ckpt("resume", made[:8]).code == 0
