"""Secrets in what a run is told and says are masked before they are stored."""

from __future__ import annotations

from pathlib import Path

import pytest

from gitckpt.durable.agent.transcript import Transcript
from gitckpt.store.store import Store
from tests import forked
from tests.conftest import Checkout

TOKEN = "ghp_" + "aB3dE6gH9jK2mN5pQ8rS1tU4vW7xY0zA2bC4"
PIPELINE = """
[pipelines.leak]
[pipelines.leak.inputs]
task = ""
[[pipelines.leak.phases]]
name = "tell"
run = "echo token {token}; echo told: $CKPT_INPUT_TASK; mkdir -p $CKPT_OUTPUT; echo said {token} > $CKPT_OUTPUT/agent.log; {end}"
"""


def documents(checkout: Checkout) -> str:
    refs = checkout.git("for-each-ref", "--format=%(refname)", "refs/checkpoints").split()
    return "".join(blob.decode() for blob in checkout.blobs(*refs))


@pytest.mark.parametrize("end", ["true", "false"])
def test_no_document_and_no_transcript_of_a_run_holds_the_secret(main_checkout: Checkout, end: str) -> None:
    main_checkout.write("gitckpt.toml", PIPELINE.format(token=f"{TOKEN[:8]}''{TOKEN[8:]}", end=end))
    main_checkout.git("add", "--all")
    main_checkout.git("commit", "--quiet", "--message", "pipeline")
    done = forked.git_ckpt("run", "leak", "-i", f"task=use {TOKEN}", directory=main_checkout.path)
    assert done.code == (0 if end == "true" else 20), done
    stored = documents(main_checkout)
    assert TOKEN not in stored
    assert "token [masked: github-pat]" in stored
    assert 'task = "use [masked: github-pat]"' in stored
    with Store.open(main_checkout.path) as store:
        newest = store.list()[0]
    log = main_checkout.git("cat-file", "blob", f"refs/ckpt/trees/{newest.id}:run/output/tell/agent.log")
    assert log == "said [masked: github-pat]"


def test_a_transcript_is_masked_when_it_is_closed(tmp_path: Path) -> None:
    transcript = Transcript(str(tmp_path / "agent.log"))
    transcript.add(b"first " + TOKEN[:10].encode())
    transcript.add(TOKEN[10:].encode() + b" last\n")
    transcript.close()
    assert (tmp_path / "agent.log").read_bytes() == b"first [masked: github-pat] last\n"


def test_a_transcript_without_secrets_stays_as_it_was(tmp_path: Path) -> None:
    transcript = Transcript(str(tmp_path / "agent.log"))
    transcript.add(b"\0\xff first\n")
    transcript.close()
    assert (tmp_path / "agent.log").read_bytes() == b"\0\xff first\n"
