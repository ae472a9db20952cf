"""What the note of a commit says: a line for each of its newest checkpoints, beside lines that people wrote. Pure functions."""

from __future__ import annotations

from gitckpt.model import ids

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable


MOST = 20
"""So many checkpoints a note lists, the newest: notes of thousands of lines, written again and again, would fill the disk."""

MORE = "and older ones: git ckpt list --commit"
"""The last line of a note that once had more."""


def link_line(checkpoint_id: str, phase: str, timestamp: str) -> str:
    """Returns the line that links a checkpoint to a commit: `<uuid> <phase> <timestamp>`, with control characters escaped."""
    words = " ".join(phase.split())
    if not words.isprintable():  # `git log` prints notes as they are, and a fetched document may hold anything
        words = "".join(each if each.isprintable() else ascii(each)[1:-1] for each in words)
    return f"{checkpoint_id} {words} {timestamp}"


def link_id(line: str) -> str:
    """Returns the id of the checkpoint that a line links to."""
    return line.partition(" ")[0]


def is_full(lines: Iterable[str]) -> bool:
    """Tells whether a note may lack checkpoints of its commit."""
    return MORE in lines


def changed(lines: Iterable[str], new: Iterable[str], gone: Collection[str]) -> list[str]:
    """Returns the lines of a note with further links and without others; what people wrote stays as it is.

    Args:
        lines: those that it has.
        new: lines of links; each takes the place of one that links the same checkpoint.
        gone: ids of checkpoints that it links no more.
    """
    lines = list(lines)
    links = {link_id(line): line for line in lines if ids.is_id(link_id(line))}  # git joins notes, and may leave a line twice
    links.update((link_id(line), line) for line in new)
    links = {name: line for name, line in links.items() if name not in gone}
    shown = dict(sorted(links.items(), key=lambda link: link[1].rpartition(" ")[2])[-MOST:])
    more = [MORE] if links and (is_full(lines) or len(shown) < len(links)) else []
    kept = []
    for line in lines:
        if ids.is_id(link_id(line)):
            kept += [shown.pop(link_id(line))] if link_id(line) in shown else []
        elif line != MORE:
            kept.append(line)
    kept += [*(line for name, line in links.items() if name in shown), *more]
    return kept if any(line.strip() for line in kept) else []
