"""A ref transaction finishes, once, if its git process is killed or not heard."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from gitckpt import GitError
from gitckpt.git import refs as module
from gitckpt.git.refs import Refs, RefUpdate
from gitckpt.git.repository import discover_repository
from tests.conftest import Checkout
from tests.dying import DyingGit

Steps = tuple[Callable[[], None], ...]

A, B, C = (f"refs/checkpoints/{name}" for name in "abc")


@pytest.mark.sampled(5)
@pytest.mark.parametrize("steps", [(), (lambda: None,)], ids=["at once", "in two steps"])
@pytest.mark.parametrize("done", [0, 1, 2, 3, 4])
def test_a_transaction_comes_to_its_end(
    main_checkout: Checkout,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    done: int,
    steps: Steps,
) -> None:
    one, two = (
        main_checkout.git("hash-object", "-w", "--stdin", data=text) for text in ("one", "two")
    )
    main_checkout.git("update-ref", A, one)
    main_checkout.git("update-ref", B, one)
    git = DyingGit(tmp_path / "dying", monkeypatch)
    refs = Refs(discover_repository(str(main_checkout.path)))
    git.die_after(done)
    head = main_checkout.git("rev-parse", "main")
    refs.apply_updates(
        [
            RefUpdate("refs/heads/main", head, head),
            RefUpdate(A, two, one),
            RefUpdate(B, "", one),
            RefUpdate(C, one, ""),
        ],
        *steps,
    )
    assert git.has_died
    assert main_checkout.refs("refs/checkpoints") == {A: two, C: one}
    refs.close()


def test_one_that_only_looks_is_made_again(
    main_checkout: Checkout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = main_checkout.git("hash-object", "-w", "--stdin", data="one")
    main_checkout.git("update-ref", A, one)
    git = DyingGit(tmp_path / "dying", monkeypatch)
    refs = Refs(discover_repository(str(main_checkout.path)))
    git.die_after(0)
    refs.apply_updates([RefUpdate(A, one, one)])
    assert git.has_died
    refs.close()


def test_what_dies_each_time_is_an_error(
    main_checkout: Checkout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = main_checkout.git("hash-object", "-w", "--stdin", data="one")
    git = tmp_path / "git"
    git.write_text(
        '#!/bin/sh\ncase " $* " in *" update-ref "*) kill -9 $$ ;; esac\nexec git "$@"\n'
    )
    git.chmod(0o755)
    monkeypatch.setenv("GITCKPT_GIT", str(git))
    refs = Refs(discover_repository(str(main_checkout.path)))
    with pytest.raises(GitError) as caught:
        refs.apply_updates([RefUpdate(A, one, "")])
    assert caught.value.code == -9
    assert main_checkout.refs("refs/checkpoints") == {}
    refs.close()


def test_what_a_full_disk_has_left_undone_is_done(
    main_checkout: Checkout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = main_checkout.git("hash-object", "-w", "--stdin", data="one")
    git = DyingGit(tmp_path / "dying", monkeypatch)
    refs = Refs(discover_repository(str(main_checkout.path)))
    git.die_after(1, "fatal: commit: couldn't set 'refs/checkpoints/b'")
    refs.apply_updates([RefUpdate(A, one, ""), RefUpdate(B, one, "")])
    assert git.has_died
    assert main_checkout.refs("refs/checkpoints") == {A: one, B: one}
    refs.close()
    git.die_after(0, "fatal: commit: couldn't set 'refs/checkpoints/c'")
    with pytest.raises(GitError, match="couldn't set"):
        refs.apply_updates([RefUpdate(C, one, "")])
    assert main_checkout.refs("refs/checkpoints") == {A: one, B: one}
    refs.close()


DEAF = """\
#!/bin/sh
case " $* " in
*" update-ref "*) test -e {lost} && rm {lost} && exec {git} "$@" >/dev/full ;;
esac
exec {git} "$@"
"""
"""Git that loses its answers once and waits for more input, as git itself does."""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("steps", [(), (lambda: None,)], ids=["at once", "in two steps"])
def test_answers_of_git_that_are_lost_are_not_waited_for(
    main_checkout: Checkout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: Steps
) -> None:
    one, two = (
        main_checkout.git("hash-object", "-w", "--stdin", data=text) for text in ("one", "two")
    )
    main_checkout.git("update-ref", A, one)
    lost, git = tmp_path / "lost", tmp_path / "git"
    lost.touch()
    git.write_text(DEAF.format(lost=lost, git=_git()))
    git.chmod(0o755)
    monkeypatch.setenv("GITCKPT_GIT", str(git))
    monkeypatch.setattr(module, "PATIENCE", 0.2)
    refs = Refs(discover_repository(str(main_checkout.path)))
    refs.apply_updates([RefUpdate(A, two, one), RefUpdate(B, one, "")], *steps)
    assert not lost.exists()
    assert main_checkout.refs("refs/checkpoints") == {A: two, B: one}
    refs.close()


def _git() -> str:
    return os.environ.get("GITCKPT_GIT") or "git"
