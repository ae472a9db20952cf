"""Check arguments before they are used; an error names the argument."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping

from gitckpt.model.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, TypeVar

    T = TypeVar("T")


# Names that people type and read.


def folded(name: str) -> str:
    return name.casefold().replace("-", " ").replace("_", " ").strip()


def closest(text: str, known: Iterable[str], *, likeness: float = 0.6) -> str | None:
    """Return the word that a mistyped one resembles most; None without any."""
    import difflib

    matches = difflib.get_close_matches(text, list(known), n=1, cutoff=likeness)
    return matches[0] if matches else None


def first_of(names: Sequence[str], limit: int = 5) -> str:
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more


def quoted(path: bytes) -> str:
    """Return a path as text, C-quoted like git's output where it is not UTF-8."""
    try:
        return path.decode("utf-8")
    except UnicodeDecodeError:
        return '"' + "".join(chr(byte) if 32 <= byte < 127 and byte not in b'"\\' else f"\\{byte:03o}" for byte in path) + '"'


def shell_word(word: str) -> str:
    r"""Quote a word for any POSIX shell, so that a terminal shows it as it is.

    Not by `$'…'`: dash does not know it and takes `\'` for the end of the quotes, so that it
    executes the rest of a branch's name. Control characters are printed by printf, in octal. The
    shell cuts line breaks off the end of that, so such a word is only good for display.
    """
    if word.isprintable() or word.endswith("\n"):
        import shlex

        return shlex.quote(word)
    return f"\"$(printf '{''.join(map(_octal, word))}')\""


def _octal(character: str) -> str:
    # An interactive bash expands `!` even here.
    if character.isprintable() and character not in "'\\%!":
        return character
    return "".join(f"\\{byte:03o}" for byte in character.encode("utf-8", "surrogateescape"))


# Checks of arguments.

# CO_COROUTINE, CO_ITERABLE_COROUTINE, CO_ASYNC_GENERATOR: importing `inspect` takes 5 ms.
_ASYNC = 0x80 | 0x100 | 0x200


def require(name: str, value: object, kind: type | tuple[type, ...], what: str) -> None:
    if not isinstance(value, kind):
        raise refused(name, value, what)


def require_text(name: str, value: object, *, may_be_none: bool = False) -> None:
    if not (value is None and may_be_none):
        require(name, value, str, "a string")


def require_number(name: str, value: object, *, may_be_none: bool = False) -> None:
    if not (value is None and may_be_none):
        require(name, value, int, "a whole number")
        if isinstance(value, bool) or (isinstance(value, int) and value < 0):
            raise refused(name, value, "a whole number from 0 on")


def require_seconds(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        raise refused(name, value, "a number of seconds from 0 on")


def strings(name: str, value: Iterable[str] | None) -> tuple[str, ...]:
    """Return the strings of an argument; none for None. A single string is refused."""
    if value is None:
        return ()
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise refused(name, value, "a list of strings")
    values = tuple(value)
    for index, text in enumerate(values):
        require_text(f"{name}[{index}]", text)
    return values


def instances(name: str, value: Iterable[T] | None, kind: type[T], what: str) -> tuple[T, ...]:
    if value is None:
        return ()
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise refused(name, value, f"a list, each of it {what}")
    values = tuple(value)
    for index, each in enumerate(values):
        require(f"{name}[{index}]", each, kind, what)
    return values


def require_callable(name: str, value: object, *, may_be_none: bool = False) -> None:
    if value is None and may_be_none:
        return
    if not callable(value):
        raise refused(name, value, "a function")
    if _is_async(value):
        raise must_not_be_async(name, value)


def must_not_be_async(name: str, value: object) -> UsageError:
    called = getattr(_unwrapped(value), "__name__", type(value).__name__).replace("<lambda>", "function")
    return UsageError(f"{name}: {called} is asynchronous, and is called without await: let another function call asyncio.run({called}(…))")


def _is_async(value: object) -> bool:
    target = _unwrapped(value)  # what a `functools.partial` calls
    for each in (target, *(vars(kind).get("__call__") for kind in type(target).__mro__)):
        function = getattr(each, "__func__", each)
        code = getattr(function, "__code__", None)
        if getattr(code, "co_flags", 0) & _ASYNC:
            return True
    return False


def _unwrapped(value: object) -> object:
    while isinstance(value, functools.partial):
        value = value.func
    return value


def mapping(name: str, value: Mapping[str, Any] | None) -> dict[str, Any]:
    if value is None:
        return {}
    require(name, value, Mapping, "a map of names to values")
    return dict(value)


def refused(name: str, value: object, what: str) -> UsageError:
    return UsageError(f"{name}: must be {what}, not {value!r:.60}")


def paths_of(paths: Iterable[T]) -> tuple[T, ...]:
    """Return the paths of a call. A single path is refused."""
    if isinstance(paths, str | bytes | Mapping) or hasattr(paths, "__fspath__") or not isinstance(paths, Iterable):
        raise refused("paths", paths, "a list of paths")
    checked = tuple(paths)
    for index, path in enumerate(checked):
        require_path(f"paths[{index}]", path)
    return checked


def require_path(name: str, value: object, *, as_text: bool = False) -> None:
    path = value.__fspath__() if hasattr(value, "__fspath__") else value
    if not isinstance(path, str if as_text else str | bytes):
        raise refused(name, value, "a path")
    if ("\0" if isinstance(path, str) else b"\0") in path:
        raise refused(name, value, "a path, which has no zero byte")
    if isinstance(path, str):
        try:
            path.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:
            raise refused(name, value, "a path, in which a surrogate stands for a byte, or none is") from None


def words(name: str, value: Iterable[str] | None) -> tuple[str, ...]:
    values = strings(name, value)
    for index, text in enumerate(values):
        require_path(f"{name}[{index}]", text)
    return values


def require_storable(name: str, value: object) -> None:
    """Raise `UsageError` for a string with lone surrogates: TOML cannot hold it."""
    if isinstance(value, str) and not value.isascii() and any("\ud800" <= each <= "\udfff" for each in value):
        raise refused(name, value, "a string without lone surrogates")
