"""Capture, resume, restore, undo and redo return a worktree to its earlier state.

No model predicts the state. Unlike in `test_worktree_machine.py`, people also change git's
settings, convert line ends, skip entries, use sparse checkouts, bisect, and end operations that a
checkpoint has. In the lane `long`; `--long` runs 100,000 different steps each time.
"""

from __future__ import annotations

import ast
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gitckpt import Checkpoint, WorktreeError
from tests.conftest import Checkout, Clock, Ids
from tests.store.config import test_user_settings
from tests.store.snapshot import process_filter
from tests.store.snapshot.test_worktree_machine import (
    EDITS,
    NUMBERS,
    PATHS,
    RULES_OF_CONVERSION,
    SIDES,
    SOME,
    Edit,
    prepare,
    run_machine,
)
from tests.store.snapshot.worktree_model import (
    Place,
    Seen,
    brings_operation,
    detached,
    is_at_its_start,
    is_within,
)
from tests.stores import open_store, operation_of

pytestmark = pytest.mark.long

STEPS, LONG_STEPS = 120, 25_000
"""The least number of steps of each test."""

ACTING = ("core.ignoreStat=true", "core.preferSymlinkRefs=true", "core.sparseCheckout=false")
BLIND = ("core.checkStat=minimal", "core.trustctime=false")
"""Settings that hide changes from git, or make it write unpredictably."""

CHOSEN = st.sampled_from(
    [
        *(each for each in test_user_settings.SETTINGS if each not in (*ACTING, *BLIND)),
        *(
            "core.autocrlf=input",
            "core.autocrlf=true",
            "core.autocrlf=false",
            "core.eol=crlf",
            "core.eol=lf",
        ),
    ]
)
RULES = [
    b"",
    *RULES_OF_CONVERSION,
    b"* text=auto\n",
    b"a text\nd/* eol=lf\n",
    b"* -text\n",
    b"*.txt text=auto eol=crlf\na filter=strip\n",
]
RULES += [b"*.txt filter=turned\n", b"a filter=failing\nd/* filter=turned\n"]
FURTHER = st.one_of(
    EDITS,
    EDITS,
    st.tuples(st.just(Place.convert), st.tuples(st.sampled_from(RULES))),
    st.tuples(
        st.just(Place.skip),
        st.tuples(PATHS, st.sampled_from(["--skip-worktree", "--no-skip-worktree"])),
    ),
)
SPARSE = st.sampled_from(
    [
        ("set", "--cone", "d"),
        ("set", "--cone", "d/e", "out"),
        ("set", "--no-cone", "/*", "!/d/"),
        ("set", "--no-cone", "a", "t.txt"),
        ("disable",),
        ("reapply",),
    ]
)
BISECT = st.sampled_from(
    [("start",), ("bad",), ("good", "main~1"), ("good",), ("skip",), ("reset",)]
)


@dataclass(frozen=True)
class State:
    """Everything visible in one repository, and the settings that it depends on.

    Attributes:
        seen: of the worktree.
        sparse: the patterns of a sparse checkout.
        configured: git's own settings in the repository.
    """

    seen: Seen
    sparse: bytes
    configured: bytes

    @property
    def lasting(self) -> Seen:
        """Leave out what may differ between equal states: time stamps and the raw index."""
        return replace(self.seen, stats={}, index=b"")


Look = Mapping[bytes, State]
"""The state by path of submodule; the path of the superproject is empty."""

TOP = b""


def differing(one: Seen, other: Seen) -> dict[str, object]:
    """Return the differences of two views, by attribute and key."""
    found: dict[str, object] = {}
    for each in fields(Seen):
        left, right = getattr(one, each.name), getattr(other, each.name)
        if isinstance(left, Mapping):
            for key in left.keys() | right.keys():
                if left.get(key) != right.get(key):
                    found[f"{each.name} {key!r}"] = (left.get(key), right.get(key))
        elif left != right:
            found[each.name] = (left, right)
    return found


def changed(one: Look, other: Look, *, lasting: bool = False) -> dict[object, object]:
    """Return all differences; with `lasting`, ignore time stamps and the raw index."""
    found: dict[object, object] = dict.fromkeys(one.keys() ^ other.keys(), "is there once")
    for path in one.keys() & other.keys():
        left, right = (each.lasting if lasting else each.seen for each in (one[path], other[path]))
        found |= {(path, what): values for what, values in differing(left, right).items()}
    return found


class ReturnMachine(RuleBasedStateMachine):
    """Change a worktree as people do; sometimes run a gitckpt command."""

    submodules: tuple[bytes, ...] = ()
    """Paths of the submodules, outer ones first."""

    def __init__(self, scratch: Path, *, linked: bool, adapter: str, steps: list[int]) -> None:
        super().__init__()
        self._steps = steps
        self._taken = -1  # Hypothesis calls `count` once before the first
        self._directory = tempfile.mkdtemp(dir=scratch)
        main = os.path.join(self._directory, "main")
        shutil.copytree(scratch / "template", main, symlinks=True)
        self._main = top = Place(main, is_exact=True)
        if linked:
            path = os.path.join(self._directory, "linked worktree")
            self._main.git("worktree", "add", "--quiet", "-b", "side", path)
            top = Place(path, is_exact=True)
            if self.submodules:
                top.git("submodule", "--quiet", "update", "--init", "--recursive")
        within = (
            (path, os.path.join(os.fsdecode(top.top), os.fsdecode(path)))
            for path in self.submodules
        )
        self._places = {TOP: top, **{path: Place(whole, is_exact=True) for path, whole in within}}
        self._where = TOP
        self.store = open_store(os.fsdecode(top.top), adapter=adapter, clock=Clock(), new_id=Ids())
        self.saved: list[tuple[Checkpoint, Look]] = []

    @property
    def here(self) -> Place:
        """The worktree in which the person works."""
        return self._places[self._where if _is_there(self._places[self._where]) else TOP]

    def teardown(self) -> None:
        self._steps.append(self._taken)
        self.store.close()
        for git_dir in {self._main.git_dir, *(place.git_dir for place in self._places.values())}:
            apart = {
                "GIT_DIR": os.fsdecode(git_dir),
                "GIT_WORK_TREE": os.fsdecode(self._main.top),
            }  # its own worktree may be gone
            said = self._main.git(
                "fsck", "--connectivity-only", "--no-dangling", "--no-reflogs", env=apart
            )
            assert said == b"", (git_dir, said)
        shutil.rmtree(self._directory)

    @invariant()
    def count(self) -> None:
        self._taken += 1

    # What people do

    @rule(edits=st.lists(FURTHER, min_size=1, max_size=4))
    def work(self, edits: list[Edit]) -> None:
        self._work(edits)
        self._taken -= 1

    @rule(setting=CHOSEN)
    def choose(self, setting: str) -> None:
        if self.saved and setting.startswith(("core.autocrlf", "core.eol")):
            return  # a change of these settings asks git for other line ends
        name, _, value = setting.partition("=")
        self.here.git("config", name, value)

    @rule(options=st.sampled_from([(), (), ("--all",), ("--amend",)]))
    def commit(self, options: tuple[str, ...]) -> None:
        self.here.git("commit", "--quiet", "--message", "a change", *options, ok=())

    @rule(
        side=SIDES,
        how=st.sampled_from(["checkout", "merge", "cherry-pick", "revert", "rebase", "rebase"]),
        is_tidy=st.booleans(),
    )
    def begin(self, side: str, how: str, is_tidy: bool) -> None:
        if is_tidy:
            self.here.git("reset", "--quiet", "--hard", ok=())
        self.here.git(how, f"main~1..{side}" if how in ("cherry-pick", "revert") else side, ok=())

    @rule(how=st.sampled_from(["--abort", "--continue", "--continue", "--quit"]))
    def end(self, how: str) -> None:
        under_way = self._operation()
        if under_way in ("merge", "cherry-pick", "revert", "rebase"):
            if how == "--continue":
                self.here.git("add", "--all", ok=())
            self.here.git(under_way, how, ok=())

    @rule(words=BISECT)
    def bisect(self, words: tuple[str, ...]) -> None:
        if words == ("start",) and self._operation() is not None:
            return
        self.here.git("bisect", *words, ok=())

    @rule(words=SPARSE)
    def check_out_sparsely(self, words: tuple[str, ...]) -> None:
        self.here.git("sparse-checkout", *words, ok=())

    # What gitckpt does

    @rule()
    def save(self) -> None:
        before = self._look()
        made = self.store.save("work-complete", {})
        assert changed(self._look(), before) == {}
        self.saved.append((made, before))

    @precondition(lambda self: self.saved)
    @rule(number=NUMBERS)
    def resume(self, number: int) -> None:
        checkpoint, target = self.saved[number % len(self.saved)]
        before = self._look()
        path = os.path.join(self._directory, "resumed worktree")
        assert self.store.resume(checkpoint, path).made
        assert changed(self._look(), before) == {}
        for submodule, state in target.items():
            self._compare_resumed(
                os.path.join(path, os.fsdecode(submodule)), state, before.get(submodule, state)
            )
        self._main.git("worktree", "remove", "--force", "--force", path)

    @precondition(lambda self: self.saved)
    @rule(edits=st.lists(FURTHER, max_size=3), number=NUMBERS, paths=SOME, index=st.booleans())
    def restore(
        self, edits: list[Edit], number: int, paths: tuple[bytes, ...], index: bool
    ) -> None:
        self._work(edits)
        checkpoint, target = self.saved[number % len(self.saved)]
        before = self._look()
        top, wanted = before[TOP], target[TOP]
        known = [
            name for state in (top, wanted) for name in (*state.seen.captured, *state.seen.entries)
        ]
        if not all(any(is_within(name, (path,)) for name in known) for path in paths):
            return  # `test_worktree_machine.py` checks this error
        try:
            done = self.store.restore(checkpoint, paths or None, index=index)
        except WorktreeError as error:
            if not error.message.startswith(
                "the restore would overwrite paths that are in no checkpoint: "
            ):
                raise
            done = None
        if done is None:
            assert changed(self._look(), before) == {}
            return
        after = self._look()
        if done.safety is None:
            assert changed(after, before) == {}
        assert (after[TOP].seen.commit, after[TOP].seen.head) == (top.seen.commit, top.seen.head)
        assert [after[path].seen.refs for path in before] == [
            state.seen.refs for state in before.values()
        ]
        if not paths:
            for path, state in target.items():
                self._compare_restored(path, state, before.get(path), after[path])
        if done.safety is not None:
            self._back_and_forth(before, after)
            held = {
                path: _held(state, after.get(path, state), target.get(path), paths)
                for path, state in before.items()
            }
            self.saved.append((self.store.read(done.safety), held))

    def _compare_resumed(self, path: str, target: State, before: State) -> None:
        seen = Place(path, is_exact=True).look()
        expected = replace(
            target.seen,
            files=target.seen.captured,
            operation=detached(target.seen.operation, before.seen.refs),
        )
        ours = {
            "files",
            "entries",
            "operation",
            "commit",
            *(["status"] if before.configured == target.configured else []),
        }
        assert {
            key: value
            for key, value in differing(seen, expected).items()
            if key.partition(" ")[0] in ours
        } == {}

    def _compare_restored(
        self, path: bytes, target: State, before: State | None, after: State
    ) -> None:
        if (
            target.sparse or (before or after).sparse
        ):  # of a submodule that was not there, its repository has the settings
            return
        files = {
            path: file for path, file in after.seen.files.items() if path in target.seen.captured
        }
        expected = replace(target.seen, files=target.seen.captured)
        ours = {"files", "entries", *(["commit"] if path else [])}
        found = differing(replace(after.seen, files=files), expected)
        assert {key: value for key, value in found.items() if key.partition(" ")[0] in ours} == {}
        if (
            before
            and brings_operation(before.seen, target.seen, ())
            and is_at_its_start(target.seen.operation, before.seen.refs)
        ):
            assert after.seen.operation == target.seen.operation

    def _back_and_forth(self, before: Look, after: Look) -> None:
        undone = self.store.undo()
        self._require(before)
        if (
            undone.safety is None
        ):  # git had undone it already, such as the skip flag of an existing file
            assert changed(after, before, lasting=True) == {}
            return
        self.store.redo()
        self._require(after)

    def _require(self, wanted: Look) -> None:
        found = changed(self._look(), wanted, lasting=True)
        assert {
            key: values for key, values in found.items() if not self._is_seen_at_last(key, values)
        } == {}

    def _is_seen_at_last(self, key: object, values: object) -> bool:
        """Return whether git reports a file only now, since conversion rules changed.

        See `docs/exact.md`.
        """
        match key, values:
            case ((bytes(top), str(what)), (bytes(line), None)) if what.startswith(
                "status "
            ) and line.startswith(b"1 .M "):
                path = os.fsdecode(ast.literal_eval(what.removeprefix("status ")))
                stored = self._places[top].git("hash-object", f"--path={path}", "--", path).strip()
                return bool(stored != line.split(b" ")[7])
            case ((bytes(top), str(what)), (bytes(line), bytes(before))) if (
                line.replace(b" S.M", b" S..", 1) == before
            ):
                # The submodule's own changes are compared there. The superproject may have reported
                # them without reading the files.
                within = os.path.join(top, ast.literal_eval(what.removeprefix("status ")))
                return within in self._places and b"1 .M " in self._places[within].git(
                    "status", "--porcelain=v2"
                )
        return False

    def _work(self, edits: list[Edit]) -> None:
        for edit, arguments in edits:
            edit(self.here, *arguments)
            if edit is Place.convert:
                self._note_rules()
        self._taken += len(edits)

    def _note_rules(self) -> None:
        """Capture while rules convert files: else they come back as git converts them."""
        with open_store(os.fsdecode(self.here.top)) as store:
            store.capture()

    def _operation(self) -> str | None:
        return operation_of(os.fsdecode(self.here.top))

    def _look(self) -> Look:
        return {path: _look(place) for path, place in self._places.items() if _is_there(place)}


def _held(before: State, after: State, target: State | None, paths: tuple[bytes, ...]) -> State:
    """Return the content of a safety checkpoint, with replaced ignored files."""
    wanted = (
        {path for path in target.seen.captured if is_within(path, paths)}
        if target is not None
        else set()
    )
    kept = frozenset(
        path for path in before.seen.ignored if path in after.seen.files and path not in wanted
    )
    return replace(before, seen=replace(before.seen, ignored=kept))


def _is_there(place: Place) -> bool:
    return os.path.lexists(place.join(b".git"))


def _look(place: Place) -> State:
    has_patterns = os.path.exists(os.path.join(place.git_dir, b"info/sparse-checkout"))
    sparse = place.git("sparse-checkout", "list", ok=()) if has_patterns else b""
    return State(place.look(), sparse, place.git("config", "--list"))


def ready(here: Checkout) -> None:
    """Create branches, a stash, and filters: one as a process, one that fails."""
    prepare(here)
    words = (sys.executable, "-I", "-S", str(Path(process_filter.__file__)))
    here.git("config", "filter.turned.process", " ".join(map(shlex.quote, words)))
    here.git("config", "filter.failing.clean", "false")
    here.git("config", "filter.failing.smudge", "false")


@pytest.mark.turns("place", "adapter")
@pytest.mark.parametrize("adapter", ["plumbing", "libgit2"])
@pytest.mark.parametrize("place", ["main", "linked"])
def test_what_was_there_comes_back(
    make_checkout: Callable[..., Checkout],
    tmp_path: Path,
    request: pytest.FixtureRequest,
    place: str,
    adapter: str,
) -> None:
    ready(make_checkout("template"))
    long = bool(request.config.getoption("--long"))
    run_machine(
        ReturnMachine,
        (STEPS, LONG_STEPS),
        place=place,
        adapter=adapter,
        scratch=tmp_path,
        long=long,
    )


@pytest.mark.parametrize("kind", ["sha256", "reftable"])
@pytest.mark.parametrize("place", ["main", "linked"])
def test_what_was_there_comes_back_in_other_repositories(
    make_checkout: Callable[..., Checkout],
    tmp_path: Path,
    request: pytest.FixtureRequest,
    place: str,
    kind: str,
) -> None:
    if kind == "reftable":
        request.getfixturevalue("newer_git")
    ready(
        make_checkout(
            "template", "--object-format=sha256" if kind == "sha256" else "--ref-format=reftable"
        )
    )
    long = bool(request.config.getoption("--long"))
    run_machine(
        ReturnMachine,
        (STEPS // 2, LONG_STEPS),
        place=place,
        adapter="plumbing",
        scratch=tmp_path,
        long=long,
    )
