"""What every process carries that descends from a phase, unless it clears its environment: whose it is."""

from __future__ import annotations

import os

from gitckpt.model.values import dataclass
from gitckpt.store.leases.leases import FENCE_VARIABLE, RUN_VARIABLE

REPOSITORY_VARIABLE = "CKPT_REPOSITORY"
"""Environment of what a driver starts: the repository. The id of a run names it in one repository only, and a copy has the same ones."""

WATCHDOG_VARIABLE = "CKPT_WATCHDOG"
"""Environment of a watchdog and of what it starts for itself, which nobody shall take for a command of the phase: the driver's process."""

DIRECTORY_VARIABLE = "CKPT_DIRECTORY"
"""Environment of a watchdog: the common directory of the repository, where it looks for the lease."""

NAMES = (RUN_VARIABLE, FENCE_VARIABLE, REPOSITORY_VARIABLE, WATCHDOG_VARIABLE)


@dataclass(frozen=True, slots=True)
class Mark:
    """Whose a process is.

    Attributes:
        run: the run.
        token: that of the lease with which it is driven.
        directory: the common directory of the repository.
    """

    run: str
    token: int
    directory: str

    @property
    def variables(self) -> dict[str, str]:
        """What stands in the environment for it."""
        return {RUN_VARIABLE: self.run, FENCE_VARIABLE: str(self.token), REPOSITORY_VARIABLE: self.repository}

    @property
    def repository(self) -> str:
        """The repository by device and inode: they stay when it is moved, and are the same behind a link, and in a container."""
        status = os.stat(self.directory)
        return f"{status.st_dev}:{status.st_ino}"
