"""Implement `git ckpt demo`: kill a real job, delete its files, and resume it."""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
from collections.abc import Callable

from gitckpt.cli import terminal
from gitckpt.git.process import Child, git_environment, run_attached
from gitckpt.model.arguments import shell_quoted
from gitckpt.model.errors import CkptError, UsageError

JOB = """\
#!/bin/sh
# A job of two phases, research and build. It asks what is complete, and does the rest.
set -eu

# The id of the newest checkpoint with a label, or nothing.
newest() { git ckpt -q list --phase "$1" -n 1 | cut -f 1; }

# Keeps the files as they are now, with the state on standard input, under a label.
save() { git ckpt -q save --phase "$1" --state - > /dev/null; }

if [ "$(newest research-complete)" ]; then
    echo "job: research is complete: skipped"
else
    echo "job: research"
    echo "Limits are per user, not per address." > findings.md
    echo '{"findings": "findings.md", "parts_done": 0}' | save research-complete
fi

checkpoint=$(newest build-progress)
state=$(git ckpt show "${checkpoint:-$(newest research-complete)}" --state)
part=$(echo "$state" | sed -n 's/.*"parts_done": \\([0-9]*\\).*/\\1/p')
while [ "$part" -lt 3 ]; do
    part=$((part + 1))
    echo "limit = $part" > "part_$part.py"
    echo "job: build, part $part of 3"
    [ "$part" != 2 ] || sleep "${LONG:-1}"  # think of an agent that works for an hour
    echo "import part_$part" >> app.py
    echo '{"findings": "findings.md", "parts_done": '$part'}' | save build-progress
done
echo "$state" | sed 's/"parts_done": [0-9]*/"parts_done": 3/' | save build-complete
echo "job: finished"
"""

_KILL_AT = "job: build, part 2 of 3"
_STATE = {"findings": "findings.md", "parts_done": 1}
_UNFINISHED_FILE = "part_2.py"
_LAST_LINES = ["job: research is complete: skipped", "job: build, part 2 of 3"]
_LAST_LINES += ["job: build, part 3 of 3", "job: finished"]
_PACKAGE_DIR = os.path.abspath(os.path.join(__file__, *[os.pardir] * 4))


def run_demo(directory: str | None = None) -> bool:
    demo = _Demo(_make_scratch_directory(directory))
    demo.prepare_project()
    demo.start_and_kill_job()
    demo.list_checkpoints()
    demo.rewrite_history()
    demo.resume_checkpoint()
    demo.finish_job()
    return demo.print_conclusion()


def _make_scratch_directory(directory: str | None) -> str:
    if directory is None:
        return os.path.realpath(tempfile.mkdtemp(prefix="gitckpt-demo-"))
    hint = "name a directory that git ckpt can create: git ckpt demo --dir DIR"
    try:
        os.makedirs(directory)
    except FileExistsError:
        raise UsageError(f"{directory} exists already", hint=hint) from None
    except OSError as error:
        raise CkptError(f"cannot make {directory}: {error.strerror}", hint=hint) from None
    return os.path.realpath(directory)


class _Demo:
    def __init__(self, scratch: str) -> None:
        self.scratch = scratch
        self.project = os.path.join(scratch, "project")
        self.cwd = scratch
        self.env = _isolated_environment(scratch)
        self.proofs: list[bool] = []
        self.files: dict[str, bytes] = {}  # expected in the resumed worktree
        self.status: list[str] = []  # its expected `git status`
        self.commit = self.research = self.checkpoint = ""

    def prepare_project(self) -> None:
        self.say("A repository with a little history, in which every commit records a checkpoint.")
        self.change_directory(self.scratch)
        self.run_and_show("git init --quiet --initial-branch=main project")
        self.change_directory(self.project)
        self.run_and_show("git config user.name Demo && git config user.email demo@example.org")
        self.run_and_show("echo '# The app' > app.py && git add app.py")
        self.run_and_show("git commit --quiet --message='Begin the app'")
        self.run_and_show("git ckpt init")
        self.say("A job of two phases that saves a checkpoint after each piece of work:")
        with open(os.path.join(self.project, "job.sh"), "w", encoding="utf-8") as file:
            file.write(JOB)
        self.run_and_show("cat job.sh")
        self.run_and_show("git add . && git commit --quiet --message='Add the job'")
        self.commit = self.run("git rev-parse HEAD")
        self.say("Uncommitted work by hand: part of it is staged, part of it is not even tracked.")
        command = "echo '# by hand' >> app.py && git add app.py && echo 'ask Ada' > todo.txt"
        self.run_and_show(command)

    def start_and_kill_job(self) -> None:
        self.say("The job runs, in the background, and its second part would take an hour …")
        command = "LONG=3600 sh job.sh"
        self.print_command(f"{command} &")
        job = Child(self.wrap_in_shell(f"exec env {command} 2>&1"), self.env, own_group=True)
        try:
            line = ""
            while line != _KILL_AT:
                line = job.read_output_line().decode("utf-8", "replace")
                if not line:
                    hint = f"run the job yourself: cd {shell_quoted(self.project)} && sh job.sh"
                    raise CkptError("the job of the demo ended early", hint=hint)
                terminal.out(line)
        finally:
            exit_code = job.kill_process_group()
        self.say("… but a power cut, or kill -9, comes in between. The job cannot react to that.")
        self.print_command(f"kill -KILL -- -{job.pid}")
        self.check("the job was killed while it worked", exit_code == -signal.SIGKILL)
        self.files = _read_files(self.project)
        unfinished_content = self.files.pop(_UNFINISHED_FILE, None)
        status_lines = self.run("git status --short").splitlines()
        self.status = [line for line in status_lines if not line.endswith(f" {_UNFINISHED_FILE}")]
        claim = f"all that is lost is {_UNFINISHED_FILE}, which no checkpoint holds yet"
        self.check(claim, unfinished_content is not None)
        self.say("It gets worse: a cleanup deletes every file that was not committed.")
        self.run_and_show("git reset --quiet --hard && git clean --quiet --force -d")
        self.run_and_show("ls")

    def list_checkpoints(self) -> None:
        self.research = self.find_checkpoint("research-complete")
        self.checkpoint = self.find_checkpoint("build-progress")
        self.say("What there is to go back to:")
        self.run_and_show("git ckpt list")
        self.run_and_show(f"git ckpt show {self.checkpoint}")
        self.say("What happened between the two checkpoints of the job, in files and in state:")
        self.run_and_show(f"git ckpt diff {self.research} {self.checkpoint}")
        self.say("What the newer one holds and this worktree has lost:")
        self.run_and_show(f"git ckpt diff --stat {self.checkpoint}")

    def rewrite_history(self) -> None:
        self.say("History is rewritten, and git deletes all commits without a ref:")
        self.run_and_show("git commit --quiet --amend --message='Add the job, reworded'")
        self.run_and_show("git reflog expire --expire=now --all && git gc --quiet --prune=now")
        self.check("HEAD is another commit now", self.run("git rev-parse HEAD") != self.commit)
        object_type = self.read_output(f"git cat-file -t {self.commit[:10]}")
        self.check("the amended commit is still there", object_type == "commit")

    def resume_checkpoint(self) -> None:
        self.say("Back to the checkpoint, in a worktree of its own; nothing here is overwritten:")
        path = self.read_output(f"git ckpt resume {self.checkpoint}")
        state = json.loads(self.read_output(f"git ckpt show {self.checkpoint} --state"))
        self.change_directory(path)
        status_lines = self.read_output("git status --short").splitlines()
        names = ", ".join(sorted(self.files))
        self.check(f"same files as before the crash ({names})", _read_files(path) == self.files)
        claim = "same status as before the crash: what was staged is staged"
        self.check(claim, status_lines == self.status)
        self.check("same state as before the crash", state == _STATE)
        self.check("same commit as before the crash", self.run("git rev-parse HEAD") == self.commit)

    def finish_job(self) -> None:
        self.say("The same job again. It goes on at the first piece of work that is not done:")
        output = self.read_output("sh job.sh 2>&1").splitlines()
        job_lines = [line for line in output if line.startswith("job: ")]
        self.check("research and part 1 were not done again", job_lines == _LAST_LINES)
        app = _read_files(self.cwd).get("app.py", b"")
        parts = b"import part_1\nimport part_2\nimport part_3\n"
        self.check("the work is whole", app.endswith(parts))
        self.run_and_show("git ckpt list")

    def print_conclusion(self) -> bool:
        is_proved = all(self.proofs)
        success_text = "Killed, its files deleted, its commit amended: "
        success_text += "the job finished, and no work was lost."
        failure_text = "NOT everything was restored: see the lines that begin with FAILED."
        self.say(success_text if is_proved else failure_text)
        terminal.out(f"The scratch repository is {self.project}")
        terminal.out(f"Delete it when you have seen it: {shell_quoted(self.scratch)}")
        return is_proved

    def say(self, text: str) -> None:
        terminal.out()
        terminal.out(text)

    def print_command(self, command: str) -> None:
        terminal.out(terminal.heading(f"$ {command}"))
        sys.stdout.flush()

    def change_directory(self, path: str) -> None:
        relative = os.path.relpath(path, self.cwd) if self.cwd != path else path
        self.print_command(f"cd {shell_quoted(relative)}")
        self.cwd = path

    def run_and_show(self, command: str) -> None:
        self.print_command(command)
        self.require_success(command, run_attached(self.wrap_in_shell(command), self.env))

    def read_output(self, command: str) -> str:
        self.print_command(command)
        return self.run(command, terminal.out)

    def run(self, command: str, echo: Callable[[str], None] = lambda _: None) -> str:
        result = Child(self.wrap_in_shell(command), self.env).communicate()
        for output in filter(None, (result.err, result.out)):
            for line in output.decode("utf-8", "replace").removesuffix("\n").split("\n"):
                echo(line)
        self.require_success(command, result.code)
        return os.fsdecode(result.out).removesuffix("\n")

    def find_checkpoint(self, label: str) -> str:
        return self.run(f"git ckpt list --phase {label} -n 1 | cut -c 1-8")

    def require_success(self, command: str, exit_code: int) -> None:
        if exit_code != 0:
            problem = f"a command of the demo failed with exit code {exit_code}: {command}"
            raise CkptError(problem, hint=f"look at the repository: cd {shell_quoted(self.cwd)}")

    def check(self, claim: str, is_true: bool) -> None:
        self.proofs.append(is_true)
        terminal.out(f"  {'ok' if is_true else 'FAILED'}: {claim}")

    def wrap_in_shell(self, command: str) -> list[str]:
        # A `Child` has no working directory of its own.
        return ["sh", "-c", 'cd "$1" && eval "$2"', "sh", self.cwd, command]


def _isolated_environment(scratch: str) -> dict[str, str]:
    # Without the user's git configuration; `git ckpt` runs this Python package.
    environment_dir = os.path.join(scratch, "environment")
    os.makedirs(os.path.join(environment_dir, "bin"))
    program = os.path.join(environment_dir, "bin", "git-ckpt")
    with open(program, "w", encoding="utf-8") as file:
        file.write(f'#!/bin/sh\nexec {shell_quoted(sys.executable)} -m gitckpt "$@"\n')
    os.chmod(program, 0o700)
    with open(os.path.join(environment_dir, "gitconfig"), "w", encoding="utf-8") as file:
        file.write("[gc]\n\tauto = 0\n[advice]\n\tdetachedHead = false\n")
    env = git_environment()
    for name in list(env):
        if name == "GITCKPT_SKIP" or (name.startswith("GIT_") and name != "GIT_EXEC_PATH"):
            del env[name]
    return env | {
        "PATH": os.path.join(environment_dir, "bin") + os.pathsep + env.get("PATH", os.defpath),
        "PYTHONPATH": os.pathsep.join(filter(None, [_PACKAGE_DIR, env.get("PYTHONPATH")])),
        "XDG_CONFIG_HOME": environment_dir,
        "GIT_CONFIG_GLOBAL": os.path.join(environment_dir, "gitconfig"),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_TEMPLATE_DIR": "",
        "GIT_PAGER": "cat",
        "GIT_TERMINAL_PROMPT": "0",
    }


def _read_files(top: str) -> dict[str, bytes]:
    contents = {}
    for parent, directories, file_names in os.walk(top):
        if parent == top:
            directories[:] = [name for name in directories if name not in (".git", ".ckpt")]
        for path in (os.path.join(parent, name) for name in file_names if name != ".git"):
            with open(path, "rb") as file:
                contents[os.path.relpath(path, top)] = file.read()
    return contents
