"""Helpers for the tests of `verify`: damage by plain git, whole reports."""

from __future__ import annotations

import os
import time
from pathlib import Path

from gitckpt import Checkpoint, Report, Store
from gitckpt.model import codec, times
from gitckpt.store.audit.verification import verify_repository
from gitckpt.store.checkpoints import Checkpoints
from gitckpt.store.records import ref_names
from gitckpt.store.store import checkpoints_of_store
from tests.conftest import Checkout, Clock, repository_of

RUN = "20270115-080000-work"


def look(checkout: Checkout, *, repair: bool = False, adapter: str = "plumbing") -> Report:
    """Verify the repository of a checkout with a store that recorded nothing."""
    with Store(Checkpoints(repository_of(checkout), adapter=adapter, clock=Clock())) as store:
        return verify_repository(checkpoints_of_store(store), repair=repair)


def told(report: Report) -> list[tuple[str, str, str]]:
    """Return code, object and sentence of each finding."""
    return [(finding.code, finding.object, finding.sentence) for finding in report.findings]


def require_mended(
    checkout: Checkout, before: dict[str, str], found: list[tuple[str, str, str]]
) -> None:
    """Assert that repair handles every finding and brings back the previous refs."""
    seen = look(checkout)
    assert told(seen) == found
    assert {finding.cure for finding in seen.findings} == {"git ckpt verify --repair"}
    assert not any(finding.repaired for finding in seen.findings)
    mended = look(checkout, repair=True)
    assert (told(mended), mended.refused) == (found, [])
    assert all(finding.repaired for finding in mended.findings)
    assert told(look(checkout)) == []
    assert checkout.refs(*ref_names.OWN) == {
        ref: oid for ref, oid in before.items() if ref.startswith(ref_names.OWN)
    }


def require_left(checkout: Checkout, found: list[tuple[str, str, str]]) -> Report:
    """Assert that repair leaves the findings and all refs; return the report."""
    before = checkout.refs()
    seen = look(checkout)
    assert told(seen) == found
    mended = look(checkout, repair=True)
    assert mended.findings == seen.findings
    assert not mended.is_clean
    assert checkout.refs() == before
    return seen


def age(checkout: Checkout, *refs: str) -> None:
    """Make refs too old to belong to a checkpoint that is being written."""
    long_ago = time.time() - 2 * times.GRACE
    for ref in refs:
        os.utime(Path(repository_of(checkout).common_dir) / ref, (long_ago, long_ago))


def put(checkout: Checkout, checkpoint: Checkpoint) -> str:
    """Store a checkpoint unchanged with plain git; return its document's oid."""
    oid = checkout.git("hash-object", "-w", "--stdin", data=codec.encode(checkpoint))
    checkout.git("update-ref", f"refs/checkpoints/{checkpoint.id}", oid)
    return oid


def chain(
    checkout: Checkout, *places: tuple[int, str], run: str = RUN, trigger: str = "phase"
) -> list[str]:
    """Store a run without commits from (sequence, label) pairs; return the ids."""
    ids = []
    for sequence, phase in places:
        parent = None if sequence == 1 else number(sequence - 1)
        made = Checkpoint(
            number(sequence),
            phase,
            "2027-01-15T08:00:00.000000Z",
            "",
            trigger,
            run,
            parent,
            sequence,
        )
        oid = put(checkout, made)
        checkout.git("update-ref", f"refs/ckpt/runs/{run}", oid)
        ids.append(made.id)
    return ids


def number(sequence: int) -> str:
    """Return the id of a checkpoint in a `chain`."""
    return f"{sequence:08x}-0000-4000-8000-00000000000a"
