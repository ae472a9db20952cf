"""Step graphs in `gitckpt.toml`: every key, and every mistake with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from gitckpt import ConfigError, Graph, NotFoundError, UsageError
from gitckpt.durable.steps import graph_file
from gitckpt.durable.steps.graph import StepDefinition
from tests.durable.steps.stepper import Loop

EVERYTHING = """\
[pipelines.steps]
is = "for others to judge"

[steps.review]
description = "draft, judge, publish"
max_fix_cycles = 1
max_iterations = 9
aliases = { judge = "check", END = "COMPLETE" }

[[steps.review.steps]]
name = "draft"
agent = "writer"
version_key = "draft"

[[steps.review.steps]]
name = "check"
on_pass = "tell"
on_fail = "mend"
fix_cycle = true

[[steps.review.steps]]
name = "mend"
on_pass = "check"
tasks = true

[[steps.review.steps]]
name = "tell"
only_if = "public"

[[steps.review.steps]]
name = "think"
optional = true
on_pass = "draft"
"""


def mistakes(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        graph_file.parse_graphs(text, "/x/gitckpt.toml")
    assert caught.value.exit_code == 2
    return [
        f"{line}: {said}"
        for line, said in ((each.line, each.text) for each in caught.value.mistakes)
    ]


def steps(*lines: str, top: str = "") -> str:
    return f"[steps.a]\n{top}" + "".join(f"[[steps.a.steps]]\n{line}\n" for line in lines)


def test_every_key() -> None:
    assert graph_file.parse_graphs(EVERYTHING, "x") == {
        "review": Graph(
            name="review",
            steps=(
                StepDefinition("draft", on_pass="check", agent="writer", version_key="draft"),
                StepDefinition("check", on_pass="tell", on_fail="mend", counts_cycles=True),
                StepDefinition("mend", on_pass="check", has_tasks=True),
                StepDefinition("tell", only_if="public"),
                StepDefinition("think", on_pass="draft", optional=True),
            ),
            aliases={"judge": "check", "END": "COMPLETE"},
            max_fix_cycles=1,
            max_iterations=9,
            description="draft, judge, publish",
        )
    }


def test_it_works() -> None:
    loop = Loop(graph=graph_file.parse_graphs(EVERYTHING, "x")["review"])
    loop("start", "think")("pass", "think")("pass", "draft")("fail", "judge")("pass", "mend")(
        "pass", "check", values={"public": True}
    )
    assert loop.here == ("tell", "NOT_STARTED")
    assert loop("pass", "tell").here == ("COMPLETE", "PASSED")


def test_steps_follow_each_other_as_in_the_file() -> None:
    found = graph_file.parse_graphs(steps('name = "1"', 'name = "2"', 'name = "3"'), "x")["a"]
    assert [(step.name, step.on_pass, step.on_fail) for step in found.steps] == [
        ("1", "2", None),
        ("2", "3", None),
        ("3", "COMPLETE", None),
    ]


@pytest.mark.parametrize(
    "text", ["", "[retention]\nkeep_last = 5\n", "steps = {}\n", '[pipelines.steps]\nx = "y"\n']
)
def test_no_graphs(text: str) -> None:
    assert graph_file.parse_graphs(text, "x") == {}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("steps = 5\n", ["1: steps must be a table"]),
        ("[steps]\na = 5\n", ["2: a in steps must be a table, not 5"]),
        ("[steps.a]\n", ["1: steps 'a' has no steps"]),
        (
            "[steps.a]\nstep = []\n",
            ["1: steps 'a' has no steps", "2: unknown key 'step' in steps 'a'"],
        ),
        (steps(""), ["2: step 1 has no name"]),
        (steps("name = 5"), ["3: the name of step 5 must be a string"]),
        (steps('name = "x/y"'), ["3: the name of step 'x/y' has a /"]),
        (steps('name = "a-failed"'), ["3: the name of step 'a-failed' ends with a status"]),
        (steps('name = "complete"'), ["3: the name of step 'complete' is reserved"]),
        (steps('name = "b"', 'name = "complete"'), ["5: the name of step 'complete' is reserved"]),
        (steps('name = "Not Started"'), ["3: the name of step 'Not Started' is reserved"]),
        (steps('name = "run"'), ["3: the name of step 'run' is reserved"]),
        (steps('name = "a"', 'name = "A"'), ["5: the step name 'A' is too similar to 'a'"]),
        (steps('name = "a"\nonpass = "a"'), ["4: unknown key 'onpass' in step 'a'"]),
        (
            steps('name = "a"\non_pass = "b"'),
            ["4: on_pass of step 'a' names 'b', which is not a step"],
        ),
        (
            steps('name = "a"\non_fail = "b"'),
            ["4: on_fail of step 'a' names 'b', which is not a step"],
        ),
        (
            steps('name = "a"\noptional = 1'),
            ["4: optional in step 'a' must be true or false, not 1"],
        ),
        (steps('name = "a"\nfix_cycle = true'), ["4: fix_cycle of step 'a' needs on_fail"]),
        (steps('name = "a"\noptional = true'), ["2: every step of steps 'a' is optional"]),
        (
            steps('name = "a"', 'name = "b"\non_pass = "a"'),
            ["2: on_pass leads in a circle: a → b → a"],
        ),
        (steps('name = "a"\non_pass = "COMPLETE"', 'name = "b"'), ["5: no step leads to step 'b'"]),
        (
            steps('name = "a"', top="max_fix_cycles = -1\n"),
            ["2: max_fix_cycles in steps 'a' must be a whole number from 0 on, not -1"],
        ),
        (
            steps('name = "a"', top="max_iterations = 0\n"),
            ["2: max_iterations in steps 'a' must be a whole number from 1 on, not 0"],
        ),
        (
            steps('name = "a"', top='aliases = { b = "c" }\n'),
            ["2: the alias 'b' names 'c', which is not a step"],
        ),
        (
            steps('name = "a"', top='aliases = { A = "a" }\n'),
            ["2: the alias 'A' is too similar to 'a'"],
        ),
        (
            steps('name = "a"', top="aliases = { b = 5 }\n"),
            ["2: b in aliases of steps 'a' must be a string, not 5"],
        ),
    ],
)
def test_mistakes(text: str, said: list[str]) -> None:
    assert mistakes(text) == said


def test_all_mistakes_are_told_at_once_with_hints() -> None:
    text = steps('name = "a"\non_pas = "b"', 'name = "b"\non_fail = "B"') + "[steps.'']\n"
    with pytest.raises(ConfigError) as caught:
        graph_file.parse_graphs(text, "/x/gitckpt.toml")
    assert (caught.value.message, caught.value.hint) == (
        "gitckpt.toml: 4 mistakes",
        "correct them: /x/gitckpt.toml",
    )
    assert caught.value.candidates == [
        "gitckpt.toml:4: unknown key 'on_pas' in step 'a' (did you mean on_pass?)",
        (
            "gitckpt.toml:7: on_fail of step 'b' names 'B', which is not a step (there are: "
            "a, b, COMPLETE)"
        ),
        "gitckpt.toml:8: the name of steps '' is empty",
        "gitckpt.toml:8: steps '' has no steps (add [[steps..steps]])",
    ]


def test_by_name(tmp_path: Path) -> None:
    file = tmp_path / "gitckpt.toml"
    assert graph_file.read_graph(str(file), "superpowers") == graph_file.read_preset_graph()
    file.write_text(EVERYTHING)
    assert graph_file.read_graph(str(file), "review").name == "review"
    with pytest.raises(NotFoundError) as caught:
        graph_file.read_graph(str(file), "revue")
    assert (caught.value.message, caught.value.hint) == (
        "there are no steps named 'revue'",
        "did you mean review?",
    )
    file.write_text(steps('name = "own"').replace("steps.a", "steps.superpowers"))
    assert [step.name for step in graph_file.read_graph(str(file), "superpowers").steps] == ["own"]
    file.write_text("steps = \n")
    with pytest.raises(UsageError, match=r"gitckpt\.toml:1: not TOML: "):
        graph_file.read_graph(str(file), "review")
    with pytest.raises(UsageError, match="cannot read"):
        graph_file.read_graph(str(tmp_path), "review")


def test_the_preset_can_be_copied() -> None:
    found = graph_file.parse_graphs(graph_file.read_preset_graph_text(), "gitckpt.toml")[
        "superpowers"
    ]
    assert found == graph_file.read_preset_graph()
    assert (found.max_fix_cycles, found.max_iterations, found.first.name) == (3, 50, "PLAN")
