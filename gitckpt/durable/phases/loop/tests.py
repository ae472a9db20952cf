"""Runs the tests of a project."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Mapping

from gitckpt.durable.command.execution import EXIT, Ending
from gitckpt.model.values import dataclass
from gitckpt.store.secrets import detector

_PYTEST = "pytest -v --tb=short"
_MAKE = "make test"
NONE = (
    "no test command found: pytest is not installed, and no Makefile has a target test; "
    "name one: --tests COMMAND of git ckpt loop, --input tests=COMMAND of git ckpt run and resume"
)

_MAKEFILES = ("GNUmakefile", "makefile", "Makefile")


@dataclass(frozen=True, slots=True)
class Tested:
    """What the tests said.

    Attributes:
        passed: whether they passed.
        output: what they printed, with what looks like a secret masked, or why they could not.
    """

    passed: bool
    output: str


def choose(path: str, env: Mapping[str, str]) -> str:
    """Returns the command that tests a project; "" where there is none.

    That is pytest, and `make test` only where pytest is not installed: tests that fail are no reason to run other ones.

    Args:
        path: the top of the project.
        env: with the PATH on which pytest is looked for.
    """
    if shutil.which("pytest", path=env.get("PATH", os.defpath)):
        return _PYTEST
    for name in _MAKEFILES:
        makefile = os.path.join(path, name)
        if os.path.isfile(makefile):
            with open(makefile, encoding="utf-8", errors="replace") as file:
                # make reads the first that is there, and no other
                return _MAKE if _has_target(file) else ""
    return ""


def _has_target(makefile: Iterable[str]) -> bool:
    """Tell whether a rule of a Makefile makes `test`.

    An expression for it took minutes for a line of 500 KB.
    """
    for line in makefile:
        targets, colon, rest = line.partition(":")
        is_rule = bool(colon) and not line[0].isspace() and not {"=", "#"}.intersection(targets)
        if is_rule and not rest.lstrip(":").startswith("=") and "test" in targets.split():
            return True
    return False


def run(line: str, call: Callable[[str], Ending], seconds: float) -> Tested:
    """Runs tests.

    Args:
        line: what the shell runs; "" for none.
        call: runs it.
        seconds: how long they may take.
    """
    if not line:
        return Tested(passed=False, output=NONE)
    outcome = call(line)
    if outcome.ended_by != EXIT:
        output = f"{detector.masked(outcome.tail).rstrip()}\nTests timed out after {seconds:g} seconds".lstrip()
        return Tested(passed=False, output=output)
    return Tested(outcome.code == 0, detector.masked(outcome.tail))
