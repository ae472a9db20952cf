"""Where objects are borrowed from is read as git reads it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gitckpt.git.objects import alternates
from tests.conftest import Checkout


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("plain", "{}"),
        ("plain", '"{}"'),
        ("two\nlines", '"{}"'),
        ("ümlaut", '"{}"'),
        ('a "b" \\c\t', '"{}"'),
        ("plain", '"{}" and more'),
        ("plain", '"{}'),
        ("plain", '"{}\\q"'),
        ("plain", "#{}"),
        ("plain", "{}\r"),
    ],
)
def test_git_and_we_borrow_from_the_same_places(
    main_checkout: Checkout, tmp_path: Path, name: str, line: str
) -> None:
    place = str(tmp_path / name)
    main_checkout.git("clone", "--quiet", "--bare", str(main_checkout.path), place)
    objects = f"{place}/objects"
    quoted = "".join(
        chr(byte) if byte > 31 and byte < 127 and byte not in b'"\\' else f"\\{byte:03o}"
        for byte in os.fsencode(objects)
    )
    if name == 'a "b" \\c\t':
        quoted = objects.replace("\\", "\\\\").replace('"', '\\"').replace("\t", "\\t")
    (main_checkout.path / ".git/objects/info/alternates").write_bytes(
        os.fsencode(f"{line.format(quoted)}\n")
    )
    said = main_checkout.git("count-objects", "-v")
    ours = [
        found
        for found in alternates.stores(str(main_checkout.path / ".git/objects"))[1:]
        if os.path.isdir(found)
    ]
    assert ours == ([objects] if "alternate: " in said else [])
