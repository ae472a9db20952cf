"""A minimal `dataclass`: the standard one costs 10 ms, and 0.5 ms per class.

A command with 30 classes takes 60 ms (Python 3.11). The standard decorator imports `inspect`, and
compiles the source of each method; here, methods are closures over the fields. Type checkers see
the standard names. The attributes that `dataclasses.fields`, `replace` and `asdict`,
`inspect.signature` and `copy.replace` read are made on demand.
"""

from __future__ import annotations

from operator import attrgetter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from dataclasses import dataclass, field, replace
    from typing import Any, NoReturn

__all__ = ["dataclass", "field", "replace"]
_NONE: Any = object()


class _Field:
    __slots__ = ("compare", "default", "factory", "repr")

    def __init__(
        self,
        *,
        default: Any = _NONE,
        default_factory: Any = _NONE,
        compare: bool = True,
        repr: bool = True,  # noqa: A002 - the library's name for it
    ) -> None:
        self.default, self.factory = default, default_factory
        self.compare, self.repr = compare, repr


def _dataclass(*, frozen: bool = False, slots: bool = False) -> Callable[[type], type]:
    # The class must have slots and no bases.

    def make(cls: type) -> type:
        if not slots or cls.__bases__ != (object,):
            raise TypeError(f"{cls.__qualname__}: a value class must have slots and no base class")
        return _with_slots(cls, frozen=frozen)

    return make


def _replace(value: Any, /, **changes: Any) -> Any:
    for name in value.__match_args__:
        if name not in changes:
            changes[name] = getattr(value, name)
    return value.__class__(**changes)


def _with_slots(cls: type, *, frozen: bool) -> type:
    names = tuple(cls.__annotations__)
    body = dict(cls.__dict__)
    fields = {}
    for name in names:
        default = body.pop(name, _NONE)
        fields[name] = default if isinstance(default, _Field) else _Field(default=default)
    for name in ("__dict__", "__weakref__"):
        body.pop(name, None)
    body |= {"__slots__": names, "__match_args__": names}
    body |= {"__qualname__": cls.__qualname__, "__replace__": _replace}
    for name in ("__dataclass_fields__", "__dataclass_params__", "__signature__"):
        body[name] = _Counterpart(fields, frozen=frozen)
    printed = [name for name in names if fields[name].repr]
    attributes = attrgetter(*(name for name in names if fields[name].compare))

    def text(self: Any) -> str:
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in printed)
        return f"{self.__class__.__qualname__}({values})"

    def equal(self: Any, other: Any) -> Any:
        is_same_class = other.__class__ is self.__class__
        return attributes(self) == attributes(other) if is_same_class else NotImplemented

    def hashed(self: Any) -> int:
        return hash(attributes(self))

    body.setdefault("__repr__", text)
    if "__eq__" not in body:
        body["__eq__"] = equal
        body.setdefault("__hash__", hashed if frozen else None)
    result: Any = type(cls.__name__, (), body)
    result.__init__ = _initializer(result, fields)
    if frozen:
        _freeze(result, names)
    return result  # type: ignore[no-any-return]


def _initializer(cls: type, fields: Mapping[str, _Field]) -> Callable[..., None]:
    names = tuple(fields)
    count = len(names)
    # Set attributes by their slots, past the `__setattr__` of a frozen class.
    setters = {name: cls.__dict__[name].__set__ for name in names}
    in_order = tuple(setters.values())
    post_init = cls.__dict__.get("__post_init__")

    def initialize(self: Any, /, *args: Any, **kwargs: Any) -> None:
        number = len(args)
        if number > count or (number and kwargs and not kwargs.keys().isdisjoint(names[:number])):
            _refuse(cls, args, kwargs)
        for put, value in zip(in_order, args, strict=False):
            put(self, value)
        try:
            for name, value in kwargs.items():
                setters[name](self, value)
        except KeyError:
            _refuse(cls, args, kwargs)
        for name in names[number:] if number + len(kwargs) < count else ():
            if name not in kwargs:
                declared = fields[name]
                if declared.default is not _NONE:
                    setters[name](self, declared.default)
                elif declared.factory is not _NONE:
                    setters[name](self, declared.factory())
                else:
                    _refuse(cls, args, kwargs)
        if post_init is not None:
            post_init(self)

    return initialize


def _refuse(cls: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> NoReturn:
    # The error has the words of `inspect`.
    try:
        cls.__signature__.bind(*args, **kwargs)
    except TypeError as error:
        raise TypeError(f"{cls.__qualname__}(): {error}") from None
    raise AssertionError(f"{cls.__qualname__}: its signature fits the call, and its fields do not")


def _freeze(cls: Any, names: Sequence[str]) -> None:
    def require_other(self: Any, name: str, change: str) -> None:
        if type(self) is cls or name in names:  # attributes that a subclass adds are not frozen
            from dataclasses import FrozenInstanceError

            raise FrozenInstanceError(f"cannot {change} field {name!r}")

    def put(self: Any, name: str, value: Any) -> None:
        require_other(self, name, "assign to")
        super(cls, self).__setattr__(name, value)

    def delete(self: Any, name: str) -> None:
        require_other(self, name, "delete")
        super(cls, self).__delattr__(name)

    # For `copy` and `pickle`.
    def state_of(self: Any) -> list[Any]:
        return [getattr(self, name) for name in names]

    def restore(self: Any, state: list[Any]) -> None:
        for name, value in zip(names, state, strict=True):
            object.__setattr__(self, name, value)

    cls.__setattr__, cls.__delattr__ = put, delete
    cls.__getstate__, cls.__setstate__ = state_of, restore


class _Counterpart:
    """An attribute whose value is taken, on demand, from an equal standard dataclass."""

    __slots__ = ("attribute", "fields", "frozen", "owner")

    def __init__(self, fields: Mapping[str, _Field], *, frozen: bool) -> None:
        self.fields, self.frozen = fields, frozen

    def __set_name__(self, owner: type, name: str) -> None:
        self.owner, self.attribute = owner, name  # `__get__` may be called for a subclass

    def __get__(self, instance: object, owner: type) -> Any:
        import dataclasses
        import inspect

        cls = self.owner
        copied = ("__annotations__", "__module__", "__qualname__")
        body: dict[str, Any] = {name: getattr(cls, name) for name in copied}
        for name, field_ in self.fields.items():
            options: dict[str, Any] = {"default": field_.default, "default_factory": field_.factory}
            options = {key: value for key, value in options.items() if value is not _NONE}
            options |= {"compare": field_.compare, "repr": field_.repr}
            body[name] = dataclasses.field(**options)
        copy: Any = dataclasses.dataclass(frozen=self.frozen)(type(cls.__name__, (), body))
        if self.attribute == "__signature__":
            return inspect.signature(copy)
        return getattr(copy, self.attribute)


if not TYPE_CHECKING:
    dataclass, field, replace = _dataclass, _Field, _replace
