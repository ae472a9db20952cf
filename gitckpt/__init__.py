"""A git-native checkpoint store: state, files and commit of a run, in refs of the repository itself.

    from gitckpt import Store

    with Store.open() as store:
        saved = store.save("plan-complete", {"step": 3})
        print(store.read(saved.id).state)

    with Store.open() as store, Run.start(store, "add-login") as run:
        notes = run.phase("research", research, inputs={"question": "how?"})

The names below are loaded when they are first used: the hook imports this package, and has no time for them.
"""

__version__ = "0.1.0"

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gitckpt.durable.run.errors import PhaseFailed as PhaseFailed
    from gitckpt.durable.run.retry import Conduct as Conduct
    from gitckpt.durable.run.retry import Retries as Retries
    from gitckpt.durable.run.run import Run as Run
    from gitckpt.model.checkpoint import Checkpoint as Checkpoint
    from gitckpt.model.checkpoint import Progress as Progress
    from gitckpt.model.checkpoint import Worktree as Worktree
    from gitckpt.model.errors import CkptError as CkptError
    from gitckpt.store.records.entry import Entry as Entry
    from gitckpt.store.records.entry import Query as Query
    from gitckpt.store.store import Store as Store

_HOMES = {
    "Conduct": "gitckpt.durable.run.retry",
    "PhaseFailed": "gitckpt.durable.run.errors",
    "Retries": "gitckpt.durable.run.retry",
    "Run": "gitckpt.durable.run.run",
    "Checkpoint": "gitckpt.model.checkpoint",
    "Progress": "gitckpt.model.checkpoint",
    "Worktree": "gitckpt.model.checkpoint",
    "CkptError": "gitckpt.model.errors",
    "Entry": "gitckpt.store.records.index",
    "Query": "gitckpt.store.records.index",
    "Store": "gitckpt.store.store",
}
__all__ = ["Checkpoint", "CkptError", "Conduct", "Entry", "PhaseFailed", "Progress", "Query", "Retries", "Run", "Store", "Worktree"]


def __getattr__(name: str) -> object:
    """Loads a public name at its first use."""
    if name not in _HOMES:
        raise AttributeError(f"module 'gitckpt' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)
