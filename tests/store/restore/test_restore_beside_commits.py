"""A commit during a restore makes restore look again before it changes files."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gitckpt import Checkpoint, Moved, Store
from tests import planted
from tests.conftest import Checkout
from tests.planted import plant
from tests.store.conftest import view
from tests.store.submodules import names


@pytest.fixture
def made(plain: Store, main_checkout: Checkout) -> Checkpoint:
    """A checkpoint; the file README has changed since."""
    main_checkout.write("README", "captured\n")
    made = plain.save("a-complete", {})
    main_checkout.write("README", "before\n")
    return made


def at_captures(
    monkeypatch: pytest.MonkeyPatch, act: Callable[[int], object], *, before: bool
) -> None:
    """Call `act` with the capture's number before or after each capture."""
    really = planted.original(planted.CAPTURE_IN)
    count = iter(range(1000))

    def capture_in(*args: Any, **how: Any) -> object:
        number = next(count)
        if before:
            act(number)
        found = really(*args, **how)
        if not before:
            act(number)
        return found

    plant(monkeypatch, planted.CAPTURE_IN, capture_in)


@pytest.mark.parametrize("paths", [(), (b"README",)])
@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("at", [0, 1])
def test_commit_while_restore_looks(
    plain: Store,
    main_checkout: Checkout,
    made: Checkpoint,
    monkeypatch: pytest.MonkeyPatch,
    at: int,
    before: bool,
    paths: tuple[bytes, ...],
) -> None:
    """A commit before or after either capture does not stop the restore."""
    main_checkout.write("since", "1\n")
    main_checkout.git("add", "since")

    def commit(number: int) -> None:
        if number == at:
            main_checkout.git("commit", "--quiet", "--allow-empty", "--message", "since")

    at_captures(monkeypatch, commit, before=before)
    state = view(main_checkout.path)
    done = plain.restore(made, paths or None)
    assert (main_checkout.path / "README").read_text() == "captured\n"
    assert sorted(names(main_checkout)) == sorted([made.id, str(done.safety)])
    plain.undo()
    assert view(main_checkout.path)["files"] == state["files"]
    assert main_checkout.git("ls-files") == "README\nsince"
    if at == 0:
        assert main_checkout.git("status", "--porcelain") == " M README"


def test_undo_looks_again_as_well(
    plain: Store, main_checkout: Checkout, made: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain.restore(made)

    def commit(number: int) -> None:
        if number == 0:
            main_checkout.git("commit", "--quiet", "--allow-empty", "--message", "since")

    at_captures(monkeypatch, commit, before=True)
    plain.undo()
    assert (main_checkout.path / "README").read_text() == "before\n"


def test_commit_each_time_is_told_and_changes_nothing(
    plain: Store, main_checkout: Checkout, made: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    def commit(_: int) -> None:
        main_checkout.git("commit", "--quiet", "--allow-empty", "--message", "since")

    at_captures(monkeypatch, commit, before=True)
    with pytest.raises(Moved, match="HEAD moved while the files were captured") as caught:
        plain.restore(made)
    assert caught.value.hint == "run the command again"
    assert (main_checkout.path / "README").read_text() == "before\n"
    assert names(main_checkout) == [made.id]
    monkeypatch.undo()
    with pytest.raises(Exception, match="nothing was restored in this worktree"):
        plain.undo()


def test_safety_checkpoint_of_a_moved_head_is_dropped(
    plain: Store, main_checkout: Checkout, made: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A safety checkpoint recorded on a moved HEAD is dropped.

    Its commit would turn the staged changes into another index.
    """
    really = planted.original(planted.RECORD_CHECKPOINT)
    left = [1]

    def record(*args: Any, **options: Any) -> Checkpoint:
        if left and left.pop():
            main_checkout.commit("since", since="1\n")
        checkpoint: Checkpoint = really(*args, **options)
        return checkpoint

    plant(monkeypatch, planted.RECORD_CHECKPOINT, record)
    done = plain.restore(made)
    safety = plain.read(str(done.safety))
    assert safety.git_sha == main_checkout.head()
    assert sorted(names(main_checkout)) == sorted([made.id, safety.id])
