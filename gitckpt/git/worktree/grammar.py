"""What the files of an operation in progress may be called and hold, so that git goes on with data and never with a program's name.

git trusts these files, as it has written them: `rebase-merge/strategy` names a program (`git-merge-<strategy>`), `sequencer/opts` is a file
of settings, a todo list may hold commands, `refs-to-delete` refs. A snapshot may have been fetched; whatever git would not have written by
itself stays out. After git's own readers: sequencer.c, builtin/rebase.c, builtin/am.c, builtin/bisect.c, rerere.c.
"""

from __future__ import annotations

import re

from gitckpt.git.repository import PSEUDO_REFS
from gitckpt.git.worktree.operation import INSTRUCTIONS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

_BACKUP = f"{INSTRUCTIONS}.backup"

_OID = rb"[0-9a-f]{40}(?:[0-9a-f]{24})?"
_QUOTED = rb"'(?:[^'\0]|'\\''|'\\!')*'"
_STRATEGY = rb"'?(?:ort|recursive|resolve|octopus|ours|subtree)?'?"
_KEY = rb"-S(?:[A-Za-z0-9@._+<>][A-Za-z0-9@._+<> -]*)?"
_MERGING = rb"""(?:
    ours|theirs|ignore-space-change|ignore-all-space|ignore-space-at-eol|ignore-cr-at-eol|renormalize|no-renormalize|no-renames
    |patience|histogram|minimal|diff-algorithm=(?:patience|histogram|minimal|myers)
    |find-renames(?:=[0-9]{1,3}%?)?|rename-threshold=[0-9]{1,3}%?|subtree(?:=[^'\s]+)?
)"""
"""Options of the strategies that git ships (git-merge(1))."""

_APPLYING = (
    rb"(?:-[Cp][0-9]{1,4}|--whitespace=[a-z-]+|--ignore-space-change|--ignore-whitespace|--reject|--(?:directory|exclude|include)=[^'\0]*)"
)
"""Options of `git apply` that `git am` passes on (git-am(1)); `--unsafe-paths` is none."""

_PLAIN_PATH = rb"(?!/)(?!(?:[^\0]*/)?(?:\.\.|\.[gG][iI][tT])(?:/|\0))[^\0]+"


def _whole(pattern: bytes) -> re.Pattern[bytes]:
    return re.compile(rb"(?:" + pattern + rb")", re.VERBOSE)


_ANYTHING = re.compile(rb"[\s\S]*")
_COUNT = _whole(rb"[0-9]{1,9}\n?")
_WORD = _whole(rb"[a-z0-9_-]{0,20}\n?")
_ONE = _whole(_OID + rb"\n?")
_OIDS = _whole(rb"(?:" + _OID + rb"(?:\ " + _OID + rb")?\n?)*")
_HEAD_NAME = _whole(rb"(?:refs/heads/(?![-.])[^\x00-\x20~^:?*\[\\\x7f]+|detached\ HEAD)\n?")
_AUTHOR = _whole(rb"(?:GIT_AUTHOR_(?:NAME|EMAIL|DATE)=" + _QUOTED + rb"\n)*")

_OF_REBASES = {
    "head-name": _HEAD_NAME,
    "author-script": _AUTHOR,
    "strategy": _whole(_STRATEGY + rb"\n?"),
    "strategy_opts": _whole(rb"(?:\ ?'?(?:--)?" + _MERGING + rb"'?)*\n?"),
    "gpg_sign_opt": _whole(rb"'?(?:" + _KEY + rb")?'?\n?"),
    "allow_rerere_autoupdate": _whole(rb"(?:--(?:no-)?rerere-autoupdate)?\n?"),
    **dict.fromkeys(("onto", "orig-head", "autostash"), _ONE),
    **dict.fromkeys(("quiet", "verbose", "signoff"), _WORD),
    **dict.fromkeys(("reschedule-failed-exec", "no-reschedule-failed-exec"), _WORD),
    **dict.fromkeys(("patch", "rebased-patches"), _ANYTHING),
}
"""What both kinds of rebase have."""

_RULES: Mapping[str, re.Pattern[bytes]] = {
    "MERGE_HEAD": _whole(rb"(?:" + _OID + rb"\n)+"),
    "MERGE_MODE": _whole(rb"(?:no-ff)?\n?"),
    "MERGE_RR": _whole(rb"(?:" + _OID + rb"(?:\.[0-9]{1,4})?\t" + _PLAIN_PATH + rb"\0)*"),
    "BISECT_ANCESTORS_OK": _OIDS,
    "BISECT_FIRST_PARENT": _WORD,
    "BISECT_LOG": _whole(rb"(?:(?:\#|git\ bisect\ )[^\n\0]*\n)*"),
    "BISECT_NAMES": _whole(rb"(?:\ ?" + _QUOTED + rb")*\n?"),
    "BISECT_START": _whole(rb"(?![-.])[^\x00-\x20~^:?*\[\\\x7f]+\n?"),
    "BISECT_TERMS": _whole(rb"(?:[A-Za-z0-9][A-Za-z0-9._-]*\n){2}"),
    **dict.fromkeys(("MERGE_MSG", "SQUASH_MSG"), _ANYTHING),
    **{f"rebase-merge/{name}": rule for name, rule in _OF_REBASES.items()},
    **{f"rebase-apply/{name}": rule for name, rule in _OF_REBASES.items()},
    **dict.fromkeys((f"rebase-merge/{name}" for name in ("msgnum", "end")), _COUNT),
    **dict.fromkeys((f"rebase-merge/{name}" for name in ("amend", "stopped-sha", "squash-onto")), _whole(rb"[0-9a-f]{4,64}\n?")),
    **dict.fromkeys((f"rebase-merge/{name}" for name in ("rewritten-list", "rewritten-pending")), _OIDS),
    **dict.fromkeys((f"rebase-merge/{name}" for name in ("message", "message-squash", "message-fixup")), _ANYTHING),
    **dict.fromkeys((f"rebase-merge/{name}" for name in ("interactive", "drop_redundant_commits", "keep_redundant_commits")), _WORD),
    **dict.fromkeys((f"rebase-merge/{name}" for name in ("cdate_is_adate", "ignore_date")), _WORD),
    "rebase-merge/current-fixups": _whole(rb"(?:(?:fixup|squash)\ [0-9a-f]{4,64}\n?)*"),
    "rebase-merge/refs-to-delete": _whole(rb"(?:refs/rewritten/[^\x00-\x20~^:?*\[\\\x7f]+\n)*"),
    **dict.fromkeys((f"rebase-apply/{name}" for name in ("next", "last")), _COUNT),
    **dict.fromkeys((f"rebase-apply/{name}" for name in ("abort-safety", "original-commit", "amend")), _whole(rb"(?:" + _OID + rb")?\n?")),
    **dict.fromkeys((f"rebase-apply/{name}" for name in ("applying", "rebasing", "keep", "messageid", "scissors", "sign", "utf8")), _WORD),
    **dict.fromkeys((f"rebase-apply/{name}" for name in ("threeway", "quoted-cr", "no-inbody-headers", "dirtyindex")), _WORD),
    **dict.fromkeys((f"rebase-apply/{name}" for name in ("final-commit", "msg", "msg-clean", "info")), _ANYTHING),
    "rebase-apply/apply-opt": _whole(rb"(?:\ ?'?" + _APPLYING + rb"'?)*\n?"),
    "rebase-apply/rewritten": _OIDS,
    "sequencer/head": _ONE,
    "sequencer/abort-safety": _whole(rb"(?:" + _OID + rb")?\n?"),
}
"""Name → what the whole content matches."""

_PATCH = re.compile(r"rebase-apply/[0-9]{4,9}")

_FLAG = rb"""(?:
    no-commit|edit|allow-empty|allow-empty-message|drop-redundant-commits|keep-redundant-commits|signoff|record-origin|allow-ff
    |allow-rerere-auto
)"""
_OPTION = _whole(
    rb"\[options\]|[\t\ ]*(?:" + _FLAG + rb"\ =\ (?:true|false)|mainline\ =\ [0-9]{1,4}|strategy\ =\ " + _STRATEGY
    + rb"|strategy-option\ =\ " + _MERGING + rb"|gpg-sign\ =\s*|default-msg-cleanup\ =\ [a-z]+)"
)  # fmt: skip
"""A line of `sequencer/opts`."""

_COMMIT_LINE = rb"(?:p|pick|r|reword|e|edit|s|squash|f|fixup|d|drop|revert)\ .*"
_INSTRUCTION_LINE = _whole(
    rb"\s*(?:[^\w\s].*)?|\s*(?:" + _COMMIT_LINE
    + rb"|(?:b|break|noop)\s*|(?:l|label|t|reset|m|merge)\ .*|(?:u|update-ref)\ refs/heads/.*)"
)  # fmt: skip
_COMMAND_LINE = re.compile(rb"\s*(?:x|exec)\s+(.*)")
_SIGNING = "/gpg_sign_opt"
_SIGNING_LINE = re.compile(rb"\s*(gpg-sign = .+)")
_PICKING_LINE = _whole(rb"\s*(?:[^\w\s].*)?|\s*(?:p|pick|revert)\ .*")


def permitted(files: Mapping[str, bytes], *, commands: bool) -> tuple[dict[str, bytes], tuple[str, ...]]:
    """Returns of the files of an operation what git may go on with.

    Args:
        files: content by name, as a snapshot has them.
        commands: whether todo lists may run commands.

    Returns:
        The files, some with fewer lines, and what was left out, told in a few words each.
    """
    found: dict[str, bytes] = {}
    left_out: list[str] = []
    for name, content in files.items():
        lines = _LINES.get(name)
        if lines is not None:
            found[name] = _kept(name, content, lines, commands, left_out)
        elif name in PSEUDO_REFS or name.startswith("refs/") or _PATCH.fullmatch(name):
            found[name] = content  # refs are looked at where they are written
        elif name not in _RULES:
            left_out.append(f"{_shown(name)}, which git does not write")
        elif name.endswith(_SIGNING) and content.strip(b"'\n") and not commands:
            left_out.append("the command to sign what is committed")  # with the key of whoever goes on
        elif _RULES[name].fullmatch(content):
            found[name] = content
        else:
            left_out.append(f"{name}, which holds {_shown(content)}")
    return found, tuple(left_out)


def commands_in(files: Mapping[str, bytes]) -> list[str]:
    """Returns the shell commands that a rebase would run when it goes on.

    Args:
        files: content by name.
    """
    found = (_COMMAND_LINE.fullmatch(line) for line in files.get(INSTRUCTIONS, b"").splitlines())
    return [line[1].decode("utf-8", "replace") for line in found if line is not None and line[1].strip()]


def _kept(name: str, content: bytes, allowed: re.Pattern[bytes], commands: bool, left_out: list[str]) -> bytes:
    """Returns a content without the lines that git would not have written there."""
    kept = []
    for line in content.splitlines(keepends=True):
        text = line.rstrip(b"\r\n")
        command = (
            _COMMAND_LINE.fullmatch(text) if allowed is _INSTRUCTION_LINE else _SIGNING_LINE.fullmatch(text) if allowed is _OPTION else None
        )
        if allowed.fullmatch(text) or (command is not None and commands and _may_sign(text)):
            kept.append(line)
        elif command is None:
            left_out.append(f"a line of {name}: {_shown(text)}")
        elif name in (INSTRUCTIONS, "sequencer/opts"):
            left_out.append(f"the command {_shown(command[1])}")
    return b"".join(kept)


def _may_sign(line: bytes) -> bool:
    """Tells whether a line names nothing but a key, where it is about signing."""
    return not _SIGNING_LINE.fullmatch(line) or _KEY_LINE.fullmatch(line) is not None


def _shown(said: bytes | str) -> str:
    text = said.decode("utf-8", "replace") if isinstance(said, bytes) else said
    line = " ".join(text.split())
    return repr(line if len(line) <= _LONGEST else f"{line[:_LONGEST]}…")


_LONGEST = 60
_KEY_LINE = re.compile(rb"\s*gpg-sign = [A-Za-z0-9@._+<>][A-Za-z0-9@._+<> -]*")
_LINES = {
    INSTRUCTIONS: _INSTRUCTION_LINE,
    _BACKUP: _INSTRUCTION_LINE,
    "rebase-merge/done": _INSTRUCTION_LINE,
    "sequencer/todo": _PICKING_LINE,
    "sequencer/opts": _OPTION,
}
"""Name → what each line of it matches."""
