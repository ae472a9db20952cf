"""`git ckpt run`, `resume` and other commands print and record runs.

The others are `runs`, `status`, `start`, `finish` and `cancel`.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Ckpt
from tests.durable.command.commanding import ends
from tests.durable.stage import Outcome, Stage, Talk, normal, stage
from tests.stores import PRESETS, preset_text

__all__ = ["stage"]

WAITS = 'echo $$ > "$CALLS.pid"; echo work > work; sleep 60 & echo $! > "$CALLS.other"; wait'
"""A phase that writes a file and then waits."""


def told(done: Outcome, stage: Stage) -> tuple[int, str, str]:
    """Return the result of a command without variable parts."""
    return done.code, normal(done.out, stage), normal(done.err, stage)


def waiting(stage: Stage) -> subprocess.Popen[str]:
    """Start a run with a long phase; return its driver when the phase has begun."""
    stage.pipeline(f"one: {WAITS}", "two: true")
    driver = stage.begin("run", "ci")
    stage.waits_for(*(Path(f"{stage.env['CALLS']}.{name}") for name in ("pid", "other")))
    return driver


def children(stage: Stage) -> list[int]:
    return [int(Path(f"{stage.env['CALLS']}.{name}").read_text()) for name in ("pid", "other")]


class TestRun:
    def test_complete(self, stage: Stage) -> None:
        stage.pipeline("one: echo out; echo err >&2; printf 'no end'", "two: true")
        assert told(stage.ckpt("run", "ci"), stage) == (
            0,
            "STAMP-ci\n",
            (
                "[1/2] one\n"
                "out\nerr\nno end\n"
                "      one: complete after 0.0s\n"
                "[2/2] two\n"
                "      two: complete after 0.0s\n"
                "run STAMP-ci is complete\n"
                "the run's worktree: TOP/.ckpt/worktrees/STAMP-ci\n"
            ),
        )

    def test_names_the_files_that_are_not_in_it(self, stage: Stage) -> None:
        stage.pipeline("one: true", top="inputs = { plan = '' }\nfiles = ['plan']")
        stage.checkout.write("dir/plan.md", "copied\n")
        clean = stage.ckpt("run", "ci", "-i", "plan=dir/plan.md")
        assert (clean.code, clean.err.splitlines()[0]) == (0, "[1/1] one")
        head = stage.checkout.git("rev-parse", "HEAD")
        stage.checkout.write("README", "changed\n")
        for name in ("dir/a", "dir/b", "dir/c"):
            stage.checkout.write(name, "new\n")
        done = stage.ckpt("run", "ci", "-i", "plan=dir/plan.md")
        assert done.err.splitlines()[0] == (
            f"warning: the run starts from commit {head[:8]}, without 4 uncommitted files (README, "
            "dir/a, dir/b and 1 more); to include them, commit them first"
        )

    @pytest.mark.parametrize("is_committed", [True, False])
    def test_names_the_command_that_brings_its_work_here(
        self, stage: Stage, is_committed: bool
    ) -> None:
        commit = "git add b; git commit --quiet --message b" if is_committed else "git add b"
        stage.pipeline("one: git switch --quiet --create topic", f"two: touch b; {commit}")
        done = stage.ckpt("run", "ci")
        line = next(line for line in done.err.splitlines() if " is complete; " in line)
        command = line.partition("to bring its work here: ")[2]
        assert command.startswith("git merge topic" if is_committed else "git ckpt diff --binary ")
        command = command.replace("git ckpt", f"{sys.executable} -m gitckpt")
        subprocess.run(["sh", "-ec", command], cwd=stage.checkout.path, env=stage.env, check=True)
        assert (stage.checkout.path / "b").exists()
        assert (stage.checkout.path / "gitckpt.toml").exists()

    def test_quiet(self, stage: Stage) -> None:
        stage.pipeline("one: echo out", "two: true")
        assert told(stage.ckpt("--quiet", "run", "ci"), stage) == (0, "STAMP-ci\n", "out\n")

    def test_failed(self, stage: Stage) -> None:
        stage.pipeline("one: echo first; echo why >&2; exit 3", "two: true")
        assert told(stage.ckpt("run", "ci"), stage) == (
            20,
            "STAMP-ci\n",
            (
                "[1/2] one\n"
                "first\nwhy\n"
                "      one: failed after 0.0s\n"
                "error: phase 'one' failed: exit code 3: why\n"
                "hint: see more: git ckpt status STAMP-ci; to continue, edit the files in "
                "TOP/.ckpt/worktrees/STAMP-ci, then: git ckpt resume STAMP-ci\n"
            ),
        )

    def test_what_is_said_of_a_failure_is_its_error_and_not_the_advice_after_it(
        self, stage: Stage
    ) -> None:
        stage.pipeline(
            "one: echo said; echo 'fatal: no remote' >&2; echo 'and please' >&2; echo 'try "
            "again' >&2; exit 128"
        )
        assert (
            stage.ckpt("run", "ci").err.splitlines()[-2]
            == "error: phase 'one' failed: exit code 128: fatal: no remote"
        )

    @pytest.mark.long
    @pytest.mark.parametrize(
        "harm",
        [
            "rm -r $HERE",
            "mv $HERE ../moved",
            "rm -r $HERE; echo > $HERE",
            "git worktree remove -f -f $HERE",
        ],
    )
    def test_a_phase_that_takes_its_worktree_away_is_told_so(self, stage: Stage, harm: str) -> None:
        begins = "test -e again || { HERE=$PWD; cd $(git rev-parse --git-common-dir)"
        stage.pipeline(f"one: {begins}; {harm}; }}", "two: true")
        code, out, err = told(stage.ckpt("run", "ci"), stage)
        assert (code, out) == (14, "STAMP-ci\n")
        assert "warning: cannot record one-complete: cannot " in err
        assert (
            "error: cannot run a command in TOP/.ckpt/worktrees/STAMP-ci: no such directory\n"
            "hint: recreate the worktree: "
        ) in err
        stage.pipeline("one: true", "two: true")
        if "echo" in harm:
            next((stage.checkout.path / ".ckpt" / "worktrees").iterdir()).unlink()
        assert stage.ckpt("resume", "--accept-changes").code == 0

    def test_blocked(self, stage: Stage) -> None:
        stage.pipeline("my phase: exit 4")
        code, _, err = told(stage.ckpt("run", "ci"), stage)
        assert (code, err.splitlines()[-3:]) == (
            4,
            [
                "      my phase: blocked after 0.0s",
                "error: phase 'my phase' is blocked: exit code 4",
                "hint: solve the problem, then: git ckpt resume STAMP-ci --from 'my phase'",
            ],
        )
        assert stage.status(stage.run()) == "blocked"

    def test_asks_to_be_tried_later(self, stage: Stage) -> None:
        stage.pipeline("one: exit 75")
        assert told(stage.ckpt("run", "ci"), stage) == (
            20,
            "STAMP-ci\n",
            (
                "[1/1] one\n"
                "      one: partial after 0.0s\n"
                "paused at phase one, which asks to be tried again later; to continue: git ckpt "
                "resume STAMP-ci\n"
            ),
        )
        assert stage.status(stage.run()) == "paused"

    def test_pauses(self, stage: Stage) -> None:
        stage.pipeline("one: true", "two: true")
        code, out, err = told(stage.ckpt("run", "ci", "--autonomy", "checkpoint"), stage)
        assert (code, out) == (0, "STAMP-ci\n")
        assert (
            err.splitlines()[-1] == "paused after phase one; to continue: git ckpt resume STAMP-ci"
        )
        assert stage.status(stage.run()) == "paused"

    def test_retries_are_shown(self, stage: Stage) -> None:
        stage.pipeline(
            'one: [ "$CKPT_ATTEMPT" = 2 ]', more="retries = { attempts = 1, delay = '0s' }\n"
        )
        said = told(stage.ckpt("run", "ci"), stage)[2].splitlines()
        assert said[:3] == ["[1/1] one", "[1/1] one (attempt 2)", "      one: complete after 0.0s"]

    @pytest.mark.long
    def test_output_is_passed_on_byte_for_byte_and_its_end_is_kept(self, stage: Stage) -> None:
        stage.program(
            "agent", "printf '\\033[31mred\\377\\n'; yes line | head -c 3000000; echo; echo the end"
        )
        stage.pipeline("one: agent")
        done = stage.ckpt("run", "ci")
        assert done.code == 0
        head, red, rest = done.err.partition("\x1b[31mred\udcff\n")
        assert (head, red) == ("[1/1] one\n", "\x1b[31mred\udcff\n")
        assert rest.startswith("line\n" * 600_000 + "\nthe end\n")
        attempt = stage.checkpoint(stage.run(), "one-complete").attempt
        assert attempt is not None
        assert attempt.output is not None
        assert attempt.output.endswith("line\n\nthe end\n")
        assert len(attempt.output) <= 16 * 1024

    def test_on_a_terminal_a_long_phase_shows_its_time_and_cuts_no_line(self, stage: Stage) -> None:
        script = (
            "from gitckpt.cli.driver import TerminalObserver as T; "
            "t = T(); t.begins('one', 2, 1, 3); "
            "t.tick(2.0); t.tick(3.0); t.output(b'abc'); t.tick(4.0); t.output(b'def\\n'); "
            "t.tick(187.0); t.output(b'end'); t.ended('one', 'complete', 7501.0)"
        )
        talk = Talk(stage, argv=[sys.executable, "-c", script])
        assert talk.ends() == 0
        talk.close()
        assert talk.said == (
            "[1/3] one (attempt 2)\n\r\x1b[K… one: 3.0s\r\x1b[Kabcdef\n"
            "\r\x1b[K… one: 3m07s\r\x1b[Kend\n      one: complete after 2h05m\n"
        )

    def test_an_agent_that_crashes(self, stage: Stage) -> None:
        stage.program("agent", "echo half > half; kill -SEGV $$")
        stage.pipeline("one: exec agent")
        code, _, err = stage.ckpt("run", "ci")
        assert (code, err.splitlines()[-2]) == (20, "error: phase 'one' failed: signal 11")
        assert "half" in stage.files(stage.newest(stage.run()))

    @pytest.mark.long
    @pytest.mark.sampled(2)
    @pytest.mark.parametrize(
        ("limit", "words"),
        [
            ("timeout", "the command took more than 1s"),
            ("idle_timeout", "the command printed nothing for more than 1s"),
        ],
    )
    def test_an_agent_that_hangs(self, stage: Stage, limit: str, words: str) -> None:
        stage.pipeline(f"one: {WAITS}", more=f"{limit} = '1s'\n")
        code, _, err = stage.ckpt("run", "ci")
        assert (code, err.splitlines()[-2]) == (20, f"error: phase 'one' was ended: {words}")
        assert ends(*children(stage))

    @pytest.mark.long
    def test_a_run_that_takes_too_long(self, stage: Stage) -> None:
        stage.pipeline(f"one: {WAITS}")
        done = stage.ckpt("run", "ci", "--timeout", "1s")
        run = stage.run()
        assert done.code == 20
        assert done.err.splitlines()[-2:] == [
            "error: phase 'one' was ended: the run reached its deadline",
            f"hint: to give it more time: git ckpt resume {run} --timeout 1h",
        ]
        late = stage.ckpt("resume")
        assert (late.code, late.err.splitlines()[-1]) == (
            20,
            f"hint: to give it more time: git ckpt resume {run} --timeout 1h",
        )
        stage.pipeline("one: true")
        assert stage.ckpt("resume", "--timeout", "1h", "--accept-changes").code == 0

    def test_it_begins_where_it_is_told_to(self, stage: Stage) -> None:
        first = stage.checkout.git("rev-parse", "HEAD")
        stage.checkout.commit("second", more="x")
        stage.pipeline('one: ls > "$CALLS"; git rev-parse HEAD >> "$CALLS"')
        assert stage.ckpt("run", "ci", "--base", "HEAD~1").code == 0
        assert stage.calls == ["README", first]

    def test_what_a_phase_finds(self, stage: Stage) -> None:
        stage.pipeline(
            (
                'one: env | grep "^CKPT_\\|^OURS" | sort > "$CALLS"\n'
                'pwd > "$CALLS.pwd"; echo k=v >> "$CKPT_SET"; cat > "$CALLS.in"'
            ),
            'two: echo "$CKPT_STATE_K $CKPT_PHASE" >> "$CALLS"',
            top="env = { OURS = 'yes' }\ninputs = { q = 'a b' }",
        )
        done = stage.ckpt(
            "run",
            "ci",
            env={
                "CKPT_RUN": "other",
                "CKPT_STATE_OLD": "x",
                "GIT_DIR": str(stage.checkout.path / ".git"),
            },
        )
        assert done.code == 0, done.err
        run = stage.run()
        files, git_dir = (
            stage.checkout.path / ".ckpt/runs" / run,
            (stage.checkout.path / ".git").stat(),
        )
        assert stage.calls == [
            "CKPT_ATTEMPT=1",
            "CKPT_INPUT_Q=a b",
            "CKPT_LEASE=1",
            f"CKPT_OUTPUT={files}/output/one",
            "CKPT_PHASE=one",
            f"CKPT_REPOSITORY={git_dir.st_dev}:{git_dir.st_ino}",
            "CKPT_REVISION=",
            f"CKPT_RUN={run}",
            f"CKPT_SET={files}/set",
            f"CKPT_STATE={files}/state.json",
            "OURS=yes",
            "v two",
        ]
        assert Path(f"{stage.env['CALLS']}.pwd").read_text() == f"{stage.worktree(run)}\n"
        assert Path(f"{stage.env['CALLS']}.in").read_text() == ""

    @pytest.mark.sampled(2)
    @pytest.mark.parametrize(
        ("script", "said"),
        [
            ('echo "{" > "$CKPT_STATE"', "CKPT_STATE is not JSON: "),
            ('echo "[]" > "$CKPT_STATE"', "CKPT_STATE is a JSON list, not an object"),
            ('rm "$CKPT_STATE"', "state.json: No such file or directory"),
            ('echo "word" > "$CKPT_SET"', "'word' in CKPT_SET is not key=value"),
            ('echo "n:=soon" > "$CKPT_SET"', "'n:=soon' in CKPT_SET is not key:=JSON: "),
            ('echo "n<gone" > "$CKPT_SET"', "gone: No such file or directory"),
        ],
    )
    def test_a_state_that_is_none(self, stage: Stage, script: str, said: str) -> None:
        stage.pipeline(f"one: {script}")
        code, _, err = stage.ckpt("run", "ci")
        assert code == 20
        assert err.splitlines()[-2].startswith("error: phase 'one' failed: ")
        assert said in err.splitlines()[-2]

    def test_a_state_belongs_to_a_phase_that_succeeds(self, stage: Stage) -> None:
        stage.pipeline('one: echo a=1 >> "$CKPT_SET"', 'two: echo b=2 >> "$CKPT_SET"; exit 1')
        assert stage.ckpt("run", "ci").code == 20
        assert stage.newest(stage.run()).state == {"a": "1"}


class TestDryRun:
    def test_whole(self, stage: Stage) -> None:
        stage.pipeline(
            "one: set -e\necho 'a'",
            "two: true",
            top="inputs = { q = '', r = 'x' }",
            more=(
                "timeout = '90s'\nidle_timeout = '30m'\nretries = 2\ngroup = 'g'\n"
                "autosave = '0s'\nskip_with = ['q']\n"
            ),
        )
        before = stage.checkout.fingerprint()
        assert told(stage.ckpt("run", "ci", "--dry-run", "--autonomy", "Batch"), stage) == (
            0,
            (
                "pipeline ci, batch, from TOP/gitckpt.toml\n"
                "input q = \n"
                "input r = x\n"
                "1. one\n"
                "   | set -e\n"
                "   | echo 'a'\n"
                "   autosave 5m\n"
                "2. two\n"
                "   | true\n"
                "   timeout 90s, idle timeout 30m, retries 2, group g\n"
            ),
            "",
        )
        skips = told(stage.ckpt("run", "ci", "-n", "-i", "q=how?"), stage)[1].splitlines()[-2:]
        assert skips == ["2. two", "   skipped: q is given: how?"]
        assert stage.checkout.fingerprint() == before

    @pytest.mark.parametrize("value", ["how?\nand why?", "x" * 2000])
    def test_a_phase_that_is_skipped_for_a_long_input(self, stage: Stage, value: str) -> None:
        text = (
            '[pipelines.ci.inputs]\nq = ""\n[[pipelines.ci.phases]]\nname = "a"\n'
            'run = "false"\nskip_with = ["q"]\n'
        )
        stage.checkout.write("gitckpt.toml", text)
        assert stage.ckpt("run", "ci", "-i", f"q={value}").code == 0
        message = stage.checkpoint(stage.run(), "a-skipped").message
        assert message == f"q is given: {value}".replace("\n", " ")[:999] + (
            "…" if len(value) > 1000 else ""
        )

    def test_a_plan(self, stage: Stage) -> None:
        stage.checkout.write("plan.md", "x\n")
        said = stage.ok("run", "plan.md", "-n").splitlines()
        assert said[:5] == [
            "pipeline plan-to-pr, fully_autonomous, from preset",
            "input plan = plan.md",
            "input agent = claude",
            "input pr = gh pr create",
            "input remote = origin",
        ]
        assert said[5:9] == [
            "1. read plan",
            "   | (gitckpt itself: read plan)",
            "2. generate branch",
            "   | (gitckpt itself: generate branch)",
        ]

    @pytest.mark.parametrize("name", PRESETS)
    def test_print(self, stage: Stage, name: str) -> None:
        assert stage.ckpt("run", "--print", name) == (0, preset_text(name), "")

    @pytest.mark.parametrize("name", ["ci", "plan.md", "loop"])
    def test_a_table_that_is_called_almost_like_that_of_pipelines_is_a_mistake(
        self, stage: Stage, name: str
    ) -> None:
        stage.checkout.write("plan.md", "x\n")
        stage.checkout.write("gitckpt.toml", '[[pipeline.ci.phases]]\nname = "a"\nrun = "true"\n')
        done = stage.ckpt("run", name, "-i", "until_tests_pass=yes")
        assert (done.code, done.out) == (2, "")
        assert done.err.startswith(
            "error: gitckpt.toml:1: unknown key 'pipeline' in the file\nhint: correct it: "
        )
        assert done.err.endswith(" (did you mean pipelines?)\n")

    def test_a_loop_without_a_plan_does_not_start(self, stage: Stage) -> None:
        done = stage.ckpt("run", "loop", "-i", "until_tests_pass=yes")
        assert done == (
            2,
            "",
            "error: phase 'implementation' needs the input plan\nhint: add: -i plan=PATH\n",
        )
        assert stage.runs() == []

    def test_an_agent_that_an_earlier_phase_installs(self, stage: Stage) -> None:
        stage.checkout.write("plan.md", "x\n")
        ask = (
            '[[pipelines.ci.phases]]\nname = "ask"\nuse = "agent"\n'
            'with = { agent = "late", prompt = "plan.md" }\n'
        )
        stage.pipeline(f"install: ln -s /bin/cat {stage.programs}/late", more=ask)
        stage.checkout.git("add", ".")
        stage.checkout.git("commit", "--quiet", "--message=plan")
        done = stage.ckpt("run", "ci")
        assert done.code == 0, done.err


OFFERED = ", ".join(f"{name} (preset)" for name in PRESETS)

MISTAKES = [
    (
        ("run", "nope"),
        12,
        "there is no pipeline 'nope'",
        f"pipelines: ci, {OFFERED}; define others in gitckpt.toml",
    ),
    (
        ("run", "rlm"),
        12,
        "there is no pipeline 'rlm'",
        f"did you mean rlm-act? pipelines: ci, {OFFERED}; define others in gitckpt.toml",
    ),
    (
        ("run", "ci", "-i", "x"),
        2,
        "the input 'x' is not NAME=VALUE",
        'write an input as: -i question="what is it?"',
    ),
    (
        ("run", "ci", "-i", "=x"),
        2,
        "the input '=x' is not NAME=VALUE",
        'write an input as: -i question="what is it?"',
    ),
    (("run", "ci", "-i", "x=1"), 2, "the pipeline ci has no input 'x'", "inputs: none"),
    (
        ("run", "ci", "--autonomy", "batched"),
        2,
        "'batched' is not a mode of autonomy",
        "did you mean batch?",
    ),
    (
        ("run", "ci", "--timeout", "5"),
        2,
        "'5' is not an age",
        "write a number and a unit: 90s, 30m, 12h, 7d or 2w",
    ),
    (
        ("run", "ci", "--base", "nope"),
        12,
        "no commit is named 'nope'",
        "name a branch, a tag or a commit: git log --oneline --all",
    ),
    (
        ("run", "ci", "--base", "-x"),
        12,
        "no commit is named '-x'",
        "name a branch, a tag or a commit: git log --oneline --all",
    ),
    (("run",), 2, "PIPELINE|PLAN.md is missing", "see: git ckpt run --help"),
    (
        ("run", "--print", "ci"),
        12,
        "there is no preset 'ci'",
        f"presets: {', '.join(PRESETS)}",
    ),
    (
        ("resume", "x"),
        12,
        "no checkpoint, run or commit is named 'x'",
        "give at least 4 characters of an id, or list the checkpoints: git ckpt list",
    ),
    (
        ("resume", "latest", "--fork", "--rewind"),
        12,
        "there are no checkpoints yet",
        "save a checkpoint: git ckpt save",
    ),
    (
        ("runs", "--status", "dead"),
        2,
        "there is no status 'dead'",
        "use one of running, stalled, crashed, failed, blocked, paused, complete, open",
    ),
    (
        ("status",),
        12,
        "there are no runs yet",
        "start one: git ckpt run PIPELINE, or git ckpt start NAME",
    ),
    (("status", "x"), 12, "no run is named 'x'", "list the runs: git ckpt runs"),
    (("finish",), 2, "this worktree belongs to no run", "name a run; to list runs: git ckpt runs"),
    (("finish", "x"), 12, "no run is named 'x'", "list the runs: git ckpt runs"),
    (("cancel", "x"), 12, "no run is named 'x'", "list the runs: git ckpt runs"),
    (("cancel",), 2, "RUN is missing", "see: git ckpt cancel --help"),
    (
        ("start", "--base", "nope"),
        12,
        "no commit is named 'nope'",
        "name a branch, a tag or a commit: git log --oneline --all",
    ),
]


class TestMistakes:
    def test_all_of_a_file_are_named_with_their_lines(self, stage: Stage) -> None:
        stage.checkout.write(
            "gitckpt.toml",
            (
                "[[pipelines.ci.phases]]\nname = ''\nrum = 'x'\n\n[[pipelines.ci.phases]]\n"
                "name = 'a'\nrun = 'b'\ntimeout = 'soon'\n"
            ),
        )
        assert told(stage.ckpt("run", "ci"), stage) == (
            2,
            "",
            (
                "error: gitckpt.toml: 4 mistakes\n"
                "  gitckpt.toml:1: phase '' has no command (add run = \"COMMAND\")\n"
                "  gitckpt.toml:2: the name of phase '' is empty\n"
                "  gitckpt.toml:3: unknown key 'rum' in phase '' (did you mean run?)\n"
                "  gitckpt.toml:8: timeout in phase 'a': 'soon' is not a duration (write a number "
                "and a unit: 90s, 30m, 12h, 7d or 2w)\n"
                "hint: correct them: TOP/gitckpt.toml\n"
            ),
        )
        assert stage.runs() == []

    @pytest.mark.parametrize(
        ("words", "code", "message", "hint"), MISTAKES, ids=[" ".join(each[0]) for each in MISTAKES]
    )
    def test_nothing_begins(
        self, stage: Stage, ckpt: Ckpt, words: tuple[str, ...], code: int, message: str, hint: str
    ) -> None:
        stage.pipeline("one: true")
        before = stage.checkout.fingerprint()
        assert ckpt(*words, at=stage.checkout) == (code, "", f"error: {message}\nhint: {hint}\n")
        assert stage.checkout.fingerprint() == before

    def test_a_directory_that_is_no_repository(self, ckpt: Ckpt, tmp_path: Path) -> None:
        for words in (["run", "ci"], ["runs"], ["status"], ["start"], ["finish"], ["cancel", "x"]):
            assert ckpt(*words, at=tmp_path).code == 10


def test_help_names_every_option(ckpt: Ckpt) -> None:
    for command, options in {
        "run": ["--input", "--base", "--autonomy", "--timeout", "--dry-run", "--print"],
        "resume": [
            "--no-run",
            "--into",
            "--from",
            "--fork",
            "--rewind",
            "--accept-changes",
            "--autonomy",
            "--timeout",
        ],
        "runs": ["--status", "-n", "--json"],
        "status": ["--json"],
        "start": ["--base"],
    }.items():
        said = ckpt(command, "--help")
        assert said.code == 0
        assert [option for option in options if option not in said.out] == []
