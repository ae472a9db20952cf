"""Where a repository borrows objects (gitrepository-layout(5), `objects/info/alternates`)."""

from __future__ import annotations

import os


def stores(objects: str) -> list[str]:
    """Returns the directories that objects are read from: one, then those that it borrows from (`info/alternates`), there or not."""
    found = [objects]
    for place in found:  # which grows
        try:
            with open(os.path.join(place, "info", "alternates"), "rb") as file:
                lines = file.read().split(b"\n")
        except (FileNotFoundError, NotADirectoryError):
            continue
        named = [os.path.normpath(os.path.join(place, os.fsdecode(line))) for line in lines if line and not line.startswith(b"#")]
        found += [each for each in dict.fromkeys(named) if each not in found]
    return found
