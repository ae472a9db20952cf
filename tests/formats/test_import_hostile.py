"""Hostile files give a clear error, with little time and memory.

The other files are imported.
"""

from __future__ import annotations

import codecs
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gitckpt.formats import files
from gitckpt.formats.systems import yaml_text
from gitckpt.formats.systems.detection import SUFFIXES
from tests.cli.conftest import Spawn
from tests.conftest import Checkout
from tests.formats.conftest import PLACES, Imports

RLM, FORGE = ".rlm-act-checkpoints", ".forge/runs"
HEAD = "id: x\nstatus: a\ncreated_at: 2026-02-17T12:00:00Z\nsteps:\n  - name: x\n"


def rlm(**values: Any) -> str:
    usual = {
        "id": "x",
        "phase": "research-complete",
        "timestamp": "2026-01-05T10:00:00Z",
        "state": {},
        "errors": [],
        "git_commit": "",
    }
    return json.dumps(usual | values)


LAUGHS = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"k{i}: &k{i} [{','.join([f'*k{i - 1}' if i else '*a'] * 9)}]\n" for i in range(1000)
)


def bad() -> dict[str, str]:
    """Return the files by their paths.

    The test makes them when it runs: a mere collection of tests need not hold 200 MB.
    """
    return {
        f"{RLM}/large.json": '{"id":"x","phase":"a","timestamp":"t","state":{"x":"'
        + "a" * 100_000_000
        + '"}}',
        f"{RLM}/deep.json": '{"id":"x","phase":"a-complete","timestamp":"t","state":'
        + '{"a":' * 10000
        + "1"
        + "}" * 10000
        + "}",
        f"{RLM}/lists.json": '{"id":"x","phase":"a-complete","timestamp":"t","state":{"a":'
        + "[" * 100_000
        + "]" * 100_000
        + "}}",
        f"{RLM}/nul.json": '{"phase": "a\0"}',
        f"{RLM}/keys.json": rlm(state={str(number): number for number in range(300_000)}),
        f"{RLM}/tables.json": rlm(state={"a": [0]}).replace(
            "[0]", "[" + '{"":0},' * 2_300_000 + "0]"
        ),  # parsed, they take half a gigabyte
        f"{RLM}/torn.json": '{\n  "id": "1f626451-1083',
        f"{RLM}/empty.json": "",
        f"{FORGE}/laughs.yaml": LAUGHS + HEAD,
        f"{FORGE}/deep.yaml": HEAD + "z: " + "[" * 10000 + "]" * 10000 + "\n",
        f"{FORGE}/tags.yaml": HEAD.replace(
            "id: x", 'id: !!python/object/apply:os.system ["touch owned"]'
        ),
        f"{FORGE}/large.yaml": HEAD + "z: " + "a" * 2_000_000 + "\n",
        f"{FORGE}/twice.yaml": HEAD + "---\n" + HEAD,
        f"{FORGE}/many.yaml": HEAD + "z: [" + "a: b, " * 170_000 + "]\n",
        "checkpoint.comments.toml": (
            "version = 1\ncycle = 1\nmax_cycles = 1\ntask_title = 'x'\nphase = 1\n"
        )
        + "#\n" * 8_000_000,
        "checkpoint.deep.toml": (
            "version = 1\ncycle = 1\nmax_cycles = 1\ntask_title = 'x'\nphase = 1\nx = "
        )
        + "[" * 10000
        + "]" * 10000
        + "\n",
        "checkpoint.dots.toml": (
            "version = 1\ncycle = 1\nmax_cycles = 1\ntask_title = 'x'\nphase = 1\n"
        )
        + ".".join("a" * 20000)
        + " = 1\n",
    }


SECONDS, BYTES = 10, 500_000_000
"""The limits of processor time and memory for all files together.

A quiet machine takes less than one second.
"""

MEASURED = f"""
import resource, subprocess, sys
resource.setrlimit(resource.RLIMIT_CPU, ({SECONDS}, {SECONDS}))
done = subprocess.run([sys.executable, "-m", "gitckpt", *sys.argv[1:]])
print("peak", resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024, file=sys.stderr)
sys.exit(done.returncode)
"""
"""Run gitckpt below a small process that reports the peak memory of its child.

A direct child would begin as a copy of the test process, and count its memory.
"""


@pytest.mark.long
def test_each_is_an_error_and_the_others_are_imported(imports: Imports, spawn: Spawn) -> None:
    imports.bring("workflow-checkpoints")
    made = bad()
    for name, text in made.items():
        imports.checkout.write(name, text)
    done = spawn("import", ".", at=imports.checkout, argv=[sys.executable, "-c", MEASURED])
    assert done.code == 1, done.err
    assert len(done.out.splitlines()) == 2
    told = dict(
        line.removeprefix("warning: ").split(": failed: ")
        for line in done.err.splitlines()
        if ": failed: " in line
    )
    assert set(told) == set(made)
    assert (
        told[f"{FORGE}/laughs.yaml"] == "the file has anchors or aliases, which forge never writes"
    )
    assert told[f"{FORGE}/tags.yaml"] == "the file has tags, which forge never writes"
    assert told[f"{RLM}/nul.json"] == "the file contains NUL characters, so it is not text"
    assert not (imports.checkout.path / "owned").exists()
    assert told["checkpoint.comments.toml"] == "the file is larger than 1024 KiB"
    assert told[f"{RLM}/tables.json"] == "the file has more than 150,000 keys"
    assert imports.ok("verify") == ""
    assert 10_000_000 < int(done.err.splitlines()[-1].removeprefix("peak ")) < BYTES


def test_without_libyaml_a_tenth_is_read(monkeypatch: pytest.MonkeyPatch, imports: Imports) -> None:
    import yaml

    monkeypatch.setattr(yaml_text, "_LOADER", yaml.BaseLoader)
    imports.checkout.write(f"{FORGE}/a.yaml", HEAD + "z: " + "a" * 200_000 + "\n")
    imports.checkout.write(f"{FORGE}/b.yaml", HEAD + "z: " + "a" * 50_000 + "\n")
    (made,) = imports(code=1)
    assert made.path == f"{FORGE}/b.yaml"


@pytest.mark.parametrize("count", [19, 20, 21, 5000])
def test_a_few_things_are_told_of_a_file_and_the_others_counted(
    imports: Imports, count: int
) -> None:
    path = imports.checkout.write(
        f"{RLM}/odd.json", rlm(**{f"own{number}": 1 for number in range(count)})
    )
    (made,) = imports()
    told = [clause for clause in made.remarks.split("; ") if "own" in clause or "more" in clause]
    assert len(told) == min(count, 20) + (count > 20)
    assert told[-1].startswith(f"and {count - 20:,} more" if count > 20 else "has a key")
    imports.ok("export", made.checkpoint, "--format", "rlm-act", "-o", "../out.json")
    assert (imports.checkout.path.parent / "out.json").read_bytes() == path.read_bytes()


@pytest.mark.long
def test_what_stands_within_strings_is_no_value(imports: Imports) -> None:
    imports.checkout.write(f"{RLM}/text.json", rlm(state={"a": ', [ { : " \\ ' * 200_000}))
    assert len(imports()) == 1


@pytest.mark.long(spare=[f"linked-{length}" for length in (50, 5000, 5_000_000)])
@pytest.mark.parametrize("length", [50, 5000, 5_000_000])
def test_names_of_any_length(imports: Imports, length: int) -> None:
    """Each name gets a run with a bounded id, found without reading names repeatedly."""
    for number in range(2):
        track = "t" * length + str(number)
        text = json.dumps(
            {"track_id": track, "created_at": "2026-02-10", "loop_state": {"current_step": "PLAN"}}
        )
        imports.checkout.write(f"conductor/tracks/{number}/metadata.json", text)
    done = imports.ckpt("import", ".", at=imports.checkout)
    assert done.code == 0, done.err
    runs = sorted(imports.statuses())
    assert len(runs) == 2
    assert {len(run) for run in runs} <= {66, 68}
    assert imports.ok("verify") == ""


@pytest.mark.long(spare=["linked"])
def test_a_thousand_runs_of_the_same_second(imports: Imports) -> None:
    for number in range(1003):
        imports.checkout.write(f"{RLM}/{number}.json", rlm(id=str(number)))
    made = imports()
    assert {line.status for line in made} == {"imported"}
    assert len({line.run for line in made}) == 1003


@pytest.mark.long
def test_a_mark_at_the_beginning_as_some_editors_write_it(imports: Imports) -> None:
    imports.bring()
    files = [
        path
        for folder in PLACES.values()
        for path in (imports.checkout.path / folder).rglob("*.*")
        if path.suffix in SUFFIXES
    ]
    for path in files:
        path.write_bytes(codecs.BOM_UTF8 + path.read_bytes())
    made = imports()
    assert len(made) == len(files)
    assert {line.status for line in made} == {"imported"}
    assert all("begins with a byte order mark" in line.remarks for line in made)
    for line in made:
        imports.ok(
            "export",
            line.checkpoint,
            "--format",
            line.format.replace("nebula", "quasar"),
            "-o",
            "../out",
        )
        assert (imports.checkout.path.parent / "out").read_bytes() == (
            imports.checkout.path / line.path
        ).read_bytes()


def test_names_that_are_no_text(imports: Imports, sample: Callable[[str], bytes]) -> None:
    """They are shown with git's quoting, which identifies the file again."""
    above = os.fsencode(imports.checkout.path) + b"/\xff\n\t"
    os.mkdir(above)
    old = "345d2bb4-49dc-4b7e-9547-a6088147d8e9"
    for name, data in (
        (b"\xfe.json", sample("superpowers/done_20260301/metadata.json")),
        (
            b"x.nebula.state.toml",
            sample("quasar/cicd.nebula.state.toml").replace(b"'CI/CD Pipeline'", b"''"),
        ),
        (b"w.json", sample(f"workflow-checkpoints/{old}.json").replace(old.encode(), b"")),
    ):
        with open(os.path.join(above, name), "wb") as file:
            file.write(data)
    assert [line.status for line in imports()] == ["imported"] * 3
    assert [line.status for line in imports()] == ["known"] * 3
    assert imports.ok("verify") == ""


def test_a_directory_that_cannot_be_read_is_told_of(
    checkout: Checkout, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkout.write("closed/x.json", "{}")
    checkout.write("open/x.json", "{}")
    scan = os.scandir

    def refuse(path: str) -> Any:
        if path.endswith("/closed"):
            raise PermissionError(13, "Permission denied", path)
        return scan(path)

    monkeypatch.setattr(os, "scandir", refuse)
    found = list(files.find_files([str(checkout.path)], str(checkout.path)))
    assert [(each.path, each.problem) for each in found if each.is_expected] == [
        ("closed", "Permission denied")
    ]
    assert [each.path for each in found if not each.is_expected] == ["open/x.json"]


def test_links_are_not_followed_and_pipes_not_waited_for(imports: Imports, tmp_path: Path) -> None:
    secret = tmp_path / "secret.json"
    secret.write_text(rlm())
    where = imports.checkout.path / RLM
    where.mkdir()
    (where / "link.json").symlink_to(secret)
    (where / "zero.json").symlink_to("/dev/zero")
    (where / "loop").symlink_to(".")
    os.mkfifo(where / "pipe.json")
    assert imports(code=1) == []
    assert imports.checkout.refs("refs/checkpoints") == {}


def test_names_that_leave_the_place(imports: Imports) -> None:
    text = (
        "id: ../../../etc/passwd\nplan_path: ../../../etc/passwd\nstatus: failed\n"
        "created_at: 2026-02-17T12:00:00Z\nworktree_path: /etc\n"
    )
    imports.checkout.write(
        f"{FORGE}/dots.yaml",
        f"{text}branch: --upload-pack=x\nsteps:\n  - name: run agent\n    status: failed\n",
    )
    imports.checkout.write(f"{RLM}/dots.json", rlm(id="../../x", phase="\x1b[31m\n../x-complete"))
    (one, two) = sorted(imports())
    assert (one.run, one.label) == ("20260217-120000-etc-passwd", "run agent-failed")
    assert two.label.endswith("[31m ../x-complete")
    assert "\x1b" not in imports.ok("list")
    assert imports.ok("verify") == ""


@pytest.mark.parametrize(
    ("values", "clause"),
    [
        ({"state": {"a": "\ud800"}}, "contains a lone surrogate: replaced by U+FFFD"),
        ({"timestamp": "9999-99-99"}, "has no valid timestamp: the time of the import is used"),
        ({"timestamp": 5}, "has no valid timestamp: the time of the import is used"),
        ({"own": 1}, "has a key 'own', which is stored"),
        ({"phase": "dance-complete"}, "has the phase 'dance', which rlm-act does not have"),
    ],
)
def test_what_is_odd_is_told_of_and_the_bytes_are_kept(
    imports: Imports, values: dict[str, Any], clause: str
) -> None:
    path = imports.checkout.write(f"{RLM}/odd.json", rlm(**values))
    (made,) = imports()
    assert clause in made.remarks
    imports.ok("export", made.checkpoint, "--format", "rlm-act", "-o", "../out.json")
    assert (imports.checkout.path.parent / "out.json").read_bytes() == path.read_bytes()


def test_odd_json(imports: Imports) -> None:
    deep = '{"a":' * 250 + "1" + "}" * 250
    text = rlm().replace(
        '"state": {}',
        (
            f'"state": {{"a": 1, "a": 2, "big": {"9" * 5000}, "deep": {deep}, "huge": '
            f'1e999, "no": NaN}}'
        ),
    )
    imports.checkout.write(f"{RLM}/odd.json", text)
    (made,) = imports()
    for clause in (
        "has a key twice",
        "has a number of 5000 digits",
        "has values more than 190 levels deep",
    ):
        assert clause in made.remarks
    assert imports.ok("verify") == ""


@pytest.mark.sampled(6)
@pytest.mark.parametrize("wrong", [5, [], {}, "x", None, 1e300, True])
@pytest.mark.parametrize(
    "key",
    [
        "id",
        "phase",
        "timestamp",
        "errors",
        "git_commit",
        "started_at",
        "phase_results",
        "project_path",
        "metadata",
    ],
)
def test_values_of_wrong_types(imports: Imports, key: str, wrong: object) -> None:
    values = (
        {key: wrong}
        if key in ("id", "phase", "timestamp", "errors", "git_commit")
        else {"state": {key: wrong}}
    )
    imports.checkout.write(f"{RLM}/wrong.json", rlm(**values))
    imports.checkout.write(
        "conductor/tracks/t/metadata.json",
        json.dumps(
            {
                "track_id": wrong,
                "status": wrong,
                "blockers": wrong,
                "loop_state": {
                    "current_step": wrong,
                    "step_status": wrong,
                    "checkpoints": {"PLAN": wrong, "X": {"status": wrong, "last_updated": wrong}},
                },
            }
        ),
    )
    done = imports.ckpt("import", ".", at=imports.checkout)
    assert done.code in (0, 1)
    assert "bug in gitckpt" not in done.err
    assert imports.ok("verify") == ""
