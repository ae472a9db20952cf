"""Import records the files of one run together, as soundly as one by one.

One broken file or a kill anywhere does not matter.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from gitckpt import Importer, StateError, Store
from gitckpt.formats import importer
from gitckpt.git.refs import Refs, RefUpdate
from gitckpt.store.records.recorder import Proposal
from tests.conftest import Checkout
from tests.formats.conftest import Imports
from tests.store.conftest import require_runs, require_whole

RUN = "20260101-000000-rlm-act"
COUNT = 12


def nth(number: int) -> str:
    return str(uuid.UUID(int=number, version=4))


def write(
    checkout: Checkout, number: int, *, name: str = "", second: int | None = None, **changes: Any
) -> Path:
    at = number if second is None else second
    document: dict[str, Any] = {
        "id": nth(number),
        "phase": "research-complete" if number else "research-failed",
        "timestamp": f"2026-01-01T00:00:{at:02d}.000001Z",
        "state": {"started_at": "2026-01-01T00:00:00", "number": number},
        "errors": [],
        "git_commit": "",
    }
    path = checkout.path / ".rlm-act-checkpoints" / f"{name or number:0>3}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(document | changes))
    return path


@pytest.fixture
def many(imports: Imports) -> Imports:
    for number in range(COUNT):
        write(imports.checkout, number)
    return imports


def chain(imports: Imports) -> list[str]:
    """Return the ids of the run's checkpoints, oldest first, after a check of all."""
    found = require_whole(imports.checkout)
    assert imports.ok("verify") == ""
    return require_runs(imports.checkout, found)[RUN]


@pytest.fixture
def transactions(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    seen: list[list[str]] = []
    update = Refs.apply_updates

    def note(self: Refs, updates: Sequence[RefUpdate], *rest: Any) -> None:
        updates = list(updates)
        seen.append([each.ref for each in updates])
        update(self, updates, *rest)

    monkeypatch.setattr(Refs, "apply_updates", note)
    return seen


def take(checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(checkout.path)
    with Store.open(checkout.path, adapter="plumbing") as store:
        assert {each.status for each in Importer(store).take(["."])} == {"imported"}


def test_in_few_transactions(
    many: Imports, transactions: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importer, "_BATCH", 5)
    take(many.checkout, monkeypatch)
    made = [
        len([ref for ref in each if ref.startswith("refs/checkpoints/")]) for each in transactions
    ]
    assert [count for count in made if count] == [5, 5, 2]
    assert chain(many) == [nth(number) for number in range(COUNT)]
    assert {line.status for line in many()} == {"known"}


@pytest.mark.long
def test_as_one_by_one(many: Imports, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importer, "_BATCH", 1)
    take(many.checkout, monkeypatch)
    heads = [json.loads(many.ok("show", nth(number), "--json")) for number in range(COUNT)]
    many.ok("remove", RUN)
    monkeypatch.undo()
    assert [line.checkpoint for line in many()] == [nth(number) for number in range(COUNT)]
    again = [json.loads(many.ok("show", nth(number), "--json")) for number in range(COUNT)]
    for each in (*heads, *again):
        del each["imported"]["at"]
    assert again == heads


@pytest.mark.long
@pytest.mark.sampled(2)
@pytest.mark.parametrize("there", [1, 2, COUNT - 1, COUNT])
def test_a_transaction_of_which_git_had_done_a_part(many: Imports, there: int) -> None:
    """Git writes the refs in order: bytes, checkpoints, head of the run."""
    many()
    refs = many.checkout.refs("refs/checkpoints", "refs/ckpt/runs")
    gone = [f"refs/checkpoints/{nth(number)}" for number in range(there, COUNT)]
    for ref in (f"refs/ckpt/runs/{RUN}", *gone):
        many.checkout.git("update-ref", "-d", ref, refs[ref])
    lines = many()
    assert [line.status for line in lines].count("imported") == COUNT - there
    assert chain(many) == [nth(number) for number in range(COUNT)]
    assert {line.status for line in many()} == {"known"}


class TestOneThatIsOther:
    def test_that_cannot_be_stored(self, many: Imports, monkeypatch: pytest.MonkeyPatch) -> None:
        document = Proposal.render_document

        def refuse(self: Proposal, *rest: Any) -> bytes:
            if self.fields["id"] == nth(4):
                raise StateError("/number", "is no number")
            return document(self, *rest)

        monkeypatch.setattr(Proposal, "render_document", refuse)
        monkeypatch.chdir(many.checkout.path)
        with Store.open(many.checkout.path, adapter="plumbing") as store:
            lines = Importer(store).take(["."])
        assert [each.status for each in lines] == [
            "failed" if number == 4 else "imported" for number in range(COUNT)
        ]
        assert chain(many) == [nth(number) for number in range(COUNT) if number != 4]

    def test_with_the_id_of_another(self, many: Imports) -> None:
        write(many.checkout, 5, name="again", second=30)
        assert {line.status for line in many()} == {"imported"}
        found = chain(many)
        assert (found[:-1], len(found)) == ([nth(number) for number in range(COUNT)], COUNT + 1)

    def test_of_the_same_time(self, many: Imports) -> None:
        write(many.checkout, 50, second=5)
        many()
        assert sorted(chain(many)) == sorted([nth(50), *(nth(number) for number in range(COUNT))])

    def test_on_another_commit(self, many: Imports) -> None:
        commit = many.checkout.git("rev-parse", "HEAD")
        for number in (3, 4, 8):
            write(many.checkout, number, git_commit=commit)
        many()
        assert chain(many) == [nth(number) for number in range(COUNT)]
        assert [
            json.loads(many.ok("show", nth(number), "--json"))["git_sha"] for number in (2, 3, 4, 5)
        ] == ["", commit, commit, ""]
