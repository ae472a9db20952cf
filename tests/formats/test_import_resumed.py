"""gitckpt finishes runs that another tool began, and exports their progress."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from tests.durable.stage import Stage, stage
from tests.formats.conftest import SAMPLES

__all__ = ["stage"]

AUTH = "20260217-120000-auth"


def forge_run(stage: Stage, tmp_path: Path) -> Path:
    """Add a forge run that failed at its agent, and return its worktree."""
    stage.checkout.commit(
        "the plan", **{"plans/auth.md": "# Auth plan\n", ".gitignore": ".forge\n"}
    )
    worktree = tmp_path / "forge-auth"
    stage.checkout.git("worktree", "add", "--quiet", "-b", "forge/auth", str(worktree))
    (worktree / "half.txt").write_text("half\n")
    text = (SAMPLES / "forge/20260217-120000-auth.failed-at-agent.6steps.yaml").read_text()
    stage.checkout.write(
        f".forge/runs/{AUTH}.yaml", text.replace("/srv/wt/forge-auth", str(worktree))
    )
    return worktree


class TestForge:
    @pytest.mark.long
    def test_it_ends_with_what_its_agent_had_left(self, stage: Stage, tmp_path: Path) -> None:
        left = forge_run(stage, tmp_path)
        stage.program("claude", "cat half.txt > seen; cat > plan.seen; echo done > done.txt")
        stage.program("gh", "echo https://example.org/ada/project/pull/7")
        stage.ok("import", ".")
        assert stage.status(AUTH) == "failed"
        refused = stage.ckpt("resume", AUTH)
        assert refused.code == 2
        assert (
            f"the pipeline of run {AUTH} is from the file .forge/runs/{AUTH}.yaml, "
            "which anyone may have written"
        ) in refused.err
        commands = refused.err.partition("commands that would run:\n")[2].splitlines()
        assert commands[:2] == ["    read plan: read plan", "    run agent: agent"]
        assert commands[2].startswith("    commit and push: set -e git add --all git diff --cached")
        assert commands[2].endswith("… (10 lines, cut)")
        assert commands[4] == "    in full: git ckpt run --print plan-to-pr"
        assert "\\n" not in "".join(commands)
        assert max(map(len, commands)) < 150
        advice = stage.ok("status", AUTH).splitlines()[-1]
        assert advice == f"next     git ckpt resume {AUTH} --trust"
        assert (
            json.loads(stage.ok("status", AUTH, "--json"))["next"]
            == f"git ckpt resume {AUTH} --trust"
        )
        assert stage.calls == []
        done = stage.ckpt("resume", AUTH, "--trust")
        assert done.code == 0, done.err
        assert stage.calls == ["claude", "gh"]
        pushed = stage.remote.git("ls-tree", "-r", "--name-only", "forge/auth").split()
        assert pushed == [
            ".gitignore",
            "README",
            "done.txt",
            "half.txt",
            "plan.seen",
            "plans/auth.md",
            "seen",
        ]
        assert stage.remote.git("show", "forge/auth:plan.seen") == "# Auth plan"
        assert (left / "half.txt").read_text() == "half\n"
        assert [(name, each.status) for name, each in stage.events(AUTH).items()] == [
            (name, "complete")
            for name in (
                "read plan",
                "generate branch",
                "create worktree",
                "run agent",
                "commit and push",
                "create pr",
            )
        ]
        written = stage.ok("export", AUTH, "--format", "forge")
        assert re.sub(r"updated_at: .*", "updated_at: NOW", written) == (
            f"id: {AUTH}\nplan_path: plans/auth.md\nstatus: completed\ncreated_at: "
            "2026-02-17T12:00:00.253479+02:00\nupdated_at: NOW\n"
            f"branch: forge/auth\nworktree_path: {left}\n"
            "pr_url: https://example.org/ada/project/pull/7\npr_number: 7\n"
            "plan_title: Auth\nsteps:\n"
            + "\n".join(
                f"    - name: {name}\n      status: completed"
                for name in (
                    "read plan",
                    "generate branch",
                    "create worktree",
                    "run agent",
                    "commit and push",
                    "create pr",
                )
            )
        )
        assert stage.ok("verify") == ""

    @pytest.mark.long
    @pytest.mark.parametrize("is_elsewhere", [False, True])
    def test_it_keeps_its_title_and_its_branch(
        self, stage: Stage, tmp_path: Path, is_elsewhere: bool
    ) -> None:
        """Forge reads the plan again, and works in the worktree of the branch."""
        left = forge_run(stage, tmp_path)
        stage.checkout.write("plans/auth.md", "---\ntitle: Log in\n---\n")
        if not is_elsewhere:
            stage.checkout.git("worktree", "remove", "--force", str(left))
        stage.program("claude", "cat > plan.seen")
        stage.program(
            "gh",
            (
                f'printf "%s\\n" "$@" > "{tmp_path}/words"; '
                "echo https://example.org/ada/project/pull/7"
            ),
        )
        stage.ok("import", ".")
        done = stage.ckpt("resume", AUTH, "--trust")
        assert done.code == 0, done.err
        assert stage.remote.git("log", "-1", "--format=%s", "forge/auth") == "Log in"
        assert (tmp_path / "words").read_text().splitlines()[2:4] == ["--title", "Log in"]
        here = stage.checkout.git("rev-parse", "forge/auth")
        assert (here == stage.remote.git("rev-parse", "forge/auth")) is not is_elsewhere
        told = (
            f"HEAD is detached: the branch forge/auth is checked out in {left}; commits of the run"
        )
        assert (told in done.err) is is_elsewhere

    @pytest.mark.long
    def test_it_says_until_when_its_agent_is_not_asked_and_that_is_no_instant(
        self, stage: Stage, tmp_path: Path
    ) -> None:
        forge_run(stage, tmp_path)
        path = stage.checkout.path / f".forge/runs/{AUTH}.yaml"
        path.write_text(f"retry_at: soon\n{path.read_text()}")
        stage.program("claude", "cat > plan.seen")
        stage.program("gh", "echo https://example.org/ada/project/pull/7")
        stage.ok("import", ".")
        done = stage.ckpt("resume", AUTH, "--trust")
        assert (done.code, stage.calls) == (0, ["claude", "gh"]), done.err

    @pytest.mark.long
    def test_its_plan_cannot_be_read(self, stage: Stage, tmp_path: Path) -> None:
        left = forge_run(stage, tmp_path)
        stage.checkout.git("rm", "--quiet", "plans/auth.md")
        (left / "plans/auth.md").unlink()
        (left / "plans/auth.md").mkdir(parents=True)
        (left / "plans/auth.md/file").write_text("x")
        stage.program("claude", "cat > plan.seen")
        stage.ok("import", ".")
        done = stage.ckpt("resume", AUTH, "--trust")
        assert (done.code, stage.calls) == (20, [])
        assert (
            f"cannot read the plan: {stage.worktree(AUTH)}/plans/auth.md: Is a directory"
            in done.err
        )

    @pytest.mark.long
    def test_its_plan_is_not_here(self, stage: Stage, tmp_path: Path) -> None:
        left = forge_run(stage, tmp_path)
        stage.checkout.git("rm", "--quiet", "plans/auth.md")
        (left / "plans/auth.md").unlink()
        stage.program("claude", "cat > plan.seen")
        stage.program("gh", "echo https://example.org/ada/project/pull/7")
        assert "names 'plans/auth.md', which is not in the repository" in stage.ok("import", ".")
        done = stage.ckpt("resume", AUTH, "--trust")
        assert done.code == 20
        assert "the plan does not exist: plans/auth.md" in done.err
        assert f"create the file, then: git ckpt resume {AUTH} --accept-changes" in done.err
        assert stage.calls == []
        stage.checkout.write("plans/auth.md", "# Written again\n")
        done = stage.ckpt("resume", AUTH, "--accept-changes")
        assert done.code == 0, done.err
        assert stage.remote.git("show", "forge/auth:plan.seen") == "# Written again"
        assert stage.remote.git("log", "-1", "--format=%s", "forge/auth") == "Auth"

    @pytest.mark.long
    def test_an_agent_that_fails_again(self, stage: Stage, tmp_path: Path) -> None:
        forge_run(stage, tmp_path)
        stage.program("claude", 'echo "it\'s: no" >&2; exit 3')
        stage.ok("import", ".")
        assert stage.ckpt("resume", AUTH, "--trust").code == 20
        written = stage.ok("export", AUTH, "--format", "forge")
        assert "status: failed" in written
        error = "phase ''run agent'' failed: claude failed: exit code 3: it''s: no"
        assert f"    - name: run agent\n      status: failed\n      error: '{error}'\n" in written


@pytest.mark.long
def test_rlm_act_at_its_decomposition(stage: Stage) -> None:
    target = stage.checkout.path / ".rlm-act-checkpoints"
    target.mkdir()
    shutil.copy(SAMPLES / "rlm-act/6638940a-9f70-4e15-a671-c53b69f9a3f8.json", target)
    stage.program(
        "claude",
        (
            'cat > /dev/null; echo "$CKPT_PHASE" >> "$CALLS"; '
            '[ "$CKPT_PHASE" != implementation ] || echo x >> code'
        ),
    )
    stage.program("bd", 'echo "[]"')
    stage.ok("import", ".")
    run = stage.run()
    done = stage.ckpt(
        *("resume", run, "--trust", "--autonomy", "fully_autonomous"),
        *(
            "--input",
            "tests=true",
            "--input",
            "max_iterations=1",
            "--input",
            "pause=0s",
            "--input",
            "question=why?",
        ),
    )
    assert done.code == 0, done.err
    assert "names: the worktree starts from HEAD" in done.err  # the commit that the file names
    asked = [
        call
        for call in stage.calls
        if call in ("research", "decomposition", "tdd_planning", "multi_doc", "implementation")
    ]
    assert asked == ["decomposition", "tdd_planning", "multi_doc", "implementation"]
    assert {each.status for each in stage.events(run).values()} == {"complete"}
    written = json.loads(stage.ok("export", run, "--format", "rlm-act"))
    assert list(written) == ["id", "phase", "timestamp", "state", "errors", "git_commit"]
    assert written["phase"] == "implementation-complete"
    assert {
        name: each["status"] for name, each in written["state"]["phase_results"].items()
    } == dict.fromkeys(
        ("research", "decomposition", "tdd_planning", "multi_doc", "beads_sync", "implementation"),
        "complete",
    )
    assert loads_as_pipeline_state(written["state"])
    stage.ok("export", run, "--format", "rlm-act", "-o", "../back/")
    names = sorted(path.name for path in (stage.checkout.path.parent / "back").iterdir())
    assert len(names) == 6
    original = "6638940a-9f70-4e15-a671-c53b69f9a3f8.json"
    assert (stage.checkout.path.parent / "back" / original).read_bytes() == (
        target / original
    ).read_bytes()


def loads_as_pipeline_state(state: dict[str, object]) -> bool:
    """Return whether rlm-act's own loader accepts a state.

    It requires some keys, and knows a fixed set of words.
    """
    phases = (
        "research",
        "decomposition",
        "tdd_planning",
        "multi_doc",
        "beads_sync",
        "implementation",
    )
    statuses = ("pending", "in_progress", "complete", "partial", "failed")
    results = state["phase_results"]
    assert isinstance(results, dict)
    each_is_known = all(
        name in phases and each["phase_type"] == name and each["status"] in statuses
        for name, each in results.items()
    )
    current = state["current_phase"]
    return (
        bool(state["project_path"])
        and state["autonomy_mode"] in ("checkpoint", "batch", "fully_autonomous")
        and each_is_known
        and (current is None or current in phases)
    )


@pytest.mark.long
def test_quasar_in_its_second_cycle(stage: Stage) -> None:
    agents = (
        f'[agents.coder]\ncommand = "cat > /dev/null; echo fixed >> a; echo did"\n'
        f'[agents.reviewer]\ncommand = "cat > {stage.programs}/prompt; echo APPROVED: fine"\n'
    )
    stage.checkout.commit("agents", **{"gitckpt.toml": agents, "a": "base\n"})
    head = stage.checkout.head()
    text = (SAMPLES / "quasar/quasar-5r9x.cycle2.toml").read_text()
    for key, value in (
        ("git_sha", f"'{head}'"),
        ("base_commit_sha", f"'{head}'"),
        ("cycle_commits", f"['{head}']"),
    ):
        text = re.sub(rf"^{key} = .*$", f"{key} = {value}", text, flags=re.MULTILINE)
    stage.checkout.write("checkpoint.cleanup-deprecated.toml", text)
    stage.ok("import", ".")
    run = stage.run()
    assert stage.status(run) == "crashed"
    done = stage.ckpt(
        "resume", run, "--trust", "--input", "coder=coder", "--input", "reviewer=reviewer"
    )
    assert done.code == 0, done.err
    assert "[review] resumed from checkpoint: cycle 2, resolving_issues" in done.err
    assert (
        "f-" in (stage.programs / "prompt").read_text()
    )  # the findings get ids again, which the reviewer names
    lines = stage.ok("export", run, "--format", "quasar").splitlines()
    assert [line for line in lines if line.startswith(("cycle = ", "phase = "))][:2] == [
        "cycle = 3",
        "phase = 9",
    ]
    assert [line.partition(" ")[0] for line in lines[:19]] == [
        *(
            "version",
            "phase_id",
            "nebula_name",
            "created_at",
            "git_sha",
            "task_bead_id",
            "task_title",
            "cycle",
            "max_cycles",
            "phase",
        ),
        *(
            "total_cost_usd",
            "max_budget_usd",
            "coder_output",
            "review_output",
            "lint_output",
            "base_commit_sha",
            "cycle_commits",
        ),
        *("child_bead_ids", "refactored"),
    ]


@pytest.mark.long
def test_superpowers_at_the_right_task(stage: Stage) -> None:
    shutil.copytree(SAMPLES / "superpowers", stage.checkout.path / "conductor/tracks")
    stage.checkout.git("add", "--all")
    stage.checkout.commit("the track")
    stage.ok("import", ".")
    track = ("--track", "login_20260210")
    run = next(run for run in stage.runs() if "login" in run)
    assert (
        f"to see the next step: git ckpt step next --run {run}\n" in stage.ckpt("resume", run).err
    )
    assert stage.events(run) == {}
    assert stage.ok("step", "next", *track) == "EXECUTE\t1.3"
    stage.ok("step", "progress", "EXECUTE", *track, "--task", "1.3", "--task-status", "PASSED")
    path = stage.checkout.path / "conductor/tracks/login_20260210/metadata.json"
    before = json.loads(path.read_text())
    written = json.loads(stage.ok("export", "20260210", "--format", "superpowers"))
    record = written["loop_state"]["checkpoints"]["PARALLEL_EXECUTE"]
    assert (record["tasks_completed"], record["tasks_total"], record["last_task"]) == (
        6,
        35,
        "Task 1.3",
    )
    assert written["own_key"] == before["own_key"]
    assert list(written)[: len(before) - 1] == [key for key in before if key != "loop_state"]
    stage.ok("export", "20260210", "--format", "superpowers", "--output", str(path))
    again = stage.ckpt("export", "20260210", "--format", "superpowers", "--output", str(path))
    assert again.code == 0, again.err


def test_a_run_of_steps_that_began_here(stage: Stage) -> None:
    """The file keeps the keys that superpowers does not know."""
    stage.ok("step", "start", "PLAN", "--track", "login")
    stage.ok("step", "pass", "PLAN", "--track", "login")
    done = stage.ckpt("export", stage.run(), "--format", "superpowers")
    written = json.loads(done.out)
    assert (written["version"], written["track_id"], written["loop_state"]["iterations"]) == (
        3,
        "login",
        1,
    )
    told = [
        line.partition(" = ")[0].removeprefix("warning: not in the exported file: ")
        for line in done.err.splitlines()
    ]
    assert told == ["branch", "commit", "the history of the run: 1 earlier checkpoints"]


def test_a_nebula_is_only_shown(stage: Stage) -> None:
    shutil.copy(SAMPLES / "quasar/cicd.nebula.state.toml", stage.checkout.path)
    stage.ok("import", ".")
    done = stage.ckpt("resume", stage.run())
    assert done.code == 0, done.err
    assert "no pipeline drives" in done.err


@pytest.mark.parametrize("format_", ["quasar", "superpowers", "workflow"])
def test_what_is_nothing_for_a_format(stage: Stage, tmp_path: Path, format_: str) -> None:
    forge_run(stage, tmp_path)
    stage.ok("import", ".")
    done = stage.ckpt("export", AUTH, "--format", format_)
    assert (done.code, done.out) == (2, "")
    expected = "only imported" if format_ == "workflow" else "cannot export checkpoint"
    assert expected in done.err
