"""`git ckpt export`."""

from __future__ import annotations

import os

from gitckpt.cli import terminal
from gitckpt.cli.opening import open_store
from gitckpt.model.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Annotated

    import typer


def export(
    id_: Annotated[
        str,
        typer.Argument(
            metavar="ID", help="A checkpoint: id, prefix, rev or latest. Or a run: id or prefix."
        ),
    ],
    format_: Annotated[
        str,
        typer.Option(
            "--format", metavar="F", help="rlm-act, workflow, forge, quasar or superpowers."
        ),
    ],
    output: Annotated[
        str | None,
        typer.Option(
            "-o",
            "--output",
            metavar="PATH",
            help="The file; for a run as rlm-act a directory, which gets a file a checkpoint.",
        ),
    ] = None,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Replace a file that holds something else than was imported or exported.",
        ),
    ] = False,
) -> None:
    """Write a checkpoint or a run as another tool's file. What was imported and has not changed is the same bytes.

    PATH may be a directory that is there: the file gets its usual name in it.
    """
    from gitckpt.formats.exporter import Exporter

    with open_store() as store:
        exporter = Exporter(store)
        exported = exporter.files(id_, format_, every=output is not None)
        if output is None:
            terminal.out_document(exported[0].data)
        else:
            # Whether PATH is a directory depends on what is exported, not on a slash at its end.
            if exporter.is_directory(id_, format_):
                exporter.make_directory(output)
            elif output.endswith(os.sep) and not os.path.isdir(output):
                raise UsageError(
                    f"there is no directory {output}",
                    hint="make it, or leave out the slash to name the file",
                )
            for file in exported:
                path = os.path.join(output, file.name) if os.path.isdir(output) else output
                exporter.write(path, file, force=force)
                terminal.out_path(path)
        for loss in dict.fromkeys(loss for file in exported for loss in file.losses):
            terminal.warn(f"not in the file: {loss}")
