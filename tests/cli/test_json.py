"""The JSON output has exactly the keys and types that `docs/json.md` promises."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator
from typing import Any

import pytest

from gitckpt import Run, Store
from tests.cli.conftest import PROJECT, Ckpt, document, store_text
from tests.conftest import Checkout, MakeOnce

Save = Callable[..., str]
TYPES: dict[str, Callable[[Any], bool]] = {
    "any": lambda value: True,
    "string": lambda value: type(value) is str,
    "integer": lambda value: type(value) is int,
    "boolean": lambda value: type(value) is bool,
    "object": lambda value: type(value) is dict,
    "array of strings": lambda value: (
        type(value) is list and all(type(each) is str for each in value)
    ),
    "string or null": lambda value: value is None or type(value) is str,
    "number": lambda value: type(value) in (int, float),
    "number or null": lambda value: value is None or type(value) in (int, float),
    "object or null": lambda value: value is None or type(value) is dict,
    "integer or null": lambda value: value is None or type(value) is int,
}


def documented(command: str) -> dict[str, tuple[str, str]]:
    """Map each key that the page promises for a command to type and description."""
    text = (PROJECT / "docs/json.md").read_text("utf-8")
    section = text.partition(f"\n## {command}\n")[2].partition("\n## ")[0]
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("| `")]
    return {key.strip().strip("`"): (kind.strip(), what.strip()) for key, kind, what in rows}


def flat(value: Any, whole: Collection[str], path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the path and the value of each leaf, and of each promised value.

    A leaf is neither an object nor an array of objects.
    """
    if isinstance(value, dict) and path not in whole:
        for key, item in value.items():
            yield from flat(item, whole, f"{path}.{key}" if path else key)
    elif (
        isinstance(value, list)
        and all(isinstance(each, dict) for each in value)
        and path not in whole
    ):
        for each in value:
            yield from flat(each, whole, f"{path}[]")
    else:
        yield path, value


def check(command: str, report: Any) -> set[str]:
    """Assert that each value has the promised type; return the keys."""
    promised = documented(command)
    seen = set()
    for path, value in flat(report, promised):
        assert path in promised, path
        assert TYPES[promised[path][0]](value), (path, value)
        seen.add(path)
    return seen


@pytest.fixture
def rich(main_checkout: Checkout, save: Save, make_once: MakeOnce) -> Checkout:
    """Return a repository in which every key has a value somewhere."""
    make_once(main_checkout, lambda: enrich(main_checkout, save))
    return main_checkout


def enrich(main_checkout: Checkout, save: Save) -> None:
    save(main_checkout)
    save(main_checkout, "--no-worktree")
    main_checkout.write("README", "changed\n")
    with Store.open(main_checkout.path) as store:
        first = store.record(
            "a-complete",
            {"x": b"\0", "y": float("nan")},
            start="work",
            message="m",
            agent="me",
            errors=["e"],
        )
        store.record("b-failed", worktree=store.capture(), run=first.run)
    ends = "11111111-1111-4111-8111-111111111111"
    text = document(message='"m"', forked_from=f'"{ends}"', rewound_to=f'"{ends}"').replace(
        "\n[state]",
        """
[worktree]
dirty = true
tree = "1234567890123456789012345678901234567890"
operation = "merge"
omitted = [{ path = "dump.bin", reason = "larger than 50 MB", size = 123456789 }]
submodules = [{ path = "lib", checkpoint = "11111111-1111-4111-8111-111111111111", git_sha = "", \
dirty = true }]
suspects = [{ path = "config.py", rule = "private-key", line = 3, digest = "0123456789abcdef" }]

[progress]
current_phase = 2
total_phases = 5
current_task = "design"
tasks_completed = 5
tasks_total = 35

[pipeline]
name = "ci"
phases = ["a"]
completed = { a = "11111111-1111-4111-8111-111111111111" }
autonomy = "batch"
deadline = "2027-01-15T08:00:01Z"
definition = { order = "0123456789abcdef" }
inputs = { question = "why?" }
contents = { plan = "0123456789abcdef" }

[attempt]
phase = "a"
number = 2
ended = "failed"
began = "11111111-1111-4111-8111-111111111111"
failures = 1
recoveries = 1
retry_at = "2027-01-15T08:00:01Z"
exit_code = 1
seconds = 0.5
output = "no\\n"
result = "null"
inputs = { question = "0123456789abcdef" }
[state]""",
    )
    store_text(main_checkout, "refs/checkpoints/11111111-1111-4111-8111-111111111111", text)
    main_checkout.git("update-ref", "refs/checkpoints/99999999-9999-4999-8999-999999999999", "HEAD")


def test_log_ls_and_why_have_exactly_the_promised_keys(
    ckpt: Ckpt, rich: Checkout, save: Save
) -> None:
    rich.write("src/lost", "1\n")
    with Store.open(rich.path) as store:
        step = store.save("a-complete", {"x": 1, "y": 1}, start="again")
        made = step.id
        store.record("b-complete", {"x": 2}, run=step.run)
    (rich.path / "src/lost").unlink()
    save(rich)
    rich.commit("had it", lost="1\n")
    for command, words in (
        ("log", ["log", "--all"]),
        ("ls", ["ls", made, "-r"]),
        ("why", ["why", "src/lost"]),
    ):
        report = json.loads(ckpt(*words, "--json", at=rich).out)
        assert check(command, report) == set(documented(command)), command


def test_list_has_exactly_the_promised_keys(ckpt: Ckpt, rich: Checkout) -> None:
    done = ckpt("list", "--json", at=rich)
    assert done.code == 0
    report = json.loads(done.out)
    assert check("list", report) == set(documented("list"))
    assert {key for each in report["checkpoints"] for key in each} == {
        key.removeprefix("checkpoints[].").partition(".")[0]
        for key in documented("list")
        if key.startswith("checkpoints")
    }
    assert len({tuple(each) for each in report["checkpoints"]}) == 1, "every key is always there"


def test_list_of_nothing_is_a_document_too(ckpt: Ckpt, main_checkout: Checkout) -> None:
    done = ckpt("--quiet", "list", "--json", at=main_checkout)
    assert (done.code, json.loads(done.out), done.err) == (
        0,
        {"checkpoints": [], "more": False, "problems": []},
        "",
    )


def test_show_has_only_promised_keys_and_all_that_are_not_optional(
    ckpt: Ckpt, rich: Checkout
) -> None:
    required = {
        key for key, (_, what) in documented("show").items() if not what.startswith("optional")
    }
    everything: set[str] = set()
    for line in ckpt("list", "--all", at=rich).out.splitlines():
        done = ckpt("show", line.split("\t")[0], "--json", at=rich)
        assert (done.code, done.err) == (0, "")
        seen = check("show", json.loads(done.out))
        assert required <= seen
        everything |= seen
    assert everything == set(documented("show"))


def test_runs_has_exactly_the_promised_keys(ckpt: Ckpt, rich: Checkout) -> None:
    done = ckpt("runs", "--json", at=rich)
    assert (done.code, done.err) == (0, "")
    assert check("runs", json.loads(done.out)) == set(documented("runs"))
    with Store.open(rich.path) as store, Run.start(store, "another") as run:
        report = json.loads(ckpt("runs", "--json", at=rich).out)
        run.pause()
    assert check("runs", report) == set(documented("runs"))
    assert set(report["runs"][0]["lease"]) == {
        "holder",
        "host",
        "pid",
        "acquired",
        "renewed",
        "expires",
        "token",
    }


def test_status_has_exactly_the_promised_keys(ckpt: Ckpt, rich: Checkout) -> None:
    with Store.open(rich.path) as store, Run.start(store, "another") as run:
        run.state["loop"] = {"iterations": 2, "allowed": 100}
        run.phase("a", lambda: 1)
    report = json.loads(ckpt("status", run.id, "--json", at=rich).out)
    of_the_run = {key.removeprefix("runs[].").partition(".")[0] for key in documented("runs")}
    seen = check("status", {key: value for key, value in report.items() if key not in of_the_run})
    assert seen == set(documented("status"))


def test_show_says_what_json_lacks(ckpt: Ckpt, rich: Checkout) -> None:
    report = json.loads(
        ckpt(
            "show", ckpt("list", "--phase", "a", at=rich).out.split("\t")[0], "--json", at=rich
        ).out
    )
    assert report["state"] == {"x": "AA==", "y": "nan"}
    assert report["types"] == {"/x": "bytes", "/y": "float"}


@pytest.mark.parametrize("installed", [False, True])
def test_doctor_has_exactly_the_promised_keys(ckpt: Ckpt, rich: Checkout, installed: bool) -> None:
    if installed:
        assert ckpt("init", "--hooks", "files", at=rich).code == 0
    done = ckpt("doctor", "--json", at=rich)
    assert (done.code, done.err) == (1, "")
    report = json.loads(done.out)
    assert check("doctor", report) == set(documented("doctor"))
    codes = [each["code"] for each in report["findings"]]
    assert (
        codes == ["invalid-checkpoint"]
        if installed
        else ["hooks-not-installed", "invalid-checkpoint"]
    )


def test_du_has_exactly_the_promised_keys(ckpt: Ckpt, rich: Checkout) -> None:
    with Store.open(rich.path) as store:
        store.resume(store.list()[0].id)
    (rich.path / ".git/objects/pack").mkdir(exist_ok=True)
    (rich.path / ".git/objects/pack/tmp_pack_x").write_bytes(b"x")
    done = ckpt("du", "--json", at=rich)
    assert (done.code, done.err) == (0, "")
    assert check("du", json.loads(done.out)) == set(documented("du"))


def test_all_text_is_ascii(ckpt: Ckpt, main_checkout: Checkout, save: Save) -> None:
    main_checkout.git("checkout", "--quiet", "-b", "größe")
    save(main_checkout, "-m", "ünï \u202e \U0001f600", "--state", "-", stdin='{"ключ": "значение"}')
    for args in (["list", "--json"], ["show", "--json"], ["show", "--state"]):
        out = ckpt(*args, at=main_checkout).out
        assert out.isascii(), args
        assert "\x1b" not in out
    assert (
        json.loads(ckpt("list", "--json", at=main_checkout).out)["checkpoints"][0]["branch"]
        == "größe"
    )


@pytest.mark.parametrize(
    "args",
    [["list", "--json", "--run", "no"], ["show", "--json", "abcd"], ["list", "--json", "-n", "x"]],
)
def test_a_failure_leaves_standard_output_empty(
    ckpt: Ckpt, rich: Checkout, args: list[str]
) -> None:
    done = ckpt(*args, at=rich)
    assert done.code in (2, 12)
    assert done.out == ""
