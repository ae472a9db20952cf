"""What a caller hands in, looked at before anything is done with it: an error names the argument, not a line of ours."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping

from gitckpt.model.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, TypeVar

    T = TypeVar("T")


# Names that people type and read: when two are the same, which one was meant, and the first few of many.


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


# What a caller hands in, looked at before anything is done with it: an error names the argument, not a line of ours.


_ASYNC = 0x80 | 0x100 | 0x200
"""Flags of code: CO_COROUTINE, CO_ITERABLE_COROUTINE, CO_ASYNC_GENERATOR, as `inspect` names them."""


def require(name: str, value: object, kind: type | tuple[type, ...], what: str) -> None:
    """Raises an error for an argument of another type.

    Args:
        name: of the argument.
        value: what was handed in.
        kind: what it may be.
        what: the same for people, with an article.

    Raises:
        UsageError: it is something else.
    """
    if not isinstance(value, kind):
        raise refused(name, value, what)


def require_text(name: str, value: object, *, may_be_none: bool = False) -> None:
    """Raises an error for an argument that is no string. Args and errors: as `require`."""
    if not (value is None and may_be_none):
        require(name, value, str, "a string")


def require_number(name: str, value: object, *, may_be_none: bool = False) -> None:
    """Raises an error for an argument that is no whole number from 0 on. Args and errors: as `require`."""
    if not (value is None and may_be_none):
        require(name, value, int, "a whole number")
        if isinstance(value, bool) or (isinstance(value, int) and value < 0):
            raise refused(name, value, "a whole number from 0 on")


def require_seconds(name: str, value: object) -> None:
    """Raises an error for an argument that is no length of time in seconds, whole or not, from 0 on. Args and errors: as `require`."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        raise refused(name, value, "a number of seconds from 0 on")


def strings(name: str, value: Iterable[str] | None) -> tuple[str, ...]:
    """Returns the strings that an argument holds; none where it is None.

    Raises:
        UsageError: it is no collection of strings; a string is one of letters, which nobody means.
    """
    if value is None:
        return ()
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise refused(name, value, "a list of strings")
    found = tuple(value)
    for at, each in enumerate(found):
        require_text(f"{name}[{at}]", each)
    return found


def instances(name: str, value: Iterable[T] | None, kind: type[T], what: str) -> tuple[T, ...]:
    """Returns what an argument holds, which must all be of one type; nothing where it is None.

    Args:
        name: of the argument.
        value: what was handed in.
        kind: what each of it must be.
        what: the same for people, with an article.

    Raises:
        UsageError: it is no collection, or holds something else.
    """
    if value is None:
        return ()
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise refused(name, value, f"a list, each of it {what}")
    found = tuple(value)
    for at, each in enumerate(found):
        require(f"{name}[{at}]", each, kind, what)
    return found


def require_callable(name: str, value: object, *, may_be_none: bool = False) -> None:
    """Raise an error for an argument that cannot be called, or would have to be awaited. Args and errors: as `require`."""
    if value is None and may_be_none:
        return
    if not callable(value):
        raise refused(name, value, "a function")
    if _is_async(value):
        raise must_not_be_async(name, value)


def must_not_be_async(name: str, value: object) -> UsageError:
    """Return the error for a function whose result would have to be awaited, which nobody does."""
    called = getattr(_unwrapped(value), "__name__", type(value).__name__).replace("<lambda>", "function")
    return UsageError(f"{name}: {called} is asynchronous, and is called without await: let another function call asyncio.run({called}(…))")


def _is_async(value: object) -> bool:
    """Tell whether a call returns a coroutine or an async generator, as far as that is known before. `inspect` takes 5 ms to import."""
    target = _unwrapped(value)
    for each in (target, *(vars(kind).get("__call__") for kind in type(target).__mro__)):
        function = getattr(each, "__func__", each)
        code = getattr(function, "__code__", None)
        if getattr(code, "co_flags", 0) & _ASYNC:
            return True
    return False


def _unwrapped(value: object) -> object:
    """Return what a `functools.partial` calls in the end."""
    while isinstance(value, functools.partial):
        value = value.func
    return value


def mapping(name: str, value: Mapping[str, Any] | None) -> dict[str, Any]:
    """Returns a copy of an argument that is a map; an empty one where it is None.

    Raises:
        UsageError: it is none.
    """
    if value is None:
        return {}
    require(name, value, Mapping, "a map of names to values")
    return dict(value)


def refused(name: str, value: object, what: str) -> UsageError:
    """Returns the error for an argument that is something else."""
    return UsageError(f"{name}: must be {what}, not {value!r:.60}")


def paths_of(paths: Iterable[T]) -> tuple[T, ...]:
    """Returns the paths of a call. One alone is refused: a string is a list of letters, which nobody means.

    Raises:
        UsageError: it is no list, or holds what is no path.
    """
    if isinstance(paths, str | bytes | Mapping) or hasattr(paths, "__fspath__") or not isinstance(paths, Iterable):
        raise refused("paths", paths, "a list of paths")
    found = tuple(paths)
    for at, each in enumerate(found):
        require_path(f"paths[{at}]", each)
    return found


def require_path(name: str, value: object, *, as_text: bool = False) -> None:
    """Raises an error for an argument that is no path.

    Args:
        name: of the argument.
        value: what was handed in.
        as_text: whether it may not be bytes.

    Raises:
        UsageError: it is something else, or holds a zero byte.
    """
    found = value.__fspath__() if hasattr(value, "__fspath__") else value
    if not isinstance(found, str if as_text else str | bytes):
        raise refused(name, value, "a path")
    if ("\0" if isinstance(found, str) else b"\0") in found:
        raise refused(name, value, "a path, which has no zero byte")
    if isinstance(found, str):
        try:
            found.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:
            raise refused(name, value, "a path, in which a surrogate stands for a byte, or none is") from None


def words(name: str, value: Iterable[str] | None) -> tuple[str, ...]:
    """Returns the strings that an argument holds, as a command line can. Errors: as `strings`, and of each as `require_path`."""
    found = strings(name, value)
    for at, each in enumerate(found):
        require_path(f"{name}[{at}]", each)
    return found


def require_storable(name: str, value: object) -> None:
    """Raises an error for an argument that is a string with lone surrogates, which no document holds. Args and errors: as `require`."""
    if isinstance(value, str) and not value.isascii() and any("\ud800" <= each <= "\udfff" for each in value):
        raise refused(name, value, "a string without lone surrogates")
