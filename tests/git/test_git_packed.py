"""What differs between two states of packed refs is what git says of both."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from gitckpt.git.files import packed, validity
from gitckpt.git.files.packed import Packed
from gitckpt.git.repository import Repository
from tests.conftest import Checkout


@pytest.fixture(autouse=True)
def _any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed, "_LARGE", 0)


def held(repository: Repository) -> Packed:
    found = Packed()
    assert found.hold(repository, stamp_of(repository))
    return found


def stamp_of(repository: Repository) -> str:
    return str(validity.stamp(os.stat(os.path.join(repository.common_dir, "packed-refs")), None))


def refs_of(checkout: Checkout) -> dict[bytes, bytes]:
    lines = checkout.git("for-each-ref", "--format=%(refname) %(objectname)").encode().splitlines()
    return {name: oid for name, _, oid in (line.partition(b" ") for line in lines)}


def test_whatever_changes_is_told(main_checkout: Checkout, opened: Callable[..., Repository]) -> None:
    chance = random.Random(4)
    repository = opened(main_checkout)
    width = len(main_checkout.git("rev-parse", "HEAD"))
    blobs = [main_checkout.git("hash-object", "-w", "--stdin", data=text) for text in ("a", "b", "c")]
    for number in range(3):
        main_checkout.git("tag", "-m", "annotated", f"v{number}")
    names = [f"refs/heads/a{end}" for end in ("", "-b", "b", ".c", "0")] + [f"refs/checkpoints/{number}" for number in range(9)]
    main_checkout.git("pack-refs", "--all")
    before, lasting = refs_of(main_checkout), held(repository)
    told = 0
    for _ in range(40):
        for name in chance.sample([*names, "refs/tags/v1"], chance.randrange(6)):
            if chance.randrange(3):
                value = blobs[chance.randrange(3)] if "checkpoints" in name else "HEAD"
                main_checkout.git("update-ref", name, value)
            else:
                main_checkout.git("update-ref", "-d", name)
        main_checkout.git("pack-refs", "--all")
        after, later = refs_of(main_checkout), held(repository)
        expected = [(name, after.get(name, b"")) for name in sorted({*before, *after}) if before.get(name) != after.get(name)]
        assert list(lasting.changed(later, width)) == expected
        told += len(expected)
        lasting.close()
        before, lasting = after, later
    lasting.close()
    assert told > 40


def test_a_small_file_or_another_one_is_not_held(
    main_checkout: Checkout, opened: Callable[..., Repository], monkeypatch: pytest.MonkeyPatch
) -> None:
    repository, found = opened(main_checkout), Packed()
    assert not found.hold(repository, "none")
    main_checkout.git("pack-refs", "--all")
    stamp = stamp_of(repository)
    assert [found.hold(repository, each) for each in (f"{stamp}0", stamp, stamp)] == [False, True, True]
    assert not found.hold(repository, None)
    assert found.stamp is None
    monkeypatch.setattr(packed, "_LARGE", 1 << 20)
    assert [found.hold(repository, stamp), found.stamp == stamp] == [False, True]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# pack-refs with: peeled fully-peeled \n",
        "# pack-refs with: peeled fully-peeled sorted \n{oid} refs/heads/z",
        "# pack-refs with: peeled fully-peeled sorted \n{oid}\n",
        "# pack-refs with: peeled fully-peeled sorted \n{oid}refs/heads/z\n",
        "# pack-refs with: peeled fully-peeled sorted \nrefs/heads/z {oid}\n",
    ],
)
def test_what_git_does_not_write_is_not_compared(main_checkout: Checkout, opened: Callable[..., Repository], text: str) -> None:
    repository = opened(main_checkout)
    main_checkout.git("pack-refs", "--all")
    before = held(repository)
    oid = main_checkout.git("rev-parse", "HEAD")
    path = Path(repository.common_dir, "packed-refs")
    path.unlink()
    path.write_text(text.format(oid=oid))
    later = Packed()
    later.hold(repository, stamp_of(repository))
    with pytest.raises(ValueError, match=r"not (held|sorted|as git writes it)"):
        list(before.changed(later, len(oid)))
    before.close()
    later.close()


@pytest.mark.parametrize("is_replaced", [False, True])
def test_what_somebody_wrote_into_the_file_is_not_taken_for_what_was_there(
    main_checkout: Checkout, opened: Callable[..., Repository], is_replaced: bool
) -> None:
    """As `cp` does from a backup. Else the file would be compared with itself, and nothing would differ."""
    repository = opened(main_checkout)
    main_checkout.git("tag", "one")
    main_checkout.git("pack-refs", "--all")
    path = Path(repository.common_dir, "packed-refs")
    backup = path.read_bytes()
    main_checkout.git("update-ref", "-d", "refs/tags/one")
    before = held(repository)
    path.write_bytes(backup)
    if is_replaced:
        main_checkout.git("tag", "two")
        main_checkout.git("pack-refs", "--all")
    later = held(repository)
    with pytest.raises(ValueError, match="somebody has written into the file"):
        list(before.changed(later, len(main_checkout.git("rev-parse", "HEAD"))))
    before.close()
    later.close()
