"""The order in which many objects are read: a permutation whatever the packs are like, and theirs where they can be read."""

from __future__ import annotations

import itertools
import os
import subprocess
from array import array
from pathlib import Path
from random import Random

import pytest

from gitckpt.git.files.order import in_packs
from gitckpt.git.process import git_executable
from gitckpt.git.repository import open_repository
from tests.conftest import Checkout


def packed(checkout: Checkout, texts: list[str]) -> list[str]:
    """Writes blobs into a pack of their own, and returns their oids in its order."""
    stream = "".join(f"blob\nmark :{number + 1}\ndata {len(text)}\n{text}\n" for number, text in enumerate(texts))
    marks = checkout.path.parent / "marks"
    subprocess.run(
        [git_executable(), "-c", "fastimport.unpackLimit=1", "fast-import", "--quiet", f"--export-marks={marks}"],
        cwd=checkout.path,
        input=stream.encode(),
        check=True,
    )
    return [line.split()[1] for line in sorted(marks.read_text().splitlines(), key=lambda line: int(line[1:].split()[0]))]


def ordered(checkout: Checkout, oids: list[str]) -> list[str]:
    width = len(oids[0]) // 2
    found = in_packs(open_repository(str(checkout.path)), bytes.fromhex("".join(oids)), width)
    assert sorted(found) == list(range(len(oids)))
    return [oids[number] for number in found]


def indexes(checkout: Checkout) -> list[Path]:
    return sorted(checkout.path.glob(".git/objects/pack/*.idx"))


@pytest.fixture(params=["sha1", "sha256"])
def two_packs(main_checkout: Checkout, request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Checkout, list[str], list[str], list[str]]:
    """A repository; the oids of its loose blobs, of those of a large pack, and of a small one."""
    checkout = main_checkout
    if request.param == "sha256":
        checkout = Checkout(tmp_path / "other")
        subprocess.run([git_executable(), "init", "--quiet", "--object-format=sha256", str(checkout.path)], check=True)
    large, small = packed(checkout, [f"large {number}\n" for number in range(700)]), packed(checkout, ["small 1\n", "small 2\n"])
    loose = [checkout.git("hash-object", "-w", "--stdin", data=f"loose {number}\n") for number in range(3)]
    return checkout, loose, large, small


def test_loose_ones_come_first_and_then_pack_after_pack(two_packs: tuple[Checkout, list[str], list[str], list[str]]) -> None:
    checkout, loose, large, small = two_packs
    wanted = [*loose, *large, *small]
    mixed = list(wanted)
    Random(1).shuffle(mixed)
    found = ordered(checkout, mixed)
    assert (sorted(found[:3]), found[3:]) == (sorted(loose), [*large, *small])
    some = sorted(wanted[::3])
    assert ordered(checkout, some)[1:] == [oid for oid in [*large, *small] if oid in some]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("damage", ["cut", "empty", "other", "gone", "directory"])
def test_what_cannot_be_read_is_passed_over(main_checkout: Checkout, damage: str) -> None:
    large = packed(main_checkout, [f"large {number}\n" for number in range(700)])
    (index,) = indexes(main_checkout)
    whole = index.read_bytes()
    os.chmod(index, 0o600)
    if damage == "cut":
        for size in itertools.chain(range(0, 1100, 97), range(1100, len(whole), 997)):
            index.write_bytes(whole[:size])
            ordered(main_checkout, large)
    elif damage == "empty":
        index.write_bytes(b"")
    elif damage == "other":
        index.write_bytes(b"\0" + whole[1:])
    else:
        index.unlink()
        if damage == "directory":
            index.mkdir()
    assert len(ordered(main_checkout, large)) == 700


@pytest.mark.long
def test_no_byte_of_an_index_makes_it_fail(main_checkout: Checkout) -> None:
    large = packed(main_checkout, [f"large {number}\n" for number in range(40)])
    (index,) = indexes(main_checkout)
    os.chmod(index, 0o600)
    whole = index.read_bytes()
    chance = Random(2)
    for _ in range(300):
        data = bytearray(whole)
        for _ in range(chance.choice((1, 40))):
            data[chance.randrange(len(data))] = chance.choice((0, 0x7F, 0x80, 0xFF))
        index.write_bytes(data)
        ordered(main_checkout, large)


def test_far_places(main_checkout: Checkout) -> None:
    """Beyond two gigabytes an offset stands in a table of its own."""
    large = packed(main_checkout, [f"large {number}\n" for number in range(5)])
    (index,) = indexes(main_checkout)
    os.chmod(index, 0o600)
    data = index.read_bytes()
    start = 8 + 1024 + 5 * 24
    offsets = array("I", data[start : start + 20])
    offsets.byteswap()
    ranked = sorted(offsets)
    near = [offset if ranked.index(offset) < 2 else 0x80000000 | 4 - ranked.index(offset) for offset in offsets]
    far = [(1 << 40) - number * 100 for number in range(3)]
    table = b"".join(number.to_bytes(4, "big") for number in near) + b"".join(number.to_bytes(8, "big") for number in far)
    index.write_bytes(data[:start] + table + data[start + 20 :])
    assert ordered(main_checkout, sorted(large)) == large


def test_of_none_and_without_packs(main_checkout: Checkout) -> None:
    assert list(in_packs(open_repository(str(main_checkout.path)), b"", 20)) == []
    oid = main_checkout.git("rev-parse", "HEAD")
    assert ordered(main_checkout, [oid]) == [oid]
