"""Find problems of hooks, settings, locks and refs, for `git ckpt doctor`."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence

from gitckpt.git import config, leftovers
from gitckpt.git.command import require_git_version
from gitckpt.git.filesystem import read_or_empty
from gitckpt.git.repository import Repository
from gitckpt.model import times
from gitckpt.model.arguments import closest_word, join_first, shell_quoted
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

# Seconds after which a lock file counts as left by a crash, if its process is unknown.
_STALE_AFTER = 600

# From this many checkpoints on, report the cost: `git fetch` takes 2.5 s to read 100,000 refs.
_MANY = 50_000
# From this number of files on, recommend settings for `git status`.
_LARGE = 10_000
_BUILD_OPTIONS = ("version", "--build-options")

_SPACE = ref_names.CHECKPOINTS.rstrip("/")


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The result of `git ckpt doctor`: facts, problems and advice."""

    facts: Mapping[str, str | int | None]
    findings: Sequence[Finding]
    advice: Sequence[str] = ()  # settings that make git faster here, a sentence each


def diagnose(store: Checkpoints) -> Diagnosis:
    version = require_git_version()
    advice = list_advice(store.repository)
    return Diagnosis(list_facts(store, version), list_findings(store, version), advice)


def list_facts(store: Checkpoints, version: tuple[int, ...]) -> dict[str, str | int | None]:
    repository = store.repository
    refs = [ref for ref, _ in store.refs.iterate_refs(ref_names.CHECKPOINTS)]
    own_refs = [ref for ref in refs if not ref_names.is_foreign(ref)]
    are_loose = [os.path.isfile(os.path.join(repository.common_dir, ref)) for ref in own_refs]
    paths = sweep.find_leftover_files(repository)
    last = maintenance.read_last_maintenance(repository)
    return {
        "git": ".".join(map(str, version)),
        "repository": repository.common_dir,
        "object_format": repository.object_format,
        "ref_format": "reftable" if repository.has_reftable else "files",
        "checkpoints": len(store.list(Query())),
        "loose_refs": sum(are_loose),
        "foreign_refs": len(refs) - len(own_refs),
        "leftover_files": len(paths),
        "leftover_bytes": sum(map(leftovers.size_of, paths)),
        "maintenance_started": None if last.started is None else times.to_text(last.started),
        "maintenance_ended": None if last.ended is None else times.to_text(last.ended),
        "maintenance_outcome": last.outcome,
    }


def list_findings(store: Checkpoints, version: tuple[int, ...]) -> list[Finding]:
    repository = store.repository
    refs: set[str] = set()
    _, complaint = inventory.list_gitckpt_refs(repository, lambda _oid, ref, _target: refs.add(ref))
    flaws = [
        *inventory.find_broken_refs(repository, complaint),
        *inventory.find_blocking_refs(repository, refs),
        *objects.find_replaced_checkpoints(
            repository, store.index.oids_by_id(), LocalCheckpoints.read(repository)
        ),
        *objects.find_refs_to_lost_objects(repository),
    ]
    return [
        *installation.inspect_hooks(repository, version=version),
        *setup.inspect_remotes(repository),
        *_inspect_settings(repository),
        *_find_unknown_settings(repository),
        *_find_tracked_settings(repository),
        *_find_stale_locks(store),
        *_inspect_maintenance(repository),
        *_inspect_checkpoints(store),
        *worktrees.find_headless(repository),
        *map(_describe_invalid_ref, store.list_problems()),
        *(flaw.finding for flaw in flaws),
    ]


def list_advice(repository: Repository) -> list[str]:
    """Recommend settings with which `git status` is faster in a large worktree."""
    index = read_or_empty(os.path.join(repository.git_dir, "index"))
    count = int.from_bytes(index[8:12], "big")  # gitformat-index(5)
    if not index.startswith(b"DIRC") or count < _LARGE:
        return []
    names = r"^(core\.(untrackedcache|fsmonitor)|feature\.manyfiles)$"
    values = config.read_settings(repository, names)
    advice = []
    has_cache = b"UNTR" in index or config.is_true(values.get("feature.manyfiles", ["no"])[-1])
    if not has_cache and "core.untrackedcache" not in values:
        test = "git update-index --test-untracked-cache"  # takes 10 seconds
        advice.append(
            f"git status reads each directory of a worktree with {count:,} files; to let git "
            f"remember untracked files: {test} && git config core.untrackedCache true"
        )
    # Each call of gitckpt sets it to false.
    is_monitored = len(values.get("core.fsmonitor", ())) > 1
    if not is_monitored and b"fsmonitor--daemon" in repository.git.run(*_BUILD_OPTIONS).out:
        advice.append(
            f"git status looks at each of {count:,} files; to let a process of git watch them: "
            "git config core.fsmonitor true"
        )
    return advice


def _describe_invalid_ref(problem: Problem) -> Finding:
    sentence = problem.sentence.removeprefix(f"{problem.ref}: ")
    is_newer = "a newer gitckpt" in sentence
    cure = "pip install -U gitckpt" if is_newer else inventory.cure_of_invalid_ref(problem.ref)
    return Finding("invalid-checkpoint", problem.ref, sentence, cure)


def _inspect_settings(repository: Repository) -> Iterator[Finding]:
    user_settings, file_name = settings.read_settings(repository), settings.FILE
    error = user_settings.error
    if isinstance(error, ConfigError):
        for mistake in error.mistakes:
            location, cure = f"{file_name}:{mistake.line}", mistake.hint or error.hint
            yield Finding("settings-invalid", location, mistake.text, cure)
    elif error is not None:
        yield Finding("settings-invalid", file_name, error.message, error.hint)
    elif user_settings.loosened is not None and not user_settings.loosened.is_allowed:
        names = ", ".join(user_settings.loosened.values)
        sentence = f"loosens {names}; until that is allowed here, built-in values apply"
        cure = "show these settings and allow them: git ckpt allow"
        yield Finding("settings-unapproved", file_name, sentence, cure)


def _find_unknown_settings(repository: Repository) -> Iterator[Finding]:
    names = (*settings.NAMES, *installation.SETTINGS)
    for name, file in settings.list_setting_files(repository).items():
        if name in names:
            continue
        sentence, cure = "is unknown to this gitckpt", "see GIT_CONFIG_COUNT and git -c"
        if file:
            sentence += f"; set in {file}"
            cure = f"git config --file {shell_quoted(file)} --unset-all {shell_quoted(name)}"
        if similar := closest_word(name, names):
            cure = f"did you mean {similar}? To remove {name}: {cure}"
        yield Finding("settings-unknown", name, sentence, cure)


def _find_tracked_settings(repository: Repository) -> Iterator[Finding]:
    explanation = "is tracked, so any branch can change it; gitckpt ignores these settings in it: "
    for path, names in config.settings_in_tracked_files(repository).items():
        cure = f"git config {shell_quoted(names[0])} VALUE"
        yield Finding("settings-tracked", path, explanation + join_first(names), cure)


def _inspect_maintenance(repository: Repository) -> Iterator[Finding]:
    last_run = maintenance.read_last_maintenance(repository)
    if maintenance.has_maintenance_failed(last_run):
        path = os.path.join(repository.private_dir, error_log.FILE)
        sentence = f"the last maintenance {last_run.outcome}"
        yield Finding("maintenance-failed", path, sentence, "git ckpt expire")


def _inspect_checkpoints(store: Checkpoints) -> Iterator[Finding]:
    entries = store.list(Query())
    if len(entries) >= _MANY:
        yield _report_cost(entries)
    if outdated := store.list_rewritten():
        commits = dict.fromkeys(entry.git_sha[:10] for entry in outdated)
        sentence = f"{len(outdated)} checkpoints of commits that git filter-repo has rewritten "
        sentence += f"may hold data that was to be purged: {join_first([*commits])}"
        cure = "git ckpt remove --rewritten"
        yield Finding("commits-rewritten", _SPACE, sentence, cure)


def _report_cost(entries: Sequence[CheckpointInfo]) -> Finding:
    runless = [entry for entry in entries if entry.run is None]
    auto_count = sum(entry.agent is not None or entry.trigger in HOOK_TRIGGERS for entry in runless)
    run_count, manual_count = len(entries) - len(runless), len(runless) - auto_count
    sentence = f"holds {len(entries):,} checkpoints ({run_count:,} of runs, "
    sentence += f"{auto_count:,} by hooks and agents, {manual_count:,} by hand), which git fetch, "
    sentence += f"push and gc read one by one: about {len(entries) / 40_000:.0f} s each time"
    cures_by_count = {
        run_count: "see git ckpt runs; remove each run that you do not need: git ckpt remove RUN",
        auto_count: "git ckpt expire; if too many stay: lower ages in [retention] of gitckpt.toml",
        manual_count: "git ckpt expire --all --older-than 90d --dry-run; then without --dry-run",
    }
    return Finding("many-checkpoints", _SPACE, sentence, cures_by_count[max(cures_by_count)])


def _find_stale_locks(store: Checkpoints) -> Iterator[Finding]:
    repository = store.repository
    paths = list(heads.list_ref_locks(repository))
    for path in leftovers.list_lock_files(repository):
        ref = os.path.relpath(path, repository.common_dir).removesuffix(".lock")
        # Skip locks of other tools' refs in the same namespaces.
        if not heads.is_ref_lock(repository, path) and not ref_names.is_foreign(ref):
            paths.append(path)
    stale_paths = leftovers.find_stale_locks(repository, paths)
    now_seconds = store.clock() // times.MICRO
    for path in paths:
        file_mark = leftovers.read_fingerprint(path)
        age_seconds = max(now_seconds - int(file_mark.changed), 0) if file_mark is not None else 0
        if path not in stale_paths and age_seconds <= _STALE_AFTER:
            continue
        sentence = f"is {times.age_text(age_seconds * times.MICRO)} old, "
        if path not in stale_paths:
            sentence += "and a crash most likely left it behind"
        else:
            is_ours = heads.is_ref_lock(repository, path)
            sentence += "and no running git process created it"
            sentence += "; the next command that needs the ref removes the lock" if is_ours else ""
        cure = "make sure that no git process runs in this repository, then: rm "
        yield Finding("stale-lock", path, sentence, cure + shell_quoted(path))
