"""The pipeline plan-to-pr, from a plan to a pull request, and its failures.

The pushes are real; the agent is a script. The names FORGE-1 to FORGE-15 are those of the list
of behaviors that this pipeline must have. FORGE-16, the rounds with a reviewer who comments on
the pull request, has no counterpart: the pipeline ends once the pull request is open.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gitckpt import PhaseFailed, Pipeline, Store, UsageError
from gitckpt.durable.driver import driver
from gitckpt.durable.phases import options as plan
from gitckpt.durable.pipeline import definition as pipelines
from gitckpt.store.retention.maintenance import cleanup_runs
from gitckpt.store.store import checkpoints_of_store
from tests.conftest import Checkout, Clock
from tests.durable.stage import URL, Stage, normal, stage
from tests.stores import DAY, clock_of, open_store

__all__ = ["stage"]

PLAN = '---\ntitle: "Add a login"\n---\n\nWrite the file.\n'
PHASES = [
    "read plan",
    "generate branch",
    "create worktree",
    "run agent",
    "commit and push",
    "create pr",
]
DONE = [f"{phase}-{status}" for phase in PHASES for status in ("started", "complete")]


@pytest.fixture
def project(stage: Stage) -> Stage:
    stage.checkout.write("docs/My Plan.md", PLAN)
    return stage


def start(project: Stage, *options: str) -> tuple[int, str, str]:
    return project.ckpt("run", "docs/My Plan.md", *options)


class TestAPlanBecomesAPullRequest:
    """FORGE-1, 2, 3, 8, 12, 14: a run takes a plan to a pull request."""

    @pytest.mark.long
    def test_with_all_that_is_recorded_of_it(self, project: Stage) -> None:
        before = project.checkout.fingerprint()
        code, out, err = start(project)
        run = project.run()
        assert (code, out) == (0, f"{run}\n")
        assert err.splitlines()[-2:] == [
            f"run {run} is complete",
            "the run's worktree is removed: all its commits were pushed",
        ]
        assert project.labels(run) == ["run-started", *DONE, "run-complete"]
        newest = project.newest(run)
        assert newest.state == {
            "plan_path": "docs/My Plan.md",
            "plan_title": "Add a login",
            "plan_hash": hashlib.sha256(PLAN.encode()).hexdigest(),
            "branch": "forge/my-plan",
            "pr_url": URL,
            "pr_number": 42,
        }
        assert newest.pipeline is not None
        assert newest.pipeline.phases == tuple(PHASES)
        assert list(newest.pipeline.completed) == PHASES
        assert newest.pipeline.inputs == {
            "plan": "docs/My Plan.md",
            "agent": "claude",
            "pr": "gh pr create",
            "remote": "origin",
        }
        assert newest.branch == "forge/my-plan"
        assert project.calls == ["claude", "gh"]
        after = project.checkout.fingerprint()
        assert [after[key] for key in ("head", "index")] == [
            before[key] for key in ("head", "index")
        ]
        assert before["files"].items() <= after["files"].items()  # type: ignore[attr-defined]
        assert project.checkout.git("status", "--porcelain") == "?? docs/"
        assert project.checkout.git("rev-parse", "main") == before["refs"]["refs/heads/main"]  # type: ignore[index]

    @pytest.mark.long
    def test_what_is_pushed_is_the_agents_work_under_the_title_of_the_plan(
        self, project: Stage
    ) -> None:
        assert start(project)[0] == 0
        assert project.remote.refs() == {
            "refs/heads/forge/my-plan": project.checkout.git("rev-parse", "forge/my-plan")
        }
        log = project.remote.git("log", "--format=%s", "forge/my-plan")
        assert log == "Add a login\nfirst"
        assert (
            project.remote.git("show", "--format=", "--name-only", "forge/my-plan")
            == "feature\nplan-as-read"
        )
        assert project.remote.git("show", "forge/my-plan:plan-as-read") == PLAN.rstrip("\n")
        worktree = project.worktree(project.run())
        assert project.remote.git("show", "forge/my-plan:feature") == f"done in {worktree}"

    @pytest.mark.long
    def test_the_worktree_goes_on_success(self, project: Stage) -> None:
        assert start(project)[0] == 0
        assert not project.worktree(project.run()).exists()
        assert project.checkout.git("worktree", "list", "--porcelain").count("worktree ") == 1
        assert project.ckpt("verify").code == 0

    @pytest.mark.long
    def test_the_worktree_stays_where_something_of_it_was_not_pushed(self, project: Stage) -> None:
        project.program("gh", f"echo late > note\necho {URL}")
        code, _, err = start(project)
        worktree = project.worktree(project.run())
        assert (code, err.splitlines()[-1]) == (0, f"the run's worktree: {worktree}")
        assert (worktree / "note").read_text() == "late\n"

    def test_the_run_is_named_after_time_and_plan(self, project: Stage) -> None:
        before = datetime.now(UTC).replace(microsecond=0)
        assert start(project)[0] == 0
        found = re.fullmatch(r"(\d{8}-\d{6})-my-plan", project.run())
        assert found is not None
        named = datetime.strptime(found[1], "%Y%m%d-%H%M%S").replace(tzinfo=UTC)
        assert before <= named <= datetime.now(UTC)

    @pytest.mark.long
    def test_a_pull_request_that_is_there_already_counts(self, project: Stage) -> None:
        project.program("gh", f"echo 'a pull request already exists:' >&2\necho {URL} >&2\nexit 1")
        assert start(project)[0] == 0
        assert project.newest(project.run()).state["pr_number"] == 42

    @pytest.mark.long
    def test_agent_and_pull_request_are_commands_of_ones_own(self, project: Stage) -> None:
        project.program("other", 'printf "<%s>" "$@" > words')
        project.program(
            "hub", 'printf "<%s>" "$@" > "$CKPT_OUTPUT/words"; echo https://example.org/7'
        )
        assert (
            start(project, "-i", 'agent=other --model "of the \\"day\\""', "-i", "pr=hub open")[0]
            == 0
        )
        assert project.remote.git("show", "forge/my-plan:words") == '<--model><of the "day">'
        tree = project.checkpoint(project.run(), "create pr-complete").worktree
        assert tree is not None
        words = project.checkout.git("show", f"{tree.tree}:run/output/create-pr/words")
        assert words.startswith("<open><--title><Add a login><--body-file></")
        assert words.endswith("><--head><forge/my-plan>")
        assert project.newest(project.run()).state["pr_url"] == "https://example.org/7"


FAILING = [
    ("create worktree", "git branch forge/my-plan", "git branch -D forge/my-plan"),
    ("run agent", "claude", "claude"),
    ("commit and push", "git remote set-url origin nowhere", "git remote set-url origin {remote}"),
    ("create pr", "gh", "gh"),
]


class TestFailures:
    """FORGE-9, 11, 12: a failed run keeps its worktree, and resumes where it failed.

    The phases after the failure stay untouched.
    """

    @pytest.mark.long
    @pytest.mark.turns("phase", "breaks", "mends")
    @pytest.mark.parametrize(
        ("phase", "breaks", "mends"), FAILING, ids=[each[0] for each in FAILING]
    )
    def test_one_that_fails_is_resumed_there(
        self, project: Stage, phase: str, breaks: str, mends: str
    ) -> None:
        good = {
            name: (project.programs / name).read_text().partition('CALLS"\n')[2]
            for name in ("claude", "gh")
        }
        self._do(project, breaks, "exit 9")
        code, _, err = start(project)
        run, at = project.run(), PHASES.index(phase)
        assert code == 20
        who = "claude failed: " if phase == "run agent" else ""
        assert err.splitlines()[-2].startswith(f"error: phase '{phase}' failed: {who}exit code ")
        assert err.splitlines()[-1].startswith(f"hint: see more: git ckpt status {run}; ")
        assert err.endswith(f", then: git ckpt resume {run}\n")
        assert project.status(run) == "failed"
        assert [event.status for event in project.events(run).values()] == ["complete"] * at + [
            "failed"
        ] + ["pending"] * (5 - at)
        assert project.worktree(run).is_dir()
        calls = project.calls
        self._do(project, mends.format(remote=project.remote.path), good.get(mends, ""))
        assert project.ok("resume", run) == run
        assert project.labels(run) == [
            "run-started",
            *DONE[: 2 * at + 1],
            f"{phase}-failed",
            *DONE[2 * at :],
            "run-complete",
        ]
        assert project.calls[len(calls) :] == [
            name for name, number in (("claude", 3), ("gh", 5)) if number >= at
        ]
        assert not project.worktree(run).exists()
        assert (
            "feature" in project.remote.git("ls-tree", "--name-only", "forge/my-plan").splitlines()
        )

    def _do(self, project: Stage, what: str, script: str) -> None:
        if what.startswith("git "):
            project.checkout.git(*what.split()[1:])
        else:
            project.program(what, script)

    @pytest.mark.long
    def test_the_agent_is_read_like_the_others(self, project: Stage) -> None:
        said = (
            '{"type": "result", "result": "I did it.", "session_id": "s-1", '
            '"total_cost_usd": 0.25, "usage": {"input_tokens": 7}}'
        )
        project.program("claude", f"cat > feature; echo \"$*\" > words; echo '{said}'")
        _, _, err = start(project)
        assert "I did it." in err.splitlines()
        assert (
            project.remote.git("show", "forge/my-plan:words")
            == "-p --output-format stream-json --verbose"
        )
        attempt = project.checkpoint(project.run(), "run agent-complete").attempt
        assert attempt is not None
        assert json.loads(str(attempt.result)) == {
            "cost_usd": 0.25,
            "session": "s-1",
            "tokens": {"input": 7},
        }

    def test_an_agent_that_cannot_be_asked_ends_it_with_its_words(self, project: Stage) -> None:
        project.program("claude", "echo 'Invalid API key · Please run /login'; exit 1")
        code, _, err = start(project)
        assert (code, err.splitlines()[-2]) == (
            4,
            (
                "error: cannot use claude: claude failed: exit code 1: "
                "Invalid API key · Please run /login"
            ),
        )

    def test_an_agent_that_is_not_there(self, project: Stage) -> None:
        code, out, err = start(project, "-i", "agent=no-such-agent")
        assert (code, out, err.splitlines()[0]) == (
            4,
            "",
            "error: the agent is not installed: no-such-agent",
        )
        assert project.runs() == []

    @pytest.mark.long
    def test_an_agent_that_is_gone_by_then(self, project: Stage) -> None:
        project.program("claude", "exit 3")
        assert start(project)[0] == 20
        code, _, err = project.ckpt("resume", "--input", "agent=no-such-agent")
        error, hint = err.splitlines()[-2:]
        assert (code, error) == (4, "error: the agent is not installed: no-such-agent")
        assert hint.startswith("hint: install no-such-agent, then: git ckpt resume ")
        another = hint.partition("or use another agent: git ckpt ")[2].split()
        another[-1] = another[-1].replace("CLIENT", "cat >feature")
        assert project.ckpt(*another).code == 0

    @pytest.mark.long
    def test_a_limit_of_the_agent_is_waited_for(self, project: Stage) -> None:
        once = (
            '[ -e "$HOME/once" ] || { : > "$HOME/once"; echo "429: try again in 1 seconds"; '
            "exit 1; }"
        )
        project.program("claude", f"{once}; cat > feature")
        code, _, err = start(project)
        assert (code, err.count("limited: the next call is at ")) == (0, 1)
        limited = project.checkpoint(project.run(), "run agent-progress")
        assert limited.errors == ("claude failed: exit code 1: 429: try again in 1 seconds",)
        assert limited.state["retry_at"] > limited.timestamp
        assert "retry_at" not in project.newest(project.run()).state

    @pytest.mark.long
    def test_an_agent_that_changes_no_file_after_a_limit_has_failed(self, project: Stage) -> None:
        once = (
            '[ -e "$HOME/once" ] || { : > "$HOME/once"; echo "429: try again in 1 seconds"; '
            "exit 1; }"
        )
        project.program("claude", once)
        assert start(project)[0] == 20

    @pytest.mark.long
    def test_work_before_a_limit_counts_as_changed(self, project: Stage) -> None:
        once = (
            '[ -e "$HOME/once" ] || { : > "$HOME/once"; echo x > feature; '
            'echo "429: try again in 1 seconds"; exit 1; }'
        )
        project.program("claude", once)
        assert start(project)[0] == 0

    @pytest.mark.long
    def test_an_agent_that_changes_no_file_has_failed(self, project: Stage) -> None:
        project.program("claude", "cat > /dev/null; echo 'all is well'")
        code, _, err = start(project)
        run = project.run()
        assert (code, err.splitlines()[-2]) == (
            20,
            "error: phase 'run agent' produced no file changes",
        )
        assert project.newest(run).errors == ("phase 'run agent' produced no file changes",)
        assert project.worktree(run).is_dir()
        assert project.remote.refs() == {}

    @pytest.mark.long
    def test_an_agent_that_committed_its_work_itself_has_changed_files(
        self, project: Stage
    ) -> None:
        project.program("claude", "echo new > new; git add new; git commit --quiet -m mine")
        assert start(project)[0] == 0
        assert project.remote.git("log", "--format=%s", "forge/my-plan") == "mine\nfirst"

    @pytest.mark.long
    def test_what_the_first_attempt_of_the_agent_left_counts_as_changed(
        self, project: Stage
    ) -> None:
        project.program("claude", "echo half > half; exit 1")
        assert start(project)[0] == 20
        project.program("claude", "cat > /dev/null")
        assert project.ckpt("resume").code == 0
        assert project.remote.git("ls-tree", "--name-only", "forge/my-plan") == "README\nhalf"

    def test_a_plan_that_is_not_there(self, project: Stage) -> None:
        code, out, err = project.ckpt("run", "docs/none.md")
        path = project.checkout.path / "docs/none.md"
        assert (code, out, err) == (
            2,
            "",
            (
                f"error: cannot read {path}, the input plan: No such file or directory\n"
                "hint: name a readable file\n"
            ),
        )
        assert project.runs() == []

    def test_no_plan_at_all(self, project: Stage) -> None:
        hint = "hint: name a file: git ckpt run PLAN, or -i plan=PLAN"
        assert project.ckpt("run", "plan-to-pr") == (2, "", f"error: there is no plan\n{hint}\n")
        assert project.runs() == []

    def test_front_matter_without_an_end(self, project: Stage) -> None:
        project.checkout.write("docs/My Plan.md", "---\ntitle: x\n")
        code, _, err = start(project)
        assert (code, err.splitlines()[-2:]) == (
            20,
            [
                "error: the front matter of docs/My Plan.md has no end",
                "hint: end the front matter with a line ---, then start another run",
            ],
        )
        assert project.calls == []


class TestResume:
    """FORGE-4, 10, 13: a resumed run continues after its complete phases."""

    def test_a_run_that_is_not_there(self, project: Stage) -> None:
        code, out, err = project.ckpt("resume", "20270115-080000-none")
        assert (code, out) == (12, "")
        assert (
            err.splitlines()[0]
            == "error: no checkpoint, run or commit is named '20270115-080000-none'"
        )
        assert project.ckpt("status", "20270115-080000-none").code == 12

    @pytest.mark.long(but=["3", "6"])
    @pytest.mark.parametrize("done", [0, 1, 3, 5, 6])
    def test_phases_that_are_complete_are_not_done_again(self, project: Stage, done: int) -> None:
        """Each phase logs its name; the driver ends after `done` phases."""
        project.pipeline(
            *(
                f'{name}: echo "{name}" >> "$CALLS"; [ "$(wc -l < "$CALLS")" -ne {done + 1} ]'
                for name in PHASES
            )
        )
        code, _, _ = project.ckpt("run", "ci")
        run = project.run()
        assert code == (20 if done < 6 else 0)
        project_calls = project.calls
        assert project_calls == PHASES[: done + 1]
        again = project.ckpt("resume", run)
        assert again.code == (0 if done < 6 else 2)
        assert project.calls == project_calls + PHASES[done:]

    @pytest.mark.long
    def test_a_worktree_that_is_gone_is_made_again_with_the_work_in_it(
        self, project: Stage
    ) -> None:
        project.program("gh", "exit 1")
        assert start(project)[0] == 20
        worktree = project.worktree(project.run())
        shutil.rmtree(worktree)
        project.program(
            "gh", 'ls > "$CKPT_OUTPUT/there"; git log -1 --format=%s >> "$CKPT_OUTPUT/there"'
        )
        assert project.ckpt("resume").code == 0
        tree = project.checkpoint(project.run(), "create pr-complete").worktree
        assert tree is not None
        there = project.checkout.git("show", f"{tree.tree}:run/output/create-pr/there")
        assert there == "README\nfeature\nplan-as-read\nAdd a login"


class TestFrom:
    """FORGE-15: `--from` repeats a run from a phase."""

    @pytest.mark.parametrize("said", ["commit and push", "commit-and-push", "Commit_And PUSH"])
    def test_how_a_phase_may_be_written(self, said: str) -> None:
        assert (
            pipelines.read_preset("plan-to-pr", driver.OPTIONS).phase(said).name
            == "commit and push"
        )

    @pytest.mark.long
    def test_a_phase_and_all_after_it_are_done_again(self, project: Stage) -> None:
        assert start(project)[0] == 0
        assert project.ckpt("resume", project.run(), "--from", "Commit-and-push").code == 0
        assert project.calls == ["claude", "gh", "gh"]
        assert project.labels(project.run()) == [
            "run-started",
            *DONE,
            "run-complete",
            *DONE[8:],
            "run-complete",
        ]
        assert [event.attempts for event in project.events(project.run()).values()] == [
            1,
            1,
            1,
            1,
            2,
            2,
        ]

    @pytest.mark.long
    def test_the_first(self, project: Stage) -> None:
        project.program("claude", "echo more >> work")
        assert start(project)[0] == 0
        assert project.ckpt("resume", project.run(), "--from", "read plan").code == 0
        assert project.calls == ["claude", "gh", "claude", "gh"]

    @pytest.mark.long
    def test_errors_are_cleared(self, project: Stage) -> None:
        project.program("gh", "exit 1")
        assert start(project)[0] == 20
        project.program("gh", "true")
        assert project.ckpt("resume", "--from", "create pr").code == 0
        assert [event.errors for event in project.events(project.run()).values()] == [()] * 6

    @pytest.mark.long
    def test_one_that_is_not_there(self, project: Stage) -> None:
        assert start(project)[0] == 0
        code, out, err = project.ckpt("resume", project.run(), "--from", "poll cr")
        listing = ", ".join(PHASES)
        assert (code, out, err) == (
            2,
            "",
            f"error: the pipeline plan-to-pr has no phase 'poll cr'\nhint: phases: {listing}\n",
        )


class TestRuns:
    """FORGE-5: `git ckpt runs` lists the runs, newest first."""

    def test_none(self, project: Stage) -> None:
        done = project.ckpt("runs")
        assert done == (
            0,
            "",
            "no runs yet; to start one: git ckpt run PIPELINE, or git ckpt start NAME\n",
        )

    @pytest.mark.long
    def test_the_newest_comes_first(self, project: Stage) -> None:
        project.ok("start", "b")
        project.ok("start", "a")
        assert start(project)[0] == 0
        assert [run[16:] for run in project.runs()] == ["my-plan", "a", "b"]
        newest = "STAMP-my-plan\tcomplete\trun-complete\tTIME\tforge/my-plan\t-"
        assert normal(project.ok("runs"), project).splitlines()[0] == newest


class TestRetention:
    """FORGE-6: complete runs expire after 168 hours, incomplete runs never."""

    def past(
        self, checkout: Checkout, label: str, name: str, days: float, pipeline: str = "plan-to-pr"
    ) -> str:
        """Make a run that is some days old."""
        clock = Clock(step=1)
        with Store.open(checkout.path, adapter="plumbing") as now:
            clock.instant = clock_of(now)() - round(days * DAY)
        with (
            Store.open(checkout.path, adapter="plumbing") as here,
            open_store(str(here.worktree), clock=clock) as then,
        ):
            said = Pipeline(name=pipeline, phases=tuple(PHASES))
            first = then.record("run-started", {}, start=name, trigger="phase", pipeline=said)
            then.record(label, {}, run=first.run, trigger="phase", pipeline=said)
        return str(first.run)

    @pytest.mark.long
    def test_a_run_takes_older_ones_of_its_pipeline_with_it(self, project: Stage) -> None:
        old = self.past(project.checkout, "run-complete", "old", 7.1)
        kept = [
            self.past(project.checkout, "run agent-failed", "failed", 30),
            self.past(project.checkout, "run agent-started", "active", 31),
            self.past(project.checkout, "run-complete", "recent", 6.9),
            self.past(project.checkout, "run-complete", "other", 32, pipeline="ci"),
        ]
        assert start(project)[0] == 0
        newest, *others = project.runs()
        assert newest.endswith("-my-plan")
        assert (sorted(others), old in others) == (sorted(kept), False)
        assert project.ckpt("verify").code == 0

    def test_by_hand(self, project: Stage) -> None:
        old = self.past(project.checkout, "run-complete", "old", 2)
        with project.store() as store:
            assert (
                cleanup_runs(
                    checkpoints_of_store(store), pipeline="plan-to-pr", older_than=3 * DAY
                ).removed_runs
                == ()
            )
            assert cleanup_runs(
                checkpoints_of_store(store), pipeline="plan-to-pr", older_than=DAY
            ).removed_runs == (old,)
        assert project.runs() == []


BOTH = {
    "auth.md": "auth",
    "docs/plans/My Cool Feature.md": "my-cool-feature",
    "UPPER-case": "upper-case",
    ".md": "unnamed",
    "": "unnamed",
    "-x-.md": "x",
    "a.b.md": "a-b",
}


NEWER = {
    "hello_world.txt": "hello-world",
    "special!@#chars": "special-chars",
    "a - b.md": "a---b",
    "日本.md": "unnamed",
    "v1.2.md": "v1-2",
}


TITLES = {
    "auth.md": "Auth",
    "add-user_login.md": "Add User Login",
    "docs/My Cool Feature.md": "My Cool Feature",
    "--.md": "Unnamed",
}


FRONT_MATTER = {
    "---\ntitle: Add login\n---\ntext": "Add login",
    "---\nauthor: x\ntitle: 'Add: login'\n---": "Add: login",
    '---\ntitle: "Add login"\n---\n': "Add login",
    "---\ntitle:\n---\n": "A Plan",
    "---\n---\ntext": "A Plan",
    "text\n---\ntitle: x\n---\n": "A Plan",
    "": "A Plan",
}


class TestNames:
    """FORGE-7: a run of other characters becomes one hyphen.

    Forge had two rules; this is the newer one.
    """

    @pytest.mark.parametrize(("path", "slug"), [*BOTH.items(), *NEWER.items()])
    def test_slugs(self, path: str, slug: str) -> None:
        assert plan.make_branch_slug(path) == slug

    @pytest.mark.parametrize(("path", "title"), TITLES.items())
    def test_titles_from_file_names(self, path: str, title: str) -> None:
        assert plan.find_plan_title("# A heading is no title\n", path) == title

    @pytest.mark.parametrize(("text", "title"), FRONT_MATTER.items())
    def test_titles_from_front_matter(self, text: str, title: str) -> None:
        assert plan.find_plan_title(text, "a-plan.md") == title

    def test_front_matter_without_an_end(self) -> None:
        with pytest.raises(PhaseFailed) as caught:
            plan.find_plan_title("---\ntitle: x\n", "p.md")
        assert caught.value.message == "the front matter of p.md has no end"


def test_the_phases_go_by_the_names_that_people_know() -> None:
    definition = pipelines.read_preset("plan-to-pr", driver.OPTIONS)
    assert [phase.name for phase in definition.phases] == PHASES
    assert [definition.phase(name.replace(" ", "-").upper()).name for name in PHASES] == PHASES
    with pytest.raises(UsageError):
        definition.phase("step 1")


def test_a_branch_of_somebody_else_is_not_touched(project: Stage) -> None:
    theirs = project.checkout.git("rev-parse", "HEAD")
    project.checkout.git("branch", "forge/my-plan")
    code, _, err = start(project)
    assert code == 20
    told = (
        "the branch forge/my-plan is there already, and no run made it: "
        "rename it (git branch -m forge/my-plan NEW)"
    )
    assert f"{told}, then resume\n" in err
    assert project.checkout.git("rev-parse", "forge/my-plan") == theirs


@pytest.mark.long
def test_a_second_run_of_the_same_plan_does_not_take_the_branch_of_the_first(
    project: Stage,
) -> None:
    assert start(project)[0] == 0
    first = project.run()
    work = project.checkout.git("rev-parse", "forge/my-plan")
    code, _, err = start(project)
    told = (
        f"the branch forge/my-plan is of run {first}: go on with that (git ckpt resume "
        f"{first}), or rename it (git branch -m "
    )
    assert code == 20
    assert f"{told}forge/my-plan NEW), then resume" in next(
        line for line in err.splitlines() if line.startswith("error: ")
    )
    assert project.checkout.git("rev-parse", "forge/my-plan") == work
    second = project.runs()[0]
    assert Path(project.checkout.path, ".ckpt/worktrees", second).is_dir()
    project.checkout.git("branch", "-m", "forge/my-plan", "old")
    project.remote.git("update-ref", "-d", "refs/heads/forge/my-plan")
    assert project.ckpt("resume", second).code == 0
    assert project.checkout.git("rev-parse", "old") == work
