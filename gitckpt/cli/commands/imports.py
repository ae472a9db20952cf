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
    statuses = {file.status for file in imported}
    is_done = not statuses.isdisjoint((importer.IMPORTED, importer.KNOWN))
    code = 0 if is_done and statuses.isdisjoint((importer.FAILED, importer.REFUSED)) else 1
    if as_json:
        terminal.out_json({"dry_run": dry_run, "files": [_as_json(file) for file in imported]})
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
    runs = {file.run for file in fresh}
    if not fresh and not known:  # the reasons were printed per file
        error = CkptError("nothing was imported")
        if not files:
            hint = "name the files, or their directory; see docs/formats.md"
            error = CkptError("nothing was imported: no file has a known format", hint=hint)
        terminal.fail(error)
        return
    what = "nothing new"
    if fresh:
        what = f"{terminal.count(len(fresh), 'checkpoint')} in {terminal.count(len(runs), 'run')}"
    before = f"; {terminal.count(known, 'file')} imported before" if known else ""
    terminal.remark(f"{'would import' if dry_run else 'imported'} {what}{before}")
    if fresh and not dry_run:
        terminal.remark("to see them: git ckpt runs; to continue one: git ckpt resume RUN --trust")


def _as_json(file: ImportedFile) -> dict[str, object]:
    plain: dict[str, object] = {name: getattr(file, name) for name in file.__slots__}
    return plain | {"remarks": list(file.remarks)}
