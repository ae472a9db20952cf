"""`verify` names damaged objects, and leaves them in place."""

from __future__ import annotations

import os

import pytest

from gitckpt import Report
from tests.conftest import Checkout, Clock, MakeOnce
from tests.damaging import KINDS, place_of, some, spoil
from tests.store.audit.verifying import look, told
from tests.store.conftest import ONE, MakeStore, require_whole
from tests.stores import open_store

pytestmark = pytest.mark.long

REPAIR = "git ckpt verify --repair"
PLACES = (
    "files/new",
    "files/deep/changed",
    "files/deep/staged",
    "index/0/deep/staged",
    "files/link",
    "files/deep",
)


def read_all(checkout: Checkout, *, repair: bool = False) -> Report:
    """Verify the repository of a checkout, contents included."""
    with open_store(str(checkout.path), clock=Clock()) as store:
        return store.verify(repair=repair, contents=True)


@pytest.fixture
def saved(main_checkout: Checkout, make_store: MakeStore, make_once: MakeOnce) -> Checkout:
    """A checkpoint with new, changed and staged files and a link."""

    def save() -> None:
        main_checkout.write("deep/changed", "one\n")
        main_checkout.write("deep/staged", "one\n")
        main_checkout.commit("second", kept="kept, as ever\n" * 20)
        main_checkout.write("deep/changed", "changed, and not committed\n" * 20)
        main_checkout.write("deep/staged", "staged, and not committed\n" * 20)
        main_checkout.git("add", "deep/staged")
        main_checkout.write("new", "new, and not committed\n" * 20)
        (main_checkout.path / "link").symlink_to("wherever the wind blows, and the rain falls")
        with make_store(main_checkout) as store:
            store.save("one-complete")
        assert told(read_all(main_checkout)) == []

    make_once(main_checkout, save)
    return main_checkout


def oid_of(checkout: Checkout, path: str) -> str:
    return checkout.git("rev-parse", f"refs/ckpt/trees/{ONE}:{path}")


def missing(oid: str) -> tuple[str, str, str]:
    return (
        "objects-missing",
        f"refs/checkpoints/{ONE}",
        f"{oid} is missing or damaged; files or history of the checkpoint need this",
    )


@pytest.mark.long(but=some(PLACES, KINDS))
@pytest.mark.parametrize("how", KINDS)
@pytest.mark.parametrize("path", PLACES)
def test_it_is_found(saved: Checkout, path: str, how: str) -> None:
    """Each look finds empty files; reading everything finds other damage.

    A power cut leaves empty files.
    """
    oid = oid_of(saved, path)
    spoil(place_of(saved, oid), how)
    found = [each[:2] for each in told(read_all(saved))]
    itself = (
        ("object-empty", str(place_of(saved, oid))) if how == "empty" else ("object-damaged", oid)
    )
    assert found == [missing(oid)[:2], itself]
    quick = [each[:2] for each in told(look(saved))]
    assert quick == (found if how == "empty" else [found[0]] if path == "files/deep" else [])


def test_what_nobody_has(saved: Checkout) -> None:
    oid = oid_of(saved, "files/new")
    for how in KINDS[1:]:
        spoil(place_of(saved, oid), how)
    (saved.path / "new").unlink()
    report = read_all(saved, repair=True)
    fetch = f"fetch from a clone that has it: git fetch --refetch --no-tags REMOTE {oid}"
    assert [(finding.code, finding.repaired, finding.cure) for finding in report.findings] == [
        (
            "objects-missing",
            False,
            f"{fetch}; or give the checkpoint up: git ckpt remove {ONE[:8]}",
        ),
        (
            "object-damaged",
            False,
            (
                "move the object's file away; "
                f"then write the object again: git hash-object -w FILE; or {fetch}"
            ),
        ),
    ]
    assert place_of(saved, oid).exists()


@pytest.mark.parametrize("rev", ["refs/notes/checkpoints", "refs/notes/checkpoints^{tree}"])
def test_what_is_damaged_of_notes_is_made_again(saved: Checkout, rev: str) -> None:
    oid = saved.git("rev-parse", rev)
    spoil(place_of(saved, oid), "flipped")
    left = read_all(saved, repair=True)
    assert {finding.object for finding in left.findings if not finding.repaired} <= {oid}
    if not left.is_clean:  # the notes have another commit now
        place_of(saved, oid).unlink()
    assert told(read_all(saved)) == []


def test_the_cure_of_an_empty_file(saved: Checkout) -> None:
    oid = oid_of(saved, "files/new")
    content = (saved.path / "new").read_text()
    spoil(place_of(saved, oid), "empty")
    report = look(saved, repair=True)
    assert [(finding.code, finding.repaired) for finding in report.findings] == [
        ("objects-missing", False),
        ("object-empty", False),
    ]
    assert str(report.findings[1].cure).startswith(
        f"remove the file: rm -f {place_of(saved, oid)}; then write the object again: "
    )
    place_of(saved, oid).unlink()
    saved.git("hash-object", "-w", "--stdin", data=content)
    assert told(read_all(saved)) == []


@pytest.mark.parametrize("ending", ["pack", "idx"])
def test_what_a_pack_that_is_cut_off_had_is_missing(saved: Checkout, ending: str) -> None:
    saved.git("gc", "--quiet")
    (file,) = (saved.path / ".git/objects/pack").glob(f"*.{ending}")
    file.chmod(0o644)
    os.truncate(file, file.stat().st_size - 1)
    assert "checkpoint-unreadable" in {code for code, _, _ in told(look(saved))}


@pytest.mark.long
@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "ref",
    [
        "refs/checkpoints",
        "refs/ckpt/trees",
        "refs/ckpt/runs",
        "refs/ckpt/keys",
        "refs/notes",
        "refs/keep/ckpt",
        "",
    ],
)
def test_what_is_past_mending_can_be_cleared(
    main_checkout: Checkout, make_store: MakeStore, ref: str
) -> None:
    """After the cures, gc works again, and the other checkpoints are whole.

    The target of one of gitckpt's refs is missing, or a linked commit.
    """
    with make_store(main_checkout) as store:
        kept = store.save("one-complete").id
        main_checkout.git("checkout", "--quiet", "--detach")
        main_checkout.commit("second")
        main_checkout.write("new", "new\n")
        store.save("run-started", start="r", key="k")
    main_checkout.git("checkout", "--quiet", "main")
    (main_checkout.path / "new").unlink()
    refs = {
        name: oid
        for name, oid in main_checkout.refs(*filter(None, [ref])).items()
        if name.startswith("refs/keep") or ref
    }
    oids = [oid for name, oid in refs.items() if kept not in name]
    hit = (
        oids[0]
        if ref
        else next(
            name.rpartition("/")[2]
            for name in refs
            if main_checkout.git("rev-parse", "main") not in name
        )
    )
    place_of(main_checkout, hit).unlink()
    main_checkout.git("reflog", "expire", "--expire=now", "--all")
    assert main_checkout.git("gc", "--quiet", "--prune=now", ok=(0, 1, 128)) == ""
    for _ in range(3):
        report = read_all(main_checkout, repair=True)
        for finding in report.findings if not report.is_clean else ():
            cure = str(finding.cure)
            if "git ckpt remove " in cure:
                prefix = cure.rpartition("git ckpt remove ")[2]
                with make_store(main_checkout) as store:
                    store.remove(
                        [
                            name.rpartition("/")[2]
                            for name in main_checkout.refs("refs/checkpoints")
                            if f"/{prefix}" in name
                        ]
                    )
            elif "git update-ref -d " in cure:
                main_checkout.git("update-ref", "-d", cure.rpartition(" ")[2])
    assert read_all(main_checkout).findings == []
    main_checkout.git("gc", "--quiet", "--prune=now")
    assert kept in require_whole(main_checkout)


def test_a_run_head_whose_document_is_gone_waits_for_nobody(main_checkout: Checkout) -> None:
    """A run head without its object is removed at once.

    A young head with an object stays: its run may be about to start.
    """
    oid = main_checkout.git("hash-object", "-w", "--stdin", data="a document\n")
    main_checkout.git("update-ref", "refs/ckpt/runs/r", oid)
    place_of(main_checkout, oid).unlink()
    assert told(look(main_checkout, repair=True)) == [
        ("run-head-orphan", "refs/ckpt/runs/r", "the run of this head has no checkpoints")
    ]
    main_checkout.git("gc", "--quiet", "--prune=now")


def test_a_document_that_is_damaged_can_be_given_up(saved: Checkout, make_store: MakeStore) -> None:
    """Removing a damaged checkpoint makes gc work again."""
    for path in place_of(saved, "1" * 40).parent.parent.glob("??/*"):
        assert path.stat().st_size
    spoil(place_of(saved, saved.git("rev-parse", f"refs/checkpoints/{ONE}")), "empty")
    report = look(saved, repair=True)
    (finding,) = (each for each in report.findings if each.code == "checkpoint-unreadable")
    assert (finding.cure or "").endswith(f"; or give the checkpoint up: git ckpt remove {ONE}")
    saved.git("gc", "--quiet", "--prune=now", ok=(128,))
    with make_store(saved) as store:
        assert store.remove([ONE]) == 1
    look(saved, repair=True)
    saved.git("gc", "--quiet", "--prune=now")
    assert told(read_all(saved)) == []
