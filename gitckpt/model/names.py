"""Names that people type and read: when two are the same, which one was meant, and the first few of many."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def folded(name: str) -> str:
    """Returns a name as names are compared: without case, and with spaces for hyphens and underscores."""
    return name.casefold().replace("-", " ").replace("_", " ").strip()


def closest(text: str, known: Iterable[str], *, likeness: float = 0.6) -> str | None:
    """Returns the one of several words that a mistyped one most resembles, None where it resembles none.

    Args:
        text: what was typed.
        known: the words.
        likeness: how much of the two must be the same, from 0 to 1.
    """
    import difflib

    found = difflib.get_close_matches(text, list(known), n=1, cutoff=likeness)
    return found[0] if found else None


def first_of(names: Sequence[str], limit: int = 5) -> str:
    """Returns names on one line: the first `limit`, and how many more there are."""
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more


def quoted(path: bytes) -> str:
    """Returns a path as text, C-quoted as git does it where it is not UTF-8."""
    try:
        return path.decode("utf-8")
    except UnicodeDecodeError:
        return '"' + "".join(chr(byte) if 32 <= byte < 127 and byte not in b'"\\' else f"\\{byte:03o}" for byte in path) + '"'


def shell_word(word: str) -> str:
    r"""Return a word that any POSIX shell reads back, and that a terminal shows as it is.

    Never `$'…'`: where a shell does not know it, as dash, `\'` ends the quotes, and the rest of
    a branch's name is executed. A word with control characters is one that printf writes, by octal
    numbers. The shell cuts line breaks off its end: such a word is shown, and not to be pasted.
    """
    if word.isprintable() or word.endswith("\n"):
        import shlex

        return shlex.quote(word)
    return f"\"$(printf '{''.join(map(_octal, word))}')\""


def _octal(character: str) -> str:
    # An interactive bash looks for `!` even here.
    if character.isprintable() and character not in "'\\%!":
        return character
    return "".join(f"\\{byte:03o}" for byte in character.encode("utf-8", "surrogateescape"))
