"""Provide forge's State on gitckpt: new, load, list, cleanup and saved steps."""

from collections.abc import Callable
from typing import Any

from gitckpt import Policy, Store

STEPS = (
    "read plan",
    "generate branch",
    "create worktree",
    "run agent",
    "commit and push",
    "create pr",
)


class State:
    def __init__(self, store: Store, id: str, data: dict[str, Any]) -> None:
        self.store, self.id, self.data = store, id, data

    @classmethod
    def new(cls, store: Store, plan_path: str, slug: str) -> "State":
        data = {
            "plan_path": plan_path,
            "status": "active",
            "steps": [{"name": name, "status": "pending"} for name in STEPS],
        }
        return cls(
            store, str(store.save("run-started", data, start=slug, trigger="phase").run), data
        )

    @classmethod
    def load(cls, store: Store, id: str) -> "State":
        return cls(store, id, dict(store.history(id).newest.state))

    def run_step(self, index: int, action: Callable[[], None]) -> None:
        step = self.data["steps"][index]
        if step["status"] == "completed":
            return
        self._save(step, "running", f"{step['name']}-started")
        try:
            action()
        except Exception as error:
            self._save(step, "failed", f"{step['name']}-failed", error=str(error))
            raise
        self._save(
            step,
            "completed",
            f"{step['name']}-complete" if index + 1 < len(STEPS) else "run-complete",
        )

    def _save(self, step: dict[str, Any], status: str, label: str, **error: str) -> None:
        step.pop("error", None)
        step.update(status=status, **error)
        self.data["status"] = {"failed": "failed"}.get(
            status, "completed" if label == "run-complete" else "active"
        )
        self.store.save(label, self.data, run=self.id, trigger="phase", errors=list(error.values()))


def cleanup(store: Store, retention: int) -> list[str]:
    return [
        fate.run for fate in store.expire(Policy(runs_older_than=retention)).runs if fate.expires
    ]
