"""Report progress of one step repeatedly, and print the id of each checkpoint.

`test_recording.py` starts this program many times.
"""

from __future__ import annotations

import sys

from gitckpt import StepReport, Store
from gitckpt.durable.steps import journal
from gitckpt.durable.steps.report import PROGRESS
from gitckpt.git.repository import discover_repository
from gitckpt.store.checkpoints import Checkpoints
from gitckpt.store.store import checkpoints_of_store


def main() -> None:
    path, run, worker, count = sys.argv[1:]
    with Store(Checkpoints(discover_repository(path))) as store:
        for number in range(int(count)):
            said = StepReport(
                PROGRESS,
                "EXECUTE",
                task=f"1.{worker}",
                worker=worker,
                notes=f"{worker}/{number}",
                outputs=(f"{worker}/{number}",),
            )
            done = journal.record_report(
                checkpoints_of_store(store), journal.ReportTarget(run), said
            )
            sys.stdout.write(f"{done.checkpoint.id}\n")
            sys.stdout.flush()


main()
