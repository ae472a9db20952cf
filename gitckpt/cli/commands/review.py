"""`git ckpt review`."""

from __future__ import annotations

from gitckpt.cli import options, terminal
from gitckpt.cli.commands.run import parse_limit, start
from gitckpt.cli.opening import open_store
from gitckpt.git.files import regular
from gitckpt.model.errors import UsageError

PIPELINE = "review"


@options.usage("""
TASK|TASK.md  The task: a text, or a file with it.
--name NAME  The name of the task in commits.  [default: from the task]
--coder NAME|COMMAND  The agent that does the work.
--reviewer NAME|COMMAND  The agent that reviews it.
--lint COMMAND  A command that must succeed before the review.
--lint-retries N  Let the coder fix lint errors at most N times.  [default: 2]
--filter NAME=COMMAND  Another command that must succeed; may be repeated.
--epic ID  The issue of beads that gets each finding as a child.
--max-cycles N  Let the coder try at most N times.  [default: 3]
--max-budget USD  Stop when all answers together have cost USD.
--agent-timeout AGE  Time limit of an answer.  [default: 1h]
--refactor RUN  Start nothing: replace the task of this run by TASK.
--base REV  The commit that the run's worktree starts from.  [default: HEAD]
--timeout AGE  Time limit of the whole run.
""")
def review(
    task: str,
    name: str | None = None,
    filter_: list[str] | None = None,
    refactor: str | None = None,
    base: str = "HEAD",
    timeout: str | None = None,
    **inputs: object,
) -> int:
    """Let a coder work and a reviewer judge until it is approved.

    Prints the id of the run. Each transition is a checkpoint. Kill it at any time: git ckpt resume
    ID continues it.
    """
    text = _text(task)
    if refactor is not None:
        return _refactor(refactor, text)
    from gitckpt.model import ids

    about = name or ids.slug(text.strip().partition("\n")[0])
    texts = {key: str(value) for key, value in inputs.items() if value is not None}
    texts |= {"title": text, "task": about, "filters": "\n".join(filter_ or [])}
    given = {key: value for key, value in texts.items() if value.strip()}
    how = {"about": about, "base": base, "timeout": parse_limit(timeout)}
    return start(PIPELINE, given, holder=f"git ckpt review {terminal.harmless(about)}", **how)


def _text(task: str) -> str:
    if not task.endswith(".md"):
        return task
    try:
        return regular.content(task).decode("utf-8", "replace")
    except OSError as error:
        raise UsageError(f"cannot read the task {task}: {error.strerror}") from None


def _refactor(run: str, text: str) -> int:
    from gitckpt.durable.driver.pipelines import Pipelines

    options.refuse(not text.strip(), "there is no task", "say what the task has become")
    with open_store() as store:
        Pipelines(store).refactor(store.find_run(run), text)
        terminal.remark("the coder is told of it in the next cycle")
    return 0
