"""Looks whether a driver that says nothing, because it is stopped perhaps, still has the lease that its environment names."""

from __future__ import annotations

import os

from gitckpt.durable.command.mark import DIRECTORY_VARIABLE
from gitckpt.durable.command.supervisor import LOST
from gitckpt.git.command import Git
from gitckpt.model.errors import CkptError
from gitckpt.store.leases import lease
from gitckpt.store.leases.leases import FENCE_VARIABLE, RUN_VARIABLE
from gitckpt.store.records import layout

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn


def main(_: list[str]) -> NoReturn:
    """Exits with `LOST` if the lease is not the driver's any more; with 0 if it is; with 1 if that cannot be told."""
    try:
        code = 0 if is_held(os.environ[DIRECTORY_VARIABLE], os.environ[RUN_VARIABLE], int(os.environ[FENCE_VARIABLE])) else LOST
    except CkptError:
        code = 1  # the next look may say more; a driver that lives sees it as well
    os._exit(code)


def is_held(directory: str, run: str, token: int) -> bool:
    """Tells whether the lease of a run is still the one with a token.

    Args:
        directory: the common directory of the repository.
        token: that of the lease.

    Raises:
        CkptError: git cannot tell.
    """
    git, ref = Git(directory, None), layout.LEASES + run
    oid = git.text("for-each-ref", "--format=%(objectname)", ref)
    return bool(oid) and lease.parse(git.run("cat-file", "blob", oid).out, ref).token == token
