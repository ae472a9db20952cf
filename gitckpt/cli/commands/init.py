"""Implement `git ckpt init`, `uninit`, `hook`, `demo`, `allow` and `completion`."""

from __future__ import annotations

import os

from gitckpt.cli import options, terminal
from gitckpt.cli.opening import login_shell_advice, open_store
from gitckpt.model.errors import CkptError


@options.declare_parameters("""
--hooks MODE  How git calls gitckpt: auto, config, files, external (you add the lines) or none.
  [default: auto]
""")
def install_hooks(hooks: str = "auto") -> None:
    """Record a checkpoint at every commit from now on.

    Installs git hooks, git settings and the settings file gitckpt.toml.
    """
    with open_store() as store:
        installation = store.install(hooks)
        store.policy()  # warns, or asks, if gitckpt.toml weakens defaults
    for sentence in installation.changed:
        terminal.out(sentence)
    for line in filter(None, (*installation.advice, login_shell_advice())):
        terminal.remark(line)
    if not installation.changed:
        terminal.out("already initialized; nothing changed")
    if installation.mode in ("config", "files"):
        terminal.remark("every commit records a checkpoint now; to list checkpoints: git ckpt list")


def uninstall_hooks() -> None:
    """Remove the hooks and settings that init installed; checkpoints stay.

    Lines that other tools wrote into hooks stay, too.
    """
    with open_store(any_git=True) as store:
        result = store.uninstall()
    for sentence in result.changed or ["not initialized; nothing changed"]:
        terminal.out(sentence)
    for line in result.advice:
        terminal.remark(line)


@options.declare_parameters("""
NAME  The hook: post-commit, post-merge, post-applypatch, post-rewrite or pre-auto-gc.
[ARG]…  What git passed to the hook.
""")
def handle_git_hook(event: str, arguments: list[str] | None = None) -> None:
    """Do gitckpt's work in a git hook; always exit with 0.

    The installed hooks call this command. With another hook manager, add it to the manager's file.
    """
    from gitckpt.hook import main

    main([event, *(arguments or [])])


@options.declare_parameters("""
--dir DIR  Create the scratch repository in DIR, which must not exist.
""")
def show_demo(dir_: str | None = None) -> None:
    """Demonstrate save, kill and resume in a scratch repository."""
    from gitckpt.cli.commands.demo import run_demo

    if not run_demo(dir_):
        raise CkptError("a check of the demo failed", hint="see the lines that begin with FAILED")


@options.declare_parameters("""
-n, --dry-run  Print what would be allowed; change nothing.
--forget  Withdraw the approval in this clone; built-in values apply again.
--secret PATH|DIGEST  Declare that a file, or a text with this digest, is no secret.
--json  Print one JSON document.
""")
def allow_settings(
    dry_run: bool = False, forget: bool = False, secret: str | None = None, as_json: bool = False
) -> None:
    """Approve settings in gitckpt.toml that weaken the defaults.

    Prints these settings. Without approval, gitckpt.toml can only be stricter than the defaults.
    The approval counts in this clone, until a value changes. With --secret, gitckpt stops warning
    about a file or a text; git ckpt show prints the path and the digest to give.
    """
    if secret is not None:
        problem = "--secret excludes all other options"
        options.refuse_if(dry_run or forget or as_json, problem, "leave out the other option")
        _allow_secret(secret)
        return
    problem = "--forget prints no settings"
    options.refuse_if(forget and (dry_run or as_json), problem, "leave out the other option")
    with open_store() as store:
        if forget:
            outcome = "built-in values apply again where gitckpt.toml weakens them"
            terminal.remark(outcome if store.disallow() else "no setting was allowed in this clone")
            return
        weakening = store.loosened()
        if weakening is not None and not weakening.is_allowed and not dry_run:
            store.allow(weakening)
    weakened_settings = weakening.values if weakening is not None else {}
    if as_json:
        is_allowed = weakening is None or weakening.is_allowed or not dry_run
        pairs = weakened_settings.items()
        rows = [{"key": key, "value": value, "instead": default} for key, (value, default) in pairs]
        terminal.out_json({"allowed": is_allowed, "loosened": rows})
        return
    for key, (value, default) in weakened_settings.items():
        terminal.out(f"{key}: {_difference_text(value, default)}")
    if weakening is None:
        remark = "gitckpt.toml does not weaken the defaults"
    elif weakening.is_allowed:
        remark = "all these settings were allowed before"
    elif dry_run:
        remark = "built-in values apply until you allow these settings: git ckpt allow"
    else:
        remark = "allowed in this clone until a value changes; to undo: git ckpt allow --forget"
    terminal.remark(remark)


def _difference_text(value: object, default: object) -> str:
    # In full: the user has to see all that the approval covers.
    if not isinstance(value, list) or not isinstance(default, list):
        return f"{value} instead of {default}"
    added = ", ".join(pattern for pattern in value if pattern not in default)
    removed = ", ".join(pattern for pattern in default if pattern not in value)
    return "; ".join(filter(None, (added and f"with {added}", removed and f"without {removed}")))


def _allow_secret(secret: str) -> None:
    from gitckpt.store.secrets import is_secret_digest  # no other option needs it

    with open_store() as store:
        path = os.path.join(store.worktree or "", secret)
        hint = "name a path from the top of the worktree, or a digest: git ckpt show ID"
        is_missing = not is_secret_digest(secret) and not os.path.lexists(path)
        options.refuse_if(is_missing, f"there is no file {secret!r}", hint)
        is_new = store.settle(secret)
    now, before = "is declared no secret on this machine now", "was declared no secret before"
    terminal.remark(f"{secret} {now if is_new else before}")


BASH = """\
# Completion for `git ckpt` (found by git's own completion) and for `git-ckpt`.
_git_ckpt() {
    local i start=1 line found=() word=${COMP_WORDS[COMP_CWORD]} words=() last=0
    for ((i = 1; i < ${#COMP_WORDS[@]}; i++)); do
        [ "${COMP_WORDS[i]}" = ckpt ] && { start=$((i + 1)); break; }
    done
    for ((i = start; i <= COMP_CWORD; i++)); do  # bash splits words at colons
        last=$((${#words[@]} - 1))
        if ((last >= 0)) && [[ ${COMP_WORDS[i]} == : || ${words[last]} == *: ]]; then
            words[last]+=${COMP_WORDS[i]}
        else
            words+=("${COMP_WORDS[i]}")
        fi
    done
    local joined=${words[*]: -1} IFS=$'\\n'
    local before=${joined%"$word"}
    [ "$word" = : ] && before=$joined
    compopt +o default +o bashdefault 2>/dev/null  # files only where files belong
    while read -r line; do
        case $line in
        :files) compopt -o filenames 2>/dev/null; found+=($(compgen -f -- "$word")) ;;
        :directories) compopt -o filenames 2>/dev/null; found+=($(compgen -d -- "$word")) ;;
        :paths) compopt -o filenames -o nospace 2>/dev/null ;;
        *) found+=("${line#"$before"}") ;;
        esac
    done < <(git-ckpt complete --for bash -- "${words[@]}" 2>/dev/null)
    COMPREPLY=("${found[@]}")
}
complete -F _git_ckpt git-ckpt
"""
ZSH = """\
#compdef git-ckpt
# Completion for `git ckpt` and for `git-ckpt`: put it into a directory of $fpath as _git-ckpt.
_git-ckpt() {
    local -a lines found shown suffix
    local line
    lines=("${(@f)$(git-ckpt complete --for zsh -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    for line in $lines; do
        case $line in
        :files) _files ;;
        :directories) _files -/ ;;
        :paths) suffix=(-S '') ;;
        *)
            [[ $line == *$'\\t'* ]] && suffix=(-l)  # a line for each description
            found+=("${line%%$'\\t'*}") shown+=("${line/$'\\t'/  -- }") ;;
        esac
    done
    (( $#found )) && compadd -V ckpt "${suffix[@]}" -d shown -a found
}
_git-ckpt "$@"
"""
FISH = """\
# Completion for `git ckpt` and for `git-ckpt`.
function __git_ckpt_complete
    set -l words (commandline -opc) (commandline -ct)
    set -l at (contains -i -- ckpt $words); or set at 1
    for line in (git-ckpt complete --for fish -- $words[(math $at + 1)..-1] 2>/dev/null)
        switch $line
            case :files
                __fish_complete_path (commandline -ct)
            case :directories
                __fish_complete_directories (commandline -ct)
            case :paths
            case '*'
                echo $line
        end
    end
end
complete -f -k -c git -n 'contains ckpt (commandline -opc)' -a '(__git_ckpt_complete)'
complete -f -k -c git-ckpt -a '(__git_ckpt_complete)'
"""
SCRIPTS = {"bash": BASH, "zsh": ZSH, "fish": FISH}


@options.declare_parameters("""
bash|zsh|fish  The shell that reads the script.
""")
def print_completion_script(shell: str) -> None:
    """Print a script with which a shell completes git ckpt commands.

    Evaluate the script in the start-up file of the shell.
    """
    hint = f"use one of {', '.join(SCRIPTS)}"
    options.refuse_if(shell not in SCRIPTS, f"there is no completion for the shell {shell!r}", hint)
    terminal.out_bytes(SCRIPTS[shell].encode())
