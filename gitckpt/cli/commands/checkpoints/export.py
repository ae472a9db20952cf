"""`git ckpt export`."""

from __future__ import annotations

import os

from gitckpt.cli.opening import open_store
from gitckpt.cli.screen import terminal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Annotated

    import typer


def export(
    id_: Annotated[str, typer.Argument(metavar="ID", help="A checkpoint: id, prefix, rev or latest. Or a run: id or prefix.")],
    format_: Annotated[str, typer.Option("--format", metavar="F", help="rlm-act, workflow, forge, quasar or superpowers.")],
    output: Annotated[
        str | None,
        typer.Option("-o", "--output", metavar="PATH", help="The file; of a run of rlm-act a directory, which gets a file a checkpoint."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that holds something else than was imported or exported.")] = False,
) -> None:
    """Write a checkpoint or a run as another tool's file. What was imported and has not changed is the same bytes."""
    from gitckpt.formats.exporter import Exporter

    is_directory = output is not None and (output.endswith(os.sep) or os.path.isdir(output))
    with open_store() as store:
        exporter = Exporter(store)
        for each in exporter.files(id_, format_, every=is_directory):
            if output is None:
                terminal.out_document(each.data)
            else:
                path = os.path.join(output, each.name) if is_directory else output
                exporter.write(path, each, force=force)
                terminal.out_path(path)
            for loss in each.losses:
                terminal.warn(f"not in the file: {loss}")
