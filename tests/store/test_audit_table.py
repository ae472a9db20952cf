"""The table in which an audit keeps checkpoints: it says again what was put into it."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from gitckpt.model import ids
from gitckpt.model.checkpoint import Imported, Submodule, Worktree
from gitckpt.model.readers import codec
from gitckpt.model.readers.plain import PlainReader
from gitckpt.store.audit.ledger.table import Oids, Sheet
from gitckpt.store.records import layout
from tests.model.example_documents import CHECKPOINT, ID, REF

OID = "0123456789abcdef0123456789abcdef01234567"
PLAIN = replace(
    CHECKPOINT, errors=(), worktree=None, progress=None, pipeline=None, attempt=None, imported=None, forked_from=None, rewound_to=None
)


def many(count: int) -> list[str]:
    chance = random.Random(count)
    prefixes = ["00000000", "ffffffff", f"{chance.getrandbits(32):08x}"]
    return sorted({f"{chance.choice(prefixes)}-0000-4000-8000-{chance.getrandbits(16):012x}" for _ in range(count)})


@pytest.mark.parametrize(("object_format", "width"), [("sha1", 40), ("sha256", 64)])
def test_each_is_found_and_no_other(object_format: str, width: int) -> None:
    names = many(2000)
    oids = [f"{number:0{width}x}" for number in range(len(names))]
    table = Sheet(object_format)
    for name, oid in zip(names[::2], oids, strict=False):
        table.append(name, oid)
    table.listed()
    assert [table.find(name) for name in names[::2]] == list(range(len(table)))
    assert {table.find(name) for name in [*names[1::2], "x", "", ids.new_id()]} == {None}
    assert [table.id(at) for at in range(len(table))] == names[::2]
    order = list(range(len(table)))[::-1]
    found = Oids(table, order)
    assert (list(found), found[3:5], len(found)) == (oids[: len(table)][::-1], [oids[each] for each in order[3:5]], len(table))
    assert table.oids() == (bytearray.fromhex("".join(oids[: len(table)])), width // 2)


@pytest.mark.parametrize(
    "checkpoint",
    [
        PLAIN,
        replace(PLAIN, run=None, sequence=None, parent=None, git_sha=""),
        replace(PLAIN, git_sha=OID, timestamp="2026-11-21T20:16:35.5+01:00"),
        replace(PLAIN, git_sha=OID + OID[:24]),
        replace(PLAIN, git_sha="0" * 40),
        replace(PLAIN, worktree=Worktree(dirty=True, tree=OID, operation="merge", operation_commit="1" * 40)),
        replace(PLAIN, worktree=Worktree(dirty=True, submodules=(Submodule("sub", ID, OID, dirty=False),))),
        replace(PLAIN, imported=Imported("a", OID, "2026-11-21T20:16:35Z")),
    ],
)
def test_it_says_again_what_a_document_says(checkpoint: object) -> None:
    assert isinstance(checkpoint, type(CHECKPOINT))
    data = codec.encode(checkpoint)
    tables = []
    plain = PlainReader().read(data, ID)
    for is_plain in (False, True) if plain is not None else (False,):
        table = Sheet("sha1")
        table.append(ID, OID)
        table.listed()
        if is_plain and plain is not None:
            table.fill_plain(0, plain)
        else:
            table.fill(0, codec.decode(data, REF), [("key", ID)] if plain is None else [])
        tables.append((table.record(0), table.digests[0]))
    assert tables == [tables[0]] * len(tables)
    record = tables[0][0]
    for name in ("id", "run", "sequence", "timestamp", "git_sha", "parent"):
        assert getattr(record, name) == getattr(checkpoint, name), name
    assert record.phase == checkpoint.label
    files, taken = checkpoint.worktree, checkpoint.imported
    held = (checkpoint.tree, files and files.operation_commit, taken and taken.original, checkpoint.git_sha)
    assert record.holds == {space: oid for space, oid in zip((*layout.HOLDERS, layout.KEEP), held, strict=True) if oid}
    assert (record.oid, record.is_there.ref) == (OID, REF)
