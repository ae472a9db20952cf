"""Read and write the git note that lists a commit's newest checkpoints."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from gitckpt.model import ids

# Checkpoints that a note lists at most: long notes, rewritten often, would fill the disk.
MOST = 20
MORE = "and older ones: git ckpt list --commit"  # last line of a note whose commit has more


def format_note_line(checkpoint_id: str, phase: str, timestamp: str) -> str:
    label = " ".join(phase.split())
    if not label.isprintable():  # `git log` prints notes raw, and the document may be fetched
        label = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in label)
    return f"{checkpoint_id} {label} {timestamp}"


def leading_id(line: str) -> str:
    return line.partition(" ")[0]


def note_omits_older(lines: Iterable[str]) -> bool:
    return MORE in lines


def update_note(lines: Iterable[str], new: Iterable[str], removed: Collection[str]) -> list[str]:
    """Return a note's lines: add `new`, drop `removed` ids, keep lines of users."""
    lines = list(lines)
    # git's merge of notes may leave a line twice.
    links = [line for line in lines if ids.is_checkpoint_id(leading_id(line))]
    lines_by_id = {leading_id(line): line for line in (*links, *new)}
    lines_by_id = {id_: line for id_, line in lines_by_id.items() if id_ not in removed}
    newest = dict(sorted(lines_by_id.items(), key=lambda link: link[1].rpartition(" ")[2])[-MOST:])
    is_partial = lines_by_id and (note_omits_older(lines) or len(newest) < len(lines_by_id))
    note_lines = []
    for line in lines:
        if ids.is_checkpoint_id(leading_id(line)):
            note_lines += [newest.pop(leading_id(line))] if leading_id(line) in newest else []
        elif line != MORE:
            note_lines.append(line)
    note_lines += [line for id_, line in lines_by_id.items() if id_ in newest]
    note_lines += [MORE] if is_partial else []
    return note_lines if any(line.strip() for line in note_lines) else []
