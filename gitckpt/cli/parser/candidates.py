"""Complete commands, options and ids, for the scripts of `git ckpt completion`."""

from __future__ import annotations

from gitckpt.cli import options, terminal
from gitckpt.cli.commands.completion import SCRIPTS
from gitckpt.cli.parser.commands import COMMANDS
from gitckpt.model.errors import CkptError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

# Ids that are offered, the newest.
_IDS = 200


def complete(words: Sequence[str]) -> None:
    """Print what could stand in place of the last of the words."""
    *before, last = words or [""]
    valued = options.valued(options.apply)
    if "--" in before or (before and before[-1] in valued):
        return  # a directory, or paths: the shell knows them
    name = next(iter(before[options.command_of(before, valued) :]), None)
    for candidate in _candidates(name, last):
        if candidate.startswith(last):
            terminal.out(candidate)


def _candidates(name: str | None, last: str) -> list[str]:
    if name is None and not last.startswith("-"):
        return list(COMMANDS)
    if name is not None and name not in COMMANDS:
        return []
    function = options.apply if name is None else COMMANDS[name]()
    parameters = options.PARAMETERS.get(function, [])
    if last.startswith("-"):
        spellings = [spelling for parameter in parameters for spelling in parameter.spellings]
        own = [options.VERSION] if name is None else []
        return [word for word in (*spellings, *own, "--help") if word.startswith("--")]
    if name == "completion":
        return list(SCRIPTS)
    takes_ids = any("ID" in str(parameter.metavar) for parameter in parameters[:1])
    return _ids() if takes_ids else []


def _ids() -> list[str]:
    from gitckpt.cli.opening import open_store
    from gitckpt.store.records.entry import Query

    try:  # outside of a repository, there are none
        with open_store() as store:
            return [
                "latest",
                "latest:any",
                *(run.run for run in store.runs()),
                *(entry.id for entry in store.list(Query(limit=_IDS))),
            ]
    except CkptError:
        return []
