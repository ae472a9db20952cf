"""Files that git cannot store are kept or named, not taken for unchanged."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gitckpt import RestoreResult, Store, WorktreeError
from tests.conftest import Checkout
from tests.store.conftest import Denied, MakeStore, blob

pytestmark = pytest.mark.long

BOM = b"\xff\xfe"
GOOD, BROKEN = BOM + "größer\n".encode("utf-16-le"), b"\0an agent wrote \xff\n\0"
STRICT = "f=$(mktemp); cat >$f; head -n 1 $f | grep -q ^OK; r=$?; cat $f; rm $f; exit $r"
ABSENT = "no-such-filter"


def encoded(here: Checkout) -> None:
    here.write(".gitattributes", "*.rc text working-tree-encoding=UTF-16LE-BOM\n")
    here.write("a.rc", GOOD)
    here.git("add", "--all")
    here.git("commit", "--quiet", "--message", "encoded")


def filtered(here: Checkout, name: str = "a.dat") -> Path:
    """Commit a file whose required filter accepts only content that begins with OK."""
    for key, value in {"clean": STRICT, "smudge": "cat", "required": "true"}.items():
        here.git("config", f"filter.strict.{key}", value)
    here.commit(
        "rules", **{".gitattributes": "*.dat filter=strict\n", name: "OK\n", "other": "1\n"}
    )
    return here.path / name


def without_lfs(here: Checkout, required: str = "true") -> Path:
    """Commit files whose filter process does not start."""
    here.commit(
        "pointers",
        **{
            ".gitattributes": "*.bin filter=lfs\n",
            "x.bin": "version 1\n",
            "y.bin": "version 1\n",
            "other": "1\n",
        },
    )
    uninstall(here, required)
    return here.path / "x.bin"


def uninstall(here: Checkout, required: str = "true") -> None:
    for key in ("process", "clean", "smudge"):
        here.git("config", f"filter.lfs.{key}", f"{ABSENT} {key}")
    here.git("config", "filter.lfs.required", required)


def reasons(done: RestoreResult) -> dict[str, str]:
    return {os.fsdecode(path): reason.partition(":")[0] for path, reason in done.kept.items()}


@pytest.mark.parametrize(
    "content", [b"agent wrote utf8\n", BROKEN, b"\xff\xfea"], ids=["text", "binary", "odd"]
)
def test_a_file_in_another_encoding_is_kept_byte_for_byte(
    store: Store, checkout: Checkout, content: bytes
) -> None:
    encoded(checkout)
    good = store.save("a-complete", {})
    path = checkout.path / "a.rc"
    path.write_bytes(content)
    path.chmod(0o755)
    made = store.save("b-complete", {})
    assert made.worktree is not None
    assert (made.worktree.dirty, made.worktree.omitted) == (True, ())
    assert blob(checkout, f"refs/ckpt/trees/{made.id}:files/a.rc") == content
    assert (
        checkout.git("ls-tree", f"refs/ckpt/trees/{made.id}:files", "a.rc").split()[0] == "100755"
    )
    store.restore(good)
    assert path.read_bytes() == GOOD
    store.undo()
    assert path.read_bytes() == content
    store.redo()
    assert path.read_bytes() == GOOD
    store.restore(made)
    assert path.read_bytes() == content
    assert (Path(store.resume(made).path) / "a.rc").read_bytes() == content


def test_a_new_file_in_another_encoding_is_kept_as_well(
    plain: Store, main_checkout: Checkout
) -> None:
    encoded(main_checkout)
    good = plain.save("a-complete", {})
    main_checkout.write("new.rc", BROKEN)
    plain.restore(good)
    assert not (main_checkout.path / "new.rc").exists()
    plain.undo()
    assert (main_checkout.path / "new.rc").read_bytes() == BROKEN


def test_restore_of_one_path_replaces_a_file_in_another_encoding(
    plain: Store, main_checkout: Checkout
) -> None:
    encoded(main_checkout)
    good = plain.save("a-complete", {})
    path = main_checkout.write("a.rc", BROKEN)
    plain.restore(good, [b"README"])
    assert path.read_bytes() == BROKEN
    plain.restore(good, [b"a.rc"])
    assert path.read_bytes() == GOOD
    plain.undo()
    assert path.read_bytes() == BROKEN


def test_what_changes_once_more_before_it_is_replaced_stays(
    plain: Store, main_checkout: Checkout, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gitckpt import BusyError
    from tests.store.conftest import after_recording

    encoded(main_checkout)
    good = plain.save("a-complete", {})
    path = main_checkout.write("a.rc", BROKEN)
    after_recording(plain, monkeypatch, lambda: path.write_bytes(b"later\n"))
    with pytest.raises(BusyError):
        plain.restore(good)
    assert path.read_bytes() == b"later\n"


def test_what_a_required_filter_refuses_is_listed_by_save_and_kept_by_restore(
    store: Store, checkout: Checkout
) -> None:
    path = filtered(checkout)
    good = store.save("a-complete", {})
    path.write_bytes(b"broken by an agent\n")
    checkout.write("other", "2\n")
    made = store.save("b-complete", {})
    assert made.worktree is not None
    assert [(entry.path, entry.reason) for entry in made.worktree.omitted] == [
        ("a.dat", "filter strict refuses it")
    ]
    assert blob(checkout, f"refs/ckpt/trees/{made.id}:files/a.dat") == b"OK\n"
    done = store.restore(good)
    assert (path.read_bytes(), (checkout.path / "other").read_text(), done.kept) == (
        b"OK\n",
        "1\n",
        {},
    )
    done = store.undo()
    assert (path.read_bytes(), done.unfiltered, done.kept) == (b"broken by an agent\n", (), {})
    store.redo()
    assert path.read_bytes() == b"OK\n"


def test_undo_brings_back_what_a_required_filter_refuses_both_ways(
    plain: Store, main_checkout: Checkout
) -> None:
    """Sops refuses to decrypt a file that it did not encrypt, too."""
    path = filtered(main_checkout)
    good = plain.save("a-complete", {})
    main_checkout.git("config", "filter.strict.smudge", STRICT)
    path.write_bytes(b"broken by an agent\n")
    plain.restore(good)
    assert path.read_bytes() == b"OK\n"
    safety = plain.read(plain.undo_steps()[0].checkpoint.id)
    assert plain.undo().unfiltered == ()
    assert path.read_bytes() == b"broken by an agent\n"
    opened = plain.resume(safety)
    assert (opened.unfiltered, (Path(opened.path) / "a.dat").read_bytes()) == (
        (),
        b"broken by an agent\n",
    )
    assert plain.restore(good).unfiltered == ()


def test_a_refused_file_whose_name_looks_like_a_secret_stays(
    plain: Store, main_checkout: Checkout
) -> None:
    main_checkout.git("config", "ckpt.secrets", "*.dat")
    path = filtered(main_checkout)
    good = plain.save("a-complete", {})
    path.write_bytes(b"PLAIN\n")
    main_checkout.write("other", "2\n")
    done = plain.restore(good)
    assert reasons(done) == {"a.dat": "filter strict refuses it"}
    assert (path.read_bytes(), (main_checkout.path / "other").read_text()) == (b"PLAIN\n", "1\n")


@pytest.mark.parametrize("required", ["true", "false"])
def test_a_filter_process_that_does_not_start_fails_no_save(
    plain: Store, main_checkout: Checkout, required: str
) -> None:
    """The pipe breaks at random, so git may or may not name a file."""
    path = without_lfs(main_checkout, required)
    path.write_bytes(b"changed\n")
    main_checkout.write("new.bin", "new\n")
    main_checkout.write("other", "2\n")
    for _ in range(20):
        made = plain.save("a-complete", {})
        assert made.worktree is not None
        left_out = {entry.path: entry.reason.partition(":")[0] for entry in made.worktree.omitted}
        if required == "true":
            assert left_out == {
                "new.bin": "git cannot store it",
                "x.bin": "filter lfs does not work",
            }
        else:
            assert left_out == {}
        assert blob(main_checkout, f"refs/ckpt/trees/{made.id}:files/other") == b"2\n"


def test_restore_leaves_what_a_filter_cannot_store_that_does_not_start(
    plain: Store, main_checkout: Checkout
) -> None:
    path = without_lfs(main_checkout)
    main_checkout.git("config", "--remove-section", "filter.lfs")
    main_checkout.write("y.bin", "version 2\n")
    good = plain.save("a-complete", {})
    main_checkout.write("y.bin", "version 3\n")
    main_checkout.git("commit", "--quiet", "--all", "--message", "three")
    uninstall(main_checkout)
    path.write_bytes(b"changed\n")
    main_checkout.write("other", "2\n")
    done = plain.restore(good)
    assert reasons(done) == {"x.bin": "filter lfs does not work"}
    assert done.unfiltered == (b"y.bin",)
    assert (path.read_bytes(), (main_checkout.path / "other").read_text()) == (b"changed\n", "1\n")
    assert (main_checkout.path / "y.bin").read_text() == "version 2\n"


def test_a_file_that_cannot_be_kept_in_a_submodule_is_named(
    plain: Store, main_checkout: Checkout, lib: Checkout
) -> None:
    path = without_lfs(lib)
    uninstall(
        main_checkout
    )  # git looks at submodules with the settings of the worktree around them
    good = plain.save("a-complete", {})
    path.write_bytes(b"changed\n")
    lib.write("other", "2\n")
    with pytest.raises(
        WorktreeError, match=r"lib: 1 file was not restored, .*: x\.bin \(filter lfs does not work"
    ):
        plain.restore(good)
    assert (path.read_bytes(), (lib.path / "other").read_text()) == (b"changed\n", "1\n")


RESTORE = """
import sys
from gitckpt.__main__ import main
sys.argv[1:] = ["restore", "latest"]
sys.exit(main())
"""


def test_restore_leaves_and_names_what_cannot_be_read(
    main_checkout: Checkout, make_store: MakeStore, denied: Denied, tmp_path: Path
) -> None:
    main_checkout.commit("more", closed="1\n", other="1\n")
    make_store(main_checkout).save("a-complete", {})
    main_checkout.write("closed", "mine\n").chmod(0)
    main_checkout.write("other", "2\n")
    (tmp_path / "elsewhere").mkdir()
    os.chdir(main_checkout.path)
    done = denied(
        tmp_path / "elsewhere", f"import os; os.chdir({str(main_checkout.path)!r})" + RESTORE
    )
    (main_checkout.path / "closed").chmod(0o644)
    assert done.returncode == WorktreeError.exit_code, done.stderr
    assert "error: 1 file was not restored" in done.stderr
    assert "closed (cannot be read: permission denied)" in done.stderr
    assert (
        (main_checkout.path / "closed").read_text(),
        (main_checkout.path / "other").read_text(),
    ) == ("mine\n", "1\n")


def test_a_file_in_conflict_that_a_required_filter_refuses(
    plain: Store, main_checkout: Checkout
) -> None:
    path = filtered(main_checkout)
    main_checkout.git("checkout", "--quiet", "-b", "side")
    path.write_text("OK side\n")
    main_checkout.git("commit", "--quiet", "--all", "--message", "side")
    main_checkout.git("checkout", "--quiet", "main")
    path.write_text("OK main\n")
    main_checkout.git("commit", "--quiet", "--all", "--message", "main")
    main_checkout.git("merge", "side", ok=(1,))
    assert path.read_text().startswith("<<<")
    made = plain.save("a-complete", {})
    assert made.worktree is not None
    assert [entry.path for entry in made.worktree.omitted] == ["a.dat"]
