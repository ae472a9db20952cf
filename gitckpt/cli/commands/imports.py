"""`git ckpt import`."""

from __future__ import annotations

from gitckpt.cli import options, terminal
from gitckpt.cli.opening import open_store
from gitckpt.model.errors import CkptError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gitckpt.formats.importer import ImportedFile


@options.usage("""
PATH…  Files of other tools, or directories to search for them.
--format F  The format: rlm-act, workflow, forge, quasar or superpowers.  [default: detected]
--phases P  The phase that quasar's files do not know yet: linting or filtering.
--history  Import every version of superpowers' files in git's history.
--fork  Import a file as a second run if its first run has continued here.
--dry-run  Print what would be imported; record nothing.
--json  Print one JSON document.
""")
def import_(
    paths: list[str],
    format_: str | None = None,
    phases: str = "",
    history: bool = False,
    fork: bool = False,
    dry_run: bool = False,
    as_json: bool = False,
) -> int:
    """Import files of rlm-act, forge, quasar and superpowers as runs.

    Keeps their bytes: `git ckpt export` gives them back. A second import of a file adds nothing.

    Exits with 1 if a file cannot be read or is refused, or if nothing was imported.
    """
    from gitckpt.formats import importer

    with open_store() as store:
        work = importer.Importer(
            store,
            format=format_,
            phases=phases,
            history=history,
            fork=fork,
            dry_run=dry_run,
            progress=terminal.progress,
        )
        with terminal.Waiting("importing"):
            imported = work.take(paths)
    is_done = any(each.status in (importer.IMPORTED, importer.KNOWN) for each in imported)
    code = (
        1
        if not is_done
        or any(each.status in (importer.FAILED, importer.REFUSED) for each in imported)
        else 0
    )
    if as_json:
        terminal.out_json({"dry_run": dry_run, "files": [_as_json(each) for each in imported]})
        return code
    for each in imported:
        _tell(each, dry_run=dry_run)
    if work.left:
        count = terminal.count(len(work.left), "file")
        terminal.remark(
            f"not looked into, as no snapshot captures it: {count}, such as {work.left[0]}"
        )
    _sum_up(imported, dry_run=dry_run)
    return code


def _tell(each: ImportedFile, *, dry_run: bool) -> None:
    from gitckpt.formats import importer

    clauses = list(each.remarks) if each.problem is None else [each.problem]
    if each.status not in (importer.IMPORTED, importer.KNOWN):
        terminal.warn(f"{each.path}: {each.status}: {'; '.join(clauses)}")
    elif terminal.is_terminal():
        short = f" as {each.label} of run {each.run}" if each.run is not None else ""
        verb = "would be imported" if dry_run and each.status == importer.IMPORTED else each.status
        terminal.out("; ".join([f"{each.path}: {each.format}, {verb}{short}", *clauses]))
    else:
        cells = (
            each.path,
            each.status,
            each.format,
            each.run,
            each.checkpoint,
            each.label,
            each.timestamp,
        )
        terminal.out_row((*cells, "; ".join(clauses) or None))


def _sum_up(found: list[ImportedFile], *, dry_run: bool) -> None:
    from gitckpt.formats import importer

    fresh = [each for each in found if each.status == importer.IMPORTED]
    known = sum(each.status == importer.KNOWN for each in found)
    runs = {each.run for each in fresh}
    if not fresh and not known:  # the reasons were printed per file
        why = "" if found else ": no file of one of the formats was found"
        hint = (
            None
            if found
            else "name the files, or the directory that they lie in; see docs/formats.md"
        )
        terminal.fail(CkptError(f"nothing was imported{why}", hint=hint))
        return
    what = "nothing new"
    if fresh:
        what = f"{terminal.count(len(fresh), 'checkpoint')} in {terminal.count(len(runs), 'run')}"
    before = f"; {terminal.count(known, 'file')} imported before" if known else ""
    terminal.remark(f"{'would import' if dry_run else 'imported'} {what}{before}")
    if fresh and not dry_run:
        terminal.remark(
            "see them: git ckpt runs; go on with one: git ckpt resume RUN --trust, which shows first what drives it"
        )


def _as_json(each: ImportedFile) -> dict[str, object]:
    plain: dict[str, object] = {name: getattr(each, name) for name in each.__slots__}
    return plain | {"remarks": list(each.remarks)}
