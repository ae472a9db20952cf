"""Read refs and objects through a long-lived `git cat-file --batch-command`."""

from __future__ import annotations

from gitckpt.git.command import BOUNDED, StandbyProcess
from gitckpt.git.objects.encoding import OVERSIZED
from gitckpt.git.process import SEE_DAMAGE, find_fetch_hint
from gitckpt.model.errors import CkptError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from threading import Thread

    from gitckpt.git.command import GitRunner
    from gitckpt.git.process import Child

    ObjectContents = Iterator[tuple[str, str, bytes] | None]  # oid, kind and content
    ObjectAnswer = tuple[str, str, int, bytes]  # oid, kind, size and, if asked for, content

_PIPE_SIZE = 4096  # bytes of requests; fits into any pipe, so that neither side blocks
_MANY, _PORTION = 500, 5000
# git dies with one of these where a tree on the way to the object is malformed.
_MALFORMED = ("too-short tree", "malformed mode in", "empty filename in tree", "truncated tree")
# The same where such a tree is damaged, or a partial clone lacks the object.
_UNREADABLE = (*_MALFORMED, " is corrupt", "from promisor remote")
# git's complaint when it ends within a damaged object; a killed git prints none.
_COMPLAINTS = ("fatal: ", "error: ")


class CatFileProcess:
    def __init__(self, git: GitRunner) -> None:
        self._git = git
        self._standby = StandbyProcess(lambda: git.start_git("cat-file", "--batch-command"))

    def info(self, name: str) -> tuple[str, str, int] | None:
        """Return the oid, kind and size of the object that `name` names; None if missing."""
        answer = next(self._request_objects("info", [name], _MALFORMED))
        return answer[:3] if answer else None

    def list_infos(self, names: Sequence[str]) -> list[tuple[str, str, int] | None]:
        """Return what `info` does for each name; one process answers for all."""
        answers = self._request_objects("info", names, _UNREADABLE)
        return [answer[:3] if answer else None for answer in answers]

    def list_existing_objects(self, oids: Sequence[str]) -> list[str]:
        """Return the full oids of the objects that exist; damaged objects exist, too."""
        answers = self._request_objects("info", oids, ("from promisor remote",))
        return [answer[0] for answer in answers if answer]

    def read_contents(self, names: Sequence[str], max_size: int | None = None) -> ObjectContents:
        """Yield the oid, kind and content of each named object.

        An unreadable object yields None. One larger than `max_size` has the kind OVERSIZED.
        """
        if len(names) < _MANY:
            yield from self._read_singly(names, max_size)
            return
        position = 0
        while position < len(names):
            for entry in self._read_bulk(names, position, max_size):
                position += 1
                yield entry
            # git ended at a damaged object, or the next one is larger than `max_size`
            yield from self._read_singly(names[position : position + _PORTION], max_size)
            position += _PORTION

    def _read_bulk(self, names: Sequence[str], start: int, max_size: int | None) -> ObjectContents:
        # A fifth of the time of asking one by one. Ends at the first object that git cannot give.
        child = self._git.start_git(*BOUNDED, "cat-file", "--batch", "--buffer")
        thread = _start_writer(child, names, start)
        try:
            for _ in range(start, len(names)):
                if not (line := child.read_output_line()):
                    break
                if (header := _parse_object_header(line)) is None:
                    yield None
                    continue
                oid, kind, size = header
                if max_size is not None and size > max_size:
                    break
                if len(data := child.read_output(size + 1)) <= size:
                    break
                yield oid, kind, data[:-1]
        finally:
            # If a wrapper script started git, git outlives it and blocks until its output is read.
            child.close_output()
            thread.join()
            child.close()

    def _read_singly(self, names: Sequence[str], max_size: int | None) -> ObjectContents:
        for answer in self._request_objects("contents", names, _UNREADABLE, max_size):
            yield (answer[0], answer[1], answer[3]) if answer else None

    def _request_objects(
        self,
        command: str,
        names: Sequence[str],
        complaints: Sequence[str],
        max_size: int | None = None,
    ) -> Iterator[ObjectAnswer | None]:
        requests = [f"{command} {name}\n".encode("utf-8", "surrogateescape") for name in names]
        position = 0
        while position < len(requests):
            batch = _select_next_requests(requests, position)
            unread_count = len(batch)
            child = self._standby.take_process()
            try:
                try:
                    child.write_input(b"".join(batch))
                except BrokenPipeError:
                    _raise_unexpected_end(child)
                while unread_count:
                    position += 1
                    if not (line := child.read_output_line()):
                        _raise_unexpected_end(child, expected=complaints)
                        yield None
                        break
                    answer = None
                    if header := _parse_object_header(line):
                        oid, kind, size = header
                        # End git instead of reading an object that is too large.
                        if max_size is not None and size > max_size:
                            yield oid, OVERSIZED, size, b""
                            break
                        length = size + 1 if command == "contents" else 0
                        # git ended at a damaged object; a new one gets the rest.
                        if len(data := child.read_output(length)) != length:
                            _raise_unexpected_end(child, expected=_COMPLAINTS)
                            yield None
                            break
                        answer = oid, kind, size, data[:-1]
                    unread_count -= 1
                    if not unread_count:
                        self._standby.give_back_process(child)
                    yield answer
            finally:
                if unread_count:
                    child.terminate_and_close()

    def start_idle_process(self) -> None:
        self._standby.start_idle_process()

    def close(self) -> None:
        self._standby.close()


def _start_writer(child: Child, names: Sequence[str], start: int) -> Thread:
    # Write in a thread while the caller reads: otherwise both sides block on full pipes.
    from threading import Thread  # not for the hook, which never reads so much

    def write_names() -> None:
        try:
            for offset in range(start, len(names), _MANY):
                text = "".join(f"{name}\n" for name in names[offset : offset + _MANY])
                child.write_input(text.encode("utf-8", "surrogateescape"))
        except BrokenPipeError:
            pass  # git ended early; the answers show where
        child.write_and_close_input(b"")

    thread = Thread(target=write_names)
    thread.start()
    return thread


def _select_next_requests(requests: list[bytes], start: int) -> list[bytes]:
    size = len(requests[start])
    end = start + 1
    while end < len(requests) and size + len(requests[end]) <= _PIPE_SIZE:
        size += len(requests[end])
        end += 1
    return requests[start:end]


def _parse_object_header(line: bytes) -> tuple[str, str, int] | None:
    oid, *parts = line.split(b" ")
    is_header = len(parts) == 2 and parts[1].isdigit()
    return (oid.decode("ascii"), parts[0].decode("ascii"), int(parts[1])) if is_header else None


def _raise_unexpected_end(child: Child, *, expected: Sequence[str] = ()) -> None:
    # Raises CkptError unless git's complaint contains one of the texts.
    complaint = child.communicate().error_text
    if not any(text in complaint for text in expected):
        lines = complaint.strip().splitlines()
        reason = f": {lines[-1].removeprefix('fatal: ')}" if lines else ""
        hint = find_fetch_hint(complaint) or SEE_DAMAGE
        raise CkptError(f"git cat-file ended unexpectedly{reason}", hint=hint) from None
