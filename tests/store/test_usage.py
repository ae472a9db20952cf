"""`usage` reports the real disk space of checkpoints, and changes nothing.

The space that it reports as free after a prune is what a prune frees.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gitckpt import Store, Usage
from gitckpt.git import leftovers
from gitckpt.git.files import refs_stat
from gitckpt.git.objects.encoding import object_id
from gitckpt.git.repository import discover_repository
from gitckpt.store.retention import sweep
from gitckpt.store.runs import run_files
from gitckpt.store.store import checkpoints_of_store
from gitckpt.store.usage import Amount, DiskMeasure, Leftover
from tests.conftest import Checkout
from tests.store.conftest import MakeStore
from tests.stores import OWN_REFS, hold_run

OURS = (*OWN_REFS, "refs/notes/checkpoints")


def everything_in(top: Path) -> dict[str, tuple[int, bytes | None]]:
    """Return time stamp and content of every file below a directory."""
    paths = [top, *top.rglob("*")]
    return {
        str(path): (path.lstat().st_mtime_ns, path.read_bytes() if path.is_file() else None)
        for path in paths
    }


def asked(store: Store) -> Usage:
    """Return the store's usage; assert that computing it changes nothing."""
    repository = checkpoints_of_store(store).repository
    places = [
        Path(place)
        for place in {repository.common_dir, repository.worktree or repository.common_dir}
    ]
    before = [everything_in(place) for place in places]
    found = store.usage()
    assert [everything_in(place) for place in places] == before
    return found


def on_disk(*paths: Path) -> int:
    """Return the size of files and directories that `du` reports."""
    said = subprocess.run(
        ["du", "--summarize", "--total", "--block-size=1", *paths],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return int(said.splitlines()[-1].split()[0])


def work(store: Store, checkout: Checkout) -> None:
    """Record checkpoints of changed files, an amended commit and a run with a key.

    One file has the content of an older commit.
    """
    checkout.write("README", "hello again\n")
    checkout.commit("second")
    checkout.write("README", "hello\n")  # as it was in the first commit: a blob that the branch has
    checkout.write("new", "new\n")
    store.save("a-complete", {"step": 1})
    checkout.commit("third, to be amended", gone="gone\n")
    store.record("b-complete", {})
    checkout.git("rm", "--quiet", "gone")
    checkout.git("commit", "--quiet", "--amend", "--message", "third")
    first = store.record("run-started", {}, start="work", key="mine")
    assert first.run is not None
    hold_run(store, first.run, "a test").release_lease()
    store.record("run-complete", {}, run=first.run)


def loose(checkout: Checkout) -> tuple[int, int]:
    """Return number and size in bytes of the loose objects that git counts."""
    said = dict(line.split(": ") for line in checkout.git("count-objects", "-v").splitlines())
    assert said["packs"] == "0"
    return int(said["count"]), int(said["size"]) * 1024


def drop(checkout: Checkout) -> None:
    """Delete gitckpt's refs, and all objects that no ref reaches."""
    refs = checkout.refs(*OURS)
    checkout.git("update-ref", "--stdin", data="".join(f"delete {ref}\n" for ref in refs))
    checkout.git("prune", "--expire=now")


class TestObjects:
    def test_are_what_a_prune_gives_back(self, store: Store, checkout: Checkout) -> None:
        work(store, checkout)
        store.write_notes()
        store.close()
        checkout.git("reflog", "expire", "--expire=now", "--all")
        checkout.git("prune", "--expire=now")
        found = asked(store)
        before = loose(checkout)
        sizes = [
            each.bytes or 0 for each in (found.checkpoints, found.files, found.leases, found.links)
        ]
        assert (found.loose.bytes, found.is_complete) == (sum(sizes), True)
        drop(checkout)
        after = loose(checkout)
        assert (found.loose.number, found.loose.bytes) == (
            before[0] - after[0],
            before[1] - after[1],
        )
        assert (found.checkpoints.number, found.leases.number, found.links.number) == (4, 2, 3)
        assert all(size > 0 for size in sizes)
        rest = asked(store)
        assert (rest.checkpoints, rest.files, rest.leases, rest.links, rest.loose) == (
            Amount(0, 0),
        ) * 5

    @pytest.mark.parametrize("options", [["--object-format=sha256"], []])
    def test_are_those_of_a_walk_without_a_short_cut(
        self, make_checkout: Callable[..., Checkout], make_store: MakeStore, options: list[str]
    ) -> None:
        checkout = make_checkout("project", *options)
        checkout.commit("first", README="hello\n")
        store = make_store(checkout)
        work(store, checkout)
        store.close()
        for packed in (False, True):
            if packed:
                checkout.git("gc", "--quiet")
                checkout.git("repack", "-adbq")
            mine = walked(checkout, set(checkout.refs(*OURS)))
            others = walked(checkout, set(checkout.refs()) - set(checkout.refs(*OURS)))
            data = "".join(f"{oid}\n" for oid in mine - others)
            sizes = checkout.git("cat-file", "--batch-check=%(objectsize:disk)", data=data).split()
            found = asked(store)
            if packed:
                bytes_ = [
                    each.bytes or 0
                    for each in (found.checkpoints, found.files, found.leases, found.links)
                ]
                assert (sum(bytes_), found.loose) == (sum(map(int, sizes)), Amount(0, 0))
            else:
                assert found.loose.number == len(sizes)

    def test_that_others_hold_too_are_theirs(self, plain: Store, main_checkout: Checkout) -> None:
        main_checkout.write("new", "new\n")
        saved = plain.save("a-complete", {})
        assert plain.usage().files.number == 3  # the snapshot, its files, and what is new
        tree = main_checkout.git("rev-parse", "refs/ckpt/trees/" + saved.id)
        for ref in (
            "refs/checkpoints/theirs",
            "refs/tags/theirs",
            "refs/remotes/origin/theirs",
            "refs/else",
        ):
            main_checkout.git("update-ref", ref, tree)
            found = asked(plain)
            assert (found.files, found.checkpoints.number) == (Amount(0, 0), 1), ref
            main_checkout.git("update-ref", "-d", ref)
        once = main_checkout.git("commit-tree", "-m", "once", f"{tree}:files")
        later = main_checkout.git("commit-tree", "-m", "later", "-p", once, "HEAD^{tree}")
        main_checkout.git("update-ref", "refs/checkpoints/theirs", later)
        assert asked(plain).files.number == 1, (
            "the snapshot is left, whose files are in the history of somebody's commit"
        )
        main_checkout.git("update-ref", "-d", "refs/checkpoints/theirs")
        main_checkout.git(
            "worktree", "add", "--quiet", "--detach", str(main_checkout.path.parent / "other")
        )
        other = Checkout(main_checkout.path.parent / "other", main_checkout.path)
        other.commit("of a detached HEAD", new="new\n")
        assert asked(plain).files.number == 1, (
            "the snapshot is left, whose files are those of the commit"
        )

    def test_that_are_missing_or_damaged_are_no_reason_to_fail(
        self, plain: Store, main_checkout: Checkout
    ) -> None:
        main_checkout.write("new", "new\n")
        plain.save("a-complete", {})
        plain.record("b-complete", {"n": 1})
        blob = object_id("blob", b"new\n", "sha1")
        (main_checkout.path / ".git/objects" / blob[:2] / blob[2:]).unlink()
        document = next(iter(main_checkout.refs("refs/checkpoints").values()))
        (main_checkout.path / ".git/objects" / document[:2] / document[2:]).unlink()
        found = asked(plain)
        assert (found.checkpoints.number, found.files.number, found.is_complete) == (2, 2, True)
        tree = main_checkout.git("rev-parse", "HEAD^{tree}")
        path = main_checkout.path / ".git/objects" / tree[:2] / tree[2:]
        path.chmod(0o600)
        path.write_bytes(b"damaged")
        assert not asked(plain).is_complete

    @pytest.mark.long
    def test_are_counted_with_the_same_few_processes_for_any_number(
        self, plain: Store, main_checkout: Checkout, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(
            refs_stat, "_FINELY_SETTLED", 0
        )  # what is young would be asked for again
        started: list[str] = []
        spawn = os.posix_spawnp

        def note(program: str, argv: list[str], *more: object, **options: object) -> int:
            started.append(" ".join(argv))
            return spawn(program, argv, *more, **options)  # type: ignore[arg-type]

        counts = []
        for number in (1, 30):
            for each in range(number):
                main_checkout.write("new", f"{each}\n")
                plain.save("a-complete", {"n": each}, start="work" if each % 3 == 0 else None)
            with (
                Store.open(main_checkout.path, adapter="plumbing") as fresh,
                monkeypatch.context() as patch,
            ):
                patch.setattr(os, "posix_spawnp", note)
                started.clear()
                assert fresh.usage().checkpoints.number == (1 if number == 1 else 31)
                counts.append(len(started))
        assert counts[0] == counts[1] <= 12, started


def walked(checkout: Checkout, refs: set[str]) -> set[str]:
    """Return all objects reachable from some refs."""
    data = "".join(f"{ref}\n" for ref in refs)
    return set(
        checkout.git("rev-list", "--objects", "--no-object-names", "--stdin", data=data).split()
    )


class TestRefs:
    def test_are_files_or_lines(self, plain: Store, main_checkout: Checkout) -> None:
        plain.record("a-complete", {})
        plain.record("b-complete", {}, start="work")
        plain.close()
        refs = main_checkout.refs(*OURS)
        assert asked(plain).refs == Amount(
            len(refs), on_disk(*(main_checkout.path / ".git" / ref for ref in refs))
        )
        main_checkout.git("pack-refs", "--all")
        assert asked(plain).refs == Amount(
            len(refs), sum(len(f"{oid} {ref}\n") for ref, oid in refs.items())
        )

    def test_in_a_reftable_cannot_be_told_from_others(
        self, new_git: None, make_checkout: Callable[..., Checkout], make_store: MakeStore
    ) -> None:
        checkout = make_checkout("tables", "--ref-format=reftable")
        checkout.commit("first", README="hello\n")
        store = make_store(checkout)
        checkout.write("new", "new\n")
        store.save("a-complete", {})
        store.close()
        found = asked(store)
        assert found.refs == Amount(len(checkout.refs(*OURS)), None)
        assert (
            found.checkpoints.number,
            found.files.number,
            found.links.number,
            found.is_complete,
        ) == (1, 3, 1, True)
        assert found.bytes >= (found.loose.bytes or 0) > 0


@pytest.mark.parametrize("options", [[], ["--bare"]])
def test_an_empty_repository_takes_nothing(
    make_checkout: Callable[..., Checkout], make_store: MakeStore, options: list[str]
) -> None:
    nothing = Amount(0, 0)
    found = asked(make_store(make_checkout("empty", *options)))
    assert found == Usage(
        nothing,
        nothing,
        nothing,
        nothing,
        nothing,
        [],
        nothing,
        nothing,
        nothing,
        [],
        nothing,
        is_complete=True,
    )
    assert found.bytes == 0


def test_a_bare_repository_has_all_but_a_worktree(
    plain: Store, main_checkout: Checkout, make_store: MakeStore, tmp_path: Path
) -> None:
    work(plain, main_checkout)
    plain.write_notes()
    plain.close()
    main_checkout.git(
        "clone", "--quiet", "--mirror", str(main_checkout.path), str(tmp_path / "bare.git")
    )
    bare = make_store(tmp_path / "bare.git")
    found, there = asked(bare), asked(plain)
    assert (found.checkpoints.number, found.leases.number, found.links.number) == (4, 2, 3)
    assert (found.files.number, found.refs.number) == (there.files.number, there.refs.number)


class TestPlaces:
    def test_files_count_once_by_whatever_name(self, tmp_path: Path) -> None:
        for name in ("a", "b"):
            (tmp_path / name / "in").mkdir(parents=True)
        (tmp_path / "a/in/file").write_bytes(b"x" * 100_000)
        os.link(tmp_path / "a/in/file", tmp_path / "a/in/same")
        os.link(tmp_path / "a/in/file", tmp_path / "b/in/same")
        (tmp_path / "b/link").symlink_to(tmp_path / "a")
        measure = DiskMeasure()
        first, second = (
            measure.measure_path(str(tmp_path / "a")),
            measure.measure_path(str(tmp_path / "b")),
        )
        assert (first, second[0]) == ((1, on_disk(tmp_path / "a")), 1)
        assert first[1] + second[1] == on_disk(tmp_path / "a", tmp_path / "b")

    def test_what_is_not_there_or_set_apart_counts_for_nothing(self, tmp_path: Path) -> None:
        (tmp_path / "a/apart").mkdir(parents=True)
        (tmp_path / "a/apart/file").write_bytes(b"x")
        (tmp_path / "a/file").write_bytes(b"x" * 5000)
        measure = DiskMeasure([str(tmp_path / "a/apart")])
        assert measure.measure_path(str(tmp_path / "nothing")) == (0, 0)
        assert measure.measure_path(str(tmp_path / "a")) == (
            1,
            on_disk(tmp_path / "a") - on_disk(tmp_path / "a/apart"),
        )


class TestWorktrees:
    @pytest.fixture
    def opened(self, plain: Store, main_checkout: Checkout) -> dict[str, Path]:
        """Worktrees of each kind of run, by the word that `usage` has for it."""
        runs = {}
        for number, name in enumerate(("complete", "unfinished", "removed")):
            started = plain.record("run-started", {}, start=name, trigger="phase")
            runs[name] = Path(plain.resume(started).path)
            (runs[name] / "big").write_bytes(b"x" * 100_000 * (number + 1))
            if name == "complete":
                plain.record("run-complete", {}, run=started.run, trigger="phase")
            if name == "removed":
                main_checkout.git("update-ref", "-d", f"refs/ckpt/runs/{started.run}")
                plain.remove([started.id])
        alone = plain.record("a-complete", {})
        runs["checkpoint"] = Path(plain.resume(alone).path)
        runs["forgotten"] = runs["complete"].parent / "forgotten"
        runs["forgotten"].mkdir()
        plain.close()
        return runs

    @pytest.mark.long
    def test_are_told_by_what_they_belong_to_the_largest_first(
        self, plain: Store, opened: dict[str, Path]
    ) -> None:
        found = asked(plain).worktrees
        assert [(each.status, each.path) for each in found] == [
            (name, str(opened[name]))
            for name in ("removed", "unfinished", "complete", "checkpoint", "forgotten")
        ]
        assert [each.run for each in found] == [
            *(str(each.path).rpartition("/")[2] for each in found[:3]),
            None,
            None,
        ]
        for each in found:
            path = opened[each.status]
            kept = (
                []
                if each.status == "forgotten"
                else [Path((path / ".git").read_text().removeprefix("gitdir: ").strip())]
            )
            assert each.bytes == on_disk(path, *kept)
            assert each.files == sum(file.is_file() for file in path.rglob("*"))

    def test_are_found_wherever_they_are(
        self, plain: Store, tmp_path: Path, make_store: MakeStore
    ) -> None:
        started = plain.record("run-started", {}, start="work", trigger="phase")
        there = plain.resume(started, tmp_path / "elsewhere").path
        plain.close()
        assert [(each.path, each.run) for each in asked(plain).worktrees] == [(there, started.run)]
        assert asked(make_store(Path(there))) == asked(plain)

    def test_in_a_place_for_other_things_too_are_known_by_what_they_name(
        self, plain: Store, main_checkout: Checkout, tmp_path: Path
    ) -> None:
        place = tmp_path / "place"
        (place / "somebody's").mkdir(parents=True)
        main_checkout.git("config", "ckpt.worktreeDir", str(place))
        path = Path(
            plain.resume(plain.record("run-started", {}, start="work", trigger="phase")).path
        )
        plain.close()
        assert [(each.path, each.status) for each in asked(plain).worktrees] == [
            (str(path), "unfinished")
        ]
        main_checkout.git("worktree", "unlock", str(path))
        (path / ".git").rename(tmp_path / "kept")
        main_checkout.git("worktree", "prune", "--expire=now")
        assert asked(plain).worktrees == []
        (tmp_path / "kept").rename(path / ".git")
        assert [(each.path, each.status) for each in asked(plain).worktrees] == [
            (str(path), "forgotten")
        ]

    def test_that_git_or_somebody_else_made_are_not_ours(
        self, plain: Store, main_checkout: Checkout
    ) -> None:
        main_checkout.git(
            "worktree", "add", "--quiet", "-b", "side", str(main_checkout.path.parent / "side")
        )
        assert asked(plain).worktrees == []

    @pytest.mark.long
    def test_have_files_beside_them(self, plain: Store, opened: dict[str, Path]) -> None:
        place = Path(
            run_files.files_of_run(
                checkpoints_of_store(plain).repository, "20270115-080001-complete"
            ).path,
            "output",
        )
        place.mkdir(parents=True)
        (place / "answer.md").write_text("42\n")
        found = asked(plain)
        assert found.run_files == Amount(1, on_disk(place.parent.parent))


def test_derived_files_are_told_apart(plain: Store, main_checkout: Checkout) -> None:
    plain.record("a-complete", {})
    plain.list()
    plain.close()
    private = main_checkout.path / ".git/ckpt"
    (private / "log").write_text("x\n")
    found = asked(plain)
    index = [path for path in private.iterdir() if path.name.startswith("index.sqlite")]
    assert found.index == Amount(len(index), on_disk(*index))
    assert found.private == Amount(
        len(list(private.iterdir())) - len(index), on_disk(private) - on_disk(*index)
    )


class TestLeftovers:
    @pytest.fixture
    def dead(self) -> str:
        """The id of a process that has ended."""
        script = "import os; print(os.getpid())"
        return subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, check=True
        ).stdout.strip()

    def test_are_told_by_kind_with_what_the_next_maintenance_deletes(
        self, store: Store, checkout: Checkout, monkeypatch: pytest.MonkeyPatch, dead: str
    ) -> None:
        monkeypatch.setattr(leftovers, "OBJECTS_QUIET", 0)
        repository = checkpoints_of_store(store).repository
        private = Path(repository.make_private_dir())
        before = asked(store).private
        git_dir, objects = Path(repository.git_dir), Path(repository.common_dir, "objects")
        (objects / "tmp_objdir-x").mkdir()
        for path in (
            *(git_dir / f"ckpt-undo.{pid}.ab" for pid in (dead, os.getpid())),
            *(
                objects / name
                for name in (
                    "tmp_objdir-x/tmp_obj_y",
                    "tmp_obj_y",
                    "pack/tmp_pack_z",
                    "pack/tmp_idx_z",
                )
            ),
            private / f"index.{dead}.ab",
        ):
            path.write_bytes(b"x" * 5000)
        found = asked(store)
        one = 8192
        assert found.leftovers == [
            Leftover(
                "ckpt-undo.*", 2, 2 * one, 0, 0
            ),  # young: in another container, its process may be alive
            Leftover("ckpt/index.*", 1, one, 0, 0),
            Leftover("tmp_idx_*", 1, one, 1, one),
            Leftover("tmp_obj_*", 1, one, 1, one),
            Leftover(
                "tmp_objdir-*",
                1,
                on_disk(objects / "tmp_objdir-x"),
                1,
                on_disk(objects / "tmp_objdir-x"),
            ),
            Leftover("tmp_pack_*", 1, one, 1, one),
        ]
        assert found.private == before, "what is counted as a leftover is not counted again"
        gone = sweep.delete_leftover_files(repository)
        assert len(gone) == sum(each.due for each in found.leftovers)
        assert [(each.kind, each.number, each.due) for each in asked(store).leftovers] == [
            ("ckpt-undo.*", 2, 0),
            ("ckpt/index.*", 1, 0),
        ]

    def test_beside_the_index_of_a_worktree_are_not_the_worktree_s_as_well(
        self, plain: Store, dead: str
    ) -> None:
        path = Path(
            plain.resume(plain.record("run-started", {}, start="work", trigger="phase")).path
        )
        plain.close()
        before = asked(plain)
        git_dir = Path((path / ".git").read_text().removeprefix("gitdir: ").strip())
        (git_dir / f"ckpt-undo.{dead}.ab").write_bytes(b"x" * 5000)
        found = asked(plain)
        assert [(each.kind, each.number) for each in found.leftovers] == [("ckpt-undo.*", 1)]
        assert (found.worktrees, found.bytes) == (before.worktrees, before.bytes + 8192)

    def test_that_keep_a_pack_are_of_one_kind(
        self, plain: Store, main_checkout: Checkout, dead: str
    ) -> None:
        place = main_checkout.path / ".git/objects/pack"
        place.mkdir(exist_ok=True)
        for name in ("pack-1234.keep", "pack-5678.keep"):
            (place / name).write_text(f"gitckpt {dead}\n")
            os.utime(place / name, (1_000_000_000, 1_000_000_000))
        (place / "pack-9abc.keep").write_text("the user's own\n")
        assert [(each.kind, each.number, each.due) for each in asked(plain).leftovers] == [
            ("pack-*.keep", 2, 2)
        ]

    @pytest.mark.parametrize(
        ("path", "kind"),
        [
            ("/r/objects/ab/tmp_obj_x", "tmp_obj_*"),
            ("/r/objects/tmp_objdir-bulk-fsync-x", "tmp_objdir-*"),
            ("/r/objects/pack/tmp_ckpt_0a", "tmp_ckpt_*"),
            ("/r/objects/info/commit-graphs/tmp_graph_x", "tmp_graph_*"),
            ("/r/objects/pack/.tmp-12-pack-34.idx", ".tmp-*-pack-*"),
            ("/r/objects/pack/pack-12.keep", "pack-*.keep"),
            ("/r/worktrees/20270115-080001-work", "worktrees/*"),
            ("/r/worktrees/w/ckpt-undo.12.ab", "ckpt-undo.*"),
            ("/r/ckpt/rules.12.ab", "ckpt/rules.*"),
        ],
    )
    def test_have_a_kind_by_their_names(self, path: str, kind: str) -> None:
        assert sweep.file_name_pattern_of(path) == kind

    def test_of_worktrees_half_made_and_half_removed(
        self, plain: Store, main_checkout: Checkout
    ) -> None:
        started = plain.record("run-started", {}, start="work", trigger="phase")
        root = Path(plain.resume(started).path).parent
        plain.close()
        making, going = root / ".making-abcd", root / ".making-way-abcd"
        parked = main_checkout.path / ".git/ckpt/removing.abcd"
        for place in (making, going, parked):
            place.mkdir()
            (place / "file").write_bytes(b"x" * 5000)
        note = {
            "git_dir": str(main_checkout.path / ".git/worktrees/x"),
            "path": str(root / "x"),
            "stage": str(going),
        }
        (parked / "ckpt-removal").write_text(json.dumps(note))
        found = asked(plain)
        assert found.leftovers == [
            Leftover(".making-*", 2, on_disk(making, going), 1, on_disk(going)),
            Leftover("ckpt/removing.*", 1, on_disk(parked), 1, on_disk(parked)),
        ]
        assert [each.run for each in found.worktrees] == [started.run]
        plain.expire()
        assert [(each.kind, each.number, each.due) for each in asked(plain).leftovers] == [
            (".making-*", 1, 0)
        ]

    def test_of_packs_worktrees_and_flushes_that_were_killed(
        self, plain: Store, main_checkout: Checkout, dead: str
    ) -> None:
        plain.record("a-complete", {})
        git_dir = main_checkout.path / ".git"
        keep, made, flush = (
            git_dir / "objects/pack/pack-ab.keep",
            git_dir / "worktrees/x",
            git_dir / "objects/bulk_fsync_ab",
        )
        made.mkdir(parents=True)
        keep.parent.mkdir(exist_ok=True)
        keep.write_text(f"gitckpt {dead}\n")
        (made / "locked").write_text("gitckpt 11111111-1111-4111-8111-111111111111")
        flush.write_bytes(b"")
        for path in (keep, made / "locked", made, flush):
            os.utime(path, (1_000_000_000, 1_000_000_000))
        assert [(each.kind, each.number, each.due) for each in asked(plain).leftovers] == [
            ("bulk_fsync_*", 1, 1),
            ("pack-*.keep", 1, 1),
            ("worktrees/*", 1, 1),
        ]


def test_asking_needs_no_settings_that_can_be_understood(
    plain: Store, main_checkout: Checkout
) -> None:
    plain.record("a-complete", {})
    main_checkout.write("gitckpt.toml", "[nonsense\n")
    assert asked(plain).checkpoints.number == 1


def test_links_that_were_put_off_stay_put_off(main_checkout: Checkout) -> None:
    with Store.open(main_checkout.path, adapter="plumbing") as store:
        store.record("a-complete", {})
        store.record("b-complete", {})
        repository = discover_repository(str(main_checkout.path))
        tip = repository.cat_file.info("refs/notes/checkpoints")
        store.usage()
        assert repository.cat_file.info("refs/notes/checkpoints") == tip
        repository.close()
