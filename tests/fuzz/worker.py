"""Fuzzes one target: `python -m tests.fuzz.worker TARGET ARGUMENTS…`, with the arguments of libFuzzer."""

from __future__ import annotations

import sys

import atheris

with atheris.instrument_imports(include=["gitckpt"]):
    from tests.fuzz.targets import TARGETS

atheris.Setup([sys.argv[0], *sys.argv[2:]], TARGETS[sys.argv[1]])
atheris.Fuzz()
