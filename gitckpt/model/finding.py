"""What an inspection reports."""

from __future__ import annotations

from gitckpt.model.values import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not as it should be.

    Attributes:
        code: stable name of the kind of finding, such as "hook-missing".
        object: the ref, file or setting it is about.
        sentence: what is wrong with it, for a person.
        cure: the command or line that mends it; None where nothing can be advised.
        repaired: whether it was mended just now.
    """

    code: str
    object: str
    sentence: str
    cure: str | None = None
    repaired: bool = False
