"""Import turns files of the four formats into runs, once each.

Order, time and status are right, and export returns the same bytes.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gitckpt import Policy, Store
from tests.cli.conftest import PROJECT, Ckpt
from tests.conftest import Checkout, Clock
from tests.formats.conftest import PLACES, SAMPLES, Imports, Line
from tests.stores import DAY, set_clock

FILES = sum(1 for path in SAMPLES.rglob("*") if path.suffix in (".json", ".yaml", ".toml"))


@pytest.mark.long
def test_every_sample_once_and_back_byte_for_byte(imports: Imports) -> None:
    imports.bring()
    before = imports.checkout.fingerprint()
    made = imports()
    assert len(made) == FILES
    assert {line.status for line in made} == {"imported"}
    assert [line.status for line in imports()] == ["known"] * FILES
    assert imports.ok("verify") == ""
    for line in made:
        name = "quasar" if line.format == "nebula" else line.format
        exported = subprocess.run(
            ["git", "cat-file", "blob", f"refs/ckpt/originals/{line.checkpoint}"],
            cwd=imports.checkout.path,
            capture_output=True,
            check=True,
        )
        assert exported.stdout == (imports.checkout.path / line.path).read_bytes()
        imports.ok("export", line.checkpoint, "--format", name, "-o", "../out")
        assert (imports.checkout.path.parent / "out").read_bytes() == exported.stdout
        (imports.checkout.path.parent / "out").unlink()
    after = imports.checkout.fingerprint()
    assert {key: after[key] for key in after if key != "refs"} == {
        key: before[key] for key in before if key != "refs"
    }


@pytest.mark.long
def test_runs_with_order_time_and_status(imports: Imports) -> None:
    imports.bring()
    imports()
    assert imports.statuses() == {
        "20260301-080000-done-20260301": "complete",
        "20260301-041602-finding-lifecycle": "crashed",
        "20260301-012515-reviewer-memory": "complete",
        "20260301-000000-review": "crashed",
        "20260219-120000-push-test": "complete",
        "20260224-200859-cleanup-deprecated": "crashed",
        "20260217-120000-test": "complete",
        "20260217-140000-deploy": "failed",
        "20260217-120000-auth": "failed",
        "20260217-130000-yes": "open",
        "20260215-162119-ci-cd-pipeline": "failed",
        "20260210-000000-login-20260210": "open",
        "20260105-191845-rlm-act": "paused",
        "20260105-190221-rlm-act": "failed",
        "20260105-165339-rlm-act": "failed",
        "20260105-152325-rlm-act": "failed",
        "20260104-154539-rlm-act": "failed",
        "20260104-154045-rlm-act": "failed",
        "20250101-000000-old-20250101": "open",
    }
    with Store.open(imports.checkout.path, adapter="plumbing") as store:
        history = store.history("20260105-190221-rlm-act")
        assert [(each.phase, each.status) for each in history.events] == [
            ("research", "complete"),
            ("decomposition", "complete"),
            ("tdd_planning", "complete"),
            ("multi_doc", "complete"),
            ("beads_sync", "failed"),
            ("implementation", "pending"),
        ]
        assert len(history.events[4].errors) == 1
        auth = store.history("20260217-120000-auth")
    assert [(each.phase, each.status) for each in auth.events][2:5] == [
        ("create worktree", "pending"),  # neither its worktree nor its branch is here
        ("run agent", "failed"),
        ("commit and push", "pending"),
    ]
    assert auth.events[3].errors == (
        'step 4: agent exited 1\nstderr: "boom": it\'s bad\n  indented\ttab',
    )
    listed = [
        line.split("\t")
        for line in imports.ok("list", "--run", "20260105-190221-rlm-act").splitlines()
    ]
    assert [cells[3] for cells in listed] == [
        "beads_sync-failed",
        "multi_doc-complete",
        "tdd_planning-complete",
        "decomposition-complete",
    ]
    assert [cells[1] for cells in listed] == sorted((cells[1] for cells in listed), reverse=True)


@pytest.mark.long
def test_what_was_imported_does_not_expire_by_its_old_date(imports: Imports, clock: Clock) -> None:
    imports.bring()
    made = imports()
    with Store.open(imports.checkout.path, adapter="plumbing") as store:
        set_clock(store, lambda: int(dt.datetime.now(dt.UTC).timestamp() * 1e6) + 2 * DAY)
        found = store.expire(Policy())
        assert list(found.checkpoints) == []
        assert "only expire --all removes imported runs" in {fate.reason for fate in found.runs}
        everything = Policy(
            everything=True, keep_last=0, older_than=3 * DAY, runs_older_than=3 * DAY
        )
        assert list(store.expire(everything, dry_run=True).checkpoints) == []
        set_clock(store, lambda: int(dt.datetime.now(dt.UTC).timestamp() * 1e6) + 4 * DAY)
        gone = store.expire(everything)
        assert {entry.id for entry, _ in gone.checkpoints} == {line.checkpoint for line in made}
    assert imports.checkout.refs("refs/ckpt/originals", "refs/ckpt/keys", "refs/checkpoints") == {}
    assert imports.ok("verify") == ""


def test_a_track_that_says_no_status_has_not_started(imports: Imports) -> None:
    imports.bring("superpowers")
    imports()
    assert "step     PLAN, NOT_STARTED\n" in imports.ok("status", "20250101-000000-old-20250101")


def lines(made: list[Line]) -> dict[str, Line]:
    return {Path(line.path).name: line for line in made}


class TestAgain:
    NAME = "conductor/tracks/login_20260210/metadata.json"

    def change(self, imports: Imports, old: str, new: str) -> None:
        path = imports.checkout.path / self.NAME
        path.write_text(path.read_text().replace(old, new))

    def test_a_file_that_has_changed_extends_its_run(self, imports: Imports) -> None:
        imports.bring("superpowers")
        first = lines(imports(self.NAME))["metadata.json"]
        self.change(imports, "Task 1.2", "Task 1.3")
        (second,) = imports(self.NAME)
        assert (second.status, second.run) == ("imported", first.run)
        assert second.checkpoint != first.checkpoint
        assert [
            line.split("\t")[0] for line in imports.ok("list", "--run", first.run).splitlines()
        ] == [
            second.checkpoint,
            first.checkpoint,
        ]

    def test_a_run_that_has_gone_on_here_refuses_it_by_name(self, imports: Imports) -> None:
        imports.bring("superpowers")
        (first,) = imports(self.NAME)
        imports.ok(
            "step",
            "progress",
            "EXECUTE",
            "--run",
            first.run,
            "--task",
            "1.3",
            "--task-status",
            "PASSED",
        )
        assert [line.status for line in imports(self.NAME)] == ["known"]
        self.change(imports, "Task 1.2", "Task 1.3")
        done = imports.ckpt("import", self.NAME, at=imports.checkout)
        assert (done.code, done.out) == (1, "")
        assert (
            f"{self.NAME}: refused: run {first.run} has continued here; "
            "import the file as another run: --fork"
        ) in done.err
        (forked,) = imports("--fork", self.NAME)
        assert (forked.status, forked.run) == ("imported", f"{first.run}-2")
        assert [line.status for line in imports("--fork", self.NAME)] == ["known"]
        assert imports.ok("verify") == ""

    def test_the_same_forge_id_with_another_beginning_is_another_run(
        self, imports: Imports
    ) -> None:
        imports.bring("forge")
        name = ".forge/runs/20260217-130000-yes.new-pending.6steps.yaml"
        imports(name)
        path = imports.checkout.path / name
        path.write_text(path.read_text().replace("T10:00:00.253479Z", "T11:00:00.253479Z"))
        (made,) = imports(name)
        assert made.run == "20260217-130000-yes-2"

    @pytest.mark.long
    def test_a_dry_run_records_nothing_and_says_the_same(self, imports: Imports) -> None:
        imports.bring()
        would = imports("--dry-run", ".")
        assert imports.checkout.refs("refs/ckpt", "refs/checkpoints", "refs/keep") == {}
        made = imports(".")
        assert [(line.path, line.status, line.run, line.label, line.remarks) for line in would] == [
            (line.path, line.status, line.run, line.label, line.remarks) for line in made
        ]
        named = {
            (line.path, line.checkpoint) for line in made if line.checkpoint in line.path
        }  # rlm-act's files say their ids
        assert {(line.path, line.checkpoint) for line in would if line.checkpoint != "-"} == named

    @pytest.mark.long
    def test_several_at_a_time(self, imports: Imports) -> None:
        imports.bring()
        call = [sys.executable, "-m", "gitckpt", "import", "."]
        env = os.environ | {"PYTHONPATH": str(PROJECT)}
        several = [
            subprocess.Popen(
                call, cwd=imports.checkout.path, env=env, stdout=subprocess.PIPE, text=True
            )
            for _ in range(3)
        ]
        told = [each.communicate()[0].splitlines() for each in several]
        assert [each.returncode for each in several] == [0, 0, 0]
        assert (
            sorted(line.split("\t")[1] for lines in told for line in lines)
            == ["imported"] * FILES + ["known"] * 2 * FILES
        )
        assert imports.ok("verify") == ""

    def test_json(self, imports: Imports) -> None:
        imports.bring("workflow-checkpoints")
        (made, _) = imports()
        told = json.loads(imports.ok("import", "--json", "."))
        assert told["dry_run"] is False
        assert told["files"][0] == {
            "path": made.path,
            "status": "known",
            "format": "workflow",
            "run": made.run,
            "checkpoint": made.checkpoint,
            "label": "tdd_planning-failed",
            "timestamp": made.timestamp,
            "remarks": [],
            "problem": None,
        }


class TestRlmAct:
    def bring(
        self,
        imports: Imports,
        commit: str,
        timestamp: str,
        label: str = "research-complete",
        **state: object,
    ) -> Line:
        document = {
            "id": "6f9619ff-8b86-4d11-b42d-00c04fc964ff",
            "phase": label,
            "timestamp": timestamp,
            "state": {
                "project_path": "/home/ada/p",
                "autonomy_mode": "checkpoint",
                "started_at": "2026-01-05T10:00:00.5",
                **state,
            },
            "errors": [],
            "git_commit": commit,
        }
        imports.checkout.write(".rlm-act-checkpoints/one.json", json.dumps(document))
        (made,) = imports()
        return made

    def test_a_local_time_that_was_called_utc(self, imports: Imports) -> None:
        """B1: such a time before its own commit is in the committer's zone."""
        env = {
            "GIT_COMMITTER_DATE": "2026-01-05T10:00:00-0500",
            "GIT_AUTHOR_DATE": "2026-01-05T10:00:00-0500",
        }
        imports.checkout.git("commit", "--quiet", "--allow-empty", "-m", "local", env=env)
        made = self.bring(imports, imports.checkout.head(), "2026-01-05T10:00:03.250000Z")
        assert (made.timestamp, made.run) == (
            "2026-01-05T15:00:03.250000Z",
            "20260105-150000-rlm-act",
        )
        assert "repaired" in made.remarks
        with Store.open(imports.checkout.path, adapter="plumbing") as store:
            kept = store.read(made.checkpoint)
        assert (kept.git_sha, kept.state["import"]["timestamp"]) == (
            imports.checkout.head(),
            "2026-01-05T10:00:03.250000Z",
        )
        assert kept.imported is not None
        assert kept.imported.untrusted is None

    def test_a_commit_that_is_not_here_is_kept_as_text(self, imports: Imports) -> None:
        made = self.bring(imports, "9" * 40, "2026-01-05T10:00:03.250000Z")
        with Store.open(imports.checkout.path, adapter="plumbing") as store:
            kept = store.read(made.checkpoint)
        assert (kept.git_sha, kept.state["import"]["git_commit"], made.timestamp) == (
            "",
            "9" * 40,
            "2026-01-05T10:00:03.250000Z",
        )
        assert kept.imported is not None
        assert kept.imported.untrusted is True
        assert imports.ok("verify") == ""

    @pytest.mark.parametrize(
        ("said", "label"),
        [
            ("planning-complete", "tdd_planning-complete"),
            ("phase_decomposition-failed", "multi_doc-failed"),
            ("beads_integration-complete", "beads_sync-complete"),
            ("decomposition-skipped", "decomposition-skipped"),
            ("markdown-plan-skip", "multi_doc-skipped"),
            ("research-pending", "research-pending-partial"),
        ],
    )
    def test_every_label_that_was_ever_written(
        self, imports: Imports, said: str, label: str
    ) -> None:
        assert self.bring(imports, "", "2026-01-05T10:00:03Z", said).label == label

    def test_what_a_file_has_becomes_the_inputs(self, imports: Imports) -> None:
        imports.checkout.write("plans/plan.md", "the plan\n")
        results = {
            "research": {"status": "complete", "artifacts": ["/etc/passwd"]},
            "tdd_planning": {
                "status": "complete",
                "metadata": {"plan_path": "/home/ada/p/plans/plan.md"},
            },
            "beads_sync": {
                "status": "complete",
                "metadata": {"phase_issue_ids": ["bd-1", "bd-2"], "epic_id": "bd-9"},
            },
        }
        made = self.bring(
            imports,
            "",
            "2026-01-05T10:00:03Z",
            phase_results=results,
            metadata={"research_question": "why?"},
        )
        with Store.open(imports.checkout.path, adapter="plumbing") as store:
            drives = store.read(made.checkpoint).pipeline
        assert drives is not None
        inputs = dict(drives.inputs)
        assert (inputs["issues"], inputs["epic"], inputs["question"]) == (
            "bd-1 bd-2",
            "bd-9",
            "why?",
        )
        assert (
            inputs["research_path"] == ""
        )  # the file is outside of the repository, and is not read
        assert list(drives.contents) == ["plan_path"]
        assert list(drives.completed) == ["research", "tdd_planning", "beads_sync"]

    @pytest.mark.parametrize(
        ("name", "wanted"),
        [
            ("../../x", "feature"),
            ("/x", "feature"),
            ("..", "feature"),
            ("a/b", "feature"),
            ("add login", "add login"),
        ],
    )
    def test_a_plan_name_is_no_way_out_of_the_worktree(
        self, imports: Imports, name: str, wanted: str
    ) -> None:
        results = {
            "beads_sync": {
                "status": "complete",
                "metadata": {"phase_issue_ids": ["--db=/x", "bd-1", "a b"], "epic_id": "-e"},
            }
        }
        made = self.bring(
            imports, "", "2026-01-05T10:00:03Z", phase_results=results, metadata={"plan_name": name}
        )
        with Store.open(imports.checkout.path, adapter="plumbing") as store:
            drives = store.read(made.checkpoint).pipeline
        assert drives is not None
        assert (drives.inputs["plan_name"], drives.inputs["issues"], drives.inputs["epic"]) == (
            wanted,
            "bd-1",
            "",
        )
        assert ("is not valid as plan_name" in made.remarks) == (wanted == "feature")


def test_a_history_in_git_becomes_one_run(imports: Imports) -> None:
    imports.bring("superpowers")
    imports.checkout.git("add", "--all")
    imports.checkout.commit("one")
    first = imports.checkout.head()
    path = imports.checkout.path / "conductor/tracks/login_20260210/metadata.json"
    path.write_text(path.read_text().replace("Task 1.2", "Task 1.3"))
    imports.checkout.git("add", "--all")
    imports.checkout.commit("two")
    path.write_text(path.read_text().replace("Task 1.3", "Task 1.4"))
    made = [line for line in imports("--history", ".") if "login" in line.path]
    assert [line.status for line in made] == ["imported"] * 3
    assert len({line.run for line in made}) == 1
    with Store.open(imports.checkout.path, adapter="plumbing") as store:
        found = [store.read(line.checkpoint) for line in made]
    by_sequence = sorted(found, key=lambda each: each.sequence or 0)
    assert {each.git_sha for each in found} == {first, imports.checkout.head(), ""}
    said = [
        each.state["loop_state"]["checkpoints"]["PARALLEL_EXECUTE"]["last_task"]
        for each in by_sequence
    ]
    assert sorted(said) == ["Task 1.2", "Task 1.3", "Task 1.4"]
    assert [line.status for line in imports("--history", ".") if "login" in line.path] == [
        "known"
    ] * 3


def test_a_history_is_read_whatever_is_set_for_log(imports: Imports) -> None:
    """`git log` prints a line about a signature that it cannot verify."""
    checkout = imports.checkout
    imports.bring("superpowers")
    checkout.git("add", "--all")
    checkout.commit("one")
    head, _, message = checkout.git("cat-file", "commit", "HEAD").partition("\n\n")
    signature = "gpgsig -----BEGIN PGP SIGNATURE-----\n \n iQEzBAAB\n -----END PGP SIGNATURE-----"
    signed = checkout.git(
        "hash-object",
        "-t",
        "commit",
        "-w",
        "--stdin",
        data=f"{head}\n{signature}\n\n{message}\n".encode(),
    ).strip()
    checkout.git("update-ref", "HEAD", signed)
    program = checkout.write("gpg", "#!/bin/sh\necho 'gpg: who is that?' >&2; exit 1\n")
    program.chmod(0o755)
    for key, value in (
        ("log.showSignature", "true"),
        ("log.follow", "true"),
        ("gpg.program", str(program)),
    ):
        checkout.git("config", key, value)
    assert {line.status for line in imports("--history", "conductor")} == {"imported"}


def test_the_first_digits_of_a_commit_are_no_commit(
    ckpt: Ckpt, make_checkout: Callable[..., Checkout]
) -> None:
    checkout = make_checkout("long", "--object-format=sha256")
    checkout.commit("one", a="a")
    own = "1f626451-1083-4692-9d9f-624a8d97acef"
    said = {
        "id": own,
        "phase": "research-failed",
        "timestamp": "2026-01-05T15:23:33Z",
        "state": {},
        "git_commit": checkout.head()[:40],
    }
    checkout.write("a.json", json.dumps(said))
    assert ckpt("import", "a.json", at=checkout).code == 0
    assert json.loads(ckpt("show", own, "--json", at=checkout).out)["git_sha"] == ""
    assert ckpt("verify", at=checkout).code == 0


def test_a_linked_commit_of_a_forge_branch(imports: Imports) -> None:
    imports.bring("forge")
    imports.checkout.git("branch", "forge/auth")
    made = lines(imports())["20260217-120000-auth.failed-at-agent.6steps.yaml"]
    with Store.open(imports.checkout.path, adapter="plumbing") as store:
        kept = store.read(made.checkpoint)
    assert kept.git_sha == imports.checkout.head()
    assert kept.pipeline is not None
    assert list(kept.pipeline.completed) == [
        "generate branch",
        "create worktree",
    ]  # the plan is read again
    assert kept.branch == "forge/auth"


@pytest.mark.parametrize(
    ("phases", "name"),
    [
        ((), "reviewing"),
        (("--phases", "filtering"), "review_complete"),
        (("--phases", "linting"), "resolving_issues"),
    ],
)
def test_the_numbers_of_quasars_phases_moved(
    imports: Imports, phases: tuple[str, ...], name: str
) -> None:
    text = (SAMPLES / "quasar/quasar-5r9x.cycle1.toml").read_text()
    imports.checkout.write(
        "checkpoint.toml", re.sub(r"^phase = .*$", "phase = 6", text, flags=re.MULTILINE)
    )
    (made,) = imports(*phases, "checkpoint.toml")
    with Store.open(imports.checkout.path, adapter="plumbing") as store:
        assert store.read(made.checkpoint).state["review"]["more"]["phase"] == name


def test_what_is_skipped_and_what_cannot_be_read(imports: Imports) -> None:
    imports.checkout.write(".rlm-act-checkpoints/torn.json", '{"id": "x", "phase": ')
    imports.checkout.write(".rlm-act-checkpoints/other.json", '{"a": 1}')
    imports.checkout.write("package.json", '{"name": "x"}')
    imports.checkout.write("tsconfig.json", '{"name": "x"}')
    imports.checkout.write("checkpoint-dir.toml", 'path = "x"\n')
    imports.bring("workflow-checkpoints")
    done = imports.ckpt("import", ".", "package.json", at=imports.checkout)
    assert done.code == 1
    assert len(done.out.splitlines()) == 2
    told = sorted(line for line in done.err.splitlines() if line.startswith("warning: "))
    assert told == [
        (
            "warning: .rlm-act-checkpoints/other.json: failed: the file lacks one of id, "
            "phase, timestamp, state"
        ),
        (
            "warning: .rlm-act-checkpoints/torn.json: failed: the file is not JSON: "
            "Expecting value: line 1 column 22 (char 21)"
        ),
        "warning: checkpoint-dir.toml: skipped: the format is unknown",
        (
            "warning: package.json: failed: unknown format; to see what a format lacks, "
            "name it: --format NAME"
        ),
    ]
    torn = imports.ckpt("import", ".rlm-act-checkpoints/torn.json", at=imports.checkout)
    assert torn.err.splitlines()[0] == told[1]  # not the error about an unknown format
    assert imports.ckpt("import", "gone", at=imports.checkout).code == 12
    assert imports.ckpt("import", "--format", "what", ".", at=imports.checkout).code == 2


def test_nothing_to_import(imports: Imports) -> None:
    done = imports.ckpt("import", ".", at=imports.checkout)
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("error: nothing was imported: no file has a known format\nhint: ")
    assert imports.ckpt("import", ".", "--json", at=imports.checkout).code == 1
    imports.bring("workflow-checkpoints")
    assert [imports.ckpt("import", ".", at=imports.checkout).code for _ in range(2)] == [
        0,
        0,
    ]  # the second import knows all files


RLM = {"id": "x", "phase": "research-complete", "timestamp": "2026-01-01T00:00:00Z", "state": {}}
CYCLE = (SAMPLES / "quasar/quasar-5r9x.cycle1.toml").read_text()
FORGE_TEXT = (
    "id: x\nstatus: active\ncreated_at: 2026-02-17T12:00:00Z\nsteps:\n  - name: read plan\n"
    "    status: completed\n"
)


@pytest.mark.parametrize(
    ("path", "text", "lacks"),
    [
        (
            ".rlm-act-checkpoints/d.json",
            json.dumps({**RLM, "state": []}),
            "id, phase, timestamp, state",
        ),
        (
            ".rlm-act-checkpoints/d.json",
            '{"id": "x", "phase": "research-complete", "state": {}}',
            "id, phase, timestamp, state",
        ),
        (
            ".forge/runs/x.yaml",
            FORGE_TEXT.replace("id: x\n", ""),
            "id, status, created_at, or steps with names",
        ),
        (
            ".forge/runs/x.yaml",
            FORGE_TEXT.partition("steps:")[0] + "steps: no\n",
            "id, status, created_at, or steps with names",
        ),
        (
            ".quasar/checkpoint.a.toml",
            'version = 1\nphase_id = "a"\n',
            "version, cycle, max_cycles, task_title, phase",
        ),
    ],
)
@pytest.mark.parametrize("by_name", [True, False])
def test_a_damaged_file_is_an_error(
    imports: Imports, path: str, text: str, lacks: str, by_name: bool
) -> None:
    imports.checkout.write(path, text)
    done = imports.ckpt("import", path if by_name else ".", at=imports.checkout)
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith(f"warning: {path}: failed: the file lacks one of {lacks}\n")
    elsewhere = imports.checkout.write(f"elsewhere{Path(path).suffix}", text)
    assert imports.ckpt("import", str(elsewhere), at=imports.checkout).code == 1


@pytest.mark.parametrize(
    ("path", "text", "remark", "errors"),
    [
        (
            "a.json",
            json.dumps(RLM | {"errors": "boom"}),
            "has a string for errors instead of a list: taken as the only error",
            ["boom"],
        ),
        (
            "a.json",
            json.dumps(RLM | {"errors": ["a", 1]}),
            "has errors that are not strings: the checkpoint lacks these errors",
            ["a"],
        ),
        (
            "a.json",
            json.dumps(RLM | {"timestamp": "2026-01-01T00:00:00"}),
            "has a time without UTC offset: taken as UTC",
            [],
        ),
        (
            "a.json",
            json.dumps({"version": 3, "track_id": "t", "status": "new", "loop_state": "EXECUTE"}),
            (
                "has 'EXECUTE' for loop_state, which is not stored: "
                "the step is PLAN according to the plan"
            ),
            [],
        ),
        (
            "a.yaml",
            FORGE_TEXT + "  - name: read plan\n    status: failed\n",
            "has the step 'read plan' twice: the step is complete if both are",
            [],
        ),
        (
            "a.yaml",
            FORGE_TEXT.replace("00Z", "00"),
            "has a time without UTC offset: taken as UTC",
            [],
        ),
        (
            "a.toml",
            CYCLE.replace("20:08:59Z", "20:08:59"),
            "has a time without UTC offset: taken as UTC",
            [],
        ),
        (
            "a.toml",
            CYCLE + "mine = 1\n",
            "has findings with a key 'mine': only the original has the key",
            [],
        ),
        (
            "a.toml",
            CYCLE.replace("lint_output = ''\n", ""),
            "lacks lint_output, which quasar always writes: the file may be incomplete",
            [],
        ),
    ],
)
def test_what_is_dropped_is_told_of(
    imports: Imports, path: str, text: str, remark: str, errors: list[str]
) -> None:
    imports.checkout.write(path, text)
    (made,) = imports(path)
    assert remark in made.remarks.split("; ")
    with Store.open(imports.checkout.path, adapter="plumbing") as store:
        kept = store.read(made.checkpoint)
    assert list(kept.errors) == errors
    assert kept.imported is not None
    assert "without UTC offset" not in remark or kept.imported.untrusted
    assert (
        imports.ckpt("export", made.checkpoint, "--format", made.format, at=imports.checkout).out
        == text
    )


def test_the_places_are_those_of_the_samples() -> None:
    assert set(PLACES) == {path.name for path in SAMPLES.iterdir() if path.is_dir()}
