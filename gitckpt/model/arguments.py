"""Check arguments that callers of the Python API pass; errors name the argument."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping

from gitckpt.model.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, TypeVar

    T = TypeVar("T")


# Names that people type and read.


def normalize_name(name: str) -> str:
    return name.casefold().replace("-", " ").replace("_", " ").strip()


def closest_word(text: str, words: Iterable[str], *, likeness: float = 0.6) -> str | None:
    import difflib

    return next(iter(difflib.get_close_matches(text, list(words), n=1, cutoff=likeness)), None)


def join_first(names: Sequence[str], limit: int = 5) -> str:
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more


def quote_path(path: bytes) -> str:
    """Decode a path; a path that is not UTF-8 is C-quoted as in git's output."""
    try:
        return path.decode("utf-8")
    except UnicodeDecodeError:
        printable = {byte: chr(byte) for byte in range(32, 127) if byte not in b'"\\'}
        return '"' + "".join(printable.get(byte, f"\\{byte:03o}") for byte in path) + '"'


def shell_quoted(text: str) -> str:
    r"""Quote a word for any POSIX shell, with its control characters in octal.

    `$'…'` is not used: dash does not know this syntax, takes `\'` for the end of the quotes, and
    would execute the rest of a branch's name. So `$(printf …)` prints control characters. It drops
    line breaks at the end, so a word that ends with a line break is quoted plainly.
    """
    if text.isprintable() or text.endswith("\n"):
        import shlex

        return shlex.quote(text)

    def escape_octal(character: str) -> str:
        # An interactive bash expands `!` even here.
        if character.isprintable() and character not in "'\\%!":
            return character
        return "".join(f"\\{byte:03o}" for byte in character.encode("utf-8", "surrogateescape"))

    return f"\"$(printf '{''.join(map(escape_octal, text))}')\""


# Checks of arguments.

# CO_COROUTINE, CO_ITERABLE_COROUTINE, CO_ASYNC_GENERATOR: importing `inspect` takes 5 ms.
_ASYNC = 0x80 | 0x100 | 0x200


def require_type(name: str, value: object, kind: type | tuple[type, ...], expected: str) -> None:
    if not isinstance(value, kind):
        raise wrong_value_error(name, value, expected)


def require_text(name: str, value: object, *, may_be_none: bool = False) -> None:
    if not (value is None and may_be_none):
        require_type(name, value, str, "a string")


def require_number(name: str, value: object, *, may_be_none: bool = False) -> None:
    if not (value is None and may_be_none):
        require_type(name, value, int, "a whole number")
        if isinstance(value, bool) or (isinstance(value, int) and value < 0):
            raise wrong_value_error(name, value, "a whole number from 0 on")


def require_seconds(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        raise wrong_value_error(name, value, "a number of seconds from 0 on")


def as_strings(name: str, value: Iterable[str] | None) -> tuple[str, ...]:
    return _to_tuple(name, value, "a list of strings", require_text)


def as_tuple(name: str, value: Iterable[T] | None, kind: type[T], expected: str) -> tuple[T, ...]:
    require_kind = functools.partial(require_type, kind=kind, expected=expected)
    return _to_tuple(name, value, f"a list with each item {expected}", require_kind)


def _to_tuple(
    name: str, value: Iterable[T] | None, expected: str, check: Callable[[str, T], None]
) -> tuple[T, ...]:
    is_single = isinstance(value, str | bytes | Mapping) or hasattr(value, "__fspath__")
    if is_single or not isinstance(value, Iterable | None):
        raise wrong_value_error(name, value, expected)
    items = tuple(value or ())
    for index, item in enumerate(items):
        check(f"{name}[{index}]", item)
    return items


def require_callable(name: str, value: object, *, may_be_none: bool = False) -> None:
    if value is None and may_be_none:
        return
    if not callable(value):
        raise wrong_value_error(name, value, "a function")
    if _is_async(value):
        raise async_error(name, value)


def async_error(name: str, value: object) -> UsageError:
    function = getattr(_unwrap_partial(value), "__name__", type(value).__name__)
    function = function.replace("<lambda>", "function")
    advice = f"let another function call asyncio.run({function}(…))"
    problem = f"{function} is asynchronous, but gitckpt calls {function} without await"
    return UsageError(f"{name}: {problem}: {advice}")


def _is_async(value: object) -> bool:
    target = _unwrap_partial(value)
    call_methods = (vars(kind).get("__call__") for kind in type(target).__mro__)
    functions = (getattr(function, "__func__", function) for function in (target, *call_methods))
    code_objects = (getattr(function, "__code__", None) for function in functions)
    return any(getattr(code, "co_flags", 0) & _ASYNC for code in code_objects)


def _unwrap_partial(value: object) -> object:
    while isinstance(value, functools.partial):
        value = value.func
    return value


def as_mapping(name: str, value: Mapping[str, Any] | None) -> dict[str, Any]:
    require_type(name, value, (Mapping, type(None)), "a map of names to values")
    return dict(value or {})


def wrong_value_error(name: str, value: object, expected: str) -> UsageError:
    return UsageError(f"{name}: must be {expected}, not {value!r:.60}")


def as_paths(paths: Iterable[T]) -> tuple[T, ...]:
    if paths is None:
        raise wrong_value_error("paths", paths, "a list of paths")
    return _to_tuple("paths", paths, "a list of paths", require_path)


def require_path(name: str, value: object, *, as_text: bool = False) -> None:
    path = value.__fspath__() if hasattr(value, "__fspath__") else value
    if not isinstance(path, str if as_text else str | bytes):
        raise wrong_value_error(name, value, "a path")
    try:
        data = path.encode("utf-8", "surrogateescape") if isinstance(path, str) else path
    except UnicodeEncodeError:
        raise wrong_value_error(name, value, "a path that can be encoded") from None
    if b"\0" in data:
        raise wrong_value_error(name, value, "a path without a NUL byte")


def as_command_words(name: str, value: Iterable[str] | None) -> tuple[str, ...]:
    return _to_tuple(name, as_strings(name, value), "a list of strings", require_path)


def require_no_surrogates(name: str, value: object) -> None:
    if isinstance(value, str) and any("\ud800" <= character <= "\udfff" for character in value):
        raise wrong_value_error(name, value, "a string without lone surrogates")
