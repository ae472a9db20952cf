"""Contents that look like secrets are captured, reported, and can be settled."""

from __future__ import annotations

import hashlib
import os

import pytest

from gitckpt import Store
from gitckpt.model import jsonable
from gitckpt.store import secrets
from gitckpt.store.secrets import SettledSecrets, load_token_rules
from gitckpt.store.store import checkpoints_of_store
from tests.conftest import Checkout

TOKEN = "ghp_" + "aB3dE6gH9jK2mN5pQ8rS1tU4vW7xY0zA2bC4"
OTHER = "glpat-" + "Zx9Yw8Vu7Ts6Rq5Po4Nm"

SECRETS = {
    "github-pat": f"token: {TOKEN}\n",
    "gitlab-pat": f'x = "{OTHER}"',
    "aws-access-token": "AKIA" + "QYLPMN5HHHFPZAM2",
    "slack-bot-token": "xoxb-" + "263594206564-2343594206574-FGqddMF8t08v8N7Oq4i57vs1",
    "stripe-access-token": "key=sk_live_" + "4eC39HqLyjWDarjtT1zdp7dc",
    "npm-access-token": "//registry/:_authToken=npm_" + "aB3dE6gH9jK2mN5pQ8rS1tU4vW7xY0zA2bC4",
    "private-key": "-----BEGIN OPENSSH PRIVATE KEY-----\n"
    + "b3BlbnNzaC1rZXktdjEAAAAABG5vbmU\n" * 4
    + "-----END OPENSSH PRIVATE KEY-----\n",
    "password-in-url": "DATABASE=postgres://app:Xk29vLq0tR@db.internal.org/app",
    "assigned-secret": "client_secret = 'q7Rk29vLq0tRZ8mW3xYb61Nd'",
}
HARMLESS = (
    'token = "example-token-1234567890abcdef"',
    "password = os.environ['DATABASE_PASSWORD_2']",
    "postgres://user:${PASSWORD}@host/db",
    "https://user:password@localhost/",
    "AKIAIOSFODNN7EXAMPLE",
    "commit 9d905d54b2c3a4f5e6d7c8b9a0f1e2d3c4b5a697",
    '"integrity": "sha512-Xk29vLq0tRZ8mW3xYb61Nd+Xk29vLq0tRZ8mW3xYb61Nd=="',
    "def test_secret_token_is_not_shown_to_anybody_1(self) -> None:",
)


@pytest.mark.parametrize("rule", SECRETS)
def test_a_secret_is_found_by_its_rule_and_masked(rule: str) -> None:
    data = f"first line\n{SECRETS[rule]} and more".encode()
    assert [hit.rule for hit in secrets.find_hits(data)] == [rule]
    masked = secrets.mask_text(data.decode())
    assert f"[masked: {rule}]" in masked
    assert secrets.find_hits(masked.encode()) == []
    assert masked.startswith("first line\n")


@pytest.mark.parametrize("text", HARMLESS)
def test_what_only_resembles_one_is_none(text: str) -> None:
    assert secrets.find_hits(text.encode()) == []
    assert secrets.mask_text(text) == text


def test_every_rule_compiles_and_is_reached_by_its_beginnings() -> None:
    for name, beginnings, expression, _ in load_token_rules():
        assert secrets._compile_cached(expression), name
        assert all(len(beginning) >= 2 for beginning in beginnings.split()), name


@pytest.mark.parametrize("names", [["of\ntwo lines"], []], ids=["by git", "plain"])
def test_what_is_not_looked_at(plain: Store, main_checkout: Checkout, names: list[str]) -> None:
    top = main_checkout.path
    (top / "binary").write_bytes(b"\0" + TOKEN.encode())
    (top / "large").write_bytes(b"x" * secrets.LARGEST + TOKEN.encode())
    (top / "link").symlink_to(TOKEN)
    (top / "empty").touch()
    (top / "text").write_text(TOKEN)
    for name in names:
        (top / name).write_text(TOKEN)
    os.mkfifo(top / "fifo")
    made = plain.save("a-complete")
    assert made.worktree is not None
    assert [suspect.path for suspect in made.worktree.suspects] == [*names, "text"]


def test_what_a_filter_hides_is_no_suspect(plain: Store, main_checkout: Checkout) -> None:
    main_checkout.git("config", "filter.hidden.clean", "tr a-zA-Z0-9 x")
    main_checkout.git("config", "filter.hidden.required", "true")
    main_checkout.write(".gitattributes", "hidden filter=hidden\n")
    main_checkout.write("hidden", TOKEN)
    main_checkout.write("shown", OTHER)
    made = plain.save("a-complete")
    assert made.worktree is not None
    assert [suspect.path for suspect in made.worktree.suspects] == ["shown"]


@pytest.mark.parametrize("obstacle", ["secret-key", "settled-secrets"])
def test_what_cannot_be_kept_about_suspects_keeps_nobody_from_a_checkpoint(
    plain: Store, main_checkout: Checkout, obstacle: str
) -> None:
    (main_checkout.path / ".git/ckpt" / obstacle).mkdir(parents=True)
    main_checkout.write("config.py", f"y = '{TOKEN}'\n")
    made = plain.save("a-complete")
    assert made.worktree is not None
    assert [suspect.path for suspect in made.worktree.suspects] == ["config.py"]


def test_a_file_with_a_secret_is_captured_and_named(plain: Store, main_checkout: Checkout) -> None:
    main_checkout.write("config.py", f"x = 1\ny = '{TOKEN}'\n")
    main_checkout.write("other.py", "x = 1\n")
    made = plain.save("a-complete")
    assert made.worktree is not None
    [suspect] = made.worktree.suspects
    assert (suspect.path, suspect.rule, suspect.line) == ("config.py", "github-pat", 2)
    assert (
        main_checkout.git("cat-file", "blob", f"refs/ckpt/trees/{made.id}:files/config.py")
        == f"x = 1\ny = '{TOKEN}'"
    )
    assert TOKEN not in main_checkout.git("cat-file", "blob", f"refs/checkpoints/{made.id}")
    read = plain.read(made.id)
    assert read.worktree == made.worktree
    said = {"path": "config.py", "rule": "github-pat", "line": 2, "digest": suspect.digest}
    assert jsonable.checkpoint_to_json(read)["worktree"]["suspects"] == [said]


def test_a_committed_secret_is_not_named_again(plain: Store, main_checkout: Checkout) -> None:
    main_checkout.commit("a secret", **{"config.py": TOKEN})
    main_checkout.write("other.py", "x = 1\n")
    made = plain.save("a-complete")
    assert made.worktree is not None
    assert made.worktree.suspects == ()


@pytest.mark.parametrize("how", ["path", "digest"])
def test_a_settled_one_is_named_no_more(plain: Store, main_checkout: Checkout, how: str) -> None:
    main_checkout.write("a.py", TOKEN)
    main_checkout.write("b.py", f"{TOKEN}\n{OTHER}\n")
    before = plain.save("a-complete")
    assert before.worktree is not None
    first = before.worktree.suspects[0]
    settled = SettledSecrets(checkpoints_of_store(plain).repository)
    assert settled.mark_as_harmless(getattr(first, how))
    assert not settled.mark_as_harmless(getattr(first, how))
    main_checkout.write("c", "so that it is another snapshot")
    after = plain.save("b-complete")
    assert after.worktree is not None
    left = [(suspect.path, suspect.rule) for suspect in after.worktree.suspects]
    assert left == (
        [("b.py", "github-pat"), ("b.py", "gitlab-pat")]
        if how == "path"
        else [("b.py", "gitlab-pat")]
    )


def test_a_digest_is_of_this_clone_and_its_key_for_nobody_else(
    plain: Store, main_checkout: Checkout
) -> None:
    repository = checkpoints_of_store(plain).repository
    one = SettledSecrets(repository).digest(b"hunter2")
    assert SettledSecrets(repository).digest(b"hunter2") == one
    key = main_checkout.main / ".git/ckpt/secret-key"
    assert key.stat().st_mode & 0o777 == 0o600
    key.unlink()
    assert SettledSecrets(repository).digest(b"hunter2") != one


def test_a_key_that_a_power_cut_has_emptied_is_made_anew(
    plain: Store, main_checkout: Checkout
) -> None:
    """An emptied secret key is replaced.

    With an empty key, anyone with the pushed digest could test passwords against it.
    """
    key = main_checkout.main / ".git/ckpt/secret-key"
    key.parent.mkdir(exist_ok=True)
    key.touch()
    repository = checkpoints_of_store(plain).repository
    one = SettledSecrets(repository).digest(b"hunter2")
    assert one != hashlib.blake2b(b"hunter2", digest_size=8).hexdigest()
    assert key.stat().st_size == 32
    assert SettledSecrets(repository).digest(b"hunter2") == one


def test_a_path_with_a_line_break_settles_itself_alone(plain: Store) -> None:
    settled = SettledSecrets(checkpoints_of_store(plain).repository)
    settled.mark_as_harmless("a\npath b")
    assert settled.is_settled("a\npath b", "0" * 16)
    assert not settled.is_settled("b", "0" * 16)
