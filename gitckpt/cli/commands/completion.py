"""`git ckpt completion`."""

from __future__ import annotations

from gitckpt.cli import options, terminal

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
SCRIPTS = {"bash": BASH, "zsh": ZSH, "fish": FISH}


@options.usage("""
bash|zsh|fish  The shell that reads the script.
""")
def completion(shell: str) -> None:
    """Print a script for the completion of a shell.

    Evaluate it in the start-up file of the shell.
    """
    is_unknown = shell not in SCRIPTS
    known = f"known shells: {', '.join(SCRIPTS)}"
    options.refuse(is_unknown, f"no completion for {shell!r}", known)
    terminal.out_bytes(SCRIPTS[shell].encode())
