"""Complete commands, options, values and paths for the shells' scripts.

Each candidate is on a line of its own, for zsh and fish with a tab and a description. A line that
begins with a colon asks the script for more: `:files`, `:directories`, or for `:paths` no space.
"""

from __future__ import annotations

import os

from gitckpt.cli import options, terminal
from gitckpt.cli.commands.init import SCRIPTS
from gitckpt.cli.opening import open_store
from gitckpt.cli.parser.commands import COMMANDS
from gitckpt.model import ids, phase, runstate, times
from gitckpt.model.errors import CkptError
from gitckpt.store.records.entry import Query

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import TypeAlias

    from gitckpt.cli.options import Parameter
    from gitckpt.store.records.entry import CheckpointInfo
    from gitckpt.store.store import Store

    Candidate: TypeAlias = tuple[str, str]  # with a description

_MAX_IDS = 200  # newest ids that are offered
_MAX_SETTINGS = 1 << 20  # bytes of gitckpt.toml
_FILES, _DIRECTORIES, _PATHS = ":files", ":directories", ":paths"
_CLIENTS = "claude codex gemini opencode"
# Values by option, by argument, or by command and either.
_CHOICES = {
    "--status": " ".join(phase.STATUSES),
    "runs --status": " ".join(runstate.STATUSES),
    "--date": " ".join(times.DATE_FORMATS),
    "--format": "rlm-act workflow forge quasar superpowers",
    "--phases": "linting filtering",
    "--hooks": "auto config files external none",
    "--autonomy": "checkpoint batch fully_autonomous",
    "--conversation": "new continue",
    "--task-status": "PASSED FAILED BLOCKED SKIPPED",
    "--shell": " ".join(SCRIPTS),
    **dict.fromkeys(("--agent", "--coder", "--reviewer"), f"{_CLIENTS} aider"),
    "bash|zsh|fish": " ".join(SCRIPTS),
    "agent ACTION": "install uninstall status",
    "CLIENT": _CLIENTS,
    "step ACTION": "start progress pass fail block skip reset show next",
}
_PRESETS = "plan-to-pr rlm-act loop review"
_FILE_METAVARS = ("FILE", "PATH", "FILE.html", "PLAN.md", "TASK|TASK.md", "PATH|DIGEST")


def print_completions(words: Sequence[str], shell: str | None = None) -> None:
    """Print the candidates for the last word; without a shell, plain words only."""
    terminal.TerminalState.quiet = True  # no notes on addresses
    *words_before, last_word = words or [""]
    for candidate, description in _find_candidates(words_before, last_word, shell):
        if candidate in (_FILES, _DIRECTORIES, _PATHS):
            if shell is not None:
                terminal.out(candidate)
        elif candidate.startswith(last_word):
            has_description = description and shell in ("zsh", "fish")
            if has_description:
                terminal.out_row((candidate, description))
            else:
                terminal.out(candidate)


def _find_candidates(
    words: Sequence[str], last_word: str, shell: str | None
) -> Iterable[Candidate]:
    options_with_value = options.options_with_value(options.apply_globals)
    index = options.command_index(words, options_with_value)
    if index == len(words):
        if words and words[-1] in options_with_value:
            return [(_DIRECTORIES, "")]
        if not last_word.startswith("-"):
            return [(name, "") for name in COMMANDS]
        return _list_options(options.PARAMETERS[options.apply_globals], options.VERSION)
    command, arguments = words[index], words[index + 1 :]
    if command == "help":
        return [(name, "") for name in (*COMMANDS, "addresses")]
    if command not in COMMANDS:
        return []
    parameters = options.PARAMETERS.get(COMMANDS[command](), [])
    given = _list_positional(parameters, arguments)
    if "--" in arguments:
        metavar = next((str(p.metavar) for p in parameters if "-- " in str(p.metavar)), "")
        if "PATH" not in metavar:
            return [(_FILES, "")]  # of a command
        address = given[0] if given and command != "grep" else "latest"
        return _with_store(lambda store: _list_paths(store, address, last_word))
    option = _find_option(parameters, arguments[-1:])
    if option is None and last_word.startswith("-"):
        return _list_options(parameters)
    if option is None:
        positional = [parameter for parameter in parameters if not parameter.spellings]
        if not positional or (len(given) >= len(positional) and not positional[-1].is_list):
            return []
        option = positional[min(len(given), len(positional) - 1)]
    if command == "ls" and given:
        return _with_store(lambda store: _list_paths(store, given[0], last_word))
    return _list_values(command, option, last_word, shell)


def _find_option(parameters: Sequence[Parameter], words: Sequence[str]) -> Parameter | None:
    # The option whose value comes after `words`.
    with_value = (option for option in parameters if option.spellings and not option.is_flag)
    return next((option for option in with_value if {*words} & {*option.spellings}), None)


def _list_positional(parameters: Sequence[Parameter], words: Sequence[str]) -> list[str]:
    before = words[: words.index("--")] if "--" in words else words
    return [
        word
        for position, word in enumerate(before)
        if not word.startswith("-") and not _find_option(parameters, before[:position][-1:])
    ]


def _list_options(parameters: Iterable[Parameter], *others: str) -> list[Candidate]:
    spellings = [(name, each.help.strip()) for each in parameters for name in each.spellings]
    spellings += [*((name, "") for name in others), ("--help", "")]
    return [pair for pair in spellings if pair[0].startswith("--")]


def _list_values(
    command: str, parameter: Parameter, last_word: str, shell: str | None
) -> Iterable[Candidate]:
    metavar = str(parameter.metavar).strip("[").partition("]")[0].partition("…")[0].split(" ")[0]
    names = [*parameter.spellings[-1:], metavar]
    for name in (*(f"{command} {name}" for name in names), *names):
        if name in _CHOICES:
            return [(value, "") for value in _CHOICES[name].split()]
    if metavar in _FILE_METAVARS:
        return [(_FILES, "")]
    if metavar == "DIR":
        return [(_DIRECTORIES, "")]
    if metavar == "PIPELINE|PLAN.md":
        return _with_store(_list_pipelines)
    if metavar in ("RUN", "SESSION", "ID") and parameter.spellings != ["--epic"]:
        takes_path = command == "show" and ":" in last_word
        paths = _with_store(lambda store: _list_paths_of(store, last_word)) if takes_path else []
        return paths + _with_store(lambda store: _list_addresses(store, metavar, last_word, shell))
    return []


def _with_store(find: Callable[[Store], Iterable[Candidate]]) -> list[Candidate]:
    try:  # outside of a repository, or for a missing checkpoint, nothing is offered
        with open_store() as store:
            return list(find(store))
    except CkptError:
        return []


def _list_addresses(
    store: Store, metavar: str, last_word: str, shell: str | None
) -> Iterator[Candidate]:
    if metavar == "ID":
        yield from (("latest", "in this worktree"), ("latest:any", ""))
    current_time = times.now()

    def describe(entry: CheckpointInfo) -> str:
        age = times.age_text(max(current_time - entry.time, 0))
        return f"{age}, {entry.message or entry.label}"

    if metavar == "ID" and (tags := store.tags()):
        tagged = {entry.id: entry for entry in store.list(Query(ids=list(tags.values())))}
        yield from ((name, describe(tagged[id_])) for name, id_ in tags.items() if id_ in tagged)
    summaries = [run for run in store.runs() if metavar != "SESSION" or run.is_session]
    short_names = ids.short_run_names(run.run for run in summaries)
    for run in summaries:
        is_full = shell is None or last_word[:1].isdigit()
        age = times.age_text(max(current_time - run.time, 0))
        yield run.run if is_full else short_names[run.run], f"{run.status}, {age}"
    if metavar != "ID":
        return
    entries = store.list(Query(limit=_MAX_IDS))
    prefixes = store.unique_prefixes(entry.id for entry in entries)
    for entry in entries:
        shown = max(ids.SHORT, len(prefixes.get(entry.id, "")), len(last_word))
        yield entry.id[:shown] if shell else entry.id, describe(entry)


def _list_paths(store: Store, address: str, last_word: str) -> Iterator[Candidate]:
    yield _PATHS, ""
    directory, separator, _ = last_word.rpartition("/")
    path = options.path_from_top(store.worktree, directory + separator or ".")
    for name in _list_names(store, store.find(address), path):
        yield directory + separator + name, ""


def _list_paths_of(store: Store, address_and_path: str) -> Iterator[Candidate]:
    # In ID:PATH, the path is relative to the top.
    checkpoint_id, path = store.find_path(address_and_path)
    if path is None:
        return
    directory, separator, last_name = path.rpartition("/")
    beginning = address_and_path.removesuffix(last_name)
    yield _PATHS, ""
    raw_path = os.fsencode(os.path.normpath(directory + separator or "."))
    for name in _list_names(store, checkpoint_id, raw_path):
        yield beginning + name, ""


def _list_names(store: Store, checkpoint_id: str, path: bytes) -> Iterator[str]:
    for file in store.files(checkpoint_id, path):
        name = os.fsdecode(os.path.basename(file.path))
        yield name + "/" * (file.kind == "directory")


def _list_pipelines(store: Store) -> Iterator[Candidate]:
    # Reads the settings as text: importing the parser of pipelines takes 200 ms.
    try:
        with open(os.path.join(store.worktree or "", "gitckpt.toml"), "rb") as file:
            lines = file.read(_MAX_SETTINGS).decode("utf-8", "replace").splitlines()
    except OSError:
        lines = []
    headers = (line.strip().strip("[] ").split(".") for line in lines if line.startswith("["))
    names = [parts[1].strip("'\"") for parts in headers if parts[:1] == ["pipelines"] and parts[1:]]
    yield from ((name, "") for name in dict.fromkeys([*names, *_PRESETS.split()]))
    yield _FILES, ""
