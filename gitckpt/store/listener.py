"""What a store calls to tell something while it works; by default nothing."""

from __future__ import annotations

from gitckpt.model.arguments import require_callable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


class Listener:
    """Functions that a store calls, from any thread that uses it; for `Store.open`.

    Args:
        tell: is told, a sentence at a time, what was done unasked (the log has it, too), and what of the settings does not apply.
        progress: is given a line to show for what takes long, which the next one replaces; "" ends it.

    Raises:
        UsageError: one of them is no function.
    """

    def __init__(
        self,
        tell: Callable[[str], object] = lambda _: None,
        progress: Callable[[str], object] = lambda _: None,
    ) -> None:
        for name, call in (("tell", tell), ("progress", progress)):
            require_callable(name, call)
        self.tell = tell
        self.progress = progress
