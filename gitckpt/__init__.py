"""Save state, files and commit of a run as checkpoints in refs of the repository.

    from gitckpt import Store

    with Store.open() as store:
        saved = store.save("plan-complete", {"step": 3})
        print(store.read(saved.id).state)

    with Store.open() as store, Run.start(store, "add-login") as run:
        notes = run.phase("research", research, inputs={"question": "how?"})

Names are loaded when they are first used: the hook imports this package and has no time for them.
"""

__version__ = "0.1.0"

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
    from gitckpt.durable.run.attempts import Conduct as Conduct
    from gitckpt.durable.run.attempts import DeadlineReached as DeadlineReached
    from gitckpt.durable.run.attempts import PhaseBlocked as PhaseBlocked
    from gitckpt.durable.run.attempts import PhaseDeferred as PhaseDeferred
    from gitckpt.durable.run.attempts import PhaseFailed as PhaseFailed
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
    from gitckpt.formats.exporter import Exported as Exported
    from gitckpt.formats.exporter import Exporter as Exporter
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
    from gitckpt.store.hooks.installation import Installation as Installation
    from gitckpt.store.leases.leases import Lease as Lease
    from gitckpt.store.leases.leases import LeaseHeld as LeaseHeld
    from gitckpt.store.leases.leases import LeaseLost as LeaseLost
    from gitckpt.store.log import Listener as Listener
    from gitckpt.store.records.entry import Entry as Entry
    from gitckpt.store.records.entry import Problem as Problem
    from gitckpt.store.records.entry import Query as Query
    from gitckpt.store.records.recorder import FilesPruned as FilesPruned
    from gitckpt.store.restore.restorer import Position as Position
    from gitckpt.store.restore.restorer import Restored as Restored
    from gitckpt.store.restore.undo import UndoStep as UndoStep
    from gitckpt.store.retention.expiry import Expired as Expired
    from gitckpt.store.runs.summary import History as History
    from gitckpt.store.runs.summary import RunInfo as RunInfo
    from gitckpt.store.runs.trust import Untrusted as Untrusted
    from gitckpt.store.snapshot.capture import DamagedObject as DamagedObject
    from gitckpt.store.snapshot.capture import Moved as Moved
    from gitckpt.store.snapshot.limits import Limits as Limits
    from gitckpt.store.snapshot.manifest import Extras as Extras
    from gitckpt.store.store import Store as Store
    from gitckpt.store.usage import Usage as Usage
    from gitckpt.store.worktrees.opener import Opened as Opened

_HOMES = {
    "Observer": "gitckpt.durable.driver.driver",
    "Outcome": "gitckpt.durable.driver.pipelines",
    "Pipelines": "gitckpt.durable.driver.pipelines",
    "Preview": "gitckpt.durable.driver.pipelines",
    "AgentFailed": "gitckpt.durable.phases.review.cycle",
    "BudgetExceeded": "gitckpt.durable.phases.review.cycle",
    "CommitRefused": "gitckpt.durable.phases.review.cycle",
    "Diverged": "gitckpt.durable.phases.review.cycle",
    "MaxCyclesReached": "gitckpt.durable.phases.review.cycle",
    "ReviewFailed": "gitckpt.durable.phases.review.cycle",
    "Struggling": "gitckpt.durable.phases.review.cycle",
    "Untrusted": "gitckpt.store.runs.trust",
    "Gauge": "gitckpt.durable.progress",
    "gauges": "gitckpt.durable.progress",
    "AgentUnusable": "gitckpt.durable.run.attempts",
    "Cancelled": "gitckpt.durable.run.attempts",
    "Changed": "gitckpt.durable.run.attempts",
    "DeadlineReached": "gitckpt.durable.run.attempts",
    "PhaseBlocked": "gitckpt.durable.run.attempts",
    "PhaseDeferred": "gitckpt.durable.run.attempts",
    "PhaseFailed": "gitckpt.durable.run.attempts",
    "Conduct": "gitckpt.durable.run.attempts",
    "Retries": "gitckpt.durable.run.attempts",
    "Run": "gitckpt.durable.run.run",
    "Graph": "gitckpt.durable.steps.graph",
    "StepEvent": "gitckpt.durable.steps.journal",
    "Reported": "gitckpt.durable.steps.journal",
    "OutOfOrder": "gitckpt.durable.steps.machine",
    "StepsBlocked": "gitckpt.durable.steps.machine",
    "NextStep": "gitckpt.durable.steps.machine",
    "StepReport": "gitckpt.durable.steps.report",
    "Steps": "gitckpt.durable.steps.steps",
    "Exported": "gitckpt.formats.exporter",
    "Exporter": "gitckpt.formats.exporter",
    "ImportedFile": "gitckpt.formats.importer",
    "Importer": "gitckpt.formats.importer",
    "DeadlinePassed": "gitckpt.git.process",
    "GitError": "gitckpt.git.process",
    "LockHeld": "gitckpt.git.refs",
    "UnsoundSnapshot": "gitckpt.git.contents.bounds",
    "RefMoved": "gitckpt.git.refs",
    "IndexGone": "gitckpt.git.worktree.administration",
    "Attempt": "gitckpt.model.checkpoint",
    "Checkpoint": "gitckpt.model.checkpoint",
    "Pipeline": "gitckpt.model.checkpoint",
    "Progress": "gitckpt.model.checkpoint",
    "Worktree": "gitckpt.model.checkpoint",
    "AmbiguousError": "gitckpt.model.errors",
    "BusyError": "gitckpt.model.errors",
    "CkptError": "gitckpt.model.errors",
    "InvalidCheckpoint": "gitckpt.model.errors",
    "NewerCheckpoint": "gitckpt.model.errors",
    "NotFoundError": "gitckpt.model.errors",
    "RepositoryError": "gitckpt.model.errors",
    "RunComplete": "gitckpt.model.errors",
    "RunExists": "gitckpt.model.errors",
    "StateError": "gitckpt.model.errors",
    "UsageError": "gitckpt.model.errors",
    "WorktreeError": "gitckpt.model.errors",
    "Finding": "gitckpt.model.errors",
    "Policy": "gitckpt.model.policy",
    "StateChange": "gitckpt.model.jsonable",
    "as_datetime": "gitckpt.model.times",
    "as_instant": "gitckpt.model.times",
    "Diagnosis": "gitckpt.store.audit.doctor",
    "Report": "gitckpt.store.audit.verification",
    "ConfigError": "gitckpt.store.config.file",
    "Loosening": "gitckpt.store.config.settings",
    "Installation": "gitckpt.store.hooks.installation",
    "Lease": "gitckpt.store.leases.leases",
    "LeaseHeld": "gitckpt.store.leases.leases",
    "LeaseLost": "gitckpt.store.leases.leases",
    "Listener": "gitckpt.store.log",
    "Entry": "gitckpt.store.records.entry",
    "Problem": "gitckpt.store.records.entry",
    "Query": "gitckpt.store.records.entry",
    "FilesPruned": "gitckpt.store.records.recorder",
    "Extras": "gitckpt.store.snapshot.manifest",
    "Position": "gitckpt.store.restore.restorer",
    "Restored": "gitckpt.store.restore.restorer",
    "UndoStep": "gitckpt.store.restore.undo",
    "Expired": "gitckpt.store.retention.expiry",
    "RunInfo": "gitckpt.store.runs.summary",
    "History": "gitckpt.store.runs.summary",
    "DamagedObject": "gitckpt.store.snapshot.capture",
    "Moved": "gitckpt.store.snapshot.capture",
    "Limits": "gitckpt.store.snapshot.limits",
    "Store": "gitckpt.store.store",
    "Usage": "gitckpt.store.usage",
    "Opened": "gitckpt.store.worktrees.opener",
}
__all__ = tuple(_HOMES)


def __getattr__(name: str) -> object:
    """Loads a public name at its first use."""
    if name not in _HOMES:
        raise AttributeError(f"module 'gitckpt' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
