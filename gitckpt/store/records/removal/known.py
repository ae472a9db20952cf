"""What removals go by that was found before: which notes are plain, and which lines of history are kept. It lies beside the index.

Without it, all notes are read and all commits walked, half a minute of a million. Who looks at all of them anyway leaves it here.
"""

from __future__ import annotations

from functools import partial

from gitckpt.model.errors import CkptError
from gitckpt.model.readers.fence import fenced
from gitckpt.model.values import dataclass
from gitckpt.store.records import layout
from gitckpt.store.records.index import Index
from gitckpt.store.records.rows import tables

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from gitckpt.store.records.entry import Entry, Query
    from gitckpt.store.records.rows.tables import Revision

MANY = 20_000
"""Of more commits than this, only what may have changed is walked, or asked for."""


@dataclass(frozen=True, slots=True)
class Last:
    """How it was when the refs were put right last.

    Attributes:
        lines: the commits that had refs; None where that is not known.
        new: commits that checkpoints need which have come since.
        mark: tells how far that is.
        count: how many checkpoints there are now.
    """

    lines: Collection[str] | None
    new: AbstractSet[str]
    mark: Revision
    count: int = 0


NEVER = Last(None, frozenset(), (-1, -1))


def are_many(commits: int) -> bool:
    """Tells whether there are so many commits that not all are to be gone through each time."""
    return commits > MANY


class Known:
    """What is known of a repository.

    Args:
        index: of its checkpoints.
    """

    def __init__(self, index: Index) -> None:
        self._index = index

    def entries(self, query: Query) -> Sequence[Entry]:
        """Returns what the index has; nothing where it cannot be made, as what is to be removed may be the reason for that.

        The head of a run that was to move then goes: who reads the run takes the newest checkpoint that is left, and `verify --repair` puts
        it back.
        """
        try:
            return fenced(layout.CHECKPOINTS, partial(self._index.select, query))
        except CkptError:
            return ()

    def plain(self) -> tuple[dict[str, str], int]:
        """Returns the trees of notes that are plain, by the digits that lead to them, and what `keep_plain` goes by."""
        nothing: dict[str, str] = {}
        return self._index.aside(tables.plain, (nothing, -1))

    def keep_plain(self, trees: Mapping[str, str], removals: int) -> None:
        """Keeps which trees of notes are plain, unless rows have gone by which they were judged."""
        if trees:
            self._index.aside(partial(tables.keep_plain, trees=trees, removals=removals), None)

    def last(self) -> Last:
        """Returns how it was when the refs that keep commits were put right last."""
        if not self._is_current():
            return NEVER
        return self._index.aside(lambda connection: Last(*tables.settled(connection), tables.count(connection)), NEVER)

    def among(self, commits: Collection[str]) -> set[str] | None:
        """Returns those of some commits that checkpoints need; None where that cannot be told."""
        try:
            return fenced(layout.CHECKPOINTS, partial(self._index.linked_among, commits))
        except CkptError:
            return None

    def keep_last(self, lines: Collection[str], mark: Revision) -> None:
        """Keeps which lines of history are kept, for the rows that `mark` stands for."""
        self._index.aside(partial(tables.keep_settled, lines=lines, mark=mark), None)

    def audit(self) -> Callable[[Collection[str], Mapping[str, str]], None]:
        """Returns what an audit that begins now tells at its end, if it finds nothing wrong: lines that are kept, notes that are plain.

        Where there are few commits, nothing is kept of it: to look at all takes no time.
        """
        nowhere: Revision = (-1, -1)
        mark = self._index.aside(tables.mark, nowhere) if self._is_current() else nowhere

        def found(lines: Collection[str], plain: Mapping[str, str]) -> None:
            if mark != nowhere and mark[0] > MANY:
                self.keep_last(lines, mark)
                self.keep_plain(plain, mark[1])

        return found

    def _is_current(self) -> bool:
        try:
            fenced(layout.CHECKPOINTS, self._index.refresh)
        except CkptError:
            return False
        return True
