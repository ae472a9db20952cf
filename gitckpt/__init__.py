"""Save state, files and commit of a run as checkpoints in refs of the repository.

    from gitckpt import Store

    with Store.open() as store:
        saved = store.save("plan-complete", {"step": 3})
        print(store.read(saved.id).state)

    with Store.open() as store, Run.start(store, "add-login") as run:
        notes = run.phase("research", research, inputs={"question": "how?"})

A name is imported at its first use: the hook imports this package and must start fast.
"""

__version__ = "0.2.0"

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gitckpt.durable.driver.driver import Observer as Observer
    from gitckpt.durable.driver.pipelines import Outcome as Outcome
    from gitckpt.durable.driver.pipelines import Pipelines as Pipelines
    from gitckpt.durable.driver.pipelines import Preview as Preview
    from gitckpt.durable.phases.review.cycle import AgentFailed as AgentFailed
    from gitckpt.durable.phases.review.cycle import BudgetExceeded as BudgetExceeded
    from gitckpt.durable.phases.review.cycle import CommitRefused as CommitRefused
    from gitckpt.durable.phases.review.cycle import Diverged as Diverged
    from gitckpt.durable.phases.review.cycle import MaxCyclesReached as MaxCyclesReached
    from gitckpt.durable.phases.review.cycle import ReviewFailed as ReviewFailed
    from gitckpt.durable.phases.review.cycle import Struggling as Struggling
    from gitckpt.durable.progress import Gauge as Gauge
    from gitckpt.durable.progress import gauges as gauges
    from gitckpt.durable.run.attempts import AgentUnusable as AgentUnusable
    from gitckpt.durable.run.attempts import Cancelled as Cancelled
    from gitckpt.durable.run.attempts import Changed as Changed
    from gitckpt.durable.run.attempts import DeadlineReached as DeadlineReached
    from gitckpt.durable.run.attempts import PhaseBlocked as PhaseBlocked
    from gitckpt.durable.run.attempts import PhaseDeferred as PhaseDeferred
    from gitckpt.durable.run.attempts import PhaseFailed as PhaseFailed
    from gitckpt.durable.run.attempts import PhaseOptions as PhaseOptions
    from gitckpt.durable.run.attempts import Retries as Retries
    from gitckpt.durable.run.run import Run as Run
    from gitckpt.durable.steps.graph import Graph as Graph
    from gitckpt.durable.steps.journal import Reported as Reported
    from gitckpt.durable.steps.journal import StepEvent as StepEvent
    from gitckpt.durable.steps.machine import NextStep as NextStep
    from gitckpt.durable.steps.machine import OutOfOrder as OutOfOrder
    from gitckpt.durable.steps.machine import StepsBlocked as StepsBlocked
    from gitckpt.durable.steps.report import StepReport as StepReport
    from gitckpt.durable.steps.steps import Steps as Steps
    from gitckpt.formats.exporter import Exporter as Exporter
    from gitckpt.formats.exporter import ExportResult as ExportResult
    from gitckpt.formats.importer import ImportedFile as ImportedFile
    from gitckpt.formats.importer import Importer as Importer
    from gitckpt.git.contents.bounds import UnsoundSnapshot as UnsoundSnapshot
    from gitckpt.git.process import DeadlinePassed as DeadlinePassed
    from gitckpt.git.process import GitError as GitError
    from gitckpt.git.refs import LockHeld as LockHeld
    from gitckpt.git.refs import RefMoved as RefMoved
    from gitckpt.git.worktree.administration import IndexGone as IndexGone
    from gitckpt.model.checkpoint import Attempt as Attempt
    from gitckpt.model.checkpoint import Checkpoint as Checkpoint
    from gitckpt.model.checkpoint import Pipeline as Pipeline
    from gitckpt.model.checkpoint import Progress as Progress
    from gitckpt.model.checkpoint import Worktree as Worktree
    from gitckpt.model.errors import AmbiguousError as AmbiguousError
    from gitckpt.model.errors import BusyError as BusyError
    from gitckpt.model.errors import CkptError as CkptError
    from gitckpt.model.errors import Finding as Finding
    from gitckpt.model.errors import InvalidCheckpoint as InvalidCheckpoint
    from gitckpt.model.errors import NewerCheckpoint as NewerCheckpoint
    from gitckpt.model.errors import NotFoundError as NotFoundError
    from gitckpt.model.errors import RepositoryError as RepositoryError
    from gitckpt.model.errors import RunComplete as RunComplete
    from gitckpt.model.errors import RunExists as RunExists
    from gitckpt.model.errors import StateError as StateError
    from gitckpt.model.errors import UsageError as UsageError
    from gitckpt.model.errors import WorktreeError as WorktreeError
    from gitckpt.model.jsonable import StateChange as StateChange
    from gitckpt.model.policy import Policy as Policy
    from gitckpt.model.times import as_datetime as as_datetime
    from gitckpt.model.times import as_instant as as_instant
    from gitckpt.store.audit.doctor import Diagnosis as Diagnosis
    from gitckpt.store.audit.verification import Report as Report
    from gitckpt.store.config.file import ConfigError as ConfigError
    from gitckpt.store.config.settings import Loosening as Loosening
    from gitckpt.store.error_log import Listener as Listener
    from gitckpt.store.hooks.installation import Installation as Installation
    from gitckpt.store.leases.leases import Lease as Lease
    from gitckpt.store.leases.leases import LeaseHeld as LeaseHeld
    from gitckpt.store.leases.leases import LeaseLost as LeaseLost
    from gitckpt.store.records.entry import CheckpointInfo as CheckpointInfo
    from gitckpt.store.records.entry import Problem as Problem
    from gitckpt.store.records.entry import Query as Query
    from gitckpt.store.records.recorder import FilesPruned as FilesPruned
    from gitckpt.store.restore.restorer import Position as Position
    from gitckpt.store.restore.restorer import RestoreResult as RestoreResult
    from gitckpt.store.restore.undo import UndoStep as UndoStep
    from gitckpt.store.retention.expiry import ExpireResult as ExpireResult
    from gitckpt.store.runs.summary import History as History
    from gitckpt.store.runs.summary import RunInfo as RunInfo
    from gitckpt.store.runs.trust import Untrusted as Untrusted
    from gitckpt.store.snapshot.capture import DamagedObject as DamagedObject
    from gitckpt.store.snapshot.capture import Moved as Moved
    from gitckpt.store.snapshot.limits import Limits as Limits
    from gitckpt.store.snapshot.manifest import Extras as Extras
    from gitckpt.store.store import Store as Store
    from gitckpt.store.usage import Usage as Usage
    from gitckpt.store.worktrees.opener import OpenResult as OpenResult

_NAMES_BY_MODULE = {
    "durable.driver.driver": "Observer",
    "durable.driver.pipelines": "Outcome Pipelines Preview",
    "durable.phases.review.cycle": (
        "AgentFailed BudgetExceeded CommitRefused Diverged MaxCyclesReached ReviewFailed Struggling"
    ),
    "durable.progress": "Gauge gauges",
    "durable.run.attempts": (
        "AgentUnusable Cancelled Changed DeadlineReached PhaseBlocked PhaseDeferred "
        "PhaseFailed PhaseOptions Retries"
    ),
    "durable.run.run": "Run",
    "durable.steps.graph": "Graph",
    "durable.steps.journal": "Reported StepEvent",
    "durable.steps.machine": "NextStep OutOfOrder StepsBlocked",
    "durable.steps.report": "StepReport",
    "durable.steps.steps": "Steps",
    "formats.exporter": "ExportResult Exporter",
    "formats.importer": "ImportedFile Importer",
    "git.contents.bounds": "UnsoundSnapshot",
    "git.process": "DeadlinePassed GitError",
    "git.refs": "LockHeld RefMoved",
    "git.worktree.administration": "IndexGone",
    "model.checkpoint": "Attempt Checkpoint Pipeline Progress Worktree",
    "model.errors": (
        "AmbiguousError BusyError CkptError Finding InvalidCheckpoint NewerCheckpoint "
        "NotFoundError RepositoryError RunComplete RunExists StateError UsageError "
        "WorktreeError"
    ),
    "model.jsonable": "StateChange",
    "model.policy": "Policy",
    "model.times": "as_datetime as_instant",
    "store.audit.doctor": "Diagnosis",
    "store.audit.verification": "Report",
    "store.config.file": "ConfigError",
    "store.config.settings": "Loosening",
    "store.error_log": "Listener",
    "store.hooks.installation": "Installation",
    "store.leases.leases": "Lease LeaseHeld LeaseLost",
    "store.records.entry": "CheckpointInfo Problem Query",
    "store.records.recorder": "FilesPruned",
    "store.restore.restorer": "Position RestoreResult",
    "store.restore.undo": "UndoStep",
    "store.retention.expiry": "ExpireResult",
    "store.runs.summary": "History RunInfo",
    "store.runs.trust": "Untrusted",
    "store.snapshot.capture": "DamagedObject Moved",
    "store.snapshot.limits": "Limits",
    "store.snapshot.manifest": "Extras",
    "store.store": "Store",
    "store.usage": "Usage",
    "store.worktrees.opener": "OpenResult",
}
_MODULES_BY_NAME = {
    name: f"gitckpt.{module}"
    for module, names in _NAMES_BY_MODULE.items()
    for name in names.split()
}
__all__ = tuple(_MODULES_BY_NAME)


def __getattr__(name: str) -> object:
    """Import a public name from its module at its first use."""
    if name not in _MODULES_BY_NAME:
        raise AttributeError(f"module 'gitckpt' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_MODULES_BY_NAME[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
