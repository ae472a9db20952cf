"""`git ckpt import`."""

from __future__ import annotations

from gitckpt.cli import options, terminal
from gitckpt.cli.opening import open_store
from gitckpt.model.errors import CkptError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

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
    dry_run: bool = False,
    as_json: bool = False,
    **given: Any,
) -> int:
    """Import files of rlm-act, forge, quasar and superpowers as runs.

    Keeps their bytes: `git ckpt export` gives them back. A second import of a file adds nothing.

    Exits with 1 if a file cannot be read or is refused, or if nothing was imported.
    """
    from gitckpt.formats import importer

    with open_store() as store:
        progress = terminal.progress
        work = importer.Importer(store, format=format_, dry_run=dry_run, progress=progress, **given)
        with terminal.waiting("importing"):
            imported = work.take(paths)
    statuses = {file.status for file in imported}
    is_done = not statuses.isdisjoint((importer.IMPORTED, importer.KNOWN))
    code = 0 if is_done and statuses.isdisjoint((importer.FAILED, importer.REFUSED)) else 1
    if as_json:
        names = " ".join(importer.ImportedFile.__slots__)
        listed = [terminal.attributes(file, names) for file in imported]
        terminal.out_json({"dry_run": dry_run, "files": listed})
        return code
    for file in imported:
        _print(file, dry_run=dry_run)
    if work.left:
        count = terminal.count(len(work.left), "file")
        terminal.remark(f"skipped, as no snapshot captures them: {count}, such as {work.left[0]}")
    _print_summary(imported, dry_run=dry_run)
    return code


def _print(file: ImportedFile, *, dry_run: bool) -> None:
    from gitckpt.formats import importer

    clauses = "; ".join(file.remarks if file.problem is None else [file.problem])
    if file.status not in (importer.IMPORTED, importer.KNOWN):
        terminal.warn(f"{file.path}: {file.status}: {clauses}")
    elif terminal.is_terminal():
        verb = "would be imported" if dry_run and file.status == importer.IMPORTED else file.status
        place = f" as {file.label} of run {file.run}" if file.run is not None else ""
        line = f"{file.path}: {file.format}, {verb}{place}"
        terminal.out(f"{line}; {clauses}" if clauses else line)
    else:
        names = ("path", "status", "format", "run", "checkpoint", "label", "timestamp")
        terminal.out_row((*(getattr(file, name) for name in names), clauses))


def _print_summary(files: list[ImportedFile], *, dry_run: bool) -> None:
    from gitckpt.formats import importer

    fresh = [file for file in files if file.status == importer.IMPORTED]
    known = sum(file.status == importer.KNOWN for file in files)
    if not fresh and not known:  # the reasons were printed per file
        why = "" if files else ": no file has a known format"
        hint = None if files else "name the files, or their directory; see docs/formats.md"
        terminal.fail(CkptError(f"nothing was imported{why}", hint=hint))
        return
    runs = terminal.count(len({file.run for file in fresh}), "run")
    what = f"{terminal.count(len(fresh), 'checkpoint')} in {runs}" if fresh else "nothing new"
    before = f"; {terminal.count(known, 'file')} imported before" if known else ""
    terminal.remark(f"{'would import' if dry_run else 'imported'} {what}{before}")
    if fresh and not dry_run:
        terminal.remark("to see them: git ckpt runs; to continue one: git ckpt resume RUN --trust")
