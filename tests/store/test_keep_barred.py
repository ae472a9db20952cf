"""What is in the way of the ref that keeps a commit, and what is trouble of another kind."""

from __future__ import annotations

import pytest

from gitckpt.git.process import GitError
from gitckpt.git.refs import LockHeld, RefMoved
from gitckpt.model.errors import BusyError, CkptError
from gitckpt.store.records.keep import is_barred
from gitckpt.store.records.layout import KEEP
from tests.conftest import Checkout

REF = f"{KEEP}{'a' * 40}"
BELOW = f"fatal: cannot lock ref '{REF}': '{REF}/x' exists; cannot create '{REF}'"


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (GitError(["update-ref"], 128, BELOW), True),
        (GitError(["update-ref"], 128, f"fatal: cannot lock ref '{REF}': '{KEEP}{'b' * 40}/x' exists; cannot create '{REF}'"), False),
        (GitError(["update-ref"], 128, f"fatal: cannot lock ref '{REF}/x': unable to write"), False),
        (GitError(["update-ref"], 128, f"error: /repo/.git/{REF}.lock"), False),
        (LockHeld(f"/repo/.git/{REF}.lock"), True),
        (LockHeld(f"/repo/.git/{REF}"), False),
        (LockHeld(f"/repo/.git/{KEEP}{'b' * 40}.lock"), False),
        (LockHeld(f"/repo/.git/x{REF}.lock"), False),
        (LockHeld("/repo/.git/packed-refs.lock"), False),
        (BusyError(BELOW), False),
        (CkptError(f"/{REF}.lock"), False),
        (RefMoved(f"/{REF}.lock"), False),
    ],
)
def test_what_bars_a_ref(error: CkptError, expected: bool) -> None:
    assert is_barred(REF, error) is expected


def test_it_is_what_git_says(main_checkout: Checkout) -> None:
    main_checkout.git("update-ref", f"{REF}/x", "HEAD")
    with pytest.raises(AssertionError) as caught:
        main_checkout.git("update-ref", REF, "HEAD")
    assert is_barred(REF, GitError(["update-ref"], 128, str(caught.value)))
