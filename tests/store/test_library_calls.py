"""A wrong argument is an error that names it, and nothing is changed."""

# mypy: disable-error-code="arg-type, call-arg, call-overload, dict-item"
# mypy: disable-error-code="assignment, comparison-overlap"

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from gitckpt import ConfigError, NotFoundError, Policy, Query, Store, UsageError, WorktreeError
from tests.conftest import Checkout
from tests.stores import DAY

WRONG: dict[str, tuple[Callable[[Any], object], str]] = {
    "no query": (
        lambda store: store.list({"phase": "plan"}),
        "query: must be a Query, not {'phase': 'plan'}",
    ),
    "since": (
        lambda store: store.list(Query(since="7d")),
        "since: must be a whole number, not '7d'",
    ),
    "limit": (
        lambda store: store.list(Query(limit=-1)),
        "limit: must be a whole number from 0 on, not -1",
    ),
    "yes": (
        lambda store: store.list(Query(limit=True)),
        "limit: must be a whole number from 0 on, not True",
    ),
    "run": (lambda store: store.list(Query(run=5)), "run: must be a string, not 5"),
    "ids": (
        lambda store: store.list(Query(ids="abcd")),
        "ids: must be a list of strings, not 'abcd'",
    ),
    "rev": (
        lambda store: store.list(Query(git_sha="HEAD")),
        "'HEAD' is not the full oid of a commit",
    ),
    "links of nothing": (lambda store: store.links(None), "commit: must be a string, not None"),
    "no policy": (lambda store: store.expire("30d"), "policy: must be a Policy, not '30d'"),
    "age": (
        lambda store: store.expire(Policy(older_than=timedelta(days=3))),
        "older_than: must be a whole number, not datetime.timedelta(days=3)",
    ),
    "a path to restore": (
        lambda store: store.restore(_saved(store), "README"),
        "paths: must be a list of paths, not 'README'",
    ),
    "no paths to restore": (
        lambda store: store.restore(_saved(store), []),
        "paths: the list is empty",
    ),
    "an empty path": (
        lambda store: store.restore(_saved(store), ["README", ""]),
        "paths: a path is empty",
    ),
    "a path to compare": (
        lambda store: store.diff(_saved(store), paths="README"),
        "paths: must be a list of paths, not 'README'",
    ),
    "a store of a path": (lambda _: Store("."), "Store() takes no path"),
    "an option": (
        lambda store: store.diff(_saved(store), options="--stat"),
        "options: must be a list of strings, not '--stat'",
    ),
}


def _saved(store: Store) -> str:
    return store.list()[0].id


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("call", "said"), WRONG.values(), ids=WRONG)
def test_what_cannot_be_meant_is_refused(
    plain: Store, main_checkout: Checkout, call: Callable[[Store], object], said: str
) -> None:
    plain.save("plan")
    main_checkout.write("README", "other\n")
    before = main_checkout.fingerprint()
    with pytest.raises(UsageError) as refused:
        call(plain)
    assert refused.value.message == said
    assert main_checkout.fingerprint() == before


NAMING: dict[str, Callable[[Store], object]] = {
    "restore": lambda store: store.restore("latest"),
    "read": lambda store: store.read("latest"),
    "diff": lambda store: store.diff("latest"),
    "resume": lambda store: store.resume("latest"),
    "remove": lambda store: store.remove(["latest"]),
}


@pytest.mark.parametrize("call", NAMING.values(), ids=NAMING)
def test_what_only_find_understands_names_find(
    plain: Store, call: Callable[[Store], object]
) -> None:
    plain.save("plan")
    with pytest.raises(NotFoundError) as refused:
        call(plain)
    assert refused.value.message == "'latest' is not the full id of a checkpoint"
    assert refused.value.hint == "store.find('latest') returns the full id"


def test_the_top_is_all_files(plain: Store, main_checkout: Checkout) -> None:
    saved = plain.save("plan")
    main_checkout.write("README", "other\n")
    assert [change.path for change in plain.restore(saved, ["."]).changes] == [b"README"]


def test_ids_of_a_query_may_come_from_anywhere(plain: Store) -> None:
    one, _, three = (plain.record(name) for name in ("one", "two", "three"))
    query = Query(ids=(each.id for each in (one, three)))
    assert [[entry.label for entry in plain.list(query)] for _ in range(2)] == [
        ["three-complete", "one-complete"]
    ] * 2


def test_the_variables_of_a_hook_are_not_those_of_another_repository(
    main_checkout: Checkout, make_checkout: Callable[..., Checkout], monkeypatch: pytest.MonkeyPatch
) -> None:
    other = make_checkout("other")
    other.commit("first")
    monkeypatch.chdir(main_checkout.path)
    for path, there in (
        (other.path, other),
        (".", main_checkout),
        (main_checkout.path, main_checkout),
    ):
        with monkeypatch.context() as hook:
            hook.setenv("GIT_DIR", str(main_checkout.path / ".git"))
            with Store.open(path) as store:
                assert store.worktree == str(there.path)
                made = store.save("plan")
        assert (made.git_sha, f"refs/checkpoints/{made.id}" in there.refs("refs/checkpoints")) == (
            there.head(),
            True,
        )
    assert len(main_checkout.refs("refs/checkpoints")) == 2


def test_a_current_directory_that_is_gone_is_in_nobodys_way(
    plain: Store, main_checkout: Checkout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = plain.save("plan")
    main_checkout.write("README", "other\n")
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    try:
        names = plain.diff(made, paths=["README"], options=["--name-only"])
        with pytest.raises(
            WorktreeError,
            match=r"^cannot find there: the current directory was deleted$",
        ):
            plain.resume(made, "there")
    finally:
        monkeypatch.chdir(tmp_path)
    assert names == b"README\n"


def test_paths_may_be_paths(
    plain: Store, main_checkout: Checkout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(main_checkout.path)
    saved = plain.save("plan")
    main_checkout.write("README", "other\n")
    assert plain.diff(saved, paths=[Path("README")], options=["--numstat"]) == b"1\t1\tREADME\n"
    assert [change.path for change in plain.restore(saved, [Path("README")]).changes] == [b"README"]


@pytest.mark.parametrize("kind", [str, Path])
def test_a_worktree_is_made_where_a_relative_path_says(
    plain: Store,
    main_checkout: Checkout,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    kind: Callable[[str], str],
) -> None:
    saved = plain.save("plan")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    opened = plain.resume(saved, kind("beside"))
    assert (opened.path, opened.made) == (os.fspath(tmp_path / "elsewhere/beside"), True)
    assert (tmp_path / "elsewhere/beside/README").read_text() == "hello\n"
    assert not plain.resume(saved, kind("beside")).made


def test_what_a_store_has_put_off_is_no_flaw(plain: Store) -> None:
    for number in range(5):  # links of a burst are written once a second
        plain.record(f"phase {number}")
    report = plain.verify()
    assert (report.is_clean, list(report.findings), report.checked["links"]) == (True, [], 5)


def test_a_document_is_read_as_it_is_stored(plain: Store, main_checkout: Checkout) -> None:
    saved = plain.record("plan", {"step": 3})
    assert (
        plain.raw(saved.id).decode()
        == main_checkout.git("cat-file", "blob", f"refs/checkpoints/{saved.id}") + "\n"
    )


def test_the_policy_is_what_the_settings_say_and_was_allowed(
    plain: Store, main_checkout: Checkout
) -> None:
    assert plain.policy() == Policy()
    main_checkout.write("gitckpt.toml", "[retention]\nkeep_last = 5\n")
    main_checkout.git("config", "ckpt.olderThan", "2d")
    assert plain.policy() == Policy(older_than=2 * DAY)
    loosened = plain.loosened()
    assert loosened is not None
    plain.allow(loosened)
    assert plain.policy() == Policy(older_than=2 * DAY, keep_last=5)
    assert dataclasses.replace(plain.policy(), older_than=0) == Policy(older_than=0, keep_last=5)
    main_checkout.write("gitckpt.toml", "[retention]\nkeep_last = many\n")
    assert plain.policy() == Policy(older_than=2 * DAY)
    with pytest.raises(ConfigError, match=r"gitckpt\.toml"):
        plain.loosened()
