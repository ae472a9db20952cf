"""Export writes files of other tools, and reports what a format cannot hold."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from gitckpt import Exporter, Listener, Store
from tests.dying import die_at_rename
from tests.formats.conftest import SAMPLES, Imports

ROOT = Path(__file__).parents[2]


class TestWhere:
    def test_a_file_of_somebody_elses_needs_force(self, imports: Imports) -> None:
        imports.bring("workflow-checkpoints")
        made, other = imports()
        path = imports.checkout.write("out.json", "mine\n")
        call = ("export", made.checkpoint, "--format", "workflow", "-o", "out.json")
        refused = imports.ckpt(*call, at=imports.checkout)
        assert (refused.code, refused.out, path.read_text()) == (2, "", "mine\n")
        assert (
            f"{path} exists, and was neither imported nor written by the last export" in refused.err
        )
        assert imports.ok(*call, "--force") == "out.json\n"
        imports.ok("export", other.checkpoint, "--format", "workflow", "-o", "out.json")
        path.write_text(path.read_text() + "\n")
        assert imports.ckpt(*call, at=imports.checkout).code == 2
        imports.ok("export", other.checkpoint, "--format", "workflow", "-o", made.path)
        imports.ok("export", made.checkpoint, "--format", "workflow", "-o", made.path)

    @pytest.mark.parametrize("where", ["worktree", "elsewhere"])
    def test_a_kill_leaves_no_part_of_it_where_a_capture_finds_it(
        self, imports: Imports, tmp_path: Path, where: str
    ) -> None:
        imports.bring("workflow-checkpoints")
        made = imports()[0]
        directory = tmp_path if where == "elsewhere" else imports.checkout.path / "new"
        directory.mkdir(exist_ok=True)
        before = sorted(os.listdir(directory))

        def export() -> None:
            with Store.open(imports.checkout.path, adapter="plumbing") as store:
                exporter = Exporter(store)
                exporter.write(
                    str(directory / "out.json"), exporter.files(made.checkpoint, "workflow")[0]
                )

        die_at_rename("out.json", export)
        left = [name for name in sorted(os.listdir(directory)) if name not in before]
        assert [name.startswith(".out.json.") for name in left] == (
            [True] if where == "elsewhere" else []
        )
        export()
        assert (directory / "out.json").exists()

    def test_the_list_of_exports_is_replaced_as_a_whole(self, imports: Imports) -> None:
        imports.bring("workflow-checkpoints")
        made, other = imports()
        imports.ok("export", made.checkpoint, "--format", "workflow", "-o", "one.json")
        with open(imports.checkout.main / ".git/ckpt/exports", "rb") as before:
            imports.ok("export", other.checkpoint, "--format", "workflow", "-o", "two.json")
            assert len(before.read().splitlines()) == 1

    def test_the_list_of_exports_may_hold_anything(self, imports: Imports) -> None:
        """A power cut may leave any bytes in the list."""
        imports.bring("workflow-checkpoints")
        made = imports()[0]
        exports = imports.checkout.main / ".git/ckpt/exports"
        call = ("export", made.checkpoint, "--format", "workflow", "-o", "one.json")
        for data in (b"x \xff\n", b"a b c\n", b"\0" * 100):
            exports.write_bytes(data)
            assert imports.ok(*call) == "one.json\n"
            assert len(exports.read_text().splitlines()) == 1

    def test_a_directory_that_is_in_the_way_or_cannot_be_made(self, imports: Imports) -> None:
        imports.bring("forge")
        made = imports()[0]
        imports.checkout.write("file", "x")
        done = imports.ckpt(
            "export", made.run, "--format", "forge", "-o", "file/under", at=imports.checkout
        )
        assert (done.code, done.out) == (14, "")
        assert not list(imports.checkout.path.glob(".*.new"))

    def test_a_slash_at_the_end_of_a_path_changes_nothing(self, imports: Imports) -> None:
        """A run of rlm-act goes to a directory; other runs go to a file.

        A file may also go into an existing directory.
        """
        imports.bring("rlm-act", "forge")
        made = imports()
        forge = next(line for line in made if line.format == "forge")
        runs = [line.run for line in made if line.format == "rlm-act"]
        run = max(runs, key=runs.count)
        for word in ("out", "slash/"):
            told = imports.ok("export", run, "--format", "rlm-act", "-o", word).splitlines()
            assert len(told) == runs.count(run) > 1
            assert sorted(path.rpartition("/")[2] for path in told) == sorted(
                os.listdir(imports.checkout.path / word)
            )
        name = forge.path.rpartition("/")[2]
        call = ("export", forge.run, "--format", "forge", "-o")
        assert imports.ok(*call, "one") == "one\n"
        assert [imports.ok(*call, word) for word in ("out", "out/")] == [f"out/{name}\n"] * 2
        refused = imports.ckpt(*call, "two/", at=imports.checkout)
        assert (refused.code, refused.out) == (2, "")
        assert "there is no directory two/" in refused.err
        assert not (imports.checkout.path / "two").exists()
        refused = imports.ckpt(
            "export", run, "--format", "rlm-act", "-o", "one", at=imports.checkout
        )
        assert (refused.code, refused.out) == (14, "")
        assert "or export a single checkpoint" in refused.err

    def test_it_counts_the_checkpoints_of_a_run(self, imports: Imports) -> None:
        imports.bring("rlm-act")
        runs = [line.run for line in imports()]
        run = max(runs, key=runs.count)
        counts: list[tuple[str, int, int]] = []
        listener = Listener(count=lambda *numbers: counts.append(numbers))
        with Store.open(imports.checkout.path, listener=listener) as store:
            exports = Exporter(store).files(str(run), "rlm-act", every=True)
        total = len(exports)
        assert total == runs.count(run) > 1
        assert counts == [("exporting checkpoints", number + 1, total) for number in range(total)]

    def test_no_directory_is_made_on_the_way(self, imports: Imports) -> None:
        imports.bring("rlm-act", "forge")
        for made in {line.format: line for line in imports()}.values():
            done = imports.ckpt(
                "export", made.run, "--format", made.format, "-o", "nodir/x", at=imports.checkout
            )
            assert (done.code, done.out) == (14, "")
            assert (
                "cannot write nodir/x: there is no directory nodir\nhint: create it: "
                "mkdir -p nodir;"
            ) in done.err
            assert not (imports.checkout.path / "nodir").exists()

    def test_what_several_files_lack_is_told_once(self, imports: Imports) -> None:
        with Store.open(imports.checkout.path, adapter="plumbing") as store:
            run = str(store.record("research-complete", {}, start="x", agent="claude").run)
            store.record("decomposition-complete", {}, run=run, agent="claude")
        done = imports.ckpt("export", run, "--format", "rlm-act", "-o", "out", at=imports.checkout)
        assert (done.code, len(done.out.splitlines()), done.err.count("agent = claude")) == (
            0,
            2,
            1,
        )

    @pytest.mark.long
    def test_directories_that_may_be_written_in_and_not_read(
        self, imports: Imports, tmp_path: Path
    ) -> None:
        prefix: list[str] = []
        if os.getuid() == 0:
            if shutil.which("setpriv") is None:
                pytest.skip("modes do not stop root, and there is no setpriv to give up its rights")
            prefix = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]
        imports.bring("workflow-checkpoints")
        made = imports()[0]
        blind = tmp_path / "blind"
        (blind / "inner").mkdir(parents=True)
        blind.chmod(0o311)
        for name in ("file", "inner/file"):
            words = [
                "-C",
                str(imports.checkout.path),
                "export",
                made.run,
                "--format",
                "workflow",
                "-o",
                str(blind / name),
            ]
            done = subprocess.run(
                [*prefix, sys.executable, "-m", "gitckpt", *words],
                cwd=ROOT,
                capture_output=True,
                text=True,
                check=False,
            )
            assert (done.returncode, done.stdout, done.stderr) == (0, f"{blind / name}\n", "")
            assert (blind / name).read_text() == imports.ok(
                "export", made.run, "--format", "workflow"
            )
        blind.chmod(0o755)

    def test_files_of_one_run_that_had_the_same_name(
        self, imports: Imports, sample: Callable[[str], bytes]
    ) -> None:
        ids = (
            "4bd76ae5-0cad-4ab0-a0da-835b0d091583",
            "baf68a8a-271e-4d2b-83d2-14acced22d67",
            "f5cbc88a-5cb2-4e5a-b3da-dd169f67ba67",
        )
        for number, id_ in enumerate(ids):
            path = imports.checkout.path / str(number) / "same.json"
            path.parent.mkdir()
            path.write_bytes(sample(f"rlm-act/{id_}.json"))
        made = imports()
        imports.ok("export", made[0].run, "--format", "rlm-act", "-o", "../out/")
        out = imports.checkout.path.parent / "out"
        assert {path.name: path.read_bytes() for path in out.iterdir()} == {
            name: sample(f"rlm-act/{id_}.json")
            for name, id_ in zip(
                ("same.json", f"{ids[1]}.json", f"{ids[2]}.json"), ids, strict=True
            )
        }

    @pytest.mark.parametrize("name", [".envrc", ".hidden.json", "conftest.py", "x", "a\nb.json"])
    def test_a_name_that_no_tool_gives_is_not_taken_for_a_file_below_a_directory(
        self, imports: Imports, name: str
    ) -> None:
        path = imports.checkout.path / name
        path.write_bytes(
            (
                SAMPLES / "workflow-checkpoints/345d2bb4-49dc-4b7e-9547-a6088147d8e9.json"
            ).read_bytes()
        )
        (made,) = imports(name)
        (imports.checkout.path / "new").mkdir()
        assert (
            imports.ok("export", made.run, "--format", "workflow", "-o", "new/")
            == f"new/{made.checkpoint}.json\n"
        )

    def test_an_id_or_a_format_that_there_is_not(self, imports: Imports) -> None:
        assert imports.ckpt("export", "gone", "--format", "forge", at=imports.checkout).code == 12
        assert imports.ckpt("export", "latest", "--format", "yaml", at=imports.checkout).code == 2
        assert imports.ckpt("export", "latest", at=imports.checkout).code == 2

    def test_bytes_that_are_gone(self, imports: Imports) -> None:
        imports.bring("workflow-checkpoints")
        made = imports()[0]
        oid = imports.checkout.refs(f"refs/ckpt/originals/{made.checkpoint}").popitem()[1]
        imports.checkout.git("update-ref", "-d", f"refs/ckpt/originals/{made.checkpoint}")
        told = imports.ckpt("verify", at=imports.checkout)
        assert f"no ref keeps {oid}, the file it was imported from of the checkpoint" in told.out
        assert imports.ckpt("verify", "--repair", at=imports.checkout).code == 0
        assert imports.ok("export", made.checkpoint, "--format", "workflow") != ""


class TestWhatWasBornHere:
    def test_a_failed_phase_as_rlm_act(self, imports: Imports) -> None:
        with Store.open(imports.checkout.path, adapter="plumbing") as store:
            run = str(store.record("research-complete", {"notes": 1}, start="x").run)
            store.record(
                "decomposition-failed",
                {"notes": 2},
                run=run,
                errors=["no", "really"],
                agent="claude",
            )
        done = imports.ckpt("export", run, "--format", "rlm-act", at=imports.checkout)
        document = json.loads(done.out)
        assert (document["phase"], document["errors"], document["git_commit"]) == (
            "decomposition-failed",
            ["no", "really"],
            imports.checkout.head(),
        )
        assert tuple(document["state"]) == (
            "project_path",
            "autonomy_mode",
            "current_phase",
            "phase_results",
            "context_entry_ids",
            "started_at",
            "checkpoint_id",
            "beads_epic_id",
            "metadata",
        )
        assert document["state"]["metadata"] == {"notes": 2}
        assert document["state"]["phase_results"]["decomposition"]["errors"] == ["no", "really"]
        branch = imports.checkout.git("branch", "--show-current")
        assert done.err.splitlines() == [
            f"warning: not in the exported file: {each}"
            for each in ("agent = claude", f"branch = {branch}")
        ]
        assert not done.out.endswith("\n")
        assert '\n  "id"' in done.out

    def test_it_comes_back_by_an_import(self, imports: Imports) -> None:
        with Store.open(imports.checkout.path, adapter="plumbing") as store:
            run = str(store.record("research-complete", {"text": "ünïcode\n"}, start="x").run)
        imports.ok("export", run, "--format", "rlm-act", "-o", ".rlm-act-checkpoints")
        (made,) = imports()
        assert made.label == "research-complete"
        with Store.open(imports.checkout.path, adapter="plumbing") as store:
            assert store.read(made.checkpoint).state["metadata"] == {"text": "ünïcode\n"}

    @pytest.mark.parametrize(
        ("label", "status", "step"),
        [("build-failed", "failed", "failed"), ("build-started", "active", "running")],
    )
    def test_a_run_as_forge(self, imports: Imports, label: str, status: str, step: str) -> None:
        with Store.open(imports.checkout.path, adapter="plumbing") as store:
            run = str(
                store.record(
                    label,
                    {"pr_number": "7", "own": [1]},
                    start="x",
                    errors=["a: b"] if step == "failed" else [],
                ).run
            )
        done = imports.ckpt("export", run, "--format", "forge", at=imports.checkout)
        document = yaml.safe_load(done.out)
        assert (document["id"], document["status"], document["pr_number"]) == (run, status, 7)
        assert "warning: not in the exported file: the value own of the state" in done.err

    def test_a_run_as_forge_has_the_step_that_it_is_at_and_no_others(
        self, imports: Imports
    ) -> None:
        with Store.open(imports.checkout.path, adapter="plumbing") as store:
            failed = str(store.record("build-failed", {}, start="x", errors=["a: b"]).run)
            done = str(store.record("run-complete", {}, start="y").run)
        assert yaml.safe_load(imports.ok("export", failed, "--format", "forge"))["steps"] == [
            {"name": "build", "status": "failed", "error": "a: b"}
        ]
        document = yaml.safe_load(imports.ok("export", done, "--format", "forge"))
        assert (document["status"], document["steps"]) == ("completed", [])

    def test_an_error_that_no_step_has_is_told_of(self, imports: Imports) -> None:
        with Store.open(imports.checkout.path, adapter="plumbing") as store:
            run = str(
                store.record(
                    "build-progress",
                    {},
                    start="x",
                    errors=["disk full"],
                    message="m",
                    agent="claude",
                ).run
            )
            store.record(
                "build-progress", {}, run=run, errors=["disk full"], message="m", agent="claude"
            )
        done = imports.ckpt("export", run, "--format", "forge", at=imports.checkout)
        told = {
            line.removeprefix("warning: not in the exported file: ")
            for line in done.err.splitlines()
        }
        commit = imports.checkout.head()
        assert told == {
            *("the error 'disk full'", "message = m", "agent = claude", f"commit = {commit}"),
            "the history of the run: 1 earlier checkpoints",
        }

    def test_the_state_of_rlm_act_that_a_program_keeps_here_is_written_as_it_is(
        self, imports: Imports, sample: Callable[[str], bytes]
    ) -> None:
        state = json.loads(sample("rlm-act/78a7b725-a6c6-4fd3-baa9-688d2afc2b4e.json"))["state"]
        with Store.open(imports.checkout.path, adapter="plumbing") as store:
            run = str(
                store.record(
                    "beads_sync-failed",
                    state,
                    start="x",
                    errors=state["phase_results"]["beads_sync"]["errors"],
                ).run
            )
        document = json.loads(imports.ok("export", run, "--format", "rlm-act"))
        for results in (document["state"]["phase_results"], state["phase_results"]):
            results["beads_sync"].pop("completed_at")
        assert document["state"] == state

    def test_a_state_whose_keys_are_called_as_those_of_rlm_act(self, imports: Imports) -> None:
        with Store.open(imports.checkout.path, adapter="plumbing") as store:
            run = str(
                store.record(
                    "build-failed",
                    {"metadata": 1, "started_at": "x", "current_phase": [2]},
                    start="x",
                ).run
            )
        document = json.loads(imports.ok("export", run, "--format", "rlm-act"))
        assert document["state"]["metadata"] == {
            "metadata": 1,
            "started_at": "x",
            "current_phase": [2],
        }

    def test_keys_that_a_tool_does_not_know(
        self, imports: Imports, sample: Callable[[str], bytes]
    ) -> None:
        """rlm-act ignores such keys, and they stay; quasar's file has none."""
        document = json.loads(sample("rlm-act/6638940a-9f70-4e15-a671-c53b69f9a3f8.json"))
        imports.checkout.write(".rlm-act-checkpoints/x.json", json.dumps(document | {"own": [1]}))
        imports.checkout.write(
            "checkpoint.toml", "own = 1\n" + sample("quasar/quasar-5r9x.cycle1.toml").decode()
        )
        loop, review = sorted(imports(), key=lambda line: line.format, reverse=True)
        with Store.open(imports.checkout.path, adapter="plumbing") as store:
            for each, label in ((loop, "decomposition-complete"), (review, "review-failed")):
                store.record(label, dict(store.read(each.checkpoint).state), run=each.run)
        assert json.loads(imports.ok("export", loop.run, "--format", "rlm-act"))["own"] == [1]
        done = imports.ckpt("export", review.run, "--format", "quasar", at=imports.checkout)
        assert done.code == 0, done.err
        assert (
            "warning: not in the exported file: the key own, which quasar does not have\n"
            in done.err
        )

    def test_a_checkpoint_outside_of_a_run_is_none_of_forges(self, imports: Imports) -> None:
        imports.ok("save", "-m", "x")
        done = imports.ckpt("export", "latest", "--format", "forge", at=imports.checkout)
        assert (done.code, done.out) == (2, "")


Words = tuple[str, ...]


class TestALinkOnTheWay:
    @pytest.fixture
    def imported(self, imports: Imports) -> Imports:
        imports.bring("forge")
        imports(".")
        return imports

    @pytest.fixture
    def words(self, imported: Imports) -> Words:
        return ("export", imported(".")[0].run, "--format", "forge", "-o")

    @pytest.mark.parametrize("output", ["out/x.yaml", "out/new/x.yaml", "inner/out/x.yaml"])
    def test_nothing_is_written_out_of_the_worktree(
        self,
        imported: Imports,
        tmp_path: Path,
        words: Words,
        output: str,
    ) -> None:
        (tmp_path / "outside").mkdir()
        (imported.checkout.path / "out").symlink_to(tmp_path / "outside")
        (imported.checkout.path / "inner").symlink_to(".")
        done = imported.ckpt(*words, output, at=imported.checkout)
        assert done.code == 2
        assert f"leads out of the worktree through a link, to {tmp_path}/outside" in done.err
        assert list((tmp_path / "outside").iterdir()) == []

    def test_nothing_is_written_into_git(self, imported: Imports, words: Words) -> None:
        git_dir = imported.checkout.git("rev-parse", "--absolute-git-dir")
        (imported.checkout.path / "out").symlink_to(f"{git_dir}/hooks")
        done = imported.ckpt(*words, "out/post-commit", at=imported.checkout)
        assert done.code == 2
        assert not Path(git_dir, "hooks/post-commit").exists()

    def test_a_link_within_the_worktree_is_followed(self, imported: Imports, words: Words) -> None:
        (imported.checkout.path / "there").mkdir()
        (imported.checkout.path / "out").symlink_to("there")
        imported.ok(*words, "out/x.yaml")
        assert (imported.checkout.path / "there/x.yaml").exists()

    def test_a_place_outside_is_fine(self, imported: Imports, tmp_path: Path, words: Words) -> None:
        (tmp_path / "outside").mkdir()
        imported.ok(*words, str(tmp_path / "outside/x.yaml"))
        assert (tmp_path / "outside/x.yaml").exists()
