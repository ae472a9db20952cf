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


class _FieldSpec:
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

    def decorate_class(cls: type) -> type:
        if not slots or cls.__bases__ != (object,):
            raise TypeError(f"{cls.__qualname__}: a value class must have slots and no base class")
        return _make_class_with_slots(cls, frozen=frozen)

    return decorate_class


def _replace(value: Any, /, **changes: Any) -> Any:
    for name in value.__match_args__:
        if name not in changes:
            changes[name] = getattr(value, name)
    return value.__class__(**changes)


def _make_class_with_slots(cls: type, *, frozen: bool) -> type:
    names = tuple(cls.__annotations__)
    namespace = dict(cls.__dict__)
    fields = {}
    for name in names:
        default = namespace.pop(name, _NONE)
        fields[name] = default if isinstance(default, _FieldSpec) else _FieldSpec(default=default)
    for name in ("__dict__", "__weakref__"):
        namespace.pop(name, None)
    namespace |= {"__slots__": names, "__match_args__": names}
    namespace |= {"__qualname__": cls.__qualname__, "__replace__": _replace}
    for name in ("__dataclass_fields__", "__dataclass_params__", "__signature__"):
        namespace[name] = _StandardDataclassAttribute(fields, frozen=frozen)
    printed_names = [name for name in names if fields[name].repr]
    compared_values = attrgetter(*(name for name in names if fields[name].compare))

    def make_repr(self: Any) -> str:
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in printed_names)
        return f"{self.__class__.__qualname__}({values})"

    def is_equal(self: Any, other: Any) -> Any:
        is_same_class = other.__class__ is self.__class__
        return compared_values(self) == compared_values(other) if is_same_class else NotImplemented

    def make_hash(self: Any) -> int:
        return hash(compared_values(self))

    namespace.setdefault("__repr__", make_repr)
    if "__eq__" not in namespace:
        namespace["__eq__"] = is_equal
        namespace.setdefault("__hash__", make_hash if frozen else None)
    value_class: Any = type(cls.__name__, (), namespace)
    value_class.__init__ = _make_initializer(value_class, fields)
    if frozen:
        _freeze_class(value_class, names)
    return value_class  # type: ignore[no-any-return]


def _make_initializer(cls: type, fields: Mapping[str, _FieldSpec]) -> Callable[..., None]:
    names = tuple(fields)
    count = len(names)
    # Set attributes by their slots, past the `__setattr__` of a frozen class.
    setters = {name: cls.__dict__[name].__set__ for name in names}
    ordered_setters = tuple(setters.values())
    post_init = cls.__dict__.get("__post_init__")

    def initialize(self: Any, /, *args: Any, **kwargs: Any) -> None:
        given = len(args)
        if given > count or (given and kwargs and not kwargs.keys().isdisjoint(names[:given])):
            _raise_type_error(cls, args, kwargs)
        for set_slot, value in zip(ordered_setters, args, strict=False):
            set_slot(self, value)
        try:
            for name, value in kwargs.items():
                setters[name](self, value)
        except KeyError:
            _raise_type_error(cls, args, kwargs)
        for name in names[given:] if given + len(kwargs) < count else ():
            if name not in kwargs:
                field_ = fields[name]
                if field_.default is not _NONE:
                    setters[name](self, field_.default)
                elif field_.factory is not _NONE:
                    setters[name](self, field_.factory())
                else:
                    _raise_type_error(cls, args, kwargs)
        if post_init is not None:
            post_init(self)

    return initialize


def _raise_type_error(cls: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> NoReturn:
    # The error has the words of `inspect`.
    try:
        cls.__signature__.bind(*args, **kwargs)
    except TypeError as error:
        raise TypeError(f"{cls.__qualname__}(): {error}") from None
    raise AssertionError(f"{cls.__qualname__}: its signature fits the call, and its fields do not")


def _freeze_class(cls: Any, names: Sequence[str]) -> None:
    def require_unfrozen(self: Any, name: str, change: str) -> None:
        if type(self) is cls or name in names:  # attributes that a subclass adds are not frozen
            from dataclasses import FrozenInstanceError

            raise FrozenInstanceError(f"cannot {change} field {name!r}")

    def set_attribute(self: Any, name: str, value: Any) -> None:
        require_unfrozen(self, name, "assign to")
        super(cls, self).__setattr__(name, value)

    def delete_attribute(self: Any, name: str) -> None:
        require_unfrozen(self, name, "delete")
        super(cls, self).__delattr__(name)

    # For `copy` and `pickle`.
    def get_state(self: Any) -> list[Any]:
        return [getattr(self, name) for name in names]

    def set_state(self: Any, state: list[Any]) -> None:
        for name, value in zip(names, state, strict=True):
            object.__setattr__(self, name, value)

    cls.__setattr__, cls.__delattr__ = set_attribute, delete_attribute
    cls.__getstate__, cls.__setstate__ = get_state, set_state


class _StandardDataclassAttribute:
    """A class attribute that is read, on demand, from an equal standard dataclass."""

    __slots__ = ("attribute", "fields", "frozen", "owner")

    def __init__(self, fields: Mapping[str, _FieldSpec], *, frozen: bool) -> None:
        self.fields, self.frozen = fields, frozen

    def __set_name__(self, owner: type, name: str) -> None:
        self.owner, self.attribute = owner, name  # `__get__` may be called for a subclass

    def __get__(self, instance: object, owner: type) -> Any:
        import dataclasses
        import inspect

        cls = self.owner
        copied_names = ("__annotations__", "__module__", "__qualname__")
        namespace: dict[str, Any] = {name: getattr(cls, name) for name in copied_names}
        for name, field_ in self.fields.items():
            options: dict[str, Any] = {"default": field_.default, "default_factory": field_.factory}
            options = {key: value for key, value in options.items() if value is not _NONE}
            options |= {"compare": field_.compare, "repr": field_.repr}
            namespace[name] = dataclasses.field(**options)
        standard: Any = dataclasses.dataclass(frozen=self.frozen)(type(cls.__name__, (), namespace))
        if self.attribute == "__signature__":
            return inspect.signature(standard)
        return getattr(standard, self.attribute)


if not TYPE_CHECKING:
    dataclass, field, replace = _dataclass, _FieldSpec, _replace
