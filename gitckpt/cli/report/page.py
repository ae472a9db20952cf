"""Render a report as one HTML page that loads nothing."""

from __future__ import annotations

import base64
import functools
import hashlib
import itertools
import os
from collections.abc import Sequence

from gitckpt.cli import terminal
from gitckpt.cli.report import contents
from gitckpt.cli.report.contents import Section, time_text
from gitckpt.model import ids, times
from gitckpt.model.values import dataclass
from gitckpt.store.records.entry import CheckpointInfo, Query

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gitckpt.store.store import Store

_LEFT, _RIGHT, _LANE = 190, 970, 22  # pixels
_MOST_LANES, _TICK = 40, 110
_LONGEST_GAP = 8  # in average gaps; the timeline shortens longer pauses


@dataclass(frozen=True, slots=True)
class Dot:
    """A checkpoint in the timeline."""

    x: float
    y: float
    entry: CheckpointInfo
    when: str


def render(store: Store, query: Query, title: str) -> tuple[bytes, int]:
    """Return a page of the newest checkpoints, and how many others there are."""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined, finalize=_make_visible)
    environment.trim_blocks = environment.lstrip_blocks = True
    environment.filters |= {"when": time_text, "clock": _clock}
    left_out = max(len(store.list(query)) - contents.MOST, 0)
    sections = contents.collect(store, query)
    style, script = _read("page.css"), _read("page.js")
    entries = sorted(
        (change.entry for section in sections for change in section.changes),
        key=lambda entry: entry.time,
    )
    names = ids.short_run_names(section.title for section in sections if section.kind != "worktree")
    values = {
        "title": title,
        "style": style,
        "script": script,
        "zone": time_text(times.now(), "%Z"),
        "made": times.now(),
        "sections": sections,
        "facts": _totals(sections),
        "left_out": left_out,
        "policy": f"default-src 'none'; style-src {_source(style)}; script-src {_source(script)}; "
        "base-uri 'none'; form-action 'none'",
        "lanes": [names.get(section.title, section.title) for section in sections[:_MOST_LANES]],
        "height": _LANE * (min(len(sections), _MOST_LANES) + 1) + 10,
        "dots": (dots := _place_dots(sections, entries)),
        "ticks": _choose_ticks(dots),
    }
    text = environment.from_string(_read("page.html")).render(values)
    return text.encode("utf-8"), left_out


def _make_visible(value: object) -> object:
    """Show control characters and changes of the text's direction as escapes."""
    if type(value) is not str or value.isprintable():
        return value
    lines = value.split("\n")
    return "\n".join("\t".join(map(terminal.escape_text, line.split("\t"))) for line in lines)


@functools.cache
def _read(name: str) -> str:
    with open(os.path.join(os.path.dirname(__file__), name), encoding="utf-8") as file:
        return file.read()


def _source(text: str) -> str:
    """Return the source of a text for a Content-Security-Policy."""
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"


def _totals(sections: Sequence[Section]) -> list[tuple[str, str]]:
    changes = [change for section in sections for change in section.changes]
    failed = sum(change.entry.status in ("failed", "blocked") for change in changes)
    tokens: dict[str, int] = {}
    for change in changes:
        for name, number in change.tokens.items():
            tokens[name] = tokens.get(name, 0) + number
    cost = sum(section.cost for section in sections)
    kinds = [section.kind for section in sections]
    facts = {
        "checkpoints": f"{len(changes):,}",
        "runs": f"{kinds.count('run'):,}" if "run" in kinds else "",
        "sessions": f"{kinds.count('session'):,}" if "session" in kinds else "",
        "failed": f"{failed:,}" if failed else "",
        "lines": f"+{sum(c.added for c in changes):,} −{sum(c.removed for c in changes):,}",
        "cost": f"{cost:.2f} USD" if cost else "",
        "tokens": ", ".join(f"{number:,} {name}" for name, number in tokens.items()),
    }
    return [(name, value) for name, value in facts.items() if value]


# The timeline


def _place_dots(sections: Sequence[Section], entries: Sequence[CheckpointInfo]) -> list[Dot]:
    gaps = [new.time - old.time for old, new in itertools.pairwise(entries)]
    longest = _LONGEST_GAP * sum(gaps) / len(gaps) if gaps else 0.0
    drawn = [min(float(gap), longest) for gap in gaps]
    scale = (_RIGHT - _LEFT - 20) / (sum(drawn) or 1.0)
    lanes = {
        change.entry.id: min(lane, _MOST_LANES - 1)
        for lane, section in enumerate(sections)
        for change in section.changes
    }
    dots, x = [], 0.0
    for entry, gap in zip(entries, [0.0, *drawn], strict=bool(entries)):
        x += gap
        place = round(_LEFT + 10 + x * scale, 1), _LANE * lanes[entry.id] + 12.0
        dots.append(Dot(*place, entry, time_text(entry.time)))
    return dots


def _choose_ticks(dots: Sequence[Dot]) -> list[Dot]:
    ticks: list[Dot] = []
    for dot in dots:
        if dot.x < _RIGHT - 80 and (not ticks or dot.x >= ticks[-1].x + _TICK):
            ticks.append(dot)
    return ticks


def _clock(instant: int) -> str:
    return time_text(instant, "%H:%M:%S")
