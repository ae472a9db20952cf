"""What keeps a store in order: set up, examined, verified, measured, and rid of what is old. A part of `Store`."""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from types import NoneType

from gitckpt.model.arguments import require, require_callable, require_path, require_text, strings
from gitckpt.model.errors import BusyError
from gitckpt.store.checkpoints import Checkpoints

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from gitckpt.model.policy import Policy
    from gitckpt.store.audit.doctor import Diagnosis
    from gitckpt.store.audit.verification import Report
    from gitckpt.store.config.settings import Loosening
    from gitckpt.store.hooks.installation import Installation
    from gitckpt.store.retention.expiry import Expired
    from gitckpt.store.usage.usage import Usage


class Upkeep:
    """What can be done with all checkpoints of a repository at once, and with the installation; programs take `Store`."""

    def __init__(self, checkpoints: Checkpoints) -> None:
        self._checkpoints = checkpoints

    def policy(self) -> Policy:
        """Returns what `expire` goes by: the policy of `gitckpt.toml` and of git's configuration, or else the built-in one.

        What `gitckpt.toml` loosens counts once it is allowed. For another value: `dataclasses.replace(store.policy(), keep_last=5)`.
        Where the settings have a mistake, the values that keep the longest apply, and the
        listener is told.
        """
        return self._checkpoints.rules.read().policy

    def expire(self, policy: Policy | None = None, *, dry_run: bool = False, progress: Callable[[str], None] = lambda _: None) -> Expired:
        """Removes the checkpoints and runs that a policy lets go.

        A run goes as a whole, with its worktree, if a checkpoint holds all that is in the worktree; if not, it stays. A checkpoint that
        cannot be deleted, as when somebody holds a lock of its ref, is among those that `failed`; the others go.

        Args:
            policy: the rules; by default those of the settings, as `policy` returns them.
            dry_run: whether to decide only.
            progress: is told how far it has come, in a few words, now and then.

        Raises:
            BusyError: somebody was faster, or holds a lock; what was removed until then stays removed, the rest is whole.
            UsageError: the policy is none.
        """
        from gitckpt.model.policy import Policy
        from gitckpt.store.retention import expiry, maintenance

        require("policy", policy, (Policy, NoneType), "a Policy")
        require_callable("progress", progress)
        inside = self._checkpoints
        found = expiry.expire(inside, policy or self.policy(), dry_run=dry_run, progress=progress)
        if not dry_run:
            maintenance.pack(inside.repository)
        return found

    def settle(self, what: str) -> bool:
        """Settles that something which looked like a secret is none: no checkpoint names it as a suspect from now on.

        Args:
            what: a digest, as `worktree.suspects` has it, or the path of a file relative to the top of the worktree.

        Returns:
            Whether it is new.

        Raises:
            UsageError: it is empty, or no string.
            CkptError: it cannot be noted.
        """
        from gitckpt.store.secrets.settled import Settled

        require_text("what", what)
        require_path("what", what)
        return Settled(self._checkpoints.repository).settle(what)

    def loosened(self) -> Loosening | None:
        """Return what `gitckpt.toml` of this worktree loosens; None where nothing.

        Values of `git config ckpt.*`, and those that a program passes, are its user's own.

        Raises:
            UsageError: the settings have a mistake.
        """
        from gitckpt.store.config import settings

        found = settings.read(self._checkpoints.repository)
        found.require_correct()
        return found.loosened

    def allow(self, loosened: Loosening) -> None:
        """Allow these values in all worktrees of this clone, until one of them changes.

        Args:
            loosened: what `loosened` returned.

        Raises:
            UsageError: it is something else.
            CkptError: it cannot be written.
        """
        from gitckpt.store.config import approval
        from gitckpt.store.config.settings import Loosening

        require("loosened", loosened, Loosening, "what Store.loosened returned")
        approval.note(self._checkpoints.repository, [loosened.digest])

    def disallow(self) -> bool:
        """Allow nothing any more in this clone; tell whether anything was allowed.

        Raises:
            CkptError: it cannot be written.
        """
        from gitckpt.store.config import approval

        return approval.forget(self._checkpoints.repository)

    def verify(
        self,
        *,
        repair: bool = False,
        contents: bool = False,
        only: Collection[str] | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> Report:
        """Looks at every checkpoint and all it needs.

        Args:
            repair: whether to mend what is derived, and objects whose content is elsewhere; no checkpoint and no worktree is ever changed.
            contents: whether to read every object of the repository.
            only: full ids of checkpoints and runs to look at, without the history of their commits.
            progress: told how many of how many objects were read, now and then.

        Raises:
            BusyError: a lock stayed in the way of mending.
        """
        from gitckpt.store.audit import verification

        require_callable("progress", progress, may_be_none=True)
        if repair:
            with contextlib.suppress(BusyError):  # what waits is no flaw
                self._checkpoints.write_links()
        if only is not None:
            only = strings("only", only)
        return verification.verify(self._checkpoints, repair=repair, contents=contents, only=only, progress=progress)

    def write_notes(self, *, only_if_due: bool = False) -> bool:
        """Writes the notes by which `git log --notes=checkpoints` shows the checkpoints of each commit.

        `record`, `save`, `git ckpt list` and maintenance do so where no notes were written in the last minute. Nothing else depends on
        them: `list`, `links` and `find` know all checkpoints.

        Args:
            only_if_due: whether to write only where something has waited for a minute; a failure is then for the log.

        Returns:
            Whether anything was written.

        Raises:
            BusyError: another process was faster, or holds a lock; what waits goes on waiting.
            GitError: git refused.
        """
        return self._checkpoints.write_due_links() if only_if_due else self._checkpoints.write_links()

    def examine(self) -> Diagnosis:
        """Looks at the installation: git, hooks, settings, locks, and refs that are no checkpoints. Changes nothing."""
        from gitckpt.store.audit import doctor

        return doctor.diagnose(self._checkpoints)

    def usage(self) -> Usage:
        """Measures what the checkpoints take on the disk, with worktrees, derived files, and what lies around. Changes nothing."""
        from gitckpt.store.usage import usage

        return usage.measure(self._checkpoints)

    def install(self, hooks: str = "auto") -> Installation:
        """Lets every commit record a checkpoint: installs hooks, settings and `gitckpt.toml`; again, it mends them.

        Args:
            hooks: how git calls gitckpt: "config", "files", "external" (somebody adds the lines that `advice` names), "none", or "auto".

        Raises:
            UsageError: there is no such way; nothing was changed.
            CkptError: something cannot be written.
        """
        from gitckpt.store import setup

        return setup.install(self._checkpoints.repository, hooks)

    def outlook(self) -> str:
        """Returns what becomes of the next commit: "recorded"; "missed", where a person has to do something first; "none", where hooks
        were not wanted; or "not installed".

        Raises:
            RepositoryError: a hook file cannot be read, or there is no git.
        """
        from gitckpt.git.command import require_git
        from gitckpt.store.hooks import installation

        return installation.outlook(self._checkpoints.repository, version=require_git())

    def uninstall(self) -> Installation:
        """Takes out what `install` put in. Checkpoints, and other people's text in hooks, stay.

        Raises:
            CkptError: a file or the configuration cannot be written.
        """
        from gitckpt.store import setup

        return setup.uninstall(self._checkpoints.repository)
