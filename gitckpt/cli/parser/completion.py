"""Complete commands, options and ids, for the scripts of `git ckpt completion`."""

from __future__ import annotations

from collections.abc import Sequence

from gitckpt.cli import options, terminal
from gitckpt.cli.commands.init import SCRIPTS
from gitckpt.cli.opening import open_store
from gitckpt.cli.parser.commands import COMMANDS
from gitckpt.model.errors import CkptError
from gitckpt.store.records.entry import Query

_MAX_IDS = 200  # newest ids that are offered


def print_completions(words: Sequence[str]) -> None:
    *words_before, last_word = words or [""]
    options_with_value = options.options_with_value(options.apply_globals)
    if "--" in words_before or (words_before and words_before[-1] in options_with_value):
        return  # the shell itself completes directories and paths
    name = next(iter(words_before[options.command_index(words_before, options_with_value) :]), None)
    for candidate in _completion_candidates(name, last_word):
        if candidate.startswith(last_word):
            terminal.out(candidate)


def _completion_candidates(command: str | None, last_word: str) -> list[str]:
    if command is None and not last_word.startswith("-"):
        return list(COMMANDS)
    if command is not None and command not in COMMANDS:
        return []
    function = options.apply_globals if command is None else COMMANDS[command]()
    parameters = options.PARAMETERS.get(function, [])
    if last_word.startswith("-"):
        spellings = [spelling for parameter in parameters for spelling in parameter.spellings]
        spellings += [*([options.VERSION] if command is None else []), "--help"]
        return [spelling for spelling in spellings if spelling.startswith("--")]
    if command == "completion":
        return list(SCRIPTS)
    if not any("ID" in str(parameter.metavar) for parameter in parameters[:1]):
        return []
    try:  # outside of a repository, there are no ids to complete
        with open_store() as store:
            return [
                "latest",
                "latest:any",
                *(run.run for run in store.runs()),
                *(entry.id for entry in store.list(Query(limit=_MAX_IDS))),
            ]
    except CkptError:
        return []
