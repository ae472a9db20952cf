"""Shell completion of commands, options and ids."""

from __future__ import annotations

from gitckpt.cli import options, terminal
from gitckpt.cli.options import command_of
from gitckpt.model.errors import CkptError, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Annotated, Any

    import typer

_IDS = 200

BASH = """\
# Completion for `git ckpt` (found by git's own completion) and for `git-ckpt`.
_git_ckpt() {
    local i start=1
    for ((i = 1; i < ${#COMP_WORDS[@]}; i++)); do
        [ "${COMP_WORDS[i]}" = ckpt ] && { start=$((i + 1)); break; }
    done
    local IFS=$'\\n'
    COMPREPLY=($(git-ckpt complete -- "${COMP_WORDS[@]:start:COMP_CWORD-start+1}" 2>/dev/null))
}
complete -o default -F _git_ckpt git-ckpt
"""
ZSH = """\
#compdef git-ckpt
# Completion for `git ckpt` and for `git-ckpt`: put it into a directory of $fpath as _git-ckpt.
_git-ckpt() {
    local -a found
    found=("${(@f)$(git-ckpt complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    compadd -a found || _files
}
_git-ckpt "$@"
"""
FISH = """\
# Completion for `git ckpt` and for `git-ckpt`.
function __git_ckpt_complete
    set -l words (commandline -opc) (commandline -ct)
    set -l at (contains -i -- ckpt $words); or set at 1
    git-ckpt complete -- $words[(math $at + 1)..-1] 2>/dev/null
end
complete -c git -n 'contains ckpt (commandline -opc)' -a '(__git_ckpt_complete)'
complete -c git-ckpt -a '(__git_ckpt_complete)'
"""
_SCRIPTS = {"bash": BASH, "zsh": ZSH, "fish": FISH}


@options.usage("""
bash|zsh|fish  The shell that reads the script.
""")
def completion(shell: str) -> None:
    """Print a script for the completion of a shell.

    Evaluate it in the start-up file of the shell.
    """
    if shell not in _SCRIPTS:
        raise UsageError(
            f"no completion for {shell!r}", hint=f"known shells: {', '.join(_SCRIPTS)}"
        )
    terminal.out_bytes(_SCRIPTS[shell].encode())


def complete(
    context: typer.Context, words: Annotated[list[str] | None, typer.Argument()] = None
) -> None:
    """Print what could stand in place of the last word."""
    words = words or [""]
    *before, last = words
    program: Any = context.find_root().command
    valued = {
        option for parameter in program.params if not parameter.is_flag for option in parameter.opts
    }
    if "--" in before or (before and before[-1] in valued):
        return  # a directory, or paths: the shell knows them
    for candidate in _candidates(
        program, next(iter(before[command_of(before, valued) :]), None), last
    ):
        if candidate.startswith(last):
            terminal.out(candidate)


def _candidates(program: Any, name: str | None, last: str) -> list[str]:
    if name is None and not last.startswith("-"):
        return [name for name, command in program.commands.items() if not command.hidden]
    if name is not None and name not in program.commands:
        return []
    parameters = (program if name is None else program.commands[name]).params
    if last.startswith("-"):
        return [
            option
            for parameter in parameters
            for option in parameter.opts
            if option.startswith("--")
        ] + ["--help"]
    if name == "completion":
        return list(_SCRIPTS)
    takes_ids = any(
        parameter.param_type_name == "argument" and parameter.name.startswith("id")
        for parameter in parameters
    )
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
