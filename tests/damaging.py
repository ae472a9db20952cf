"""Damage object files as disks and power cuts do."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.conftest import Checkout

KINDS = ("empty", "cut", "flipped")


def place_of(checkout: Checkout, oid: str) -> Path:
    """Return the file of a loose object."""
    return checkout.main / ".git/objects" / oid[:2] / oid[2:]


def spoil(path: Path, how: str) -> None:
    """Damage a file: "empty", "cut", or "flipped" (one bit in its middle)."""
    path.chmod(0o644)
    whole = path.read_bytes()
    data = bytearray(whole)
    data[len(data) // 2] ^= 1
    path.write_bytes({"empty": b"", "cut": whole[:-3], "flipped": bytes(data)}[how])


def spoil_packed(checkout: Checkout, oid: str) -> None:
    """Damage an object in the only pack, but not its header."""
    (pack,) = (checkout.main / ".git/objects/pack").glob("*.pack")
    listed = checkout.git("show-index", data=pack.with_suffix(".idx").read_bytes()).splitlines()
    places = {line.split()[1]: int(line.split()[0]) for line in listed}
    data = pack.read_bytes()
    ends = sorted([*places.values(), len(data) - 20])
    start, end = places[oid], ends[ends.index(places[oid]) + 1]
    pack.chmod(0o644)
    middle = (start + end) // 2
    pack.write_bytes(data[:middle] + bytes([data[middle] ^ 0x55]) + data[middle + 1 :])


def some(places: Sequence[str], kinds: Sequence[str]) -> list[str]:
    """Return case names that cover each place and each kind of damage."""
    return [f"{place}-{kinds[number % len(kinds)]}" for number, place in enumerate(places)]
