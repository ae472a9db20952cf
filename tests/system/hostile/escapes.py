"""Build repositories in which every text is full of terminal escapes.

There is one function for each place of such text. Each takes a checkout, and uses git's own
commands, as a fetch could.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from gitckpt import Attempt, Checkpoint, Pipeline, Progress, Worktree
from gitckpt.git import filesystem
from gitckpt.model import codec
from gitckpt.model.checkpoint import Omitted, Submodule
from gitckpt.store.leases import leases
from tests.conftest import Checkout

ESCAPES = (
    "\x1b]0;title\x07\x1b[2J\x1b[35m\u202e\u2066\u200f\x9b35m\x9d0;c1\x9c\x7f\r\n"
    "\x08\x0b\x00\u2028\ufeff"
)
ESCAPES += "'; touch owned; '$(touch owned)`touch owned`"
"""Escapes for the terminal and quotes for the shell.

Title, clearing and color; overrides of the direction; the same as C1 controls; DEL, CR, LF, BS, VT
and NUL.
"""

REF_ESCAPES = "\u202e\u2066\x9b35m\x9d0;c1\x9c\u2028'$(touch-owned)`touch-owned`;touch-owned"
"""The escapes that git allows in the name of a ref."""

FILE_ESCAPES = ESCAPES.replace("\x00", "").replace("/", "")
"""The escapes that the name of a file may contain."""

OWN = re.compile(
    r"\x1b\[(?:0|1|2|31|32|33|34|36|95|1;3[1-6]|1;95)m|\r?\x1b\[K|\x1b\[J|\x1b\[H|\x1b\[\?(?:25|1049)[hl]"
)
"""The escapes of gitckpt's own output: styles, erased lines, and the other screen."""

RUN, FREE_RUN = "20261121-201500-hostile", "20261121-201600-free"
FIRST, SECOND, THIRD = (
    f"{digit * 8}-{digit * 4}-4{digit * 3}-8{digit * 3}-{digit * 12}" for digit in "123"
)
TIME = "2026-11-21T20:15:0{}.123456Z"
CONSTRAINED = {
    *(
        "id",
        "run",
        "parent",
        "timestamp",
        "git_sha",
        "trigger",
        "forked_from",
        "rewound_to",
        "worktree.tree",
        "worktree.operation_commit",
    ),
    *("worktree.omitted.oid", "worktree.submodules.checkpoint", "worktree.submodules.git_sha"),
    *("pipeline.deadline", "pipeline.completed", "attempt.began", "attempt.retry_at"),
}
"""The texts of a document that a reader validates: ids, oids, times."""


class Planted(NamedTuple):
    """The ids and runs that were made hostile."""

    ids: tuple[str, ...]
    runs: tuple[str, ...]


def strange(text: str) -> list[str]:
    """Return the escapes in an output, except for gitckpt's own."""
    return sorted({c for c in OWN.sub("", text) if not c.isprintable() and c not in "\n\t"})


def texts(document: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield every text of a document, with the names that lead to it.

    Keys that the document may choose freely are left out of the names.
    """
    if isinstance(document, str):
        yield path, document
    elif isinstance(document, Mapping):
        for key, value in document.items():
            yield from texts(
                value, f"{path}.{key}".lstrip(".") if re.fullmatch("[a-z_]+", key) else path
            )
    elif isinstance(document, (list, tuple)):
        for value in document:
            yield from texts(value, path)


def documents_full_of_escapes(checkout: Checkout) -> Planted:
    """Write checkpoints with escapes in every text.

    Two belong to a run that claims to be driven, one to another run, and one to no run.
    """
    tree = _snapshot(checkout)
    head = checkout.git("rev-parse", "HEAD")
    first = full_document(FIRST, RUN, 1, tree, head)
    second = replace(
        full_document(SECOND, RUN, 2, tree, head), parent=FIRST, timestamp=TIME.format(2)
    )
    free = replace(full_document(THIRD, FREE_RUN, 1, tree, head), timestamp=TIME.format(3))
    free = replace(free, pipeline=replace(free.pipeline, name=None) if free.pipeline else None)
    for checkpoint in (first, second, free):
        _plant(checkout, f"refs/checkpoints/{checkpoint.id}", codec.encode(checkpoint))
        checkout.git("update-ref", f"refs/ckpt/trees/{checkpoint.id}", tree)
        checkout.git(
            "update-ref", f"refs/ckpt/runs/{checkpoint.run}", f"refs/checkpoints/{checkpoint.id}"
        )
    checkout.git("update-ref", f"refs/keep/ckpt/{head}", head)
    note = "".join(
        f"{each.id} {ESCAPES[:40]} {each.timestamp}\n" for each in (first, second)
    ).replace("\x00", "")
    checkout.git("notes", "--ref=checkpoints", "add", "--force", "--file=-", data=note)
    return Planted((FIRST, SECOND, THIRD), (RUN, FREE_RUN))


def full_document(id_: str, run: str, sequence: int, tree: str, head: str) -> Checkpoint:
    """Return a checkpoint with escapes in every text that may be chosen freely."""
    key = f"key {ESCAPES}"
    return Checkpoint(
        id=id_,
        label=f"{ESCAPES}-blocked",
        timestamp=TIME.format(1),
        git_sha=head,
        trigger="phase",
        run=run,
        sequence=sequence,
        branch=ESCAPES,
        message=ESCAPES,
        agent=ESCAPES,
        errors=(ESCAPES, ESCAPES),
        worktree=Worktree(
            dirty=True,
            tree=tree,
            operation=ESCAPES,
            omitted=(Omitted(ESCAPES, ESCAPES, 3, head, dirty=True, unknown={"more": ESCAPES}),),
            submodules=(Submodule(ESCAPES, SECOND, head, dirty=True, unknown={"more": ESCAPES}),),
            converted=(ESCAPES,),
            degraded=ESCAPES,
            unknown={"more": ESCAPES},
        ),
        progress=Progress(1, 3, ESCAPES, 1, 2, unknown={"more": ESCAPES}),
        pipeline=Pipeline(
            name=ESCAPES,
            phases=(ESCAPES, f"{ESCAPES} again"),
            completed={key: FIRST},
            autonomy=ESCAPES,
            deadline="2026-11-21T20:15:00Z",
            definition={key: ESCAPES},
            inputs={key: ESCAPES, "plan": ESCAPES},
            contents={"plan": ESCAPES},
            unknown={"more": ESCAPES},
        ),
        attempt=Attempt(
            phase=ESCAPES,
            number=2,
            ended=ESCAPES,
            exit_code=1,
            seconds=0.5,
            output=f"{ESCAPES}\n{ESCAPES}\n",
            result=ESCAPES,
            inputs={key: ESCAPES},
            unknown={"more": ESCAPES},
        ),
        state={
            key: ESCAPES,
            "steps": {key: ESCAPES},
            "list": [ESCAPES, {key: ESCAPES}],
            "long": ESCAPES * 3,
        },
        unknown={"more": ESCAPES},
    )


def lease_full_of_escapes(checkout: Checkout, run: str = RUN) -> None:
    """Write a lease by which another machine drives a run for ever."""
    then = TIME.format(1)
    where = f"{ESCAPES}{filesystem.this_host().name}"
    held = leases.Lease(
        run,
        1,
        ESCAPES,
        where,
        ESCAPES,
        ESCAPES,
        1,
        ESCAPES,
        acquired=then,
        renewed=then,
        expires="9999-01-01T00:00:00Z",
    )
    _plant(checkout, f"refs/ckpt/leases/{run}", leases.render_lease(held))


def invalid_documents(checkout: Checkout) -> None:
    """Write invalid documents, with escapes where the error quotes them.

    The name of one ref has escapes, too.
    """
    digits = iter("456789abcd")
    for text in (
        f"version = 1\nid = '{REF_ESCAPES.replace(chr(39), '')}'\n",
        "version = 1\n" + '"\\u001b]0;x\\u0007\\u009b35m" = \x1b\n',
        'version = "\\u001b[2J\\u202e\\u009b35m\\u007f\\r"\n',
        codec.encode(full_document(FIRST, RUN, 1, "0" * 40, "0" * 40))
        .decode()
        .replace("dirty = true", 'dirty = "\\u001b[35m\\u202e"', 1),
    ):
        digit = next(digits)
        _plant(
            checkout,
            f"refs/checkpoints/{digit * 8}-{digit * 4}-4{digit * 3}-8{digit * 3}-{digit * 12}",
            text.encode(),
        )
    for name in (
        "refs/checkpoints/",
        "refs/ckpt/runs/",
        "refs/ckpt/trees/",
        "refs/ckpt/leases/",
        "refs/keep/ckpt/",
    ):
        _plant(checkout, name + REF_ESCAPES, b"\x1b[2J")


def history_full_of_escapes(checkout: Checkout) -> None:
    """Make a branch, a commit and files with escapes in their names."""
    checkout.git("checkout", "--quiet", "-b", REF_ESCAPES)
    checkout.write(FILE_ESCAPES.replace("/", ""), f"{ESCAPES}\nanother\n")
    checkout.git("add", "--all")
    checkout.git("commit", "--quiet", "--file=-", data=FILE_ESCAPES)


def settings_full_of_escapes(checkout: Checkout) -> None:
    """Write an invalid `gitckpt.toml` with escapes in its keys and values."""
    bad = '"\\u001b]0;t\\u0007\\u001b[2J\\u202e\\u009b35m\\u007f\\r\\n"'
    checkout.write(
        "gitckpt.toml",
        f"{bad} = 1\n[retention]\n{bad} = 1\nolder_than = {bad}\n[snapshot]\nsecrets = [{bad}]\n"
        f"[pipelines.{bad}]\n{bad} = 1\n[[pipelines.{bad}.phases]]\nname = {bad}\nrun = {bad}\n",
    )


def _plant(checkout: Checkout, ref: str, data: bytes) -> None:
    checkout.git("update-ref", ref, checkout.git("hash-object", "-w", "--stdin", data=data))


def _snapshot(checkout: Checkout) -> str:
    """Write a snapshot with escapes in all names and modes; return its tree."""
    name = FILE_ESCAPES
    blob = checkout.git("hash-object", "-w", "--stdin", data=f"{ESCAPES}\n")
    files = _tree(checkout, f"100644 blob {blob}\t{name}\x00100644 blob {blob}\tplain\0")
    beside = _tree(checkout, f"040000 tree {files}\tinput\x00040000 tree {files}\toutput\0")
    names = os.fsencode(name)
    listed = checkout.git("hash-object", "-w", "--stdin", data=names + b"/\0")
    modes = checkout.git("hash-object", "-w", "--stdin", data=b"600 " + names + b"\0")
    entries = (
        f"040000 tree {files}\tfiles\x00040000 tree {files}\traw\x00040000 tree {beside}\trun\0"
    )
    return _tree(
        checkout, entries + f"100644 blob {listed}\tdirectories\x00100644 blob {modes}\tmodes\0"
    )


def _tree(checkout: Checkout, entries: str) -> str:
    return checkout.git("mktree", "-z", data=entries)
