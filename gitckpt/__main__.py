"""`git ckpt` and `python -m gitckpt`."""

from __future__ import annotations

import gc
import os
import sys

_OBJECTS = 100_000
"""After so many new ones Python looks for garbage in circles; after its usual 700, that is a fortieth of what a short command takes."""


def main() -> None:
    """Runs the command line, or what an installed hook calls, which must not wait for the imports of the former.

    The process ends without the clean-up that Python does for programs that go on: everything is closed and written by then.
    """
    if sys.argv[1:2] == ["hook"] and sys.argv[2:] and not {"-h", "--help"} & set(sys.argv[2:]):
        from gitckpt import hook

        hook.run(sys.argv[2:])
    gc.set_threshold(_OBJECTS)
    from gitckpt.cli.main import run

    code = run()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
