"""What begins a run from a plan: it is read, and the branch is named after it."""

from __future__ import annotations

import hashlib
import os
import re

from gitckpt.durable.pipeline.context import Context
from gitckpt.durable.run.errors import PhaseFailed
from gitckpt.durable.run.retry import Ended

PLAN = "plan"
"""The input that is the plan."""

_NOT_IN_SLUG = re.compile(r"[^a-z0-9-]+")
_WORD_ENDS = re.compile(r"[-_\s]+")


def read_plan(context: Context) -> Ended:
    """Reads the plan that the run was started with: `plan_path`, `plan_title` and `plan_hash` join the state.

    Raises:
        PhaseFailed: there is none, or its front matter has no end.
    """
    run = context.run
    path = run.pipeline.inputs.get(PLAN, "")
    if not path:
        raise PhaseFailed("the run has no plan", hint="start another run: git ckpt run PLAN.md")
    data = context.content(path, "the plan")
    title = title_of(data.decode("utf-8", "replace"), path)
    run.state |= {"plan_path": path, "plan_title": title, "plan_hash": hashlib.sha256(data).hexdigest()}
    return Ended(result=title, output=f"{title}\n")


def generate_branch(context: Context) -> Ended:
    """Names the branch after the plan: `branch` joins the state."""
    run = context.run
    branch = f"forge/{slug(str(run.state.get('plan_path', '')))}"
    run.state["branch"] = branch
    return Ended(result=branch, output=f"{branch}\n")


def slug(path: str) -> str:
    """Returns what a plan is called in branches: its file name without extension, in lower case, with hyphens for other characters."""
    name = os.path.basename(path)
    stem = name[: name.rindex(".")] if "." in name else name
    return _NOT_IN_SLUG.sub("-", stem.lower()).strip("-") or "unnamed"


def title_of(text: str, path: str) -> str:
    """Returns the title of a plan: `title` of its front matter, or its file name in words.

    Args:
        text: of the plan.
        path: of its file.

    Raises:
        PhaseFailed: the front matter has no end.
    """
    if text.startswith("---\n"):
        head, end, _ = text[4:].partition("\n---")
        if not end and not text[4:].startswith("---"):
            raise PhaseFailed(f"the front matter of {path} has no end", hint="close it with a line ---, then start another run")
        for line in head.split("\n"):
            key, colon, value = line.partition(":")
            if colon and key.strip() == "title" and value.strip():
                return " ".join(value.strip().strip("\"'").split())
    name = os.path.basename(path)
    stem = name[: name.rindex(".")] if "." in name else name
    return " ".join(word.capitalize() for word in _WORD_ENDS.split(stem) if word) or "Unnamed"
