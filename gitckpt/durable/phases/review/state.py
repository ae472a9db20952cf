"""The state of a review, as a value and as a table of the run's state.

The table begins with the 19 keys, the findings and all findings of quasar's checkpoint, under its
names. What quasar leaves out, but a resumed review needs, is in the table `more`.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from gitckpt.model.errors import InvalidCheckpoint, NewerCheckpoint
from gitckpt.model.table import TableReader
from gitckpt.model.values import dataclass, field, replace

# Texts of agents and commands, fit for a state and a prompt.

CUT = "... [truncated]"  # marks the place where a text was cut
LONGEST = 100_000  # characters of an answer or an output in a state

# White space by Unicode. `str.strip` removes four more control characters, which would change the
# ids of findings.
_SPACE = "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"


def trimmed(text: str) -> str:
    return text.strip(_SPACE)


def cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[:limit] + CUT


def ending(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{CUT}\n{text[-limit:]}"


def storable(text: str) -> str:
    """Return a text with lone surrogates replaced by U+FFFD, which UTF-8 can encode."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def first_line(text: str, limit: int) -> str:
    return trimmed(trimmed(storable(text)).replace("\0", "").partition("\n")[0])[:limit]


# Findings, and their status over the cycles.

FOUND, FIXED, STILL_PRESENT, REGRESSED = "found", "fixed", "still_present", "regressed"
STATUSES = (FOUND, FIXED, STILL_PRESENT, REGRESSED)

CRITICAL, MAJOR = "critical", "major"
OF_FILTER = "[filter:"  # prefix of the description of a filter's finding


@dataclass(frozen=True, slots=True)
class ReviewFinding:
    severity: str  # a word of the reviewer, such as "critical", "major" or "minor"
    description: str
    cycle: int = 0  # 0: unknown
    status: str = FOUND  # one of STATUSES

    @property
    def id(self) -> str:
        """An id that is the same in later cycles."""
        return finding_id(self.severity, self.description)


@dataclass(frozen=True, slots=True)
class Verification:
    finding: str  # id
    status: str  # FIXED, STILL_PRESENT or REGRESSED
    comment: str = ""


def finding_id(severity: str, description: str) -> str:
    """Return the id of a finding: `f-` and 12 hex digits of a hash of its words."""
    text = f"{severity}:{trimmed(description)}"
    return f"f-{hashlib.sha256(text.encode('utf-8', 'replace')).hexdigest()[:12]}"


def verified(findings: Iterable[ReviewFinding], verifications: Sequence[Verification]) -> tuple[ReviewFinding, ...]:
    """Return all findings, each with the status of its last verification."""
    status = {each.finding: each.status for each in verifications}
    return tuple(replace(each, status=status.get(each.id, each.status)) for each in findings)


def unresolved(findings: Iterable[ReviewFinding]) -> tuple[ReviewFinding, ...]:
    """Return the findings that are not fixed, each once in its latest version."""
    last = {each.id: each for each in findings}
    return tuple(each for each in last.values() if each.status != FIXED)


# Parse a reviewer's answer: blocks of ISSUE, VERIFICATION and REPORT, and the word APPROVED.

_ISSUE, _VERIFICATION, _REPORT, _APPROVED = "ISSUE:", "VERIFICATION:", "REPORT:", "APPROVED:"
_SEVERITY, _DESCRIPTION = "SEVERITY:", "DESCRIPTION:"
_FIELDS = {"SATISFACTION:": "satisfaction", "RISK:": "risk", "NEEDS_HUMAN_REVIEW:": "needs_human_review", "SUMMARY:": "summary"}


@dataclass(frozen=True, slots=True)
class ReviewReport:
    satisfaction: str = ""  # high, medium or low
    risk: str = ""  # high, medium or low
    needs_human_review: bool = False
    summary: str = ""  # one line


def findings(answer: str) -> tuple[ReviewFinding, ...]:
    """Return the findings of an answer that have a description; MAJOR is the default."""
    found = [_finding(block) for block in _blocks(answer, _ISSUE, lambda line: line in ("", _ISSUE))]
    return tuple(each for each in found if each.description)


def verifications(answer: str) -> tuple[Verification, ...]:
    """Return the verifications of an answer; an unknown status means "still present"."""
    blocks = _blocks(answer, _VERIFICATION, lambda line: line in ("", _VERIFICATION, _ISSUE, _REPORT) or line.startswith(_APPROVED))
    said = [(_last(block, "FINDING_ID:"), _last(block, "STATUS:").lower(), _last(block, "COMMENT:")) for block in blocks]
    return tuple(
        Verification(finding, status if status in (FIXED, REGRESSED) else STILL_PRESENT, comment)
        for finding, status, comment in said
        if finding
    )


def report(answer: str) -> ReviewReport | None:
    """Return the first report of an answer that has a field, or None."""
    for block in _blocks(answer, _REPORT, lambda line: bool(line) and not line.startswith(tuple(_FIELDS))):
        said = {name: _last(block, field) for field, name in _FIELDS.items()}
        if any(block):
            needs = said["needs_human_review"].lower() in ("yes", "true")
            return ReviewReport(said["satisfaction"].lower(), said["risk"].lower(), needs, said["summary"])
    return None


def is_approved(answer: str) -> bool:
    """Return whether an answer approves the work, whatever else it says."""
    return any(line.startswith(_APPROVED) for line in _lines(answer))


def _lines(answer: str) -> list[str]:
    return [trimmed(line) for line in answer.split("\n")]


def _blocks(answer: str, head: str, ends: Callable[[str], bool]) -> Iterator[list[str]]:
    """Yield the lines after each `head`, up to one that ends the block."""
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


# The state of a review.

D = TypeVar("D")

IDLE, BEAD_CREATED, CODING, CODE_COMPLETE = "idle", "bead_created", "coding", "code_complete"
LINTING, FILTERING, REVIEWING, REVIEW_COMPLETE = "linting", "filtering", "reviewing", "review_complete"
RESOLVING_ISSUES, APPROVED, ERROR = "resolving_issues", "approved", "error"

# In the order of quasar's phase numbers, from 0.
PHASES = (
    *(IDLE, BEAD_CREATED, CODING, CODE_COMPLETE, LINTING, FILTERING),
    *(REVIEWING, REVIEW_COMPLETE, RESOLVING_ISSUES, APPROVED, ERROR),
)

# Phase numbers of quasar before 23 February 2026.
WITHOUT_FILTERING = tuple(phase for phase in PHASES if phase != FILTERING)
# Phase numbers of quasar before 18 February 2026.
WITHOUT_LINTING = tuple(phase for phase in WITHOUT_FILTERING if phase != LINTING)

VERSION = 1
KEY = "review"  # key of the table in a run's state
MORE = "more"

# Phases that begin after the coder's work was committed.
_COMMITTED = (LINTING, FILTERING, REVIEWING, REVIEW_COMPLETE)


@dataclass(frozen=True, slots=True)
class CycleState:
    phase_id: str = ""  # of a quasar nebula; "" outside of one
    nebula_name: str = ""
    created_at: str = ""  # RFC 3339; "": unknown
    git_sha: str = ""  # HEAD at that time; "" on an unborn branch
    task_bead_id: str = ""  # short name of the task; commit subjects begin with it
    task_title: str = ""
    cycle: int = 0  # counts from 1; 0 before the first
    max_cycles: int = 3
    phase: str = BEAD_CREATED  # one of PHASES
    total_cost_usd: float = 0.0  # of all answers so far
    max_budget_usd: float = 0.0  # 0: no limit
    coder_output: str = ""  # last answer
    review_output: str = ""  # last answer
    lint_output: str = ""  # remaining complaints of the linter
    base_commit_sha: str = ""  # HEAD at the beginning
    cycle_commits: tuple[str, ...] = ()  # HEAD at the end of each cycle
    child_bead_ids: tuple[str, ...] = ()  # issues of a tracker, one for each finding
    refactored: bool = False  # whether the task was changed, and the coder does not know it yet
    findings: tuple[ReviewFinding, ...] = ()  # of this cycle
    all_findings: tuple[ReviewFinding, ...] = ()  # of all cycles, with their status
    failed_in: str = ""  # the phase that failed, if `phase` is "error"
    problem: str = ""  # message of that error
    verifications: tuple[Verification, ...] = ()  # of the last review
    filter_output: str = ""  # of the filter that failed in this cycle
    filter_check_name: str = ""  # the name of that filter
    filter_history: tuple[str, ...] = ()  # failed filter of each cycle; "": none failed
    original_description: str = ""  # the task before it was changed
    refactor_description: str = ""  # the task after it was changed
    last_cycle_sha: str = ""  # HEAD after this cycle's work was committed; "": not yet
    uncommitted: str = ""  # the coder's uncommitted work: "" for none, "cycle", or "lint fix"
    lint_fixes: int = 0  # how often the coder was asked to fix linter complaints in this cycle
    # "coder" and "reviewer" → conversation of the last answer
    sessions: Mapping[str, str] = field(default_factory=dict)
    struggle: str = ""  # why the review makes no progress; "": it does
    # finding → its issue; "" if quasar created the issues
    beads: Mapping[str, str] = field(default_factory=dict)
    report: ReviewReport | None = None

    @property
    def budget_share(self) -> float:
        """The next answer's share of the rest, with two answers in each cycle left."""
        cycles = max(self.max_cycles - self.cycle + 1, 1)
        return max(self.max_budget_usd - self.total_cost_usd, 0) / (2 * cycles)

    def to_state(self) -> dict[str, Any]:
        return {**self.head(), "findings": _plain(self.findings), "all_findings": _plain(self.all_findings), MORE: self.more()}

    def head(self) -> dict[str, Any]:
        """Return the 19 keys of quasar's checkpoint in its order; `created_at` is text."""
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
        """Parse a table, with or without `more`.

        `source` is its place, for errors. `numbers` are the phases by number, for a table without
        the phase's name.
        """
        head, more = _Said(table, source), _Said(table.get(MORE, {}), f"{source}.{MORE}")
        _require_version(head)
        phase = _phase(head, more, numbers)
        failed_in = more.choice("failed_in", PHASES, default="") if phase == ERROR else ""
        cycle = head.count("cycle")
        if cycle < 1 and not {phase, failed_in} & {IDLE, BEAD_CREATED}:
            raise head.invalid("cycle", f"is {cycle}, but cycles count from 1")
        commits = head.texts("cycle_commits")
        # quasar's own checkpoint has the commit of an unfinished cycle only as HEAD.
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
            # quasar does not record whether the work was committed; committing twice is harmless.
            uncommitted=more.text("uncommitted") if MORE in table or phase != CODE_COMPLETE else "cycle",
            lint_fixes=more.count("lint_fixes"),
            sessions=more.table("sessions").all_texts(),
            struggle=more.text("struggle"),
            beads=beads,
            report=_report(more.table("report")),
        )


class _Said(TableReader):
    """A table in quasar's style: a missing value is zero, empty or false."""

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
        value = self.values.get(key, 0.0)
        if type(value) not in (int, float):
            self.wrong(key, "a number", value, 0.0)
        if not math.isfinite(value) or value < 0:
            raise self.invalid(key, f"is {value}, no amount")
        return float(value)

    def choice(self, key: str, words: Sequence[str], default: str | None = None) -> str:
        """Return one of `words`, or the default if the key is missing."""
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
    number = head.count("phase", required=True)
    # The name is preferred: the numbers have changed twice.
    if "phase" in more.values:
        return more.choice("phase", PHASES)
    if number >= len(numbers):
        raise head.invalid("phase", f"{number} is no phase: {', '.join(f'{at} {name}' for at, name in enumerate(numbers))}")
    return numbers[number]


def _plain(findings: tuple[ReviewFinding, ...]) -> list[dict[str, Any]]:
    return [{"severity": each.severity, "description": each.description, "cycle": each.cycle} for each in findings]


def _findings(head: _Said, more: _Said, name: str) -> tuple[ReviewFinding, ...]:
    statuses = more.tables(name)  # quasar's own tables have no status
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
    """Return the phase to resume in; after an error the failed one, else coding."""
    return state.phase if state.phase != ERROR else state.failed_in or CODING
