"""Both object adapters meet one contract, and each repository gets the right one."""

from __future__ import annotations

import faulthandler
import os
import resource
import subprocess
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gitckpt import GitError, RepositoryError, WorktreeError
from gitckpt.git.objects import writer
from gitckpt.git.objects.encoding import object_id
from gitckpt.git.objects.libgit2 import Libgit2Objects
from gitckpt.git.objects.plumbing import PlumbingObjects, open_objects
from gitckpt.git.process import git_executable
from gitckpt.git.repository import Repository
from tests.conftest import Checkout

if TYPE_CHECKING:
    from gitckpt.git.objects.writer import Item, ObjectDatabase

MISSING = "1" * 40
WHO = b"Ada Tester <ada@example.org> 1700000000 +0000"


def object_file(checkout: Checkout, oid: str) -> Path:
    return checkout.main / ".git" / "objects" / oid[:2] / oid[2:]


def read_one(objects: ObjectDatabase, oid: str) -> tuple[str, bytes] | None:
    (found,) = objects.read([oid])
    return found


def three_kinds(object_format: str = "sha1") -> dict[str, Item]:
    """The oids of a blob, a tree that holds it and a commit of that tree."""
    blob = ("blob", b"text\n")
    blob_oid = object_id(*blob, object_format)
    tree = ("tree", b"100644 file\0" + bytes.fromhex(blob_oid))
    tree_oid = object_id(*tree, object_format)
    commit = (
        "commit",
        b"tree %s\nauthor %s\ncommitter %s\n\nmessage\n" % (tree_oid.encode(), WHO, WHO),
    )
    return {blob_oid: blob, tree_oid: tree, object_id(*commit, object_format): commit}


@pytest.fixture
def impatient() -> Iterator[None]:
    """End this process if libgit2 hangs, as no signal interrupts it."""
    faulthandler.dump_traceback_later(120, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


class TestHead:
    def test_on_a_branch_it_is_its_commit_and_short_name(
        self, checkout: Checkout, opened: Callable[..., Repository], adapter: str
    ) -> None:
        branch = "main" if checkout.path == checkout.main else "side"
        assert open_objects(opened(checkout), adapter).read_head() == (
            checkout.git("rev-parse", "HEAD"),
            branch,
        )

    def test_moves_with_the_worktree(
        self, checkout: Checkout, opened: Callable[..., Repository], adapter: str
    ) -> None:
        objects = open_objects(opened(checkout), adapter)
        objects.read_head()
        commit = checkout.commit("second")
        checkout.git("branch", "other")
        checkout.git("checkout", "--quiet", "other")
        assert objects.read_head() == (commit, "other")

    def test_detached_it_has_no_branch(
        self, checkout: Checkout, opened: Callable[..., Repository], adapter: str
    ) -> None:
        checkout.git("checkout", "--quiet", "--detach")
        assert open_objects(opened(checkout), adapter).read_head() == (
            checkout.git("rev-parse", "HEAD"),
            None,
        )

    @pytest.mark.parametrize("branch", ["main", "feature/log-in", "zweig/größe-枝"])
    def test_unborn_it_has_no_commit(
        self,
        make_checkout: Callable[..., Checkout],
        opened: Callable[..., Repository],
        adapter: str,
        branch: str,
    ) -> None:
        checkout = make_checkout()
        checkout.git("symbolic-ref", "HEAD", f"refs/heads/{branch}")
        assert open_objects(opened(checkout), adapter).read_head() == ("", branch)

    def test_an_orphan_branch_is_unborn(
        self, checkout: Checkout, opened: Callable[..., Repository], adapter: str
    ) -> None:
        checkout.git("checkout", "--quiet", "--orphan", "fresh")
        assert open_objects(opened(checkout), adapter).read_head() == ("", "fresh")

    def test_a_branch_may_have_any_name(
        self, main_checkout: Checkout, objects: ObjectDatabase
    ) -> None:
        main_checkout.git("checkout", "--quiet", "-b", "zweig/größe-枝")
        assert objects.read_head() == (main_checkout.git("rev-parse", "HEAD"), "zweig/größe-枝")

    def test_packed_branches_are_seen(
        self, main_checkout: Checkout, objects: ObjectDatabase
    ) -> None:
        main_checkout.git("pack-refs", "--all", "--prune")
        assert objects.read_head() == (main_checkout.git("rev-parse", "HEAD"), "main")

    def test_of_a_worktree_that_git_keeps_nothing_of_any_more(
        self,
        main_checkout: Checkout,
        tmp_path: Path,
        opened: Callable[..., Repository],
        adapter: str,
    ) -> None:
        main_checkout.git("worktree", "add", "--quiet", str(tmp_path / "other"))
        objects = open_objects(opened(Checkout(tmp_path / "other")), adapter)
        objects.read_head()
        main_checkout.git("worktree", "remove", str(tmp_path / "other"))
        with pytest.raises(WorktreeError, match="cannot read"):
            objects.read_head()

    def test_of_a_bare_repository(
        self,
        main_checkout: Checkout,
        tmp_path: Path,
        opened: Callable[..., Repository],
        adapter: str,
    ) -> None:
        main_checkout.git("clone", "--quiet", "--bare", ".", str(tmp_path / "bare"))
        assert open_objects(opened(tmp_path / "bare"), adapter).read_head() == (
            main_checkout.git("rev-parse", "HEAD"),
            "main",
        )


class TestRead:
    def test_gives_kind_and_content_of_each_kind(
        self, main_checkout: Checkout, objects: ObjectDatabase
    ) -> None:
        main_checkout.git("tag", "--annotate", "--message=a tag", "v1")
        oids = [
            main_checkout.git("rev-parse", name)
            for name in ("HEAD:README", "HEAD^{tree}", "HEAD", "v1")
        ]
        kinds = ["blob", "tree", "commit", "tag"]
        contents = [
            subprocess.run(
                [git_executable(), "cat-file", kind, oid],
                cwd=main_checkout.path,
                capture_output=True,
                check=True,
            ).stdout
            for kind, oid in zip(kinds, oids, strict=True)
        ]
        assert list(objects.read(oids)) == list(zip(kinds, contents, strict=True))

    def test_gives_none_for_what_is_missing_and_goes_on(
        self, main_checkout: Checkout, objects: ObjectDatabase
    ) -> None:
        readme = main_checkout.git("rev-parse", "HEAD:README")
        assert list(objects.read([MISSING, readme, MISSING, readme])) == [
            None,
            ("blob", b"hello\n"),
            None,
            ("blob", b"hello\n"),
        ]

    def test_of_nothing_is_nothing(self, objects: ObjectDatabase) -> None:
        assert list(objects.read([])) == []

    @pytest.mark.parametrize(
        "content", [b"", b"\n", b"\0\r\n\xff" * 1000, b"blob 5\n", b"x missing\n"]
    )
    def test_keeps_every_byte(
        self, main_checkout: Checkout, objects: ObjectDatabase, content: bytes
    ) -> None:
        oid = main_checkout.git("hash-object", "-w", "--stdin", data=content)
        assert list(objects.read([oid, oid])) == [("blob", content)] * 2

    @pytest.mark.long
    def test_of_thirty_megabytes(self, main_checkout: Checkout, objects: ObjectDatabase) -> None:
        content = os.urandom(1 << 20) * 30
        oid = main_checkout.git(
            "-c", "core.compression=0", "hash-object", "-w", "--stdin", data=content
        )
        assert read_one(objects, oid) == ("blob", content)

    @pytest.mark.long
    @pytest.mark.turns("adapter")
    def test_of_thousands(self, main_checkout: Checkout, objects: ObjectDatabase) -> None:
        contents = [(b"%d\n" % number) * (number % 90) for number in range(2500)]
        objects.write([("blob", content) for content in contents])
        oids = [object_id("blob", content, "sha1") for content in contents]
        asked = [oid for pair in zip(oids, [MISSING] * len(oids), strict=True) for oid in pair]
        assert list(objects.read(asked)) == [
            answer for content in contents for answer in (("blob", content), None)
        ]

    def test_may_be_left_in_the_middle(
        self, main_checkout: Checkout, objects: ObjectDatabase
    ) -> None:
        objects.write([("blob", b"%d" % number) for number in range(200)])
        oids = [object_id("blob", b"%d" % number, "sha1") for number in range(200)]
        for found in objects.read(oids):
            if found == ("blob", b"3"):
                break
        assert read_one(objects, oids[7]) == ("blob", b"7")

    def test_may_be_nested(self, main_checkout: Checkout, objects: ObjectDatabase) -> None:
        contents = [b"%d" % number for number in range(200)]
        objects.write([("blob", content) for content in contents])
        oids = [object_id("blob", content, "sha1") for content in contents]
        pairs = [
            (found, read_one(objects, oid))
            for oid, found in zip(oids, objects.read(oids), strict=True)
        ]
        assert pairs == [(("blob", content), ("blob", content)) for content in contents]

    def test_sees_what_another_process_wrote_meanwhile(
        self, main_checkout: Checkout, objects: ObjectDatabase
    ) -> None:
        assert read_one(objects, object_id("blob", b"later", "sha1")) is None
        oid = main_checkout.git("hash-object", "-w", "--stdin", data=b"later")
        assert read_one(objects, oid) == ("blob", b"later")

    def test_survives_that_others_repack(
        self, main_checkout: Checkout, objects: ObjectDatabase
    ) -> None:
        commits = [main_checkout.commit(str(number)) for number in range(3)]
        before = list(objects.read(commits))
        main_checkout.git("gc", "--quiet", "--prune=now")
        packed = list(objects.read(commits))
        main_checkout.commit("last")
        main_checkout.git("repack", "-a", "-d", "-f", "--quiet")
        main_checkout.git("repack", "-a", "-d", "-f", "--quiet", "--depth=1")
        assert [before, packed, list(objects.read(commits))] == [before] * 3
        assert None not in before

    @pytest.mark.parametrize(
        "damage",
        [
            pytest.param(lambda data: b"x\x9cgarbage", id="header"),
            pytest.param(lambda data: data[:-20] + b"\xff" * 20, id="content"),
            pytest.param(lambda data: b"", id="empty"),
            pytest.param(lambda data: data[: len(data) // 2], id="half"),
            pytest.param(lambda data: data[:-1], id="all but a byte"),
            pytest.param(lambda data: data[:1], id="a byte"),
        ],
    )
    @pytest.mark.usefixtures("impatient")
    def test_gives_none_for_what_is_damaged_and_goes_on(
        self, main_checkout: Checkout, objects: ObjectDatabase, damage: Callable[[bytes], bytes]
    ) -> None:
        oid = main_checkout.git("hash-object", "-w", "--stdin", data=os.urandom(100_000))
        file = object_file(main_checkout, oid)
        data = file.read_bytes()
        file.unlink()
        file.write_bytes(damage(data))
        readme = main_checkout.git("rev-parse", "HEAD:README")
        assert list(objects.read([readme, oid, readme])) == [
            ("blob", b"hello\n"),
            None,
            ("blob", b"hello\n"),
        ]
        assert read_one(objects, readme) == ("blob", b"hello\n")
        file.unlink()
        file.write_bytes(data)
        assert read_one(objects, oid) is not None

    @pytest.mark.usefixtures("impatient")
    def test_gives_what_a_pack_has_of_one_that_is_cut_off(
        self, main_checkout: Checkout, objects: ObjectDatabase
    ) -> None:
        oid = main_checkout.git("hash-object", "-w", "--stdin", data=b"text\n" * 1000)
        data = object_file(main_checkout, oid).read_bytes()
        main_checkout.git("pack-objects", "--quiet", ".git/objects/pack/pack", data=f"{oid}\n")
        object_file(main_checkout, oid).unlink()
        object_file(main_checkout, oid).write_bytes(data[:10])
        assert read_one(objects, oid) == ("blob", b"text\n" * 1000)

    @pytest.mark.usefixtures("impatient")
    @pytest.mark.parametrize("line", ["{}\n", '"{}"\n'])
    def test_gives_none_for_one_that_is_cut_off_where_it_is_borrowed(
        self,
        line: str,
        main_checkout: Checkout,
        make_checkout: Callable[..., Checkout],
        opened: Callable[..., Repository],
        adapter: str,
    ) -> None:
        lender = make_checkout("lender")
        oid = lender.git("hash-object", "-w", "--stdin", data=b"text\n" * 1000)
        main_checkout.write(
            ".git/objects/info/alternates", line.format(f"{lender.main}/.git/objects")
        )
        data = object_file(lender, oid).read_bytes()
        object_file(lender, oid).unlink()
        object_file(lender, oid).write_bytes(data[:-10])  # its header is whole
        assert read_one(open_objects(opened(main_checkout), adapter), oid) is None


class TestWrite:
    def test_very_many_go_into_one_pack(
        self, main_checkout: Checkout, objects: ObjectDatabase, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(writer, "_PACKED_FROM", 3)
        place = main_checkout.main / ".git/objects"
        items = three_kinds()
        before = set(place.rglob("*"))
        assert objects.write(list(items.values())) == list(items)
        assert dict(zip(items, objects.read(list(items)), strict=True)) == items
        assert sorted(path.suffix for path in set(place.rglob("*")) - before) == [".idx", ".pack"]

    def test_makes_the_objects_that_git_makes(
        self, main_checkout: Checkout, objects: ObjectDatabase
    ) -> None:
        items = three_kinds()
        objects.write(list(items.values()))
        hashed = {
            main_checkout.git("hash-object", "-t", kind, "--stdin", data=data): (kind, data)
            for kind, data in items.values()
        }
        assert hashed == items
        assert dict(zip(items, objects.read(list(items)), strict=True)) == items
        assert main_checkout.git("fsck", "--strict", "--no-dangling") == ""

    def test_is_seen_by_git_at_once(self, main_checkout: Checkout, objects: ObjectDatabase) -> None:
        oids = objects.write([("blob", b"one"), ("blob", b"two")])
        assert oids == [object_id("blob", data, "sha1") for data in (b"one", b"two")]
        assert [main_checkout.git("cat-file", "blob", oid) for oid in oids] == ["one", "two"]

    def test_of_nothing_writes_nothing(
        self, main_checkout: Checkout, objects: ObjectDatabase
    ) -> None:
        before = main_checkout.git("count-objects", "-v")
        objects.write([])
        objects.write([])
        assert main_checkout.git("count-objects", "-v") == before

    def test_of_what_exists_changes_nothing(
        self, main_checkout: Checkout, objects: ObjectDatabase
    ) -> None:
        before = main_checkout.git("count-objects", "-v")
        objects.write([("blob", b"hello\n"), ("blob", b"hello\n")])
        assert main_checkout.git("count-objects", "-v") == before

    def test_of_what_exists_in_a_pack_adds_one_file_at_most(
        self, main_checkout: Checkout, objects: ObjectDatabase
    ) -> None:
        main_checkout.git("gc", "--quiet")
        for _ in range(2):
            objects.write([("blob", b"hello\n")])
        loose, *_ = main_checkout.git("count-objects").split()
        assert int(loose) <= 1
        main_checkout.git("gc", "--quiet")
        assert main_checkout.git("count-objects").split()[0] == "0"

    def test_of_what_exists_makes_it_young_again(
        self, main_checkout: Checkout, objects: ObjectDatabase
    ) -> None:
        (oid,) = objects.write([("blob", b"one")])
        os.utime(object_file(main_checkout, oid), (0, 0))
        objects.write([("blob", b"one")])
        assert object_file(main_checkout, oid).stat().st_mtime > 0  # or the next gc would prune it

    @pytest.mark.sampled(8)
    @pytest.mark.turns("adapter")
    @pytest.mark.parametrize(
        "size", [0, 1, 15, 16, 17, 2047, 2048, 2049, 262_143, 262_144, 30 << 20]
    )
    def test_of_any_size(self, main_checkout: Checkout, objects: ObjectDatabase, size: int) -> None:
        data = (os.urandom(1000) * (size // 1000 + 1))[:size]
        objects.write([("blob", data)])
        oid = main_checkout.git("hash-object", "--stdin", data=data)
        assert [oid, read_one(objects, oid)] == [object_id("blob", data, "sha1"), ("blob", data)]

    def test_of_a_document_takes_no_memory_for_a_large_file(self, objects: ObjectDatabase) -> None:
        objects.write([("blob", b"what is needed for the first one")])
        tracemalloc.start()
        try:
            objects.write([("blob", b"a document of some hundred bytes\n" * 20)])
            assert (
                tracemalloc.get_traced_memory()[1] < 220_000
            )  # by default, zlib alone takes 260,000
        finally:
            tracemalloc.stop()

    def test_goes_to_the_directory_that_all_worktrees_share(
        self, checkout: Checkout, opened: Callable[..., Repository], adapter: str
    ) -> None:
        open_objects(opened(checkout), adapter).write([("blob", b"shared")])
        assert object_file(checkout, object_id("blob", b"shared", "sha1")).is_file()

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
    def test_to_a_directory_that_cannot_be_written_fails(
        self, main_checkout: Checkout, objects: ObjectDatabase
    ) -> None:
        directory = main_checkout.path / ".git" / "objects"
        directory.chmod(0o500)
        try:
            with pytest.raises(GitError):
                objects.write([("blob", b"unwritable")])
        finally:
            directory.chmod(0o700)

    def test_fails_where_a_file_is_in_the_way(
        self, main_checkout: Checkout, objects: ObjectDatabase
    ) -> None:
        oid = object_id("blob", b"in the way", "sha1")
        object_file(main_checkout, oid).parent.write_bytes(b"")
        with pytest.raises(GitError):
            objects.write([("blob", b"in the way")])

    def test_flushes_each_object_and_its_name(
        self, main_checkout: Checkout, objects: ObjectDatabase, flushed: list[str]
    ) -> None:
        oids = objects.write([("blob", b"%d" % number) for number in range(5)])
        files = [object_file(main_checkout, oid) for oid in oids]
        top = main_checkout.path / ".git/objects"
        assert sorted(flushed) == sorted(
            map(str, {*files, *(file.parent for file in files), top / "pack", top})
        )

    def test_leaves_the_flushing_to_the_caller(
        self, objects: ObjectDatabase, flushed: list[str], flushes: Callable[[], int]
    ) -> None:
        objects.write([("blob", b"one")], flushed=False)
        assert [flushed, flushes()] == [[], 0]

    def test_writes_what_a_power_cut_left_empty(
        self, main_checkout: Checkout, objects: ObjectDatabase
    ) -> None:
        (oid,) = objects.write([("blob", b"one")])
        object_file(main_checkout, oid).unlink()
        object_file(main_checkout, oid).touch(0o444)
        objects.write([("blob", b"one")])
        assert main_checkout.git("cat-file", "blob", oid) == "one"

    def test_plumbing_writes_again_and_again_once_warmed_up(
        self, main_checkout: Checkout, repository: Repository
    ) -> None:
        objects = PlumbingObjects(repository)
        repository.cat_file.start_idle_process()
        main_checkout.git("gc", "--quiet", "--prune=now")
        for data in (b"one", b"two"):
            objects.write([("blob", data)])
        written = list(objects.read([object_id("blob", data, "sha1") for data in (b"one", b"two")]))
        objects.close()
        assert written == [("blob", b"one"), ("blob", b"two")]


class TestLooseFiles:
    """The plumbing adapter writes loose files with the permissions git would use."""

    @pytest.mark.parametrize("sharing", ["umask", "group", "all", "0640", "0660", "0600"])
    @pytest.mark.parametrize("umask", [0o022, 0o002, 0o027, 0o077])
    def test_who_may_read_and_write_is_what_git_says(
        self,
        make_checkout: Callable[..., Checkout],
        opened: Callable[..., Repository],
        sharing: str,
        umask: int,
    ) -> None:
        before = os.umask(umask)
        try:
            checkout = make_checkout("project", f"--shared={sharing}")
            theirs = object_file(
                checkout, checkout.git("hash-object", "-w", "--stdin", data="theirs")
            )
            objects = PlumbingObjects(opened(checkout))
            ours = object_file(checkout, objects.write([("blob", b"ours")])[0])
            objects.close()
        finally:
            os.umask(before)
        assert theirs.parent != ours.parent
        assert [oct(path.stat().st_mode) for path in (ours, ours.parent)] == [
            oct(path.stat().st_mode) for path in (theirs, theirs.parent)
        ]

    @pytest.mark.parametrize("object_format", ["sha1", "sha256"])
    def test_git_takes_them_for_its_own(
        self,
        make_checkout: Callable[..., Checkout],
        opened: Callable[..., Repository],
        object_format: str,
    ) -> None:
        checkout = make_checkout("project", f"--object-format={object_format}")
        objects = PlumbingObjects(opened(checkout))
        items = three_kinds(object_format)
        objects.write([*items.values(), ("blob", os.urandom(100_000))])
        objects.close()
        assert checkout.git("fsck", "--strict", "--no-dangling") == ""
        assert checkout.git("count-objects").split()[0] == "4"

    def test_nothing_is_left_of_one_that_cannot_be_written(
        self, main_checkout: Checkout, repository: Repository
    ) -> None:
        objects = PlumbingObjects(repository)
        oid = object_id("blob", b"too long", "sha1")
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (10, before[1]))
        try:
            with pytest.raises(GitError, match="too large"):
                objects.write([("blob", b"too long")])
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert list(object_file(main_checkout, oid).parent.iterdir()) == []
        assert objects.write([("blob", b"too long")]) == [oid]

    def test_one_of_another_user_that_cannot_be_made_young_is_written_anew(
        self, main_checkout: Checkout, repository: Repository, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        objects = PlumbingObjects(repository)
        (oid,) = objects.write([("blob", b"one")])
        known = object_file(main_checkout, oid).stat().st_ino
        os.utime(object_file(main_checkout, oid), (0, 0))

        def refuse(path: str) -> None:
            raise PermissionError(1, "Operation not permitted", path)

        monkeypatch.setattr("gitckpt.git.objects.writer.os.utime", refuse)
        objects.write([("blob", b"one")])
        assert object_file(main_checkout, oid).stat().st_ino != known
        assert main_checkout.git("cat-file", "blob", oid) == "one"

    def test_without_the_directory_of_objects_nothing_is_written(
        self, main_checkout: Checkout, repository: Repository
    ) -> None:
        top = main_checkout.path / ".git/objects"
        top.rename(top.with_name("elsewhere"))
        with pytest.raises(GitError, match="No such file"):
            PlumbingObjects(repository).write([("blob", b"one")])
        assert not top.exists()


class TestAdapters:
    def test_finds_objects_of_an_alternate(
        self,
        main_checkout: Checkout,
        tmp_path: Path,
        opened: Callable[..., Repository],
        adapter: str,
    ) -> None:
        main_checkout.git("clone", "--quiet", "--shared", ".", str(tmp_path / "borrower"))
        objects = open_objects(opened(tmp_path / "borrower"), adapter)
        commit = main_checkout.git("rev-parse", "HEAD")
        assert read_one(objects, commit) is not None

    def test_auto_is_libgit2_where_it_opens_the_repository(self, repository: Repository) -> None:
        assert type(open_objects(repository)) is Libgit2Objects

    def check_falls_back(self, repository: Repository, because: str) -> None:
        assert type(open_objects(repository)) is PlumbingObjects
        with pytest.raises(RepositoryError) as caught:
            open_objects(repository, "libgit2")
        assert because in caught.value.message
        objects = open_objects(repository)
        items = three_kinds(repository.object_format)
        objects.write(list(items.values()))
        assert dict(zip(items, objects.read(list(items)), strict=True)) == items

    def test_auto_is_plumbing_with_sha256(
        self, make_checkout: Callable[..., Checkout], opened: Callable[..., Repository]
    ) -> None:
        checkout = make_checkout("project", "--object-format=sha256")
        commit = checkout.commit("first")
        repository = opened(checkout)
        self.check_falls_back(repository, "unknown object format 'sha256'")
        assert [len(commit), open_objects(repository).read_head()] == [64, (commit, "main")]

    def test_auto_is_plumbing_with_reftables(
        self,
        newer_git: str,
        make_checkout: Callable[..., Checkout],
        opened: Callable[..., Repository],
    ) -> None:
        checkout = make_checkout("project", "--ref-format=reftable")
        unborn = open_objects(opened(checkout)).read_head()
        commit = checkout.commit("first")
        repository = opened(checkout)
        self.check_falls_back(repository, "unsupported extension name extensions.refstorage")
        assert [unborn, open_objects(repository).read_head()] == [("", "main"), (commit, "main")]

    def test_auto_is_plumbing_with_the_extension_of_a_partial_clone(
        self, main_checkout: Checkout, repository: Repository
    ) -> None:
        main_checkout.git("config", "core.repositoryFormatVersion", "1")
        main_checkout.git("config", "extensions.partialClone", "origin")
        self.check_falls_back(repository, "unsupported extension name extensions.partialclone")

    @pytest.mark.parametrize("value", ["group", "all", "0660", "true"])
    def test_auto_is_plumbing_where_a_group_writes(
        self, make_checkout: Callable[..., Checkout], opened: Callable[..., Repository], value: str
    ) -> None:
        checkout = make_checkout("project", f"--shared={value}")
        self.check_falls_back(opened(checkout), "libgit2 ignores core.sharedRepository")
        modes = {
            oct(path.stat().st_mode & 0o770)
            for path in (checkout.path / ".git" / "objects").iterdir()
        }
        assert modes == {"0o770"}

    def test_auto_is_libgit2_where_sharing_is_said_to_be_off(
        self, main_checkout: Checkout, opened: Callable[..., Repository]
    ) -> None:
        main_checkout.git("config", "core.sharedRepository", "umask")
        assert type(open_objects(opened(main_checkout))) is Libgit2Objects

    def test_a_partial_clone_is_read_without_asking_its_remote_what_is_missing(
        self,
        main_checkout: Checkout,
        tmp_path: Path,
        opened: Callable[..., Repository],
        adapter: str,
    ) -> None:
        main_checkout.git("config", "uploadpack.allowFilter", "true")
        url = f"file://{main_checkout.path}"
        main_checkout.git(
            "clone",
            "--quiet",
            "--filter=blob:none",
            "--no-checkout",
            url,
            str(tmp_path / "partial"),
        )
        objects = open_objects(opened(tmp_path / "partial"), adapter)
        commit = main_checkout.git("rev-parse", "HEAD")
        assert objects.read_head() == (commit, "main")
        assert [read_one(objects, commit) is None, read_one(objects, MISSING)] == [False, None]


@pytest.mark.parametrize("object_format", ["sha1", "sha256"])
@pytest.mark.parametrize("data", [b"", b"text\n", bytes(range(256)) * 1000])
def test_object_id_is_that_of_git(
    make_checkout: Callable[..., Checkout], object_format: str, data: bytes
) -> None:
    checkout = make_checkout("project", f"--object-format={object_format}")
    assert object_id("blob", data, object_format) == checkout.git(
        "hash-object", "--stdin", data=data
    )
