"""A restored operation in progress continues in git, even if its branches moved."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from gitckpt import Store, WorktreeError
from gitckpt.durable.run import rewind
from gitckpt.git.objects.encoding import DIRECTORY, FILE, encode_tree
from gitckpt.git.worktree import operation
from gitckpt.store.runs.run_files import RunFiles
from gitckpt.store.snapshot import manifest
from gitckpt.store.store import checkpoints_of_store
from tests.conftest import Checkout
from tests.store.conftest import MakeStore, view

EDITOR = "GIT_SEQUENCE_EDITOR"


class Kind(NamedTuple):
    """An operation in progress that a test starts and continues.

    Attributes:
        name: the git command of the operation.
        start: starts it; it stops at a conflict in `README`.
        go_on: the arguments of `git` that continue it; None for a bisect.
    """

    name: str
    start: Callable[[Checkout], object]
    go_on: list[str]


def two_sides(here: Checkout) -> tuple[list[str], list[str]]:
    """Create `theirs` with three commits beside two; both first ones conflict."""
    base = here.git("rev-parse", "HEAD")
    theirs = [
        here.commit(f"theirs {n}", **({"README": "theirs\n"} if n == 0 else {f"their-{n}": "x\n"}))
        for n in range(3)
    ]
    here.git("branch", "theirs")
    here.git("reset", "--quiet", "--hard", base)
    ours = [here.commit("ours 0", README="ours\n"), here.commit("ours 1", other="x\n")]
    return ours, theirs


def merge(here: Checkout) -> None:
    two_sides(here)
    here.git("merge", "theirs", ok=(1,))


def cherry_pick(here: Checkout) -> None:
    _, theirs = two_sides(here)
    here.git("cherry-pick", *theirs, ok=(1,))


def revert(here: Checkout) -> None:
    commits = [here.commit("one", README="one\n"), here.commit("other", other="x\n")]
    here.commit("two", README="two\n")
    here.git("revert", "--no-edit", *commits, ok=(1,))


def rebase(*options: str, todo: str = ":") -> Callable[[Checkout], None]:
    def start(here: Checkout) -> None:
        two_sides(here)
        here.git("checkout", "--quiet", "-b", "topic", "theirs")
        main = "main" if here.main == here.path else "side"
        here.git("rebase", *options, main, env={EDITOR: todo}, ok=(1,))

    return start


def am(here: Checkout) -> None:
    two_sides(here)
    patches = here.git("format-patch", "--stdout", "HEAD~2..theirs")
    here.git("am", "--3way", data=patches, ok=(128,))


KINDS = [
    Kind("merge", merge, ["merge", "--continue"]),
    Kind("cherry-pick", cherry_pick, ["cherry-pick", "--continue"]),
    Kind("revert", revert, ["revert", "--continue"]),
    Kind("rebase", rebase("--merge"), ["rebase", "--continue"]),
    Kind("rebase", rebase("--apply"), ["rebase", "--continue"]),
    Kind(
        "rebase",
        rebase("--interactive", todo="echo 'exec touch was-run' >>"),
        ["rebase", "--continue"],
    ),
    Kind("am", am, ["am", "--continue"]),
]
each_kind = pytest.mark.parametrize(
    "kind",
    KINDS,
    ids=lambda kind: " ".join(kind.start.__qualname__.split(".")[:1] + kind.go_on[:1]),
)


def go_on(here: Checkout, kind: Kind) -> tuple[str, str, str]:
    """Resolve the conflict and continue; return the commit, status and file names."""
    here.write("README", "resolved\n")
    here.git("add", "README")
    here.git(*kind.go_on, env={"GIT_EDITOR": "true"})
    return here.git("rev-parse", "HEAD"), here.git("status", "--porcelain"), here.git("ls-files")


def forget(here: Checkout, refs: dict[str, str]) -> None:
    """Delete all commits that only an operation, its branches or reflogs reach.

    The branch on which the operation began keeps its commits.
    """
    home = "main" if here.main == here.path else "side"
    here.git("checkout", "--quiet", "--force", "--detach", refs[f"refs/heads/{home}"])
    here.git("update-ref", f"refs/heads/{home}", refs[f"refs/heads/{home}"])
    here.git("checkout", "--quiet", home)
    for name in ("refs/heads/theirs", "refs/heads/topic", "ORIG_HEAD", "AUTO_MERGE", "REBASE_HEAD"):
        here.git("update-ref", "-d", name)
    here.git("reflog", "expire", "--expire=now", "--all")
    here.git("gc", "--quiet", "--prune=now")


@pytest.mark.long
@pytest.mark.sampled(4)
@each_kind
def test_git_goes_on_where_it_was(checkout: Checkout, make_store: MakeStore, kind: Kind) -> None:
    kind.start(checkout)
    checkout.write("new", "x")
    expected, refs = view(checkout.path), checkout.refs("refs/heads")
    store = make_store(checkout)
    made = store.save("a-complete", {})
    assert made.worktree is not None
    assert made.worktree.operation == kind.name
    ends = go_on(checkout, kind)
    forget(checkout, refs)
    held = checkout.refs("refs/keep/ckpt-operations")
    assert held == (
        {f"refs/keep/ckpt-operations/{made.id}": made.worktree.operation_commit}
        if made.worktree.operation_commit
        else {}
    )
    branches = checkout.refs("refs/heads")
    there = Checkout(Path(store.resume(made).path))
    assert view(there.path) == expected
    # the same steps on the same commits at the same time make the same commits
    assert go_on(there, kind) == ends
    assert checkout.refs("refs/heads") == branches
    there.git("fsck", "--connectivity-only", "--no-dangling")


@pytest.mark.long
@pytest.mark.sampled(6)
@each_kind
@pytest.mark.parametrize("trace", ["reset", "stash", "written"])
def test_what_moved_head_since_leaves_no_difference(
    checkout: Checkout, make_store: MakeStore, kind: Kind, trace: str
) -> None:
    kind.start(checkout)
    expected = view(checkout.path)
    store = make_store(checkout)
    made = store.save("a-complete", {})
    if trace == "written":
        checkout.git("update-ref", "ORIG_HEAD", "HEAD~1")
    else:
        checkout.git("reset", "--quiet", "--hard")
        checkout.write("README", "stashed\n")
        checkout.git(
            *(["stash", "push", "--quiet"] if trace == "stash" else ["reset", "--quiet", "--hard"])
        )
    store.restore(made)
    assert view(checkout.path) == expected
    assert checkpoints_of_store(store).repository.operation_in_progress() == kind.name
    if trace != "written":
        store.undo()
        assert checkout.git("status", "--porcelain") == ""


@pytest.mark.long
@pytest.mark.parametrize("place", ["here", "elsewhere"])
def test_an_am_is_given_up_where_it_began(
    checkout: Checkout, make_store: MakeStore, place: str
) -> None:
    """`git am --abort`, unlike other commands, goes back to `ORIG_HEAD`."""
    am(checkout)
    began = checkout.git("rev-parse", "ORIG_HEAD")
    store = make_store(checkout)
    made = store.save("a-complete", {})
    checkout.git("update-ref", "ORIG_HEAD", "HEAD~1")
    if place == "here":
        store.restore(made)
    there = checkout if place == "here" else Checkout(Path(store.resume(made).path))
    assert there.git("rev-parse", "ORIG_HEAD") == began
    there.git("am", "--abort")
    assert there.git("rev-parse", "HEAD") == began


REBASES = {
    "merge": rebase("--merge"),
    "apply": rebase("--apply"),
    "update-refs": rebase("--merge", "--update-refs"),
    "interactive": rebase("--interactive"),
}
MOVES = (
    "the rebase in progress moves no branch; to move topic to its result: "
    "git branch --force topic HEAD"
)


@pytest.mark.long
@pytest.mark.sampled(12)
@pytest.mark.parametrize("is_over", [True, False], ids=["over at home", "open at home"])
@pytest.mark.parametrize("how", ["--abort", "--continue"])
@pytest.mark.parametrize("kind", REBASES)
def test_a_rebase_in_another_worktree_moves_no_branch(
    checkout: Checkout, make_store: MakeStore, kind: str, how: str, is_over: bool
) -> None:
    REBASES[kind](checkout)
    checkout.git("branch", "between", "theirs~1")
    store = make_store(checkout)
    made = store.save("a-complete", {})
    if is_over:
        go_on(checkout, Kind("rebase", REBASES[kind], ["rebase", "--continue"]))
        checkout.commit("after it")
    branches = checkout.refs("refs/heads")
    opened = store.resume(made)
    assert opened.remarks == (MOVES,)
    there = Checkout(Path(opened.path))
    there.write("README", "resolved there\n")
    there.git("add", "README")
    there.git("rebase", how, env={"GIT_EDITOR": "true"})
    assert (there.git("branch", "--show-current"), there.git("status", "--porcelain")) == ("", "")
    assert checkout.refs("refs/heads") == branches
    assert checkpoints_of_store(store).repository.operation_in_progress() == (
        None if is_over else "rebase"
    )


@pytest.mark.long
@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", REBASES)
def test_a_rebase_brought_back_in_place(
    checkout: Checkout, make_store: MakeStore, kind: str
) -> None:
    """A restored rebase keeps its branch, or is detached if the branch has moved."""
    REBASES[kind](checkout)
    store = make_store(checkout)
    made, files = (
        store.save("a-complete", {}),
        operation.collect_operation_files(checkpoints_of_store(store).repository),
    )
    head, topic = checkout.git("rev-parse", "HEAD"), checkout.git("rev-parse", "topic")
    checkout.git("rebase", "--abort")
    checkout.git("checkout", "--quiet", "--detach", head)
    assert store.restore(made).remarks == []
    assert {
        name: content
        for name, content in operation.collect_operation_files(
            checkpoints_of_store(store).repository
        ).items()
        if "_HEAD" not in name
    } == {name: content for name, content in files.items() if "_HEAD" not in name}
    store.undo()
    checkout.git("update-ref", "refs/heads/topic", f"{topic}~1")
    assert store.restore(made).remarks == [MOVES]
    checkout.git("rebase", "--abort")
    assert checkout.git("rev-parse", "topic") == checkout.git("rev-parse", f"{topic}~1")


@pytest.mark.long
def test_a_rebase_that_a_restore_replaces_comes_back_as_it_was(
    checkout: Checkout, make_store: MakeStore
) -> None:
    store = make_store(checkout)
    checkout.write("README", "before\n")
    REBASES["merge"](checkout)
    files = operation.collect_operation_files(checkpoints_of_store(store).repository)
    safe = store.save("a-complete", {})
    checkout.write("README", "resolved\n")
    checkout.git("add", "README")
    store.restore(safe)
    store.undo()
    assert operation.collect_operation_files(checkpoints_of_store(store).repository) == files
    checkout.git("rebase", "--continue", env={"GIT_EDITOR": "true"})
    assert checkout.git("branch", "--show-current") == "topic"


@pytest.mark.parametrize(
    "name",
    [
        b"refs/heads/a\ninfo HEAD\n",
        b"refs/heads/\xff\n",
        b"refs/tags/x\n",
        b"",
        b"refs/heads/../../x\n",
    ],
)
def test_what_somebody_else_wrote_as_the_name_of_a_branch(plain: Store, name: bytes) -> None:
    repository = checkpoints_of_store(plain).repository
    files = {"rebase-merge/head-name": name, "rebase-merge/orig-head": b"x\n", "BISECT_START": name}
    found = operation.detach_operation(repository, files)
    assert not found["rebase-merge/head-name"].startswith(b"refs/")
    assert found["BISECT_START"] == name
    assert operation.is_branch_unmoved(repository, files) == (
        operation.find_rebased_branch(files) is None
    )


@pytest.mark.long
def test_a_bisect_goes_on_where_it_was(checkout: Checkout, make_store: MakeStore) -> None:
    commits = [checkout.commit(f"number {n}", number=f"{n}\n") for n in range(8)]
    checkout.git("bisect", "start", commits[7], commits[0])
    checkout.git("bisect", "good")
    store = make_store(checkout)
    made = store.save("a-complete", {})
    assert made.worktree is not None
    assert (made.worktree.operation, made.worktree.omitted) == ("bisect", ())
    refs = checkout.refs("refs/bisect")
    assert len(refs) == 3
    log, head = checkout.git("bisect", "log"), checkout.git("rev-parse", "HEAD")
    checkout.git("bisect", "reset")
    checkout.git("reset", "--quiet", "--hard", commits[0])
    checkout.git("reflog", "expire", "--expire=now", "--all")
    checkout.git("gc", "--quiet", "--prune=now")
    there = Checkout(Path(store.resume(made).path))
    assert (
        there.refs("refs/bisect"),
        there.git("bisect", "log"),
        there.git("rev-parse", "HEAD"),
    ) == (refs, log, head)
    assert checkout.refs("refs/bisect") == {}  # each worktree has its own
    assert there.git("bisect", "good") != ""
    said = there.git("bisect", "bad")
    assert said.startswith(f"{there.git('rev-parse', 'refs/bisect/bad')} is the first ")
    there.git("bisect", "reset")
    assert there.git("branch", "--show-current") == ""


REWINDING = [kind for kind in KINDS if kind.name != "merge"]


class TestNoBranchIsMoved:
    """A restored operation does not move a branch on which it was not begun."""

    @pytest.mark.long
    @pytest.mark.sampled(6)
    @pytest.mark.parametrize(
        "kind", REWINDING, ids=lambda kind: kind.start.__qualname__.split(".")[0]
    )
    def test_by_an_operation_of_another_branch(
        self, checkout: Checkout, make_store: MakeStore, kind: Kind
    ) -> None:
        kind.start(checkout)
        store = make_store(checkout)
        made = store.save("a-complete", {})
        home = checkout.git("rev-parse", "--abbrev-ref", "HEAD")
        checkout.git(kind.name, "--abort")
        checkout.git("checkout", "--quiet", "-b", "another", made.git_sha)
        refs = checkout.refs("refs/heads")
        found = store.restore(made, dry_run=True)
        assert found.apart[-1].startswith(
            f"the {kind.name} of the checkpoint is not restored, as that would move another; "
            f"to open a worktree with the {kind.name}: "
        )
        back = store.restore(made)
        assert back.apart[-1].startswith(
            f"the {kind.name} of the checkpoint is not restored, as that would move another; "
            f"to open a worktree with the {kind.name}: "
        )
        assert checkpoints_of_store(store).repository.operation_in_progress() is None
        checkout.git(kind.name, "--abort", ok=(128,))
        assert checkout.refs("refs/heads") == refs
        store.undo()
        assert checkout.git("status", "--porcelain") == ""
        if home != "HEAD":  # where it was begun, it goes on
            checkout.git("branch", "--quiet", "--force", home, made.git_sha)
            checkout.git("checkout", "--quiet", home)
            store.restore(made)
            assert checkpoints_of_store(store).repository.operation_in_progress() == kind.name

    @pytest.mark.long
    def test_a_rebase_that_a_restore_leaves_alone_stays_as_it_is(
        self, checkout: Checkout, make_store: MakeStore
    ) -> None:
        """Undoing the restore keeps the rebase's branch name, though the branch has moved."""
        store = make_store(checkout)
        made = store.save("a-complete", {})
        base = checkout.git("rev-parse", "HEAD")
        checkout.git("checkout", "--quiet", "-b", "theirs", base)
        checkout.commit("theirs", README="theirs\n")
        checkout.git("checkout", "--quiet", "-b", "topic", base)
        checkout.commit("ours", README="ours\n")
        checkout.git("rebase", "--quiet", "theirs", ok=(1,))
        checkout.git("update-ref", "refs/heads/topic", base)
        head_name = Path(
            checkout.git(
                "rev-parse", "--path-format=absolute", "--git-path", "rebase-merge/head-name"
            )
        )
        store.restore(made)
        store.undo()
        assert head_name.read_text() == "refs/heads/topic\n"


@pytest.mark.long
@pytest.mark.sampled(4)
@pytest.mark.parametrize("option", ["--first-parent", "--no-checkout"])
def test_a_bisect_goes_on_as_it_was_begun(
    checkout: Checkout, make_store: MakeStore, option: str
) -> None:
    commits = [checkout.commit(str(number), f=str(number)) for number in range(6)]
    place = Path(checkout.git("rev-parse", "--absolute-git-dir"))
    checkout.git("bisect", "start", option, commits[5], commits[0])
    names = ("BISECT_FIRST_PARENT", "BISECT_HEAD", "BISECT_START", "BISECT_LOG")
    before = {name: (place / name).read_bytes() for name in names if (place / name).exists()}
    assert len(before) == 3
    store = make_store(checkout)
    made = store.save("a-complete", {})
    checkout.git("bisect", "reset")
    store.restore(made) if option == "--no-checkout" else None
    there = Checkout(Path(store.resume(made).path))
    for here in (checkout, there) if option == "--no-checkout" else (there,):
        place = Path(here.git("rev-parse", "--absolute-git-dir"))
        after = {name: (place / name).read_bytes() for name in names if (place / name).exists()}
        assert after.keys() == before.keys()
        assert {**after, "BISECT_START": b""} == {
            **before,
            "BISECT_START": b"",
        }  # which names a commit now, not a branch
        assert here.git("bisect", "good") != ""


@pytest.mark.long
@pytest.mark.parametrize("in_place", [True, False])
def test_what_a_merge_has_stashed_comes_with_it(
    checkout: Checkout, make_store: MakeStore, in_place: bool
) -> None:
    two_sides(checkout)
    checkout.commit("tracked", beside="before\n")
    checkout.write("beside", "work of forty minutes\n")
    checkout.git("merge", "--autostash", "theirs", ok=(1,))
    assert (checkout.path / "beside").read_text() == "before\n"
    store = make_store(checkout)
    made = store.save("a-complete", {})
    checkout.git("merge", "--abort")
    assert (checkout.path / "beside").read_text() == "work of forty minutes\n"
    checkout.git("reset", "--quiet", "--hard")
    checkout.git("reflog", "expire", "--expire=now", "--all")
    checkout.git("gc", "--quiet", "--prune=now")
    if in_place:
        store.restore(made)
        there = checkout
    else:
        there = Checkout(Path(store.resume(made).path))
    there.git("merge", "--abort")
    assert (there.path / "beside").read_text() == "work of forty minutes\n"


class TestCapturedElsewhere:
    """An operation captured in another clone is not restored, as it may be malicious.

    The private directory does not list such checkpoints.
    """

    @pytest.mark.long
    @pytest.mark.sampled(6)
    @each_kind
    def test_files_and_index_come_back_without_the_operation(
        self, checkout: Checkout, make_store: MakeStore, kind: Kind
    ) -> None:
        kind.start(checkout)
        store = make_store(checkout)
        made = store.save("a-complete", {})
        staged = checkout.git("ls-files", "--stage")
        forget_captures(checkout)
        opened = store.resume(made)
        there = Checkout(Path(opened.path))
        assert opened.remarks == (operation.FOREIGN,)
        assert (
            operation.collect_operation_files(checkpoints_of_store(make_store(there)).repository)
            == {}
        )
        assert there.git("ls-files", "--stage") == staged
        checkout.git("reset", "--quiet", "--hard", ok=(0, 128))
        assert operation.FOREIGN in store.restore(made).remarks
        assert operation.collect_operation_files(checkpoints_of_store(store).repository) == {}
        assert checkout.git("ls-files", "--stage") == staged

    @pytest.mark.long
    def test_nothing_of_a_fetched_rebase_runs_when_git_goes_on(
        self,
        checkout: Checkout,
        make_store: MakeStore,
        make_checkout: Callable[..., Checkout],
        tmp_path: Path,
    ) -> None:
        REBASES["merge"](checkout)
        made = make_store(checkout).save("a-complete", {})
        assert made.tree is not None
        ran = tmp_path / "was-run"
        evil = {
            "rebase-merge/strategy": "x/evil\n",
            "rebase-merge/strategy_opts": " --x",
            "rebase-merge/git-rebase-todo": f"exec touch {ran}\n",
        }
        changed = planted(
            checkout, made.tree, {f"operation/{name}": text for name, text in evil.items()}
        )
        forged = checkout.git("cat-file", "blob", f"refs/checkpoints/{made.id}").replace(
            made.tree, changed
        )
        checkout.git("update-ref", f"refs/ckpt/trees/{made.id}", changed)
        blob = checkout.git("hash-object", "-w", "--stdin", data=f"{forged}\n")
        checkout.git("update-ref", f"refs/checkpoints/{made.id}", blob)
        clone = make_checkout("clone")
        clone.git("fetch", "--quiet", str(checkout.path), "+refs/*:refs/*", "--update-head-ok")
        for here in (checkout, clone):  # replaced where it was written, and fetched
            checkout.git("rebase", "--abort", ok=(0, 128))
            here.git("checkout", "--quiet", "--detach", "--force", made.git_sha)
            store = make_store(here)
            read = store.read(made.id)
            opened = store.resume(read)
            assert operation.FOREIGN in opened.remarks
            assert operation.FOREIGN in store.restore(read, trust=True).remarks
            for place in (Checkout(Path(opened.path)), here):
                program = place.path / "git-merge-x" / "evil"
                program.parent.mkdir()
                program.write_text(f"#!/bin/sh\ntouch {ran}\n")
                program.chmod(0o755)
                place.write("README", "solved\n")
                place.git("add", "README")
                assert (
                    place.git("rebase", "--continue", env={"GIT_EDITOR": "true"}, ok=(0, 1, 128))
                    == ""
                )
            assert not ran.exists()

    @pytest.mark.long
    @pytest.mark.parametrize("is_known", [True, False])
    def test_a_fork_has_the_operation_of_what_was_captured_here(
        self, checkout: Checkout, make_store: MakeStore, is_known: bool
    ) -> None:
        merge(checkout)
        store = make_store(checkout)
        made = store.save("a-complete", {})
        if not is_known:
            forget_captures(checkout)
        opened = store.resume(rewind.fork_run(checkpoints_of_store(store), made, trusted=True))
        there = checkpoints_of_store(make_store(Checkout(Path(opened.path)))).repository
        assert there.operation_in_progress() == ("merge" if is_known else None)

    def test_what_cannot_be_noted_is_saved_all_the_same(
        self, checkout: Checkout, make_store: MakeStore
    ) -> None:
        (checkout.main / ".git/ckpt/written").mkdir(parents=True)
        rebase("--interactive", todo="echo 'exec touch was-run' >>")(checkout)
        store = make_store(checkout)
        made = store.save("a-complete", {})
        assert made.worktree is not None
        assert made.worktree.operation == "rebase"
        assert store.resume(made).remarks == (operation.FOREIGN,)

    def test_labels_that_are_in_each_others_way(
        self, checkout: Checkout, make_store: MakeStore
    ) -> None:
        rebase("--merge")(checkout)
        store = make_store(checkout)
        made = store.save("a-complete", {})
        assert made.tree is not None
        head = checkout.git("rev-parse", "HEAD") + "\n"
        below = planted(checkout, made.tree, {"operation/refs/rewritten/a/b": head})
        repository = checkpoints_of_store(store).repository
        files = manifest.read(
            repository, checkpoints_of_store(store).objects, below, made.git_sha
        ).operation
        operation.restore_operation(repository, {**files, "refs/rewritten/a": head.encode()})
        assert set(checkout.refs("refs/rewritten")) == {"refs/rewritten/a"}

    @pytest.mark.long
    def test_directories_without_end(
        self, checkout: Checkout, make_store: MakeStore, tmp_path: Path
    ) -> None:
        store = make_store(checkout)
        objects = checkpoints_of_store(store).objects
        (tree,) = objects.write(
            [("tree", encode_tree({b"x": (FILE, objects.write([("blob", b"x")])[0])}))]
        )
        for level in range(3000):
            (tree,) = objects.write(
                [("tree", encode_tree({b"output" if level == 2998 else b"a": (DIRECTORY, tree)}))],
                flushed=False,
            )
        files = checkout.git("rev-parse", "HEAD^{tree}")
        whole = checkout.git(
            "mktree", data=f"040000 tree {files}\tfiles\n040000 tree {tree}\toperation\n"
        )
        with pytest.raises(WorktreeError, match="20 nested directories"):
            manifest.read(
                checkpoints_of_store(store).repository,
                checkpoints_of_store(store).objects,
                whole,
                "",
            )
        (run,) = objects.write(
            [
                (
                    "tree",
                    encode_tree(
                        {
                            b"files": (DIRECTORY, files),
                            b"run": (DIRECTORY, checkout.git("rev-parse", f"{tree}:a")),
                        }
                    ),
                )
            ]
        )
        with pytest.raises(WorktreeError, match="too many nested directories"):
            RunFiles(str(tmp_path / "run")).restore_missing(
                checkpoints_of_store(store).repository, objects, run
            )


def forget_captures(here: Checkout) -> None:
    """Delete the private directory's list of checkpoints captured here."""
    (here.main / ".git/ckpt/written").unlink()


def planted(here: Checkout, tree: str, files: dict[str, str]) -> str:
    """Return a copy of a tree with added files."""
    index = {"GIT_INDEX_FILE": str(here.main / ".git/planted")}
    here.git("read-tree", tree, env=index)
    for path, text in files.items():
        blob = here.git("hash-object", "-w", "--stdin", data=text)
        here.git("update-index", "--add", "--cacheinfo", f"100644,{blob},{path}", env=index)
    return here.git("write-tree", env=index)


@pytest.mark.parametrize(
    "kind",
    [kind for kind in KINDS if kind.name in ("merge", "cherry-pick", "revert")],
    ids=lambda kind: kind.name,
)
def test_where_refs_are_in_tables(
    newer_git: str, make_checkout: Callable[..., Checkout], make_store: MakeStore, kind: Kind
) -> None:
    checkout = make_checkout("tables", "--ref-format=reftable")
    checkout.commit("first", README="hello\n")
    kind.start(checkout)
    expected = view(checkout.path)
    store = make_store(checkout)
    made = store.save("a-complete", {})
    assert made.worktree is not None
    assert made.worktree.operation == kind.name
    there = Checkout(Path(store.resume(made).path))
    assert view(there.path) == expected
    ends = go_on(checkout, kind)
    assert go_on(there, kind) == ends
