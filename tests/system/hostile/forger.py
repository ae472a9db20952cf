"""Forge refs by plain git, and let a victim fetch them: one function an attack.

The victim fetches every ref of the attacker's repository. The attacker knows the victim's pipelines
from a branch, and so their digests, but nothing of the victim's private directory.
"""

from __future__ import annotations

import uuid
from pathlib import Path

from gitckpt.durable.driver.driver import OPTIONS
from gitckpt.durable.pipeline import definition as file
from gitckpt.git.objects.encoding import DIRECTORY, encode_tree
from tests.conftest import Checkout

FETCHED = ("refs/ckpt/*:refs/ckpt/*", "refs/checkpoints/*:refs/checkpoints/*")
"""The refspecs of a user who fetches other users' checkpoints."""

FORGED = "20990101-000000-forged"
LATE = "2099-01-01T00:00:00.000000Z"


class Forger:
    """An attacker with a repository that the victim fetches from.

    Args:
        victim: the checkout whose refs and branches the attacker has.
        place: where the repository is made.

    Attributes:
        checkout: the repository.
        commit: the HEAD of the repository: the victim's files, and others as needed.
    """

    def __init__(self, victim: Checkout, place: Path) -> None:
        self.victim = victim
        self.checkout = Checkout(place)
        victim.git("clone", "--quiet", "--no-local", str(victim.path), str(place))
        self.checkout.git("fetch", "--quiet", "origin", *FETCHED)

    @property
    def commit(self) -> str:
        return self.checkout.head()

    def blob(self, text: str) -> str:
        """Store a blob, and return its oid."""
        return self.checkout.git("hash-object", "-w", "--stdin", data=text)

    def point(self, ref: str, oid: str) -> None:
        """Point a ref to an object."""
        self.checkout.git("update-ref", ref, oid)

    def documented(
        self, text: str, *, checkpoint: str, run: str | None = None, tree: str | None = None
    ) -> str:
        """Store a document with the refs of a checkpoint; return the oid of its blob.

        With `run`, the checkpoint becomes the newest of that run.
        """
        oid = self.blob(text)
        self.point(f"refs/checkpoints/{checkpoint}", oid)
        if run is not None:
            self.point(f"refs/ckpt/runs/{run}", oid)
        if tree is not None:
            self.point(f"refs/ckpt/trees/{checkpoint}", tree)
        return oid

    def fetched(self, *, over: bool = False) -> None:
        """Let the victim fetch everything.

        Args:
            over: whether the fetch replaces the victim's own refs.
        """
        specs = [f"+{spec}" for spec in FETCHED] if over else FETCHED
        self.victim.git("fetch", "--quiet", "--no-tags", str(self.checkout.path), *specs, ok=(0, 1))

    def head(self, run: str) -> str:
        """Return the document of the newest checkpoint of a run."""
        return self.checkout.git("cat-file", "blob", f"refs/ckpt/runs/{run}") + "\n"


def fresh() -> str:
    """Return a new id of a checkpoint."""
    return str(uuid.uuid4())


def digests(forger: Forger, pipeline: str) -> str:
    """Return the table `pipeline.definition`, computed from the branch."""
    definition = file.read_pipeline(str(forger.checkout.path / "gitckpt.toml"), pipeline, OPTIONS)
    return "[pipeline.definition]\n" + "".join(
        f'"{name}" = "{value}"\n' for name, value in definition.value_digests().items()
    )


def run_of_2099(
    forger: Forger,
    pipeline: str,
    completed: list[str],
    *,
    attacked: dict[str, str],
    state: str = "",
    label: str = "",
) -> str:
    """Forge a run without own inputs, newer than any other, at an attacker's commit.

    Args:
        forger: the attacker.
        pipeline: the pipeline of the run.
        completed: phases that are claimed to be complete.
        attacked: the attacker's files, by name.
        state: lines of the table `state`.
        label: the phase label of the only checkpoint; by default, the last phase has failed.
    """
    forger.point(
        "refs/ckpt/carried", forger.checkout.commit("innocent", **attacked)
    )  # a ref lets the fetch bring the commit
    checkpoint = fresh()
    done = "".join(f'"{name}" = "{checkpoint}"\n' for name in completed)
    text = f"""\
version = 1
id = "{checkpoint}"
run = "{FORGED}"
sequence = 1
phase = "{label or completed[-1] + "-failed"}"
timestamp = "{LATE}"
git_sha = "{forger.commit}"
trigger = "phase"
errors = []

[worktree]
dirty = false

[pipeline]
name = "{pipeline}"
autonomy = "fully_autonomous"

{digests(forger, pipeline)}
[pipeline.completed]
{done}
[state]
{state}
"""
    forger.documented(text, checkpoint=checkpoint, run=FORGED)
    return FORGED


def other_state(forger: Forger, run: str, old: str, new: str) -> str:
    """Change the newest document of the victim's run, but no input, digest or parent."""
    said = forger.head(run)
    assert old in said, said
    checkpoint = fresh()
    before = _value(said, "id")
    text = said.replace(old, new).replace(f'id = "{before}"', f'id = "{checkpoint}"', 1)
    forger.documented(text, checkpoint=checkpoint, run=run, tree=_tree(forger, before))
    return checkpoint


def same_id(forger: Forger, run: str, checkpoint: str, old: str, new: str) -> None:
    """Put another document under a checkpoint's id, for a fetch with a `+`."""
    said = forger.checkout.git("cat-file", "blob", f"refs/checkpoints/{checkpoint}") + "\n"
    assert old in said, said
    oid = forger.blob(said.replace(old, new))
    forger.point(f"refs/checkpoints/{checkpoint}", oid)
    if forger.checkout.git("cat-file", "blob", f"refs/ckpt/runs/{run}") + "\n" == said:
        forger.point(f"refs/ckpt/runs/{run}", oid)


def other_contents(forger: Forger, run: str, name: str, text: str) -> str:
    """Change a run's copy of an input, but not its digest."""
    said = forger.head(run)
    before, checkpoint = _value(said, "id"), fresh()
    tree = _tree(forger, before)
    assert tree is not None
    entries = forger.checkout.git("ls-tree", tree).splitlines()
    made = forger.checkout.git("mktree", data=f"100644 blob {forger.blob(text)}\t{name}\n")
    made = forger.checkout.git("mktree", data=f"040000 tree {made}\tinput\n")
    kept = "".join(f"{entry}\n" for entry in entries if not entry.endswith("\trun"))
    made = forger.checkout.git("mktree", data=f"{kept}040000 tree {made}\trun\n")
    said = said.replace(f'id = "{before}"', f'id = "{checkpoint}"', 1).replace(
        f'tree = "{tree}"', f'tree = "{made}"'
    )
    forger.documented(said, checkpoint=checkpoint, run=run, tree=made)
    return checkpoint


def later_checkpoint(
    forger: Forger, run: str, label: str, state: str = "", *, attacked: dict[str, str] | None = None
) -> str:
    """Forge a late checkpoint of the victim's run, without moving the run's head.

    Args:
        forger: the attacker.
        run: the run.
        label: its phase label.
        state: lines of the table `state`.
        attacked: the attacker's files, by name, in the linked commit; None for the run's commit.
    """
    said = forger.head(run)
    if attacked is not None:
        forger.point("refs/ckpt/carried", forger.checkout.commit("innocent", **attacked))
        said = said.replace(_value(said, "git_sha"), forger.commit)
    checkpoint = fresh()
    for name in ("id", "sequence", "phase", "parent", "timestamp"):
        line = next((each for each in said.splitlines() if each.startswith(f"{name} = ")), None)
        new = {
            "id": checkpoint,
            "sequence": None,
            "phase": label,
            "parent": _value(said, "id"),
            "timestamp": LATE,
        }[name]
        if line is not None:
            said = said.replace(
                f"{line}\n", f'{name} = "{new}"\n' if new is not None else "sequence = 1000\n", 1
            )
    said = said.partition("[state]")[0] + f"[state]\n{state}\n"
    forger.documented(said, checkpoint=checkpoint, tree=_tree(forger, _value(said, "parent")))
    return checkpoint


def same_run_elsewhere(forger: Forger, run: str, name: str) -> str:
    """Copy a run's newest checkpoint into a new run, dated far in the future."""
    said, checkpoint = forger.head(run), fresh()
    before = _value(said, "id")
    said = said.replace(f'id = "{before}"', f'id = "{checkpoint}"', 1).replace(run, name)
    said = said.replace(_value(said, "timestamp"), LATE)
    forger.documented(said, checkpoint=checkpoint, run=name, tree=_tree(forger, before))
    return name


def of_no_run(forger: Forger, run: str) -> str:
    """Copy a run's newest checkpoint without the run."""
    said, checkpoint = forger.head(run), fresh()
    said = said.replace(f'id = "{_value(said, "id")}"', f'id = "{checkpoint}"', 1).replace(
        f'run = "{run}"\nsequence = 1\n', ""
    )
    forger.documented(said, checkpoint=checkpoint)
    return checkpoint


def stolen_key(forger: Forger, key: str, run: str) -> None:
    """Give the key of the victim's next run to another run."""
    import hashlib

    oid = forger.blob(f'version = 1\nkey = "{key}"\nrun = "{run}"\n')
    forger.point(f"refs/ckpt/keys/{hashlib.sha256(key.encode()).hexdigest()}", oid)


def endless_lease(forger: Forger, run: str, *, renewed: str) -> None:
    """Write a lease of another machine that never expires."""
    text = f"""\
version = 1
run = "{run}"
token = 7
holder = "git ckpt resume"
host = "elsewhere"
boot = "0"
namespace = "pid:[1]"
pid = 1
started = "1"
acquired = "{renewed}"
renewed = "{renewed}"
expires = "9999-12-31T23:59:59.000000Z"
"""
    forger.point(f"refs/ckpt/leases/{run}", forger.blob(text))


def malformed_inputs(forger: Forger) -> None:
    """Add a file input whose copies are in an invalid tree.

    Git fetches no such document, but a backup may bring it.
    """
    here, ref = forger.victim, f"refs/ckpt/runs/{FORGED}"
    document = here.git("cat-file", "blob", ref) + "\n"
    tree = here.git("hash-object", "-w", "-t", "tree", "--literally", "--stdin", data=b"nonsense")
    for name in ("input", "run"):
        raw = encode_tree({name.encode(): (DIRECTORY, tree)})
        tree = here.git("hash-object", "-w", "-t", "tree", "--literally", "--stdin", data=raw)
    claimed = (
        '[pipeline.inputs]\nplan = "x"\n\n[pipeline.contents]\nplan = "' + "0" * 64 + '"\n\n[state]'
    )
    text = document.replace("dirty = false", f'dirty = true\ntree = "{tree}"').replace(
        "[state]", claimed
    )
    for each in (ref, f"refs/checkpoints/{_value(document, 'id')}"):
        here.git("update-ref", each, here.git("hash-object", "-w", "--stdin", data=text))


def _value(text: str, name: str) -> str:
    (line,) = (each for each in text.splitlines() if each.startswith(f"{name} = "))
    return line.partition(" = ")[2].strip('"')


def _tree(forger: Forger, checkpoint: str) -> str | None:
    found = forger.checkout.git(
        "rev-parse", "--quiet", "--verify", f"refs/ckpt/trees/{checkpoint}", ok=(0, 1)
    )
    return found or None
