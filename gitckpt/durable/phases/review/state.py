"""How far a coder and a reviewer have come: all that the next step needs, as a value and as the table of a state. Pure.

The table begins with the 19 keys, the findings and all findings of quasar's checkpoint, under its names and as it has them. What quasar
leaves out, without which nobody could go on faithfully, is in the table `more`.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from gitckpt.model.errors import InvalidCheckpoint, NewerCheckpoint
from gitckpt.model.table import TableReader
from gitckpt.model.values import dataclass, field, replace

# What agents and commands say, as text that a state can hold and a prompt can quote. Pure.


CUT = "... [truncated]"
"""What stands where a text was cut off."""

LONGEST = 100_000
"""How much of an answer or of an output a state keeps, in characters."""

_SPACE = "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
"""White space as Unicode has it. Python's own `strip` takes four control characters more, which would change the ids of findings."""


def trimmed(text: str) -> str:
    """Returns a text without white space at its ends."""
    return text.strip(_SPACE)


def cut(text: str, limit: int) -> str:
    """Returns the beginning of a text that is too long, followed by `CUT`.

    Args:
        text: the text.
        limit: how many characters may stay. A character is never split, as it would be where bytes are counted.
    """
    return text if len(text) <= limit else text[:limit] + CUT


def ending(text: str, limit: int) -> str:
    """Returns the end of a text that is too long, preceded by `CUT`. Args: as `cut`."""
    return text if len(text) <= limit else f"{CUT}\n{text[-limit:]}"


def storable(text: str) -> str:
    """Returns a text without what UTF-8 cannot encode: lone surrogates become U+FFFD."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def first_line(text: str, limit: int) -> str:
    """Returns the first line of a text, for a subject or a message.

    Args:
        text: the text.
        limit: how many characters of it.
    """
    return trimmed(trimmed(storable(text)).replace("\0", "").partition("\n")[0])[:limit]


# What a reviewer finds, and what becomes of it over the cycles. Pure.


FOUND, FIXED, STILL_PRESENT, REGRESSED = "found", "fixed", "still_present", "regressed"
STATUSES = (FOUND, FIXED, STILL_PRESENT, REGRESSED)

CRITICAL, MAJOR = "critical", "major"

OF_FILTER = "[filter:"
"""What the description of what a filter found begins with."""


@dataclass(frozen=True, slots=True)
class ReviewFinding:
    """Something that is to be changed before the work is approved.

    Attributes:
        severity: a word of the reviewer's, such as "critical", "major" or "minor".
        description: what is wrong.
        cycle: the cycle that it was found in; 0 where it is not known.
        status: one of `STATUSES`.
    """

    severity: str
    description: str
    cycle: int = 0
    status: str = FOUND

    @property
    def id(self) -> str:
        """Its id, by which it is known again in later cycles."""
        return finding_id(self.severity, self.description)


@dataclass(frozen=True, slots=True)
class Verification:
    """What a reviewer says of a finding of an earlier cycle.

    Attributes:
        finding: its id.
        status: FIXED, STILL_PRESENT or REGRESSED.
        comment: the reviewer's.
    """

    finding: str
    status: str
    comment: str = ""


def finding_id(severity: str, description: str) -> str:
    """Returns the id of a finding: `f-` and 12 hex digits, the same for the same words whatever white space surrounds them."""
    text = f"{severity}:{trimmed(description)}"
    return f"f-{hashlib.sha256(text.encode('utf-8', 'replace')).hexdigest()[:12]}"


def verified(findings: Iterable[ReviewFinding], verifications: Sequence[Verification]) -> tuple[ReviewFinding, ...]:
    """Returns findings with the status that verifications give them; others keep theirs, and unknown ids count for nothing.

    Args:
        findings: of all cycles; one that was found more than once changes everywhere.
        verifications: in the order of the review; the last word about a finding counts.
    """
    status = {each.finding: each.status for each in verifications}
    return tuple(replace(each, status=status.get(each.id, each.status)) for each in findings)


def unresolved(findings: Iterable[ReviewFinding]) -> tuple[ReviewFinding, ...]:
    """Returns the findings that are not fixed, each once, as it was found last, in the order in which they were found first."""
    last = {each.id: each for each in findings}
    return tuple(each for each in last.values() if each.status != FIXED)


# Reads what a reviewer answers: blocks of ISSUE, VERIFICATION and REPORT, and the word APPROVED. Pure.


_ISSUE, _VERIFICATION, _REPORT, _APPROVED = "ISSUE:", "VERIFICATION:", "REPORT:", "APPROVED:"
_SEVERITY, _DESCRIPTION = "SEVERITY:", "DESCRIPTION:"
_FIELDS = {"SATISFACTION:": "satisfaction", "RISK:": "risk", "NEEDS_HUMAN_REVIEW:": "needs_human_review", "SUMMARY:": "summary"}


@dataclass(frozen=True, slots=True)
class ReviewReport:
    """What a reviewer says of the work as a whole.

    Attributes:
        satisfaction: high, medium or low.
        risk: high, medium or low.
        needs_human_review: whether a person should look at it.
        summary: one line.
    """

    satisfaction: str = ""
    risk: str = ""
    needs_human_review: bool = False
    summary: str = ""


def findings(answer: str) -> tuple[ReviewFinding, ...]:
    """Returns what an answer finds. One without a severity is major; one without a description counts for nothing."""
    found = [_finding(block) for block in _blocks(answer, _ISSUE, lambda line: line in ("", _ISSUE))]
    return tuple(each for each in found if each.description)


def verifications(answer: str) -> tuple[Verification, ...]:
    """Returns what an answer says of earlier findings. A status that is not known means that the finding is still present."""
    blocks = _blocks(answer, _VERIFICATION, lambda line: line in ("", _VERIFICATION, _ISSUE, _REPORT) or line.startswith(_APPROVED))
    said = [(_last(block, "FINDING_ID:"), _last(block, "STATUS:").lower(), _last(block, "COMMENT:")) for block in blocks]
    return tuple(
        Verification(finding, status if status in (FIXED, REGRESSED) else STILL_PRESENT, comment)
        for finding, status, comment in said
        if finding
    )


def report(answer: str) -> ReviewReport | None:
    """Returns the first report of an answer that has a field; None where there is none."""
    for block in _blocks(answer, _REPORT, lambda line: bool(line) and not line.startswith(tuple(_FIELDS))):
        said = {name: _last(block, field) for field, name in _FIELDS.items()}
        if any(block):
            needs = said["needs_human_review"].lower() in ("yes", "true")
            return ReviewReport(said["satisfaction"].lower(), said["risk"].lower(), needs, said["summary"])
    return None


def is_approved(answer: str) -> bool:
    """Tells whether an answer approves of the work, whatever else it says."""
    return any(line.startswith(_APPROVED) for line in _lines(answer))


def _lines(answer: str) -> list[str]:
    return [trimmed(line) for line in answer.split("\n")]


def _blocks(answer: str, head: str, ends: Callable[[str], bool]) -> Iterator[list[str]]:
    """Yields the lines that follow each head, up to one that ends the block."""
    lines = _lines(answer)
    at = 0
    while at < len(lines):
        at += 1
        if lines[at - 1] != head:
            continue
        block = []
        while at < len(lines) and not ends(lines[at]):
            block.append(lines[at])
            at += 1
        yield block


def _last(block: list[str], field: str) -> str:
    """Returns the value that a block gives to a field last; "" where it gives none."""
    return next((trimmed(line.removeprefix(field)) for line in reversed(block) if line.startswith(field)), "")


def _finding(block: list[str]) -> ReviewFinding:
    description: list[str] = []
    continues = False
    for line in block:
        if line.startswith(_DESCRIPTION) and not continues:
            description, continues = [trimmed(line.removeprefix(_DESCRIPTION))], True
        elif line.startswith((_SEVERITY, _APPROVED)):
            continues = False
        elif continues:
            description.append(line)
    return ReviewFinding(_last(block, _SEVERITY) or MAJOR, trimmed(" ".join(description)))


# How far a coder and a reviewer have come: all that the next step needs, as a value and as the table of a state. Pure.


D = TypeVar("D")

IDLE, BEAD_CREATED, CODING, CODE_COMPLETE = "idle", "bead_created", "coding", "code_complete"
LINTING, FILTERING, REVIEWING, REVIEW_COMPLETE = "linting", "filtering", "reviewing", "review_complete"
RESOLVING_ISSUES, APPROVED, ERROR = "resolving_issues", "approved", "error"

PHASES = (
    *(IDLE, BEAD_CREATED, CODING, CODE_COMPLETE, LINTING, FILTERING),
    *(REVIEWING, REVIEW_COMPLETE, RESOLVING_ISSUES, APPROVED, ERROR),
)
"""The phases of the cycle in the order of the numbers that quasar gives them, from 0."""

WITHOUT_FILTERING = tuple(phase for phase in PHASES if phase != FILTERING)
"""The numbers of files that quasar wrote before 23 February 2026."""

WITHOUT_LINTING = tuple(phase for phase in WITHOUT_FILTERING if phase != LINTING)
"""The numbers of files that quasar wrote before 18 February 2026."""

VERSION = 1

KEY = "review"
"""Where the state of a run keeps the table."""

MORE = "more"
_COMMITTED = (LINTING, FILTERING, REVIEWING, REVIEW_COMPLETE)
"""Phases that begin after the coder's work was committed."""


@dataclass(frozen=True, slots=True)
class CycleState:
    """A coder and a reviewer at one moment.

    Attributes:
        phase_id: of a quasar nebula; "" outside one.
        nebula_name: its name.
        created_at: when this was noted, RFC 3339; "" where it was not.
        git_sha: what HEAD was then; "" on an unborn branch.
        task_bead_id: the name of the task, which the subjects of commits begin with.
        task_title: the task.
        cycle: from 1 on; 0 before the first.
        max_cycles: how many there may be.
        phase: one of `PHASES`.
        total_cost_usd: of all answers until now.
        max_budget_usd: what they may cost; 0 for as much as they like.
        coder_output: the coder's last answer.
        review_output: the reviewer's last answer.
        lint_output: what the linter still complains of.
        base_commit_sha: HEAD at the beginning.
        cycle_commits: what HEAD was at the end of each cycle.
        child_bead_ids: issues of a tracker, one for each finding.
        refactored: whether the task was changed, and the coder has not heard of it yet.
        findings: of this cycle.
        all_findings: of all cycles, with what became of them.
        failed_in: the phase in which an error came up, where `phase` is "error".
        problem: that error, in words.
        verifications: what the last review said of earlier findings.
        filter_output: what the filter printed that failed in this cycle.
        filter_check_name: its name.
        filter_history: for each cycle the filter that failed, "" where none did.
        original_description: the task before it was changed.
        refactor_description: the task after it was changed.
        last_cycle_sha: HEAD after the coder's work of this cycle was committed; "" before.
        uncommitted: what the coder did that is not committed yet: "" for nothing, "cycle", or "lint fix".
        lint_fixes: how often the coder was asked in this cycle to satisfy the linter.
        sessions: "coder" and "reviewer" → the conversation that its last answer was part of.
        struggle: why it seems that coder and reviewer get nowhere; "" where they get on.
        beads: finding → the issue that was made of it; "" where quasar had made those that there are.
        report: of the last review.
    """

    phase_id: str = ""
    nebula_name: str = ""
    created_at: str = ""
    git_sha: str = ""
    task_bead_id: str = ""
    task_title: str = ""
    cycle: int = 0
    max_cycles: int = 3
    phase: str = BEAD_CREATED
    total_cost_usd: float = 0.0
    max_budget_usd: float = 0.0
    coder_output: str = ""
    review_output: str = ""
    lint_output: str = ""
    base_commit_sha: str = ""
    cycle_commits: tuple[str, ...] = ()
    child_bead_ids: tuple[str, ...] = ()
    refactored: bool = False
    findings: tuple[ReviewFinding, ...] = ()
    all_findings: tuple[ReviewFinding, ...] = ()
    failed_in: str = ""
    problem: str = ""
    verifications: tuple[Verification, ...] = ()
    filter_output: str = ""
    filter_check_name: str = ""
    filter_history: tuple[str, ...] = ()
    original_description: str = ""
    refactor_description: str = ""
    last_cycle_sha: str = ""
    uncommitted: str = ""
    lint_fixes: int = 0
    sessions: Mapping[str, str] = field(default_factory=dict)
    struggle: str = ""
    beads: Mapping[str, str] = field(default_factory=dict)
    report: ReviewReport | None = None

    @property
    def budget_share(self) -> float:
        """What the next answer may cost, where there is a budget: its share of what is left, for two answers in each cycle to come."""
        cycles = max(self.max_cycles - self.cycle + 1, 1)
        return max(self.max_budget_usd - self.total_cost_usd, 0) / (2 * cycles)

    def to_state(self) -> dict[str, Any]:
        """Returns the table of the state, JSON values throughout."""
        return {**self.head(), "findings": _plain(self.findings), "all_findings": _plain(self.all_findings), MORE: self.more()}

    def head(self) -> dict[str, Any]:
        """Returns the 19 keys of quasar's checkpoint, in its order; `created_at` is text here."""
        return {
            "version": VERSION,
            "phase_id": self.phase_id,
            "nebula_name": self.nebula_name,
            "created_at": self.created_at,
            "git_sha": self.git_sha,
            "task_bead_id": self.task_bead_id,
            "task_title": self.task_title,
            "cycle": self.cycle,
            "max_cycles": self.max_cycles,
            "phase": PHASES.index(self.phase),
            "total_cost_usd": self.total_cost_usd,
            "max_budget_usd": self.max_budget_usd,
            "coder_output": self.coder_output,
            "review_output": self.review_output,
            "lint_output": self.lint_output,
            "base_commit_sha": self.base_commit_sha,
            "cycle_commits": list(self.cycle_commits),
            "child_bead_ids": list(self.child_bead_ids),
            "refactored": self.refactored,
        }

    def more(self) -> dict[str, Any]:
        """Returns what quasar's checkpoint leaves out."""
        report = self.report
        return {
            "phase": self.phase,
            "failed_in": self.failed_in,
            "problem": self.problem,
            "filter_output": self.filter_output,
            "filter_check_name": self.filter_check_name,
            "filter_history": list(self.filter_history),
            "original_description": self.original_description,
            "refactor_description": self.refactor_description,
            "last_cycle_sha": self.last_cycle_sha,
            "uncommitted": self.uncommitted,
            "lint_fixes": self.lint_fixes,
            "struggle": self.struggle,
            "beads": dict(self.beads),
            "findings": [{"id": each.id, "status": each.status} for each in self.findings],
            "all_findings": [{"id": each.id, "status": each.status} for each in self.all_findings],
            "verifications": [{"id": each.finding, "status": each.status, "comment": each.comment} for each in self.verifications],
            "sessions": dict(self.sessions),
            "report": {}
            if report is None
            else {
                "satisfaction": report.satisfaction,
                "risk": report.risk,
                "needs_human_review": report.needs_human_review,
                "summary": report.summary,
            },
        }

    @classmethod
    def from_state(cls, table: Mapping[str, Any], source: str = f"state.{KEY}", numbers: tuple[str, ...] = PHASES) -> CycleState:
        """Returns what a table says, with or without `more`.

        Args:
            table: the table.
            source: where it stands, for errors.
            numbers: the phases by their numbers, for a table that does not name its phase.

        Raises:
            InvalidCheckpoint: a key is missing or has a value that cannot be; `NewerCheckpoint`: the version is a later one.
        """
        head, more = _Said(table, source), _Said(table.get(MORE, {}), f"{source}.{MORE}")
        _require_version(head)
        phase = _phase(head, more, numbers)
        failed_in = more.choice("failed_in", PHASES, default="") if phase == ERROR else ""
        cycle = head.count("cycle")
        if cycle < 1 and not {phase, failed_in} & {IDLE, BEAD_CREATED}:
            raise head.invalid("cycle", f"is {cycle}, but cycles count from 1")
        commits = head.texts("cycle_commits")
        # In quasar's own checkpoint, the commit of a cycle that is not over is nowhere but in HEAD.
        is_lost = MORE not in table and phase in _COMMITTED and len(commits) < cycle
        beads, all_findings = more.table("beads").all_texts(), _findings(head, more, "all_findings")
        if "beads" not in more.values and head.texts("child_bead_ids"):
            beads = {each.id: "" for each in all_findings}
        last = head.text("git_sha") if is_lost else more.text("last_cycle_sha")
        return cls(
            phase_id=head.text("phase_id"),
            nebula_name=head.text("nebula_name"),
            created_at=head.text("created_at"),
            git_sha=head.text("git_sha"),
            task_bead_id=head.text("task_bead_id"),
            task_title=head.text("task_title"),
            cycle=cycle,
            max_cycles=head.count("max_cycles"),
            phase=phase,
            total_cost_usd=head.number("total_cost_usd"),
            max_budget_usd=head.number("max_budget_usd"),
            coder_output=head.text("coder_output"),
            review_output=head.text("review_output"),
            lint_output=head.text("lint_output"),
            base_commit_sha=head.text("base_commit_sha"),
            cycle_commits=commits,
            child_bead_ids=head.texts("child_bead_ids"),
            refactored=head.flag("refactored"),
            findings=_findings(head, more, "findings"),
            all_findings=all_findings,
            failed_in=failed_in,
            problem=more.text("problem"),
            verifications=_verifications(more),
            filter_output=more.text("filter_output"),
            filter_check_name=more.text("filter_check_name"),
            filter_history=more.texts("filter_history"),
            original_description=more.text("original_description"),
            refactor_description=more.text("refactor_description"),
            last_cycle_sha=last,
            # What quasar wrote does not tell whether the coder's work was committed; to commit it twice does no harm.
            uncommitted=more.text("uncommitted") if MORE in table or phase != CODE_COMPLETE else "cycle",
            lint_fixes=more.count("lint_fixes"),
            sessions=more.table("sessions").all_texts(),
            struggle=more.text("struggle"),
            beads=beads,
            report=_report(more.table("report")),
        )


class _Said(TableReader):
    """A table as quasar has them: what is missing is zero, empty or false.

    Args:
        table: what stands where the table should.
        source: where that is, for errors.
    """

    kinds: Mapping[type, str] = {**TableReader.kinds, int: "a whole number"}

    def __init__(self, table: Any, source: str) -> None:
        if not isinstance(table, Mapping):
            raise InvalidCheckpoint(source, "", f"is {_kind(table)}, not a table")
        super().__init__(table, source)

    def wrong(self, key: str, wanted: str, value: object, default: D) -> D:  # noqa: ARG002 - it is raised here, too
        raise self.invalid(key, f"is {_kind(value)}, not {wanted}")

    def text(self, key: str) -> str:
        return self.value(key, str, "")

    def all_texts(self) -> dict[str, str]:
        return {key: self.text(key) for key in self.values}

    def texts(self, key: str) -> tuple[str, ...]:
        values: list[Any] = self.value(key, list, [])
        if not all(type(value) is str for value in values):
            raise self.invalid(key, "holds something else than strings")
        return tuple(values)

    def count(self, key: str, *, required: bool = False) -> int:
        if required and key not in self.values:
            raise self.invalid(key, "is missing")
        value = self.value(key, int, 0)
        if value < 0:
            raise self.invalid(key, f"is {value}, less than 0")
        return value

    def number(self, key: str) -> float:
        """Returns a finite number, 0 or more."""
        value = self.values.get(key, 0.0)
        if type(value) not in (int, float):
            self.wrong(key, "a number", value, 0.0)
        if not math.isfinite(value) or value < 0:
            raise self.invalid(key, f"is {value}, no amount")
        return float(value)

    def choice(self, key: str, words: Sequence[str], default: str | None = None) -> str:
        """Returns one of some words; where it is missing, the default, if there is one."""
        value = self.text(key)
        if value == "" and default is not None:
            return default
        if value not in words:
            raise self.invalid(key, f"is {value!r:.60}, not one of {', '.join(words)}")
        return value

    def table(self, key: str) -> _Said:
        return _Said(self.values.get(key, {}), f"{self.source}.{key}")

    def tables(self, key: str) -> list[_Said]:
        values: list[Any] = self.value(key, list, [])
        return [_Said(value, f"{self.source}.{key}[{at}]") for at, value in enumerate(values)]


def _kind(value: object) -> str:
    return f"{value!r:.40} ({type(value).__name__})"


def _require_version(head: _Said) -> None:
    version = head.count("version", required=True)
    if version > VERSION:
        raise NewerCheckpoint(head.source, "version", f"{version} is not supported", hint="read it with the program that wrote it")
    if version < VERSION:
        raise head.invalid("version", f"{version} is not supported")


def _phase(head: _Said, more: _Said, numbers: tuple[str, ...]) -> str:
    """Returns the phase: by its name, where there is one, as the numbers have moved twice."""
    number = head.count("phase", required=True)
    if "phase" in more.values:
        return more.choice("phase", PHASES)
    if number >= len(numbers):
        raise head.invalid("phase", f"{number} is no phase: {', '.join(f'{at} {name}' for at, name in enumerate(numbers))}")
    return numbers[number]


def _plain(findings: tuple[ReviewFinding, ...]) -> list[dict[str, Any]]:
    return [{"severity": each.severity, "description": each.description, "cycle": each.cycle} for each in findings]


def _findings(head: _Said, more: _Said, name: str) -> tuple[ReviewFinding, ...]:
    """Returns findings, with the status that `more` has for them."""
    statuses = more.tables(name)
    found = []
    for at, each in enumerate(head.tables(name)):
        finding = ReviewFinding(each.text("severity"), each.text("description"), each.count("cycle"))
        known = statuses[at] if at < len(statuses) and statuses[at].text("id") == finding.id else None
        status = known.choice("status", STATUSES, default=FOUND) if known is not None else FOUND
        found.append(ReviewFinding(finding.severity, finding.description, finding.cycle, status))
    return tuple(found)


def _verifications(more: _Said) -> tuple[Verification, ...]:
    said = more.tables("verifications")
    return tuple(Verification(each.text("id"), each.choice("status", STATUSES), each.text("comment")) for each in said)


def _report(said: _Said) -> ReviewReport | None:
    if not said.values:
        return None
    return ReviewReport(said.text("satisfaction"), said.text("risk"), said.flag("needs_human_review"), said.text("summary"))


def resumes_in(state: CycleState) -> str:
    """Returns the phase in which to go on: after an error, the one in which it came up; coding, where that is not known."""
    return state.phase if state.phase != ERROR else state.failed_in or CODING
