"""Files come back byte for byte even if git would check them out differently."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from gitckpt import BusyError, Store, UnsoundSnapshot, WorktreeError
from gitckpt.git.contents.attributes import ConversionSettings
from gitckpt.store.restore import byte_exact
from gitckpt.store.snapshot import manifest
from gitckpt.store.store import checkpoints_of_store
from tests.conftest import Checkout
from tests.store.conftest import blob, view
from tests.stores import private_dir

pytestmark = pytest.mark.long

STRIP = "sed '/^out/d'"
"""A clean filter that drops the outputs, as nbstripout does."""

CRLF, MIXED, LF = b"1\r\n2\r\n", b"1\r\n2\n", b"1\n2\n"


def configured(here: Checkout, **settings: str) -> None:
    for name, value in settings.items():
        here.git("config", name.replace("__", "."), value)


def strip(here: Checkout, attributes: str = "*.nb filter=strip\n") -> None:
    """Commit a notebook whose outputs a filter removes."""
    configured(here, filter__strip__clean=STRIP, filter__strip__smudge="cat")
    here.write(".gitattributes", attributes)
    here.commit("notebooks", **{"a.nb": "source\nout 1\n"})


def seen(top: Path | str) -> tuple[str, dict[bytes, bytes]]:
    """Return the output of `git status`, without refreshing the index, and all files."""
    status = Checkout(Path(top)).git(
        "status", "--porcelain=v2", "--untracked-files=all", "-z", env={"GIT_OPTIONAL_LOCKS": "0"}
    )
    files = (
        path
        for path in Path(top).rglob("*")
        if path.is_file() and not {".git", ".ckpt"} & set(path.relative_to(top).parts)
    )
    return status, {os.fsencode(path.relative_to(top)): path.read_bytes() for path in files}


def kept(here: Checkout, checkpoint_id: str) -> dict[str, bytes]:
    """Return the files that a snapshot keeps byte for byte."""
    names = here.git(
        "ls-tree", "-r", "-z", "--name-only", f"refs/ckpt/trees/{checkpoint_id}:raw", ok=(0, 128)
    ).split("\0")[:-1]
    return {name: blob(here, f"refs/ckpt/trees/{checkpoint_id}:raw/{name}") for name in names}


def there_and_back(
    store: Store,
    here: Checkout,
    names: list[str],
    place: Path,
    other: bytes = b"something else\r\n",
) -> None:
    """Assert that files come back after a restore, two undos and in a new worktree."""
    before = seen(here.path)
    made = store.save("a-complete", {})
    assert seen(here.path) == before
    assert store.read(made.id) == made
    for name in names:
        here.write(name, other)
    there = seen(here.path)
    done = store.restore(made)
    assert {os.fsdecode(change.path) for change in done.changes} == set(names)
    assert seen(here.path) == before
    store.undo()
    assert seen(here.path) == there
    store.redo()
    assert seen(here.path) == before
    assert seen(store.resume(made, str(place)).path) == before


# Line ends

ENDS: dict[str, tuple[str, dict[str, str], dict[str, bytes]]] = {
    "guessed": ("* text=auto\n", {}, {"crlf": CRLF, "mixed": MIXED}),
    "named": ("*.t text\n", {}, {"d/crlf.t": CRLF, "mixed.t": MIXED}),
    "lf under core.eol": ("* text=auto\n", {"core__eol": "crlf"}, {"lf": LF, "mixed": MIXED}),
    "lf under eol": ("*.t eol=crlf\n", {}, {"lf.t": LF, "mixed.t": MIXED}),
    "crlf under eol": ("*.t eol=lf\n", {}, {"crlf.t": CRLF, "mixed.t": MIXED}),
    "as of old": ("*.t crlf=input\n", {}, {"crlf.t": CRLF}),
    "autocrlf": ("", {"core__autocrlf": "true"}, {"lf": LF, "mixed": MIXED}),
    "autocrlf, input": ("", {"core__autocrlf": "input"}, {"crlf": CRLF, "mixed": MIXED}),
}


WHEN = ["committed", "changed", "untracked"]


@pytest.mark.long(
    spare=[
        f"{when}-{case}"
        for at, when in enumerate(WHEN)
        for number, case in enumerate(ENDS)
        if number % 3 == at
    ]
)
@pytest.mark.parametrize("case", ENDS)
@pytest.mark.parametrize("when", WHEN)
def test_line_ends(
    plain: Store, main_checkout: Checkout, tmp_path: Path, case: str, when: str
) -> None:
    attributes, settings, files = ENDS[case]
    here = main_checkout
    configured(here, **settings)
    here.commit("rules", **{".gitattributes": attributes})
    if when == "changed":
        here.commit("before", **dict.fromkeys(files, "0\n"))
    for name, content in files.items():
        here.write(name, content)
    if when == "committed":
        here.git("add", "--all")
        here.git("commit", "--quiet", "--message", "as they are")
        assert here.git("status", "--porcelain") == ""
    there_and_back(plain, here, list(files), tmp_path / "there")


def test_what_comes_back_by_itself_is_not_kept(plain: Store, main_checkout: Checkout) -> None:
    here = main_checkout
    configured(here, core__autocrlf="true")
    here.write(
        ".gitattributes", "*.bin -text\n*.enc working-tree-encoding=UTF-16LE eol=lf\n*.c ident\n"
    )
    here.write("crlf", CRLF)
    here.write("binary", b"\0\n")
    here.write("a.bin", MIXED)
    here.write("a.enc", "grün\n".encode("utf-16-le"))
    here.write("a.c", "int a;\r\n")
    here.write(
        ".gitattributes", (here.path / ".gitattributes").read_bytes().replace(b"\n", b"\r\n")
    )
    here.write("README", (here.path / "README").read_bytes().replace(b"\n", b"\r\n"))
    made = plain.save("a-complete", {})
    assert made.worktree is not None
    assert (kept(here, made.id), made.worktree.converted) == ({}, ())


# Filters, encodings, ident


@pytest.mark.parametrize("state", ["committed", "changed", "untracked", "staged"])
def test_a_filter_that_leaves_something_out(
    store: Store, checkout: Checkout, tmp_path: Path, state: str
) -> None:
    strip(checkout)
    name = "new.nb" if state == "untracked" else "a.nb"
    if state != "committed":
        checkout.write(name, "source, changed\nout 2\n")
    if state == "staged":
        checkout.git("add", name)
        checkout.write(name, "source, once more\nout 3\n")
    there_and_back(store, checkout, [name], tmp_path / "there")


def test_only_what_the_filter_leaves_out_differs(store: Store, checkout: Checkout) -> None:
    """Git stores both files as the same blob; undo and the plan tell them apart."""
    strip(checkout)
    made = store.save("a-complete", {})
    path = checkout.write("a.nb", "source\nout 1\nout 2\n")
    before = seen(checkout.path)
    dry = store.restore(made, dry_run=True)
    assert [(change.kind, change.path) for change in dry.changes] == [("change", b"a.nb")]
    assert seen(checkout.path) == before
    store.restore(made)
    assert path.read_bytes() == b"source\nout 1\n"
    store.undo()
    assert seen(checkout.path)[1] == before[1]
    path.write_bytes(b"source\n")
    store.redo()
    assert path.read_bytes() == b"source\nout 1\n"
    store.undo()
    assert path.read_bytes() == b"source\n"


def test_what_git_writes_by_itself_comes_back_as_well(
    plain: Store, main_checkout: Checkout
) -> None:
    strip(main_checkout)
    path = main_checkout.write("a.nb", "source\n")
    main_checkout.git("add", "a.nb")
    made = plain.save("a-complete", {})
    assert made.tree is None
    path.write_bytes(b"source\nout 2\n")
    plain.restore(made)
    assert (path.read_bytes(), main_checkout.git("status", "--porcelain")) == (b"source\n", "")


@pytest.mark.parametrize(
    ("attributes", "name", "content"),
    [
        ("*.c ident\n", "a.c", b"/* $Id: whatever stood here $ */\n"),
        (
            "*.txt working-tree-encoding=UTF-16\n",
            "a.txt",
            b"\xff\xfe" + "grün\n".encode("utf-16-le"),
        ),
        ("*.txt text working-tree-encoding=ISO-8859-1\n", "a.txt", "grün\r\n".encode("latin-1")),
    ],
)
def test_ident_and_encodings(
    store: Store, checkout: Checkout, tmp_path: Path, attributes: str, name: str, content: bytes
) -> None:
    checkout.commit("rules", **{".gitattributes": attributes})
    checkout.write(name, content)
    other = content.replace(b"g", b"G") if name == "a.txt" else b"something else\r\n"
    there_and_back(store, checkout, [name], tmp_path / "there", other)


@pytest.mark.parametrize(
    "name", ["with space", " first", "\tfirst", 'new\nline "quoted"', "caf\udce9", "d/e/f"]
)
def test_names_of_every_kind(
    plain: Store, main_checkout: Checkout, tmp_path: Path, name: str
) -> None:
    strip(main_checkout, "* filter=strip\n")
    main_checkout.write(name, "source\nout 1\n")
    there_and_back(plain, main_checkout, [name], tmp_path / "there")


def test_many(plain: Store, main_checkout: Checkout, tmp_path: Path) -> None:
    main_checkout.commit("rules", **{".gitattributes": "* text=auto\n"})
    names = [f"d{number % 7}/{number}" for number in range(600)]
    for name in names:
        main_checkout.write(name, f"{name}\r\n")
    there_and_back(plain, main_checkout, names, tmp_path / "there")


# Where attributes are, and that they change


@pytest.mark.parametrize("place", ["info", "core.attributesFile", "below", "XDG"])
def test_attributes_elsewhere(
    plain: Store,
    main_checkout: Checkout,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    place: str,
) -> None:
    here = main_checkout
    files = {"info": here.path / ".git/info/attributes", "below": here.path / "d/.gitattributes"}
    path = files.get(place, tmp_path / "config/git/attributes")
    if place == "XDG":
        monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    if place == "core.attributesFile":
        configured(here, core__attributesFile=str(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("*.t text\n")
    here.write("d/a.t", CRLF)
    there_and_back(plain, here, ["d/a.t"], tmp_path / "there")


def test_attributes_that_came_after_the_checkpoint(store: Store, checkout: Checkout) -> None:
    checkout.commit("before", **{".gitattributes": "* text=auto\n"})
    checkout.write("a", MIXED)
    made = store.save("a-complete", {})
    before = seen(checkout.path)
    for rules in ("* -text\n", "* text eol=crlf\n", ""):
        checkout.write(".gitattributes", rules)
        checkout.write("a", "something else\n")
        there = seen(checkout.path)
        store.restore(made)
        assert seen(checkout.path) == before
        store.undo()
        assert seen(checkout.path) == there


def test_attributes_beyond_the_snapshot_that_came_later(
    plain: Store, main_checkout: Checkout
) -> None:
    main_checkout.commit("before", **{".gitattributes": "a text=auto\n"})
    main_checkout.write("a", MIXED)
    made = plain.save("a-complete", {})
    for rules in ("* -text\n", "* text eol=crlf\n", "* text eol=lf\n"):
        main_checkout.write(".git/info/attributes", rules)
        main_checkout.write("a", "something else\n")
        plain.restore(made)
        assert (main_checkout.path / "a").read_bytes() == MIXED


def test_attributes_alone_differ_by_which_git_writes_a_file(
    plain: Store, main_checkout: Checkout
) -> None:
    """Each snapshot's attributes restore its line ends, without raw copies."""
    here = main_checkout
    made = []
    here.commit("before", **{".gitattributes": "", "a.t": "1\n2\n"})
    for rules, content in (("", LF), ("*.t eol=crlf\n", CRLF)):
        here.write(".gitattributes", rules)
        here.write("a.t", content)
        here.git("add", "--all")
        here.git("commit", "--quiet", "--allow-empty", "--message", "rules")
        made.append(plain.save("a-complete", {}))
        assert kept(here, made[-1].id) == {}
    for checkpoint, content in zip(made * 2, (LF, CRLF) * 2, strict=True):
        plain.restore(checkpoint)
        assert (here.path / "a.t").read_bytes() == content


# Restores of a kind


def test_some_paths_only(store: Store, checkout: Checkout) -> None:
    strip(checkout)
    checkout.write("d/b.nb", "source\nout 1\n")
    checkout.git("add", "--all")
    checkout.git("commit", "--quiet", "--message", "another one")
    before = seen(checkout.path)
    made = store.save("a-complete", {})
    for name in ("a.nb", "d/b.nb"):
        checkout.write(name, "source\nout two\n")
    store.restore(made, [b"d"])
    assert (checkout.path / "a.nb").read_bytes() == b"source\nout two\n"
    assert (checkout.path / "d/b.nb").read_bytes() == b"source\nout 1\n"
    store.restore(made, [b"a.nb"])
    assert seen(checkout.path) == before


def test_line_ends_that_differ_by_size_alone(store: Store, checkout: Checkout) -> None:
    """Git may report such a file as changed before the restore and not after it."""
    checkout.commit(
        "rules", **{".gitattributes": "* text=auto\n", "known": "1\n2\n", "unknown": "1\n2\n"}
    )
    for name in ("known", "unknown"):
        checkout.write(name, CRLF)
    checkout.git("add", "known")
    made = store.save("a-complete", {})
    for name in ("known", "unknown"):
        checkout.write(name, "something else\n")
    there = seen(checkout.path)[1]
    store.restore(made)
    assert [(checkout.path / name).read_bytes() for name in ("known", "unknown")] == [CRLF, CRLF]
    store.undo()
    assert seen(checkout.path)[1] == there
    store.redo()
    assert [(checkout.path / name).read_bytes() for name in ("known", "unknown")] == [CRLF, CRLF]


def test_a_file_with_other_names_and_a_mode(
    plain: Store, main_checkout: Checkout, tmp_path: Path
) -> None:
    strip(main_checkout)
    path = main_checkout.path / "a.nb"
    path.chmod(0o750)
    made = plain.save("a-complete", {})
    path.write_bytes(b"source\nout 2\n")
    os.link(path, tmp_path / "other name")
    plain.restore(made)
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"source\nout 1\n", 0o750)
    assert (tmp_path / "other name").read_bytes() == b"source\nout 2\n"


def test_a_file_that_changes_before_it_is_replaced(plain: Store, main_checkout: Checkout) -> None:
    strip(main_checkout)
    store = checkpoints_of_store(plain)
    made = plain.save("a-complete", {})
    path = main_checkout.write("a.nb", "source\nout 2\n")
    now = plain.save("b-complete", {})
    wanted, found = (
        manifest.contents_of(each, store.repository, store.objects) for each in (made, now)
    )
    planned = byte_exact.plan_exact_files(store.repository, found, wanted, [], lambda path: True)
    with store.take_private_index() as index:
        assert byte_exact.require_files_unchanged(
            index, planned, ConversionSettings(), wanted.files
        )
        path.write_bytes(b"source\nout 3\n")
        with pytest.raises(BusyError, match=r"^a file changed while it was to be replaced: a.nb$"):
            byte_exact.require_files_unchanged(index, planned, ConversionSettings(), wanted.files)


def test_a_sparse_checkout(plain: Store, main_checkout: Checkout, tmp_path: Path) -> None:
    main_checkout.commit(
        "rules", **{".gitattributes": "* text=auto\n", "in/a": "1\n", "out/b": "1\n"}
    )
    main_checkout.git("sparse-checkout", "set", "in")
    main_checkout.write("in/a", MIXED)
    before = seen(main_checkout.path)
    made = plain.save("a-complete", {})
    main_checkout.write("in/a", "x\n")
    plain.restore(made)
    assert seen(main_checkout.path) == before
    assert seen(plain.resume(made, str(tmp_path / "there")).path) == before


def test_a_conflict_in_progress(store: Store, checkout: Checkout, tmp_path: Path) -> None:
    checkout.commit("base", **{".gitattributes": "* text=auto\n", "a": "1\n"})
    base = checkout.head()
    checkout.commit("ours", a="2\n")
    checkout.git("checkout", "--quiet", "--detach", base)
    checkout.commit("theirs", a="3\n")
    checkout.git("merge", "--quiet", "@{-1}", ok=(1,))
    path = checkout.write("a", (checkout.path / "a").read_bytes().replace(b"\n", b"\r\n"))
    content, before = path.read_bytes(), view(checkout.path)
    made = store.save("a-complete", {})
    path.write_bytes(b"resolved\n")
    checkout.git("add", "a")
    store.restore(made)
    assert (path.read_bytes(), view(checkout.path)) == (content, before)
    assert view(store.resume(made, str(tmp_path / "there")).path) == before


# What was fetched


Forge = Callable[[str, str, str], str]


@pytest.fixture
def forge(plain: Store, main_checkout: Checkout) -> Forge:
    """Replace the newest snapshot's tree `raw`: `forge(mode, oid, path)`.

    Return the checkpoint's id.
    """

    def make(mode: str, oid: str, path: str) -> str:
        here = main_checkout
        made = plain.save("a-complete", {})
        *above, name = path.split("/")
        kind = "commit" if mode == "160000" else "blob"
        tree = here.git("mktree", "--missing", data=f"{mode} {kind} {oid}\t{name}\n")
        for directory in reversed(above):
            raw = b"40000 %s\0" % directory.encode() + bytes.fromhex(tree)
            tree = here.git("hash-object", "-t", "tree", "--literally", "-w", "--stdin", data=raw)
        entries = here.git("ls-tree", f"refs/ckpt/trees/{made.id}").splitlines()
        lines = [line for line in entries if not line.endswith("\traw")] + [
            f"040000 tree {tree}\traw"
        ]
        whole = here.git("mktree", data="".join(f"{line}\n" for line in lines))
        text = plain.raw(made.id).decode().replace(str(made.tree), whole)
        document = here.git("hash-object", "-w", "--stdin", data=text)
        here.git("update-ref", f"refs/checkpoints/{made.id}", document)
        here.git("update-ref", f"refs/ckpt/trees/{made.id}", whole)
        os.unlink(os.path.join(private_dir(plain), "written"))  # as where it was fetched
        return made.id

    return make


@pytest.mark.parametrize("mode", ["120000", "160000"])
def test_links_and_submodules_are_refused(
    plain: Store, main_checkout: Checkout, forge: Forge, tmp_path: Path, mode: str
) -> None:
    strip(main_checkout)
    oid = (
        main_checkout.git("hash-object", "-w", "--stdin", data="/etc/passwd")
        if mode == "120000"
        else main_checkout.head()
    )
    made = plain.read(forge(mode, oid, "a.nb"))
    main_checkout.write("a.nb", "something else\n")
    before = seen(main_checkout.path)
    with pytest.raises(
        WorktreeError,
        match=r"^the snapshot has a raw copy of b'a.nb', which is not a regular file$",
    ):
        plain.restore(made)
    with pytest.raises(WorktreeError, match="which is not a regular file"):
        plain.resume(made, str(tmp_path / "there"))
    assert (seen(main_checkout.path), (tmp_path / "there").exists()) == (before, False)


@pytest.mark.parametrize("path", ["nowhere", "link", "link/x", "d"])
def test_what_the_snapshot_has_no_file_for_is_passed_over(
    plain: Store, main_checkout: Checkout, forge: Forge, tmp_path: Path, path: str
) -> None:
    strip(main_checkout)
    main_checkout.write("d/x", "x\n")
    (main_checkout.path / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").mkdir()
    made = plain.read(
        forge("100644", main_checkout.git("hash-object", "-w", "--stdin", data="hostile\n"), path)
    )
    main_checkout.write("a.nb", "something else\n")
    plain.restore(made)
    plain.resume(made, str(tmp_path / "there"))
    assert [
        found
        for found in tmp_path.rglob("*")
        if found.is_file() and b"hostile" in found.read_bytes()
    ] == []


@pytest.mark.parametrize("path", ["../outside", ".git/hooks/post-commit"])
def test_a_way_out_of_the_worktree_is_refused(
    plain: Store, main_checkout: Checkout, forge: Forge, tmp_path: Path, path: str
) -> None:
    strip(main_checkout)
    made = plain.read(
        forge("100644", main_checkout.git("hash-object", "-w", "--stdin", data="hostile\n"), path)
    )
    main_checkout.write("a.nb", "something else\n")
    before = seen(main_checkout.path)
    with pytest.raises(
        UnsoundSnapshot, match=f"an entry is named b'{re.escape(path.split('/', maxsplit=1)[0])}'"
    ):
        plain.restore(made)
    with pytest.raises(UnsoundSnapshot, match="an entry is named"):
        plain.resume(made, str(tmp_path / "there"))
    assert (seen(main_checkout.path), (tmp_path / "there").exists()) == (before, False)
    assert [
        found
        for found in tmp_path.rglob("*")
        if found.is_file() and b"hostile" in found.read_bytes()
    ] == []


def test_a_link_on_the_way_is_not_followed(
    plain: Store, main_checkout: Checkout, tmp_path: Path
) -> None:
    """A directory may become a symlink while files are restored."""
    from gitckpt.git.contents import exact_files

    (tmp_path / "elsewhere").mkdir()
    target = tmp_path / "elsewhere/a"
    target.write_bytes(b"untouched")
    (main_checkout.path / "d").symlink_to(tmp_path / "elsewhere")
    (main_checkout.path / "a").symlink_to(target)
    for path in (b"d/a", b"a", b"../elsewhere/a", b"nowhere", b"d"):
        assert not exact_files.replace_file(
            checkpoints_of_store(plain).repository, path, b"hostile"
        )
    assert target.read_bytes() == b"untouched"
