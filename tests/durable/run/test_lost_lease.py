"""A driver that lost its lease ends its command and writes nothing more."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from gitckpt import LeaseLost, Pipelines, Query, RefMoved, Store
from tests import planted
from tests.conftest import Checkout
from tests.durable.command.commanding import comes, ends
from tests.planted import plant
from tests.stores import change_lease


def test_its_command_is_ended(
    plain: Store, main_checkout: Checkout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch, planted.COMMAND_TICK, 0.05)
    pid = tmp_path / "pid"
    main_checkout.write(
        "gitckpt.toml",
        f"[[pipelines.ci.phases]]\nname = 'one'\nrun = \"echo $$ > {pid}; sleep 60; sleep 60\"\n",
    )

    def is_taken_over() -> bool:
        if not (pid.exists() and pid.read_text()):
            return False
        with Store.open(main_checkout.path, adapter="plumbing") as beside:
            run = beside.runs()[0]
            assert run.lease is not None
            token = run.lease.token + 1
            try:
                change_lease(beside, run.run, token=token, holder="another driver")
            except RefMoved:
                return False  # it was renewed just now
            return True

    somebody = threading.Thread(target=comes, args=(is_taken_over,))
    somebody.start()
    with pytest.raises(LeaseLost, match="another driver"):
        Pipelines(plain).run("ci")
    somebody.join()
    assert ends(int(pid.read_text()))
    assert [entry.label for entry in plain.list(Query(status="started"))] == [
        "one-started",
        "run-started",
    ]
    assert len(plain.list()) == 2
