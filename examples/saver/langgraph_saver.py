"""Save LangGraph checkpoints in a git repository, each superstep with its files.

    with Store.open() as store:
        graph = builder.compile(checkpointer=GitSaver(store))

A thread is a run of gitckpt, found by its key. Supersteps and writes of tasks are checkpoints.
`git ckpt list --run RUN` shows them, `git ckpt restore ID` brings the files of one back.
"""

import asyncio

from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    CheckpointTuple,
    get_checkpoint_metadata,
)

from gitckpt import Query, RunExists

STEP, WRITES = "superstep-complete", "writes-progress"


class GitSaver(BaseCheckpointSaver):
    def __init__(self, store, *, serde=None):
        super().__init__(serde=serde)
        self.store = store

    def put(self, config, checkpoint, metadata, new_versions):
        place = _place(config)
        kept = {
            "checkpoint": self._dump(checkpoint),
            "metadata": self._dump(get_checkpoint_metadata(config, metadata)),
        }
        self._keep(
            self.store.save, STEP, {**place, **kept, "id": checkpoint["id"], "parent": place["id"]}
        )
        return _config({**place, "id": checkpoint["id"]})

    def put_writes(self, config, writes, task_id, task_path=""):
        numbered = [
            [WRITES_IDX_MAP.get(name, at), name, self._dump(value)]
            for at, (name, value) in enumerate(writes)
        ]
        self._keep(
            self.store.record,
            WRITES,
            {**_place(config), "task": task_id, "path": task_path, "writes": numbered},
        )

    def _keep(self, write, phase, state):
        """Extend or start the run of a thread; its message identifies the checkpoint."""
        key, about = (
            _key(state["thread"]),
            {"message": f"{state['id']} {state['ns']}".strip(), "agent": "langgraph"},
        )
        run = self.store.run_of(key)
        try:
            write(
                phase,
                state,
                **about,
                **({"run": run} if run else {"start": f"thread {state['thread']}", "key": key}),
            )
        except RunExists as error:  # another task, or process, was the first
            write(phase, state, **about, run=error.run)

    def get_tuple(self, config):
        return next(
            self.list(_config(_place(config)), limit=1), None
        )  # of the graph itself, where no subgraph is named

    def list(self, config, *, filter=None, before=None, limit=None):
        place, thread_only = (
            (_place(config), "checkpoint_ns" not in config["configurable"])
            if config
            else ({}, True)
        )
        run = self.store.run_of(_key(place["thread"])) if config else None
        if config and run is None:
            return
        found = [each for each in self.store.list(Query(run=run)) if each.agent == "langgraph"]
        for entry in sorted(
            found, key=lambda each: each.message, reverse=True
        ):  # ids of LangGraph go up
            name = entry.message.partition(" ")[::2]
            if (
                entry.label != STEP
                or (place.get("id") and name[0] != place["id"])
                or not (thread_only or name[1] == place["ns"])
            ):
                continue
            if before and name[0] >= before["configurable"]["checkpoint_id"]:
                continue
            state = self.store.read(entry.id).state
            metadata = self._load(state["metadata"])
            if any(metadata.get(key) != value for key, value in (filter or {}).items()):
                continue
            if limit is not None and (limit := limit - 1) < 0:
                return
            ids = [
                each.id
                for each in found
                if (each.label, each.run, each.message) == (WRITES, entry.run, entry.message)
            ]
            parent = _config({**state, "id": state["parent"]}) if state["parent"] else None
            yield CheckpointTuple(
                _config(state), self._load(state["checkpoint"]), metadata, parent, self._writes(ids)
            )

    def _writes(self, ids):
        """Return the writes of a superstep; a repeated task replaces its errors."""
        found = {}
        for state in (self.store.read(each).state for each in reversed(ids)):
            for at, name, value in state["writes"]:
                key = (state["path"], state["task"], at)
                if at < 0 or key not in found:
                    found[key] = (state["task"], name, self._load(value))
        return [found[key] for key in sorted(found)]

    def delete_thread(self, thread_id):
        run = self.store.run_of(_key(thread_id))
        if run is not None:
            self.store.remove([entry.id for entry in self.store.list(Query(run=run))])

    def _dump(self, value):
        return list(self.serde.dumps_typed(value))

    def _load(self, typed):
        return self.serde.loads_typed(tuple(typed))

    async def aput(self, *args):
        return await asyncio.to_thread(self.put, *args)

    async def aput_writes(self, *args, **more):
        await asyncio.to_thread(self.put_writes, *args, **more)

    async def aget_tuple(self, config):
        return await asyncio.to_thread(self.get_tuple, config)

    async def alist(self, config, **more):
        for each in await asyncio.to_thread(lambda: list(self.list(config, **more))):
            yield each

    async def adelete_thread(self, thread_id):
        await asyncio.to_thread(self.delete_thread, thread_id)


def _place(config):
    said = config["configurable"]
    return {
        "thread": str(said["thread_id"]),
        "ns": said.get("checkpoint_ns", ""),
        "id": said.get("checkpoint_id", ""),
    }


def _config(place):
    return {
        "configurable": {
            "thread_id": place["thread"],
            "checkpoint_ns": place["ns"],
            "checkpoint_id": place["id"],
        }
    }


def _key(thread):
    return f"langgraph {thread}"
