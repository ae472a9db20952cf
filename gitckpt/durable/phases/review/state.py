"""The progress of a review, and its conversion to a table in the run's state.

The table has the keys that the tool quasar uses, and the key `more` with all other values.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from gitckpt.model.errors import InvalidCheckpoint, NewerCheckpoint
from gitckpt.model.table import TableReader
from gitckpt.model.values import dataclass, field, replace

CUT = "... [truncated]"  # marks the place where a text was cut
LONGEST = 100_000  # maximum characters of an answer or of command output in a state

# White space by Unicode. `str.strip` removes four more control characters, which would change the
# ids of findings.
_SPACE = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000"
_SPACE += "".join(map(chr, range(0x2000, 0x200B)))


def trim(text: str) -> str:
    return text.strip(_SPACE)


def cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[:limit] + CUT


def cut_start(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{CUT}\n{text[-limit:]}"


def sanitize(text: str) -> str:
    """Replace lone surrogates, which UTF-8 cannot encode, by U+FFFD."""
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def first_line(text: str, limit: int) -> str:
    return trim(trim(sanitize(text)).replace("\0", "").partition("\n")[0])[:limit]


FOUND, FIXED, STILL_PRESENT, REGRESSED = "found", "fixed", "still_present", "regressed"
STATUSES = (FOUND, FIXED, STILL_PRESENT, REGRESSED)

CRITICAL, MAJOR = "critical", "major"
FILTER_PREFIX = "[filter:"  # how descriptions of findings begin that a failed filter caused


@dataclass(frozen=True, slots=True)
class ReviewFinding:
    severity: str  # a word of the reviewer, such as "critical", "major" or "minor"
    description: str
    cycle: int = 0  # 0: unknown
    status: str = FOUND  # one of STATUSES

    @property
    def id(self) -> str:
        return make_finding_id(self.severity, self.description)


Findings = tuple[ReviewFinding, ...]


@dataclass(frozen=True, slots=True)
class Verification:  # the reviewer's statement on an earlier finding
    finding: str  # id of the finding
    status: str  # FIXED, STILL_PRESENT or REGRESSED
    comment: str = ""


def make_finding_id(severity: str, description: str) -> str:
    hashed_text = f"{severity}:{trim(description)}"
    return f"f-{hashlib.sha256(hashed_text.encode('utf-8', 'replace')).hexdigest()[:12]}"


def update_statuses(findings: Iterable[ReviewFinding], checks: Sequence[Verification]) -> Findings:
    new_statuses = {check.finding: check.status for check in checks}
    statuses = [(finding, new_statuses.get(finding.id, finding.status)) for finding in findings]
    return tuple(replace(finding, status=new_status) for finding, new_status in statuses)


def find_unresolved(findings: Iterable[ReviewFinding]) -> Findings:
    latest_findings = {finding.id: finding for finding in findings}
    return tuple(finding for finding in latest_findings.values() if finding.status != FIXED)


# Parse a reviewer's answer: blocks of ISSUE, VERIFICATION and REPORT, and the word APPROVED.

_ISSUE, _VERIFICATION, _REPORT, _APPROVED = "ISSUE:", "VERIFICATION:", "REPORT:", "APPROVED:"
_SEVERITY, _DESCRIPTION = "SEVERITY:", "DESCRIPTION:"
_FIELDS = ("SATISFACTION:", "RISK:", "NEEDS_HUMAN_REVIEW:", "SUMMARY:")


@dataclass(frozen=True, slots=True)
class ReviewReport:
    satisfaction: str = ""  # high, medium or low
    risk: str = ""  # high, medium or low
    needs_human_review: bool = False
    summary: str = ""  # one line


def parse_findings(answer: str) -> Findings:
    blocks = _gather(answer, _ISSUE, lambda line: line in ("", _ISSUE))
    findings = [_parse_finding(block) for block in blocks]
    return tuple(finding for finding in findings if finding.description)


def parse_verifications(answer: str) -> tuple[Verification, ...]:
    end_lines = ("", _VERIFICATION, _ISSUE, _REPORT)
    verifications = []
    for block in _gather(
        answer, _VERIFICATION, lambda line: line in end_lines or line.startswith(_APPROVED)
    ):
        finding, status = _read(block, "FINDING_ID:"), _read(block, "STATUS:").lower()
        status = status if status in (FIXED, REGRESSED) else STILL_PRESENT
        if finding:
            verifications.append(Verification(finding, status, _read(block, "COMMENT:")))
    return tuple(verifications)


def parse_report(answer: str) -> ReviewReport | None:
    for block in _gather(answer, _REPORT, lambda line: line != "" and not line.startswith(_FIELDS)):
        if any(block):
            satisfaction, risk, needs_review, summary = (_read(block, field) for field in _FIELDS)
            is_needed = needs_review.lower() in ("yes", "true")
            return ReviewReport(satisfaction.lower(), risk.lower(), is_needed, summary)
    return None


def is_approved(answer: str) -> bool:
    return any(line.startswith(_APPROVED) for line in _split_lines(answer))


def _split_lines(answer: str) -> list[str]:
    return [trim(line) for line in answer.split("\n")]


def _gather(answer: str, head: str, ends: Callable[[str], bool]) -> Iterator[list[str]]:
    block: list[str] | None = None
    for line in _split_lines(answer):
        if block is not None and not ends(line):
            block.append(line)
            continue
        if block is not None:
            yield block
        block = [] if line == head else None
    if block is not None:
        yield block


def _read(block: list[str], field: str) -> str:
    field_lines = [line for line in block if line.startswith(field)]
    return trim(field_lines[-1].removeprefix(field)) if field_lines else ""


def _parse_finding(block: list[str]) -> ReviewFinding:
    description_lines: list[str] = []
    in_description = False
    for line in block:
        if line.startswith(_DESCRIPTION) and not in_description:
            description_lines, in_description = [trim(line.removeprefix(_DESCRIPTION))], True
        elif line.startswith((_SEVERITY, _APPROVED)):
            in_description = False
        elif in_description:
            description_lines.append(line)
    return ReviewFinding(_read(block, _SEVERITY) or MAJOR, trim(" ".join(description_lines)))


D = TypeVar("D")

IDLE, BEAD_CREATED, CODING, CODE_COMPLETE = "idle", "bead_created", "coding", "code_complete"
LINTING, FILTERING, REVIEWING = "linting", "filtering", "reviewing"
REVIEW_COMPLETE, RESOLVING_ISSUES = "review_complete", "resolving_issues"
APPROVED, ERROR = "approved", "error"

# The index of a phase is its number in quasar, which had no filtering before 23 February 2026, and
# no linting before 18 February 2026.
PHASES: tuple[str, ...] = (IDLE, BEAD_CREATED, CODING, CODE_COMPLETE, LINTING, FILTERING)
PHASES += (REVIEWING, REVIEW_COMPLETE, RESOLVING_ISSUES, APPROVED, ERROR)
WITHOUT_FILTERING = tuple(phase for phase in PHASES if phase != FILTERING)
WITHOUT_LINTING = tuple(phase for phase in WITHOUT_FILTERING if phase != LINTING)

VERSION = 1
KEY = "review"  # key of the table in a run's state
MORE = "more"

# Phases that begin after the coder's work was committed.
_COMMITTED = (LINTING, FILTERING, REVIEWING, REVIEW_COMPLETE)


@dataclass(frozen=True, slots=True)
class ReviewState:
    phase_id: str = ""  # of a plan of quasar (a "nebula"); "" without a plan
    nebula_name: str = ""  # name of this plan; "" without a plan
    created_at: str = ""  # RFC 3339; "": unknown
    git_sha: str = ""  # HEAD at `created_at`; "" on an unborn branch
    task_bead_id: str = ""  # short name of the task; commit subjects begin with it
    task_title: str = ""
    cycle: int = 0  # counts from 1; 0 before the first
    max_cycles: int = 3
    phase: str = BEAD_CREATED  # one of PHASES
    total_cost_usd: float = 0.0  # of all answers so far
    max_budget_usd: float = 0.0  # 0: no limit
    coder_output: str = ""  # the coder's last answer
    review_output: str = ""  # the reviewer's last answer
    lint_output: str = ""  # remaining complaints of the linter
    base_commit_sha: str = ""  # HEAD when the review began
    cycle_commits: tuple[str, ...] = ()  # HEAD at the end of each cycle
    child_bead_ids: tuple[str, ...] = ()  # issues of a tracker, one for each finding
    refactored: bool = False  # whether to tell the coder that the task was changed
    findings: tuple[ReviewFinding, ...] = ()  # of this cycle
    all_findings: tuple[ReviewFinding, ...] = ()  # of all cycles, with their status
    failed_in: str = ""  # the phase that failed, if `phase` is "error"
    problem: str = ""  # error message, if `phase` is "error"
    verifications: tuple[Verification, ...] = ()  # of the last review
    filter_output: str = ""  # output of the filter that failed in this cycle
    filter_check_name: str = ""  # name of the filter that failed in this cycle
    filter_history: tuple[str, ...] = ()  # failed filter of each cycle; "": none failed
    original_description: str = ""  # the task before it was changed
    refactor_description: str = ""  # the task after it was changed
    last_cycle_sha: str = ""  # HEAD after this cycle's work was committed; "": not yet
    uncommitted: str = ""  # the coder's uncommitted work: "" for none, "cycle", or "lint fix"
    lint_fixes: int = 0  # how often the coder was asked to fix linter complaints in this cycle
    # "coder" and "reviewer" → id of the conversation of the last answer
    sessions: Mapping[str, str] = field(default_factory=dict)
    struggle: str = ""  # why the review makes no progress; "" while it makes progress
    # id of a finding → id of its issue; "" if quasar created the issue
    beads: Mapping[str, str] = field(default_factory=dict)
    report: ReviewReport | None = None

    @property
    def budget_share(self) -> float:
        """Return the next answer's even share of the remaining budget, in US dollars."""
        remaining_cycles = max(self.max_cycles - self.cycle + 1, 1)
        return max(self.max_budget_usd - self.total_cost_usd, 0) / (2 * remaining_cycles)

    def to_state_table(self) -> dict[str, Any]:
        finding_keys, table = ("severity", "description", "cycle"), self.to_quasar_table()
        for name in ("findings", "all_findings"):
            table[name] = [_select(finding, finding_keys) for finding in getattr(self, name)]
        return {**table, MORE: self.to_extra_table()}

    def to_quasar_table(self) -> dict[str, Any]:
        return {"version": VERSION, **_select(self, _HEAD), "phase": PHASES.index(self.phase)}

    def to_extra_table(self) -> dict[str, Any]:
        table = {**_select(self, _MORE), "beads": dict(self.beads)}
        for name in ("findings", "all_findings"):
            table[name] = [_select(finding, ("id", "status")) for finding in getattr(self, name)]
        table["verifications"] = [
            {"id": check.finding, "status": check.status, "comment": check.comment}
            for check in self.verifications
        ]
        report = _select(self.report, ReviewReport.__match_args__) if self.report else {}
        return {**table, "sessions": dict(self.sessions), "report": report}

    @classmethod
    def from_state_table(
        cls,
        table: Mapping[str, Any],
        source: str = f"state.{KEY}",
        numbers: tuple[str, ...] = PHASES,
    ) -> ReviewState:
        """Parse a table of gitckpt or quasar; `numbers[i]` is the name of phase number i."""
        main_table, extra = _Reader(table, source), _Reader(table.get(MORE, {}), f"{source}.{MORE}")
        version = main_table.count("version", required=True)
        if version > VERSION:
            problem = f"{version} is not supported"
            hint = "read this state with the program that wrote it"
            raise NewerCheckpoint(main_table.source, "version", problem, hint=hint)
        if version < VERSION:
            raise main_table.invalid("version", f"{version} is not supported")
        field_values = {name: read(main_table, name) for name, read in _HEAD.items()}
        field_values |= {name: read(extra, name) for name, read in _MORE.items()}
        phase_number = main_table.count("phase", required=True)
        # Prefer the name of the phase to its number, which has changed twice.
        is_named = "phase" in extra.values
        if not is_named and phase_number >= len(numbers):
            names = ", ".join(f"{position} {name}" for position, name in enumerate(numbers))
            raise main_table.invalid("phase", f"{phase_number} is not a phase: {names}")
        phase = extra.choice("phase", PHASES) if is_named else numbers[phase_number]
        failed_in = extra.choice("failed_in", PHASES, default="") if phase == ERROR else ""
        cycle = field_values["cycle"]
        if cycle < 1 and not {phase, failed_in} & {IDLE, BEAD_CREATED}:
            raise main_table.invalid("cycle", f"is {cycle}, but cycles count from 1")
        issue_ids = extra.table("beads").all_texts()
        all_findings = _read_findings(main_table, extra, "all_findings")
        if "beads" not in extra.values and field_values["child_bead_ids"]:
            issue_ids = {finding.id: "" for finding in all_findings}
        if MORE not in table:
            # A checkpoint of quasar has the commit of an unfinished cycle only in `git_sha`.
            if phase in _COMMITTED and len(field_values["cycle_commits"]) < cycle:
                field_values["last_cycle_sha"] = field_values["git_sha"]
            # quasar does not record whether the work was committed; committing twice is harmless.
            if phase == CODE_COMPLETE:
                field_values["uncommitted"] = "cycle"
        field_values |= {"phase": phase, "failed_in": failed_in, "beads": issue_ids}
        field_values["findings"] = _read_findings(main_table, extra, "findings")
        field_values["all_findings"] = all_findings
        field_values["sessions"] = extra.table("sessions").all_texts()
        field_values["verifications"] = tuple(
            Verification(check.text("id"), check.choice("status", STATUSES), check.text("comment"))
            for check in extra.tables("verifications")
        )
        if (report := extra.table("report")).values:
            texts = {name: report.text(name) for name in ("satisfaction", "risk", "summary")}
            needs_review = report.read_flag("needs_human_review")
            field_values["report"] = ReviewReport(needs_human_review=needs_review, **texts)
        return cls(**field_values)


class _Reader(TableReader):
    """Reads the values of a review's table; a missing value is read as 0, "" or False."""

    kinds: Mapping[type, str] = {**TableReader.kinds, int: "a whole number"}

    def __init__(self, table: Any, source: str) -> None:
        if not isinstance(table, Mapping):
            raise InvalidCheckpoint(source, "", f"is {_describe_value(table)}, not a table")
        super().__init__(table, source)

    def wrong_type(self, key: str, wanted: str, value: object, default: D) -> D:  # noqa: ARG002 - the error is raised here
        raise self.invalid(key, f"is {_describe_value(value)}, not {wanted}")

    def text(self, key: str) -> str:
        return self.read_value(key, str, "")

    def all_texts(self) -> dict[str, str]:
        return {key: self.text(key) for key in self.values}

    def read_texts(self, key: str) -> tuple[str, ...]:
        values: list[Any] = self.read_value(key, list, [])
        if not all(type(value) is str for value in values):
            raise self.invalid(key, "has values that are not strings")
        return tuple(values)

    def count(self, key: str, *, required: bool = False) -> int:
        if required and key not in self.values:
            raise self.invalid(key, "is missing")
        value = self.read_value(key, int, 0)
        if value < 0:
            raise self.invalid(key, f"is {value}, less than 0")
        return value

    def number(self, key: str) -> float:
        value = self.values.get(key, 0.0)
        if type(value) not in (int, float):
            self.wrong_type(key, "a number", value, 0.0)
        if not math.isfinite(value) or value < 0:
            raise self.invalid(key, f"is {value}, not a finite amount of 0 or more")
        return float(value)

    def choice(self, key: str, words: Sequence[str], default: str | None = None) -> str:
        value = self.text(key)
        if value == "" and default is not None:
            return default
        if value not in words:
            raise self.invalid(key, f"is {value!r:.60}, not one of {', '.join(words)}")
        return value

    def table(self, key: str) -> _Reader:
        return _Reader(self.values.get(key, {}), f"{self.source}.{key}")

    def tables(self, key: str) -> list[_Reader]:
        values: list[Any] = self.read_value(key, list, [])
        return [_Reader(value, f"{self.source}.{key}[{i}]") for i, value in enumerate(values)]


# Keys of the table and of `more` in their order, each with its reader.
_HEAD: dict[str, Callable[[_Reader, str], Any]] = {
    **dict.fromkeys(("phase_id", "nebula_name", "created_at", "git_sha"), _Reader.text),
    **dict.fromkeys(("task_bead_id", "task_title"), _Reader.text),
    **dict.fromkeys(("cycle", "max_cycles", "phase"), _Reader.count),
    **dict.fromkeys(("total_cost_usd", "max_budget_usd"), _Reader.number),
    **dict.fromkeys(("coder_output", "review_output", "lint_output"), _Reader.text),
    "base_commit_sha": _Reader.text,
    **dict.fromkeys(("cycle_commits", "child_bead_ids"), _Reader.read_texts),
    "refactored": _Reader.read_flag,
}
_MORE: dict[str, Callable[[_Reader, str], Any]] = {
    **dict.fromkeys(("phase", "failed_in", "problem"), _Reader.text),
    **dict.fromkeys(("filter_output", "filter_check_name"), _Reader.text),
    "filter_history": _Reader.read_texts,
    **dict.fromkeys(("original_description", "refactor_description"), _Reader.text),
    **dict.fromkeys(("last_cycle_sha", "uncommitted"), _Reader.text),
    "lint_fixes": _Reader.count,
    "struggle": _Reader.text,
}


def _describe_value(value: object) -> str:
    return f"{value!r:.40} ({type(value).__name__})"


def _select(source: object, names: Iterable[str]) -> dict[str, Any]:
    selected_values = {name: getattr(source, name) for name in names}
    lists = {key: list(value) for key, value in selected_values.items() if isinstance(value, tuple)}
    return selected_values | lists


def _read_findings(quasar_table: _Reader, extra_table: _Reader, name: str) -> Findings:
    statuses = extra_table.tables(name)  # quasar's own tables have no status
    findings = []
    for i, table in enumerate(quasar_table.tables(name)):
        severity, description = table.text("severity"), table.text("description")
        finding = ReviewFinding(severity, description, table.count("cycle"))
        if i < len(statuses) and statuses[i].text("id") == finding.id:
            finding = replace(finding, status=statuses[i].choice("status", STATUSES, default=FOUND))
        findings.append(finding)
    return tuple(findings)


def find_resume_phase(state: ReviewState) -> str:
    return state.phase if state.phase != ERROR else state.failed_in or CODING
