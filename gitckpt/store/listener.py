"""Whoever a store speaks to while it works; by default nobody. Imported by all who record."""

from __future__ import annotations

from gitckpt.model.arguments import require_callable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gitckpt.store.config.looseness import Loosening


class Listener:
    """Somebody who is told things, and may be asked; for `Store.open`. What is called may come from any thread that uses the store.

    Args:
        tell: is told, a sentence at a time, what was done unasked (the log has it, too), and what of the settings does not apply.
        ask: is asked once whether `gitckpt.toml` may loosen what is built in; None means that nobody was there to ask.
        progress: is given a line to show for what takes long, which the next one replaces; "" ends it.

    Raises:
        UsageError: one of them is no function.
    """

    def __init__(
        self,
        tell: Callable[[str], object] = lambda _: None,
        ask: Callable[[Sequence[Loosening]], bool | None] = lambda _: None,
        progress: Callable[[str], object] = lambda _: None,
    ) -> None:
        for name, call in (("tell", tell), ("ask", ask), ("progress", progress)):
            require_callable(name, call)
        self.tell = tell
        self.ask = ask
        self.progress = progress
