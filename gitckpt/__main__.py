"""Entry point of `git ckpt` and `python -m gitckpt`."""

from __future__ import annotations

import gc
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
else:
    import _signal as signal  # the enumerations of `signal` take a tenth of a short command

_INTERRUPTED = 130
# Python's default of 700 costs a short command 2.5 % of its time in garbage collection.
_OBJECTS = 100_000


def main() -> None:
    """Run the command line or a hook; a hook does not import the command line.

    The process exits without Python's clean-up: all files are closed by then. Ctrl-C during the
    imports kills it at once, as it does git: nothing has to be cleaned up yet.
    """
    # A shell that starts it in the background has SIGINT ignored.
    is_ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler
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
    except KeyboardInterrupt:  # before `run` began, or while it printed an error
        code = _INTERRUPTED
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
