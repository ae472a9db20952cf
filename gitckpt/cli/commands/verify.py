"""`git ckpt verify`."""

from __future__ import annotations

from gitckpt.cli import options, terminal
from gitckpt.cli.opening import open_store

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from gitckpt.model.errors import Finding
    from gitckpt.store.audit.verification import Report

# Findings of one kind that are printed.
_SHOWN = 20


@options.usage("""
[ID…]  Only these checkpoints or runs.
--repair  Repair derived data; changes and deletes no checkpoint.
--contents  Read every object of the repository as well.
--json  Print one JSON document.
""")
def verify(
    ids: list[str] | None = None,
    repair: bool = False,
    contents: bool = False,
    as_json: bool = False,
) -> int:
    """Check every checkpoint, and all that checkpoints need.

    Checks documents, refs, objects, runs, links, leases, worktrees and the index; with --contents,
    the contents of files. Of named checkpoints, the history before their commits is not checked.
    Exits with 1 if something is wrong and was not repaired.
    """
    whole = "--contents reads the whole repository"
    options.refuse(ids and contents, whole, "leave it out, or the ids")
    with open_store() as store, terminal.waiting("looking at checkpoints, and what they need"):
        only = [store.run_named(text) or store.find(text) for text in ids] if ids else None
        report = store.verify(repair=repair, contents=contents, only=only, progress=_show)
    if as_json:
        keys = "code object sentence cure repaired"
        findings = [terminal.attributes(finding, keys) for finding in report.findings]
        terminal.out_json({"checked": dict(report.checked), "findings": findings})
    else:
        _print(report.findings)
        terminal.remark(_summary(report))
    for sentence in report.refused:
        terminal.warn(f"not repaired: {sentence}")
    return 0 if report.is_clean else 1


def _show(count: int, of: int) -> None:
    terminal.progress(f"reading objects: {100 * count // of}% ({count}/{of})")


def _print(findings: Sequence[Finding]) -> None:
    counts: dict[str, int] = {}
    for finding in findings:
        counts[finding.code] = counts.get(finding.code, 0) + 1
        if counts[finding.code] <= _SHOWN:
            terminal.out_finding(finding)
    for code, count in counts.items():
        if count > _SHOWN:
            more = f": {count - _SHOWN} more; all of them: git ckpt verify --json"
            terminal.out(terminal.heading(code), more)


def _summary(report: Report) -> str:
    looked = f"looked at {terminal.count(report.checked['checkpoints'], 'checkpoint')}"
    if not report.findings:
        return f"{looked}: nothing is wrong"
    mended = sum(finding.repaired for finding in report.findings)
    count = terminal.count(len(report.findings), "finding")
    return f"{looked}: {count}, {mended} repaired" if mended else f"{looked}: {count}"
