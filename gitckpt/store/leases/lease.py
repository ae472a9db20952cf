"""A lease: the document that says who drives a run, and the errors of whoever finds that somebody else does."""

from __future__ import annotations

import os
from collections.abc import Mapping

from gitckpt.git import host
from gitckpt.model import times, toml
from gitckpt.model.errors import BusyError, InvalidCheckpoint
from gitckpt.model.format import budget
from gitckpt.model.readers.fence import fenced
from gitckpt.model.readers.table import TableReader
from gitckpt.model.values import dataclass, field
from gitckpt.store.records import layout

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


LONGEST = 600 * times.MICRO
"""How long a lease counts at most after it was renewed, in microseconds, whatever it says: 20 times what lies between two renewals."""

MOST_TOKENS = 2**62
"""So many holders no run has; a larger token leaves no room for those that follow."""

_VERSION = 1
_INSTANTS = ("acquired", "renewed", "expires")
_TEXTS = ("run", "holder", "host", "boot", "namespace", "started", *_INSTANTS)


class LeaseHeld(BusyError):
    """Somebody who is alive drives the run."""


class LeaseLost(BusyError):
    """Somebody else drives the run by now; what was about to be written was not."""


@dataclass(frozen=True, slots=True)
class Lease:
    """Who drives a run. Field names are the keys of the document; instants are timestamps."""

    run: str
    token: int
    """Grows with every holder."""

    holder: str
    """What they are doing, for people."""

    host: str
    boot: str
    namespace: str
    pid: int
    started: str
    """When the process started, as `host.start_of` says it."""

    acquired: str
    renewed: str
    expires: str
    released: str | None = None
    cancelled: bool = False
    """Whether somebody asked the holder to stop."""

    unknown: Mapping[str, Any] = field(default_factory=dict)

    @property
    def end(self) -> int:
        """When it ends for those who cannot see its process, in microseconds since the epoch."""
        return min(times.from_text(self.expires), times.from_text(self.renewed) + LONGEST)

    def is_endless(self, now: int) -> bool:
        """Tells whether it says of itself what no driver says: that it is good for longer than `LONGEST`, or was renewed so far ahead.

        Args:
            now: the current instant, in microseconds since the epoch.
        """
        renewed = times.from_text(self.renewed)
        return self.released is None and (times.from_text(self.expires) - renewed > LONGEST or renewed - now > LONGEST)

    @property
    def is_here(self) -> bool:
        """Whether its process, if there still is one, is among those that this process can see."""
        here = host.here()
        return (self.host, self.boot, self.namespace) == (here.name, here.boot, here.namespace)

    @property
    def is_ours(self) -> bool:
        """Whether this very process took it."""
        return self.is_here and self.pid == os.getpid()

    def sentence(self) -> str:
        """Names the holder, for people."""
        return f"{self.holder} on {self.host}, process {self.pid}, which last said so at {self.renewed}"


def render(lease: Lease) -> bytes:
    """Returns the document of a lease."""
    found: dict[str, Any] = {"version": _VERSION}
    for name in Lease.__slots__:
        value = getattr(lease, name)
        if name != "unknown" and value is not None and value is not False:
            found[name] = value
    return toml.dumps(found | dict(lease.unknown), budget.RECORD).encode()


def parse(data: bytes, ref: str) -> Lease:
    """Returns the lease of a document.

    Args:
        data: the blob.
        ref: full name of the ref it was found at; its last part must be the run.

    Raises:
        InvalidCheckpoint: it is none; ref and key are named.
    """
    return fenced(ref, lambda: _parsed(data, ref))


def _parsed(data: bytes, ref: str) -> Lease:
    try:
        budget.require_size(len(data), budget.RECORD)
        found = toml.loads(data.decode("utf-8"), budget.RECORD)
    except ValueError as error:
        raise InvalidCheckpoint(ref, "", f"not a lease: {error}") from None

    take = _Reader(found, ref)
    if take.required("version", int) > _VERSION:
        raise InvalidCheckpoint(ref, "version", "written by a newer gitckpt", hint="upgrade gitckpt: pip install -U gitckpt")
    texts = {key: take.required(key, str) for key in _TEXTS}
    for key in _INSTANTS:
        take.instant(key)
    if layout.LEASES + texts["run"] != ref:
        raise InvalidCheckpoint(ref, "run", f"{texts['run']} is not the ref's name")
    token, pid = take.required("token", int), take.required("pid", int)
    if not 0 < token < MOST_TOKENS:
        raise InvalidCheckpoint(ref, "token", f"{token} is no token: 1 to 2^62 - 1")
    released, cancelled = take.optional("released", str), take.flag("cancelled")
    return Lease(token=token, pid=pid, released=released, cancelled=cancelled, unknown=take.rest, **texts)


class _Reader(TableReader):
    """Its errors call types by the names that Python has for them."""

    kinds: Mapping[type, str] = {kind: kind.__name__ for kind in TableReader.kinds}


def lost(run: str, lease: Lease | None, why: str = "removed") -> LeaseLost:
    """Returns the error that a lease is not ours any more: whose it is, or why there is none."""
    who = f"taken over by {lease.sentence()}" if lease else why
    return LeaseLost(f"the lease of run {run} was {who}; nothing more is written", hint=f"see what became of it: git ckpt status {run}")
