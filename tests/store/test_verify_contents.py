"""`verify` and damaged objects: found, and written anew where their content still is."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from gitckpt.git.process import git_executable
from gitckpt.git.repository import discover
from gitckpt.store.audit.verification import Report, verify
from gitckpt.store.checkpoints import Checkpoints
from gitckpt.store.store import Store, inside
from tests.conftest import Checkout, Clock, MakeOnce
from tests.damaging import KINDS, place_of, some, spoil, spoil_packed
from tests.store.conftest import ONE, MakeStore, require_whole
from tests.store.verifying import look, told

pytestmark = pytest.mark.long

REPAIR = "git ckpt verify --repair"
PLACES = ("files/new", "files/deep/changed", "files/deep/staged", "index/0/deep/staged", "files/link", "files/deep")


def read_all(checkout: Checkout, *, repair: bool = False) -> Report:
    """Verifies the repository of a checkout, contents and all."""
    with Store(Checkpoints(discover(str(checkout.path)), adapter="plumbing", clock=Clock())) as store:
        return verify(inside(store), repair=repair, contents=True)


@pytest.fixture
def saved(main_checkout: Checkout, make_store: MakeStore, make_once: MakeOnce) -> Checkout:
    """A checkpoint of a commit and of files that are new, changed, staged, and a link."""

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
    return "objects-missing", f"refs/checkpoints/{ONE}", f"{oid} is missing or damaged, which its files or history need"


@pytest.mark.long(but=some(PLACES, KINDS))
@pytest.mark.parametrize("how", KINDS)
@pytest.mark.parametrize("path", PLACES)
def test_it_is_found(saved: Checkout, path: str, how: str) -> None:
    """Files of length zero, which a power cut leaves, at each look; the others by reading everything."""
    oid = oid_of(saved, path)
    spoil(place_of(saved, oid), how)
    found = [each[:2] for each in told(read_all(saved))]
    itself = ("object-empty", str(place_of(saved, oid))) if how == "empty" else ("object-damaged", oid)
    assert found == [missing(oid)[:2], itself]
    quick = [each[:2] for each in told(look(saved))]
    assert quick == (found if how == "empty" else [found[0]] if path == "files/deep" else [])


@pytest.mark.long(but=some(PLACES[:5], [*KINDS, "missing"]))
@pytest.mark.parametrize("how", [*KINDS, "missing"])
@pytest.mark.parametrize("path", PLACES[:5])
def test_it_is_written_anew_from_the_file(saved: Checkout, path: str, how: str) -> None:
    oid = oid_of(saved, path)
    if how == "missing":
        place_of(saved, oid).unlink()
    else:
        spoil(place_of(saved, oid), how)
    before = {finding.cure for finding in read_all(saved).findings}
    assert before == {REPAIR}
    mended = read_all(saved, repair=True)
    assert mended.is_clean
    assert mended.refused == []
    assert told(read_all(saved)) == []
    assert not place_of(saved, oid).stat().st_mode & 0o222
    require_whole(saved)
    assert saved.git("fsck", "--no-dangling") == ""


def test_filters_apply_to_the_file(main_checkout: Checkout, make_store: MakeStore) -> None:
    main_checkout.write(".gitattributes", "*.up filter=up\n")
    main_checkout.git("config", "filter.up.clean", "tr a-z A-Z")
    main_checkout.write("loud.up", "it was said in a whisper\n")
    with make_store(main_checkout) as store:
        store.save("one-complete")
    oid = oid_of(main_checkout, "files/loud.up")
    assert main_checkout.git("cat-file", "blob", oid) == "IT WAS SAID IN A WHISPER"
    spoil(place_of(main_checkout, oid), "empty")
    assert look(main_checkout, repair=True).is_clean
    assert main_checkout.git("cat-file", "blob", oid) == "IT WAS SAID IN A WHISPER"


def test_what_was_committed_is_in_another_worktree(saved: Checkout, tmp_path: Path) -> None:
    """By the path that it has in the history, and by the index."""
    saved.git("worktree", "add", "--quiet", "--detach", str(tmp_path / "other"), "HEAD")
    blob, tree = saved.git("rev-parse", "HEAD:kept"), saved.git("rev-parse", "HEAD:deep")
    saved.write("kept", "something else\n")
    for oid in (blob, tree):
        spoil(place_of(saved, oid), "empty")
    found = read_all(saved, repair=True)
    assert found.is_clean
    assert f"; its content is in {tmp_path}/other/kept" in "".join(finding.sentence for finding in found.findings)
    assert told(read_all(saved)) == []
    require_whole(saved)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["a remote", "a bare remote", "a store that is borrowed from"])
def test_it_is_in_another_store(saved: Checkout, tmp_path: Path, kind: str) -> None:
    other = Checkout(tmp_path / "other")
    options = ["--bare"] if kind == "a bare remote" else []
    subprocess.run([git_executable(), "clone", "--quiet", "--no-local", *options, str(saved.path), str(other.path)], check=True)
    store = other.path / ("objects" if options else ".git/objects")
    if kind == "a store that is borrowed from":
        (saved.path / ".git/objects/info").mkdir(exist_ok=True)
        (saved.path / ".git/objects/info/alternates").write_text(f"{store}\n")
        for pack in store.glob("pack/*.pack"):  # of one that is packed, git would have taken the objects by itself
            other.git("unpack-objects", "-q", data=pack.rename(tmp_path / "pack").read_bytes())
    else:
        saved.git("remote", "add", "elsewhere", f"file://{other.path}" if options else os.path.relpath(other.path, saved.path))
    oids = saved.git("rev-list", "--objects", "--no-object-names", "HEAD").splitlines()
    for name in ("README", "kept", "deep"):
        target = saved.path / name
        shutil.rmtree(target) if target.is_dir() else target.unlink()
    (saved.path / ".git/index").unlink()
    # The commits stay readable: a HEAD that cannot be read is no repository that anything can be done in.
    hit = [oid for oid in oids if saved.git("cat-file", "-t", oid) != "commit"]
    for oid in hit:
        spoil(place_of(saved, oid), "cut")
    assert {finding.cure for finding in read_all(saved).findings} == {REPAIR}
    mended = read_all(saved, repair=True)
    assert mended.is_clean
    assert {finding.object for finding in mended.findings if finding.code == "object-damaged"} == set(hit)
    assert told(read_all(saved)) == []


def test_what_is_borrowed_is_left_to_its_owner(saved: Checkout, tmp_path: Path) -> None:
    """An empty file there is nothing that we may delete, also where the content is found, and written here."""
    oid, lender = oid_of(saved, "files/new"), tmp_path / "lender"
    (saved.path / ".git/objects").rename(lender)
    for name in ("info", "pack"):
        (saved.path / ".git/objects" / name).mkdir(parents=True)
    (saved.path / ".git/objects/info/alternates").write_text(f"{lender}\n")
    path = lender / oid[:2] / oid[2:]
    spoil(path, "empty")
    mended = read_all(saved, repair=True)
    assert [(each.code, each.repaired) for each in mended.findings] == [("objects-missing", True), ("object-empty", False)]
    assert mended.findings[1].cure == "in the repository that has it, this one borrows from it: git ckpt verify --repair"
    assert (path.read_bytes(), place_of(saved, oid).stat().st_size > 0) == (b"", True)
    require_whole(saved)


def test_what_nobody_has(saved: Checkout) -> None:
    oid = oid_of(saved, "files/new")
    for how in KINDS[1:]:
        spoil(place_of(saved, oid), how)
    (saved.path / "new").unlink()
    report = read_all(saved, repair=True)
    fetch = f"fetch from a clone that has it: git fetch --refetch --no-tags REMOTE {oid}"
    assert [(finding.code, finding.repaired, finding.cure) for finding in report.findings] == [
        ("objects-missing", False, f"{fetch}; or give it up: git ckpt remove {ONE[:8]}"),
        ("object-damaged", False, f"put it aside, and {fetch}; see what else is wrong: git fsck"),
    ]
    assert place_of(saved, oid).exists()


@pytest.mark.parametrize("place", ["", "files/deep", "files/new", "document"])
def test_what_nothing_needs_any_more_is_put_aside(saved: Checkout, make_store: MakeStore, place: str) -> None:
    oid = saved.git("rev-parse", f"refs/checkpoints/{ONE}") if place == "document" else oid_of(saved, place)
    for name in ("new", "deep/changed"):
        saved.write(name, "another\n")
    spoil(place_of(saved, oid), "flipped")
    left = place_of(saved, oid).read_bytes()
    assert not read_all(saved, repair=True).is_clean
    assert place_of(saved, oid).read_bytes() == left
    with make_store(saved) as store:
        store.remove([ONE])
    (finding,) = read_all(saved).findings
    assert (finding.code, finding.object, finding.cure) == ("object-damaged", oid, f"{REPAIR} --contents")
    assert finding.sentence == "its content is not what it was; no ref, reflog or index needs it"
    mended = read_all(saved, repair=True)
    assert [(each.object, each.repaired) for each in mended.findings] == [(oid, True)]
    assert (saved.path / ".git/ckpt/damaged" / oid).read_bytes() == left
    assert told(read_all(saved)) == []


@pytest.mark.parametrize("rev", ["refs/notes/checkpoints", "refs/notes/checkpoints^{tree}"])
def test_what_is_damaged_of_notes_is_put_aside_once_they_are_made_anew(saved: Checkout, rev: str) -> None:
    oid = saved.git("rev-parse", rev)
    spoil(place_of(saved, oid), "flipped")
    assert read_all(saved, repair=True).is_clean
    assert (saved.path / ".git/ckpt/damaged" / oid).exists()
    assert told(read_all(saved)) == []


@pytest.mark.parametrize("holder", ["reflog", "index of a worktree"])
def test_what_only_the_user_needs_stays(saved: Checkout, tmp_path: Path, holder: str) -> None:
    if holder == "reflog":
        saved.commit("dropped", dropped="dropped\n")
        oid = saved.git("rev-parse", "HEAD:dropped")
        saved.git("reset", "--quiet", "--hard", "HEAD~1")
    else:
        other = tmp_path / "other"
        saved.git("worktree", "add", "--quiet", "--detach", str(other))
        (other / "staged").write_text("staged\n", "utf-8")
        saved.git("-C", str(other), "add", "staged")
        oid = saved.git("-C", str(other), "rev-parse", ":staged")
        (other / "staged").unlink()
    spoil(place_of(saved, oid), "flipped")
    (finding,) = read_all(saved, repair=True).findings
    assert (finding.object, finding.repaired, finding.sentence) == (oid, False, "its content is not what it was")
    assert place_of(saved, oid).exists()


def test_what_nothing_needs_in_a_pack_does_no_harm(saved: Checkout, make_store: MakeStore) -> None:
    oid = oid_of(saved, "files/new")
    saved.git("gc", "--quiet", "--prune=now")
    spoil_packed(saved, oid)
    saved.write("new", "another\n")
    with make_store(saved) as store:
        store.remove([ONE])
    found = [finding for finding in read_all(saved, repair=True).findings if not finding.repaired]  # others may be deltas to it
    assert oid in {finding.object for finding in found}
    assert {(finding.code, finding.cure) for finding in found} == {("object-damaged", "git gc --prune=now")}
    assert all(finding.sentence.endswith("no ref, reflog or index needs it, so it does no harm") for finding in found)
    saved.git("gc", "--quiet", "--prune=now")
    assert told(read_all(saved)) == []


def test_what_is_empty_goes_even_if_nobody_has_it(saved: Checkout) -> None:
    """It holds nothing, and git would neither write nor fetch it as long as it is there."""
    oid = oid_of(saved, "files/new")
    content = (saved.path / "new").read_text()
    (saved.path / "new").unlink()
    other = saved.git("hash-object", "-w", "--stdin", data="of nobody\n")
    for each in (oid, other):
        spoil(place_of(saved, each), "empty")
    seen = look(saved)
    assert [finding.object for finding in seen.findings] == [
        f"refs/checkpoints/{ONE}",
        *sorted(str(place_of(saved, each)) for each in (oid, other)),
    ]
    report = look(saved, repair=True)
    assert [(finding.code, finding.repaired) for finding in report.findings] == [
        ("objects-missing", False),
        ("object-empty", True),
        ("object-empty", True),
    ]
    assert not place_of(saved, oid).exists()
    saved.git("hash-object", "-w", "--stdin", data=content)
    assert told(read_all(saved)) == []


def test_a_pack_that_is_cut_off(saved: Checkout) -> None:
    saved.git("gc", "--quiet")
    (pack,) = (saved.path / ".git/objects/pack").glob("*.pack")
    (index,) = (saved.path / ".git/objects/pack").glob("*.idx")
    kept = index.read_bytes()
    index.chmod(0o644)
    index.write_bytes(b"")
    ((_, what, sentence),) = (each for each in told(look(saved)) if each[0] == "pack-damaged")
    assert (what, sentence) == (str(index), "is cut off: git does not use it")
    (cure,) = (finding.cure for finding in look(saved).findings if finding.code == "pack-damaged")
    index.unlink()
    subprocess.run(str(cure), shell=True, check=True, cwd=saved.path, stdout=subprocess.DEVNULL)
    assert index.read_bytes() == kept
    assert told(read_all(saved)) == []
    pack.chmod(0o644)
    os.truncate(pack, pack.stat().st_size - 1)
    codes = {code for code, _, _ in told(look(saved))}
    assert {"pack-damaged", "checkpoint-unreadable"} <= codes


@pytest.mark.long
@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "ref", ["refs/checkpoints", "refs/ckpt/trees", "refs/ckpt/runs", "refs/ckpt/keys", "refs/notes", "refs/keep/ckpt", ""]
)
def test_what_is_past_mending_can_be_cleared(main_checkout: Checkout, make_store: MakeStore, ref: str) -> None:
    """What a ref of ours points to is gone, or the linked commit: by the cures, git collects garbage again, and the rest is whole."""
    with make_store(main_checkout) as store:
        kept = store.save("one-complete").id
        main_checkout.git("checkout", "--quiet", "--detach")
        main_checkout.commit("second")
        main_checkout.write("new", "new\n")
        store.save("run-started", start="r", key="k")
    main_checkout.git("checkout", "--quiet", "main")
    (main_checkout.path / "new").unlink()
    refs = {name: oid for name, oid in main_checkout.refs(*filter(None, [ref])).items() if name.startswith("refs/keep") or ref}
    oids = [oid for name, oid in refs.items() if kept not in name]
    hit = oids[0] if ref else next(name.rpartition("/")[2] for name in refs if main_checkout.git("rev-parse", "main") not in name)
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
                    store.remove([name.rpartition("/")[2] for name in main_checkout.refs("refs/checkpoints") if f"/{prefix}" in name])
            elif "git update-ref -d " in cure:
                main_checkout.git("update-ref", "-d", cure.rpartition(" ")[2])
    assert read_all(main_checkout).findings == []
    main_checkout.git("gc", "--quiet", "--prune=now")
    assert kept in require_whole(main_checkout)


def test_a_run_head_whose_document_is_gone_waits_for_nobody(main_checkout: Checkout) -> None:
    """One that is young may belong to a run that is about to start, but not where its object is missing."""
    oid = main_checkout.git("hash-object", "-w", "--stdin", data="a document\n")
    main_checkout.git("update-ref", "refs/ckpt/runs/r", oid)
    place_of(main_checkout, oid).unlink()
    assert told(look(main_checkout, repair=True)) == [("run-head-orphan", "refs/ckpt/runs/r", "no checkpoint of the run exists")]
    main_checkout.git("gc", "--quiet", "--prune=now")


def test_a_document_that_is_damaged_can_be_given_up(saved: Checkout, make_store: MakeStore) -> None:
    """Nothing but its ref tells of it any more; with that gone, git collects garbage again."""
    for path in place_of(saved, "1" * 40).parent.parent.glob("??/*"):
        assert path.stat().st_size
    spoil(place_of(saved, saved.git("rev-parse", f"refs/checkpoints/{ONE}")), "empty")
    report = look(saved, repair=True)
    (finding,) = (each for each in report.findings if each.code == "checkpoint-unreadable")
    assert (finding.cure or "").endswith(f"; or give it up: git ckpt remove {ONE}")
    saved.git("gc", "--quiet", "--prune=now", ok=(128,))
    with make_store(saved) as store:
        assert store.remove([ONE]) == 1
    look(saved, repair=True)
    assert told(read_all(saved)) == []
    saved.git("gc", "--quiet", "--prune=now")
