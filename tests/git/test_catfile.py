"""`CatFileProcess` reads objects from one running `git cat-file`."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from gitckpt import CkptError
from gitckpt.git.catfile import CatFileProcess
from gitckpt.git.objects.encoding import object_id
from gitckpt.git.process import SEE_DAMAGE, Child
from gitckpt.git.repository import Repository
from tests.conftest import Checkout, repository_of


@pytest.fixture
def cat_file(repository: Repository) -> Iterator[CatFileProcess]:
    """A `CatFileProcess` for `main_checkout`."""
    made = CatFileProcess(repository.git)
    yield made
    made.close()


class TestInfo:
    def test_of_oids_refs_and_paths(
        self, main_checkout: Checkout, cat_file: CatFileProcess
    ) -> None:
        commit, tree, blob = (
            main_checkout.git("rev-parse", name) for name in ("HEAD", "HEAD^{tree}", "HEAD:README")
        )
        size = int(main_checkout.git("cat-file", "-s", commit))
        assert [
            cat_file.info(name)
            for name in (commit, "refs/heads/main", "HEAD^{tree}", "HEAD:README", blob)
        ] == [
            (commit, "commit", size),
            (commit, "commit", size),
            (tree, "tree", 34),
            (blob, "blob", 6),
            (blob, "blob", 6),
        ]

    @pytest.mark.parametrize(
        "name",
        ["1" * 40, "refs/heads/none", "HEAD:none", "", "a b", "x blob 12", "nonsense..", "größe"],
    )
    def test_of_what_is_missing_is_none(
        self, main_checkout: Checkout, cat_file: CatFileProcess, name: str
    ) -> None:
        assert [cat_file.info(name), cat_file.info("HEAD:README")] == [
            None,
            (main_checkout.git("rev-parse", "HEAD:README"), "blob", 6),
        ]

    def test_of_an_ambiguous_prefix_is_none(
        self, main_checkout: Checkout, cat_file: CatFileProcess
    ) -> None:
        seen: dict[str, str] = {}
        for number in range(10_000):
            oid = object_id("blob", b"%d" % number, "sha1")
            if oid[:4] in seen:
                break
            seen[oid[:4]] = str(number)
        oids = [
            main_checkout.git("hash-object", "-w", "--stdin", data=data)
            for data in (seen[oid[:4]], str(number))
        ]
        assert oids[0][:4] == oids[1][:4]
        assert [cat_file.info(name) for name in (oids[0][:4], *oids)] == [
            None,
            *((name, "blob", len(str(number))) for name in oids),
        ]

    @pytest.mark.parametrize(
        "path",
        [
            "with  two spaces",
            " lead",
            "trail ",
            "größe 枝",
            "tab\there",
            "\udcff",
            "-dash",
            ":colon:",
        ],
    )
    def test_of_a_path_with_any_name(
        self, main_checkout: Checkout, cat_file: CatFileProcess, path: str
    ) -> None:
        main_checkout.commit("named", **{path: "named\n"})
        found = cat_file.info(f"HEAD:{path}")
        assert found == (main_checkout.git("hash-object", "--stdin", data="named\n"), "blob", 6)
        assert list(cat_file.read_contents([f"HEAD:{path}"])) == [(found[0], "blob", b"named\n")]


class TestContents:
    def test_of_thousands_of_long_names_at_once(
        self, main_checkout: Checkout, cat_file: CatFileProcess
    ) -> None:
        path = "/".join(["directory" * 20] * 5)
        main_checkout.commit("deep", **{f"{path}/file": "x" * 5000})
        oid = main_checkout.git("rev-parse", f"HEAD:{path}/file")
        assert (
            list(cat_file.read_contents([f"HEAD:{path}/file", f"HEAD:{path}/none"] * 500))
            == [(oid, "blob", b"x" * 5000), None] * 500
        )

    def test_of_thousands_of_big_objects_at_once(
        self, main_checkout: Checkout, cat_file: CatFileProcess
    ) -> None:
        oid = main_checkout.git("hash-object", "-w", "--stdin", data="x" * 50_000)
        count = 0
        for found in cat_file.read_contents([oid] * 1000):
            assert found == (oid, "blob", b"x" * 50_000)
            count += 1
        assert count == 1000

    @pytest.mark.long
    def test_a_large_one_among_thousands_is_left_out_and_the_rest_is_read(
        self, main_checkout: Checkout, cat_file: CatFileProcess
    ) -> None:
        large, small = (
            main_checkout.git("hash-object", "-w", "--stdin", data="x" * size)
            for size in (3_000_000, 10)
        )
        found = list(cat_file.read_contents([*[small] * 6000, large, *[small] * 6000], 10))
        one = (small, "blob", b"x" * 10)
        assert (found[:6000], found[6000], found[6001:]) == (
            [one] * 6000,
            (large, "oversized", b""),
            [one] * 6000,
        )

    def test_left_in_the_middle_it_ends_where_git_is_started_by_something_else(
        self, main_checkout: Checkout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        blob = main_checkout.git("hash-object", "-w", "--stdin", data="x" * 1000)
        wrapper = tmp_path / "git"
        wrapper.write_text(
            '#!/bin/sh\ngit "$@"\nexit $?\n'
        )  # without `exec`, the shell receives the signal
        wrapper.chmod(0o755)
        monkeypatch.setenv("GITCKPT_GIT", str(wrapper))
        answers = CatFileProcess(repository_of(main_checkout).git).read_contents([blob] * 20_000)
        assert next(answers) == (blob, "blob", b"x" * 1000)

        def waited(*_: object) -> None:
            raise TimeoutError

        before = signal.signal(signal.SIGALRM, waited)
        signal.alarm(20)
        try:
            answers.close()  # type: ignore[attr-defined]
        finally:
            signal.alarm(0)
            signal.signal(signal.SIGALRM, before)

    def test_of_none_is_nothing(self, cat_file: CatFileProcess) -> None:
        assert list(cat_file.read_contents([])) == []

    def test_left_in_the_middle_does_not_confuse_what_is_asked_next(
        self, main_checkout: Checkout, cat_file: CatFileProcess
    ) -> None:
        head = main_checkout.git("rev-parse", "HEAD")
        answers = cat_file.read_contents(["HEAD:README"] * 10)
        first = next(answers)
        nested = cat_file.info("HEAD")
        rest = list(answers)
        another = cat_file.read_contents(["HEAD:README"] * 10)
        next(another)
        del another
        after = cat_file.info("HEAD")
        assert nested is not None
        assert [nested, nested[0], rest] == [after, head, [first] * 9]


class TestItsEnd:
    def test_a_reader_that_died_is_reported_once(
        self, main_checkout: Checkout, cat_file: CatFileProcess, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The error appears only where the process dies after `take_process` returned it."""
        alive = cat_file.info("HEAD")
        really = cat_file._standby.take_process

        def take() -> Child:
            child = really()
            os.kill(child.pid, signal.SIGKILL)
            return child

        with monkeypatch.context() as once:
            once.setattr(cat_file._standby, "take_process", take)
            with pytest.raises(CkptError) as caught:
                cat_file.info("HEAD")
        assert (caught.value.message, caught.value.hint) == (
            "git cat-file ended unexpectedly",
            SEE_DAMAGE,
        )
        assert cat_file.info("HEAD") == alive

    def test_a_reader_that_died_before_many_answers_is_reported(
        self, main_checkout: Checkout, cat_file: CatFileProcess, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        really = cat_file._standby.take_process

        def take() -> Child:
            child = really()
            os.kill(child.pid, signal.SIGKILL)
            return child

        monkeypatch.setattr(cat_file._standby, "take_process", take)
        with pytest.raises(CkptError, match=r"^git cat-file ended unexpectedly$"):
            list(cat_file.read_contents(["HEAD"] * 400))
        monkeypatch.undo()
        assert len(list(cat_file.read_contents(["HEAD"] * 400))) == 400

    def test_an_object_is_not_missing_because_its_reader_was_killed(
        self, main_checkout: Checkout, cat_file: CatFileProcess, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        large = main_checkout.git(
            "hash-object", "-w", "--stdin", data="more than a pipe holds\n" * 100_000
        )
        really = cat_file._standby.take_process

        def take() -> Child:
            child = really()
            read = child.read_output

            def killed(size: int) -> bytes:
                os.kill(child.pid, signal.SIGKILL)
                return read(size)

            monkeypatch.setattr(child, "read_output", killed)
            return child

        monkeypatch.setattr(cat_file._standby, "take_process", take)
        with pytest.raises(CkptError, match=r"^git cat-file ended unexpectedly$"):
            list(cat_file.read_contents([large]))

    def test_a_damaged_object_among_thousands_is_none_and_the_rest_is_read(
        self, main_checkout: Checkout, cat_file: CatFileProcess
    ) -> None:
        good, bad = (
            main_checkout.git("rev-parse", "HEAD"),
            main_checkout.git("hash-object", "-w", "--stdin", data="to be damaged\n"),
        )
        file = main_checkout.path / ".git" / "objects" / bad[:2] / bad[2:]
        file.chmod(0o600)
        file.write_bytes(b"not zlib")
        names = [*[good] * 700, bad, *[good] * 700, "1" * 40, good]
        found = [answer and answer[0] for answer in cat_file.read_contents(names)]
        assert found == [*[good] * 700, None, *[good] * 700, None, good]

    @pytest.mark.parametrize("damage", [b"not zlib", b""])
    def test_what_a_damaged_tree_leads_to_is_none_and_the_rest_is_read(
        self, main_checkout: Checkout, cat_file: CatFileProcess, damage: bytes
    ) -> None:
        main_checkout.commit("a directory", **{"deep/file": "x\n"})
        good, bad = (
            main_checkout.git("rev-parse", "HEAD"),
            main_checkout.git("rev-parse", "HEAD:deep"),
        )
        file = main_checkout.path / ".git" / "objects" / bad[:2] / bad[2:]
        file.chmod(0o600)
        file.write_bytes(damage)
        found = [
            answer and answer[0]
            for answer in cat_file.read_contents([good, "HEAD:deep/file", "HEAD:deep/other", good])
        ]
        assert found == [good, None, None, good]

    def test_a_repository_that_is_gone_is_reported(
        self, main_checkout: Checkout, cat_file: CatFileProcess
    ) -> None:
        main_checkout.path.rename(main_checkout.path.with_name("moved"))
        with pytest.raises(CkptError, match=r"^git cat-file ended unexpectedly: cannot change to "):
            cat_file.info("HEAD")

    def test_closed_it_starts_again(self, cat_file: CatFileProcess) -> None:
        cat_file.close()
        before = cat_file.info("HEAD")
        cat_file.close()
        cat_file.close()
        assert [before is None, cat_file.info("HEAD") == before] == [False, True]

    def test_a_fork_has_a_reader_of_its_own(
        self, main_checkout: Checkout, cat_file: CatFileProcess
    ) -> None:
        head = cat_file.info("HEAD")
        pid = os.fork()
        if pid == 0:
            same = all(cat_file.info("HEAD") == head for _ in range(50))
            cat_file.close()
            os._exit(0 if same else 1)
        answers = [cat_file.info("HEAD") for _ in range(50)]
        assert (os.waitpid(pid, 0)[1], answers) == (0, [head] * 50)
