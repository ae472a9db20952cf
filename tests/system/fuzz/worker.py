"""Fuzz one target: `python -m tests.system.fuzz.worker TARGET ARGUMENTS…`.

The arguments are those of libFuzzer.
"""

from __future__ import annotations

import shlex
import sys

import atheris

with atheris.instrument_imports(include=["gitckpt"]):
    from tests.system.fuzz.targets import TARGETS

# For a merge, libFuzzer starts itself again, by a shell.
atheris.Setup(
    [shlex.join([sys.executable, "-m", "tests.system.fuzz.worker", sys.argv[1]]), *sys.argv[2:]],
    TARGETS[sys.argv[1]],
)
atheris.Fuzz()
