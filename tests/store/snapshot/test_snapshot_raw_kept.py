"""Snapshots keep raw bytes of some files, at a bounded cost and size."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gitckpt import Checkpoint, Limits, Store, WorktreeError
from tests import planted
from tests.conftest import Checkout
from tests.planted import plant
from tests.store.conftest import MakeStore
from tests.store.snapshot.test_snapshot_filters import stored
from tests.store.snapshot.test_snapshot_raw import CRLF, MIXED, configured, kept, seen, strip

pytestmark = pytest.mark.long


def converted(checkpoint: Checkpoint) -> tuple[str, ...]:
    assert checkpoint.worktree is not None
    return checkpoint.worktree.converted


# What is not kept


@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_nothing_goes_around_a_filter_that_is_required(
    plain: Store, main_checkout: Checkout, ends: str
) -> None:
    """git-crypt and LFS use required filters: raw bytes would bypass them.

    git's warnings about line ends are passed on.
    """
    here = main_checkout
    configured(
        here,
        filter__turn__clean="tr A-Z N-ZA-M | tr -d 0-9",
        filter__turn__smudge="tr A-Z N-ZA-M",
        filter__turn__required="true",
    )
    here.write(".gitattributes", "*.hid filter=turn text\n")
    here.write("a.hid", "PLAIN 1\n")
    here.git("add", "--all")
    here.git("commit", "--quiet", "--message", "hidden")
    here.write("a.hid", f"PLAIN 2{ends}")
    here.write("b.hid", f"PLAIN 3{ends}")
    made = plain.save("a-complete", {})
    assert kept(here, made.id) == {}
    assert converted(made) == (("a.hid", "b.hid") if ends == "\r\n" else ())
    for name in ("a.hid", "b.hid"):
        here.write(name, "PLAIN, TOO 4\n")
    plain.restore(made)
    plain.undo()
    assert b"PLAIN" not in stored(here)


def test_what_looks_like_a_secret_is_not_kept_where_a_filter_leaves_it_out(
    plain: Store, main_checkout: Checkout
) -> None:
    here = main_checkout
    configured(here, filter__strip__clean="sed s/=.*/=/", filter__strip__smudge="cat")
    here.write(
        ".gitattributes",
        "".join(f"{name} filter=strip\n" for name in (".env", "id_rsa.txt", "page")),
    )
    here.commit("template", **{".env": "KEY=hidden\n", "id_rsa.txt": "a=1\n", "page": "a=1\n"})
    made = plain.save("a-complete", {})
    assert (kept(here, made.id), converted(made)) == ({"page": b"a=1\n"}, (".env", "id_rsa.txt"))
    assert b"hidden" not in stored(here)
    made = plain.save("b-complete", {}, limits=Limits(secrets=("page",)))
    assert (set(kept(here, made.id)), converted(made)) == ({".env", "id_rsa.txt"}, ("page",))


def test_line_ends_of_what_looks_like_a_secret(plain: Store, main_checkout: Checkout) -> None:
    """The raw bytes reveal no more than the blob that git stores."""
    main_checkout.commit("rules", **{".gitattributes": "* text=auto\n", "id_rsa.txt": "1\n"})
    main_checkout.write("id_rsa.txt", MIXED)
    made = plain.save("a-complete", {})
    assert (kept(main_checkout, made.id), converted(made)) == ({"id_rsa.txt": MIXED}, ())


@pytest.mark.parametrize("attributes", ["* text=auto\n", "*.nb filter=strip\n"])
def test_what_is_too_large_is_not_kept(
    plain: Store, main_checkout: Checkout, attributes: str
) -> None:
    here = main_checkout
    strip(here, attributes)
    here.write("a.nb", b"source\r\nout 1\r\n" * 50)
    here.write("b.nb", b"source\n")
    here.write("c.nb", b"\0" + b"\r\n" * 500 if "auto" in attributes else b"source\r\n")
    here.git("add", "--all")
    limits = Limits(max_file_size=500)
    made = plain.save("a-complete", {}, limits=limits)
    assert (kept(here, made.id), converted(made)) == ({}, ("a.nb",))
    assert plain.save("b-complete", {}, limits=limits).worktree == made.worktree
    made = plain.save("c-complete", {}, limits=Limits(max_file_size=None))
    assert (list(kept(here, made.id)), converted(made)) == (["a.nb"], ())


@pytest.mark.long
def test_what_is_not_kept_is_nevertheless_before_it_is_replaced(
    plain: Store, main_checkout: Checkout
) -> None:
    """A restore would otherwise lose these bytes."""
    here = main_checkout
    strip(here, "* filter=strip\n")
    here.git("config", "ckpt.maxFileSize", "100")
    made = plain.save("a-complete", {})
    here.write("a.nb", "source, changed\n" + "out\n" * 100)
    here.write("credentials", "source\nout\n")
    here.git("add", "--all")
    before = seen(here.path)
    assert converted(plain.save("b-complete", {})) == ("a.nb", "credentials")
    plain.restore(made)
    assert b"changed" not in (here.path / "a.nb").read_bytes()
    plain.undo()
    assert seen(here.path)[1] == before[1]


def test_a_restore_says_what_comes_back_otherwise(plain: Store, main_checkout: Checkout) -> None:
    here = main_checkout
    strip(here, "* filter=strip\n")
    here.commit("template", credentials="source\nout 1\n")
    made = plain.save("a-complete", {})
    here.write("credentials", "something else\n")
    done = plain.restore(made, dry_run=True)
    assert done.remarks == ["not restored byte for byte, as git converts these files: credentials"]
    plain.restore(made)
    assert (here.path / "credentials").read_bytes() == b"source\n"


def test_a_filter_that_fails_on_the_way_back_is_no_reason_to_keep_what_it_hides(
    plain: Store, main_checkout: Checkout
) -> None:
    here = main_checkout
    configured(here, filter__turn__clean="tr A-Z N-ZA-M", filter__turn__smudge="false")
    here.write(".gitattributes", "*.hid filter=turn\n")
    here.write("a.hid", "PLAIN\n")
    here.git("add", "--all")
    made = plain.save("a-complete", {})
    assert (kept(here, made.id), converted(made)) == ({}, ("a.hid",))
    assert b"PLAIN" not in stored(here)


def test_a_file_that_changes_while_it_is_captured(
    plain: Store, main_checkout: Checkout, tmp_path: Path
) -> None:
    """Raw bytes match the blob: this filter changes the file after git read it."""
    here = main_checkout
    strip(here)
    script = tmp_path / "smudge"
    script.write_text(
        f"#!/bin/sh\ncat\nmkdir '{tmp_path}/once' && printf 'another source\\nout 2\\n' > "
        f"'{here.path}/b.nb'; true\n"
    )
    script.chmod(0o755)
    here.write("b.nb", "source\nout 1\n")
    configured(here, filter__strip__smudge=str(script))
    made = plain.save("a-complete", {})
    assert here.git("cat-file", "blob", f"refs/ckpt/trees/{made.id}:files/b.nb") == "source"
    assert kept(here, made.id) in (
        {"a.nb": b"source\nout 1\n"},
        {"a.nb": b"source\nout 1\n", "b.nb": b"source\nout 1\n"},
    )
    made = plain.save("b-complete", {})
    assert kept(here, made.id)["b.nb"] == b"another source\nout 2\n"


# What it costs


class Started:
    """Record the git commands that start.

    Attributes:
        names: of the commands, in order.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.names: list[str] = []
        begin = planted.original(planted.PROCESS_START)

        def note(child: object, argv: list[str], *args: object, **options: object) -> None:
            plain = (
                word
                for at, word in enumerate(argv)
                if at and not word.startswith("-") and argv[at - 1] not in ("-c", "-C")
            )
            self.names.append(next(plain))
            begin(child, argv, *args, **options)

        plant(monkeypatch, planted.PROCESS_START, note)

    def since(self) -> list[str]:
        found, self.names = self.names, []
        return sorted(found)


@pytest.mark.parametrize(
    "attributes", ["", "*.png binary diff=exif\n*.text -text\n# text eol=crlf\n"]
)
def test_where_nothing_converts_no_process_starts_for_it(
    make_store: MakeStore, main_checkout: Checkout, monkeypatch: pytest.MonkeyPatch, attributes: str
) -> None:
    main_checkout.commit("files", **{"a": "1\n", "d/b": "2\n", ".gitattributes": attributes})
    main_checkout.write("a", CRLF)
    started = Started(monkeypatch)
    store = make_store(main_checkout)
    store.save("a-complete", {})
    again = ["config", "ls-files", "status"]
    first = [name for name in started.since() if name != "version"]  # asked once in a process
    assert first == sorted([*again, "cat-file", "update-ref"])
    store.save("b-complete", {})
    assert started.since() in (again, again[1:])  # the configuration may be known to be as it was
    assert not (main_checkout.path / ".git/ckpt-exact").exists()


def test_a_file_is_looked_at_once(
    make_store: MakeStore, main_checkout: Checkout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = main_checkout
    strip(here)
    log = tmp_path / "log"
    configured(here, filter__strip__smudge=f"tee -a '{log}'")
    here.commit("another one", **{"b.nb": "other source\n"})
    long_ago = 1_700_000_000
    monkeypatch.setattr(
        "time.time_ns", lambda: os.stat(here.path / "b.nb").st_ctime_ns + 3_000_000_000
    )
    for name in ("a.nb", "b.nb"):
        os.utime(here.path / name, (long_ago, long_ago))
    store = make_store(here)
    made = [store.save("a-complete", {})]
    assert log.read_text() == "source\nother source\n"
    made += [store.save("b-complete", {}), make_store(here).save("c-complete", {})]
    assert log.read_text() == "source\nother source\n"
    assert [kept(here, each.id) for each in made] == [{"a.nb": b"source\nout 1\n"}] * 3
    here.write("b.nb", "other source\nout 2\n")
    assert kept(here, store.save("d-complete", {}).id) == {
        "a.nb": b"source\nout 1\n",
        "b.nb": b"other source\nout 2\n",
    }
    assert log.read_text() == "source\n" + "other source\n" * 2
    here.write(".gitattributes", "a.nb filter=strip\n")  # all is looked at again
    assert kept(here, store.save("e-complete", {}).id) == {"a.nb": b"source\nout 1\n"}
    assert log.read_text() == "source\n" + "other source\n" * 2 + "source\n"


def test_what_a_gc_took_is_written_again(
    make_store: MakeStore, main_checkout: Checkout, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = main_checkout
    strip(here)
    monkeypatch.setattr(
        "time.time_ns", lambda: os.stat(here.path / "a.nb").st_ctime_ns + 3_000_000_000
    )
    store = make_store(here)
    store.remove([store.save("a-complete", {}).id])
    here.git("prune", "--expire=now")
    assert kept(here, store.save("b-complete", {}).id) == {"a.nb": b"source\nout 1\n"}


# Rules change but files stay: git trusts their stat data until it has to read them


TURN = dict.fromkeys(("filter__turn__clean", "filter__turn__smudge"), "tr A-Za-z N-ZA-Mn-za-m")


def converted_then(here: Checkout, store: Store, rules: str) -> Checkpoint:
    """Check out files under some rules; return a checkpoint from before they change."""
    here.commit("files", **{".gitattributes": rules, "a.txt": "one\ntwo\n", "b.txt": "three\n"})
    for name in ("a.txt", "b.txt"):
        (here.path / name).unlink()
    here.git("checkout", "--", ".")
    later = os.stat(here.path / "a.txt").st_mtime + 10
    for name in ("a.txt", "b.txt"):  # so that git believes the stat data
        os.utime(here.path / name, (later - 100, later - 100))
    here.git("update-index", "--refresh")
    os.utime(here.path / ".git/index", (later, later))
    return store.save("a-complete", {})


@pytest.mark.sampled(4)
@pytest.mark.parametrize("later", ["", "*.nothing filter=turn\n", "* text=auto\n", "a.txt text\n"])
@pytest.mark.parametrize("rules", ["* text eol=crlf\n", "*.txt filter=turn\n"])
def test_files_that_rules_no_longer_convert(
    plain: Store, main_checkout: Checkout, rules: str, later: str
) -> None:
    here = main_checkout
    configured(here, **TURN)
    first = converted_then(here, plain, rules)
    there = {name: (here.path / name).read_bytes() for name in ("a.txt", "b.txt")}
    here.write(".gitattributes", later)
    assert not kept(here, first.id).keys() & there.keys()
    made = plain.save("b-complete", {})
    path = Path(plain.resume(made).path)
    assert {name: (path / name).read_bytes() for name in there} == there
    assert kept(here, plain.save("c-complete", {}).id) == kept(here, made.id) != {}
    for name in there:
        here.write(name, "changed\n")
    plain.restore(made)
    assert {name: (here.path / name).read_bytes() for name in there} == there


def test_files_that_settings_no_longer_convert(plain: Store, main_checkout: Checkout) -> None:
    here = main_checkout
    here.git("config", "core.autocrlf", "true")
    converted_then(here, plain, "")
    here.git("config", "core.autocrlf", "false")
    here.git("config", "ckpt.maxFileSize", "8")
    made = plain.save("b-complete", {})
    assert (kept(here, made.id), converted(made)) == ({"b.txt": b"three\r\n"}, ("a.txt",))


def test_what_was_behind_a_filter_that_is_required_is_not_kept_then_either(
    plain: Store, main_checkout: Checkout
) -> None:
    here = main_checkout
    configured(here, **TURN, filter__turn__required="true")
    converted_then(here, plain, "a.txt filter=turn\n")
    here.write(".gitattributes", "")
    made = plain.save("c-complete", {})
    assert (kept(here, made.id), converted(made)) == ({}, ("a.txt",))
    assert b"one\ntwo" not in stored(here)


def test_what_a_filter_left_out_of_a_secret_is_not_kept_then_either(
    plain: Store, main_checkout: Checkout, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = main_checkout
    configured(here, filter__strip__clean="sed s/=.*/=/", filter__strip__smudge="cat")
    here.write(".gitattributes", ".env filter=strip\n")
    here.commit("template", **{".env": "KEY=hidden\n"})
    monkeypatch.setattr(
        "time.time_ns", lambda: os.stat(here.path / ".env").st_ctime_ns + 3_000_000_000
    )
    os.utime(here.path / ".env", (1_700_000_000, 1_700_000_000))
    here.git("update-index", "--refresh")
    plain.save("a-complete", {})
    here.write(".gitattributes", "")
    made = plain.save("b-complete", {})
    assert (kept(here, made.id), converted(made)) == ({}, (".env",))
    assert b"hidden" not in stored(here)


def test_once_git_has_looked_nothing_is_remembered(
    plain: Store, main_checkout: Checkout, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = main_checkout
    memory = here.path / ".git/ckpt-exact"
    converted_then(here, plain, "* text eol=crlf\n")
    assert memory.exists()
    here.write(".gitattributes", "")
    here.git("add", "--renormalize", "--all")
    here.git("commit", "--quiet", "--all", "--message", "as they are")
    monkeypatch.setattr(
        "time.time_ns", lambda: os.stat(here.path / ".gitattributes").st_ctime_ns + 3_000_000_000
    )
    made = plain.save("b-complete", {})
    assert (kept(here, made.id), memory.exists()) == ({}, False)


def test_a_path_that_comes_back_under_other_rules_is_not_called_changed(
    plain: Store, main_checkout: Checkout
) -> None:
    """Git compares the size with that of the earlier conversion, without reading."""
    here = main_checkout
    here.commit("a file", **{"a.txt": "one\n"})
    made = plain.save("a-complete", {})
    (here.path / "a.txt").unlink()
    (here.path / "a.txt").symlink_to("nowhere")
    here.write(".gitattributes", "*.txt text=auto eol=crlf\n")
    plain.restore(made, [b"a.txt"])
    assert here.git("status", "--porcelain") == "?? .gitattributes"


@pytest.mark.parametrize("damage", [b"", b"nonsense", b"gitckpt exact 1 x\0a\tb", b"\0\0"])
def test_a_memory_that_is_damaged(plain: Store, main_checkout: Checkout, damage: bytes) -> None:
    strip(main_checkout)
    main_checkout.write(".git/ckpt-exact", damage)
    assert kept(main_checkout, plain.save("a-complete", {}).id) == {"a.nb": b"source\nout 1\n"}


# Who else has to know


def test_a_clean_worktree_has_a_snapshot_then(plain: Store, main_checkout: Checkout) -> None:
    strip(main_checkout)
    main_checkout.git("add", "--all")
    made = plain.save("a-complete", {})
    assert made.worktree is not None
    assert (made.worktree.dirty, kept(main_checkout, made.id)) == (
        False,
        {"a.nb": b"source\nout 1\n"},
    )
    again = plain.save("b-complete", {})
    assert again.worktree == made.worktree


def test_diff(plain: Store, main_checkout: Checkout) -> None:
    here = main_checkout
    strip(here)
    first = plain.save("a-complete", {})
    (here.path / "a.nb").chmod(0o755)
    here.write("a.nb", "source\nout 2\n")
    second = plain.save("b-complete", {})
    here.write("a.nb", "source\n")
    third = plain.save("c-complete", {})
    here.write("a.nb", "source, changed\nout 2\n")

    def lines(*sides: Checkpoint) -> list[str]:
        return [
            line
            for line in plain.diff(*sides).decode().splitlines()
            if line[:1] in "+-o" and line[:3] not in ("+++", "---")
        ]

    assert lines(first, second) == ["old mode 100644", "-out 1", "+out 2"]
    assert lines(second, third) == ["-out 2"]
    assert lines(third, second) == ["+out 2"]
    assert lines(first, first) == []
    assert lines(third) == ["-source", "+source, changed"]


@pytest.mark.long
def test_verify_names_lost_bytes(plain: Store, main_checkout: Checkout) -> None:
    here = main_checkout
    strip(here)
    made = plain.save("a-complete", {})
    oid = here.git("rev-parse", f"refs/ckpt/trees/{made.id}:raw/a.nb")
    path = here.path / ".git/objects" / oid[:2] / oid[2:]
    whole = path.read_bytes()
    path.unlink()
    report = plain.verify()
    assert [(finding.code, finding.object) for finding in report.findings] == [
        ("objects-missing", f"refs/checkpoints/{made.id}")
    ]
    path.write_bytes(whole[:-5])
    assert [finding.code for finding in plain.verify(contents=True).findings] == [
        "objects-missing",
        "object-damaged",
    ]


def test_a_restore_of_bytes_that_are_gone_changes_nothing(
    plain: Store, main_checkout: Checkout
) -> None:
    here = main_checkout
    strip(here)
    made = plain.save("a-complete", {})
    oid = here.git("rev-parse", f"refs/ckpt/trees/{made.id}:raw/a.nb")
    (here.path / ".git/objects" / oid[:2] / oid[2:]).unlink()
    here.write("a.nb", "something else\n")
    before = seen(here.path)
    for dry_run in (True, False):
        with pytest.raises(
            WorktreeError, match=r"^checkpoint .* lacks the content of a\.nb \(blob [0-9a-f]+\)$"
        ):
            plain.restore(made, dry_run=dry_run)
        assert seen(here.path) == before


@pytest.mark.parametrize("paths", [[], [b".gitattributes"]])
def test_bytes_that_are_here_already_stay_when_other_attributes_come_back(
    store: Store, checkout: Checkout, paths: list[bytes]
) -> None:
    """Raw bytes are kept under both sets of attributes."""
    checkout.commit("more", **{"t.txt": "one\n"})
    checkout.write(".gitattributes", "*.txt text=auto eol=crlf\n")
    made = store.save("a-complete")
    checkout.write(".gitattributes", "*.txt text eol=crlf\n")
    store.restore(made, paths or None)
    assert [(checkout.path / name).read_bytes() for name in ("t.txt", ".gitattributes")] == [
        b"one\n",
        b"*.txt text=auto eol=crlf\n",
    ]
    store.undo()
    assert [(checkout.path / name).read_bytes() for name in ("t.txt", ".gitattributes")] == [
        b"one\n",
        b"*.txt text eol=crlf\n",
    ]
