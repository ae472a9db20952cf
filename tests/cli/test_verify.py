"""`git ckpt verify` prints findings and cures, and repairs on request."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest

from tests.cli.conftest import PROJECT, Ckpt, Outcome, document, normal, store_text
from tests.cli.test_json import check, documented
from tests.conftest import Checkout
from tests.damaging import place_of, spoil
from tests.stores import OWN_REFS

Save = Callable[..., str]
NOTES = "refs/notes/checkpoints"
WRONG = "refs/checkpoints/99999999-9999-4999-8999-999999999999"


@pytest.fixture
def saved(checkout: Checkout, save: Save) -> str:
    """Save the only checkpoint and return its id."""
    return save(checkout)


def test_nothing_is_wrong(ckpt: Ckpt, checkout: Checkout, saved: str) -> None:
    assert ckpt("verify", at=checkout) == Outcome(
        0, "", "looked at 1 checkpoint: nothing is wrong\n"
    )
    assert ckpt("-q", "verify", "--repair", at=checkout) == Outcome(0, "", "")
    assert ckpt("verify", "nonsense", at=checkout).code == 12
    assert ckpt("verify", "latest", "--contents", at=checkout).code == 2


def test_no_checkpoints_are_fine(ckpt: Ckpt, main_checkout: Checkout) -> None:
    assert ckpt("verify", at=main_checkout) == Outcome(
        0, "", "looked at 0 checkpoints: nothing is wrong\n"
    )


def test_what_is_derived_is_repaired(ckpt: Ckpt, checkout: Checkout, saved: str) -> None:
    before = checkout.refs(*OWN_REFS)
    checkout.git("update-ref", "-d", f"refs/keep/ckpt/{checkout.git('rev-parse', 'HEAD')}")
    checkout.git("update-ref", "-d", NOTES)
    lines = [
        (
            "commit-ref-missing: refs/keep/ckpt/OID: no ref keeps OID, the linked commit "
            "of checkpoint ID"
        ),
        "note-missing: refs/checkpoints/ID: the note of commit OID does not list this checkpoint",
    ]
    done = ckpt("verify", at=checkout)
    assert (done.code, done.err) == (1, "looked at 1 checkpoint: 2 findings\n")
    assert normal(done.out) == "".join(
        f"{line}\n    cure: git ckpt verify --repair\n" for line in lines
    )
    assert ckpt("verify", at=checkout) == done
    done = ckpt("verify", "--repair", at=checkout)
    assert (done.code, done.err) == (0, "looked at 1 checkpoint: 2 findings, 2 repaired\n")
    assert normal(done.out) == "".join(f"{line}\n    repaired\n" for line in lines)
    assert ckpt("verify", at=checkout) == Outcome(
        0, "", "looked at 1 checkpoint: nothing is wrong\n"
    )
    assert checkout.refs(*OWN_REFS) == before


def test_only_what_is_named_is_looked_at(ckpt: Ckpt, checkout: Checkout, save: Save) -> None:
    checkout.write("one", "1\n")
    first = save(checkout)
    checkout.write("two", "2\n")
    second = save(checkout)
    run = ckpt("save", "--phase", "a-complete", "--track", "work", at=checkout)
    assert run.code == 0
    place_of(checkout, checkout.git("rev-parse", f"refs/ckpt/trees/{second}:files/two")).unlink()
    run_id = json.loads(ckpt("show", run.out.strip(), "--json", at=checkout).out)["run"]
    checkout.git("update-ref", "-d", f"refs/ckpt/runs/{run_id}")
    assert ckpt("verify", first, at=checkout) == Outcome(
        0, "", "looked at 1 checkpoint: nothing is wrong\n"
    )
    done = ckpt("verify", first, second, "--json", at=checkout)
    found = json.loads(done.out)
    assert (done.code, found["checked"]["checkpoints"]) == (1, 2)
    assert [(each["code"], each["object"]) for each in found["findings"]] == [
        ("objects-missing", f"refs/checkpoints/{second}")
    ]
    done = ckpt("verify", run_id, "--repair", at=checkout)
    assert (done.code, done.err.startswith("looked at 1 checkpoint: ")) == (0, True)
    assert checkout.git("rev-parse", f"refs/ckpt/runs/{run_id}") == checkout.git(
        "rev-parse", f"refs/checkpoints/{run.out.strip()}"
    )


def test_the_history_before_what_is_named_is_not_looked_at(
    ckpt: Ckpt, checkout: Checkout, save: Save
) -> None:
    checkout.commit("old", old="old\n")
    place = place_of(checkout, checkout.git("rev-parse", "HEAD:old"))
    checkout.git("rm", "--quiet", "old")
    checkout.git("commit", "--quiet", "--message", "without")
    checkout.write("new", "1\n")
    made = save(checkout)
    place.unlink()
    assert ckpt("verify", at=checkout).code == 1
    assert ckpt("verify", made, at=checkout).code == 0


def test_contents_are_read_when_asked_for(ckpt: Ckpt, checkout: Checkout, save: Save) -> None:
    checkout.write("new", "not committed\n" * 20)
    saved = save(checkout)
    oid = checkout.git("rev-parse", f"refs/ckpt/trees/{saved}:files/new")
    spoil(place_of(checkout, oid), "flipped")
    assert ckpt("verify", at=checkout).code == 0
    for words in (["--contents"], ["--contents", "--repair"]):
        done = ckpt("verify", *words, at=checkout)
        assert (done.code, done.err) == (1, "looked at 1 checkpoint: 2 findings\n")
        assert normal(done.out) == (
            "objects-missing: refs/checkpoints/ID: OID is missing or damaged; files or history of "
            "the checkpoint need this\n"
            "    cure: fetch from a clone that has it: git fetch --refetch --no-tags REMOTE OID; "
            "or give the checkpoint up: git ckpt remove SHORT\n"
            "object-damaged: OID: the stored content does not match the oid\n"
            "    cure: move the object's file away; then write the object again: git hash-object "
            "-w FILE; or fetch from a clone that has it: git fetch --refetch "
            "--no-tags REMOTE OID\n"
        )
    assert ckpt("save", at=checkout).code == 0
    assert ckpt("verify", "--contents", at=checkout) == Outcome(
        0, "", "looked at 2 checkpoints: nothing is wrong\n"
    )


def test_what_save_writes_again_is_a_warning(ckpt: Ckpt, checkout: Checkout, save: Save) -> None:
    checkout.write("new", "not committed\n" * 20)
    oid = checkout.git("rev-parse", f"refs/ckpt/trees/{save(checkout)}:files/new")
    spoil(place_of(checkout, oid), "empty")
    done = ckpt("-q", "save", at=checkout)
    assert done.code == 0
    assert (
        normal(done.err)
        == "warning: the object OID was missing or damaged, and was rewritten from new\n"
    )
    assert ckpt("verify", "--contents", at=checkout).code == 0


def test_what_is_left_to_a_person(ckpt: Ckpt, checkout: Checkout, saved: str) -> None:
    checkout.git("update-ref", WRONG, "HEAD")
    checkout.git("update-ref", "-d", NOTES)
    done = ckpt("verify", "--repair", at=checkout)
    assert (done.code, done.err) == (1, "looked at 2 checkpoints: 2 findings, 1 repaired\n")
    assert normal(done.out) == (
        "checkpoint-invalid: refs/checkpoints/ID: points to a commit, not to a blob\n"
        "    cure: inspect the document: git cat-file -p refs/checkpoints/ID; remove the "
        "checkpoint: git ckpt remove ID\n"
        "note-missing: refs/checkpoints/ID: the note of commit OID does not list this checkpoint\n"
        "    repaired\n"
    )


def test_json_has_exactly_the_promised_keys(ckpt: Ckpt, checkout: Checkout, saved: str) -> None:
    checkout.git("update-ref", WRONG, "HEAD")
    checkout.git("update-ref", "-d", NOTES)
    done = ckpt("verify", "--repair", "--json", at=checkout)
    assert (done.code, done.err) == (1, "")
    report = json.loads(done.out)
    assert check("verify", report) == set(documented("verify"))
    assert [(each["code"], each["repaired"]) for each in report["findings"]] == [
        ("checkpoint-invalid", False),
        ("note-missing", True),
    ]
    assert report["checked"] == {
        "checkpoints": 2,
        "refs": 4,
        "runs": 0,
        "links": 1,
        "leases": 0,
        "worktrees": 0,
    }
    checkout.git("update-ref", "-d", WRONG)
    clean = ckpt("verify", "--json", at=checkout)
    assert (clean.code, json.loads(clean.out)["findings"]) == (0, [])


def test_many_findings_of_a_kind_are_cut_for_people(ckpt: Ckpt, main_checkout: Checkout) -> None:
    for i in range(23):
        main_checkout.git(
            "update-ref", f"refs/checkpoints/{i:08}-0000-4000-8000-000000000000", "HEAD"
        )
    done = ckpt("verify", at=main_checkout)
    assert done.err == "looked at 23 checkpoints: 23 findings\n"
    assert len(done.out.splitlines()) == 41
    assert (
        done.out.splitlines()[-1]
        == "checkpoint-invalid: 3 more; to see all: git ckpt verify --json"
    )
    assert len(json.loads(ckpt("verify", "--json", at=main_checkout).out)["findings"]) == 23


def test_what_git_refuses_is_a_warning(ckpt: Ckpt, main_checkout: Checkout, save: Save) -> None:
    save(main_checkout)
    ref = f"refs/keep/ckpt/{main_checkout.git('rev-parse', 'HEAD')}"
    main_checkout.git("update-ref", "-d", ref)
    (main_checkout.path / ".git" / ref).mkdir(parents=True)
    (main_checkout.path / ".git" / ref / "in the way").touch()
    done = ckpt("-q", "verify", "--repair", at=main_checkout)
    assert done.code == 1
    assert done.err.startswith(f"warning: not repaired: {ref}: git update-ref failed: ")


def test_what_a_stranger_sent_is_harmless(ckpt: Ckpt, main_checkout: Checkout) -> None:
    name = "11111111-1111-4111-8111-111111111111"
    store_text(main_checkout, f"refs/checkpoints/{name}", document(trigger='"\\u001b[31m"'))
    main_checkout.git("update-ref", "refs/checkpoints/\u202eevil;$(touch${IFS}x)", "HEAD")
    done = ckpt("verify", at=main_checkout)
    assert done.code == 1
    assert "\x1b" not in done.out
    assert "\u202e" not in done.out
    assert "evil" not in done.out


def test_every_code_is_described() -> None:
    """The page describes no code that does not exist."""
    text = (PROJECT / "docs/verify.md").read_text("utf-8")
    described = {
        code
        for line in text.splitlines()
        if line.startswith("| `")
        for code in re.findall(r"`([a-z-]+)`", line.split("|")[1])
    }
    source = "".join(
        path.read_text("utf-8")
        for path in (PROJECT / "gitckpt/store/audit").glob("*.py")
        if path.stem in MODULES
    )
    named = set(
        re.findall(
            (
                r"(?:lasting\(\s*|repairable\(\s*|Finding\(\s*|code = |code, [a-z]+ = |return |if "
                r'is_misnamed else |, )"([a-z]+-[a-z]+(?:-[a-z]+)?)"'
            ),
            source,
        )
    )
    named |= set(re.findall(r'"([a-z]+-[a-z]+(?:-[a-z]+)?)" if is_misnamed', source))
    built = {
        f"{word}-ref-{what}"
        for word in ("commit", "tree", "operation", "original")
        for what in ("missing", "wrong")
    }
    assert described == named | built


MODULES = ("inventory", "runs", "objects", "verification", "worktrees")
