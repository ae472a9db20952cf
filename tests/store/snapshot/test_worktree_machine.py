"""A model of the worktree predicts each capture, restore, undo and resume.

The state machine changes a worktree as a person may. In the lane `long`; `--long` runs 100,000
different steps each time.
"""

from __future__ import annotations

import functools
import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, Verbosity, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from gitckpt import Checkpoint, NotFoundError, RestoreResult, WorktreeError
from tests.conftest import Checkout, Clock, Ids
from tests.store.snapshot.worktree_model import (
    CONVERTED,
    Place,
    Seen,
    brings_operation,
    detached,
    expect,
    is_at_its_start,
    is_within,
)
from tests.stores import open_store, operation_of

pytestmark = pytest.mark.long

STEPS, LONG_STEPS = 400, 25_000
"""The least number of steps of each test."""

PER_EXAMPLE = 40

PATHS = st.sampled_from(
    [
        *(
            b"a",
            b"b",
            b"d",
            b"d/x",
            b"d/y",
            b"d/e/z",
            b"l/x",
            b"l",
            b"with space",
            b'new\nline/quo"te\\',
            b"caf\xe9",
            b"t.txt",
        ),
        *(b"u.o", b"out/x", b"out/y.o"),
    ]
)
CONTENTS = st.sampled_from(
    [
        b"",
        b"one\n",
        b"two\n",
        b"no newline",
        b"one\r\ntwo\r\n",
        b"one\ntwo\r\n",
        b"#!/bin/sh\n",
        b"\0\xff",
    ]
)
TARGETS = st.sampled_from([b"nowhere", b"a", b"d", b"l", b"out/x", b"/etc/hostname"])
RULES = st.sampled_from(
    [b"", b"*.o\n", b"out/\n", b"a\nd/e\n", b"*.o\nout\n", b"d/*\n!d/x\n", b"*\n", b"l\ncaf*\n"]
)
RULES_OF_CONVERSION = (b"*.txt text eol=crlf\n", b"*.txt text=auto\n", b"*.txt filter=strip\n")
Edit = tuple[Callable[..., None], tuple[Any, ...]]
SIDES = st.sampled_from(["one", "two", "three"])
SOME = st.sampled_from(
    [(), (), (), (b"d",), (b"a",), (b"t.txt", b"out"), (b"d/x",), (b"l", b'new\nline/quo"te\\')]
)
NUMBERS = st.integers(0, 20)
EDITS = st.one_of(
    st.tuples(st.just(Place.write), st.tuples(PATHS, CONTENTS)),
    st.tuples(st.just(Place.touch), st.tuples(PATHS)),
    st.tuples(st.just(Place.delete), st.tuples(PATHS)),
    st.tuples(st.just(Place.rename), st.tuples(PATHS, PATHS)),
    st.tuples(st.just(Place.chmod), st.tuples(PATHS, st.sampled_from([0o755, 0o644]))),
    st.tuples(st.just(Place.link), st.tuples(PATHS, TARGETS)),
    st.tuples(st.just(Place.make_directory), st.tuples(PATHS)),
    st.tuples(st.just(Place.ignore), st.tuples(st.sampled_from([b"", b"", b"d/"]), RULES)),
    st.tuples(st.just(Place.convert), st.tuples(st.sampled_from([b"", *RULES_OF_CONVERSION]))),
    st.tuples(
        st.just(Place.add),
        st.tuples(PATHS, st.sampled_from(["--force", "--update", "--intent-to-add"])),
    ),
    st.tuples(st.just(Place.stage_in_part), st.tuples(PATHS, CONTENTS)),
    st.tuples(
        st.just(Place.git_whatever),
        st.sampled_from([("add", "--all"), ("reset", "--quiet"), ("reset", "--quiet", "--hard")]),
    ),
    st.tuples(st.just(Place.unstage), st.tuples(PATHS)),
    st.tuples(
        st.just(Place.assume),
        st.tuples(PATHS, st.sampled_from(["--assume-unchanged", "--no-assume-unchanged"])),
    ),
)
"""What a person does to a file or its entry: a method of `Place` and arguments."""


def prepare(here: Checkout) -> None:
    """Create conflicting branches and a stash."""
    base = here.commit(
        "base",
        **dict.fromkeys(("a", "b", "d/x", "d/y", "with space", "t.txt", "caf\udce9"), "base\n"),
    )
    for name in ("one", "two", "three"):
        here.git("checkout", "--quiet", "-b", name, base)
        here.commit(f"{name} begins", a=f"{name}\n", **{"d/x": f"{name}\n", f"only {name}": "x\n"})
        if name == "two":
            here.git("rm", "--quiet", "-r", "d")
            here.commit("d is a file", d="file\n")
        here.git("rm", "--quiet", "b")
        here.commit(f"{name} ends", a=f"{name} again\n", **{"with space": f"{name}\n"})
    here.git("config", "filter.strip.clean", "sed '/^one/d'")  # which loses something
    here.git("checkout", "--quiet", "main")
    here.commit("ours", a="ours\n", b="ours\n", **{"d/x": "ours\n"})
    here.write("a", "stashed\n")
    here.git("stash", "push", "--quiet")


class WorktreeMachine(RuleBasedStateMachine):
    """Change a worktree as people do; sometimes run a gitckpt command."""

    def __init__(self, scratch: Path, *, linked: bool, adapter: str, steps: list[int]) -> None:
        super().__init__()
        self._steps = steps
        self._taken = -1  # Hypothesis calls `count` once before the first
        self._directory = tempfile.mkdtemp(dir=scratch)
        main = os.path.join(self._directory, "main")
        shutil.copytree(scratch / "template", main, symlinks=True)
        self._main = self.here = Place(main)
        if linked:
            top = os.path.join(self._directory, "linked worktree")
            self._main.git("worktree", "add", "--quiet", "-b", "side", top)
            self.here = Place(top)
        self.store = open_store(
            os.fsdecode(self.here.top), adapter=adapter, clock=Clock(), new_id=Ids()
        )
        self.saved: list[tuple[Checkpoint, Seen]] = []
        self.seen: dict[str, Seen] = {}
        """The state that each safety checkpoint restores."""
        self.brought: frozenset[bytes] = frozenset()
        """The files that the newest step restored."""

    def teardown(self) -> None:
        self._steps.append(self._taken)
        self.store.close()
        said = self._main.git("fsck", "--connectivity-only", "--no-dangling", "--no-reflogs")
        assert said == b"", said
        shutil.rmtree(self._directory)

    @invariant()
    def count(self) -> None:
        self._taken += 1

    # What people do

    @rule(edits=st.lists(EDITS, min_size=1, max_size=4))
    def work(self, edits: list[Edit]) -> None:
        for edit, arguments in edits:
            edit(self.here, *arguments)
        self._taken += len(edits) - 1

    @rule(options=st.sampled_from([(), (), ("--all",), ("--amend",)]))
    def commit(self, options: tuple[str, ...]) -> None:
        self.here.git("commit", "--quiet", "--message", "a change", *options, ok=())

    @rule(
        side=SIDES,
        how=st.sampled_from(["merge", "merge", "cherry-pick", "revert", "rebase"]),
        is_tidy=st.booleans(),
    )
    def begin(self, side: str, how: str, is_tidy: bool) -> None:
        if is_tidy:
            self.here.git("reset", "--quiet", "--hard", ok=())
        self.here.git(how, f"main~1..{side}" if how in ("cherry-pick", "revert") else side, ok=())

    @rule(number=NUMBERS)
    def resolve(self, number: int) -> None:
        unmerged = self.here.git("diff", "--name-only", "--diff-filter=U", "-z").split(b"\0")[:-1]
        if unmerged:
            self.here.git("add", "--force", "--all", "--", unmerged[number % len(unmerged)], ok=())

    @rule(how=st.sampled_from(["--abort", "--continue"]))
    def end(self, how: str) -> None:
        under_way = operation_of(self.store)
        if under_way in ("merge", "cherry-pick", "revert", "rebase"):
            if how == "--continue":
                self.here.git("add", "--all", ok=())
            self.here.git(under_way, how, ok=())

    @precondition(lambda self: self.saved)
    @rule(number=NUMBERS, option=st.sampled_from(["--soft", "--mixed", "--hard"]))
    def go_back(self, number: int, option: str) -> None:
        self.here.git("reset", "--quiet", option, self._chosen(number)[0].git_sha, ok=())

    # What gitckpt does

    @rule()
    def save(self) -> None:
        before = self.here.look()
        made = self.store.save("work-complete", {})
        assert self.here.look() == before
        assert not made.worktree or not made.worktree.omitted
        self.saved.append((made, before))

    @precondition(lambda self: self.saved)
    @rule(edits=st.lists(EDITS, max_size=3), number=NUMBERS, paths=SOME, index=st.booleans())
    def restore(
        self, edits: list[Edit], number: int, paths: tuple[bytes, ...], index: bool
    ) -> None:
        for edit, arguments in edits:
            edit(self.here, *arguments)
        self._taken += len(edits)
        checkpoint, target = self._chosen(number)
        restore = functools.partial(self.store.restore, index=index)
        self._bring_back(target, paths, lambda: restore(checkpoint, paths or None), index=index)

    @precondition(lambda self: self.seen)
    @rule(step=st.sampled_from(["undo", "undo", "redo"]))
    def take(self, step: str) -> None:
        steps = [each.checkpoint.id for each in self.store.undo_steps() if each.kind == step]
        found = steps[0] if steps else None
        command = getattr(self.store, step)
        if found is None:
            before = self.here.look()
            with pytest.raises(NotFoundError):
                command()
            assert self.here.look() == before
            return
        target = self.seen[found]
        self._bring_back(target, (), command, self.brought - target.captured.keys())

    @precondition(lambda self: self.saved)
    @rule(edits=st.lists(EDITS, max_size=3), number=NUMBERS, paths=SOME, index=st.booleans())
    def restore_and_go_back_and_forth(
        self, edits: list[Edit], number: int, paths: tuple[bytes, ...], index: bool
    ) -> None:
        for edit, arguments in edits:
            edit(self.here, *arguments)
        self._taken += len(edits)
        checkpoint, target = self._chosen(number)
        before = self.here.look()
        restore = functools.partial(self.store.restore, index=index)
        if self._bring_back(target, paths, lambda: restore(checkpoint, paths or None), index=index):
            after = self.here.look()
            self.take("undo")
            assert self.here.look().lasting() == before.lasting()
            self.take("redo")
            assert self.here.look().lasting() == after.lasting()
            with pytest.raises(NotFoundError):
                self.store.redo()

    @precondition(lambda self: self.saved)
    @rule(number=NUMBERS)
    def resume(self, number: int) -> None:
        checkpoint, target = self._chosen(number)
        before = self.here.look()
        path = os.path.join(self._directory, "resumed worktree")
        assert self.store.resume(checkpoint, path).made
        seen = Place(path).look()
        assert self.here.look() == before
        assert (seen.files, seen.entries, seen.operation) == (
            target.captured,
            target.entries,
            detached(target.operation, before.refs),
        )
        assert (seen.status, seen.commit) == (target.status, target.commit)
        if seen.is_converted_as(target) and CONVERTED in target.captured:
            assert seen.exact == target.exact
        self._main.git("worktree", "remove", "--force", "--force", path)

    @rule(prunes=st.sampled_from([False] * 9 + [True]))
    def save_and_collect_garbage(self, prunes: bool) -> None:
        self.save()
        if prunes:
            self._main.git("gc", "--quiet", "--prune=now")

    def _chosen(self, number: int) -> tuple[Checkpoint, Seen]:
        return self.saved[number % len(self.saved)]

    def _bring_back(
        self,
        target: Seen,
        paths: tuple[bytes, ...],
        command: Callable[[], RestoreResult],
        written: frozenset[bytes] | None = None,
        *,
        index: bool = True,
    ) -> bool:
        """Run a restore or undo and check its result; return whether it changed anything."""
        before = self.here.look()
        known = [name for seen in (before, target) for name in (*seen.captured, *seen.entries)]
        is_known = all(any(is_within(name, (path,)) for name in known) for path in paths)
        is_step = (
            written is not None
        )  # `undo` or `redo`, which is taken though nothing is to be done
        expected = expect(before, target, paths, written or frozenset(), index=index)
        if brings_operation(before, target, paths) and not is_at_its_start(
            target.operation, before.refs
        ):
            expected = replace(expected, operation=detached(target.operation, before.refs))
        if expected.refused:
            with pytest.raises(
                WorktreeError,
                match=r"^the restore would overwrite paths that are in no checkpoint: ",
            ):
                command()
            assert self.here.look() == before
            return False
        try:
            done = command()
        except NotFoundError:  # not where a directory without files has the name
            assert not is_known
            assert self.here.look() == before
            return False
        after = self.here.look()
        if done.safety is None:
            assert after == before
        stay = {path: before.files[path] for path in self.here.ignored_of(sorted(expected.unsure))}
        assert after.files == expected.files | stay
        assert after.entries == expected.entries
        if (
            CONVERTED in target.captured
            and is_within(CONVERTED, paths)
            and after.is_converted_as(target)
        ):
            assert after.exact == target.exact
        assert after.operation == expected.operation
        assert (after.commit, after.head, after.refs) == (before.commit, before.head, before.refs)
        same = [
            path
            for path, file in before.files.items()
            if after.files.get(path) == file and path != CONVERTED
        ]
        assert [after.stats[path] for path in same] == [before.stats[path] for path in same]
        if before.commit == target.commit and not paths:
            there = [
                path for path in target.captured if path in before.captured and path != CONVERTED
            ]
            assert {path: after.status.get(path) for path in there} == {
                path: target.status.get(path) for path in there
            }
        wanted = {path: file for path, file in target.captured.items() if is_within(path, paths)}
        if done.safety is not None:
            # ignored files that were replaced are in the safety checkpoint as well
            kept = frozenset(
                path for path in before.ignored if path in after.files and path not in wanted
            )
            self.seen[done.safety] = replace(before, ignored=kept)
            self.saved.append((self.store.read(done.safety), self.seen[done.safety]))
        if done.safety is not None or is_step:
            self.brought = frozenset(wanted)
        return done.safety is not None


def run_machine(
    kind: type[RuleBasedStateMachine],
    steps: tuple[int, int],
    *,
    place: str,
    adapter: str,
    scratch: Path,
    long: bool,
) -> None:
    """Run a state machine until it has taken its steps.

    Args:
        kind: the class of the machine.
        steps: the least number of steps, and that with `--long`.
        place: "main" or "linked".
        adapter: the name of the object adapter.
        scratch: a directory with the repository `template`.
        long: whether `--long` was given; the steps then differ each time.
    """
    taken: list[int] = []

    class Machine(kind):  # type: ignore[misc, valid-type]
        def __init__(self) -> None:
            super().__init__(scratch, linked=place == "linked", adapter=adapter, steps=taken)

    wanted = steps[1] if long else steps[0]
    how = settings(
        max_examples=wanted * 5 // PER_EXAMPLE // 4 + 1,
        stateful_step_count=PER_EXAMPLE,
        database=None,
        phases=[Phase.generate],  # shrinking takes minutes
        verbosity=Verbosity.debug
        if long
        else Verbosity.normal,  # shows the steps of a failure that does not come again, too
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(
        Machine if long else seed(f"{place} {adapter}")(Machine), settings=how
    )
    assert sum(taken) >= wanted


@pytest.mark.turns("place", "adapter")
@pytest.mark.parametrize("adapter", ["plumbing", "libgit2"])
@pytest.mark.parametrize("place", ["main", "linked"])
def test_what_comes_back_is_what_was_there(
    make_checkout: Callable[..., Checkout],
    tmp_path: Path,
    request: pytest.FixtureRequest,
    place: str,
    adapter: str,
) -> None:
    prepare(make_checkout("template"))
    long = bool(request.config.getoption("--long"))
    run_machine(
        WorktreeMachine,
        (STEPS, LONG_STEPS),
        place=place,
        adapter=adapter,
        scratch=tmp_path,
        long=long,
    )
