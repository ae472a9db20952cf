"""Implement `git ckpt import` and `git ckpt export`."""

from __future__ import annotations

import os

from gitckpt.cli import options, terminal
from gitckpt.cli.opening import open_store
from gitckpt.model.errors import CkptError, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gitckpt.formats.importer import ImportedFile


@options.declare_parameters("""
PATH…  Files of other tools, or directories to search for them.
--format F  The format: rlm-act, workflow, forge, quasar or superpowers.  [default: detected]
--phases P  The phase that quasar's files do not know yet: linting or filtering.
--history  Import every version of superpowers' files in git's history.
--fork  Import a file as a second run if its first run has continued here.
--dry-run  Print what would be imported; record nothing.
--json  Print one JSON document.
""")
def import_files(
    paths: list[str],
    format_: str | None = None,
    dry_run: bool = False,
    as_json: bool = False,
    **importer_options: Any,
) -> int:
    """Import files of the tools rlm-act, forge, quasar and superpowers as runs.

    Stores the bytes of the files for `git ckpt export`. A second import of a file adds nothing.

    Exits with 1 if a file cannot be read or is refused, or if nothing was imported.
    """
    from gitckpt.formats import importer

    with open_store() as store:
        importer_options["progress"] = terminal.show_progress
        reader = importer.Importer(store, format=format_, dry_run=dry_run, **importer_options)
        with terminal.show_waiting("importing"):
            imported_files = reader.take(paths)
    statuses = {file.status for file in imported_files}
    has_imports = not statuses.isdisjoint((importer.IMPORTED, importer.KNOWN))
    exit_code = 0 if has_imports and statuses.isdisjoint((importer.FAILED, importer.REFUSED)) else 1
    if as_json:
        field_names = " ".join(importer.ImportedFile.__slots__)
        documents = [terminal.pick_fields(file, field_names) for file in imported_files]
        terminal.out_json({"dry_run": dry_run, "files": documents})
        return exit_code
    for file in imported_files:
        _print_imported_file(file, dry_run=dry_run)
    if reader.left:
        skipped = f"{terminal.plural(len(reader.left), 'file')}, such as {reader.left[0]}"
        terminal.remark(f"skipped files that no snapshot captures: {skipped}")
    _print_summary(imported_files, dry_run=dry_run)
    return exit_code


def _print_imported_file(file: ImportedFile, *, dry_run: bool) -> None:
    from gitckpt.formats import importer

    remarks = "; ".join(file.remarks if file.problem is None else [file.problem])
    if file.status not in (importer.IMPORTED, importer.KNOWN):
        terminal.warn(f"{file.path}: {file.status}: {remarks}")
    elif terminal.is_terminal():
        verb = "would be imported" if dry_run and file.status == importer.IMPORTED else file.status
        target = f" as {file.label} of run {file.run}" if file.run is not None else ""
        line = f"{file.path}: {file.format}, {verb}{target}"
        terminal.out(f"{line}; {remarks}" if remarks else line)
    else:
        field_names = ("path", "status", "format", "run", "checkpoint", "label", "timestamp")
        terminal.out_row((*(getattr(file, name) for name in field_names), remarks))


def _print_summary(files: list[ImportedFile], *, dry_run: bool) -> None:
    from gitckpt.formats import importer

    added = [file for file in files if file.status == importer.IMPORTED]
    known_count = sum(file.status == importer.KNOWN for file in files)
    if not added and not known_count:  # the reasons were printed per file
        reason = ": see the warnings" if files else ": no file has a known format"
        hint = None if files else "name files, or a directory of files; see docs/formats.md"
        terminal.print_error(CkptError(f"nothing was imported{reason}", hint=hint))
        return
    runs = terminal.plural(len({file.run for file in added}), "run")
    summary = f"{terminal.plural(len(added), 'checkpoint')} in {runs}" if added else "nothing new"
    summary += f"; {terminal.plural(known_count, 'file')} imported before" if known_count else ""
    terminal.remark(f"{'would import' if dry_run else 'imported'} {summary}")
    if added and not dry_run:
        terminal.remark("to list runs: git ckpt runs; to continue one: git ckpt resume RUN --trust")


@options.declare_parameters("""
ID  The address of a checkpoint, or a run.
--format F  The format: rlm-act, workflow, forge, quasar or superpowers.
-o, --output PATH  The file to write; for a run as rlm-act, a directory.
--force  Overwrite a file that is neither an import nor the last export.
""")
def export_files(id_: str, format_: str, output: str | None = None, force: bool = False) -> None:
    """Write a checkpoint or a run in the file format of another tool.

    An imported run that has not changed is written with the bytes of the imported file. If PATH is
    a directory, the file is written there under the usual name of the format.
    """
    from gitckpt.formats.exporter import Exporter

    with open_store() as store:
        exporter = Exporter(store)
        with terminal.show_waiting("exporting"):
            exported_files = exporter.files(id_, format_, every=output is not None)
        if output is None:
            terminal.out_document(exported_files[0].data)
        else:
            # The kind of export decides whether PATH is a directory, not a slash at its end.
            if exporter.is_directory(id_, format_):
                exporter.make_directory(output)
            elif output.endswith(os.sep) and not os.path.isdir(output):
                hint = "create the directory, or leave out the slash to name a file"
                raise UsageError(f"there is no directory {output}", hint=hint)
            for file in exported_files:
                path = os.path.join(output, file.name) if os.path.isdir(output) else output
                exporter.write(path, file, force=force)
                terminal.out_path(path)
        for loss in dict.fromkeys(loss for file in exported_files for loss in file.losses):
            terminal.warn(f"not in the exported file: {loss}")
