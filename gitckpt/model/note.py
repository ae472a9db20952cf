"""The note of a commit: one line for each of its newest checkpoints."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from gitckpt.model import ids

# Checkpoints that a note lists at most: long notes, rewritten often, would fill the disk.
MOST = 20
MORE = "and older ones: git ckpt list --commit"  # last line of a note whose commit has more


def link_line(checkpoint_id: str, phase: str, timestamp: str) -> str:
    label = " ".join(phase.split())
    if not label.isprintable():  # `git log` prints notes raw, and the document may be fetched
        label = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in label)
    return f"{checkpoint_id} {label} {timestamp}"


def link_id(line: str) -> str:
    return line.partition(" ")[0]


def is_full(lines: Iterable[str]) -> bool:
    """Return whether a note says that its commit has more checkpoints than listed."""
    return MORE in lines


def changed(lines: Iterable[str], new: Iterable[str], removed: Collection[str]) -> list[str]:
    """Add `new` lines, delete lines of `removed` ids, and keep lines that users wrote."""
    lines = list(lines)
    # git's merge of notes may leave a line twice.
    links = {link_id(line): line for line in lines if ids.is_id(link_id(line))}
    links.update((link_id(line), line) for line in new)
    links = {name: line for name, line in links.items() if name not in removed}
    newest = dict(sorted(links.items(), key=lambda link: link[1].rpartition(" ")[2])[-MOST:])
    has_more = links and (is_full(lines) or len(newest) < len(links))
    note = []
    for line in lines:
        if ids.is_id(link_id(line)):
            note += [newest.pop(link_id(line))] if link_id(line) in newest else []
        elif line != MORE:
            note.append(line)
    note += [line for name, line in links.items() if name in newest]
    note += [MORE] if has_more else []
    return note if any(line.strip() for line in note) else []
