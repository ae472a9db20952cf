"""What the note of a commit says: which checkpoints it has, the newest of them line by line, and how many more. Pure functions."""

from __future__ import annotations

from gitckpt.model import ids

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

MOST = 20
"""So many lines the note of a commit has, the newest; one more says how many checkpoints have none."""

_NAMED = 100
"""So many other commits the last line of a note names."""


def link_line(checkpoint_id: str, phase: str, timestamp: str) -> str:
    """Returns the line that links a checkpoint to a commit: `<uuid> <phase> <timestamp>`."""
    return f"{checkpoint_id} {' '.join(phase.split())} {timestamp}"


def link_id(line: str) -> str:
    """Returns the id of the checkpoint that a line links to."""
    return line.partition(" ")[0]


class Note:
    """What the lines of a note say.

    Attributes:
        links: the lines that link checkpoints, as they stand there.
        others: lines that people wrote.
        left_out: how many checkpoints have no line.
        commits: other commits to which some of those belong.
    """

    def __init__(self, lines: Iterable[str]) -> None:
        self.links: list[str] = []
        self.others: list[str] = []
        self.left_out = 0
        self.commits: list[str] = []
        self._rests = 0
        for line in lines:
            rest = _rest(line)
            if rest is not None:  # git puts several of them together, where it joins notes
                self.left_out += rest[0]
                self.commits += [oid for oid in rest[1] if oid not in self.commits]
                self._rests += 1
            else:
                (self.links if ids.is_id(link_id(line)) else self.others).append(line)

    @property
    def is_settled(self) -> bool:
        """Whether it is as `lines` would make it, but for their order."""
        return len(self.links) <= MOST and self._rests == bool(self.left_out)

    def lines(self, origins: Callable[[Sequence[str]], Iterable[str]], commit: str) -> list[str]:
        """Returns the lines of a note that says the same and is not too long.

        Args:
            origins: returns the commits to which some checkpoints belong.
            commit: whose note it is.
        """
        ordered = sorted(self.links, key=_time)
        out, shown = ordered[:-MOST], ordered[-MOST:]
        named = [*origins([link_id(line) for line in reversed(out)]), *self.commits] if out else self.commits
        rest = self.left_out + len(out)
        others = list(dict.fromkeys(oid for oid in named if oid and oid != commit))[:_NAMED]
        of = f" of {' '.join(others)}" if others else ""
        return [*self.others, *shown, *([f"and {rest} more{of}"] if rest else [])]


def _rest(line: str) -> tuple[int, list[str]] | None:
    """Returns how many checkpoints a line says have none, and the other commits that it names; None for any other line."""
    words = line.split(" ") if line.startswith("and ") else []
    if len(words) < 3 or words[2] != "more" or not (words[1].isascii() and words[1].isdigit() and len(words[1]) < 10):
        return None
    return (int(words[1]), [word for word in words[4:] if ids.is_oid(word)]) if words[3:4] in ([], ["of"]) else None


def _time(line: str) -> str:
    return line.rpartition(" ")[2]


def is_crowded(lines: Iterable[str]) -> bool:
    """Tells whether a note leaves checkpoints out."""
    return any(_rest(line) for line in lines)


def commits(lines: Sequence[str], listed: Iterable[str]) -> set[str]:
    """Returns the other commits whose checkpoints belong to one: none where its note names each checkpoint that does.

    Args:
        lines: those of the note.
        listed: the commits of the checkpoints that have a line in it.
    """
    return {*listed, *Note(lines).commits} - {""} if is_crowded(lines) else set()


def merged(commit: str, lines: list[str], new: Iterable[str], origins: Callable[[Sequence[str]], Iterable[str]]) -> list[str]:
    """Returns the lines of a note with further links: the newest of all, and how many are left out.

    Args:
        commit: whose note it is.
        lines: those that it has.
        new: lines of links. Those that it has already count once, but not those that it only counts: the caller leaves them out.
        origins: as for `Note.lines`.
    """
    note = Note(lines)
    known = {link_id(line) for line in note.links}
    fresh = list({link_id(line): line for line in new if link_id(line) not in known}.values())
    note.links += fresh
    if note.is_settled and not note.left_out:
        return [*lines, *fresh]
    return lines if note.is_settled and not fresh else note.lines(origins, commit)


def anew(commit: str, lines: list[str], linked: Iterable[tuple[str, str]]) -> list[str]:
    """Returns the lines of a note that is made anew, where it is known what belongs to it.

    Args:
        commit: whose note it is.
        lines: those that it has; what people wrote stays.
        linked: for each checkpoint its line, and the commit that it belongs to.
    """
    found = dict(linked)
    note = Note([*Note(lines).others, *found])
    of = {link_id(line): origin for line, origin in found.items()}
    return note.lines(lambda names: [of[name] for name in names], commit)
