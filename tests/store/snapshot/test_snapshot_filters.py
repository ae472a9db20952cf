"""Snapshots store and restore files through the same filters as git."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gitckpt import Checkpoint, Store
from tests.conftest import Checkout, git_program
from tests.store.conftest import ROOT, MakeStore, blob, view
from tests.stores import LeftOut, left_out

PROCESS = r"""
# A filter that lives on (gitattributes(5), "Long Running Filter Process"): letters move on by 13 places, both ways.
import codecs, sys

def read():
    size = int(sys.stdin.buffer.read(4) or b"0", 16)
    return sys.stdin.buffer.read(size - 4) if size else None

def read_all():
    return list(iter(read, None))

def write(*lines):
    for line in lines:
        sys.stdout.buffer.write(b"%04x%s" % (len(line) + 4, line))
    sys.stdout.buffer.write(b"0000")
    sys.stdout.buffer.flush()

read_all()
write(b"git-filter-server\n", b"version=2\n")
read_all()
write(b"capability=clean\n", b"capability=smudge\n")
while read_all():
    content = b"".join(read_all())
    write(b"status=success\n")
    write(*([codecs.encode(content.decode(), "rot13").encode()] if content else []))
    write()
"""  # noqa: E501
EVERYTHING = """
import os, sys
from gitckpt import Store
with Store.open(sys.argv[1]) as store:
    made = store.save("a-complete", {})
    with open(os.path.join(sys.argv[1], "README"), "w") as file:
        file.write("changed\\n")
    store.restore(made)
    store.undo()
    store.resume(made)
    print(sorted(entry.path for entry in store.read(store.find("latest")).worktree.omitted))
"""


def stored(here: Checkout) -> bytes:
    """Return the content of all objects in the repository, reachable or not."""
    command = [git_program(), "cat-file", "--batch-all-objects", "--batch", "--unordered"]
    return subprocess.run(command, cwd=here.path, capture_output=True, check=True).stdout


def saved(store: Store, here: Checkout, name: str) -> tuple[Checkpoint, bytes]:
    """Save; return the checkpoint and the stored content of a file."""
    made = store.save("a-complete", {})
    return made, blob(here, f"refs/ckpt/trees/{made.id}:files/{name}")


def there_and_back(store: Store, here: Checkout, made: Checkpoint, name: str) -> list[bytes]:
    """Return a file's content after a restore, another one after undo, and a resume."""
    path = here.path / name
    path.write_bytes(b"something else")
    store.restore(made)
    found = [path.read_bytes()]
    store.undo()
    assert path.read_bytes() == b"something else"
    store.restore(made)
    return [*found, path.read_bytes(), (Path(store.resume(made).path) / name).read_bytes()]


@pytest.mark.long
@pytest.mark.sampled(3)
@pytest.mark.parametrize("strict", ["unset", "true", "warn"])
def test_line_ends_that_change_are_kept(store: Store, checkout: Checkout, strict: str) -> None:
    checkout.commit("rules", **{".gitattributes": "* text=auto\n", "tracked": "1\n", "same": "1\n"})
    if strict != "unset":
        checkout.git("config", "core.safecrlf", strict)
    checkout.write("tracked", "1\r\n2\r\n")
    checkout.write('new "one"', "1\r\n2\r\n")
    checkout.write("same", "1\n2\n")
    checkout.write("binary", b"1\r\n\0\r\n")
    made, content = saved(store, checkout, "tracked")
    assert made.worktree is not None
    assert (made.worktree.converted, made.worktree.omitted) == ((), ())
    assert (content, store.read(made.id)) == (b"1\n2\n", made)
    assert blob(checkout, f'refs/ckpt/trees/{made.id}:raw/new "one"') == b"1\r\n2\r\n"
    assert there_and_back(store, checkout, made, "tracked") == [b"1\r\n2\r\n"] * 3
    assert (
        checkout.path / 'new "one"'
    ).read_bytes() == b"1\r\n2\r\n"  # nothing was to be done to it
    assert (checkout.path / "binary").read_bytes() == b"1\r\n\0\r\n"


@pytest.mark.long
def test_ident(store: Store, checkout: Checkout) -> None:
    checkout.commit("rules", **{".gitattributes": "*.c ident\n", "a.c": "/* $Id$ */\n"})
    checkout.write("a.c", "/* $Id: whatever stood here $ */\nint a;\n")
    made, content = saved(store, checkout, "a.c")
    assert content == b"/* $Id$ */\nint a;\n"
    assert (
        there_and_back(store, checkout, made, "a.c")
        == [b"/* $Id: whatever stood here $ */\nint a;\n"] * 3
    )


@pytest.mark.long
@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("name", "codec"),
    [("UTF-16LE", "utf-16-le"), ("UTF-16BE", "utf-16-be"), ("ISO-8859-1", "latin-1")],
)
def test_encodings(store: Store, checkout: Checkout, name: str, codec: str) -> None:
    checkout.write(".gitattributes", f"*.txt text eol=lf working-tree-encoding={name}\n")
    checkout.write("a.txt", "grün\n".encode(codec))
    checkout.git("add", "--all")
    checkout.git("commit", "--quiet", "--message", "encoded")
    checkout.write("a.txt", "größer\n".encode(codec))
    expected = view(checkout.path)
    made, content = saved(store, checkout, "a.txt")
    assert content == "größer\n".encode()
    assert there_and_back(store, checkout, made, "a.txt") == ["größer\n".encode(codec)] * 3
    assert view(checkout.path) == expected


@pytest.mark.parametrize("content", [b"o\0d\0d", b"\xff\xfea\0"], ids=["odd", "BOM"])
@pytest.mark.parametrize("name", ["it's bad.txt", "bad"])
def test_what_git_cannot_encode_is_kept_as_it_is(
    plain: Store, main_checkout: Checkout, name: str, content: bytes
) -> None:
    main_checkout.write(".gitattributes", "*bad* working-tree-encoding=UTF-16LE\n")
    main_checkout.write(name, content)
    main_checkout.write("new", "x")
    made = plain.save("a-complete", {})
    assert made.worktree is not None
    assert made.worktree.omitted == ()
    assert blob(main_checkout, f"{made.worktree.tree}:files/{name}") == content
    assert blob(main_checkout, f"{made.worktree.tree}:raw/{name}") == content
    assert (Path(plain.resume(made).path) / name).read_bytes() == content


@pytest.mark.long
@pytest.mark.parametrize("way", ["commands", "process"])
def test_filters_of_ones_own(store: Store, checkout: Checkout, tmp_path: Path, way: str) -> None:
    if way == "process":
        script = tmp_path / "filter.py"
        script.write_text(PROCESS)
        checkout.git("config", "filter.turn.process", f"'{sys.executable}' -IS '{script}'")
    else:
        for direction in ("clean", "smudge"):
            checkout.git("config", f"filter.turn.{direction}", "tr a-zA-Z n-za-mN-ZA-M")
    checkout.git("config", "filter.turn.required", "true")
    checkout.commit(
        "rules",
        **{".gitattributes": "*.dat filter=turn\n", "a.dat": "secret\n", "staged.dat": "secret\n"},
    )
    checkout.write("a.dat", "changed\n")
    checkout.write("staged.dat", "staged\n")
    checkout.git("add", "staged.dat")
    checkout.write("staged.dat", "changed again\n")
    checkout.write("new.dat", "")
    expected = view(checkout.path)
    made, content = saved(store, checkout, "a.dat")
    assert content == b"punatrq\n"
    assert view(store.resume(made, str(tmp_path / "there")).path) == expected
    assert there_and_back(store, checkout, made, "a.dat") == [b"changed\n"] * 3
    assert view(checkout.path) == expected
    assert [
        word
        for word in (b"secret\n", b"changed\n", b"staged\n", b"again\n")
        if word in stored(checkout)
    ] == []


def test_a_filter_that_fails_and_is_not_required(plain: Store, main_checkout: Checkout) -> None:
    """Git stores the content unfiltered then, and so does a capture."""
    main_checkout.git("config", "filter.broken.clean", "false")
    main_checkout.commit("rules", **{".gitattributes": "*.dat filter=broken\n"})
    main_checkout.write("a.dat", "as it is\n")
    made, content = saved(plain, main_checkout, "a.dat")
    assert (content, made.worktree and made.worktree.omitted) == (b"as it is\n", ())


@pytest.mark.long
def test_files_of_lfs(store: Store, checkout: Checkout, tmp_path: Path) -> None:
    if shutil.which("git-lfs") is None:
        pytest.skip("git-lfs is not installed")
    checkout.git("lfs", "install", "--local")
    checkout.git("lfs", "track", "*.bin")
    plain = [b"PLAIN %d\0" % number * 1000 for number in range(5)]
    for name, content in zip(("a.bin", "staged.bin"), plain, strict=False):
        checkout.write(name, content)
    checkout.commit("large files", README="hello\n")
    checkout.write("a.bin", plain[2])
    checkout.write("staged.bin", plain[3])
    checkout.git("add", "staged.bin")
    checkout.write("staged.bin", plain[1])
    checkout.write("new.bin", plain[4])
    expected = view(checkout.path)
    made, content = saved(store, checkout, "a.bin")
    assert content.splitlines()[0] == b"version https://git-lfs.github.com/spec/v1"
    assert view(store.resume(made, str(tmp_path / "there")).path) == expected
    assert there_and_back(store, checkout, made, "a.bin") == [plain[2]] * 3
    assert view(checkout.path) == expected
    assert b"PLAIN" not in stored(checkout)
    assert b"something else" not in stored(
        checkout
    )  # what was replaced is in a safety checkpoint, as a pointer


def crypt(main: Checkout) -> None:
    """Encrypt a tracked file with git-crypt, and commit it."""
    if shutil.which("git-crypt") is None:
        pytest.skip("git-crypt is not installed")
    subprocess.run(["git-crypt", "init"], cwd=main.path, capture_output=True, check=True)
    main.commit(
        "encrypted",
        **{
            ".gitattributes": "*.hid filter=git-crypt diff=git-crypt\n",
            "a.hid": "PLAIN one\n",
            "b.hid": "PLAIN two\n",
        },
    )


class TestGitCrypt:
    @pytest.mark.long
    def test_no_plain_text_is_stored(self, plain: Store, main_checkout: Checkout) -> None:
        crypt(main_checkout)
        main_checkout.write("a.hid", "PLAIN three\n")
        main_checkout.write("new.hid", "PLAIN four\n")
        main_checkout.write("b.hid", "PLAIN five\n")
        main_checkout.git("add", "b.hid")
        expected = view(main_checkout.path)
        made, content = saved(plain, main_checkout, "a.hid")
        assert content[:10] == b"\0GITCRYPT\0"
        for name in ("a.hid", "b.hid", "new.hid"):
            main_checkout.write(name, "PLAIN, too\n")
        plain.restore(made)
        assert view(main_checkout.path) == expected
        plain.undo()
        assert (main_checkout.path / "b.hid").read_text() == "PLAIN, too\n"
        assert b"PLAIN" not in stored(main_checkout)

    def test_it_has_no_key_in_a_linked_worktree(
        self, make_store: MakeStore, main_checkout: Checkout, tmp_path: Path
    ) -> None:
        """git-crypt 0.7 looks for its key in the worktree's own git directory."""
        crypt(main_checkout)
        main_checkout.git(
            "worktree", "add", "--quiet", "--no-checkout", "-b", "side", str(tmp_path / "side")
        )
        side = Checkout(tmp_path / "side", main_checkout.path)
        done = subprocess.run(
            ["git-crypt", "clean"], cwd=side.path, input=b"x", capture_output=True, check=False
        )
        if done.returncode == 0:
            pytest.skip("this git-crypt finds its key in a linked worktree")
        side.git("read-tree", "HEAD")
        side.git("checkout-index", ".gitattributes")
        side.write("README", "changed\n")
        side.write("new.hid", "PLAIN three\n")
        store = make_store(side)
        made = store.save("a-complete", {})
        said = (
            "git-crypt: Error: Unable to open key file - have you unlocked/initialized this "
            "repository yet?"
        )
        assert made.worktree is not None
        assert left_out(made.worktree) == (LeftOut("new.hid", f"git cannot store it: {said}"),)
        assert blob(side, f"refs/ckpt/trees/{made.id}:files/README") == b"changed\n"
        side.write("a.hid", "PLAIN four\n")
        side.git(
            "status", ok=(128,)
        )  # of a tracked file it has to know what the filter makes of it
        made = store.save("b-complete", {})
        assert made.worktree is not None
        assert [entry.path for entry in made.worktree.omitted] == ["a.hid", "new.hid"]
        assert blob(side, f"refs/ckpt/trees/{made.id}:files/a.hid")[:10] == b"\0GITCRYPT\0"
        assert b"PLAIN" not in stored(main_checkout)

    def test_attributes_that_are_deleted_still_hold(
        self, plain: Store, main_checkout: Checkout
    ) -> None:
        """`git add --all` would store plain text without the attributes."""
        crypt(main_checkout)
        (main_checkout.path / ".gitattributes").unlink()
        main_checkout.write("a.hid", "PLAIN three\n")
        main_checkout.write("new.hid", "PLAIN four\n")
        made = plain.save("a-complete", {})
        names = main_checkout.git(
            "ls-tree", "-r", "--name-only", f"refs/ckpt/trees/{made.id}:files"
        ).splitlines()
        assert names == ["README", "a.hid", "b.hid", "new.hid"]
        assert b"PLAIN" not in stored(main_checkout)

    @pytest.mark.long
    def test_a_resumed_worktree_finds_the_key(
        self, plain: Store, main_checkout: Checkout, tmp_path: Path
    ) -> None:
        """`git worktree add` alone fails with git-crypt 0.7."""
        crypt(main_checkout)
        main_checkout.write("a.hid", "PLAIN three\n")
        made = plain.save("a-complete", {})
        opened = plain.resume(made, str(tmp_path / "there" / "new"))
        assert view(opened.path) == view(main_checkout.path)
        assert b"PLAIN" not in stored(main_checkout)


@pytest.mark.long
def test_nothing_of_what_is_left_out_is_stored(main_checkout: Checkout) -> None:
    prefix: list[str] = []
    if os.getuid() == 0:
        if shutil.which("setpriv") is None:
            pytest.skip("modes do not stop root, and there is no setpriv to give up its rights")
        prefix = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]
    main_checkout.commit("rules", **{".gitignore": "*.o\n", "tracked": "1\n"})
    main_checkout.git("config", "ckpt.maxFileSize", "10 kB")
    large = "PLAIN " * 2000
    for name, content in {
        ".env": "PLAIN\n",
        "deep/ID_rsa": "PLAIN\n",
        "a.o": "PLAIN\n",
        "large": large,
        "small": "x",
    }.items():
        main_checkout.write(name, content)
    for name in ("unreadable", "tracked"):
        main_checkout.write(name, "PLAIN\n").chmod(0)
    done = subprocess.run(
        [*prefix, sys.executable, "-c", EVERYTHING, str(main_checkout.path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stderr, done.stdout) == (
        "",
        "['.env', 'deep/ID_rsa', 'large', 'tracked', 'unreadable']\n",
    )
    assert b"PLAIN" not in stored(main_checkout)
    for name in ("unreadable", "tracked"):
        (main_checkout.path / name).chmod(0o644)
    assert {
        name: (main_checkout.path / name).read_text()
        for name in (".env", "deep/ID_rsa", "a.o", "large", "unreadable", "tracked")
    } == {
        name: large if name == "large" else "PLAIN\n"
        for name in (".env", "deep/ID_rsa", "a.o", "large", "unreadable", "tracked")
    }
