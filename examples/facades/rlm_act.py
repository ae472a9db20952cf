"""rlm-act's CheckpointManager, its six methods on gitckpt: to switch, import this one instead."""

import datetime as dt
from typing import Any

from gitckpt import Policy, Store

DAY = 86_400_000_000


class CheckpointManager:
    def __init__(self, project_path: str) -> None:
        self.store = Store.open(project_path)

    def write_checkpoint(
        self, state: dict[str, Any], phase: str, errors: list[str] | None = None
    ) -> str:
        return f"refs/checkpoints/{self.store.save(phase, state, errors=errors).id}"

    def detect_resumable_checkpoint(self) -> dict[str, Any] | None:
        found = self.store.latest_resumable()
        if found is None:
            return None
        plain = {
            "id": found.id,
            "phase": found.label,
            "timestamp": found.timestamp,
            "git_sha": found.git_sha,
        }
        return plain | {
            "state": dict(found.state),
            "errors": list(found.errors),
            "file_path": f"refs/checkpoints/{found.id}",
        }

    def load_checkpoint(self, file_path: str) -> dict[str, Any]:
        return dict(self.store.read(file_path.rpartition("/")[2]).state)

    def get_checkpoint_age_days(self, checkpoint: dict[str, Any]) -> int:
        try:
            return max(
                (dt.datetime.now(dt.UTC) - dt.datetime.fromisoformat(checkpoint["timestamp"])).days,
                0,
            )
        except (
            KeyError,
            TypeError,
            ValueError,
        ):  # no timestamp, none with an offset, or none at all
            return 0

    def cleanup_by_age(self, days: int) -> tuple[int, int]:
        age = max(days, 0) * DAY
        rules = Policy(
            age,
            age,
            keep_last=0,
            runs_older_than=age,
            safety_older_than=age,
            safety_keep_last=0,
            everything=True,
        )
        expired = self.store.expire(rules)
        return len(expired.checkpoints), len(expired.failed) + len(self.store.problems())

    def cleanup_all(self) -> tuple[int, int]:
        return self.cleanup_by_age(0)
