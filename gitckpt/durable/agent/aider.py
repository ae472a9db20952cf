"""aider: how it is called, and what it says of tokens and costs. It prints text, for people; what it has changed it commits itself."""

from __future__ import annotations

import re
from collections.abc import Sequence

NAME = "aider"
COMMAND = "aider --yes-always --no-pretty --no-stream --no-check-update --no-show-release-notes --message"
"""Takes the prompt as the argument of `--message`, and ends when it has answered."""

_MESSAGE = ("--message", "--msg", "-m")
_USAGE = re.compile(r"^Tokens: ([\d.,]+)([kM]?) sent,(?: [\d.,kM]+ cache (?:write|hit),)* ([\d.,]+)([kM]?) received\.(.*)$", re.MULTILINE)
_COST = re.compile(r"\$(\d{1,6}(?:\.\d{1,9})?) message")
_UNITS = {"": 1, "k": 1000, "M": 1_000_000}
_FAILED = re.compile(r"^(litellm\.\w*Error: .+)$", re.MULTILINE)


def takes_argument(words: Sequence[str]) -> bool:
    """Tells whether a command of it, in words, ends with the option whose argument the prompt is."""
    return bool(words) and words[-1] in _MESSAGE


def usage(said: str) -> tuple[dict[str, int], float | None]:
    """Returns what a call took: tokens, "input" and "output", rounded as it rounds them; and US dollars, None where it has no price.

    Args:
        said: what it printed.
    """
    tokens: dict[str, int] = {}
    cost = None
    for sent, unit, received, its_unit, rest in _USAGE.findall(said):
        for kind, number, scale in (("input", sent, unit), ("output", received, its_unit)):
            tokens[kind] = tokens.get(kind, 0) + _count(number, scale)
        price = _COST.search(rest)
        cost = (cost or 0.0) + float(price[1]) if price is not None else cost
    return tokens, cost


def failure(said: str) -> str | None:
    """Returns why its model did not answer, on one line; None where it did in the end. Its exit code is 0 either way.

    Args:
        said: what it printed.
    """
    failures = list(_FAILED.finditer(said))
    return failures[-1][1] if failures and _USAGE.search(said, failures[-1].end()) is None else None


def _count(number: str, scale: str) -> int:
    try:
        return min(int(float(number.replace(",", "")) * _UNITS[scale]), 1_000_000_000)
    except ValueError:
        return 0
