"""Refs that somebody hostile has prepared, one function an attack. All of it is made by plain git, and fetched by plain git.

The attacker serves a repository that the victim fetches every ref of. What the victim's pipelines are is known: it is in a branch, and so
are digests of it. What is in the victim's private directory is not.
"""

from __future__ import annotations

import uuid
from pathlib import Path

from gitckpt.durable.driver.driver import OPTIONS
from gitckpt.durable.pipeline import definition as file
from gitckpt.git.objects.encoding import DIRECTORY, encode_tree
from tests.conftest import Checkout

FETCHED = ("refs/ckpt/*:refs/ckpt/*", "refs/checkpoints/*:refs/checkpoints/*")
"""What somebody fetches who wants the checkpoints of others."""

FORGED = "20990101-000000-forged"
LATE = "2099-01-01T00:00:00.000000Z"


class Forger:
    """Somebody hostile, with a repository that others fetch from.

    Args:
        victim: whose refs and branches are known.
        place: where the repository is made.

    Attributes:
        checkout: the repository.
        commit: what its HEAD is: files of the victim, and whatever else is wanted.
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
        """Stores a blob, and returns its oid."""
        return self.checkout.git("hash-object", "-w", "--stdin", data=text)

    def point(self, ref: str, oid: str) -> None:
        """Lets a ref point to an object."""
        self.checkout.git("update-ref", ref, oid)

    def documented(
        self, text: str, *, checkpoint: str, run: str | None = None, tree: str | None = None
    ) -> str:
        """Stores a document with the refs that make it a checkpoint, and with `run` the newest of a run; returns the oid of the blob."""
        oid = self.blob(text)
        self.point(f"refs/checkpoints/{checkpoint}", oid)
        if run is not None:
            self.point(f"refs/ckpt/runs/{run}", oid)
        if tree is not None:
            self.point(f"refs/ckpt/trees/{checkpoint}", tree)
        return oid

    def fetched(self, *, over: bool = False) -> None:
        """Lets the victim fetch everything.

        Args:
            over: whether what the victim has is replaced.
        """
        specs = [f"+{spec}" for spec in FETCHED] if over else FETCHED
        self.victim.git("fetch", "--quiet", "--no-tags", str(self.checkout.path), *specs, ok=(0, 1))

    def head(self, run: str) -> str:
        """Returns the document of the newest checkpoint of a run."""
        return self.checkout.git("cat-file", "blob", f"refs/ckpt/runs/{run}") + "\n"


def fresh() -> str:
    """Returns an id of a checkpoint."""
    return str(uuid.uuid4())


def digests(forger: Forger, pipeline: str) -> str:
    """Returns the table `pipeline.definition` of a pipeline: anybody can compute it."""
    definition = file.read(str(forger.checkout.path / "gitckpt.toml"), pipeline, OPTIONS)
    return "[pipeline.definition]\n" + "".join(
        f'"{name}" = "{value}"\n' for name, value in definition.digest().items()
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
    """A run without inputs of its own, newer than any other, that claims to be past some phases, at a commit with files of the attacker's.

    Args:
        forger: who does it.
        pipeline: what drives the run.
        completed: phases that it claims to be complete.
        attacked: the attacker's files, by name.
        state: what the table `state` holds.
        label: the phase label of its only checkpoint; by default, the last of the phases has failed.
    """
    forger.point(
        "refs/ckpt/carried", forger.checkout.commit("innocent", **attacked)
    )  # it comes with what is fetched
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
    """The victim's own run, with the same inputs, digests and place in the chain, and something else in its newest document."""
    said = forger.head(run)
    assert old in said, said
    checkpoint = fresh()
    before = _value(said, "id")
    text = said.replace(old, new).replace(f'id = "{before}"', f'id = "{checkpoint}"', 1)
    forger.documented(text, checkpoint=checkpoint, run=run, tree=_tree(forger, before))
    return checkpoint


def same_id(forger: Forger, run: str, checkpoint: str, old: str, new: str) -> None:
    """Another document under the id of a checkpoint of the victim's: a fetch with a + replaces it."""
    said = forger.checkout.git("cat-file", "blob", f"refs/checkpoints/{checkpoint}") + "\n"
    assert old in said, said
    oid = forger.blob(said.replace(old, new))
    forger.point(f"refs/checkpoints/{checkpoint}", oid)
    if forger.checkout.git("cat-file", "blob", f"refs/ckpt/runs/{run}") + "\n" == said:
        forger.point(f"refs/ckpt/runs/{run}", oid)


def other_contents(forger: Forger, run: str, name: str, text: str) -> str:
    """A run whose copy of an input is another one than its digest says; the document differs in its id and its tree alone."""
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
    """A checkpoint that claims to be of the victim's run, far ahead, without a head that leads to it.

    Args:
        forger: who does it.
        run: the run.
        label: its phase label.
        state: what the table `state` holds.
        attacked: files of the attacker's, by name, in the commit that it is linked to; None for the commit of the run.
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
    """A copy of the newest checkpoint of a run that begins another one, in the far future."""
    said, checkpoint = forger.head(run), fresh()
    before = _value(said, "id")
    said = said.replace(f'id = "{before}"', f'id = "{checkpoint}"', 1).replace(run, name)
    said = said.replace(_value(said, "timestamp"), LATE)
    forger.documented(said, checkpoint=checkpoint, run=name, tree=_tree(forger, before))
    return name


def of_no_run(forger: Forger, run: str) -> str:
    """The newest checkpoint of a run once more, outside of any run."""
    said, checkpoint = forger.head(run), fresh()
    said = said.replace(f'id = "{_value(said, "id")}"', f'id = "{checkpoint}"', 1).replace(
        f'run = "{run}"\nsequence = 1\n', ""
    )
    forger.documented(said, checkpoint=checkpoint)
    return checkpoint


def stolen_key(forger: Forger, key: str, run: str) -> None:
    """The key that the victim is about to start a run with, given to another run."""
    import hashlib

    oid = forger.blob(f'version = 1\nkey = "{key}"\nrun = "{run}"\n')
    forger.point(f"refs/ckpt/keys/{hashlib.sha256(key.encode()).hexdigest()}", oid)


def endless_lease(forger: Forger, run: str, *, renewed: str) -> None:
    """A lease of another machine until the end of time."""
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
    """The forged run has an input that is a file, whose copies are in a tree that is none: git fetches no such thing, backups bring it."""
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
