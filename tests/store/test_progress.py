"""A `Listener` counts the files that `save`, `restore` and `resume` read and write."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from gitckpt import GitError, Listener, Store
from gitckpt.store.snapshot import capture
from tests.conftest import Checkout, repository_of

FILES = 2500
READING, SEARCHING, RESTORING = "reading files", "looking for secrets", "restoring files"

Counts = list[tuple[str, int, int]]


@pytest.fixture
def counts() -> Counts:
    return []


@pytest.fixture
def counting(main_checkout: Checkout, counts: Counts) -> Iterator[Store]:
    """Return a store that counts, in a worktree with many untracked files."""
    for number in range(FILES):
        main_checkout.write(f"directory {number % 7}/file {number}", f"{number}\n")
    listener = Listener(count=lambda *numbers: counts.append(numbers))
    with Store.open(main_checkout.path, adapter="plumbing", listener=listener) as store:
        yield store


def tasks_of(counts: Counts, total: int = FILES) -> list[str]:
    """Return the tasks in their order; each one counts up to its total, and is told the end."""
    tasks: list[str] = []
    for before, (task, count, of) in pairwise([("", 0, 0), *counts]):
        assert of == total
        assert 0 <= count <= total
        if before[0] == task and before[1] < total:
            assert count >= before[1]
        else:
            assert before[1] == before[2]  # the previous one has ended
            tasks.append(task)
    assert counts[-1][1:] == (total, total)
    counts.clear()
    return list(dict.fromkeys(tasks))


@pytest.mark.long
@pytest.mark.parametrize("portion", [capture._AT_ONCE, 999])
def test_save_restore_and_resume_count(
    counting: Store,
    main_checkout: Checkout,
    counts: Counts,
    monkeypatch: pytest.MonkeyPatch,
    portion: int,
) -> None:
    monkeypatch.setattr(capture, "_AT_ONCE", portion)
    saved = counting.save("a")
    assert len(counts) > FILES / 200
    assert tasks_of(counts) == [READING, SEARCHING]
    main_checkout.git("clean", "-fdq")
    counting.restore(saved)
    assert tasks_of(counts) == [RESTORING, READING, SEARCHING]
    counting.undo()
    assert tasks_of(counts) == [READING, SEARCHING, RESTORING]
    opened = counting.resume(saved)
    assert Path(opened.path, "directory 0/file 0").exists()
    # The worktree gets the committed README as well.
    assert {task for task, *_ in counts} == {RESTORING, READING, SEARCHING}


@pytest.mark.long
def test_resume_of_a_commit_counts(
    counting: Store, main_checkout: Checkout, counts: Counts
) -> None:
    main_checkout.commit("many files")
    counting.resume(counting.record("a"))
    total = len(main_checkout.git("ls-files").splitlines())
    assert tasks_of(counts, total) == [RESTORING]


@pytest.mark.long
def test_nothing_is_counted_where_nothing_changed(counting: Store, counts: Counts) -> None:
    saved = counting.save("a")
    counts.clear()
    counting.restore(saved)
    assert RESTORING not in {task for task, *_ in counts}


def test_the_message_of_git_is_without_progress(main_checkout: Checkout, counts: Counts) -> None:
    """The last of many files has a filter that fails."""
    main_checkout.write(".gitattributes", "zzz filter=no\n")
    for number in range(500):
        main_checkout.write(f"file {number}", f"{number}\n")
    main_checkout.write("zzz", "x\n")
    main_checkout.commit("many files")
    for name in ("required", "smudge"):
        main_checkout.git("config", f"filter.no.{name}", "true" if name == "required" else "false")
    for path in main_checkout.path.glob("[fz]*"):
        path.unlink()
    repository = repository_of(main_checkout)
    repository.progress = lambda *numbers: counts.append(numbers)
    with pytest.raises(GitError) as caught:
        repository.git.run(
            *("read-tree", "-v", "--reset", "-u", "HEAD"), progress=repository.counter("x")
        )
    assert counts
    assert "zzz: smudge filter no failed" in caught.value.message
    assert "Updating" not in caught.value.message
    assert "%" not in caught.value.message
    assert caught.value.stderr.startswith("error: external filter 'false' failed")
