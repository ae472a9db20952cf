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
from gitckpt.store import error_log, setup
from gitckpt.store.audit import inventory, objects, worktrees
from gitckpt.store.checkpoints import Checkpoints
from gitckpt.store.config import settings
from gitckpt.store.config.file import ConfigError
from gitckpt.store.hooks import installation
from gitckpt.store.local_checkpoints import LocalCheckpoints
from gitckpt.store.records import heads, ref_names
from gitckpt.store.records.entry import CheckpointInfo, Problem, Query
from gitckpt.store.retention import maintenance, sweep

# Seconds after which a lock file counts as left by a crash, if the system cannot tell.
_STALE_AFTER = 600

# Number of checkpoints from which their cost is reported: each `git fetch` of other clones reads
# all refs, 2.5 s for 100,000.
_MANY = 50_000

_SPACE = ref_names.CHECKPOINTS.rstrip("/")


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The result of `diagnose`; `facts` are about the repository, by name."""

    facts: Mapping[str, str | int | None]
    findings: Sequence[Finding]


def diagnose(store: Checkpoints) -> Diagnosis:
    version = require_git()
    return Diagnosis(facts(store, version), examine(store, version))


def facts(store: Checkpoints, version: tuple[int, ...]) -> dict[str, str | int | None]:
    repository = store.repository
    refs = [ref for ref, _ in store.refs.iterate(ref_names.CHECKPOINTS)]
    own = [ref for ref in refs if not ref_names.is_foreign(ref)]
    paths = sweep.left_files(repository)
    ran = maintenance.last(repository)
    return {
        "git": ".".join(map(str, version)),
        "repository": repository.common_dir,
        "object_format": repository.object_format,
        "ref_format": "reftable" if repository.has_reftable else "files",
        "checkpoints": len(store.list(Query())),
        "loose_refs": sum(os.path.isfile(os.path.join(repository.common_dir, ref)) for ref in own),
        "foreign_refs": len(refs) - len(own),
        "leftover_files": len(paths),
        "leftover_bytes": sum(map(leftovers.size_of, paths)),
        "maintenance_started": None if ran.started is None else times.to_text(ran.started),
        "maintenance_ended": None if ran.ended is None else times.to_text(ran.ended),
        "maintenance_outcome": ran.outcome,
    }


def examine(store: Checkpoints, version: tuple[int, ...]) -> list[Finding]:
    repository = store.repository
    barring: set[str] = set()

    def take(_oid: str, ref: str, _target: str) -> None:
        if ref in inventory.BARRING:
            barring.add(ref)

    _, complaint = inventory.list_refs(repository, take)
    flaws = [
        *inventory.broken(repository, complaint),
        *inventory.barring(repository, barring),
        *objects.replaced(repository, store.index.oids(), LocalCheckpoints.read(repository)),
        *objects.lost_targets(repository),
    ]
    return [
        *installation.inspect(repository, version=version),
        *setup.inspect(repository),
        *_inspect_settings(repository),
        *_find_unknown_settings(repository),
        *_find_tracked_settings(repository),
        *_find_stale_locks(store),
        *_inspect_maintenance(repository),
        *_inspect_checkpoints(store),
        *worktrees.headless(repository),
        *map(_describe_invalid, store.problems()),
        *(flaw.finding for flaw in flaws),
    ]


def _describe_invalid(problem: Problem) -> Finding:
    sentence = problem.sentence.removeprefix(f"{problem.ref}: ")
    cure = inventory.cure_of_invalid(problem.ref)
    if "a newer gitckpt" in sentence:
        cure = "pip install -U gitckpt"
    return Finding("invalid-checkpoint", problem.ref, sentence, cure)


def _inspect_settings(repository: Repository) -> list[Finding]:
    rules = settings.read(repository)
    error = rules.error
    if isinstance(error, ConfigError):
        return [
            Finding("settings-invalid", f"{settings.FILE}:{m.line}", m.text, m.hint or error.hint)
            for m in error.mistakes
        ]
    if error is not None:
        return [Finding("settings-invalid", settings.FILE, error.message, error.hint)]
    if rules.loosened is not None and not rules.loosened.is_allowed:
        names = ", ".join(rules.loosened.values)
        sentence = f"loosens {names}; until that is allowed here, built-in values apply"
        cure = "see what that means, and allow it: git ckpt allow"
        return [Finding("settings-unapproved", settings.FILE, sentence, cure)]
    return []


def _find_unknown_settings(repository: Repository) -> list[Finding]:
    """Return settings below `ckpt.` that nothing reads, such as typing errors."""
    names = (*settings.NAMES, *installation.SETTINGS)
    unknown = [place for place in settings.places(repository).items() if place[0] not in names]
    findings = []
    for name, file in unknown:
        sentence, cure = "is unknown to this version", "see GIT_CONFIG_COUNT and git -c"
        if file:
            sentence += f"; it is set in {file}"
            cure = f"git config --file {shell_word(file)} --unset-all {shell_word(name)}"
        if close := closest(name, names):
            cure = f"did you mean {close}? To remove it: {cure}"
        findings.append(Finding("settings-unknown", name, sentence, cure))
    return findings


def _find_tracked_settings(repository: Repository) -> list[Finding]:
    prefix = "is tracked, so a branch decides its content; these settings in it do not count: "
    findings = []
    for path, names in config.tracked(repository).items():
        cure = f"git config {shell_word(names[0])} VALUE"
        findings.append(Finding("settings-tracked", path, prefix + first_of(names), cure))
    return findings


def _inspect_maintenance(repository: Repository) -> list[Finding]:
    ran = maintenance.last(repository)
    if not maintenance.has_failed(ran):
        return []
    path = os.path.join(repository.private_dir, error_log.FILE)
    sentence = f"the last maintenance {ran.outcome}"
    return [Finding("maintenance-failed", path, sentence, "git ckpt expire")]


def _inspect_checkpoints(store: Checkpoints) -> list[Finding]:
    entries = store.list(Query())
    findings = [_report_cost(entries)] if len(entries) >= _MANY else []
    rewritten = store.rewritten()
    if rewritten:
        commits = dict.fromkeys(entry.git_sha[:10] for entry in rewritten)
        sentence = f"{len(rewritten)} belong to commits that git filter-repo has rewritten, "
        sentence += f"and may hold what was to be purged: {first_of([*commits])}"
        cure = "git ckpt remove --rewritten"
        findings.append(Finding("commits-rewritten", _SPACE, sentence, cure))
    return findings


def _report_cost(entries: Sequence[CheckpointInfo]) -> Finding:
    apart = [entry for entry in entries if entry.run is None]
    unasked = sum(entry.agent is not None or entry.trigger in HOOK_TRIGGERS for entry in apart)
    of_runs, by_hand = len(entries) - len(apart), len(apart) - unasked
    seconds = len(entries) / 40_000
    sentence = f"holds {len(entries):,} checkpoints ({of_runs:,} of runs, "
    sentence += f"{unasked:,} by hooks and agents, {by_hand:,} by hand), "
    sentence += f"which git fetch, push and gc read one by one: about {seconds:.0f} s each time"
    cures = {
        of_runs: "git ckpt runs, and of those that are not needed: git ckpt remove RUN",
        unasked: "git ckpt expire, with shorter ages in [retention] of gitckpt.toml "
        "if that leaves too many",
        by_hand: "git ckpt expire --all --older-than 90d --dry-run, "
        "and without --dry-run if that is meant",
    }
    return Finding("many-checkpoints", _SPACE, sentence, cures[max(cures)])


def _find_stale_locks(store: Checkpoints) -> list[Finding]:
    repository = store.repository
    places = list(heads.locks(repository))
    for path in leftovers.lock_files(repository):
        ref = os.path.relpath(path, repository.common_dir).removesuffix(".lock")
        # Without locks of other tools beside gitckpt's refs.
        if not heads.is_ours(repository, path) and not ref_names.is_foreign(ref):
            places.append(path)
    stale = leftovers.find_stale_locks(repository, places)
    instant = store.clock() // times.MICRO
    findings = []
    for path in places:
        mark = leftovers.mark(path)
        age = max(instant - int(mark.changed), 0) if mark is not None else 0
        if path not in stale and age <= _STALE_AFTER:
            continue
        sentence = f"is {times.age_text(age * times.MICRO)} old, "
        if path not in stale:
            sentence += "most likely a crash left it behind"
        else:
            sentence += "and no running git can have made it"
            if heads.is_ours(repository, path):
                sentence += "; the next command that needs the ref removes it"
        cure = f"make sure that no git runs here, then: rm {shell_word(path)}"
        findings.append(Finding("stale-lock", path, sentence, cure))
    return findings
