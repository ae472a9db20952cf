"""`git ckpt` and `python -m gitckpt`."""

from __future__ import annotations

import sys


def main() -> None:
    """Runs the command line, or what an installed hook calls, which must not wait for the imports of the former."""
    if sys.argv[1:2] == ["hook"] and sys.argv[2:] and not {"-h", "--help"} & set(sys.argv[2:]):
        from gitckpt import hook

        sys.exit(hook.main(sys.argv[2:]))
    from gitckpt.cli.main import run

    sys.exit(run())


if __name__ == "__main__":
    main()
