"""The parser of pipelines accepts every key and reports all mistakes by line."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from gitckpt import ConfigError, NotFoundError, Retries, UsageError
from gitckpt.durable.driver import driver
from gitckpt.durable.pipeline import definition as pipeline
from gitckpt.durable.pipeline import definition as pipelines
from gitckpt.durable.pipeline.definition import PhaseDefinition, PipelineDefinition
from gitckpt.model import phase
from gitckpt.model.times import MICRO
from tests.stores import default_settings

STEPS: dict[str, tuple[str, ...]] = {"read plan": (), "generate branch": ()}
PHASE = '[[pipelines.ci.phases]]\nname = "lint"\nrun = "true"\n'
MINUTE = 60 * MICRO


@dataclass
class File:
    path: Path

    def write(self, text: str) -> File:
        self.path.write_bytes(text.encode("utf-8", "surrogateescape"))
        return self

    def read(self, text: str, name: str = "ci") -> PipelineDefinition:
        return pipelines.read_pipeline(str(self.write(text).path), name, STEPS)

    def mistakes(self, text: str) -> list[str]:
        """Return the mistakes, each as `LINE: TEXT (HINT)`."""
        with pytest.raises(ConfigError) as caught:
            self.read(text)
        error = caught.value
        assert error.exit_code == 2
        if len(error.mistakes) == 1:
            assert error.candidates == []
            line, said = error.mistakes[0].line, error.mistakes[0].text
            assert error.message == f"gitckpt.toml:{line}: {said}"
            assert str(error.hint).startswith(f"correct it: {self.path}")
            return [f"{line}: {said}{str(error.hint).removeprefix(f'correct it: {self.path}')}"]
        assert (error.message, error.hint) == (
            f"gitckpt.toml: {len(error.mistakes)} mistakes",
            f"correct them: {self.path}",
        )
        starts = [
            f"gitckpt.toml:{line}: {said}"
            for line, said in ((each.line, each.text) for each in error.mistakes)
        ]
        assert all(
            told.startswith(start) for told, start in zip(error.candidates, starts, strict=True)
        )
        return [told.removeprefix("gitckpt.toml:") for told in error.candidates]


@pytest.fixture
def file(tmp_path: Path) -> File:
    return File(tmp_path / "gitckpt.toml")


EVERYTHING = """\
[retention]
keep_last = "this is for others to judge"

[pipelines.ci]
description = "lint, test, build"
autonomy = " Autonomous "
timeout = "2h"
env = { PYTHONHASHSEED = "0" }
worktree = "remove_when_pushed"
retention = "7d"
inputs = { question = "", plan = "PLAN.md" }
files = ["plan"]

[[pipelines.ci.phases]]
name = "lint all"
run = "ruff check ."
env = { A_1 = "x" }
timeout = "30m"
idle_timeout = "5m"
retries = { attempts = 2, delay = "10s", backoff = 3, max_delay = "5m", jitter = 0.5, on = [1, 75] }
autosave = "0s"
max_recoveries = 0
group = "checks"
on_resume = "reset"
must_change = true
aliases = ["linting"]
skip_with = ["question"]

[[pipelines.ci.phases]]
name = "plan"
use = "read plan"
needs = ["lint all"]
retries = 2

[pipelines.short]
phases = [{ name = "a", run = "x" }]
"""


class TestReading:
    def test_every_key(self, file: File) -> None:
        assert file.read(EVERYTHING) == PipelineDefinition(
            name="ci",
            description="lint, test, build",
            autonomy="fully_autonomous",
            timeout=120 * MINUTE,
            env={"PYTHONHASHSEED": "0"},
            worktree="remove_when_pushed",
            retention=7 * 1440 * MINUTE,
            inputs={"question": "", "plan": "PLAN.md"},
            files=("plan",),
            source=str(file.path),
            phases=(
                PhaseDefinition(
                    name="lint all",
                    run="ruff check .",
                    env={"A_1": "x"},
                    timeout=30 * MINUTE,
                    idle_timeout=5 * MINUTE,
                    retries=Retries(
                        attempts=2,
                        delay=10 * MICRO,
                        backoff=3.0,
                        max_delay=5 * MINUTE,
                        jitter=0.5,
                        on=(1, 75),
                    ),
                    autosave=0,
                    max_recoveries=0,
                    group="checks",
                    on_resume="reset",
                    must_change=True,
                    aliases=("linting",),
                    skip_with=("question",),
                ),
                PhaseDefinition(
                    name="plan", use="read plan", needs=("lint all",), retries=Retries(attempts=2)
                ),
            ),
        )

    def test_the_defaults(self, file: File) -> None:
        assert file.read(EVERYTHING, "short") == PipelineDefinition(
            name="short",
            phases=(
                PhaseDefinition(
                    name="a",
                    run="x",
                    use=None,
                    env={},
                    timeout=None,
                    idle_timeout=None,
                    retries=Retries(0, MICRO, 2.0, 60 * MINUTE, 0.1, ()),
                    autosave=5 * MINUTE,
                    max_recoveries=3,
                    group=None,
                    needs=(),
                    on_resume="keep",
                    must_change=False,
                    aliases=(),
                    skip_with=(),
                ),
            ),
            env={},
            autonomy="fully_autonomous",
            timeout=None,
            inputs={},
            files=(),
            worktree="keep",
            retention=None,
            description="",
            source=str(file.path),
        )

    def test_a_long_delay_raises_the_limit_of_waits_that_is_not_given(self, file: File) -> None:
        retries = file.read(PHASE + 'retries = { delay = "2h" }\n').phases[0].retries
        assert retries == Retries(attempts=1, delay=120 * MINUTE, max_delay=120 * MINUTE)

    def test_a_file_that_is_not_utf_8(self, file: File) -> None:
        assert [
            each.name for each in file.read("# caf\udce9\r\n" + PHASE.replace("\n", "\r\n")).phases
        ] == ["lint"]

    def test_the_example_that_init_writes(self, file: File) -> None:
        lines = default_settings()[default_settings().index("# [pipelines.") :].splitlines()
        definition = file.read(
            "\n".join(line.removeprefix("#").removeprefix(" ") for line in lines)
        )
        assert [(each.name, each.run) for each in definition.phases] == [
            ("lint", "ruff check ."),
            ("test", "pytest"),
        ]


class TestOrder:
    @pytest.mark.parametrize(
        ("needs", "order"),
        [
            ({"a": [], "b": [], "c": []}, "abc"),
            ({"a": ["c"], "b": [], "c": [], "d": []}, "bcad"),
            ({"a": ["b"], "b": ["c"], "c": []}, "cba"),
            ({"a": [], "b": ["d"], "c": ["b"], "d": ["a"], "e": []}, "adbce"),
        ],
    )
    def test_phases_move_back_behind_what_they_need(
        self, file: File, needs: dict[str, list[str]], order: str
    ) -> None:
        text = "".join(
            f'[[pipelines.ci.phases]]\nname = "{name}"\nrun = "x"\nneeds = {need}\n'
            for name, need in needs.items()
        )
        assert "".join(each.name for each in file.read(text).phases) == order

    def test_circles(self, file: File) -> None:
        needs = {"a": ["c", "b"], "b": ["c"], "c": ["b"], "d": ["d"], "e": ["a", "d"]}
        text = "".join(
            f'[[pipelines.ci.phases]]\nname = "{name}"\nrun = "x"\nneeds = {need}\n'
            for name, need in needs.items()
        )
        assert file.mistakes(text) == [
            "8: phases need each other: b → c → b",
            "16: phases need each other: d → d",
        ]


KNOWN_PIPELINE_KEYS = (
    "known keys: description, autonomy, timeout, env, worktree, retention, inputs, files, phases"
)
KNOWN_PHASE_KEYS = (
    "known keys: name, run, use, env, timeout, idle_timeout, retries, autosave, "
    "max_recoveries, group, needs, on_resume, must_change, "
    "aliases, skip_with, with"
)
AGES = "write a number and a unit: 90s, 30m, 12h, 7d or 2w"


class TestMistakes:
    @pytest.mark.parametrize(
        ("line", "mistake"),
        [
            ('tiemout = "5m"', "unknown key 'tiemout' in phase 'lint' (did you mean timeout?)"),
            ("x = 1", f"unknown key 'x' in phase 'lint' ({KNOWN_PHASE_KEYS})"),
            (
                'timeout = "5 minutes"',
                f"timeout in phase 'lint': '5 minutes' is not a duration ({AGES})",
            ),
            ("timeout = 5", "timeout in phase 'lint' must be a duration such as \"30m\", not 5"),
            ('timeout = "0s"', "timeout in phase 'lint': '0s' is zero"),
            (
                'idle_timeout = "6000w"',
                "idle_timeout in phase 'lint': '6000w' is more than a century",
            ),
            (
                "autosave = false",
                "autosave in phase 'lint' must be a duration such as \"30m\", not false",
            ),
            (
                "max_recoveries = -1",
                "max_recoveries in phase 'lint' must be a whole number from 0 on, not -1",
            ),
            (
                "max_recoveries = true",
                "max_recoveries in phase 'lint' must be a whole number from 0 on, not true",
            ),
            ('retries = "2"', "retries in phase 'lint' must be a whole number from 0 on, not '2'"),
            ("retries = { tries = 1 }", "unknown key 'tries' in retries of phase 'lint' (KEYS)"),
            (
                "retries = { backoff = 0.5 }",
                "backoff in retries of phase 'lint' must be a number from 1 to 100, not 0.5",
            ),
            (
                "retries = { jitter = nan }",
                "jitter in retries of phase 'lint' must be a number from 0 to 1, not nan",
            ),
            (
                "retries = { on = [0] }",
                "on in retries of phase 'lint' must be a list of exit codes from 1 to 255, not [0]",
            ),
            (
                "retries = { on = 1 }",
                "on in retries of phase 'lint' must be a list of exit codes from 1 to 255, not 1",
            ),
            (
                'retries = { max_delay = "0s" }',
                "max_delay in retries of phase 'lint' is less than delay",
            ),
            ("group = ''", "group is empty in phase 'lint'"),
            ("group = 1", "group in phase 'lint' must be a string, not 1"),
            (
                'needs = ["lnt"]',
                (
                    "needs of phase 'lint' names 'lnt', which is no phase of pipeline 'ci' "
                    "(did you mean lint?)"
                ),
            ),
            (
                'needs = "lint"',
                "needs in phase 'lint' must be a list of names, such as [\"lint\"], not 'lint'",
            ),
            ('needs = ["lint"]', "phases need each other: lint → lint"),
            (
                'on_resume = "rest"',
                (
                    "on_resume in phase 'lint' must be one of keep, reset, not 'rest' (did "
                    "you mean reset?)"
                ),
            ),
            ("on_resume = []", "on_resume in phase 'lint' must be one of keep, reset, not []"),
            ("must_change = 1", "must_change in phase 'lint' must be true or false, not 1"),
            ('aliases = ["a", "a"]', "aliases names 'a' twice in phase 'lint'"),
            (
                'skip_with = ["plan"]',
                "skip_with of phase 'lint' names 'plan', which is no input (no input is defined)",
            ),
            ('use = "read plan"', "phase 'lint' has both keys, run and use (remove run or use)"),
            (
                "env = { A = 1 }",
                "A in env of phase 'lint' must be a string, not 1 (put it in quotes)",
            ),
            (
                "env.A-B = '1'",
                (
                    "'A-B' in env of phase 'lint' is not a valid variable name (use letters, "
                    "digits and _)"
                ),
            ),
            (
                "env.CKPT_RUN = '1'",
                (
                    "CKPT_RUN in env of phase 'lint': gitckpt sets all variables CKPT_* "
                    "(choose another name)"
                ),
            ),
            ("env = 'A=1'", "env in phase 'lint' must be a table, not 'A=1'"),
        ],
    )
    def test_in_a_phase(self, file: File, line: str, mistake: str) -> None:
        mistake = mistake.replace(
            "KEYS", "known keys: attempts, delay, backoff, max_delay, jitter, on"
        )
        assert file.mistakes(PHASE + "# …\n" + line + "\n") == [f"5: {mistake}"]

    @pytest.mark.parametrize(
        ("lines", "mistake"),
        [
            (['run = "x"'], "1: phase 1 has no name"),
            (["name = 3", 'run = "x"'], "2: the name of phase 3 must be a string"),
            (["name = ' '", 'run = "x"'], "2: the name of phase ' ' is empty"),
            (["name = 'a '", 'run = "x"'], "2: the name of phase 'a ' begins or ends with a space"),
            (["name = 'a/b'", 'run = "x"'], "2: the name of phase 'a/b' has a /"),
            (
                ['name = "a\\u001b"', 'run = "x"'],
                "2: the name of phase 'a\\x1b' has a control character",
            ),
            (
                [f"name = '{'a' * 101}'", 'run = "x"'],
                f"2: the name of phase '{'a' * 58}… is longer than 100 characters",
            ),
            (
                ["name = 'a-failed'", 'run = "x"'],
                (
                    "2: the name of phase 'a-failed' ends with a status (a status is one of "
                    f"{', '.join(phase.STATUSES)})"
                ),
            ),
            (
                ["name = 'Run'", 'run = "x"'],
                (
                    "2: the name of phase 'Run' is reserved (reserved names: run, commit, "
                    "manual, safety, rewind)"
                ),
            ),
            (
                ["name = 'rewind'", 'run = "x"'],
                (
                    "2: the name of phase 'rewind' is reserved (reserved names: run, commit, "
                    "manual, safety, rewind)"
                ),
            ),
            (["name = 'a'"], "1: phase 'a' has no command (add run = \"COMMAND\")"),
            (["name = 'a'", "run = ' '"], "3: run is empty in phase 'a'"),
            (["name = 'a'", "run = ['x']"], "3: run in phase 'a' must be a string, not ['x']"),
            (
                ["name = 'a'", 'run = "x\\u0000"'],
                "3: run in phase 'a' has a NUL or is not UTF-8: 'x\\x00'",
            ),
            (
                ["name = 'a'", "use = 'read plna'"],
                (
                    "3: use in phase 'a' names an unknown step: 'read plna' (did you mean "
                    "'read plan'?)"
                ),
            ),
            (
                ["name = 'a'", "use = 'xyzzy'"],
                (
                    "3: use in phase 'a' names an unknown step: 'xyzzy' (steps: "
                    "generate branch, read plan)"
                ),
            ),
        ],
    )
    def test_in_what_a_phase_must_have(self, file: File, lines: list[str], mistake: str) -> None:
        assert file.mistakes("\n".join(["[[pipelines.ci.phases]]", *lines])) == [mistake]

    @pytest.mark.parametrize(
        ("line", "mistake"),
        [
            ("phase = []", "unknown key 'phase' in pipeline 'ci' (did you mean phases?)"),
            ("x = 1", f"unknown key 'x' in pipeline 'ci' ({KNOWN_PIPELINE_KEYS})"),
            (
                'autonomy = "bach"',
                "autonomy in pipeline 'ci': 'bach' is not a mode of autonomy (did you mean batch?)",
            ),
            (
                'worktree = "remove"',
                "worktree in pipeline 'ci' must be one of keep, remove_when_pushed, not 'remove'",
            ),
            ('timeout = "x"', f"timeout in pipeline 'ci': 'x' is not a duration ({AGES})"),
            (
                "retention = 7",
                "retention in pipeline 'ci' must be a duration such as \"30m\", not 7",
            ),
            (
                'description = "a\\nb"',
                (
                    "description in pipeline 'ci' must be one line without control "
                    "characters, not 'a\\nb'"
                ),
            ),
            (
                "inputs = { a = 1 }",
                "a in inputs of pipeline 'ci' must be a string, not 1 (put it in quotes)",
            ),
            (
                "inputs = { Plan = '' }",
                (
                    "'Plan' in inputs of pipeline 'ci' is not a valid input name (use "
                    "lower-case letters, digits and _, a letter first)"
                ),
            ),
            (
                "files = ['plan']",
                "files of pipeline 'ci' names 'plan', which is no input (no input is defined)",
            ),
            (
                "files = [1]",
                "files in pipeline 'ci' must be a list of names, such as [\"lint\"], not [1]",
            ),
        ],
    )
    def test_in_a_pipeline(self, file: File, line: str, mistake: str) -> None:
        assert file.mistakes(f"[pipelines.ci]\n{line}\n{PHASE}") == [f"2: {mistake}"]

    @pytest.mark.parametrize(
        ("text", "mistake"),
        [
            (
                "[pipelines.ci]\n",
                "1: pipeline 'ci' has no phases (add [[pipelines.ci.phases]] with name and run)",
            ),
            (
                "[pipelines.ci]\nphases = []\n",
                "1: pipeline 'ci' has no phases (add [[pipelines.ci.phases]] with name and run)",
            ),
            (
                "[pipelines.ci]\nphases = 'x'\n",
                (
                    "2: phases in pipeline 'ci' must be an array of tables, "
                    "[[pipelines.ci.phases]], not 'x'"
                ),
            ),
            ("[pipelines]\nci = 1\n", "2: ci in pipelines must be a table, not 1"),
            ("\npipelines = 1\n", "2: pipelines must be a table (write [pipelines.NAME])"),
            (PHASE.replace("ci", "'a/b'"), "1: the name of pipeline 'a/b' has a /"),
            ("\n[pipelines.ci\n", "2: not TOML: Expected ']' at the end of a table declaration"),
            ("a = 1\nb = '''\n\n", "3: not TOML: Expected \"'''\""),
            (
                "a = " + "[" * 5000,
                "1: nests deeper than 256 levels, the parts of dotted keys counted",
            ),
        ],
    )
    def test_in_the_file(self, file: File, text: str, mistake: str) -> None:
        assert file.mistakes(text) == [mistake]

    def test_names_that_cannot_be_told_apart(self, file: File) -> None:
        text = """\
[[pipelines.ci.phases]]
name = "read plan"
run = "x"
aliases = ["other", "docs"]
[[pipelines.ci.phases]]
name = "Read-Plan"
run = "x"
[[pipelines.ci.phases]]
name = "read plan"
run = "x"
[[pipelines.ci.phases]]
name = "docs"
run = "x"
aliases = ["OTHER"]
"""
        hint = "(names must differ by more than case, hyphens and underscores)"
        assert file.mistakes(text) == [
            f"4: the alias 'docs' is used in line 12 {hint}",
            f"6: the phase name 'Read-Plan' is too similar to 'read plan' in line 2 {hint}",
            f"9: the phase name 'read plan' is used in line 2 {hint}",
            f"14: the alias 'OTHER' is too similar to 'other' in line 4 {hint}",
        ]

    def test_all_at_once_in_every_pipeline(self, file: File) -> None:
        text = """\
[pipelines.other]
description = 3
phases = [
  { name = "a", run = "x", timeout = "x" },
  { run = "x" },
]
[pipelines.ci]
[[pipelines.ci.phases]]
name = "lint"
[pipelines.ci.phases.retries]
attempts = -1
delay = "soon"
"""
        assert file.mistakes(text) == [
            "2: description in pipeline 'other' must be a string, not 3",
            f"3: timeout in phase 'a': 'x' is not a duration ({AGES})",
            "3: phase 2 has no name",
            "8: phase 'lint' has no command (add run = \"COMMAND\")",
            "11: attempts in retries of phase 'lint' must be a whole number from 0 on, not -1",
            f"12: delay in retries of phase 'lint': 'soon' is not a duration ({AGES})",
        ]


OTHERS = ", ".join(f"{name} (preset)" for name in pipelines.PRESETS if name != "rlm-act")


class TestNames:
    def test_in_order_and_unchecked(self, file: File) -> None:
        assert pipelines.read_pipeline_names(
            str(file.write("[pipelines.b]\n[pipelines.a]\nx = 1\n").path)
        ) == [
            "b",
            "a",
        ]

    def test_where_there_is_no_file(self, file: File) -> None:
        assert pipelines.read_pipeline_names(str(file.path)) == []

    def test_a_file_that_cannot_be_read(self, file: File) -> None:
        file.path.mkdir()
        with pytest.raises(UsageError) as caught:
            pipelines.read_pipeline_names(str(file.path))
        assert caught.value.message == f"cannot read {file.path}: Is a directory"

    @pytest.mark.parametrize(
        ("name", "hint"),
        [
            ("test", f"pipelines: ci, rlm-act, {OTHERS}; define others in gitckpt.toml"),
            (
                "plan-to-rp",
                (
                    f"did you mean plan-to-pr? pipelines: ci, rlm-act, {OTHERS}; "
                    "define others in gitckpt.toml"
                ),
            ),
        ],
    )
    def test_none_by_that_name(self, file: File, name: str, hint: str) -> None:
        with pytest.raises(NotFoundError) as caught:
            file.read(PHASE + PHASE.replace("ci", "rlm-act"), name)
        assert (caught.value.message, caught.value.hint) == (f"there is no pipeline {name!r}", hint)

    def test_the_file_goes_before_the_preset(self, file: File) -> None:
        mine = file.read(PHASE.replace("ci", "plan-to-pr"), "plan-to-pr")
        assert (mine.source, [each.name for each in mine.phases]) == (str(file.path), ["lint"])
        preset = pipelines.read_pipeline(str(file.write(PHASE).path), "plan-to-pr", driver.OPTIONS)
        assert (preset.source, preset.worktree) == ("preset", pipeline.REMOVE_WHEN_PUSHED)
