"""`git ckpt import`."""

from __future__ import annotations

from gitckpt.cli import terminal
from gitckpt.cli.opening import open_store
from gitckpt.model.errors import CkptError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Annotated

    import typer

    from gitckpt.formats.importer import ImportedFile


def import_(
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="PATH…", help="Files of other tools, or directories to be searched for them."
        ),
    ],
    format_: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="F",
            help="rlm-act, workflow, forge, quasar or superpowers; by default told by the content.",
        ),
    ] = None,
    phases: Annotated[
        str,
        typer.Option(
            "--phases",
            metavar="P",
            help="quasar's files are from before it had this phase: linting or filtering.",
        ),
    ] = "",
    history: Annotated[
        bool,
        typer.Option(
            "--history", help="Take over each version that git has of superpowers' files."
        ),
    ] = False,
    fork: Annotated[
        bool, typer.Option("--fork", help="Make a second run of a file whose run has gone on here.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be imported; record nothing.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> int:
    """Take over the files of rlm-act, forge, quasar and superpowers as runs and checkpoints.

    Their bytes are kept: `git ckpt export` gives them back. What was imported before adds nothing.

    The exit code is 1 where a file cannot be read or is refused, and where nothing is imported.
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
