"""Implement `git ckpt report`."""

from __future__ import annotations

import os

from gitckpt.cli import options, terminal
from gitckpt.cli.opening import open_store
from gitckpt.model.errors import NotFoundError, WorktreeError
from gitckpt.model.values import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gitckpt.store.records.entry import Query
    from gitckpt.store.store import Store


@options.declare_parameters("""
[ADDRESS]  A run, a session, a turn or a checkpoint.  [default: all checkpoints]
-o, --output FILE  The HTML file to write.
--since TIME  Only checkpoints since then: 20m, 7d, 11:40, yesterday 18:00, 2026-11-26.
--force  Overwrite an existing file.
""")
def write_report(
    address: str | None = None,
    *,
    output: str,
    since: str | None = None,
    force: bool = False,
) -> None:
    """Write a page with a timeline, and what each checkpoint changed.

    The page is one HTML file that loads nothing. Likely secrets in its texts are masked.
    """
    options.refuse_if(not output, "-o is empty", "name a file: git ckpt report -o report.html")
    path = os.path.abspath(output)
    hint = "choose another file, or overwrite it: --force"
    options.refuse_if(os.path.lexists(path) and not force, f"{output} exists already", hint)
    options.refuse_if(os.path.isdir(path), f"{output} is a directory", "name a file in it")
    with open_store() as store:
        from gitckpt.cli.report import page
        from gitckpt.git.files import regular
        from gitckpt.store.records.entry import Query

        query = _choose(store, address) if address is not None else Query()
        query = replace(query, since=options.parse_instant(since), safety=False)
        with terminal.show_waiting("writing the report"):
            place = os.path.basename(store.worktree or os.getcwd())
            title = f"{place}: {address}" if address is not None else place
            document, left_out = page.render(store, query, title)
    try:
        regular.write(path, document)
    except OSError as error:
        hint = "choose another file: -o FILE"
        raise WorktreeError(f"cannot write {output}: {error.strerror}", hint=hint) from None
    if left_out:
        older = f"{left_out:,} older checkpoints are not on the page"
        terminal.remark(f"{older}; to choose some: git ckpt report RUN, or --since")
    terminal.out_path(output)


def _choose(store: Store, address: str) -> Query:
    from gitckpt.agents import turn_list
    from gitckpt.store.records.entry import Query

    options.refuse_if(not address, "the address is empty", "name a run: git ckpt runs")
    turn = turn_list.find_turn(store, address) if _is_turn(address) else None
    if turn is not None:
        return Query(ids=[entry.id for entry in turn.entries])
    run = store.run_named(address)
    if run is None:
        try:
            run = turn_list.find_session(store, address)
        except NotFoundError:
            return Query(ids=[store.find(address)])
    return Query(run=run)


def _is_turn(address: str) -> bool:
    return address.rpartition(":")[2].isdigit()
