"""Trees that git would reject are reported; some servers send them."""

from __future__ import annotations

import pytest

from gitckpt.git.notes import GitNotes
from gitckpt.git.objects.encoding import MalformedTree, decode_tree, encode_tree
from gitckpt.git.objects.plumbing import open_objects
from gitckpt.git.repository import discover_repository
from tests.conftest import Checkout

REF = "refs/notes/checkpoints"
OID = b"\x01" * 20
MALFORMED = {
    "nonsense": b"nonsense",
    "without a NUL": b"100644 name",
    "cut off": b"100644 name\0" + OID[:-1],
    "one byte more": b"100644 name\0" + OID + b"\0",
    "without a mode": b" name\0" + OID,
    "a mode of letters": b"wxyz name\0" + OID,
    "a mode of eight": b"100648 name\0" + OID,
    "a long mode": b"0100644 name\0" + OID,
    "without a name": b"100644 \0" + OID,
    "a path": b"100644 a/b\0" + OID,
    "one name twice": b"100644 a\0" + OID + b"100644 a\0" + OID,
    "a file and a directory": b"100644 a\0" + OID + b"100644 a.b\0" + OID + b"40000 a\0" + OID,
}


@pytest.mark.parametrize("data", MALFORMED.values(), ids=MALFORMED)
def test_is_an_error_of_ours(data: bytes) -> None:
    with pytest.raises(MalformedTree, match=r"^a tree is malformed: "):
        decode_tree(data, "sha1")


def test_what_git_once_wrote_is_read() -> None:
    entries = {b"a": (b"100664", OID.hex()), b"b": (b"040000", OID.hex()), b"c": (b"0", OID.hex())}
    assert decode_tree(encode_tree(entries), "sha1") == entries


@pytest.mark.sampled(2)
@pytest.mark.parametrize("is_below", [False, True], ids=["the tree", "one below it"])
@pytest.mark.parametrize("data", MALFORMED.values(), ids=MALFORMED)
def test_notes_are_made_anew(main_checkout: Checkout, data: bytes, is_below: bool) -> None:
    repository = discover_repository(str(main_checkout.path))
    commit = main_checkout.git("rev-parse", "HEAD")
    tree = main_checkout.git("hash-object", "-w", "-t", "tree", "--literally", "--stdin", data=data)
    if is_below:
        raw = encode_tree({commit[:2].encode(): (b"40000", tree)})
        tree = main_checkout.git(
            "hash-object", "-w", "-t", "tree", "--literally", "--stdin", data=raw
        )
    main_checkout.git("update-ref", REF, main_checkout.git("commit-tree", "-m", "notes", tree))
    objects = open_objects(repository)
    notes = GitNotes(repository, objects, REF)
    assert list(notes.read_all_notes()) == []
    assert notes.read_note_lines([commit]) == {}
    made, items = notes.edit_notes(notes.tip_oid(), [commit], lambda _, lines: [*lines, "one"], 0)
    objects.write(items)
    objects.close()
    main_checkout.git("update-ref", REF, made)
    assert main_checkout.git("notes", "--ref=checkpoints", "show", commit) == "one"
