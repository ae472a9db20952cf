"""Group the commands in the help, show examples, and know names from other tools."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container

# Each command is in one group.
GROUPS = {
    "Start": "init demo completion help uninit",
    "Everyday": "save log list show diff ls grep why restore undo redo bisect tag pin unpin note",
    "Runs and agents": "run loop review start finish runs status resume cancel step"
    " agent turns guard watch rescue report",
    "Housekeeping": "expire remove du verify doctor notes allow import export hook",
}

# Without `$ git ckpt`.
EXAMPLES = {
    "init": ("init",),
    "demo": ("demo --dir /tmp/demo",),
    "completion": ("completion bash > ~/.local/share/bash-completion/completions/git-ckpt",),
    "uninit": ("uninit",),
    "save": ("save 'before the refactoring'", "save --phase plan-complete --state plan.json"),
    "log": ("log -p", "log --since 2h -- src"),
    "list": ("list --since 2h", "list --run add-login --all"),
    "show": ("show", "show 5f0c2c1e --state"),
    "diff": ("diff latest", "diff 5f0c2c1e 8d21a0b4 -- src"),
    "ls": ("ls latest src",),
    "grep": ("grep 'def login'",),
    "why": ("why src/app.py",),
    "restore": ("restore latest", "restore 5f0c2c1e -- src/app.py"),
    "undo": ("undo", "undo --list"),
    "redo": ("redo",),
    "bisect": ("bisect -- make test",),
    "tag": ("tag latest works",),
    "pin": ("pin latest",),
    "unpin": ("unpin latest",),
    "note": ("note latest 'the last good one'",),
    "run": ("run plan-to-pr -i plan=plan.md", "run plan.md --dry-run"),
    "loop": ("loop plan.md --agent claude --until-tests-pass",),
    "review": ("review 'add a login page' --coder claude --reviewer codex",),
    "start": ('start add-login    # cd "$(git ckpt start add-login)" goes there',),
    "finish": ("finish", "finish add-login"),
    "runs": ("runs", "runs --status failed"),
    "status": ("status", "status add-login --watch"),
    "resume": ("resume", "resume add-login --from build"),
    "cancel": ("cancel add-login",),
    "step": ("step start PLAN --track add-login", "step pass PLAN --track add-login"),
    "agent": ("agent install", "agent status"),
    "turns": ("turns", "diff 3fa9c1:3    # what turn 3 of that session changed"),
    "guard": ("guard -- git clean -fdx",),
    "watch": ("watch -- aider", "watch --every 30s"),
    "rescue": ("rescue", "rescue add-login --into ../add-login"),
    "report": ("report add-login -o report.html",),
    "expire": ("expire --dry-run", "expire --older-than 30d --keep-last 100"),
    "remove": ("remove 5f0c2c1e", "remove add-login"),
    "du": ("du --runs",),
    "verify": ("verify", "verify --repair"),
    "doctor": ("doctor",),
    "notes": ("notes",),
    "allow": ("allow --dry-run", "allow"),
    "import": ("import .rlm --dry-run",),
    "export": ("export add-login --format rlm-act -o out",),
    "hook": ("hook post-commit",),
}

# What `git ckpt help addresses` prints, the table of docs/addresses.md in short.
ADDRESSES = {
    "latest": "the newest checkpoint of this worktree, or of its run",
    "latest:any": "the newest of all worktrees",
    "latest~N": "N checkpoints before latest",
    "@{AGE}": "the newest here that is at least so old: @{20m}, @{2 hours ago}",
    "@{TIME}": "the newest here at or before that: @{11:40}, @{yesterday 18:00}",
    "an id": "the beginning of an id, four or more characters",
    "a tag": "the checkpoint of that tag: git ckpt tag",
    "a run": "its newest checkpoint; a unique part of its name suffices",
    "a session": "the same for the session of an agent",
    "RUN~N": "N checkpoints before the newest of a run",
    "RUN:PHASE": "the newest checkpoint of that phase",
    "SESSION:TURN": "the end of a turn of an agent",
    "a revision": "the newest checkpoint linked to that commit: HEAD~2",
    "ADDRESS:PATH": "a file in a checkpoint, where a command takes files",
}
SOME_ADDRESSES = "latest~3, @{20m}, RUN:PHASE, a tag, HEAD and more: git ckpt help addresses"

# Names that people know from other tools, or expect.
SYNONYMS = {
    **dict.fromkeys(("create", "commit", "stash", "snapshot", "checkpoint"), "save"),
    **dict.fromkeys(("recover", "rollback", "reset", "apply"), "restore"),
    **dict.fromkeys(("rm", "delete", "drop"), "remove"),
    **dict.fromkeys(("gc", "prune", "clean"), "expire"),
    **dict.fromkeys(("checkout", "switch", "continue"), "resume"),
    **dict.fromkeys(("revert",), "undo"),
    **dict.fromkeys(("fsck",), "verify"),
    **dict.fromkeys(("blame",), "why"),
    **dict.fromkeys(("stop",), "cancel"),
    **dict.fromkeys(("history",), "log"),
    **dict.fromkeys(("log", "ls"), "list"),
    **dict.fromkeys(("version",), "--version"),
}


def find_synonym(name: str, commands: Container[str]) -> str:
    """Return the command for another tool's name, or else the name itself."""
    while name in SYNONYMS and name not in commands:
        name = SYNONYMS[name]
    return name
