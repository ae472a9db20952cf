"""`from gitckpt import …` offers exactly the public names."""

from __future__ import annotations

import importlib
import inspect
import re

import pytest

import gitckpt
from gitckpt import CkptError, Exporter, Importer, Observer, Pipelines, Run, Steps, Store
from tests.conftest import Checkout
from tests.house_rules import SOURCES, module_name


def test_every_public_name_is_there_and_is_what_it_says() -> None:
    assert sorted(gitckpt.__all__) == dir(gitckpt)
    assert [getattr(gitckpt, name).__name__ for name in gitckpt.__all__] == list(gitckpt.__all__)


def test_the_stub_names_the_module_of_each_public_name() -> None:
    modules = {name: getattr(gitckpt, name).__module__ for name in gitckpt.__all__}
    assert modules == gitckpt._modules_by_name()


def test_every_error_that_somebody_can_meet_is_public() -> None:
    for path in SOURCES:
        if not path.endswith("__main__.py"):
            importlib.import_module(module_name(path))
    errors: list[type[CkptError]] = [CkptError]
    for error in errors:
        errors += error.__subclasses__()
    assert {
        error.__name__
        for error in errors
        if error.__module__.startswith("gitckpt.") and error.__name__[0] != "_"
    } <= set(gitckpt.__all__)


@pytest.mark.parametrize("public", [Store, Run, Pipelines, Steps, Observer])
def test_what_is_public_says_what_it_is_for(public: type) -> None:
    names = [name for name in vars(public) if name[0] != "_"]
    assert names
    assert [name for name in names if not (getattr(public, name).__doc__ or "").strip()] == []


@pytest.mark.parametrize("public", [Store, Run, Pipelines, Steps, Importer, Exporter, Observer])
def test_what_methods_return_is_public(public: type) -> None:
    known = {*gitckpt.__all__, "Any", "Mapping", "None", "Self", "Sequence"}
    for name in (name for name in dir(public) if name[0] != "_"):
        found = inspect.getattr_static(public, name)
        call = found.fget if isinstance(found, property) else getattr(found, "__func__", found)
        assert set(re.findall(r"\b[A-Z]\w+", call.__annotations__["return"])) <= known, name


def test_what_is_not_public_has_an_underscore(main_checkout: Checkout) -> None:
    with Store.open(main_checkout.path) as store, Run.start(store, "a") as run:
        for each in (store, run, run.store, Pipelines(store), Steps(store, run=run.id)):
            own = type(each)
            assert own.__mro__ == (own, object)
            public = {name for part in own.__mro__[:-1] for name in vars(part) if name[0] != "_"}
            assert {name for name in dir(each) if name[0] != "_"} == public, each


def test_another_name_is_refused() -> None:
    with pytest.raises(AttributeError, match="module 'gitckpt' has no attribute 'Backup'"):
        _ = gitckpt.Backup  # type: ignore[attr-defined]
