"""`verify` compares derived data with checkpoints and repairs it.

It never changes a checkpoint.
"""

from __future__ import annotations

import os
import shlex
import sqlite3
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from gitckpt import Checkpoint, CkptError, Worktree
from tests import planted
from tests.conftest import Checkout, MakeOnce
from tests.damaging import place_of
from tests.planted import plant
from tests.store.audit.verifying import age, look, put, require_left, require_mended, told
from tests.store.conftest import ONE, THREE, TWO, MakeStore, notes, nth
from tests.stores import common_dir, open_store, private_dir, write_lock

FOUR = nth(4)
STRANGER = "99999999-9999-4999-8999-999999999999"
NOTES = "refs/notes/checkpoints"


def fill(checkout: Checkout, make_store: MakeStore) -> dict[str, str]:
    """Record four checkpoints, and return the refs.

    One is clean, one has a merge in progress with files, and two form a run.
    """
    checkout.git("checkout", "--quiet", "-b", "other")
    checkout.commit("theirs", README="theirs\n")
    checkout.git("checkout", "--quiet", "-")
    checkout.commit("ours", README="ours\n")
    with make_store(checkout) as store:
        store.save("plan-complete")
        checkout.git("merge", "other", ok=(1,))
        store.save("merge-partial")
        checkout.git("merge", "--abort")
        first = store.record("run-started", {"n": 1}, start="Add login!")
        store.record("build-complete", {"n": 2}, run=first.run)
        store.write_notes()
    return checkout.refs()


@pytest.fixture
def filled(checkout: Checkout, make_store: MakeStore, make_once: MakeOnce) -> Checkout:
    if checkout.path == checkout.main:
        make_once(checkout, lambda: fill(checkout, make_store))
    else:
        fill(checkout, make_store)
    return checkout


def test_an_empty_repository_is_clean(make_checkout: Callable[..., Checkout]) -> None:
    report = look(make_checkout("empty"))
    assert (report.findings, report.refused, report.is_clean) == ([], [], True)
    assert set(report.checked.values()) == {0}


@pytest.mark.parametrize("adapter", ["plumbing", "libgit2"])
def test_what_was_recorded_is_clean_and_counted(filled: Checkout, adapter: str) -> None:
    before = filled.fingerprint()
    report = look(filled, repair=True, adapter=adapter)
    assert told(report) == []
    assert report.is_clean
    assert report.checked == {
        "checkpoints": 4,
        "refs": 9,
        "runs": 1,
        "links": 4,
        "leases": 0,
        "worktrees": 0,
    }
    assert filled.fingerprint() == before


@pytest.mark.parametrize("space", ["refs/checkpoints/", "refs/ckpt/runs/", "refs/keep/ckpt/"])
def test_nobody_waits_for_a_pipe_in_the_place_of_a_ref(filled: Checkout, space: str) -> None:
    path = Path(common_dir(filled)) / space / "x"
    path.parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(path)
    with pytest.raises(CkptError, match=f"{path} is a named pipe instead of a ref"):
        look(filled)


@pytest.mark.long
def test_sha256(make_checkout: Callable[..., Checkout], make_store: MakeStore) -> None:
    checkout = make_checkout("sha256", "--object-format=sha256")
    checkout.commit("first", README="hello\n")
    before = fill(checkout, make_store)
    assert told(look(checkout)) == []
    commit = checkout.git("rev-parse", "HEAD")
    assert len(commit) == 64
    checkout.git("update-ref", "-d", f"refs/keep/ckpt/{commit}")
    checkout.git("update-ref", "-d", NOTES)
    sentence = f"no ref keeps {commit}, the linked commit of checkpoint {ONE}"
    missing = ("commit-ref-missing", f"refs/keep/ckpt/{commit}", sentence)
    require_mended(checkout, before, [missing, *unlinked(checkout, ONE, TWO, THREE, FOUR)])


def test_reftable(
    newer_git: str, make_checkout: Callable[..., Checkout], make_store: MakeStore
) -> None:
    checkout = make_checkout("reftable", "--ref-format=reftable")
    checkout.commit("first", README="hello\n")
    before = fill(checkout, make_store)
    checkout.git("update-ref", f"refs/ckpt/trees/{STRANGER}", "HEAD^{tree}")
    leftover = f"refs/ckpt/trees/{STRANGER}"
    require_mended(
        checkout,
        before,
        [("ref-leftover", leftover, "keeps an object for a checkpoint that does not exist")],
    )


def unlinked(checkout: Checkout, *names: str) -> list[tuple[str, str, str]]:
    """Return the findings for checkpoints of HEAD that no note lists."""
    commit = checkout.git("rev-parse", "HEAD")
    return [
        (
            "note-missing",
            f"refs/checkpoints/{name}",
            f"the note of commit {commit} does not list this checkpoint",
        )
        for name in names
    ]


# Refs that keep something alive


@pytest.mark.long
@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("space", "word", "what"),
    [
        ("refs/ckpt/trees", "tree", "snapshot"),
        ("refs/keep/ckpt-operations", "operation", "commit of the operation in progress"),
    ],
)
def test_a_ref_that_keeps_something_is_made_anew(
    filled: Checkout, space: str, word: str, what: str
) -> None:
    before = filled.refs()
    ref = f"{space}/{TWO}"
    filled.git("update-ref", "-d", ref)
    require_mended(
        filled,
        before,
        [
            (
                f"{word}-ref-missing",
                ref,
                f"no ref keeps {before[ref]}, the {what} of the checkpoint",
            )
        ],
    )
    other = filled.git("rev-parse", "HEAD~1" if word != "tree" else "HEAD~1^{tree}")
    filled.git("update-ref", ref, other)
    sentence = f"points to {other}, not to {before[ref]}, the {what} of the checkpoint"
    require_mended(filled, before, [(f"{word}-ref-wrong", ref, sentence)])


@pytest.mark.long
def test_a_commit_that_nothing_keeps_is_kept_again(filled: Checkout) -> None:
    before = filled.refs()
    commit = filled.git("rev-parse", "HEAD")
    ref = f"refs/keep/ckpt/{commit}"
    filled.git("update-ref", "-d", ref)
    require_mended(
        filled,
        before,
        [
            (
                "commit-ref-missing",
                ref,
                f"no ref keeps {commit}, the linked commit of checkpoint {ONE}",
            )
        ],
    )
    below = filled.git("rev-parse", "HEAD~1")
    for oid in (
        below,
        filled.commit("another"),
    ):  # though a child of it does, it should not by that name
        filled.git("update-ref", ref, oid)
        sentence = (
            f"points to {oid}, which does not keep {commit}, the linked commit of checkpoint {ONE}"
        )
        assert told(look(filled)) == [("commit-ref-wrong", ref, sentence)]
        assert look(filled, repair=True).is_clean
    filled.git("update-ref", "refs/keep/ckpt/" + filled.git("rev-parse", "HEAD"), "HEAD")
    filled.git("update-ref", "-d", ref)
    assert told(look(filled)) == []  # a newer one of the line keeps it


def test_a_commit_that_is_gone_is_left_to_a_person(main_checkout: Checkout) -> None:
    gone = "1" * 40
    put(main_checkout, Checkpoint(ONE, "a-complete", "2027-01-15T08:00:00.000000Z", gone, "manual"))
    sentence = f"{gone} is missing or damaged; files or history of the checkpoint need this"
    seen = require_left(main_checkout, [("objects-missing", f"refs/checkpoints/{ONE}", sentence)])
    fetch = "git fetch --no-tags --no-prune REMOTE 'refs/keep/ckpt/*:refs/keep/ckpt/*'"
    assert seen.findings[0].cure == (
        f"fetch from a clone that has it: {fetch}; "
        "or give the checkpoint up: git ckpt remove 00000001"
    )


@pytest.mark.long
def test_what_keeps_a_commit_for_nobody(filled: Checkout) -> None:
    before = filled.refs()
    alone, wrong, nameless = (
        filled.git("commit-tree", "HEAD^{tree}", "-m", "x"),
        "2" * 40,
        "refs/keep/ckpt/of-nobody",
    )
    refs = [f"refs/keep/ckpt/{alone}", f"refs/keep/ckpt/{wrong}", nameless]
    for ref, rev in zip(refs, (alone, "HEAD~1", "HEAD"), strict=True):
        filled.git("update-ref", ref, rev)
    assert told(look(filled, repair=True)) == []
    age(filled, *refs)
    unlike = "does not point to the commit that the ref is named after"
    found = [
        ("ref-leftover", refs[0], "keeps a commit that no checkpoint needs"),
        *(("ref-leftover", ref, unlike) for ref in refs[1:]),
    ]
    assert sorted(told(look(filled))) == sorted(found)
    assert look(filled, repair=True).is_clean
    assert filled.refs() == before


def test_a_document_that_names_another_kind_of_object(main_checkout: Checkout) -> None:
    tree = main_checkout.git("rev-parse", "HEAD^{tree}")
    put(main_checkout, Checkpoint(ONE, "a-complete", "2027-01-15T08:00:00.000000Z", tree, "manual"))
    sentence = f"the checkpoint names {tree}, which is a tree, not a commit"
    require_left(main_checkout, [("commit-ref-wrong", f"refs/checkpoints/{ONE}", sentence)])


def test_leftovers_are_reported_once_they_are_old(filled: Checkout) -> None:
    before = filled.refs()
    commit, tree, extra = (
        f"refs/keep/ckpt-operations/{STRANGER}",
        "refs/ckpt/trees/of-nobody",
        f"refs/ckpt/trees/{ONE}",
    )
    filled.git("update-ref", commit, "HEAD")
    filled.git("update-ref", tree, "HEAD^{tree}")
    filled.git("update-ref", extra, "HEAD^{tree}")
    assert told(look(filled, repair=True)) == []
    assert filled.refs().keys() - before.keys() == {commit, tree, extra}
    age(filled, commit, tree, extra)
    sentence = "keeps an object for a checkpoint that does not exist"
    found = [
        ("ref-leftover", extra, "the checkpoint of this ref has no snapshot"),
        ("ref-leftover", tree, sentence),
        ("ref-leftover", commit, sentence),
    ]
    require_mended(filled, before, found)


def test_leftovers_stay_while_a_checkpoint_is_being_written(
    main_checkout: Checkout, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch, planted.REF_NAMES_PATIENCE, 0.0)
    ref = f"refs/ckpt/trees/{STRANGER}"
    main_checkout.git("update-ref", ref, "HEAD^{tree}")
    age(main_checkout, ref)
    with write_lock(main_checkout) as held:
        assert held
        found = [("ref-leftover", ref, "keeps an object for a checkpoint that does not exist")]
        assert told(look(main_checkout, repair=True)) == found
        assert ref in main_checkout.refs()


@pytest.mark.parametrize("ref", [f"refs/ckpt/trees/{ONE}", f"refs/ckpt/trees/{ONE}\u2028b"])
def test_a_broken_ref(main_checkout: Checkout, ref: str) -> None:
    place = main_checkout.path / ".git" / ref
    place.parent.mkdir(parents=True)
    place.touch()
    seen = require_left(main_checkout, [("broken-ref", ref, "git cannot read this ref")])
    command, _, word = str(seen.findings[0].cure).partition(" ")
    named = subprocess.run(["sh", "-c", f"printf %s {word}"], capture_output=True, check=True)
    assert (command, os.fsdecode(named.stdout)) == ("rm", str(place))


def test_what_git_refuses_is_told(main_checkout: Checkout, make_store: MakeStore) -> None:
    with make_store(main_checkout) as store:
        store.record("plan-complete")
    commit = main_checkout.git("rev-parse", "HEAD")
    ref = f"refs/keep/ckpt/{commit}"
    main_checkout.git("update-ref", "-d", ref)
    (main_checkout.path / ".git" / ref).mkdir(parents=True)
    (main_checkout.path / ".git" / ref / "in-the-way.lock").touch()
    report = look(main_checkout, repair=True)
    assert told(report) == [
        ("commit-ref-missing", ref, f"no ref keeps {commit}, the linked commit of checkpoint {ONE}")
    ]
    assert len(report.refused) == 1
    assert report.refused[0].startswith(f"{ref}: git update-ref failed: ")
    assert not report.is_clean


# Notes and the index


@pytest.mark.long
def test_notes_that_are_gone(filled: Checkout) -> None:
    before = filled.refs()
    filled.git("update-ref", "-d", NOTES)
    require_mended(filled, before, unlinked(filled, ONE, TWO, THREE, FOUR))
    assert filled.git("notes", "--ref=checkpoints", "show", "HEAD").count("\n") == 3


@pytest.mark.long
def test_notes_whose_commit_is_gone(filled: Checkout) -> None:
    before = filled.refs()
    tip = Path(common_dir(filled)) / "objects" / before[NOTES][:2] / before[NOTES][2:]
    tip.unlink()
    require_mended(filled, before, unlinked(filled, ONE, TWO, THREE, FOUR))


@pytest.mark.long
def test_a_link_is_missing_only_where_no_note_lists_it(filled: Checkout) -> None:
    """A link counts where the note of the amended commit lists the checkpoint.

    Git copied the note there, and the note of the old commit was lost.
    """
    commit = filled.git("rev-parse", "HEAD")
    filled.git("commit", "--quiet", "--amend", "-m", "reworded")
    filled.git("notes", "--ref=checkpoints", "copy", commit, "HEAD")
    assert told(look(filled)) == []
    filled.git("notes", "--ref=checkpoints", "remove", commit)
    assert told(look(filled)) == []


@pytest.mark.long
def test_stray_lines(filled: Checkout) -> None:
    before = filled.refs()
    commit = filled.git("rev-parse", "HEAD")
    text = filled.git("notes", "--ref=checkpoints", "show", "HEAD")
    wrong = text.replace("plan-complete", "plan-failed")
    lines = f"{wrong}\n{STRANGER} x-complete 2027-01-15T08:00:00.000000Z\nwritten by a person\n"
    filled.git("notes", "--ref=checkpoints", "add", "--force", "--file=-", "HEAD", data=lines)
    found = [
        (
            "note-stray",
            NOTES,
            f"the note of {commit} and the document of {ONE} differ",
        ),
        ("note-stray", NOTES, f"the note of {commit} lists {STRANGER}, which does not exist"),
    ]
    require_mended(filled, before, found)
    kept = filled.git("notes", "--ref=checkpoints", "show", "HEAD").splitlines()
    assert sorted(kept) == sorted([*text.splitlines(), "written by a person"])


def blob(id_: str) -> str:
    """Return an id as SQL."""
    return f"x'{id_.replace('-', '')}'"


@pytest.mark.long
def test_an_index_that_says_something_else(
    filled: Checkout, monkeypatch: pytest.MonkeyPatch
) -> None:
    for point in (
        planted.REF_SETTLED_SECONDS,
        planted.REF_FINELY_SETTLED_SECONDS,
    ):  # young refs would be read again
        plant(monkeypatch, point, 0)
    with open_store(str(filled.path)) as store:
        wanted = [(entry.id, entry.label) for entry in store.list()]
        path = os.path.join(private_dir(store), "index.sqlite")
    before = filled.refs()
    for damage, said in (
        ("UPDATE entry SET label = 'made-up' WHERE run IS NULL", f"{ONE} and 1 more"),
        ("DELETE FROM entry", f"{ONE} and 3 more"),
        (f"UPDATE entry SET id = {blob(STRANGER)} WHERE id = {blob(TWO)}", f"{TWO} and 1 more"),
        (f"UPDATE entry SET git_sha = x'' WHERE id = {blob(FOUR)}", FOUR),
    ):
        connection = sqlite3.connect(path)
        with connection:
            connection.execute(damage)
        connection.close()
        require_mended(
            filled, before, [("index-stale", path, f"differs from the documents of {said}")]
        )
    with open_store(str(filled.path)) as store:
        assert [(entry.id, entry.label) for entry in store.list()] == wanted


# Documents


DAMAGE: list[tuple[str, Callable[[bytes], bytes], str]] = [
    ("checkpoint-invalid", lambda data: data + b"[", "not TOML: "),
    ("checkpoint-invalid", lambda data: b"\xff" + data, "not UTF-8 (byte 0)"),
    (
        "checkpoint-invalid",
        lambda data: data.replace(b'"manual"', b"7"),
        "trigger: must be a string, not 7",
    ),
    (
        "checkpoint-newer",
        lambda data: data.replace(b"version = 1", b"version = 2"),
        "cannot be checked: version: written by a newer",
    ),
    (
        "checkpoint-misnamed",
        lambda data: data.replace(ONE.encode(), TWO.encode()),
        f"id: {TWO} is not the ref's name",
    ),
]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("code", "damage", "sentence"), DAMAGE)
def test_a_document_that_is_damaged(
    checkout: Checkout,
    make_store: MakeStore,
    code: str,
    damage: Callable[[bytes], bytes],
    sentence: str,
) -> None:
    with make_store(checkout) as store:
        store.record("plan-complete")
        data = store.raw(ONE)
    ref = f"refs/checkpoints/{ONE}"
    checkout.git("update-ref", ref, checkout.git("hash-object", "-w", "--stdin", data=damage(data)))
    (checkout.main / ".git/ckpt" / "written").unlink()  # as if it was fetched
    (found,) = look(checkout).findings
    assert (found.code, found.object, found.sentence[: len(sentence)]) == (code, ref, sentence)
    require_left(checkout, [(code, ref, found.sentence)])
    remove = (
        f"inspect the document: git cat-file -p {ref}; remove the checkpoint: git ckpt remove {ONE}"
    )
    assert found.cure == (
        "upgrade gitckpt: pip install -U gitckpt" if code.endswith("newer") else remove
    )


def test_what_is_no_document_at_all(main_checkout: Checkout, make_store: MakeStore) -> None:
    with make_store(main_checkout) as store:
        store.record("plan-complete")
        oid = store.list()[0].oid
    odd = f"refs/checkpoints/{STRANGER}"
    main_checkout.git("update-ref", odd, "HEAD")
    path = main_checkout.path / ".git/objects" / oid[:2] / oid[2:]
    content = path.read_bytes()
    invalid = ("checkpoint-invalid", odd, "points to a commit, not to a blob")
    unreadable = (
        "checkpoint-unreadable",
        f"refs/checkpoints/{ONE}",
        f"the object {oid} is missing or damaged",
    )
    path.unlink()
    seen = require_left(main_checkout, [unreadable, invalid])
    ref = f"refs/checkpoints/{ONE}"
    assert [finding.cure for finding in seen.findings] == [
        (
            "fetch it from a clone that has it: git fetch --no-tags --no-prune REMOTE "
            f"+{ref}:{ref}; or give the checkpoint up: git ckpt remove {ONE}"
        ),
        (
            f"inspect the document: git cat-file -p {odd}; "
            f"remove the checkpoint: git ckpt remove {STRANGER}"
        ),
    ]
    path.write_bytes(content[:20])
    require_left(main_checkout, [unreadable, invalid])


# Beside others


def test_a_checkpoint_that_is_being_written_is_no_flaw(
    main_checkout: Checkout, make_store: MakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkpoint in the middle of its transaction is no finding.

    A second look sees all of its refs.
    """
    with make_store(main_checkout) as store:
        store.record("plan-complete")
    commit = main_checkout.git("rev-parse", "HEAD")
    ref = f"refs/keep/ckpt/{commit}"
    main_checkout.git("update-ref", "-d", ref)
    real = planted.original(planted.AUDIT_OBJECTS)

    def meanwhile(*args: object) -> object:
        main_checkout.git("update-ref", ref, commit)
        return real(*args)

    plant(monkeypatch, planted.AUDIT_OBJECTS, meanwhile)
    assert told(look(main_checkout)) == []
    plant(monkeypatch, planted.AUDIT_OBJECTS, real)
    main_checkout.git("update-ref", "-d", ref)
    assert [code for code, _, _ in told(look(main_checkout))] == ["commit-ref-missing"]


def test_what_changed_meanwhile_is_left_as_it_is(
    main_checkout: Checkout, make_store: MakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:

    with make_store(main_checkout) as store:
        store.record("plan-complete")
    ref = f"refs/keep/ckpt/{main_checkout.git('rev-parse', 'HEAD')}"
    other = main_checkout.commit("another")
    main_checkout.git("update-ref", "-d", ref)
    real = planted.original(planted.MEND_OBJECTS)

    def meanwhile(*args: object) -> object:
        main_checkout.git("update-ref", ref, other)
        return real(*args)

    plant(monkeypatch, planted.MEND_OBJECTS, meanwhile)
    with make_store(main_checkout) as store:
        assert [finding.code for finding in store.verify(repair=True).findings] == [
            "commit-ref-missing",
            "commit-ref-wrong",
        ]
    assert main_checkout.refs()[ref] == other


def test_a_checkpoint_that_is_removed_meanwhile_gets_no_refs(
    main_checkout: Checkout, make_store: MakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:

    with make_store(main_checkout) as store:
        store.record("run-started", start="work")
    main_checkout.git(
        "update-ref", "-d", f"refs/keep/ckpt/{main_checkout.git('rev-parse', 'HEAD')}"
    )
    main_checkout.git(
        "update-ref",
        "-d",
        f"refs/ckpt/runs/{next(iter(main_checkout.refs('refs/ckpt/runs'))).rpartition('/')[2]}",
    )
    main_checkout.git("update-ref", "-d", NOTES)
    real = planted.original(planted.MEND_OBJECTS)

    def meanwhile(*args: object) -> object:
        main_checkout.git("update-ref", "-d", f"refs/checkpoints/{ONE}")
        return real(*args)

    plant(monkeypatch, planted.MEND_OBJECTS, meanwhile)
    look(main_checkout, repair=True)
    assert main_checkout.refs("refs/checkpoints", "refs/ckpt") == {}
    assert notes(main_checkout) == {}


def test_a_snapshot_without_a_commit_is_clean(
    make_checkout: Callable[..., Checkout], make_store: MakeStore
) -> None:
    checkout = make_checkout("unborn")
    checkout.write("new", "work\n")
    with make_store(checkout) as store:
        saved = store.save("half-complete")
        assert isinstance(saved.worktree, Worktree)
        assert saved.worktree.tree
    assert told(look(checkout)) == []


@pytest.mark.parametrize("ref", ["refs/heads/side", "refs/tags/v1", "refs/remotes/origin/side"])
def test_a_ref_whose_object_is_gone(
    main_checkout: Checkout, make_store: MakeStore, ref: str
) -> None:
    """A ref to a missing commit is reported with a cure.

    A gc during a commit deletes the commit; then `git branch` and every gc fail.
    """
    with make_store(main_checkout) as store:
        store.save("a-complete")
        main_checkout.git("update-ref", ref, "HEAD")
        oid = main_checkout.git("commit-tree", "-m", "side", "HEAD^{tree}")
        main_checkout.git("update-ref", ref, oid)
        assert told(look(main_checkout)) == []
        place_of(main_checkout, oid).unlink()
        found = (
            "ref-target-missing",
            ref,
            f"points to {oid}, which is missing or damaged: every git gc fails",
        )
        (finding,) = require_left(main_checkout, [found]).findings
        assert [each for each in store.examine().findings if each.code == finding.code] == [finding]
    fetch, _, back = str(finding.cure).partition(
        "; or go back to the previous value, if the reflog has one: "
    )
    assert fetch == f"fetch it from a clone that has it: git fetch --refetch --no-tags REMOTE {oid}"
    if ref.startswith("refs/heads/"):
        main_checkout.git(*shlex.split(back)[1:])
        assert told(look(main_checkout)) == []


@pytest.mark.parametrize("place", ["main", "linked"])
def test_a_detached_head_whose_commit_is_gone(
    main_checkout: Checkout, tmp_path: Path, place: str
) -> None:
    there = main_checkout
    if place == "linked":
        main_checkout.git("worktree", "add", "--quiet", "--detach", str(tmp_path / "linked"))
        there = Checkout(tmp_path / "linked")
    there.git("checkout", "--quiet", "--detach")
    oid = there.commit("lost", README="other\n")
    assert told(look(main_checkout)) == []
    place_of(main_checkout, oid).unlink()
    name = "worktrees/linked/HEAD" if place == "linked" else "main-worktree/HEAD"
    (finding,) = look(main_checkout).findings
    assert (finding.code, finding.object) == ("ref-target-missing", name)
    main_checkout.git(*shlex.split(str(finding.cure).rpartition(": ")[2])[1:])
    assert told(look(main_checkout)) == []
    main_checkout.git("gc", "--quiet")


@pytest.mark.parametrize("lost", [[0], [0, 1], [0, 1, 2]])
def test_stashes_that_are_gone_are_dropped_as_is_told(
    main_checkout: Checkout, lost: list[int]
) -> None:
    """The cure drops the broken stashes and no others.

    No clone has a stash, and `git stash drop` fails on a broken one.
    """
    for number in range(3):
        main_checkout.write("README", f"{number}\n")
        main_checkout.git("stash", "--quiet")
    stashes = [main_checkout.git("rev-parse", f"refs/stash@{{{number}}}") for number in range(3)]
    for number in lost:
        place_of(main_checkout, stashes[number]).unlink()
    for _ in lost:
        (finding,) = look(main_checkout).findings
        main_checkout.git(*shlex.split(str(finding.cure).partition("; or drop the stash: ")[2])[1:])
    assert told(look(main_checkout)) == []
    assert main_checkout.git("stash", "list", "--format=%H").split() == stashes[len(lost) :]
