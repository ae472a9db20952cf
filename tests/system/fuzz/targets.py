"""Define the fuzz targets: each takes bytes and raises only on a fault.

A failed assertion is a fault, as is any other exception.
"""

from __future__ import annotations

import contextlib
import math
import tomllib
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import date, datetime, time

from gitckpt import CkptError
from gitckpt.cli.parser import quick
from gitckpt.cli.parser.commands import COMMANDS
from gitckpt.durable.agent.call import create_output_reader
from gitckpt.durable.agent.clients import FORMATS
from gitckpt.durable.phases.review import state
from gitckpt.durable.pipeline import definition
from gitckpt.durable.steps import graph_file
from gitckpt.formats.systems import quasar
from gitckpt.git.notes import GitNotes
from gitckpt.git.objects.encoding import MalformedTree, decode_tree, encode_tree, object_id
from gitckpt.model import codec, toml
from gitckpt.store.leases import leases
from gitckpt.store.snapshot import manifest

ID = "5f0c2c1e-8f0a-4e0b-9d57-3c4b0f3a9f11"
REF = f"refs/checkpoints/{ID}"
RUN = "20261121-201500-add-login"
STEPS = {"loop": ("agent",), "review": ("tests",)}
OIDS = 8


class Input:
    """Bytes that are consumed from the front.

    Args:
        data: all bytes.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def __bool__(self) -> bool:
        return self._at < len(self._data)

    def number(self, least: int, most: int) -> int:
        """Return a number, of one byte; the least one at the end of the bytes."""
        taken = self.some(1)
        return least + (taken[0] if taken else 0) % (most - least + 1)

    def some(self, size: int) -> bytes:
        """Return the next bytes, at most as many as are left."""
        taken = self._data[self._at : self._at + size]
        self._at += size
        return taken

    def rest(self) -> bytes:
        """Return the remaining bytes."""
        return self.some(len(self._data))


class Memory:
    """Objects of a repository in memory, which fuzzing reads 10,000 times a second."""

    def __init__(self) -> None:
        self.found: dict[str, tuple[str, bytes]] = {}

    def put(self, kind: str, data: bytes) -> str:
        """Add an object, and return its oid."""
        oid = object_id(kind, data, "sha1")
        self.found[oid] = (kind, data)
        return oid

    def head(self) -> tuple[str, str | None]:
        return "", None

    def read(
        self, oids: Sequence[str], most: int | None = None
    ) -> Iterator[tuple[str, bytes] | None]:
        return map(self.found.get, oids)

    def write(self, items: Sequence[tuple[str, bytes]], *, flushed: bool = True) -> list[str]:
        return [self.put(kind, data) for kind, data in items]

    def flush(self, oids: Iterable[str] = (), paths: Iterable[str] = ()) -> None:
        pass

    def close(self) -> None:
        pass


def is_same(one: object, other: object) -> bool:
    """Tell whether values and types are equal; two NaN count as equal."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict) and isinstance(other, dict):
        return list(one) == list(other) and all(is_same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(is_same, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return (math.isnan(one) and math.isnan(other)) or (
            one == other and math.copysign(1, one) == math.copysign(1, other)
        )
    return one == other


def read_document(data: bytes) -> None:
    """Read a checkpoint, whole and in part; it reads the same after it is written."""
    for read in (codec.decode_header, codec.decode_summary):
        with contextlib.suppress(CkptError):
            read(data, REF)
    with contextlib.suppress(CkptError):
        found = codec.decode(data, REF)
        try:
            written = codec.encode(found)
        except CkptError:
            return  # an unknown key may hold a value that the writer refuses
        again = codec.decode(written, REF)
        assert is_same(found.state, again.state), written
        assert codec.encode(again) == written


def read_toml(data: bytes) -> None:
    """Read any TOML, as `tomllib` does."""
    try:
        text = data.decode()
        found = toml.loads(text)
    except ValueError:
        return
    if toml._parse_simple_toml(text) is not None:
        assert is_same(found, tomllib.loads(text)), text
    try:
        written = toml.dumps(found)
    except (CkptError, ValueError):
        return  # a date whose offset has no exact form
    assert is_same(plain(toml.loads(written)), plain(found)), written


def plain(value: object) -> object:
    """Return a value without the differences that TOML can write in two ways."""
    if isinstance(value, dict):
        return {key: plain(each) for key, each in sorted(value.items())}
    if isinstance(value, list):
        return [plain(each) for each in value]
    return repr(value) if isinstance(value, datetime | date | time) else value


def read_lease(data: bytes) -> None:
    """Read a lease."""
    with contextlib.suppress(CkptError):
        found = leases.parse_lease(data, f"refs/ckpt/leases/{RUN}")
        for now in (0, 2**50):
            found.is_endless(now)
        assert found.end
        found.sentence()
        leases.lease_lost_error(RUN, found)


def read_tree(data: bytes) -> None:
    """Read a tree object, which git may have stored without a check."""
    for object_format in ("sha1", "sha256"):
        with contextlib.suppress(MalformedTree):
            entries = decode_tree(data, object_format)
            encode_tree(entries)


def read_notes(data: bytes) -> None:
    """Read and write notes in the tree of `refs/notes/checkpoints`."""
    given, memory = Input(data), Memory()
    known = [
        memory.put("blob", given.some(given.number(0, 60))) for _ in range(given.number(1, OIDS))
    ]
    while given:
        entries = b""
        for _ in range(given.number(1, 6)):
            mode = (b"100644", b"40000", b"0", given.some(2))[given.number(0, 3)]
            name = (
                given.some(1).hex().encode(),
                given.some(19).hex().encode(),
                given.some(20).hex().encode(),
                given.some(3),
            )[given.number(0, 3)]
            entries += (
                mode + b" " + name + b"\0" + bytes.fromhex(known[given.number(0, len(known) - 1)])
            )
        known.append(memory.put("tree", entries + given.some(given.number(0, 3))))
    tip = memory.put("commit", f"tree {known[-1]}\n\nnotes\n".encode())
    notes = GitNotes(Told(tip), memory, "refs/notes/checkpoints")  # type: ignore[arg-type]
    with contextlib.suppress(CkptError):
        list(notes.read_all_notes())
    with contextlib.suppress(CkptError):
        notes.read_note_lines([known[0]])
    with contextlib.suppress(CkptError):
        notes.edit_notes(tip, [known[0], "ab" * 20], lambda commit, lines: [*lines, "one"], 0)


class Told:
    """The parts of a repository that notes use.

    Args:
        tip: the oid of the notes ref.
    """

    object_format = "sha1"

    def __init__(self, tip: str) -> None:
        self._tip = tip
        self.cat_file = self

    def info(self, name: str) -> tuple[str, str, int]:
        return self._tip, "commit", 0


PARTS = (
    b"files",
    b"index",
    b"flags",
    b"modes",
    b"operation",
    b"sparse",
    b"stale",
    b"directories",
    manifest.RAW,
    b"0",
    b"1",
    b"run",
)


def read_snapshot(data: bytes) -> None:
    """Read the tree of a snapshot, with the parts beside the files."""
    given, memory = Input(data), Memory()
    known = [
        memory.put("blob", given.some(given.number(0, 60))) for _ in range(given.number(1, OIDS))
    ]
    while given:
        entries = b""
        for _ in range(given.number(1, len(PARTS))):
            at = given.number(0, len(PARTS) + 2)
            name = PARTS[at] if at < len(PARTS) else given.some(3)
            mode = (b"100644", b"40000", b"120000", given.some(2))[given.number(0, 3)]
            entries += (
                mode + b" " + name + b"\0" + bytes.fromhex(known[given.number(0, len(known) - 1)])
            )
        known.append(memory.put("tree", entries + given.some(given.number(0, 3))))
    with contextlib.suppress(CkptError):
        found = manifest.read(Told(known[-1]), memory, known[-1], "")  # type: ignore[arg-type]
        assert all(0 <= mode <= 0o777 for mode in found.modes.values())


def read_config(data: bytes) -> None:
    """Read `gitckpt.toml`: pipelines, and graphs of steps."""
    text = data.decode("utf-8", "surrogateescape")
    with contextlib.suppress(CkptError):
        for each in definition.parse_pipelines(text, "gitckpt.toml", STEPS).values():
            each.value_digests()
    with contextlib.suppress(CkptError):
        graph_file.parse_graphs(text, "gitckpt.toml")


def read_agent(data: bytes) -> None:
    """Read an agent's output in pieces, and its reply to a review."""
    given = Input(data)
    size, client = given.number(1, 255), FORMATS[given.number(0, len(FORMATS) - 1)]
    taken = create_output_reader(client)
    answer = data[2:].decode("utf-8", "replace")
    while given:
        taken.read_chunk(given.some(size))
    taken.finish_report()
    state.parse_findings(answer)
    state.parse_verifications(answer)
    state.parse_report(answer)
    state.is_approved(answer)
    with contextlib.suppress(CkptError):
        quasar.parse_cycle(data[2:], "checkpoint.toml")


def read_words(data: bytes) -> None:
    """Parse a command line: by the fast path, by Typer, or as wrong usage."""
    words = data.decode("utf-8", "surrogateescape").split("\0")
    with contextlib.suppress(CkptError):
        quick.prepare_command_call(words)
    for load in COMMANDS.values():
        quick.parse_words(load(), words)


TARGETS: dict[str, Callable[[bytes], None]] = {
    "document": read_document,
    "toml": read_toml,
    "lease": read_lease,
    "tree": read_tree,
    "notes": read_notes,
    "snapshot": read_snapshot,
    "config": read_config,
    "agent": read_agent,
    "words": read_words,
}
