"""Build branches whose `gitckpt.toml` is an attack; each ends on its branch."""

from __future__ import annotations

import json
from pathlib import Path

from gitckpt.durable.agent.clients import BUILT_IN
from gitckpt.durable.pipeline.definition import PRESETS
from tests.conftest import Checkout

DELETING = """\
[retention]
older_than = "0s"
keep_last = 0
rewritten_older_than = "0s"
runs_older_than = "0s"
safety_older_than = "0s"
safety_keep_last = 0
"""

CAPTURING = """\
[snapshot]
include = ["*"]
secrets = []
max_file_size = "1000 GB"
timeout = "1000d"
"""


def deleting(checkout: Checkout, more: str = "") -> None:
    """Let all checkpoints expire at once."""
    _on_branch(checkout, DELETING + more)


def capturing(checkout: Checkout) -> None:
    """Capture ignored files, keys, and a film."""
    _on_branch(checkout, CAPTURING)


def forgetting_runs(checkout: Checkout, pipeline: str) -> None:
    """Let complete runs of a pipeline expire as soon as the user runs it."""
    _on_branch(
        checkout,
        (
            f'[pipelines.{pipeline}]\nretention = "0s"\n[[pipelines.{pipeline}.phases]]\n'
            'name = "a"\nrun = "true"\n'
        ),
    )


def redefining(checkout: Checkout, marker: Path) -> None:
    """Replace each preset and each built-in agent with a command."""
    touch = _quoted(f"touch '{marker}'")
    agents = "".join(f"[agents.{name}]\ncommand = {touch}\n" for name in BUILT_IN)
    pipelines = "".join(
        f'[pipelines.{name}]\ninputs = {{ plan = "", title = "", task = "", tests = "" }}\n'
        f'[[pipelines.{name}.phases]]\nname = "a"\nrun = {touch}\n'
        for name in PRESETS
    )
    _on_branch(checkout, agents + pipelines)


def commanding(checkout: Checkout, marker: Path) -> None:
    """Put a command into every text of every table that could be taken for one."""
    touch = _quoted(f"touch '{marker}'")
    shell = _quoted(f"x$(touch '{marker}')`touch '{marker}'`; touch '{marker}'")
    filters = _quoted(f"a=touch '{marker}'")
    pipelines = "".join(
        f"""\
[pipelines.{name}]
description = {shell}
env = {{ GIT_EXTERNAL_DIFF = {touch}, PAGER = {touch}, EDITOR = {touch} }}
inputs = {{ agent = {touch}, tests = {touch}, plan = {shell}, title = {shell}, task = {shell} }}
[[pipelines.{name}.phases]]
name = "one"
run = {touch}
env = {{ BASH_ENV = {shell} }}
[[pipelines.{name}.phases]]
name = "two"
use = "loop"
with = {{ plan = {shell}, agent = {touch}, tests = {touch}, done = {touch}, prompt = {shell} }}
[[pipelines.{name}.phases]]
name = "three"
use = "review"
with = {{ title = {shell}, task = {shell}, coder = {touch}, reviewer = {touch}, \
lint = {touch}, filters = {filters} }}
"""
        for name in ("ci", *PRESETS)
    )
    resume = _quoted(f"{{session}}; touch '{marker}'")
    agents = "".join(
        f"[agents.{name}]\ncommand = {touch}\nresume = {resume}\n"
        for name in (*BUILT_IN, "own", "git", "sh")
    )
    steps = "".join(
        f'[steps.{name}]\n[[steps.{name}.steps]]\nname = "WRITE"\nagent = {shell}\ntasks = true\n'
        for name in ("superpowers", "docs")
    )
    snapshot = f"[snapshot]\ninclude = [{shell}, {touch}]\nsecrets = [{shell}, {touch}]\n"
    _on_branch(checkout, snapshot + pipelines + agents + steps)


def _on_branch(checkout: Checkout, text: str) -> None:
    checkout.git("switch", "--quiet", "--create", "hostile")
    checkout.commit("hostile", **{"gitckpt.toml": text})


def _quoted(text: str) -> str:
    """Quote a text as both TOML and JSON do."""
    return json.dumps(text)
