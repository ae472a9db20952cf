"""`verify`: runs are chains without gaps, and heads point to their ends.

Expiry may leave gaps.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from gitckpt import Attempt, Checkpoint, Lease, Pipeline, Store
from tests.conftest import Checkout, Clock
from tests.store.audit.verifying import (
    RUN,
    age,
    chain,
    look,
    number,
    put,
    require_left,
    require_mended,
    told,
)
from tests.store.conftest import MakeStore
from tests.stores import SECOND, document_of, lease_document, timestamp

HEAD = f"refs/ckpt/runs/{RUN}"
STAMP = "2027-01-15T08:00:00.000000Z"
STRANGER = "99999999-9999-4999-8999-999999999999"


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "there",
    [
        [(1, "run-started"), (2, "a-started"), (3, "a-complete"), (4, "run-complete")],
        [(1, "run-started"), (2, "a-started"), (5, "a-complete"), (6, "b-started")],
        [(1, "run-started"), (2, "a-started"), (5, "a-skipped")],
        [(1, "run-started"), (2, "a-started"), (4, "a-progress"), (6, "a-complete")],
        [
            (1, "run-started"),
            (2, "a-started"),
            (4, "a-failed"),
            (5, "a-started"),
            (8, "a-complete"),
            (9, "b-started"),
            (11, "b-complete"),
        ],
        [
            (1, "run-started"),
            (2, "out-started"),
            (3, "in-started"),
            (4, "in-complete"),
            (7, "out-complete"),
        ],
    ],
)
def test_a_chain_without_gaps_but_for_the_progress_of_phases_that_are_complete(
    main_checkout: Checkout, there: list[tuple[int, str]]
) -> None:
    chain(main_checkout, *there)
    report = look(main_checkout)
    assert told(report) == []
    assert report.checked["runs"] == 1


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("there", "missing"),
    [
        ([(2, "a-started"), (3, "a-complete")], ["number 1 is missing before 2"]),
        ([(1, "run-started"), (3, "a-complete")], ["number 2 is missing before 3"]),
        (
            [(1, "run-started"), (2, "a-started"), (5, "a-failed")],
            ["numbers 3 to 4 are missing before 5"],
        ),
        (
            [(1, "run-started"), (2, "a-started"), (5, "a-progress")],
            ["numbers 3 to 4 are missing before 5"],
        ),
        (
            [(1, "run-started"), (2, "a-started"), (3, "a-complete"), (5, "b-started")],
            ["number 4 is missing before 5"],
        ),
        (
            [(1, "run-started"), (2, "a-started"), (4, "b-complete")],
            ["number 3 is missing before 4"],
        ),
        (
            [(1, "run-started"), (2, "a-complete"), (4, "run-complete")],
            ["number 3 is missing before 4"],
        ),
        (
            [(3, "a-started"), (5, "b-started"), (8, "b-complete")],
            ["numbers 1 to 2 are missing before 3", "number 4 is missing before 5"],
        ),
    ],
)
def test_a_gap(main_checkout: Checkout, there: list[tuple[int, str]], missing: list[str]) -> None:
    chain(main_checkout, *there)
    assert told(look(main_checkout)) == []  # they were removed
    found = []
    for sentence in missing:
        words, _, after = sentence.rpartition(" ")
        main_checkout.git(
            "update-ref", f"refs/ckpt/trees/{number(int(after) - 1)}", "HEAD^{tree}"
        )  # their refs alone are gone
        found.append(("chain-gap", HEAD, f"{words} {number(int(after))}"))
    seen = require_left(main_checkout, found)
    assert seen.findings[0].cure == (
        "fetch the missing checkpoint from a clone that has it; "
        "or delete leftover refs and notes: git ckpt verify --repair"
    )


@pytest.mark.sampled(3)
@pytest.mark.parametrize("gone", [[1], [2], [3], [2, 3], [1, 2, 3], [4], [3, 4]])
def test_what_was_removed_by_name_is_no_gap(
    make_store: MakeStore, main_checkout: Checkout, gone: list[int]
) -> None:
    store = make_store(main_checkout)
    run = store.record("run-started", {}, start="r").run
    for name in "abc":
        main_checkout.write("new", name)
        store.save(f"{name}-complete", {}, run=run)
    made = {entry.sequence: entry.id for entry in store.list()}
    assert store.remove([made[each] for each in gone]) == len(gone)
    assert told(look(main_checkout)) == []


def test_what_lost_its_ref_alone_is_a_gap(make_store: MakeStore, main_checkout: Checkout) -> None:
    store = make_store(main_checkout)
    run = store.record("run-started", {}, start="r").run
    for name in "abc":
        store.record(f"{name}-complete", {}, run=run)
    store.write_notes()
    third = store.list()[1].id
    main_checkout.git("update-ref", "-d", f"refs/checkpoints/{third}")
    found = [finding for finding in look(main_checkout).findings if finding.code == "chain-gap"]
    assert [finding.sentence for finding in found] == [
        f"number 3 is missing before {store.list()[0].id}"
    ]


def test_what_is_being_removed_is_no_gap(main_checkout: Checkout) -> None:
    """An interrupted removal is no gap in a run.

    Its refs stay until the next removal completes it.
    """
    chain(main_checkout, (1, "run-started"), (3, "a-complete"))
    main_checkout.git("update-ref", f"refs/ckpt/trees/{number(2)}", "HEAD^{tree}")
    assert [code for code, _, _ in told(look(main_checkout))] == ["chain-gap"]
    begun = main_checkout.main / ".git/ckpt/removing"
    begun.parent.mkdir(exist_ok=True)
    begun.write_text(f"{number(2)}\n")
    assert told(look(main_checkout)) == []


def test_a_run_whose_expiry_was_interrupted(main_checkout: Checkout) -> None:
    """A rest of a run whose expiry was interrupted is no gap.

    Expiry deletes the end of a run last, and that end says that the run is complete.
    """
    chain(main_checkout, (4, "run-complete"))
    assert told(look(main_checkout)) == []
    late = Checkpoint(number(9), "commit-complete", STAMP, "", "post-commit", RUN, number(8), 9)
    main_checkout.git("update-ref", HEAD, put(main_checkout, late))
    assert told(look(main_checkout)) == []
    chain(main_checkout, (2, "a-complete"))
    main_checkout.git("update-ref", HEAD, f"refs/checkpoints/{number(9)}")
    for each in (1, 3, 8):
        main_checkout.git("update-ref", f"refs/ckpt/trees/{number(each)}", "HEAD^{tree}")
    assert [code for code, _, _ in told(look(main_checkout))] == [
        "chain-gap",
        "chain-gap",
        "chain-gap",
    ]


def test_what_cannot_be_judged_is_no_gap(main_checkout: Checkout) -> None:
    chain(main_checkout, (1, "run-started"), (2, "a-complete"), (3, "b-complete"))
    ref = f"refs/checkpoints/{number(2)}"
    data = main_checkout.git("cat-file", "blob", ref).replace("version = 1", "version = 2")
    main_checkout.git(
        "update-ref", ref, main_checkout.git("hash-object", "-w", "--stdin", data=data)
    )
    assert [code for code, _, _ in told(look(main_checkout))] == ["checkpoint-newer"]
    oid = main_checkout.refs()[ref]
    main_checkout.git("update-ref", "-d", f"refs/checkpoints/{number(3)}")
    main_checkout.git("update-ref", HEAD, oid)
    assert [code for code, _, _ in told(look(main_checkout))] == ["checkpoint-newer"]


def test_a_fork_and_wrong_parents(main_checkout: Checkout) -> None:
    chain(main_checkout, (1, "run-started"), (2, "a-complete"))
    other, third, fourth = STRANGER, number(3), number(4)
    put(main_checkout, Checkpoint(other, "b-complete", STAMP, "", "phase", RUN, number(1), 2))
    put(main_checkout, Checkpoint(third, "c-complete", STAMP, "", "phase", RUN, other, 3))
    put(main_checkout, Checkpoint(fourth, "d-complete", STAMP, "", "phase", RUN, number(1), 4))
    put(main_checkout, Checkpoint(number(5), "e-complete", STAMP, "", "phase", RUN, None, 5))
    oid = put(
        main_checkout, Checkpoint(number(6), "f-complete", STAMP, "", "phase", RUN, number(77), 6)
    )
    main_checkout.git("update-ref", HEAD, oid)
    require_left(
        main_checkout,
        [
            ("chain-fork", HEAD, f"{other} and {number(2)} are both number 2 of the run"),
            (
                "parent-wrong",
                f"refs/checkpoints/{fourth}",
                f"names {number(1)} as its parent, but {third} is the previous",
            ),
            (
                "parent-wrong",
                f"refs/checkpoints/{number(5)}",
                f"names no parent, but {fourth} is the previous",
            ),
            (
                "parent-missing",
                f"refs/checkpoints/{number(6)}",
                f"the parent {number(77)} of this checkpoint does not exist",
            ),
        ],
    )


def test_the_first_of_a_run_has_no_parent(main_checkout: Checkout) -> None:
    chain(main_checkout, (1, "run-started"))
    run = f"{RUN}-2"
    oid = put(
        main_checkout, Checkpoint(STRANGER, "run-started", STAMP, "", "phase", run, number(1), 1)
    )
    main_checkout.git("update-ref", f"refs/ckpt/runs/{run}", oid)
    sentence = f"names {number(1)} as its parent, but is the run's first"
    require_left(main_checkout, [("parent-wrong", f"refs/checkpoints/{STRANGER}", sentence)])


def test_what_is_named_exists(main_checkout: Checkout) -> None:
    chain(main_checkout, (1, "run-started"), (2, "a-complete"))
    with Store.open(main_checkout.path) as store:
        second = store.read(number(2))
    gone = [number(90 + i) for i in range(4)]
    done = Pipeline(completed={"a": number(2), "b": gone[0]})
    begun = Attempt("c", began=gone[3])
    put(main_checkout, replace(second, pipeline=done, forked_from=gone[1], rewound_to=number(1)))
    third = replace(
        second,
        id=number(3),
        sequence=3,
        parent=number(2),
        pipeline=done,
        rewound_to=gone[2],
        attempt=begun,
    )
    main_checkout.git("update-ref", HEAD, put(main_checkout, third))
    require_left(
        main_checkout,
        [
            (
                "reference-missing",
                f"refs/checkpoints/{name}",
                f"{key} of run {RUN} names {named}, which does not exist",
            )
            for name, key, named in (
                (number(2), "forked_from", gone[1]),
                (number(2), "pipeline.completed.b", gone[0]),
                (number(3), "rewound_to", gone[2]),
                (number(3), "attempt.began", gone[3]),
            )
        ],
    )
    over = Checkpoint(number(4), "run-complete", STAMP, "", "phase", RUN, number(3), 4)
    main_checkout.git("update-ref", HEAD, put(main_checkout, over))
    assert told(look(main_checkout)) == []


# Heads


@pytest.mark.long
def test_heads_are_moved_to_the_newest_checkpoint(main_checkout: Checkout) -> None:
    chain(main_checkout, (1, "run-started"), (2, "a-complete"), (3, "b-complete"))
    other = f"{RUN}-2"
    foreign = put(
        main_checkout, Checkpoint(STRANGER, "run-started", STAMP, "", "phase", other, None, 1)
    )
    main_checkout.git("update-ref", f"refs/ckpt/runs/{other}", foreign)
    gone = document_of(Checkpoint(number(4), "c-complete", STAMP, "", "phase", RUN, number(3), 4))
    before = main_checkout.refs()
    newest = f"the newest checkpoint of the run is {number(3)}"
    for head, code, sentence in (
        (
            None,
            "run-head-missing",
            f"the run has no head; the newest checkpoint of the run is {number(3)}",
        ),
        (
            f"refs/checkpoints/{number(1)}",
            "run-head-lags",
            f"points to {number(1)}, number 1; {newest}",
        ),
        (
            foreign,
            "run-head-wrong",
            f"points to {STRANGER}, which belongs to another run; {newest}",
        ),
        ("HEAD", "run-head-wrong", f"does not point to a checkpoint document; {newest}"),
        (
            main_checkout.git("hash-object", "-w", "--stdin", data=gone),
            "run-head-wrong",
            f"points to {number(4)}, which no longer exists; {newest}",
        ),
    ):
        main_checkout.git("update-ref", *(["-d", HEAD] if head is None else [HEAD, head]))
        require_mended(main_checkout, before, [(code, HEAD, sentence)])


def test_the_head_of_a_run_without_checkpoints_goes_once_it_is_old(main_checkout: Checkout) -> None:
    chain(main_checkout, (1, "run-started"))
    main_checkout.git("update-ref", "-d", f"refs/checkpoints/{number(1)}")
    assert told(look(main_checkout)) == []
    age(main_checkout, HEAD)
    require_mended(
        main_checkout, {}, [("run-head-orphan", HEAD, "the run of this head has no checkpoints")]
    )


@pytest.mark.parametrize("junk", ["junk = ", "HEAD", "of another run"])
def test_a_head_without_checkpoints_that_holds_no_document_of_its_run_goes_at_once(
    main_checkout: Checkout, junk: str
) -> None:
    other = f"{RUN}-other"
    if junk == "of another run":
        chain(main_checkout, (1, "run-started"))
        head = main_checkout.git("rev-parse", f"refs/checkpoints/{number(1)}")
        main_checkout.git("update-ref", "-d", f"refs/checkpoints/{number(1)}")
        main_checkout.git("update-ref", "-d", HEAD)
    else:
        head = (
            junk if junk == "HEAD" else main_checkout.git("hash-object", "-w", "--stdin", data=junk)
        )
    main_checkout.git("update-ref", f"refs/ckpt/runs/{other}", head)
    require_mended(
        main_checkout,
        {},
        [("run-head-orphan", f"refs/ckpt/runs/{other}", "the run of this head has no checkpoints")],
    )


def test_what_a_kill_between_two_refs_leaves_is_mended(
    checkout: Checkout, make_store: MakeStore
) -> None:
    with make_store(checkout) as store:
        run = str(store.record("run-started", start="Add login!").run)
        store.record("a-complete", run=run)
    before = checkout.refs()
    first = checkout.refs()[f"refs/checkpoints/{1:08x}-0000-4000-8000-000000000000"]
    checkout.git("update-ref", f"refs/ckpt/runs/{run}", first)
    assert [code for code, _, _ in told(look(checkout))] == ["run-head-lags"]
    look(checkout, repair=True)
    assert checkout.refs() == before


# Leases


def lease(run: str, *, alive: bool) -> bytes:
    """Return the lease of another machine, current or expired."""
    now = Clock()()
    end = timestamp(now + 60 * SECOND) if alive else STAMP
    return lease_document(
        Lease(
            run,
            3,
            "git ckpt run",
            "elsewhere",
            "its boot",
            "",
            1,
            "1",
            STAMP,
            timestamp(now) if alive else STAMP,
            end,
        )
    )


def hold(checkout: Checkout, run: str, data: bytes) -> str:
    ref = f"refs/ckpt/leases/{run}"
    checkout.git("update-ref", ref, checkout.git("hash-object", "-w", "--stdin", data=data))
    return ref


def test_leases_of_runs_are_in_order(main_checkout: Checkout) -> None:
    chain(main_checkout, (1, "run-started"))
    hold(main_checkout, RUN, lease(RUN, alive=False))
    hold(main_checkout, f"{RUN}-2", lease(f"{RUN}-2", alive=True))
    report = look(main_checkout, repair=True)
    assert (told(report), report.checked["leases"]) == ([], 2)


def test_a_lease_of_no_run_that_nobody_holds_goes(main_checkout: Checkout) -> None:
    ref = hold(main_checkout, RUN, lease(RUN, alive=False))
    require_mended(
        main_checkout, {}, [("lease-orphan", ref, "the run of this lease does not exist")]
    )


def test_what_is_no_lease(main_checkout: Checkout) -> None:
    chain(main_checkout, (1, "run-started"))
    ref = hold(main_checkout, RUN, b"pid = 7")
    other = hold(main_checkout, f"{RUN}-2", lease(RUN, alive=False))
    third = f"refs/ckpt/leases/{RUN}-3"
    main_checkout.git("update-ref", third, "HEAD")
    seen = require_left(
        main_checkout,
        [
            ("lease-invalid", ref, "version: missing"),
            ("lease-invalid", other, f"run: {RUN} is not the ref's name"),
            ("lease-invalid", third, "does not point to a lease"),
        ],
    )
    assert [finding.cure for finding in seen.findings] == [
        f"if the run has no driver: {cure}"
        for cure in (
            f"git ckpt resume {RUN} --take-over",
            f"git update-ref -d {other}",
            f"git update-ref -d {third}",
        )
    ]


def test_a_lease_elsewhere_counts_until_it_expires(main_checkout: Checkout) -> None:
    now = Clock()()
    until = timestamp(now + 60 * SECOND)
    away = Lease(RUN, 1, "git ckpt run", "elsewhere", "b", "n", 1, "s", STAMP, STAMP, until)
    ref = hold(main_checkout, RUN, lease_document(away))
    assert told(look(main_checkout)) == []
    hold(main_checkout, RUN, lease_document(replace(away, expires=STAMP)))
    assert told(look(main_checkout)) == [
        ("lease-orphan", ref, "the run of this lease does not exist")
    ]
