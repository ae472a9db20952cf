"""Make and check ids of checkpoints (UUID 4) and runs (`YYYYMMDD-HHMMSS-<slug>`).

The hook imports this module, which therefore imports neither `uuid` nor `re`.
"""

from __future__ import annotations

import os

from gitckpt.model.errors import NotFoundError, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

_HEX = frozenset("0123456789abcdef")
_HYPHENS = (8, 13, 18, 23)
_SLUG = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-")
SHORT = 8  # characters of an id that are shown to people
MIN_PREFIX = 4  # characters of the shortest prefix of an id that is looked up
_MAX_RUN_ID = 200  # a file name has at most 255 bytes, and git appends ".lock"


def id_from_commit(oid: str) -> str:
    # As `hooks/hook.sh` does: two hooks that record one commit thus make one checkpoint.
    return f"{oid[:8]}-{oid[8:12]}-4{oid[13:16]}-8{oid[17:20]}-{oid[20:32]}"


def make_checkpoint_id() -> str:
    # RFC 9562, section 5.4
    random_bytes = bytearray(os.urandom(16))
    random_bytes[6] = random_bytes[6] & 0x0F | 0x40
    random_bytes[8] = random_bytes[8] & 0x3F | 0x80
    return id_from_bytes(bytes(random_bytes))


def is_checkpoint_id(text: str) -> bool:
    return (
        len(text) == 36
        and text.count("-") == 4
        and text[8] == text[13] == text[18] == text[23] == "-"
        and text[14] == "4"
        and text[19] in "89ab"
        and _HEX.issuperset(text.replace("-", ""))
    )


def id_to_bytes(id_: str) -> bytes:
    return bytes.fromhex(id_.replace("-", ""))


def id_from_bytes(data: bytes) -> str:
    text = data.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def is_checkpoint_id_prefix(text: str) -> bool:
    if not MIN_PREFIX <= len(text) <= 36:
        return False
    is_hex = all(c == "-" if i in _HYPHENS else c in _HEX for i, c in enumerate(text))
    return is_hex and text[14:15] in ("", "4") and text[19:20] in "89ab"


def is_oid(text: str) -> bool:
    return len(text) in (40, 64) and _HEX.issuperset(text)


def make_slug(name: str) -> str:
    """Return a name as lowercase words joined by "-"; "run" if it has no words."""
    words = "".join(c if c.isascii() and c.isalnum() else " " for c in name.lower()).split()
    return "-".join(words)[:50].rstrip("-") or "run"


def make_run_id(stamp: str, name: str, attempt: int = 1) -> str:
    first_id = f"{stamp}-{make_slug(name)}"
    return first_id if attempt == 1 else f"{first_id}-{attempt}"


def is_run_id(text: str) -> bool:
    return (
        16 < len(text) <= _MAX_RUN_ID
        and (text[:8] + text[9:15]).isdigit()
        and text[8] == text[15] == "-"
        and _SLUG.issuperset(text)
        and not text.endswith("-")
        and "--" not in text
    )


def short_run_names(names: Iterable[str]) -> dict[str, str]:
    """Map each run id to the shortest of its ends that no other of `names` has.

    Leaves out the date and time, or else the date; an ambiguous id stays whole.
    """
    run_ids = list(dict.fromkeys(names))
    ends = {name: [name[16:], name[9:], name] if is_run_id(name) else [name] for name in run_ids}
    counts: dict[str, int] = {}
    for end in (end for candidates in ends.values() for end in candidates):
        counts[end] = counts.get(end, 0) + 1
    return {
        name: next((end for end in candidates if counts[end] == 1), name)
        for name, candidates in ends.items()
    }


def require_checkpoint_id(text: str) -> None:
    if not is_checkpoint_id(text):
        problem = f"{text[:60]!r} is not the full id of a checkpoint"
        raise NotFoundError(problem, hint=f"store.find({text[:60]!r}) returns the full id")


def require_run_id(text: str) -> str:
    if not isinstance(text, str) or not is_run_id(text):
        hint = "a run id looks like 20261121-201500-add-login; store.find_run(TEXT) returns one"
        raise UsageError(f"{text!r} is not a run id", hint=hint)
    return text


def require_oid_or_unborn(text: str) -> str:
    if not isinstance(text, str) or not (is_oid(text) or text == ""):
        problem = f"{text!r:.60} is not the full oid of a commit"
        raise UsageError(problem, hint="print the full oid: git rev-parse REV")
    return text
