"""The rows of the table: what is measured, against what, and how much it may cost."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator

from benchmarks import run_cases, worktree_cases
from benchmarks.rows import CKPT, Case, Row
from benchmarks.stores import Scratch, git, state_of_10_kb
from benchmarks.timing import alternate, process
from gitckpt import Store
from gitckpt.git.repository import Repository
from gitckpt.store.records import ref_names

SIZES = (0, 10_000, 100_000)


def hook(scratch: Scratch, many: int) -> Iterator[Row]:
    """Time the hook, started by git, on a new commit each time; no maintenance is due."""
    python = process([sys.executable, "-I", "-c", "pass"], scratch.path)
    medians = []
    for size in [size for size in SIZES if size <= many]:
        path = scratch.copy(scratch.store(size), "hook")
        subprocess.run([*CKPT, "-q", "init"], cwd=path, check=True, stdout=subprocess.DEVNULL)
        with open(
            os.path.join(
                Repository(os.path.join(path, ".git"), None).make_private_dir(),
                ref_names.MAINTAINED,
            ),
            "wb",
        ):
            pass  # or maintenance would be at work beside what is measured
        run_hook = process([os.path.join(path, ".git", "hooks", "post-commit")], path)
        run_hook()

        def commit(path: str = path) -> None:
            subprocess.run(
                ["git", "commit", "--quiet", "--allow-empty", "-m", "x"],
                cwd=path,
                check=True,
                env=os.environ | {"GITCKPT_SKIP": "1"},
            )

        pair = alternate(run_hook, python, runs=25, before_ours=commit)
        medians.append(pair.ratio)
        yield Row(
            f"post-commit hook, {size:,} checkpoints",
            "python3 -I -c pass",
            pair.ratio,
            0.8,
            "x",
            pair,
        )
    yield Row(
        "post-commit hook, largest store",
        "the same with none",
        medians[-1] / medians[0],
        1.2,
        "x",
        None,
    )


def listing(scratch: Scratch, many: int) -> Iterator[Row]:
    """The newest 20, with the index as the last listing left it, and after one more checkpoint."""
    for size, limit in ((10_000, 250.0), (100_000, 400.0)):
        if size > many:
            continue
        path = scratch.store(size)
        refs = process(
            ["git", "for-each-ref", "refs/checkpoints"],
            path,
            os.path.join(scratch.path, "refs.txt"),
        )
        ours = process([*CKPT, "list", "-n", "20"], path)
        ours()
        pair = alternate(ours, refs, runs=9)
        yield Row(
            f"list of 20 among {size:,}", "git for-each-ref", pair.excess * 1000, limit, "ms", pair
        )

        def save(path: str = path) -> None:
            subprocess.run(
                [*CKPT, "-q", "save", "--no-worktree"],
                cwd=path,
                check=True,
                stdout=subprocess.DEVNULL,
            )

        pair = alternate(ours, refs, runs=5, before=save)
        yield Row(
            f"list of 20 among {size:,}, one of them new",
            "git for-each-ref",
            pair.excess * 1000,
            limit,
            "ms",
            pair,
        )


def log(scratch: Scratch, many: int) -> Iterator[Row]:
    """What 20 checkpoints among 10,000 changed, and all that changed a path."""
    del many
    path = scratch.store(10_000)
    listed = process([*CKPT, "list", "-n", "20"], path)
    listed()
    pair = alternate(process([*CKPT, "log", "-n", "20"], path), listed, runs=9)
    what = "log of 20 among 10,000"
    yield Row(what, "git ckpt list -n 20", pair.excess * 1000, 50.0, "ms", pair)
    words = ["log", "--all", "--oneline", "--", "file-3"]
    pair = alternate(process([*CKPT, *words], path), process(["true"], path), runs=9)
    what = "log -- PATH, 200 of 10,000"
    yield Row(what, "nothing", pair.excess * 1000, 1000.0, "ms", pair)


def record(scratch: Scratch, many: int) -> Iterator[Row]:
    """One record in a process that lives on, flushed to the disk."""
    del many
    import pygit2
    from pygit2.enums import Option

    path = scratch.copy(scratch.store(1), "record")
    state = state_of_10_kb()
    with Store.open(path) as store:
        clean = store.capture()
        document = store.raw(store.record("warm-complete", state, worktree=clean).id)
        repository = pygit2.Repository(path)

        def ours() -> None:
            store.record("measure-complete", state, worktree=clean)

        def theirs() -> None:
            pygit2.option(Option.ENABLE_FSYNC_GITDIR, True)
            name = str(uuid.uuid4())
            blob = repository.create_blob(name.encode() + document)
            repository.references.create(f"refs/baseline/{name}", blob)

        pair = alternate(ours, theirs, runs=300, warm_up=20)
        yield Row(
            "Store.record, 10 KB state, clean tree",
            "one durable pygit2 blob and ref",
            pair.ratio,
            1.7,
            "x",
            pair,
        )
        yield from _dbos(scratch, ours)


def _dbos(scratch: Scratch, ours: Callable[[], None]) -> Iterator[Row]:
    try:
        from dbos import DBOS
    except ImportError:
        yield Row(
            "Store.record",
            "one DBOS sqlite step (not installed: pip install dbos)",
            0.0,
            None,
            "x",
            None,
        )
        return
    import statistics
    import time

    DBOS(config={"name": "bench", "system_database_url": f"sqlite:///{scratch.path}/dbos.sqlite"})

    @DBOS.step()
    def step() -> int:
        return 1

    spent: list[float] = []

    @DBOS.workflow()
    def workflow() -> None:
        for _ in range(300):
            start = time.perf_counter()
            step()
            between = time.perf_counter()
            ours()
            spent.append((time.perf_counter() - between) / (between - start))

    DBOS.launch()
    try:
        workflow()
    finally:
        DBOS.destroy()
    yield Row("Store.record", "one DBOS sqlite step", statistics.median(spent[20:]), 1.0, "x", None)


def expire(scratch: Scratch, many: int) -> Iterator[Row]:
    """Time the default policy on copies of a store: first and daily expiry."""
    source = scratch.store(many)
    subprocess.run([*CKPT, "list"], cwd=source, check=True, stdout=subprocess.DEVNULL)
    daily = scratch.copy(source, "expire-daily")
    subprocess.run(
        [*CKPT, "expire", "--older-than", "100d"],
        cwd=daily,
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    yield _expire(scratch, daily, f"among {many:,}", 4.0)
    yield _expire(scratch, source, f"among {many:,}, the first", 5.0)


def _expire(scratch: Scratch, source: str, among: str, limit: float) -> Row:
    ours_path, theirs_path = "", ""

    def fresh() -> None:
        nonlocal ours_path, theirs_path
        ours_path, theirs_path = (
            scratch.copy(source, "expire-ours"),
            scratch.copy(source, "expire-theirs"),
        )
        # The index was made from the files of the original, so a copy is listed once beforehand.
        subprocess.run(
            [*CKPT, "list"],
            cwd=ours_path,
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    fresh()
    dry = subprocess.run(
        [*CKPT, "expire", "--dry-run"], cwd=ours_path, check=True, capture_output=True, text=True
    ).stdout
    gone = [line.split()[1] for line in dry.splitlines() if line.startswith("expires")]
    refs = dict(
        line.split(" ")[::-1]
        for line in git(ours_path, "for-each-ref", "--format=%(objectname) %(refname)").splitlines()
    )
    names = [f"refs/checkpoints/{name}" for name in gone]
    deletions = "".join(f"delete {name} {refs[name]}\n" for name in names)

    def ours() -> None:
        subprocess.run(
            [*CKPT, "expire"],
            cwd=ours_path,
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def theirs() -> None:
        git(theirs_path, "update-ref", "--stdin", data=deletions.encode())

    pair = alternate(ours, theirs, runs=3, before=fresh, warm_up=1)
    return Row(
        f"expire of {len(gone):,} {among}", "git update-ref --stdin", pair.ratio, limit, "x", pair
    )


def bystanders(scratch: Scratch, many: int) -> Iterator[Row]:
    """Git's own commands in a repository with very many checkpoints."""
    with_them, without = scratch.store(many), scratch.store(many, linked=False)
    for args in (["status"], ["commit", "--quiet", "--allow-empty", "-m", "x"], ["log", "-5"]):
        pair = alternate(
            process(["git", *args], with_them), process(["git", *args], without), runs=31, warm_up=3
        )
        yield Row(
            f"git {args[0]}, {many:,} checkpoints", "the same without", pair.ratio, 1.1, "x", pair
        )


CASES: dict[str, Case] = {
    "hook": hook,
    "list": listing,
    "log": log,
    "record": record,
    "expire": expire,
    "git": bystanders,
    "save": worktree_cases.save,
    "resume": worktree_cases.resume,
    "restore": worktree_cases.restore,
    "size": worktree_cases.size,
    "phases": run_cases.phases,
    "runs": run_cases.runs,
}
