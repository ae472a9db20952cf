"""What agents and commands say, as text that a state can hold and a prompt can quote. Pure."""

from __future__ import annotations

CUT = "... [truncated]"
"""What stands where a text was cut off."""

LONGEST = 100_000
"""How much of an answer or of an output a state keeps, in characters."""

_SPACE = "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
"""White space as Unicode has it. Python's own `strip` takes four control characters more, which would change the ids of findings."""


def trimmed(text: str) -> str:
    """Returns a text without white space at its ends."""
    return text.strip(_SPACE)


def cut(text: str, limit: int) -> str:
    """Returns the beginning of a text that is too long, followed by `CUT`.

    Args:
        text: the text.
        limit: how many characters may stay. A character is never split, as it would be where bytes are counted.
    """
    return text if len(text) <= limit else text[:limit] + CUT


def ending(text: str, limit: int) -> str:
    """Returns the end of a text that is too long, preceded by `CUT`. Args: as `cut`."""
    return text if len(text) <= limit else f"{CUT}\n{text[-limit:]}"


def storable(text: str) -> str:
    """Returns a text without what UTF-8 cannot encode: lone surrogates become U+FFFD."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def first_line(text: str, limit: int) -> str:
    """Returns the first line of a text, for a subject or a message.

    Args:
        text: the text.
        limit: how many characters of it.
    """
    return trimmed(trimmed(storable(text)).replace("\0", "").partition("\n")[0])[:limit]
