"""What `git ckpt doctor` looks at: the installation, leftover locks, and refs that are no checkpoints."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gitckpt.git.command import require_git
from gitckpt.model import times
from gitckpt.model.errors import UsageError
from gitckpt.model.finding import Finding
from gitckpt.store.audit import inventory
from gitckpt.store.checkpoints import Checkpoints
from gitckpt.store.config import settings
from gitckpt.store.config.file import ConfigError
from gitckpt.store.hooks import installation
from gitckpt.store.records import layout
from gitckpt.store.records.entry import Problem, Query

STALE_AFTER = 600
"""A lock file older than this, in seconds, was left by a crash rather than held by somebody."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What a look at the installation has found.

    Attributes:
        facts: what to know about the repository, by name.
        findings: everything that is not as it should be.
    """

    facts: Mapping[str, str | int]
    findings: Sequence[Finding]


def diagnose(store: Checkpoints) -> Diagnosis:
    """Returns what there is to know, and what is wrong; changes nothing.

    Raises:
        RepositoryError: git is too old.
    """
    version = require_git()
    return Diagnosis(facts(store, version), examine(store, version))


def facts(store: Checkpoints, version: tuple[int, ...]) -> dict[str, str | int]:
    """Returns what to know about the repository, by name."""
    repository = store.repository
    refs = store.refs.list(layout.OWN[0], fields="%(refname)").decode("utf-8", "surrogateescape").splitlines()
    foreign = sum(map(layout.is_foreign, refs))
    loose = sum(not layout.is_foreign(ref) and os.path.isfile(os.path.join(repository.common_dir, ref)) for ref in refs)
    return {
        "git": ".".join(map(str, version)),
        "repository": repository.common_dir,
        "object_format": repository.object_format,
        "ref_format": "reftable" if repository.has_reftable else "files",
        "checkpoints": len(store.list(Query())),
        "loose_refs": loose,
        "foreign_refs": foreign,
    }


def examine(store: Checkpoints, version: tuple[int, ...]) -> list[Finding]:
    """Returns everything that is not as it should be; changes nothing.

    Args:
        store: of the repository.
        version: of git.
    """
    return [
        *installation.inspect(store.repository, version=version),
        *_settings(store),
        *_locks(store),
        *(_invalid(problem) for problem in store.problems()),
        *(flaw.finding for flaw in inventory.broken(store.repository, inventory.list_refs(store.repository)[1])),
    ]


def _invalid(problem: Problem) -> Finding:
    sentence = problem.sentence.removeprefix(f"{problem.ref}: ")
    cure = "pip install -U gitckpt" if "a newer gitckpt" in sentence else inventory.cure_of_invalid(problem.ref)
    return Finding("invalid-checkpoint", problem.ref, sentence, cure)


def _settings(store: Checkpoints) -> list[Finding]:
    try:
        settings.read(store.repository)
    except ConfigError as error:
        return [Finding("settings-invalid", f"{settings.FILE}:{each.line}", each.text, each.hint or error.hint) for each in error.mistakes]
    except UsageError as error:
        return [Finding("settings-invalid", settings.FILE, error.message, error.hint)]
    return []


def _locks(store: Checkpoints) -> list[Finding]:
    common = store.repository.common_dir
    places = [os.path.join(common, "packed-refs.lock"), os.path.join(common, f"{layout.NOTES}.lock")]
    for space in (*layout.OWN, "reftable"):
        for parent, _, names in os.walk(os.path.join(common, space)):
            refs = [os.path.relpath(os.path.join(parent, name), common) for name in names if name.endswith(".lock")]
            places += [os.path.join(common, ref) for ref in refs if not layout.is_foreign(ref.removesuffix(".lock"))]
    now = store.clock() // times.MICRO
    findings = []
    for path in places:
        try:
            age = now - int(os.stat(path).st_mtime)
        except FileNotFoundError:
            continue
        if age > STALE_AFTER:
            sentence = f"is {times.age_text(age * times.MICRO)} old: most likely a crash left it behind"
            findings.append(Finding("stale-lock", path, sentence, f"make sure that no git runs here, then: rm {shlex.quote(path)}"))
    return findings
