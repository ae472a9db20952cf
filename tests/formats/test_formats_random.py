"""Generated files of each format read back equal and export byte for byte."""

from __future__ import annotations

import json
import tomllib
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from gitckpt import Checkpoint
from gitckpt.durable.phases.review.state import PHASES, ReviewFinding, ReviewState
from gitckpt.durable.steps import graph_file
from gitckpt.formats.systems import content, forge, quasar, rlm_act, superpowers, yaml_text
from gitckpt.formats.systems.content import BadFormat, Remarks, SourceFile
from tests.conftest import examples

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=60) | st.sampled_from(
    [
        "on",
        "null",
        "~",
        "1_000",
        "0x1F",
        "2026-02-17",
        "a: b",
        "- a",
        "# a",
        "'",
        '"',
        "a\nb",
        "\n",
        " a\n b\n",
        "a\n\n",
        "\t",
        "<<",
        "",
        " ",
        "x\n ",
        "%",
        "@a",
        "!a",
        "&a",
        "*a",
        "a #b",
        "a:",
        ":a",
        "?",
        "1e3",
        ".5",
        "é\u2028",
        "\ufeff",
        "\x1b[31m",
        "\x85",
        "yes\n",
        "|",
        "{a}",
    ]
)
"""Any text, with examples that confuse YAML and TOML libraries."""

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)


def checkpoint(**values: Any) -> Checkpoint:
    usual: dict[str, Any] = {
        "id": "6f9619ff-8b86-4d11-b42d-00c04fc964ff",
        "label": "research-failed",
        "timestamp": "2026-01-05T10:00:00.000001Z",
        "git_sha": "",
        "trigger": "phase",
    }
    return Checkpoint(**(usual | values))


PLAIN = TEXTS.filter(lambda text: text != "=")  # only YAML 1.1 does not read "=" as a string
KEYS = PLAIN.filter(lambda key: key != "<<")


@pytest.mark.long
@given(
    st.dictionaries(KEYS, PLAIN | st.integers() | st.booleans(), max_size=5),
    st.lists(st.dictionaries(KEYS, PLAIN, min_size=1, max_size=3), max_size=3),
)
@settings(max_examples=examples(400))
def test_yaml_reads_back_as_it_was(table: dict[str, Any], steps: list[dict[str, str]]) -> None:
    whole = table | {"steps": steps}
    data = yaml_text.render_yaml(whole, frozenset())
    assert yaml.safe_load(data) == whole
    as_text = {
        key: str(value).lower()
        if isinstance(value, bool)
        else str(value)
        if isinstance(value, int)
        else value
        for key, value in whole.items()
    }
    assert yaml_text.parse_yaml(data.decode(), Remarks()) == as_text


@given(
    TEXTS,
    TEXTS,
    st.sampled_from(["pending", "running", "completed", "failed"]),
    st.dictionaries(TEXTS, TEXTS, max_size=2),
)
def test_a_run_of_forge(plan: str, error: str, status: str, unknown: dict[str, str]) -> None:
    more = {key: value for key, value in unknown.items() if key not in forge.ORDER}
    table = {
        "id": "20260217-120000-x",
        "plan_path": plan,
        "status": "failed",
        "created_at": "2026-02-17T12:00:00Z",
    } | more
    table["steps"] = [
        {"name": "run agent", "status": status, **({"error": error} if error else {})}
    ]  # type: ignore[assignment]
    data = yaml_text.render_yaml(table, forge.TIMES)
    record = forge.read_run(SourceFile("x.yaml", data))
    kept = {key: value for key, value in record.state.items() if key != "import"}
    assert kept == table
    assert record.errors == ((error,) if error else ())
    written = forge.write_run(
        checkpoint(
            run="20260217-120000-x",
            sequence=1,
            state=record.state,
            errors=record.errors,
            label="run agent-failed",
        ),
        [],
    )
    again = forge.read_run(SourceFile("x.yaml", written))
    assert {key: again.state[key] for key in more} == more
    assert [step["name"] for step in again.state["steps"]] == ["run agent"]


FINDINGS = st.builds(
    ReviewFinding,
    st.sampled_from(["critical", "major", "minor"]),
    TEXTS.filter(bool),
    st.integers(1, 9),
)


@given(
    st.builds(
        ReviewState,
        phase_id=TEXTS,
        task_title=TEXTS,
        coder_output=TEXTS,
        review_output=TEXTS,
        cycle=st.integers(1, 9),
        phase=st.sampled_from([phase for phase in PHASES if phase != "error"]),
        total_cost_usd=st.floats(0, 1e6).map(lambda cost: round(cost, 6)),
        cycle_commits=st.lists(TEXTS, max_size=2).map(tuple),
        findings=st.lists(FINDINGS, max_size=2).map(tuple),
        all_findings=st.lists(FINDINGS, max_size=2).map(tuple),
        created_at=st.sampled_from(
            ["", "2026-02-24T20:08:59.000000Z", "2026-02-24T20:08:59.120000Z"]
        ),
    )
)
@settings(max_examples=examples(200))
def test_a_review_of_quasar(state: ReviewState) -> None:
    data = quasar.write_review(checkpoint(state={"review": state.to_state_table()}), [])
    if state.task_title or state.phase_id is not None:
        table = tomllib.loads(data.decode())
    assert list(table)[:19] == list(state.to_quasar_table())
    if "\0" in data.decode():
        return
    record = quasar.read_review(SourceFile("checkpoint.toml", data))
    again = ReviewState.from_state_table(record.state["review"])
    assert again.to_quasar_table() == state.to_quasar_table()
    assert (again.findings, again.all_findings) == (state.findings, state.all_findings)


@given(st.dictionaries(TEXTS, JSON, max_size=4), st.lists(TEXTS, max_size=2), TEXTS)
def test_a_checkpoint_of_rlm_act(more: dict[str, Any], errors: list[str], path: str) -> None:
    state = {
        "project_path": path or "p",
        "autonomy_mode": "checkpoint",
        "phase_results": {},
        **more,
    }
    document = {
        "id": "x",
        "phase": "research-failed",
        "timestamp": "2026-01-05T10:00:00Z",
        "state": state,
        "errors": errors,
        "git_commit": "",
    }
    try:
        record = rlm_act.read_checkpoint(
            SourceFile("x.json", json.dumps(document, indent=2).encode())
        )
    except BadFormat:
        pytest.fail("it is one")
    assert {key: value for key, value in record.state.items() if key != "import"} == {
        key: value for key, value in state.items() if key != "import"
    }
    assert record.errors == tuple(errors)
    written = json.loads(
        rlm_act.write_checkpoint(checkpoint(state=record.state, errors=record.errors), [])
    )
    assert list(written) == ["id", "phase", "timestamp", "state", "errors", "git_commit"]
    assert {
        key: written["state"][key] for key in more if key not in rlm_act.STATE and key != "import"
    } == {key: value for key, value in more.items() if key not in rlm_act.STATE and key != "import"}


@given(st.dictionaries(TEXTS, JSON, max_size=4), TEXTS, TEXTS)
def test_metadata_of_superpowers(more: dict[str, Any], step: str, status: str) -> None:
    loop = {
        "current_step": step,
        "step_status": status,
        "checkpoints": {"PLAN": {"status": status, "own": 1}},
    }
    document = {
        "version": 3,
        "track_id": "t",
        **{key: value for key, value in more.items() if key != "blockers"},
        "loop_state": loop,
    }
    try:
        record = superpowers.read_track(
            SourceFile("conductor/tracks/t/metadata.json", json.dumps(document).encode()),
            graph_file.read_preset_graph(),
        )
    except BadFormat:
        pytest.fail("it is one")
    written = json.loads(superpowers.write_track(checkpoint(state=record.state), []))
    assert written == (document if document.get("track_id") else written)
    assert list(written) == list(record.state)


@given(st.binary(max_size=200))
@settings(max_examples=examples(300))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    source = SourceFile("x", data)
    for read in (
        rlm_act.read_checkpoint,
        rlm_act.read_workflow,
        forge.read_run,
        quasar.read_review,
        quasar.read_nebula,
        lambda each: superpowers.read_track(each, graph_file.read_preset_graph()),
    ):
        with pytest.raises(BadFormat):
            read(source)


@pytest.mark.parametrize(
    ("said", "instant"),
    [
        ("2026-01-05T15:23:33.892319", 1767626613892319),
        ("2026-01-05T15:23:33.892319Z", 1767626613892319),
        ("2026-01-05 15:23:33+01:00", 1767623013000000),
        ("2026-01-05", 1767571200000000),
        ("", None),
        ("yesterday", None),
        (5, None),
    ],
)
def test_times_as_people_and_models_write_them(said: object, instant: int | None) -> None:
    assert content.to_instant(said) == instant
