"""Parse the options of phases, which are text; "" means that an option is not set."""

from __future__ import annotations

import hashlib
import os
import re

from gitckpt.durable.pipeline.launch import PhaseContext
from gitckpt.durable.run.attempts import PhaseFailed, PhaseResult
from gitckpt.model import times
from gitckpt.model.errors import UsageError

BD = "bd"  # the program of beads, a tracker of issues
_ISSUE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]{0,127}")
_YES, _NO = ("yes", "true", "1"), ("", "no", "false", "0")


def parse_yes_or_no(name: str, text: str) -> bool:
    word = text.lower()
    if word not in (*_YES, *_NO):
        raise UsageError(f"{name} is {word!r:.60}, not yes or no", hint="write yes or no")
    return word in _YES


def is_issue(text: str) -> bool:
    return _ISSUE.fullmatch(text) is not None


def require_issue_id(text: str) -> None:
    if not is_issue(text):
        raise UsageError(f"{text!r:.100} is not an issue id", hint="list the issues: bd list")


def parse_count(name: str, text: str, default: int) -> int:
    if not text:
        return default
    if not (text.isascii() and text.isdigit() and len(text) <= 6):
        expected = "0 or more" if text.startswith("-") else "a whole number"
        hint = f"write a whole number, such as {default}"
        raise UsageError(f"{name} must be {expected}, not {text!r:.60}", hint=hint)
    return int(text)


def parse_dollars(name: str, text: str) -> float:
    try:
        dollars = float(text or 0)
    except ValueError:
        dollars = -1.0
    if not 0 <= dollars < 1e9:
        expected = "0 or more" if text.startswith("-") else "an amount"
        hint = "write an amount in US dollars: 2.50"
        raise UsageError(f"{name} must be {expected}, not {text!r:.60}", hint=hint)
    return dollars


def parse_seconds(name: str, text: str, default: float) -> float:
    try:
        return times.parse_age(text) / times.MICRO if text else default
    except UsageError as error:
        raise UsageError(f"{name}: {error.message}", hint=error.hint) from None


def read_timeout(name: str, text: str, default: float) -> float:
    """Parse a duration such as `90s` into seconds. Raises UsageError if it is 0."""
    seconds = parse_seconds(name, text, default)
    if not seconds:
        hint = "write a duration such as 30m"
        raise UsageError(f"{name} must be more than 0, not {text!r:.60}", hint=hint)
    return seconds


PLAN = "plan"  # name of the input with the path of the plan

_NOT_IN_SLUG = re.compile(r"[^a-z0-9-]+")
_WORD_ENDS = re.compile(r"[-_\s]+")


def read_plan(context: PhaseContext) -> PhaseResult:
    """Read the run's plan; set plan_path, plan_title and plan_hash in the state."""
    run = context.run
    path = run.pipeline.inputs.get(PLAN, "")
    if not path:
        raise PhaseFailed("the run has no plan", hint="start another run: git ckpt run PLAN.md")
    data = context.read_input_or_file(path, "the plan")
    title = find_plan_title(data.decode("utf-8", "replace"), path)
    digest = hashlib.sha256(data).hexdigest()
    run.state |= {"plan_path": path, "plan_title": title, "plan_hash": digest}
    return PhaseResult(result=title, output=f"{title}\n")


def generate_branch_name(context: PhaseContext) -> PhaseResult:
    run = context.run
    branch = f"forge/{make_branch_slug(str(run.state.get('plan_path', '')))}"
    run.state["branch"] = branch
    return PhaseResult(result=branch, output=f"{branch}\n")


def make_branch_slug(path: str) -> str:
    return _NOT_IN_SLUG.sub("-", _file_stem(path).lower()).strip("-") or "unnamed"


def _file_stem(path: str) -> str:
    file_name = os.path.basename(path)
    return file_name[: file_name.rindex(".")] if "." in file_name else file_name


def find_plan_title(text: str, path: str) -> str:
    """Return the title in a plan's front matter, or a title made of the file name."""
    if text.startswith("---\n"):
        front_matter, end_marker, _ = text[4:].partition("\n---")
        if not end_marker and not text[4:].startswith("---"):
            hint = "end the front matter with a line ---, then start another run"
            raise PhaseFailed(f"the front matter of {path} has no end", hint=hint)
        for line in front_matter.split("\n"):
            key, colon, value = line.partition(":")
            if colon and key.strip() == "title" and value.strip():
                return " ".join(value.strip().strip("\"'").split())
    words = filter(None, _WORD_ENDS.split(_file_stem(path)))
    return " ".join(word.capitalize() for word in words) or "Unnamed"
