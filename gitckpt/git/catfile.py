"""A long-lived `git cat-file --batch-command`: what a name means now, and what an object holds."""

from __future__ import annotations

from gitckpt.git.command import BOUNDED, Standby
from gitckpt.git.objects.encoding import OVERSIZED
from gitckpt.git.process import cure_of_promised
from gitckpt.model.errors import CkptError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from threading import Thread

    from gitckpt.git.command import Git
    from gitckpt.git.process import Child

_AT_ONCE = 4096  # bytes of requests; any pipe holds as much, so that neither side waits for the other

_MANY, _PORTION = 500, 5000
_CHUNK = 1 << 20

_MALFORMED = ("too-short tree", "malformed mode in tree entry", "empty filename in tree entry", "truncated tree")
"""What git ends with where a tree on the way to what is asked for is none."""


_UNREADABLE = (*_MALFORMED, " is corrupt", "from promisor remote")
"""The same, where a tree on the way is damaged, or the object is one that a partial clone lacks."""

_DAMAGED = ("fatal: ", "error: ")
"""Beginnings of git's complaints about a damaged object; a killed git has none."""


class CatFile:
    """Reads through one process, started at the first question."""

    def __init__(self, git: Git) -> None:
        self._git = git
        self._standby = Standby(lambda: git.start("cat-file", "--batch-command"))

    def info(self, name: str) -> tuple[str, str, int] | None:
        """See `Lookup.info`."""
        child = self._standby.take()
        try:
            _ask(child, f"info {name}\n".encode("utf-8", "surrogateescape"))
            line = child.read_line()
            if not line:
                _ended(child, unless=_MALFORMED)
        except BaseException:
            child.stop()
            raise
        if not line:
            return None
        self._standby.give_back(child)
        return _header(line)

    def known(self, oids: Sequence[str]) -> list[str]:
        """See `Lookup.known`."""
        found = []
        requests = [f"info {oid}\n".encode("ascii") for oid in oids]
        done = 0
        while done < len(requests):
            some = _batch(requests, done)
            child = self._standby.take()
            try:
                _ask(child, b"".join(some))
                for _ in some:
                    line = child.read_line()
                    done += 1
                    if not line:
                        _ended(child, unless=("from promisor remote",))
                        break
                    if (answer := _header(line)) is not None:
                        found.append(answer[0])
                else:
                    self._standby.give_back(child)
            except BaseException:
                child.stop()
                raise
        return found

    def contents(self, names: Sequence[str], most: int | None = None) -> Iterator[tuple[str, str, bytes] | None]:
        """See `Lookup.contents`."""
        if len(names) < _MANY:
            yield from self._one_by_one(names, most)
            return
        done = 0
        while done < len(names):
            for found in self._in_bulk(names, done, most):
                done += 1
                yield found
            # git ended at a damaged object, or one is large
            some = names[done : done + _PORTION]
            yield from self._one_by_one(some, most)
            done += len(some)

    def _in_bulk(self, names: Sequence[str], start: int, most: int | None) -> Iterator[tuple[str, str, bytes] | None]:
        """Yields answers of a process that is told all names at once, which takes a fifth of the time; until one that it cannot give."""
        child = self._git.start(*BOUNDED, "cat-file", "--batch", "--buffer")
        thread = _told(child, names, start)
        output = _Output(child)
        try:
            for _ in range(start, len(names)):
                line = output.line()
                if line is None:
                    break
                header = _header(line)
                if header is None:
                    yield None
                    continue
                oid, kind, size = header
                data = output.content(size) if most is None or size <= most else None
                if data is None:
                    break
                yield oid, kind, data
        finally:
            child.hang_up()  # a program that stands for git may have started it, so that git outlives it, and waits for us to listen
            thread.join()
            child.close()

    def _one_by_one(self, names: Sequence[str], most: int | None) -> Iterator[tuple[str, str, bytes] | None]:
        requests = [f"contents {name}\n".encode("utf-8", "surrogateescape") for name in names]
        done = 0
        while done < len(requests):
            some = _batch(requests, done)
            waiting = len(some)
            child = self._standby.take()
            try:
                _ask(child, b"".join(some))
                while waiting:
                    line = child.read_line()
                    done += 1
                    if not line:
                        _ended(child, unless=_UNREADABLE)
                        yield None
                        break
                    header = _header(line)
                    if header is None:
                        found = None
                    else:
                        oid, kind, size = header
                        if most is not None and size > most:  # git is ended instead of being listened to
                            yield oid, OVERSIZED, b""
                            break
                        data = child.read(size + 1)
                        if len(data) != size + 1:  # git ends at a damaged object; the rest is asked of another one
                            _ended(child, unless=_DAMAGED)
                            yield None
                            break
                        found = oid, kind, data[:-1]
                    waiting -= 1
                    if not waiting:
                        self._standby.give_back(child)
                    yield found
            finally:
                if waiting:
                    child.stop()

    def warm_up(self) -> None:
        """Starts the process now, so that it stands by when it is needed."""
        self._standby.warm_up()

    def close(self) -> None:
        """Ends the process."""
        self._standby.close()


class _Output:
    """What a process says to many questions, cut into answers.

    Args:
        child: the process.
    """

    def __init__(self, child: Child) -> None:
        self._child = child
        self._buffer = b""
        self._at = 0

    def line(self) -> bytes | None:
        """Returns the next line; None at the end."""
        end = self._buffer.find(b"\n", self._at)
        while end < 0:
            if not self._grow(len(self._buffer) - self._at + 1):
                return None
            end = self._buffer.find(b"\n", self._at)
        line = self._buffer[self._at : end]
        self._at = end + 1
        return line

    def content(self, size: int) -> bytes | None:
        """Returns so many bytes, without the line break after them; None where the process ended before."""
        if self._at + size >= len(self._buffer) and not self._grow(size + 1):
            return None
        at = self._at
        self._at = at + size + 1
        return self._buffer[at : at + size]

    def _grow(self, size: int) -> bool:
        """Takes in what is said until there are so many bytes; tells whether there are."""
        parts = [self._buffer[self._at :]]
        have = len(parts[0])
        while have < size:
            chunk = self._child.receive(_CHUNK)
            if not chunk:
                break
            parts.append(chunk)
            have += len(chunk)
        self._buffer, self._at = b"".join(parts), 0
        return have >= size


def _told(child: Child, names: Sequence[str], start: int) -> Thread:
    """Begins to tell a process what is wanted, while we listen to it: neither waits for the other. Returns the thread that does."""
    from threading import Thread  # not for the hook, which never reads so much

    def tell() -> None:
        try:
            for at in range(start, len(names), _MANY):
                child.write("".join(f"{name}\n" for name in names[at : at + _MANY]).encode("utf-8", "surrogateescape"))
        except BrokenPipeError:
            pass  # it has ended early, and the answers say where
        child.feed(b"")

    thread = Thread(target=tell)
    thread.start()
    return thread


def _batch(requests: list[bytes], start: int) -> list[bytes]:
    """Returns the requests from `start` that are asked together: one at least."""
    size = len(requests[start])
    end = start + 1
    while end < len(requests) and size + len(requests[end]) <= _AT_ONCE:
        size += len(requests[end])
        end += 1
    return requests[start:end]


def _ask(child: Child, data: bytes) -> None:
    try:
        child.write(data)
    except BrokenPipeError:
        _ended(child)


def _header(line: bytes) -> tuple[str, str, int] | None:
    parts = line.split(b" ")
    if len(parts) == 3 and parts[2].isdigit():
        return parts[0].decode("ascii"), parts[1].decode("ascii"), int(parts[2])
    return None


def _ended(child: Child, *, unless: Sequence[str] = ()) -> None:
    """Raises a CkptError that says why git ended, unless one of these texts is in what it said."""
    complaint = child.communicate().complaint
    if not any(text in complaint for text in unless):
        said = complaint.strip().splitlines()
        why = f": {said[-1].removeprefix('fatal: ')}" if said else ""
        hint = cure_of_promised(complaint) or "check the repository: git fsck"
        raise CkptError(f"git cat-file ended unexpectedly{why}", hint=hint) from None
