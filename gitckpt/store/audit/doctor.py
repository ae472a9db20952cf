"""Check the installation, leftover locks, and refs that are no checkpoints."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from gitckpt.git import config, leftovers
from gitckpt.git.command import require_git
from gitckpt.git.repository import Repository
from gitckpt.model import times
from gitckpt.model.arguments import closest, first_of, shell_word
from gitckpt.model.checkpoint import HOOK_TRIGGERS
from gitckpt.model.errors import Finding
from gitckpt.model.values import dataclass
from gitckpt.store import log, setup
from gitckpt.store.audit import inventory, objects, worktrees
from gitckpt.store.checkpoints import Checkpoints
from gitckpt.store.config import settings
from gitckpt.store.config.file import ConfigError
from gitckpt.store.hooks import installation
from gitckpt.store.records import heads, layout
from gitckpt.store.records.entry import Problem, Query
from gitckpt.store.retention import maintenance, sweep
from gitckpt.store.roster import Roster

_SET = "git config {} VALUE"
_ALLOW = "see what that means, and allow it: git ckpt allow"

# Seconds after which a lock file counts as left by a crash, if the system cannot tell.
_STALE_AFTER = 600


# Number of checkpoints from which their cost is reported: each `git fetch` of other clones reads
# all refs, 2.5 s for 100,000.
_MANY = 50_000


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The result of `diagnose`; `facts` are about the repository, by name."""

    facts: Mapping[str, str | int | None]
    findings: Sequence[Finding]


def diagnose(store: Checkpoints) -> Diagnosis:
    """Return facts about the repository and all findings; change nothing."""
    version = require_git()
    return Diagnosis(facts(store, version), examine(store, version))


def facts(store: Checkpoints, version: tuple[int, ...]) -> dict[str, str | int | None]:
    repository = store.repository
    refs = [ref for ref, _ in store.refs.each(layout.CHECKPOINTS)]
    foreign = sum(map(layout.is_foreign, refs))
    loose = sum(not layout.is_foreign(ref) and os.path.isfile(os.path.join(repository.common_dir, ref)) for ref in refs)
    left = sweep.left_files(repository)
    ran = maintenance.last(repository)
    return {
        "git": ".".join(map(str, version)),
        "repository": repository.common_dir,
        "object_format": repository.object_format,
        "ref_format": "reftable" if repository.has_reftable else "files",
        "checkpoints": len(store.list(Query())),
        "loose_refs": loose,
        "foreign_refs": foreign,
        "leftover_files": len(left),
        "leftover_bytes": sum(map(leftovers.size_of, left)),
        "maintenance_started": None if ran.started is None else times.to_text(ran.started),
        "maintenance_ended": None if ran.ended is None else times.to_text(ran.ended),
        "maintenance_outcome": ran.outcome,
    }


def examine(store: Checkpoints, version: tuple[int, ...]) -> list[Finding]:
    listing = inventory.list_refs(store.repository)
    broken = [*inventory.broken(store.repository, listing.complaint), *inventory.in_the_way(store.repository, listing.barring)]
    return [
        *installation.inspect(store.repository, version=version),
        *setup.inspect(store.repository),
        *_settings(store),
        *_unknown(store.repository),
        *_tracked_settings(store.repository),
        *_locks(store),
        *_maintenance(store.repository),
        *_many(store),
        *_rewritten(store),
        *worktrees.headless(store.repository),
        *(_invalid(problem) for problem in store.problems()),
        *(flaw.finding for flaw in broken),
        *_replaced(store),
        *objects.pointing_nowhere(store.repository),
    ]


def _replaced(store: Checkpoints) -> list[Finding]:
    known = Roster.read(store.repository)
    flaws = objects.replaced(store.repository, store.index.oids(), known)
    return [flaw.finding for flaw in flaws]


def _invalid(problem: Problem) -> Finding:
    sentence = problem.sentence.removeprefix(f"{problem.ref}: ")
    cure = "pip install -U gitckpt" if "a newer gitckpt" in sentence else inventory.cure_of_invalid(problem.ref)
    return Finding("invalid-checkpoint", problem.ref, sentence, cure)


def _settings(store: Checkpoints) -> list[Finding]:
    rules = settings.read(store.repository)
    error = rules.error
    if isinstance(error, ConfigError):
        return [Finding("settings-invalid", f"{settings.FILE}:{each.line}", each.text, each.hint or error.hint) for each in error.mistakes]
    if error is not None:
        return [Finding("settings-invalid", settings.FILE, error.message, error.hint)]
    if rules.loosened is not None and not rules.loosened.is_allowed:
        keys = ", ".join(rules.loosened.values)
        return [Finding("settings-unapproved", settings.FILE, f"loosens {keys}; until that is allowed here, built-in values apply", _ALLOW)]
    return []


def _unknown(repository: Repository) -> list[Finding]:
    """Return settings below `ckpt.` that nothing reads, such as typing errors."""
    known = (*settings.NAMES, *installation.SETTINGS)
    findings = []
    for name, file in settings.places(repository).items():
        if name in known:
            continue
        close = closest(name, known)
        sentence = "is no setting that this version knows"
        cure = "see GIT_CONFIG_COUNT and git -c"
        if file:
            sentence += f", and stands in {file}"
            cure = f"git config --file {shell_word(file)} --unset-all {shell_word(name)}"
        if close:
            cure = f"did you mean {close}? To remove it: {cure}"
        findings.append(Finding("settings-unknown", name, sentence, cure))
    return findings


def _tracked_settings(repository: Repository) -> list[Finding]:
    prefix = "is tracked, so a branch decides what it says; these settings in it do not count: "
    return [
        Finding("settings-tracked", path, prefix + first_of(names), _SET.format(shell_word(names[0])))
        for path, names in config.tracked(repository).items()
    ]


def _maintenance(repository: Repository) -> list[Finding]:
    ran = maintenance.last(repository)
    if not maintenance.has_failed(ran):
        return []
    path = os.path.join(repository.private_dir, log.FILE)
    return [Finding("maintenance-failed", path, f"the last maintenance {ran.outcome}", "git ckpt expire")]


def _many(store: Checkpoints) -> list[Finding]:
    entries = store.list(Query())
    if len(entries) < _MANY:
        return []
    runs = sum(entry.run is not None for entry in entries)
    hooks = sum(entry.run is None and (entry.agent is not None or entry.trigger in HOOK_TRIGGERS) for entry in entries)
    people = len(entries) - runs - hooks
    cures = {
        runs: "git ckpt runs, and of those that nobody needs: git ckpt remove RUN",
        hooks: "git ckpt expire, with shorter ages in [retention] of gitckpt.toml if that leaves too many",
        people: "git ckpt expire --all --older-than 90d --dry-run, and without --dry-run if that is meant",
    }
    sentence = (
        f"holds {len(entries):,} checkpoints ({runs:,} of runs, {hooks:,} by hooks and agents, {people:,} by hand), "
        f"which git fetch, push and gc read one by one: about {len(entries) / 40_000:.0f} s each time"
    )
    return [Finding("many-checkpoints", layout.CHECKPOINTS.rstrip("/"), sentence, cures[max(cures)])]


def _rewritten(store: Checkpoints) -> list[Finding]:
    found = store.rewritten()
    if not found:
        return []
    commits = [commit[:10] for commit in dict.fromkeys(entry.git_sha for entry in found)]
    sentence = f"{len(found)} are of commits that git filter-repo has rewritten, and may hold what was to go with them: {first_of(commits)}"
    return [Finding("commits-rewritten", layout.CHECKPOINTS.rstrip("/"), sentence, "git ckpt remove --rewritten")]


def _locks(store: Checkpoints) -> list[Finding]:
    repository = store.repository
    places = [*heads.there(repository), *_locks_of_others(repository)]
    stale = leftovers.left_locks(repository, places)
    now = store.clock() // times.MICRO
    findings = []
    for path in places:
        mark = leftovers.mark(path)
        age = now - int(mark.changed) if mark is not None else 0
        if path not in stale and age <= _STALE_AFTER:
            continue
        origin = "and no git that runs here can have made it" if path in stale else "most likely a crash left it behind"
        note = "; the next command that needs it removes it" if path in stale and heads.is_ours(repository, path) else ""
        sentence = f"is {times.age_text(max(age, 0) * times.MICRO)} old, {origin}{note}"
        findings.append(Finding("stale-lock", path, sentence, f"make sure that no git runs here, then: rm {shell_word(path)}"))
    return findings


def _locks_of_others(repository: Repository) -> list[str]:
    """Return locks outside gitckpt's refs and those of other tools beside them."""
    others = (path for path in leftovers.lock_files(repository) if not heads.is_ours(repository, path))
    return [path for path in others if not layout.is_foreign(os.path.relpath(path, repository.common_dir).removesuffix(".lock"))]
