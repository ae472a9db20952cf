"""A driver whose lease somebody took over: its command is ended as soon as it finds out, and nothing more is written."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest

from gitckpt import LeaseLost, Pipelines, Query, RefMoved, Store
from gitckpt.durable.command import execution
from gitckpt.store.store import inside
from tests.conftest import Checkout
from tests.durable.command.commanding import comes, ends


def test_its_command_is_ended(
    plain: Store, main_checkout: Checkout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(execution, "_TICK", 0.05)
    pid = tmp_path / "pid"
    main_checkout.write(
        "gitckpt.toml",
        f"[[pipelines.ci.phases]]\nname = 'one'\nrun = \"echo $$ > {pid}; sleep 60; sleep 60\"\n",
    )

    def is_taken_over() -> bool:
        if not (pid.exists() and pid.read_text()):
            return False
        with Store.open(main_checkout.path, adapter="plumbing") as beside:
            leases = inside(beside).leases
            found = leases.read(beside.runs()[0].run)
            assert found is not None
            try:
                leases.swap(
                    replace(found[1], token=found[1].token + 1, holder="somebody in a hurry"),
                    found[0],
                )
            except RefMoved:
                return False  # it was renewed just now
            return True

    somebody = threading.Thread(target=comes, args=(is_taken_over,))
    somebody.start()
    with pytest.raises(LeaseLost, match="somebody in a hurry"):
        Pipelines(plain).run("ci")
    somebody.join()
    assert ends(int(pid.read_text()))
    assert [entry.label for entry in plain.list(Query(status="started"))] == [
        "one-started",
        "run-started",
    ]
    assert len(plain.list()) == 2
