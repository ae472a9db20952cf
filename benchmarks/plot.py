"""Draw the costs of commands over the number of checkpoints.

`./dev bench growth 2>LOG; python -m benchmarks.plot <LOG >docs/growth.svg`
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from html import escape

_LINE = re.compile(r"\s*([\d,]+)  (.+): [\d.]+/([\d.]+) s, ")
_WIDTH, _HEIGHT, _LEFT, _TOP, _RIGHT, _BOTTOM = 760, 440, 60, 20, 190, 50
_COLORS = (
    "#1f77b4",
    "#ff7f0e",
    "#2ca02c",
    "#d62728",
    "#9467bd",
    "#8c564b",
    "#e377c2",
    "#7f7f7f",
    "#bcbd22",
    "#17becf",
    "#393b79",
    "#637939",
)
_LEAST, _MOST = 0.01, 1000.0

Costs = Mapping[str, Mapping[int, float]]


def costs(lines: Iterable[str]) -> dict[str, dict[int, float]]:
    """Returns seconds of CPU by command and number of checkpoints; other lines are passed over."""
    found: dict[str, dict[int, float]] = {}
    for line in lines:
        told = _LINE.match(line)
        if told is not None:
            found.setdefault(told[2], {})[int(told[1].replace(",", ""))] = max(
                float(told[3]), _LEAST
            )
    return found


def svg(found: Costs) -> Iterator[str]:
    """Yields the lines of a drawing, both axes logarithmic.

    Args:
        found: seconds by command and number of checkpoints.
    """
    sizes = sorted({size for told in found.values() for size in told})

    def across(size: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * math.log(size / sizes[0]) / math.log(
            sizes[-1] / sizes[0]
        )

    def down(seconds: float) -> float:
        return _TOP + (_HEIGHT - _TOP - _BOTTOM) * math.log(_MOST / seconds) / math.log(
            _MOST / _LEAST
        )

    yield f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}"'
    yield ' font-family="sans-serif" font-size="11">'
    yield f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>'
    for power in range(round(math.log10(_LEAST)), round(math.log10(_MOST)) + 1):
        y = down(10.0**power)
        yield f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>'
        yield f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{10.0**power:g} s</text>'
    for size in sizes:
        column = f"{across(size):.1f}"
        bottom = _HEIGHT - _BOTTOM
        yield f'<line x1="{column}" x2="{column}" y1="{_TOP}" y2="{bottom}" stroke="#ddd"/>'
        yield f'<text x="{column}" y="{bottom + 16}" text-anchor="middle">{size:,}</text>'
    middle = f"{(_LEFT + _WIDTH - _RIGHT) / 2:.0f}"
    yield f'<text x="{middle}" y="{_HEIGHT - 12}" text-anchor="middle">checkpoints</text>'
    by_end = sorted(found, key=lambda name: -found[name][max(found[name])])
    for row, name in enumerate(by_end):
        color, told = _COLORS[row % len(_COLORS)], sorted(found[name].items())
        points = " ".join(f"{across(size):.1f},{down(seconds):.1f}" for size, seconds in told)
        dashes = ' stroke-dasharray="4 3"' if name.startswith("git ") else ""
        y = _TOP + 14 + 17 * row
        yield f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="2"{dashes}/>'
        x = _WIDTH - _RIGHT + 12
        yield f'<line x1="{x}" x2="{x + 20}" y1="{y - 4}" y2="{y - 4}"'
        yield f' stroke="{color}" stroke-width="2"{dashes}/>'
        yield f'<text x="{x + 26}" y="{y}">{escape(name)}</text>'
    yield "</svg>"


if __name__ == "__main__":
    sys.stdout.writelines(f"{line}\n" for line in svg(costs(sys.stdin)))
