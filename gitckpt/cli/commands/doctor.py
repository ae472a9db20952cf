"""`git ckpt doctor`."""

from __future__ import annotations

from gitckpt import __version__
from gitckpt.cli import options, terminal
from gitckpt.cli.opening import open_store

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

_LABEL = 14


@options.usage("""
--json  Print one JSON document.
""")
def doctor(as_json: bool = False) -> int:
    """Check the installation: git, hooks, settings, locks, refs.

    Changes nothing. Exits with 1 if something is wrong.
    """
    with open_store() as store, terminal.waiting("looking at the installation"):
        diagnosis = store.examine()
    findings, facts = diagnosis.findings, dict(diagnosis.facts)
    if as_json:
        keys = "code object sentence cure"
        listed = [terminal.attributes(finding, keys) for finding in findings]
        terminal.out_json({"gitckpt": __version__, **facts, "findings": listed})
    else:
        for name, value in {"gitckpt": __version__, **_for_people(facts)}.items():
            label = f"{name.replace('_', ' ')}:"
            terminal.out(f"{label:<{_LABEL}} {value}")
        for finding in findings:
            terminal.out_finding(finding)
        if not findings:
            terminal.out("nothing is wrong")
    return 1 if findings else 0


def _for_people(facts: Mapping[str, str | int | None]) -> dict[str, str | int | None]:
    shown = dict(facts)
    foreign, files, size = map(shown.pop, ("foreign_refs", "leftover_files", "leftover_bytes"))
    started, ended = map(shown.pop, ("maintenance_started", "maintenance_ended"))
    outcome = shown["maintenance"] = shown.pop("maintenance_outcome")
    if started is not None:
        end = f" at {ended}" if ended is not None else ""
        shown["maintenance"] = f"{started}, {outcome}{end}"
    if foreign:
        refs = terminal.count(int(foreign), "ref")
        shown["foreign_refs"] = f"{refs} of another tool below refs/checkpoints"
    if files:
        amount = f"{terminal.count(int(files), 'file')} of killed processes"
        amount += f", {terminal.size(int(size or 0))}"
        shown["leftovers"] = f"{amount}; to delete: git ckpt expire"
    return shown
