"""The hooks that gitckpt listens to. Free of imports: whoever only needs their names pays for nothing else."""

PRE_COMMIT_ARGUMENTS = {
    "post-commit": "",
    "post-merge": "PRE_COMMIT_IS_SQUASH_MERGE",
    "post-applypatch": None,
    "post-rewrite": "PRE_COMMIT_REWRITE_COMMAND",
    "pre-auto-gc": None,
}
"""Event, as git calls it → the variable in which pre-commit hands on its argument: "" for none, None for an event it does not know."""

EVENTS = tuple(PRE_COMMIT_ARGUMENTS)
"""What is done at each, `gitckpt.hook` says."""

ANY = f"{', '.join(EVENTS[:-1])} or {EVENTS[-1]}"
"""All of them, as a sentence names them."""
