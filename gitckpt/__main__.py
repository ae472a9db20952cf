"""Entry point of `git ckpt` and `python -m gitckpt`."""

from __future__ import annotations

import gc
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
else:
    import _signal as signal  # importing `signal` takes a tenth of a short command's time

_INTERRUPTED = 130
# Python's default of 700 costs a short command 2.5 % of its time in garbage collection.
_GC_THRESHOLD = 100_000  # objects


def main() -> None:
    """Run a command, or a hook without importing the command line; then exit.

    The process exits without Python's clean-up: all files are closed by then. Ctrl-C during the
    imports kills the process at once: nothing has to be cleaned up yet.
    """
    # A shell that starts gitckpt in the background makes the process ignore SIGINT.
    handles_sigint = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if handles_sigint:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    if sys.argv[1:2] == ["hook"] and sys.argv[2:] and not {"-h", "--help"} & set(sys.argv[2:]):
        from gitckpt import hook

        if handles_sigint:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        hook.run(sys.argv[2:])
    gc.set_threshold(_GC_THRESHOLD)
    from gitckpt.cli.main import run

    try:
        if handles_sigint:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        exit_code = run()
    except KeyboardInterrupt:  # before `run` began, or while it printed an error
        exit_code = _INTERRUPTED
    sys.stderr.flush()
    os._exit(exit_code)


if __name__ == "__main__":
    main()
