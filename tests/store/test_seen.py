"""What was seen of a worktree, kept for the next time: whole, or not at all."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gitckpt.git.repository import discover
from gitckpt.git.worktree.index import PrivateIndex
from gitckpt.store.snapshot import seen
from gitckpt.store.snapshot.seen import Directory
from tests.conftest import Checkout

NAMES = st.binary(min_size=1, max_size=4).map(lambda name: name.replace(b"\0", b"\n").replace(b"/", b" "))
PATHS = st.lists(NAMES, max_size=3).map(b"/".join)
DIRECTORIES = st.builds(
    Directory,
    st.integers(0, 2**62) | st.just(time.time_ns() + 10**12),
    st.lists(NAMES, max_size=3),
    st.lists(st.tuples(NAMES, st.sampled_from(["a socket", "a fifo", "gone"])), max_size=2),
)


@pytest.fixture
def index(main_checkout: Checkout) -> Iterator[PrivateIndex]:
    repository = discover(str(main_checkout.path))
    with PrivateIndex(repository) as index:
        yield index
    repository.close()


def told(directories: dict[bytes, Directory]) -> dict[bytes, tuple[int, list[bytes], list[tuple[bytes, str]]]]:
    return {path: (one.changed, one.directories, one.special) for path, one in directories.items()}


@settings(deadline=None, database=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tracked=st.lists(PATHS, max_size=3), directories=st.dictionaries(PATHS, DIRECTORIES, max_size=4), is_flagged=st.booleans())
def test_what_is_kept_comes_back(index: PrivateIndex, tracked: list[bytes], directories: dict[bytes, Directory], is_flagged: bool) -> None:
    checksum = seen.load(index).checksum
    seen.save(index, "" if is_flagged else checksum, tracked, directories)
    found = seen.load(index)
    assert (found.checksum, found.is_known, found.tracked) == (checksum, not is_flagged, [] if is_flagged else tracked)
    assert told(found.directories) == told({path: one for path, one in directories.items() if one.changed < time.time_ns()})


def test_a_part_is_nothing(main_checkout: Checkout, index: PrivateIndex) -> None:
    """As a power cut may leave it: what a directory holds would be believed, without what was cut off."""
    file = main_checkout.path / ".git" / seen.FILE
    checksum = seen.load(index).checksum
    seen.save(index, checksum, [b"", b"a"], {b"": Directory(1, [b"a"], [(b"s", "a socket")]), b"a": Directory(2, [b"b", b"c"], [])})
    whole = file.read_bytes()
    assert seen.load(index).is_known
    for part in (*(whole[:size] for size in range(len(whole))), bytes(len(whole)), whole.replace(b"2", b"3", 1), b"{}", whole + b"x"):
        file.write_bytes(part)
        found = seen.load(index)
        assert (found.is_known, found.tracked, found.directories) == (False, [], {})
    for at in range(0, len(whole), 8):
        file.write_bytes(whole[:at] + bytes(8) + whole[at + 8 :])
        assert seen.load(index).directories == {}


def test_it_is_not_there(main_checkout: Checkout, index: PrivateIndex) -> None:
    assert not (main_checkout.path / ".git" / seen.FILE).exists()
    assert not seen.load(index).is_known
    (main_checkout.path / ".git" / seen.FILE).mkdir()
    seen.save(index, "", [], {})
    assert not seen.load(index).is_known
