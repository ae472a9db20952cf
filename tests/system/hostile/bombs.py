"""Attack readers with slow, large, endless or odd documents, trees and files.

Each attack is one ref or one file.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial

from gitckpt.git.objects.encoding import DIRECTORY, FILE, encode_tree
from gitckpt.model import budget
from gitckpt.store.records import ref_names
from tests.cli.conftest import document
from tests.system.hostile.attacks import ATTACKS, BAD, EVIL, Victim, attack

REF = ref_names.CHECKPOINTS + BAD


def bad(more: str = "", state: str = "", **fields: str | None) -> str:
    """Return the document of `BAD`, with more keys and a state.

    Args:
        more: lines after the keys, which begin with a table `[…]`.
        state: lines of the table `state`.
        fields: keys to change; None removes a key.
    """
    return document(**{"id": f'"{BAD}"', **fields}).replace(
        "\n[state]\n", f"{more}\n\n[state]\n{state}"
    )


def in_run(number: object, run: str = EVIL) -> dict[str, str]:
    """Return the keys that put a document into a run."""
    return {"run": f'"{run}"', "sequence": str(number)}


LARGE = budget.DOCUMENT.size + 1
DOCUMENTS: dict[str, Callable[[], str | bytes]] = {
    "dotted_key": lambda: bad(".".join("a" * 20_000) + " = 1"),
    "dotted_key_without_value": lambda: bad(".".join("a" * 500_000)),
    "dotted_keys": lambda: bad(
        "".join(f"a{number}.{'.'.join('a' * 200)} = 1\n" for number in range(3000))
    ),
    "deep_headers": lambda: bad(
        "".join(f"[{'.'.join('a' * 250)}.b{number}]\n" for number in range(5000))
    ),
    "long_header": lambda: bad(f"[{'.'.join('a' * 20_000)}]"),
    "keys_below_a_deep_header": lambda: bad(
        f"[{'.'.join('a' * 200)}]\n" + "".join(f"k{number} = 1\n" for number in range(40_000))
    ),
    "many_keys": lambda: bad("".join(f"k{number} = 1\n" for number in range(1_000_000))),
    "many_keys_inline": lambda: bad(
        f"a = {{{', '.join(f'k{number} = 1' for number in range(500_000))}}}"
    ),
    "many_keys_in_the_state": lambda: bad(
        state="".join(f"k{number} = 1\n" for number in range(1_000_000))
    ),
    "many_values": lambda: bad(f"a = [{'1,' * 2_000_000}]"),
    "many_types": lambda: bad(
        "[types]\n" + "".join(f'"/{number}" = "null"\n' for number in range(200_000))
    ),
    "long_pointer": lambda: bad(
        f"[types]\n\"{'/a' * 100_000}\" = \"null\"\n\"/{'9' * 100_000}\" = \"null\""
    ),
    "arrays": lambda: bad("a = " + "[" * 10_000 + "]" * 10_000),
    "arrays_that_end_nowhere": lambda: bad("a = " + "[" * 1_000_000),
    "inline_tables": lambda: bad("a = " + "{a = " * 10_000),
    "arrays_of_tables": lambda: bad("".join(f"[[{'.'.join('a' * 100)}]]\n" for _ in range(3000))),
    "long_integer": lambda: bad("a = " + "9" * 1_000_000),
    "long_hexadecimal": lambda: bad("a = 0x" + "f" * 4_000_000),
    "underscores": lambda: bad("a = " + "1_" * 500_000 + "1"),
    "long_float": lambda: bad("a = 1." + "9" * 1_000_000),
    "giant_exponent": lambda: bad("a = 1e" + "9" * 1_000_000),
    "long_fraction_of_a_second": lambda: bad("a = 2026-11-21T20:15:00." + "9" * 1_000_000),
    "long_integer_in_a_string": lambda: bad(
        '[types]\n"/n" = "integer"', f'n = "{"9" * 1_000_000}"\n'
    ),
    "long_integers_in_strings": lambda: bad(
        "[types]\n" + "".join(f'"/n/{number}" = "integer"\n' for number in range(300)),
        "n = [" + ", ".join(['"0x' + "f" * 60_000 + '"'] * 300) + "]\n",
    ),
    "long_message": lambda: bad(message=f'"{"m" * LARGE}"'),
    "long_header_of_a_document": lambda: bad(message=f'"{"m" * budget.HEADER.size}"'),
    "long_texts": lambda: bad(
        **{
            key: f'"{key * 100_000}"'
            for key in ("message", "branch", "agent", "phase", "trigger")
        }
    ),
    "long_names": lambda: bad(f"{'k' * 1_000_000} = 1", **{"k" * 1_000_000: "1"}),
    "large_state": lambda: bad(state=f'x = "{"m" * LARGE}"\n'),
    "state_within_a_string": lambda: bad(message='"""\n[state]\n[[x]]\n"""'),
    "string_that_ends_nowhere": lambda: bad('a = """' + 'x""' * 1_000_000),
    "quotes": lambda: b'"' * 1_000_000,
    "no_utf_8": lambda: b"\xff" * 1000,
    "empty": lambda: "",
    "binary": lambda: bytes(range(256)) * 100,
    "sequence_beyond_64_bits": lambda: bad(**in_run(10**30)),
    "sequence_of_64_bits": lambda: bad(**in_run(2**63 - 1)),
    "integer_beyond_64_bits_somewhere": lambda: bad(f"[later]\na = [{{b = {10**30}}}]"),
    "seconds_that_are_an_integer": lambda: bad(
        '[attempt]\nphase = "x"\nnumber = 1\nseconds = 5\n[later]\na = 1'
    ),
    "seconds_that_are_none": lambda: bad(
        '[attempt]\nphase = "x"\nnumber = 1\nseconds = nan', **in_run(1)
    ),
    "seconds_without_end": lambda: bad(
        '[attempt]\nphase = "x"\nnumber = 1\nseconds = inf', **in_run(1)
    ),
    "counts_of_64_bits": lambda: bad(
        f'[attempt]\nphase = "x"\nnumber = {2**63 - 1}\nfailures = {2**63 - 1}\n'
        f'recoveries = {2**63 - 1}\nexit_code = {-(2**63)}\n'
        f"[progress]\ncurrent_phase = {2**63 - 1}\ntotal_phases = 0\n"
        f"tasks_completed = {2**63 - 1}\ntasks_total = 0",
        **in_run(1),
    ),
    "year_0": lambda: bad(timestamp='"0000-01-01T00:00:00Z"'),
    "year_1": lambda: bad(timestamp='"0001-01-01T00:00:00+23:59"'),
    "year_9999": lambda: bad(timestamp='"9999-12-31T23:59:60-23:59"', **in_run(1)),
    "later_version": lambda: bad(version="2", id=None),
    "other_id": document,
    "many_phases": lambda: bad(
        "[pipeline]\nphases = ["
        + ", ".join(f'"p{number}"' for number in range(40_000))
        + "]\n[pipeline.completed]\n"
        + "".join(f'p{number} = "{BAD}"\n' for number in range(40_000)),
        **in_run(1),
    ),
}  # fmt: skip
"""The documents of attacks: name → content of `BAD`."""


def _documents() -> None:
    def put(make: Callable[[], str | bytes], victim: Victim) -> None:
        data = make()
        oid = victim.blob(REF, data)
        if f'\nrun = "{EVIL}"\n' in (data if isinstance(data, str) else ""):
            victim.at.git("update-ref", ref_names.RUNS + EVIL, oid)

    for name, make in DOCUMENTS.items():
        ATTACKS[f"document_{name}"] = partial(put, make)


_documents()

# Other objects, and other refs


@attack
def checkpoint_that_is_a_commit(victim: Victim) -> None:
    victim.at.git("update-ref", REF, "HEAD")


@attack
def checkpoint_that_is_a_tree(victim: Victim) -> None:
    victim.at.git("update-ref", REF, "HEAD^{tree}")


@attack
def checkpoint_that_is_a_tag(victim: Victim) -> None:
    victim.object(
        REF,
        "tag",
        (
            f"object {victim.at.git('rev-parse', 'HEAD')}\ntype commit\ntag x\n"
            "tagger A <a@b> 0 +0000\n\nx\n"
        ),
    )


@attack
def checkpoint_that_is_missing(victim: Victim) -> None:
    (victim.at.path / ".git" / REF).write_text(f"{'1' * 40}\n")


@attack
def checkpoint_that_stands_for_a_branch(victim: Victim) -> None:
    victim.at.git("symbolic-ref", REF, "refs/heads/main")


@attack
def checkpoint_that_stands_for_nothing(victim: Victim) -> None:
    (victim.at.path / ".git" / REF).write_text("ref: refs/heads/\n")


@attack
def large_tree_in_the_place_of_a_checkpoint(victim: Victim) -> None:
    victim.object(
        REF,
        "tree",
        b"".join(b"100644 %07d\0%20d" % (number, number) for number in range(LARGE // 35)),
    )


@attack
def place_in_somebody_s_run(victim: Victim) -> None:
    """Point the victim's run to the attacker's checkpoint, with the highest number."""
    victim.at.git(
        "update-ref",
        ref_names.RUNS + victim.run,
        victim.blob(REF, bad(**in_run(2**63 - 1, victim.run))),
    )


ODD: dict[str, Callable[[], str | bytes]] = {
    "dotted": lambda: ".".join("a" * 20_000) + " = 1\n",
    "arrays": lambda: "a = " + "[" * 100_000,
    "keys": lambda: "".join(f"k{number} = 1\n" for number in range(1_000_000)),
    "large": lambda: f'a = "{"x" * LARGE}"\n',
    "integer": lambda: "version = " + "9" * 1_000_000,
    "empty": lambda: "",
    "binary": lambda: b"\0\xff" * 1000,
}
"""Contents that are no document of any kind."""


def _others() -> None:
    def put(
        ref_of: Callable[[Victim], str], make: Callable[[], str | bytes], victim: Victim
    ) -> None:
        victim.blob(ref_of(victim), make())

    def point(ref_of: Callable[[Victim], str], rev: str, victim: Victim) -> None:
        victim.at.git("update-ref", ref_of(victim), rev)

    places: dict[str, Callable[[Victim], str]] = {
        "head": lambda victim: ref_names.RUNS + victim.run,
        "lease": lambda victim: ref_names.LEASES + victim.run,
        "key": lambda victim: victim.key,
    }
    for place, ref_of in places.items():
        for name, make in ODD.items():
            ATTACKS[f"{place}_{name}"] = partial(put, ref_of, make)
        ATTACKS[f"{place}_that_is_a_tree"] = partial(point, ref_of, "HEAD^{tree}")
        ATTACKS[f"{place}_that_is_a_commit"] = partial(point, ref_of, "HEAD")


_others()


def lease(victim: Victim, **changes: str) -> str:
    """Return a lease of the victim's run, held on another machine."""
    texts = {
        "run": victim.run,
        "holder": "x",
        "host": "elsewhere",
        "boot": "b",
        "namespace": "n",
        "started": "1",
    }
    texts |= dict.fromkeys(("acquired", "renewed", "expires"), "2026-11-21T20:15:00.000000Z")
    fields = (
        {"version": "1", "token": "1", "pid": "1"}
        | {key: f'"{text}"' for key, text in texts.items()}
        | changes
    )
    return "".join(f"{key} = {value}\n" for key, value in fields.items())


@attack
def lease_with_numbers_of_64_bits(victim: Victim) -> None:
    victim.blob(
        ref_names.LEASES + victim.run, lease(victim, pid=str(-(2**63)), token=str(2**63 - 1))
    )


@attack
def lease_with_numbers_beyond_64_bits(victim: Victim) -> None:
    victim.blob(ref_names.LEASES + victim.run, lease(victim, pid=str(10**30), token=str(10**30)))


@attack
def lease_with_floats(victim: Victim) -> None:
    victim.blob(
        ref_names.LEASES + victim.run, lease(victim, pid="1.0", token="nan", cancelled="[]")
    )


@attack
def lease_of_the_year_1(victim: Victim) -> None:
    victim.blob(
        ref_names.LEASES + victim.run,
        lease(victim, renewed='"0001-01-01T00:00:00+23:59"', expires='"0001-01-01T00:00:00+23:59"'),
    )


@attack
def lease_released_by_a_table(victim: Victim) -> None:
    victim.blob(ref_names.LEASES + victim.run, lease(victim, released="{}"))


# Notes


def noted(victim: Victim, tree: str) -> None:
    """Point the notes ref to a commit of a tree."""
    who = "A <a@b> 0 +0000"
    victim.object(ref_names.NOTES, "commit", f"tree {tree}\nauthor {who}\ncommitter {who}\n\nx\n")


def tree_of(victim: Victim, data: bytes) -> str:
    return victim.at.git("hash-object", "-w", "--literally", "-t", "tree", "--stdin", data=data)


@attack
def notes_that_are_a_blob(victim: Victim) -> None:
    victim.blob(ref_names.NOTES, "x")


@attack
def notes_that_are_a_tree(victim: Victim) -> None:
    victim.at.git("update-ref", ref_names.NOTES, "HEAD^{tree}")


@attack
def notes_whose_tree_is_missing(victim: Victim) -> None:
    noted(victim, "1" * 40)


@attack
def notes_whose_tree_is_malformed(victim: Victim) -> None:
    noted(victim, tree_of(victim, b"100644 " + b"a" * 100))


@attack
def notes_whose_tree_is_cut_off(victim: Victim) -> None:
    noted(victim, tree_of(victim, b"40000 ab\0123"))


@attack
def notes_of_256_to_the_19(victim: Victim) -> None:
    """Make twenty trees; each contains the next one under 256 names."""
    blob = victim.at.git("hash-object", "-w", "--stdin", data="x\n" * 1000)
    names = [f"{number:02x}".encode() for number in range(256)]
    below = tree_of(victim, encode_tree(dict.fromkeys(names, (FILE, blob))))
    for _ in range(19):
        below = tree_of(victim, encode_tree(dict.fromkeys(names, (DIRECTORY, below))))
    noted(victim, below)


@attack
def large_note(victim: Victim) -> None:
    blob = victim.at.git("hash-object", "-w", "--stdin", data="x\n" * (LARGE // 2))
    names = [victim.at.git("rev-parse", "HEAD").encode(), b"1" * 40]
    noted(victim, tree_of(victim, encode_tree(dict.fromkeys(sorted(names), (FILE, blob)))))


# Snapshots


def endless(victim: Victim, levels: int = 7) -> str:
    """Return a tree of 256 to the power of `levels` paths, from `levels` trees."""
    names = [f"{number:02x}".encode() for number in range(256)]
    below = (FILE, victim.at.git("hash-object", "-w", "--stdin", data="x"))
    for _ in range(levels):
        below = (DIRECTORY, tree_of(victim, encode_tree(dict.fromkeys(names, below))))
    return below[1]


def bottomless(victim: Victim) -> str:
    """Return a tree with 600 nested directories."""
    below = (FILE, victim.at.git("hash-object", "-w", "--stdin", data="x"))
    for _ in range(600):
        below = (DIRECTORY, tree_of(victim, encode_tree({b"d": below})))
    return below[1]


def _with_snapshot(
    make: Callable[[Victim], dict[bytes, tuple[bytes, str]]], victim: Victim
) -> None:
    empty = tree_of(victim, b"")
    snapshot = tree_of(victim, encode_tree({b"files": (DIRECTORY, empty)} | make(victim)))
    victim.at.git("update-ref", ref_names.TREES + BAD, snapshot)
    head = victim.at.git("rev-parse", "HEAD")
    victim.blob(REF, bad(f'[worktree]\ndirty = true\ntree = "{snapshot}"', git_sha=f'"{head}"'))


SNAPSHOTS: dict[str, Callable[[Victim], dict[bytes, tuple[bytes, str]]]] = {
    "files": lambda victim: {b"files": (DIRECTORY, endless(victim))},
    "index": lambda victim: {
        b"index": (DIRECTORY, tree_of(victim, encode_tree({b"0": (DIRECTORY, endless(victim))})))
    },
    "raw": lambda victim: {b"raw": (DIRECTORY, endless(victim))},
    "operation": lambda victim: {b"operation": (DIRECTORY, endless(victim))},
    "run": lambda victim: {b"run": (DIRECTORY, endless(victim))},
    "bottomless": lambda victim: {b"files": (DIRECTORY, bottomless(victim))},
}
ATTACKS |= {
    f"checkpoint_of_endless_{name}": partial(_with_snapshot, make)
    for name, make in SNAPSHOTS.items()
}


# Files of a branch

SETTINGS = "gitckpt.toml"


@attack
def settings_without_end(victim: Victim) -> None:
    (victim.at.path / SETTINGS).unlink()
    (victim.at.path / SETTINGS).symlink_to("/dev/zero")


@attack
def settings_that_wait(victim: Victim) -> None:
    (victim.at.path / SETTINGS).unlink()
    os.mkfifo(victim.at.path / SETTINGS)


@attack
def settings_that_are_a_directory(victim: Victim) -> None:
    (victim.at.path / SETTINGS).unlink()
    (victim.at.path / SETTINGS).mkdir()


def _settings() -> None:
    def put(make: Callable[[], str | bytes], victim: Victim) -> None:
        victim.at.write(SETTINGS, make())

    for name, make in ODD.items():
        ATTACKS[f"settings_{name}"] = partial(put, make)


_settings()


@attack
def files_of_hook_managers_without_end(victim: Victim) -> None:
    for name in ("lefthook.yml", ".pre-commit-config.yaml", ".gitattributes", "package.json"):
        (victim.at.path / name).symlink_to("/dev/zero")
    (victim.at.path / ".husky").mkdir()
    (victim.at.path / ".husky" / "post-commit").symlink_to("/dev/zero")
    os.mkfifo(victim.at.path / ".husky" / "post-merge")
