"""`git ckpt export`."""

from __future__ import annotations

import os

from gitckpt.cli import options, terminal
from gitckpt.cli.opening import open_store
from gitckpt.model.errors import UsageError


@options.usage("""
ID  A checkpoint (id, prefix, rev or latest) or a run (id or prefix).
--format F  The format: rlm-act, workflow, forge, quasar or superpowers.
-o, --output PATH  The file to write; for a run as rlm-act, a directory.
--force  Overwrite a file that is neither an import nor the last export.
""")
def export(id_: str, format_: str, output: str | None = None, force: bool = False) -> None:
    """Write a checkpoint or a run as a file of another tool.

    A file that was imported and has not changed comes back with the same bytes. If PATH is a
    directory, the file gets its usual name in it.
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
                hint = "make it, or leave out the slash to name the file"
                raise UsageError(f"there is no directory {output}", hint=hint)
            for file in exported:
                path = os.path.join(output, file.name) if os.path.isdir(output) else output
                exporter.write(path, file, force=force)
                terminal.out_path(path)
        for loss in dict.fromkeys(loss for file in exported for loss in file.losses):
            terminal.warn(f"not in the file: {loss}")
