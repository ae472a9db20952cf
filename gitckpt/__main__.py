"""`git ckpt` and `python -m gitckpt`."""

from __future__ import annotations

import gc
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
else:
    import _signal as signal  # `signal` makes enumerations of its names, which takes a tenth of a short command

_INTERRUPTED = 130
_OBJECTS = 100_000
"""After so many new ones Python looks for garbage in circles; after its usual 700, that is a fortieth of what a short command takes."""


def main() -> None:
    """Runs the command line, or what an installed hook calls, which must not wait for the imports of the former.

    The process ends without the clean-up that Python does for programs that go on: everything is closed and written by then. Of Ctrl-C
    while it imports, it dies at once, as git does: there is nothing to clean up yet, and a traceback is of no use.
    """
    is_ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # else whoever started it in the background has it ignored
    if is_ours:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    if sys.argv[1:2] == ["hook"] and sys.argv[2:] and not {"-h", "--help"} & set(sys.argv[2:]):
        from gitckpt import hook

        if is_ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        hook.run(sys.argv[2:])
    gc.set_threshold(_OBJECTS)
    from gitckpt.cli.main import run

    try:
        if is_ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        code = run()
    except KeyboardInterrupt:  # before `run` was at it, or once more while it said so
        code = _INTERRUPTED
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
