"""`git ckpt allow` approves settings, and commands warn about unapproved ones."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from gitckpt import Limits, Store
from tests.cli.conftest import Ckpt, Outcome
from tests.conftest import Checkout, allow
from tests.stores import default_settings, private_dir

LOOSE = r"""
[retention]
keep_last = 3
[snapshot]
include = ["*.log", "a\u001b[31mb"]
secrets = @
[pipelines.ci]
retention = "1d"
[[pipelines.ci.phases]]
name = "a"
run = "true"
""".replace(
    "@",
    json.dumps(
        ["*.mine", *(name for name in Limits().secrets if name not in ("*.keystore", "*.kdbx"))]
    ),
)
SHOWN = r"""retention.keep_last: 3 instead of 100
snapshot.include: with *.log, a\x1b[31mb
snapshot.secrets: without *.keystore, *.kdbx
pipelines.ci.retention: 1d instead of 7d
"""
LINE = (
    "gitckpt.toml loosens retention.keep_last, snapshot.include, snapshot.secrets and 1 more; "
    "until you allow that, built-in values apply: git ckpt allow\n"
)


@pytest.fixture
def loose(checkout: Checkout) -> Checkout:
    checkout.commit("loose", **{"gitckpt.toml": LOOSE})
    return checkout


def is_allowed(checkout: Checkout) -> bool:
    with Store.open(checkout.path) as store:
        loosened = store.loosened()
        return loosened is None or store.policy().keep_last == 3


def test_it_shows_all_of_it_and_allows_that(loose: Checkout, ckpt: Ckpt) -> None:
    said = "built-in values apply until you allow these settings: git ckpt allow\n"
    assert ckpt("allow", "--dry-run", at=loose) == Outcome(0, SHOWN, said)
    assert not is_allowed(loose)
    said = "allowed in this clone until a value changes; to undo: git ckpt allow --forget\n"
    assert ckpt("allow") == Outcome(0, SHOWN, said)
    assert is_allowed(loose)
    assert ckpt("allow") == Outcome(0, SHOWN, "all these settings were allowed before\n")
    assert ckpt("allow", "--forget") == Outcome(
        0, "", "built-in values apply again where gitckpt.toml weakens them\n"
    )
    assert not is_allowed(loose)
    assert ckpt("allow", "--forget") == Outcome(0, "", "no setting was allowed in this clone\n")


def test_a_file_that_loosens_nothing(main_checkout: Checkout, ckpt: Ckpt) -> None:
    said = "gitckpt.toml does not weaken the defaults\n"
    assert ckpt("allow", at=main_checkout) == Outcome(0, "", said)
    main_checkout.write("gitckpt.toml", default_settings())
    assert ckpt("allow") == Outcome(0, "", said)
    assert not (private_dir(main_checkout) / "allowed").exists()


def test_as_json(checkout: Checkout, ckpt: Ckpt) -> None:
    checkout.write("gitckpt.toml", '[retention]\nkeep_last = 3\n[snapshot]\ninclude = ["*.log"]\n')
    for words, allowed in ((["--dry-run"], False), ([], True), (["--dry-run"], True)):
        done = ckpt("allow", "--json", *words, at=checkout)
        assert (done.code, done.err) == (0, "")
        assert json.loads(done.out) == {
            "allowed": allowed,
            "loosened": [
                {"key": "retention.keep_last", "value": 3, "instead": 100},
                {"key": "snapshot.include", "value": ["*.log"], "instead": []},
            ],
        }
    checkout.write("gitckpt.toml", "")
    assert json.loads(ckpt("allow", "--json").out) == {"allowed": True, "loosened": []}


@pytest.mark.parametrize("other", ["--dry-run", "--json"])
def test_to_forget_shows_nothing(main_checkout: Checkout, ckpt: Ckpt, other: str) -> None:
    done = ckpt("allow", "--forget", other, at=main_checkout)
    assert done == Outcome(
        2, "", "error: --forget prints no settings\nhint: leave out the other option\n"
    )


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "words",
    [
        ["save"],
        ["restore", "latest", "--dry-run"],
        ["restore", "latest"],
        ["resume", "--no-run", "latest"],
        ["expire", "--dry-run"],
        ["expire"],
        ["du"],
        ["init", "--hooks", "none"],
        ["run", "ci"],
        ["step", "start", "PLAN", "--track", "t", "--files"],
    ],
)
def test_each_command_that_goes_by_them_says_so_in_one_line(
    loose: Checkout, ckpt: Ckpt, save: Callable[..., str], words: list[str]
) -> None:
    save(loose)
    for before in ([], ["-q"]):
        done = ckpt(*before, *words, at=loose)
        assert (done.code, done.err.count(f"warning: {LINE}")) == (0, 1), done.err
    allow(loose)
    assert "until that is allowed" not in ckpt(*words).err


@pytest.mark.parametrize(
    "words",
    [
        ["list"],
        ["show"],
        ["runs"],
        ["status"],
        ["remove", "latest"],
        ["verify"],
        ["completion", "bash"],
    ],
)
def test_others_do_not(
    loose: Checkout, ckpt: Ckpt, save: Callable[..., str], words: list[str]
) -> None:
    save(loose, "--no-worktree")
    assert "until that is allowed" not in ckpt(*words, at=loose).err


def test_doctor_finds_it(loose: Checkout, ckpt: Ckpt) -> None:
    done = ckpt("doctor", "--json", at=loose)
    found = [
        each for each in json.loads(done.out)["findings"] if each["code"] == "settings-unapproved"
    ]
    keys = "retention.keep_last, snapshot.include, snapshot.secrets, pipelines.ci.retention"
    assert found == [
        {
            "code": "settings-unapproved",
            "object": "gitckpt.toml",
            "sentence": f"loosens {keys}; until that is allowed here, built-in values apply",
            "cure": "show these settings and allow them: git ckpt allow",
        }
    ]
    allow(loose)
    assert "settings-unapproved" not in ckpt("doctor").out


@pytest.mark.parametrize(
    ("words", "code"), [(["du"], 0), (["allow"], 2), (["allow", "--forget"], 0)]
)
def test_a_file_with_mistakes(
    main_checkout: Checkout, ckpt: Ckpt, words: list[str], code: int
) -> None:
    main_checkout.write("gitckpt.toml", "[retention]\nkeep_last = 'x'\n")
    assert ckpt(*words, at=main_checkout).code == code
