"""A long-lived `git cat-file --batch-command`: what a name means now, and what an object holds."""

from __future__ import annotations

from gitckpt.git.command import Standby
from gitckpt.model.errors import CkptError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from threading import Thread

    from gitckpt.git.command import Git
    from gitckpt.git.process import Child

_AT_ONCE = 4096  # bytes of requests; any pipe holds as much, so that neither side waits for the other

_MANY, _PORTION = 500, 5000
_AT_MOST = 64 << 20
"""So many bytes of answers are taken in at once; where there are more, they are asked for one by one."""

_ENDED = -15
"""How git ends that had too much to say: by SIGTERM."""

OVERSIZED = "oversized"
"""Kind of an object that is larger than whoever asked wants to read."""


class CatFile:
    """Reads through one process, started at the first question.

    Args:
        git: where.
    """

    def __init__(self, git: Git) -> None:
        self._git = git
        self._standby = Standby(lambda: git.start("cat-file", "--batch-command"))

    def info(self, name: str) -> tuple[str, str, int] | None:
        """Returns oid, kind and size of what `name` means.

        Args:
            name: an oid, or a full ref name, or `<ref>:<path>`; without line breaks.

        Returns:
            None where there is no such thing, or the name is ambiguous.
        """
        child = self._standby.take()
        try:
            _ask(child, f"info {name}\n".encode("utf-8", "surrogateescape"))
            found = _header(child.read_line(), child)
        except BaseException:
            child.stop()
            raise
        self._standby.give_back(child)
        return found

    def known(self, oids: Sequence[str]) -> list[str]:
        """Returns those of some objects that are there, whether they can be read or not.

        Args:
            oids: full ones.
        """
        found = []
        requests = [f"info {oid}\n".encode("ascii") for oid in oids]
        done = 0
        while done < len(requests):
            some = _batch(requests, done)
            child = self._standby.take()
            try:
                _ask(child, b"".join(some))
                answers = [_header(child.read_line(), child) for _ in some]
            except BaseException:
                child.stop()
                raise
            self._standby.give_back(child)
            found += [answer[0] for answer in answers if answer is not None]
            done += len(some)
        return found

    def contents(self, names: Sequence[str], most: int | None = None) -> Iterator[tuple[str, str, bytes] | None]:
        """Yields oid, kind and content for each name, in order; None for one that is missing or damaged.

        Args:
            names: as for `info`.
            most: of how many bytes an object may be; a larger one is of the kind `OVERSIZED`, without its content. None for any size.
        """
        if len(names) < _MANY:
            yield from self._one_by_one(names, most)
            return
        portions = [names[start : start + _PORTION] for start in range(0, len(names), _PORTION)]
        thread, result = _ahead(self._answers, portions[0], most)
        try:
            for portion, following in zip(portions, [*portions[1:], None], strict=True):
                out = result()
                if following is not None:
                    thread, result = _ahead(self._answers, following, most)
                yield from self._in_bulk(out, portion, most)
        finally:
            thread.join()

    def _answers(self, names: Sequence[str], most: int | None) -> bytes:
        """Returns what a process says that answers all at once, which takes a fifth of the time."""
        wanted = "".join(f"{name}\n" for name in names).encode("utf-8", "surrogateescape")
        most_at_once = None if most is None else _AT_MOST
        return self._git.run("cat-file", "--batch", "--buffer", data=wanted, ok=(0, 128, _ENDED), most=most_at_once).out

    def _in_bulk(self, out: bytes, names: Sequence[str], most: int | None) -> Iterator[tuple[str, str, bytes] | None]:
        at = answered = 0
        while answered < len(names):
            end = out.find(b"\n", at)
            if end < 0:
                break
            header = _header(out[at:end])
            size = header[2] if header else -1
            if end + 1 + size > len(out) or (most is not None and size > most):
                break
            yield (header[0], header[1], out[end + 1 : end + 1 + size]) if header else None
            at = end + 2 + size
            answered += 1
        yield from self._one_by_one(names[answered:], most)  # git ended at a damaged object, or one is large

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
                        _ended(child, unless=" is corrupt")  # a tree that leads to what was named
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


def _ahead(
    call: Callable[[Sequence[str], int | None], bytes], names: Sequence[str], most: int | None
) -> tuple[Thread, Callable[[], bytes]]:
    """Begins a call while others work, as git can read on another processor; returns the thread, and what waits for the result."""
    from threading import Thread  # not for the hook, which never reads so much

    found: list[bytes | CkptError | OSError] = []

    def work() -> None:
        try:
            found.append(call(names, most))
        except (CkptError, OSError) as error:  # told to whoever waits for the result
            found.append(error)

    def result() -> bytes:
        thread.join()
        if not found:
            raise CkptError("git cat-file could not be listened to", hint="is there memory left? try again")
        if not isinstance(found[0], bytes):
            raise found[0]
        return found[0]

    thread = Thread(target=work)
    thread.start()
    return thread, result


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


def _header(line: bytes, child: Child | None = None) -> tuple[str, str, int] | None:
    parts = line.split(b" ")
    if len(parts) == 3 and parts[2].isdigit():
        return parts[0].decode("ascii"), parts[1].decode("ascii"), int(parts[2])
    if not line and child is not None:
        _ended(child)
    return None


def _ended(child: Child, *, unless: str | None = None) -> None:
    """Raises a CkptError that says why git ended, unless these words are among what it said."""
    complaint = child.communicate().complaint
    if unless is None or unless not in complaint:
        said = complaint.strip().splitlines()
        why = f": {said[-1].removeprefix('fatal: ')}" if said else ""
        raise CkptError(f"git cat-file ended unexpectedly{why}", hint="check the repository: git fsck") from None
