"""Reads the options of phases: numbers, lengths of time, yes or no, all of them said as text; "" where nothing is said."""

from __future__ import annotations

import hashlib
import os
import re

from gitckpt.durable.pipeline.launch import Context
from gitckpt.durable.run.attempts import Ended, PhaseFailed
from gitckpt.model import times
from gitckpt.model.errors import UsageError

# Reads the options of phases: numbers, lengths of time, yes or no, all of them said as text; "" where nothing is said.


_ISSUE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]{0,127}")
_YES, _NO = ("yes", "true", "1"), ("", "no", "false", "0")


def agreed(name: str, text: str) -> bool:
    """Returns whether an option says yes; nothing is no.

    Raises:
        UsageError: it says neither.
    """
    said = text.lower()
    if said not in (*_YES, *_NO):
        raise UsageError(f"{name} is {said!r:.60}", hint="say yes or no")
    return said in _YES


def is_issue(text: str) -> bool:
    """Tells whether a text can be the id of an issue."""
    return _ISSUE.fullmatch(text) is not None


def require_issue(text: str) -> None:
    """Raises `UsageError` for what cannot be the id of an issue."""
    if not is_issue(text):
        raise UsageError(f"{text!r:.100} is no id of an issue", hint="see which there are: bd list")


def count(name: str, text: str, usual: int) -> int:
    """Returns the whole number that an option says.

    Args:
        name: of the option, for the error.
        text: what it says.
        usual: the number where it says nothing.

    Raises:
        UsageError: it says something else.
    """
    if not text:
        return usual
    if not (text.isascii() and text.isdigit() and len(text) <= 6):
        wrong = "must be 0 or more, not" if text.startswith("-") else "is"
        raise UsageError(f"{name} {wrong} {text!r:.60}", hint=f"write a whole number: {usual}")
    return int(text)


def amount(name: str, text: str) -> float:
    """Returns the amount of money that an option says, in US dollars; 0 where it says nothing.

    Args:
        name: of the option, for the error.
        text: what it says, such as `2.50`.

    Raises:
        UsageError: it says something else.
    """
    try:
        found = float(text or 0)
    except ValueError:
        found = -1.0
    if not 0 <= found < 1e9:
        wrong = "must be 0 or more, not" if text.startswith("-") else "is"
        raise UsageError(f"{name} {wrong} {text!r:.60}", hint="write an amount in US dollars: 2.50")
    return found


def pause(name: str, text: str, usual: float) -> float:
    """Returns the length of time that an option says, in seconds; it may be none at all.

    Args:
        name: of the option, for the error.
        text: what it says, such as `90s`.
        usual: the length where it says nothing, in seconds.

    Raises:
        UsageError: it says something else.
    """
    try:
        return times.parse_age(text) / times.MICRO if text else usual
    except UsageError as error:
        raise UsageError(f"{name}: {error.message}", hint=error.hint) from None


def limit(name: str, text: str, usual: float) -> float:
    """Returns how long something may take, in seconds. Args and errors: as `pause`.

    Raises:
        UsageError: it is no time at all.
    """
    seconds = pause(name, text, usual)
    if not seconds:
        raise UsageError(f"{name}: {text!r:.60} is no time at all", hint="write as much as it may take: 30m")
    return seconds


# What begins a run from a plan: it is read, and the branch is named after it.


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
