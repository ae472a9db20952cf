"""Implement `git ckpt doctor`, `verify` and `notes`."""

from __future__ import annotations

from collections import Counter
from functools import partial

from gitckpt import __version__
from gitckpt.cli import options, terminal
from gitckpt.cli.opening import open_store

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gitckpt.model.errors import Finding
    from gitckpt.store.audit.verification import Report


@options.declare_parameters("""
--json  Print one JSON document.
""")
def print_diagnosis(as_json: bool = False) -> int:
    """Check git, and the hooks, settings, locks and refs of this repository.

    Changes nothing. Exits with 1 if something is wrong.
    """
    with open_store() as store, terminal.show_waiting("looking at the installation"):
        diagnosis = store.examine()
    findings, facts = diagnosis.findings, dict(diagnosis.facts)
    if as_json:
        finding_keys = "code object sentence cure"
        documents = [terminal.pick_fields(finding, finding_keys) for finding in findings]
        advice = list(diagnosis.advice)
        terminal.out_json(
            {"gitckpt": __version__, **facts, "findings": documents, "advice": advice}
        )
    else:
        for name, value in {"gitckpt": __version__, **_facts_as_text(facts)}.items():
            label = f"{name.replace('_', ' ')}:"
            terminal.out(terminal.heading(label), " " * max(14 - len(label), 0), f" {value}")
        for finding in findings:
            terminal.out_finding(finding)
        if not findings:
            terminal.out(terminal.style("nothing is wrong", "green"))
        for sentence in diagnosis.advice:
            terminal.remark(sentence)
    return 1 if findings else 0


def _facts_as_text(facts: Mapping[str, str | int | None]) -> dict[str, str | int | None]:
    texts = dict(facts)
    foreign, files, size = map(texts.pop, ("foreign_refs", "leftover_files", "leftover_bytes"))
    start, end = map(texts.pop, ("maintenance_started", "maintenance_ended"))
    outcome = texts["maintenance"] = texts.pop("maintenance_outcome")
    if start is not None:
        texts["maintenance"] = f"{start}, {outcome}{'' if end is None else f' at {end}'}"
    if foreign:
        refs = terminal.plural(int(foreign), "ref")
        texts["foreign_refs"] = f"{refs} of another tool below refs/checkpoints"
    if files:
        leftovers = f"{terminal.plural(int(files), 'file')} of killed processes"
        leftovers += f", {terminal.size_text(int(size or 0))}"
        texts["leftovers"] = f"{leftovers}; to delete them: git ckpt expire"
    return texts


_MAX_PRINTED = 20  # findings of each kind that are printed


@options.declare_parameters("""
[ID…]  Only these checkpoints or runs.
--repair  Repair derived data; changes and deletes no checkpoint.
--contents  Read every object of the repository as well.
--json  Print one JSON document.
""")
def verify_checkpoints(
    ids: list[str] | None = None,
    repair: bool = False,
    contents: bool = False,
    as_json: bool = False,
) -> int:
    """Check every checkpoint, and all objects and refs that checkpoints need.

    Checks documents, refs, objects, runs, links in notes, leases of runs, worktrees and gitckpt's
    index; with --contents, the contents of files. With ids, does not check the history before the
    checkpoints' commits. Exits with 1 if a problem was found and not repaired.
    """
    problem = "--contents reads the whole repository, and takes no ids"
    options.refuse_if(ids and contents, problem, "leave out --contents, or the ids")
    task = "looking at checkpoints, and what they need"
    with open_store() as store, terminal.show_waiting(task):
        only = [store.run_named(text) or store.find(text) for text in ids] if ids else None
        progress = partial(terminal.count_progress, "reading objects")
        report = store.verify(repair=repair, contents=contents, only=only, progress=progress)
    if as_json:
        finding_keys = "code object sentence cure repaired"
        findings = [terminal.pick_fields(finding, finding_keys) for finding in report.findings]
        terminal.out_json({"checked": dict(report.checked), "findings": findings})
    else:
        _print_findings(report.findings)
        terminal.remark(_summary_text(report))
    for reason in report.refused:
        terminal.warn(f"not repaired: {reason}")
    return 0 if report.is_clean else 1


def _print_findings(findings: Sequence[Finding]) -> None:
    counts: Counter[str] = Counter()
    for finding in findings:
        counts[finding.code] += 1
        if counts[finding.code] <= _MAX_PRINTED:
            terminal.out_finding(finding)
    for finding_code, count in counts.items():
        if count > _MAX_PRINTED:
            more_findings = f": {count - _MAX_PRINTED} more; to see all: git ckpt verify --json"
            terminal.out(terminal.heading(finding_code), more_findings)


def _summary_text(report: Report) -> str:
    summary = f"looked at {terminal.plural(report.checked['checkpoints'], 'checkpoint')}: "
    findings = report.findings
    summary += terminal.plural(len(findings), "finding") if findings else "nothing is wrong"
    repaired_count = sum(finding.repaired for finding in findings)
    return f"{summary}, {repaired_count} repaired" if repaired_count else summary


def write_pending_notes() -> None:
    """Write pending notes now: git log then shows the checkpoints of each commit.

    To see the notes: git log --notes=checkpoints. git ckpt save and list write notes at most once a
    minute, and maintenance does once a day.
    """
    with open_store() as store, terminal.show_waiting("writing notes"):
        is_written = store.write_notes()
    outcome = "the notes now list all new checkpoints" if is_written else "no note is pending"
    terminal.remark(outcome)
