"""Plain text, as any other command prints it: all of it is shown, and is the answer."""

from __future__ import annotations

import codecs

from gitckpt.durable.agent.dialect import Kept, sound

TEXT = "text"
"""The format of a client that prints no messages."""

CONVERSATIONS = ("conversation", "session", "thread", "rollout")
"""What any of them may call a conversation, as it says that it does not know one."""


class PlainText:
    """Text that comes in chunks, and may be cut in the middle of a character."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._kept = Kept()

    @property
    def text(self) -> str:
        """What came until now, the last `KEPT` characters of it."""
        return sound(self._kept.text())

    def feed(self, chunk: bytes, *, final: bool = False) -> str:
        """Takes in what follows, and returns it."""
        text = self._decoder.decode(chunk, final)
        self._kept.add(text)
        return text
