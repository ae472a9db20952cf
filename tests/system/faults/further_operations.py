"""Define operations on runs, and exports and imports of other tools' files."""

from __future__ import annotations

import sys

from tests.system.faults import promises
from tests.system.faults.operation import CKPT, Operation
from tests.system.power.scenarios import PROJECT

_FILES = frozenset({"files"})

_HOOK = (
    "import os, sys; sys.path.insert(0, sys.argv.pop(1)); "
    "os.chdir(open(sys.argv.pop(1)).read().strip())\n"
    "from gitckpt.hook import run; run(sys.argv[1:])"
)

_COUNTING = """
import sys
sys.path.insert(0, sys.argv.pop(1))
noted = sys.argv.pop(1) + "/counted"
from gitckpt.durable.run.run import Run
from gitckpt.model.errors import CkptError
from gitckpt.store.store import Store

def count():
    for number in range(run.state.get("seen", 0) + 1, 4):
        open(f"{run.path}/number-{number}", "w").write(f"{number}\\n")
        run.state["seen"] = number
        run.milestone(message=f"number {number}")
        with open(noted, "a") as file:
            run.unwritten or file.write(f"{run.newest.id} {number}\\n")

try:
    with Store.open(".") as store, Run.start(store, "count", \
key="count", adapter="plumbing") as run:
        run.phase("count", count)
except (CkptError, OSError) as error:
    sys.exit(f"error: {error}\\nhint: {getattr(error, 'hint', None) or 'start it again'}")
"""

_SHORT = """
import sys
sys.path.insert(0, sys.argv.pop(1))
noted = sys.argv.pop(1) + "/counted"
from gitckpt.durable.run.run import Run
from gitckpt.model.errors import CkptError
from gitckpt.store.store import Store

def work(number):
    run.state["seen"] = number
    if number % 3 == 0:
        open(f"{run.path}/number-{number}", "w").write(f"{number}\\n")
    return number

try:
    with Store.open(".") as store, Run.start(store, "short", \
key="short", adapter="plumbing") as run:
        for number in range(1, 6):
            name = f"phase {number}"
            is_new = name not in run.completed
            assert run.phase(name, work, inputs={"number": number}) == number
            with open(noted, "a") as file:
                is_new and not run.unwritten and file.write(f"{run.completed[name]} {number}\\n")
except (CkptError, OSError) as error:
    sys.exit(f"error: {error}\\nhint: {getattr(error, 'hint', None) or 'start it again'}")
"""
"""Phases that end at once: each start is recorded together with the end."""

_CANCELLING = """
import os, subprocess, sys, time
sys.path.insert(0, sys.argv.pop(1))
beside = sys.argv.pop(1)
try:
    with open(f"{beside}/run", "w") as said:
        driver = subprocess.Popen([sys.executable, "-m", "gitckpt", "--quiet", "run", "slow"], \
stdout=said, stderr=subprocess.DEVNULL)
except OSError as error:
    sys.exit(f"error: {error}\\nhint: start it again")
while not os.path.exists(f"{beside}/begun") and driver.poll() is None:
    time.sleep(0.01)
sys.argv[1:] = ["--quiet", "cancel", open(f"{beside}/run").read().strip()]
from gitckpt.__main__ import main
main()
"""

_RAN = r"""
git ckpt --quiet run ci >"$BESIDE/run"; rm -f "$BESIDE/calls" "$BESIDE/acknowledged"
git ckpt list --run "$(cat "$BESIDE/run")" | grep one-complete | cut -f1 >"$BESIDE/id"
git worktree list --porcelain | sed -n 's/^worktree //p' | tail -n 1 >"$BESIDE/whole"
realpath --relative-to=. "$(cat "$BESIDE/whole")" >"$BESIDE/path"
"""
"""A complete run; `@ID` is the checkpoint in its middle."""

_STARTED = """
git ckpt --quiet start work >"$BESIDE/whole"; \
realpath --relative-to=. "$(cat "$BESIDE/whole")" >"$BESIDE/path"
git ckpt runs | cut -f1 >"$BESIDE/id"
(cd "$(cat "$BESIDE/whole")"; echo x >made; git add made; git commit --quiet --message made; \
echo more >>file-1; echo y >untracked)
"""
"""A run without a pipeline, whose files are edited by hand."""

_THE_RUN = 'cp "$BESIDE/run" "$BESIDE/id"'

RUN_OPERATIONS = (
    Operation(
        "start",
        [*CKPT, "start", "work", "--key", "mine"],
        promises.started,
        again=("start", "work", "--key", "mine"),
    ),
    Operation(
        "finish",
        [*CKPT, "finish", "@ID"],
        promises.finished,
        _STARTED,
        again=("finish", "@ID"),
        again_codes=(0, 2),
    ),
    Operation(
        "hook-in-run",
        [sys.executable, "-I", "-S", "-c", _HOOK, str(PROJECT), "@BESIDE/path", "post-commit"],
        promises.hooked_in_run,
        (
            f'{_STARTED} (cd "$(cat "$BESIDE/whole")"; git add untracked; '
            "GITCKPT_SKIP=1 git commit --quiet --message fourth)"
        ),
    ),
    Operation(
        "milestones",
        [sys.executable, "-P", "-u", "-c", _COUNTING, str(PROJECT), "@BESIDE"],
        promises.counted,
    ),
    Operation(
        "short-phases",
        [sys.executable, "-P", "-u", "-c", _SHORT, str(PROJECT), "@BESIDE"],
        promises.counted,
    ),
    Operation(
        "cancel",
        [sys.executable, "-P", "-u", "-c", _CANCELLING, str(PROJECT), "@BESIDE"],
        promises.cancelled,
        'printf \'[pipelines.slow]\\nphases = [{ name = "one", run = "sh $BESIDE/one" }, '
        '{ name = "two", run = "touch $BESIDE/begun; sleep 2" }]\\n\' >>gitckpt.toml',
        again=("resume", "latest:any"),
        again_codes=(0, 2, 12),
    ),
    Operation(
        "fork",
        [*CKPT, "resume", "@ID", "--fork"],
        promises.ran,
        _RAN,
        again=("resume", "latest:any"),
        again_codes=(0, 2, 12),
    ),
    Operation(
        "fork-open",
        [*CKPT, "resume", "@ID", "--fork", "--no-run"],
        promises.opened,
        _RAN,
        again=("resume", "@ID", "--fork", "--no-run"),
    ),
    Operation(
        "rewind",
        [*CKPT, "resume", "@ID", "--rewind", "--no-run"],
        promises.taken_back,
        f'{_RAN} (cd "$(cat "$BESIDE/whole")"; echo edited >>file-1; echo z >more; '
        "git rm --quiet file-8)\n"
        'cp -a "$(cat "$BESIDE/whole")" "$BESIDE/was"',
        again=("resume", "@ID", "--rewind", "--no-run"),
    ),
    Operation(
        "redo-phase",
        [*CKPT, "resume", "@ID", "--from", "two"],
        promises.ran,
        f"{_RAN} {_THE_RUN}",
        again=("resume", "@ID", "--from", "two"),
    ),
    Operation(
        "adopt",
        [*CKPT, "resume", "@ID", "--trust", "--no-run"],
        promises.nothing,
        f'{_RAN} {_THE_RUN}; rm "$(git rev-parse --git-common-dir)"/ckpt/written*',
        again=("resume", "@ID", "--trust", "--no-run"),
    ),
    Operation(
        "remove-run",
        [*CKPT, "remove", "@ID"],
        promises.removed_run,
        (
            f'{_RAN} {_THE_RUN}; git ckpt list --run "$(cat "$BESIDE/run")" | '
            'cut -f1 >"$BESIDE/doomed"'
        ),
        again=("remove", "@ID"),
        again_codes=(0, 12),
    ),
)

FILE_OPERATIONS = (
    Operation(
        "restore-paths",
        [*CKPT, "restore", "--index", "@ID", "--", "file-2", "sub"],
        promises.replaced,
        'tail -n 1 "$BESIDE/known" >"$BESIDE/id"; echo four >>file-2; git add file-2; '
        "echo edited >>sub/deep/1; rm sub/deep/2\n"
        "echo x >sub/new; rm file-5",
        changes=frozenset({"files", "index"}),
        again=("restore", "--index", "@ID", "--", "file-2", "sub"),
        ends_alike=True,
    ),
    Operation(
        "import",
        [*CKPT, "import", "from"],
        promises.imported,
        (
            f"mkdir from; cp {PROJECT}/tests/formats/samples/rlm-act/*.json "
            f"{PROJECT}/tests/formats/samples/forge/*.yaml from"
        ),
        again=("import", "from"),
    ),
    Operation(
        "export",
        [*CKPT, "export", "@ID", "--format", "rlm-act", "--output", "to/here/"],
        promises.exported,
        f"{_RAN} {_THE_RUN}; mkdir to",
        changes=_FILES,
        again=("export", "@ID", "--format", "rlm-act", "--output", "to/here/"),
        ends_alike=True,
    ),
    Operation(
        "export-over",
        [*CKPT, "export", "@ID", "--format", "rlm-act", "--force", "--output", "out"],
        promises.exported,
        f'{_RAN} {_THE_RUN}; git ckpt -q export "$(cat "$BESIDE/id")" --format rlm-act -o out '
        ">/dev/null; "
        "for file in out/*; do echo old >$file; done",
        changes=_FILES,
        again=("export", "@ID", "--format", "rlm-act", "--force", "--output", "out"),
        ends_alike=True,
    ),
    Operation(
        "notes",
        [*CKPT, "notes"],
        promises.nothing,
        (
            "for n in 1 2 3; do git commit --quiet --allow-empty --message $n; "
            "git ckpt --quiet save; done"
        ),
        again=("notes",),
    ),
    Operation(
        "allow",
        [*CKPT, "allow"],
        promises.allowed,
        (
            "sed -i 's/^keep_last = .*/keep_last = 0/; "
            's/^older_than = .*/older_than = "1d"/\' gitckpt.toml'
        ),
        again=("allow",),
    ),
)
