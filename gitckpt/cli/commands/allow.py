"""`git ckpt allow`."""

from __future__ import annotations

import os

from gitckpt.cli import options, terminal
from gitckpt.cli.opening import open_store


@options.usage("""
-n, --dry-run  Print what would be allowed; change nothing.
--forget  Withdraw what was allowed here; built-in values apply again.
--secret PATH|DIGEST  Declare that a file, or a text with this digest, is no secret.
--json  Print one JSON document.
""")
def allow(
    dry_run: bool = False, forget: bool = False, secret: str | None = None, as_json: bool = False
) -> None:
    """Approve settings in gitckpt.toml that weaken the defaults.

    Prints them. Without approval, a gitckpt.toml that comes with a branch can only be stricter. The
    approval counts in this clone, until a value changes. With --secret, gitckpt stops warning about
    a file or a text; git ckpt show prints both.
    """
    if secret is not None:
        _settle(secret, alone=not (dry_run or forget or as_json))
        return
    is_shown = dry_run or as_json
    options.refuse(forget and is_shown, "--forget shows nothing", "leave out the other option")
    with open_store() as store:
        if forget:
            is_changed = store.disallow()
            sentence = "built-in values apply again where gitckpt.toml weakens them"
            terminal.remark(sentence if is_changed else "nothing was allowed here")
            return
        loosening = store.loosened()
        if loosening is not None and not loosening.is_allowed and not dry_run:
            store.allow(loosening)
    values = loosening.values if loosening is not None else {}
    if as_json:
        is_allowed = loosening is None or loosening.is_allowed or not dry_run
        names = ("key", "value", "instead")
        rows = [dict(zip(names, (key, *pair), strict=True)) for key, pair in values.items()]
        terminal.out_json({"allowed": is_allowed, "loosened": rows})
        return
    for key, (value, instead) in values.items():
        terminal.out(f"{key}: {_difference(value, instead)}")
    if loosening is None:
        remark = "gitckpt.toml does not weaken the defaults"
    elif loosening.is_allowed:
        remark = "all of it was allowed before"
    elif dry_run:
        remark = "built-in values apply until you allow that: git ckpt allow"
    else:
        remark = "allowed in this clone until a value changes; to undo: git ckpt allow --forget"
    terminal.remark(remark)


def _difference(value: object, instead: object) -> str:
    # In full: the person who allows it has to see all.
    if not isinstance(value, list) or not isinstance(instead, list):
        return f"{value}, not {instead}"
    more = ", ".join(pattern for pattern in value if pattern not in instead)
    less = ", ".join(pattern for pattern in instead if pattern not in value)
    return "; ".join([*([f"with {more}"] if more else []), *([f"without {less}"] if less else [])])


def _settle(secret: str, *, alone: bool) -> None:
    options.refuse(not alone, "--secret settles that alone", "leave out the other option")
    from gitckpt.store.secrets import is_digest  # no other option needs it

    with open_store() as store:
        path = os.path.join(store.worktree or "", secret)
        hint = "name a path from the top of the worktree, or a digest: git ckpt show ID"
        is_missing = not is_digest(secret) and not os.path.lexists(path)
        options.refuse(is_missing, f"there is no file {secret!r}", hint)
        is_new = store.settle(secret)
    now = "is no suspect on this machine now" if is_new else "was no suspect before"
    terminal.remark(f"{secret} {now}")
