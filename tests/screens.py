"""Capture screens of commands in tmux for docs/screens.md and the README.

`./dev screens` rewrites all captures. Dates and ids of the sample repository are fixed. To add a
screen, add a line to `SCREENS`.
"""

from __future__ import annotations

import html
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests import screen_clock

PROJECT = Path(__file__).parent.parent
PLACE = PROJECT / "docs" / "screens"
PAGE = PROJECT / "docs" / "screens.md"
SIZES = ((80, 24), (120, 40))
SCREENS = {
    "list": "git ckpt list",
    "log": "git ckpt log -n 5",
    "runs": "git ckpt runs",
    "status": "git ckpt status add-search",
    "status-watch": "git ckpt status --watch add-login",
    "turns": "git ckpt turns",
    "undo-list": "git ckpt undo --list",
}
"""File name -> command."""

SESSION = (
    "git ckpt init >/dev/null 2>&1",
    "echo two >>plan.md; echo draft >notes.md",
    "git ckpt save -m 'before the agent'",
    "git reset --hard; git clean -fdq    # something destroys both files",
    "git ckpt list",
    "git ckpt restore latest",
    "git status --short",
)
"""The commands of docs/screens/readme.svg."""

START = 1_795_856_400  # 2026-11-28T09:00:00Z
_PATIENCE = 30.0
# The server stays between two sessions: one that ends while a session begins refuses it.
_TMUX = "set -g status off\nset -g history-limit 5000\nset -s exit-empty off\n"


def set_clock(seconds: int) -> None:
    """Set the clock to some seconds after the start; also that of git."""
    os.utime(os.environ["SCREENS_CLOCK"], (START + seconds, START + seconds))
    date = f"{START + seconds} +0000"
    os.environ.update(GIT_AUTHOR_DATE=date, GIT_COMMITTER_DATE=date)


# The sample repository. It is made in a process of its own, with another clock.


def _write(name: str, text: str) -> None:
    path = Path(name)
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)


def _git(*words: str) -> None:
    subprocess.run(["git", *words], check=True, stdout=subprocess.DEVNULL)


def make_project() -> None:
    _git("init", "-q", "-b", "main")
    from gitckpt import Store

    with Store.open(adapter="plumbing") as store:
        store.install("none")  # its file of settings is committed here
    _write("plan.md", "one\n")
    _write("src/app.py", "import login\n\nlogin.ask()\n")
    _git("add", ".")
    _git("commit", "-q", "-m", "add the plan")


def make_sample() -> None:
    """Make a repository with saves, two runs, the session of an agent, and a restore."""
    from gitckpt import Attempt, Pipeline, Store
    from gitckpt.agents import turns
    from gitckpt.agents.events import PROMPT, STOP, TOOL, HookEvent
    from gitckpt.store.store import checkpoints_of_store

    make_project()
    with Store.open(adapter="plumbing") as store:
        _make_failed_run(store, Attempt, Pipeline)
        set_clock(3600)
        _write("src/login.py", "def ask():\n    return input('name: ')\n")
        store.save("manual-complete", message="login asks for the name", trigger="manual")
    for number, prompt in enumerate(("Add a password to the login", "Tidy up the tests"), 1):
        event: Any = {"client": "claude", "session": "s-1", "directory": os.getcwd()}
        set_clock(3600 + 600 * number)
        turns.record(HookEvent(PROMPT, prompt=prompt, **event))
        _write(f"tests/test_{number}.py", "def test():\n    pass\n" * number)
        set_clock(3660 + 600 * number)
        command = "git clean -fd" if number == 2 else None
        turns.record(HookEvent(TOOL, tool="Bash", command=command, **event))
        _write("src/login.py", "def ask():\n    return getpass()\n" * number)
        set_clock(3720 + 600 * number)
        turns.record(HookEvent(STOP, **event))
    with Store.open(adapter="plumbing") as store:
        set_clock(6000)
        first = next(entry for entry in store.list() if entry.message == "login asks for the name")
        store.restore(first.id, ["src/login.py"])
        set_clock(6300)
        _write("src/login.py", "def ask():\n    return getpass('password: ')\n")
        store.save("idea-progress", message="ask for the password only", trigger="manual")
        _make_running_run(store, checkpoints_of_store(store).leases, Attempt, Pipeline)


def _make_failed_run(store: Any, attempt: Any, pipeline: Any) -> None:
    phases: Any = {"name": "ci", "phases": ("plan", "build", "test"), "autonomy": "batch"}
    set_clock(60)
    details: Any = {"trigger": "phase", "pipeline": pipeline(**phases)}
    run = store.record("run-started", {}, start="add-search", **details).run
    for seconds, label, code in ((70, "plan", 0), (130, "build", 0), (400, "test", 1)):
        set_clock(seconds)
        begun = attempt(label, 1)
        store.record(f"{label}-started", run=run, trigger="phase", attempt=begun)
        set_clock(seconds + 45)
        _write(f"src/{label}.py", f"print('{label}')\n" * (seconds // 40))
        ended: Any = {
            "exit_code": code,
            "seconds": 44.5,
            "output": "4 passed\n1 failed: test_find\n",
        }
        status = "failed" if code else "complete"
        errors = ("exit code 1",) if code else ()
        done = attempt(label, 1, ended=status, **ended)
        store.save(f"{label}-{status}", run=run, trigger="phase", attempt=done, errors=errors)
    _git("clean", "-fdq")


def _make_running_run(store: Any, leases: Any, attempt: Any, pipeline: Any) -> None:
    set_clock(6600)
    inputs = {"plan": "plan.md"}
    details: Any = {"trigger": "phase", "branch": "main"}
    table = pipeline("loop", ("plan", "implement", "review"), inputs=inputs)
    run = store.record("run-started", {}, start="add-login", trigger="phase", pipeline=table).run
    details = {"run": run, "trigger": "phase"}
    store.record("plan-started", attempt=attempt("plan", 1), **details)
    set_clock(6690)
    done = attempt("plan", 1, ended="complete", exit_code=0, seconds=88.0)
    store.record("plan-complete", attempt=done, **details)
    set_clock(6700)
    state = {"loop": {"iterations": 2, "allowed": 10, "cost_usd": 0.42, "max_budget_usd": 5.0}}
    store.record("implement-started", state, attempt=attempt("implement", 1), **details)
    set_clock(6820)  # a lease that is not renewed for a minute is stalled
    process, os.getpid = os.getpid, lambda: screen_clock.DRIVER
    leases.acquire_lease(run, "git ckpt run")
    os.getpid = process
    directory = Path(".git/ckpt/runs") / str(run)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "last-line").write_text("tests/test_login.py ....F")


# The terminal


class Terminal:
    """A server of tmux with one window at a time."""

    def __init__(self, scratch: Path) -> None:
        self._scratch, self._count = scratch, 0
        (scratch / "tmux.conf").write_text(_TMUX)

    def capture(self, script: str, columns: int, rows: int, *, styled: bool = False) -> list[str]:
        """Return what the screen shows when a script has ended, or waits."""
        self._count += 1
        done, name = self._scratch / f"done-{self._count}", f"s{self._count}"
        body = self._scratch / f"script-{self._count}"
        body.write_text(f"{script}\n: >'{done}'\nexec sleep 1000\n")
        size = ["-x", str(columns), "-y", str(rows)]
        self._call("new-session", "-d", "-s", name, *size, f"sh '{body}'")
        words = ["capture-pane", "-p", *(["-e"] if styled else []), "-t", name]
        shown, since = "", time.monotonic()
        deadline = since + _PATIENCE
        while time.monotonic() < deadline:
            time.sleep(0.05)
            ended, text = done.exists(), self._call(*words)
            if text != shown:
                shown, since = text, time.monotonic()
            elif ended or (text.count("\n", 0, len(text.rstrip())) and _is_still(text, since)):
                break
        self._call("kill-session", "-t", name)
        assert shown.strip(), f"{script} showed nothing"
        return shown.rstrip().split("\n")

    def close(self) -> None:
        self._call("kill-server")

    def _call(self, *words: str) -> str:
        socket, settings = self._scratch / "socket", self._scratch / "tmux.conf"
        argv = ["tmux", "-S", str(socket), "-f", str(settings), *words]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        assert done.returncode == 0 or words[0].startswith("kill"), done.stderr
        return done.stdout


def _is_still(text: str, since: float) -> bool:
    """Return whether a pager or `--watch` shows all that it will."""
    is_paged = text.rstrip().endswith(("\n:", "(END)"))
    return time.monotonic() - since > (0.2 if is_paged else 1.5)


def environment(scratch: Path) -> dict[str, str]:
    """Return the variables of all processes; make the programs that they name."""
    programs = scratch / "bin"
    programs.mkdir()
    shim = programs / "git-ckpt"
    code = "import sys; sys.path.insert(0, sys.argv.pop(1)); from runpy import run_module; "
    code += "run_module('tests.screen_clock', run_name='__main__', alter_sys=True)"
    shim.write_text(f"#!/bin/sh\nexec '{sys.executable}' -P -c \"{code}\" '{PROJECT}' \"$@\"\n")
    shim.chmod(0o755)
    (scratch / "clock").write_text("")
    settings = "[user]\nname = Ada\nemail = ada@example.org\n[init]\ndefaultBranch = main\n"
    (scratch / ".gitconfig").write_text(settings + "[gc]\nauto = 0\n[maintenance]\nauto = false\n")
    kept = {name: os.environ[name] for name in ("GITCKPT_GIT",) if name in os.environ}
    return {
        **kept,
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(PROJECT),
        "HOME": str(scratch),
        "TMPDIR": str(scratch),
        "GIT_CONFIG_NOSYSTEM": "1",
        "LC_ALL": "C.UTF-8",
        "TZ": "UTC",
        "TERM": "xterm-256color",
        "PAGER": "cat",
        "SHELL": "/bin/sh",
        "SCREENS_CLOCK": str(scratch / "clock"),
    }


def make_all() -> dict[str, str]:
    """Return the text of each file below docs, by its path there."""
    with tempfile.TemporaryDirectory(prefix="screens") as directory:
        scratch = Path(directory).resolve()
        before = dict(os.environ)
        variables = environment(scratch)
        os.environ.clear()
        os.environ.update(variables)
        terminal = Terminal(scratch)
        try:
            return dict(_capture_all(scratch, terminal))
        finally:
            terminal.close()
            os.environ.clear()
            os.environ.update(before)


def _capture_all(scratch: Path, terminal: Terminal) -> Iterator[tuple[str, str]]:
    for place, action in (("project", "sample"), ("demo", "project")):
        (scratch / place).mkdir()
        argv = [sys.executable, "-m", "tests.screens", action]
        subprocess.run(argv, cwd=scratch / place, check=True)
    set_clock(6840)
    page = ["# Screens", "", "A small project at 11 o'clock. `./dev screens` makes this page.", ""]
    for name, command in SCREENS.items():
        quoted = command.replace("'", "'\\''")
        script = f"cd '{scratch}/project'\nprintf '$ %s\\n' '{quoted}'\n{command}"
        for columns, rows in SIZES:
            text = "\n".join(terminal.capture(script, columns, rows)) + "\n"
            yield f"screens/{name}-{columns}x{rows}.txt", text
            if columns == 80:
                page += [f"## {command}", "", "```text", *text.splitlines(), "```"]
        page += ["", f"[At 120×40](screens/{name}-120x40.txt)", ""]
    yield "screens.md", "\n".join(page)
    script = f"cd '{scratch}/demo'\n"
    for number, command in enumerate(SESSION):  # one each 20 seconds
        quoted = command.replace("'", "'\\''")
        script += f"touch -d @{START + 20 * number} '{scratch}/clock'\n"
        script += f"printf '\\033[1;32m$\\033[0m %s\\n' '{quoted}'\n{command}\n"
    yield "screens/readme.svg", draw(terminal.capture(script, 92, 40, styled=True))


# SVG

_COLORS = ("#3b4252", "#ff7b72", "#7ee787", "#e3b341", "#79c0ff", "#d2a8ff", "#56d4dd", "#e6edf3")
_SGR = re.compile(r"\x1b\[([0-9;]*)m")
_WIDTH, _HEIGHT, _MARGIN = 8.4, 19, 16


def draw(lines: list[str]) -> str:
    """Return a picture of a screen with styles (SGR) as SVG."""
    columns = max(len(_SGR.sub("", line)) for line in lines)
    width, height = round(columns * _WIDTH + 2 * _MARGIN), len(lines) * _HEIGHT + 2 * _MARGIN
    texts = []
    style: set[str] = set()
    for row, line in enumerate(lines):
        column = 0
        for index, part in enumerate(_SGR.split(line)):
            if index % 2:
                style = _apply(style, part)
                continue
            attributes = "".join(f" {attribute}" for attribute in sorted(style))
            for words in re.finditer(r"\S+(?: \S+)*", part):  # viewers join several spaces
                x, y = _MARGIN + (column + words.start()) * _WIDTH, _MARGIN + row * _HEIGHT + 14
                text = html.escape(words[0], quote=False)
                texts.append(f'<text x="{x:.1f}" y="{y}"{attributes}>{text}</text>')
            column += len(part)
    font = "ui-monospace, SFMono-Regular, Menlo, Consolas, monospace"
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="{font}" font-size="14"'
    back = f'<rect width="{width}" height="{height}" rx="8" fill="#0d1117"/>'
    return "\n".join([f'{head} fill="{_COLORS[7]}">', back, *texts, "</svg>\n"])


def _apply(style: set[str], codes: str) -> set[str]:
    changed = set(style)
    for code in map(int, filter(None, (codes or "0").split(";"))):
        if code == 0:
            changed = set()
        elif code in (1, 2):
            changed.add('font-weight="bold"' if code == 1 else 'opacity="0.6"')
        elif code in (22, 39):
            kept = "fill" if code == 22 else ("font-weight", "opacity")
            changed = {attribute for attribute in changed if attribute.startswith(kept)}
        elif code // 10 in (3, 9):
            changed = {attribute for attribute in changed if not attribute.startswith("fill")}
            changed.add(f'fill="{_COLORS[code % 10]}"')
    return changed


def main(action: str = "") -> None:
    if action:
        screen_clock.replace_world()
        set_clock(0)
        make_sample() if action == "sample" else make_project()
        return
    PLACE.mkdir(exist_ok=True)
    for name, text in make_all().items():
        (PROJECT / "docs" / name).write_text(text, "utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
