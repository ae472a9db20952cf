"""The log tells where an error occurred, and holds no stored content."""

from __future__ import annotations

import os

import pytest

from gitckpt import CkptError, Store, hook
from gitckpt.store import error_log
from gitckpt.store.store import checkpoints_of_store
from tests.conftest import Checkout
from tests.stores import make_private_dir


def read(checkout: Checkout) -> str:
    return (checkout.main / ".git/ckpt/log").read_text(encoding="utf-8")


def test_an_entry_is_bounded_and_keeps_both_ends(plain: Store, main_checkout: Checkout) -> None:
    error_log.append_to_log(
        checkpoints_of_store(plain).repository, "begins" + "x" * 1_000_000 + "ends"
    )
    said = read(main_checkout)
    assert len(said) < error_log.LONGEST + 100
    assert "begins" in said
    assert said.endswith("ends\n")
    assert "… 98" in said


def test_nobody_waits_for_a_pipe_in_its_place(plain: Store, main_checkout: Checkout) -> None:
    os.mkfifo(os.path.join(make_private_dir(plain), error_log.FILE))
    with pytest.raises(CkptError, match=r"cannot write .*/log: "):
        error_log.append_to_log(checkpoints_of_store(plain).repository, "an entry")


def test_a_short_entry_is_whole(plain: Store, main_checkout: Checkout) -> None:
    error_log.append_to_log(checkpoints_of_store(plain).repository, "x" * error_log.LONGEST)
    assert read(main_checkout).endswith(f" {'x' * error_log.LONGEST}\n")


def test_a_trace_says_where_and_not_what() -> None:
    secret = {"token": "s3cr3t"}
    try:
        try:
            secret["s3cr3t-key"]
        except KeyError as error:
            raise ValueError(f"bad {secret}") from error
    except ValueError as error:
        said = error_log.format_traceback(error)
    assert "KeyError" in said
    assert "ValueError" in said
    assert "test_error_log.py" in said
    assert "s3cr3t'" not in said


def test_a_bug_in_the_hook_leaves_its_words_out_of_the_log(
    main_checkout: Checkout, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = "the state was s3cr3t"

    def fall(*_: object) -> None:
        raise ZeroDivisionError(words)

    monkeypatch.chdir(main_checkout.path)
    monkeypatch.setattr(hook, "_record_commit", fall)
    assert hook.main(["post-commit"]) == 0
    said = read(main_checkout)
    assert "ZeroDivisionError" in said
    assert "s3cr3t" not in said
