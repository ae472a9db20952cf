"""Import reads only files that a snapshot would capture.

Paths in files of other tools make no difference.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.conftest import Checkout
from tests.formats.conftest import PLACES, Imports

SECRET = "TOKEN=hunter2-hunter2"
RUN = "20260217-120000-auth"


def forge(plan: str) -> str:
    times = "created_at: 2026-02-17T12:00:00Z\nupdated_at: 2026-02-17T12:05:00Z\n"
    return (
        f"id: {RUN}\nplan_path: {plan}\nstatus: failed\n{times}steps:\n  - name: read plan\n"
        "    status: failed\n"
    )


def rlm_act(document: str, project: Path) -> str:
    state = {"plan_path": document, "project_path": str(project)}
    usual = {"id": "x", "phase": "planning-complete", "timestamp": "2026-01-05T10:00:00Z"}
    results = {"research": {"status": "complete", "artifacts": [document]}}
    return json.dumps(
        {**usual, "state": {**state, "phase_results": results}, "errors": [], "git_commit": ""}
    )


def is_stored(checkout: Checkout, text: str) -> bool:
    """Return whether any object of the repository holds a text."""
    listing = ("cat-file", "--batch-all-objects", "--batch-check=%(objectname) %(objecttype)")
    blobs = [
        line.split()[0] for line in checkout.git(*listing).splitlines() if line.endswith("blob")
    ]
    return any(text.encode() in blob for blob in checkout.blobs(*blobs))


@pytest.fixture
def hostile(imports: Imports) -> Imports:
    """A project with files that no snapshot captures, each with the secret."""
    here = imports.checkout
    here.write(".gitignore", ".env\nlocal/\n")
    here.git("add", ".gitignore")
    here.git("commit", "--quiet", "--message", "ignore")
    here.write(".env", SECRET)
    here.write("local/plan.md", SECRET)
    here.write("id_rsa", SECRET)
    (here.path.parent / "outside.md").write_text(SECRET)
    os.symlink("../outside.md", here.path / "out.md")
    os.symlink("local/plan.md", here.path / "in.md")
    return imports


@pytest.mark.parametrize(
    ("path", "why"),
    [
        (".env", "is not read: git ignores it"),
        ("local/plan.md", "is not read: git ignores it"),
        ("in.md", "is not read: git ignores it"),
        ("id_rsa", "is not read: its name looks like a secret (id_rsa*)"),
        ("out.md", "is not in the repository"),
        ("../outside.md", "is not in the repository"),
        (".git/config", "is not "),
        ("local", "is not read: git ignores it"),
    ],
)
def test_what_a_file_names_and_no_snapshot_captures(hostile: Imports, path: str, why: str) -> None:
    hostile.checkout.write(f".forge/runs/{RUN}.yaml", forge(path))
    (line,) = hostile(".")
    assert line.status == "imported"
    assert f"names '{path}', which {why}" in line.remarks
    assert not is_stored(hostile.checkout, SECRET)


def test_nor_is_it_read_when_the_run_goes_on(hostile: Imports) -> None:
    hostile.checkout.write(f".forge/runs/{RUN}.yaml", forge(".env"))
    hostile(".")
    done = hostile.ckpt("resume", RUN, "--trust", "--accept-changes", at=hostile.checkout)
    assert (done.code, "cannot read .env" in done.err and "git ignores it" in done.err) == (
        2,
        True,
    ), done.err
    assert not is_stored(hostile.checkout, SECRET)


def test_documents_of_rlm_act(hostile: Imports) -> None:
    here = hostile.checkout
    here.write(f"{PLACES['rlm-act']}/x.json", rlm_act(str(here.path / ".env"), here.path))
    (line,) = hostile(".")
    assert "which is not read: git ignores it" in line.remarks
    assert not is_stored(here, SECRET)


def test_a_plan_beside_it_that_git_ignores(hostile: Imports) -> None:
    here = hostile.checkout
    here.write(".gitignore", "*-plan.md\n")
    here.write(f".forge/runs/{RUN}.yaml", forge("gone.md"))
    here.write(f".forge/runs/{RUN}-plan.md", SECRET)
    (line,) = hostile(".")
    assert (
        f"has the plan {RUN}-plan.md next to it, which was not read: git ignores it" in line.remarks
    )
    assert not is_stored(here, SECRET)


@pytest.mark.parametrize("ignored", ["", ".forge\n"])
def test_what_a_snapshot_captures_is_read(imports: Imports, ignored: str) -> None:
    """Files of the tool itself are read even if git ignores all of them."""
    imports.checkout.write(".gitignore", ignored)
    imports.checkout.write("plan.md", "what to do")
    imports.checkout.write(f".forge/runs/{RUN}.yaml", forge("plan.md"))
    (line,) = imports(".")
    assert "plan.md" not in line.remarks
    assert is_stored(imports.checkout, "what to do")


def test_an_ignored_directory_that_is_no_tools_is_not_searched(imports: Imports) -> None:
    here = imports.checkout
    here.write(".gitignore", "build/\n")
    here.write(
        "build/x.yaml", forge("plan.md").replace("plan_path", f"secret: {SECRET}\nplan_path")
    )
    done = imports.ckpt("import", ".", at=here)
    assert "skipped files that no snapshot captures: 1 file, such as build/x.yaml" in done.err
    assert not is_stored(here, SECRET)
    assert [line.status for line in imports("build")] == ["imported"]
