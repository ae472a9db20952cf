"""A long-running git filter that turns letters by 13 and refuses shebang lines.

See "Long Running Filter Process" in gitattributes(5).
"""

from __future__ import annotations

import codecs
import sys
from collections.abc import Iterator

LARGEST = 65516


def packets() -> Iterator[bytes]:
    """Yield packets up to the next flush; exit if git has closed the pipe."""
    while True:
        head = sys.stdin.buffer.read(4)
        if len(head) < 4:
            sys.exit(0)
        size = int(head, 16)
        if size == 0:
            return
        yield sys.stdin.buffer.read(size - 4)


def say(*lines: bytes) -> None:
    for line in lines:
        sys.stdout.buffer.write(b"%04x" % (len(line) + 4) + line)
    sys.stdout.buffer.write(b"0000")
    sys.stdout.buffer.flush()


def turned(data: bytes) -> bytes:
    return codecs.encode(data.decode("latin-1"), "rot13").encode("latin-1")


def main() -> None:
    list(packets())
    say(b"git-filter-server\n", b"version=2\n")
    list(packets())
    say(b"capability=clean\n", b"capability=smudge\n")
    while True:
        list(packets())  # which command for which file: it is the same either way
        data = b"".join(packets())
        if data.startswith(b"#!"):
            say(b"status=error\n")
            continue
        say(b"status=success\n")
        whole = turned(data)
        say(*(whole[at : at + LARGEST] for at in range(0, len(whole), LARGEST)))
        say()


if __name__ == "__main__":
    main()
