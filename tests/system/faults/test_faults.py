"""Each kind of fault of `./dev prove` strikes, and the judge sees each violation."""

from __future__ import annotations

import random
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest

from tests.conftest import MakeDirectory, git_program
from tests.system.faults import __main__ as prove
from tests.system.faults import processes
from tests.system.faults.fault import Fault
from tests.system.faults.judge import LOST, Judge
from tests.system.faults.operation import Ended, Place
from tests.system.faults.operations import OPERATIONS, Bench
from tests.system.faults.trial import FAULTS, Trial, Verdict
from tests.system.power.scenarios import PROJECT

SAVE = OPERATIONS["save"]


@pytest.fixture(scope="module")
def trial(make_directory: MakeDirectory) -> Trial:
    place = make_directory("prove")
    git = shutil.which(git_program())
    return Trial(place / "tries", Bench(place, git), place / "kept")


@pytest.mark.long
@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", FAULTS)
def test_nothing_is_wrong_after_a_fault(trial: Trial, name: str) -> None:
    fault = FAULTS[name]
    obstacle = fault.obstacle()
    if obstacle is not None:
        pytest.skip(obstacle)
    instants = trial.instants(fault, SAVE)
    middle = [instants[number * len(instants) // 3] for number in range(3)]
    found = [trial.attempt(fault, SAVE, instant) for instant in middle]
    assert [verdict for verdict in found if verdict.wrong] == []


@pytest.mark.long
@pytest.mark.skipif(
    processes.can_trace() is not None, reason="needs strace, and the right to use it"
)
def test_a_kill_hits_where_it_is_meant_to(trial: Trial) -> None:
    """The kill strikes only the named process, before the named call."""
    place = trial.make(SAVE)
    changes = processes.traced(place, SAVE.command(place))
    *_, removal = (
        change.call
        for change in changes
        if change.call.startswith("unlink")
        and re.search(r"/ckpt/index\.[\w.]*(?<!lock)$", change.path)
    )
    for call, there in ((removal, True), (f"{removal}0", False)):
        place = trial.make(SAVE)
        ended = FAULTS["kills"].strike(place, SAVE, f"write/{call}")
        assert (ended.code is None) == there
        assert bool(list((place.project / ".git/ckpt").glob("index.*"))) == there


def _newest(place: Place) -> str:
    lines = (
        place.git(
            "for-each-ref", "--sort=refname", "--format=%(refname:lstrip=2)", "refs/checkpoints"
        )
        .decode()
        .split()
    )
    known = (place.beside / "known").read_text().split()
    made = [
        name
        for name in lines
        if name not in known
        and b'"a fault"' in place.git("cat-file", "blob", f"refs/checkpoints/{name}")
    ]
    return made[0]


def _delete_the_newest(place: Place) -> None:
    place.git("update-ref", "-d", f"refs/checkpoints/{_newest(place)}")


def _delete_an_older_one(place: Place) -> None:
    place.git(
        "update-ref", "-d", f"refs/checkpoints/{(place.beside / 'known').read_text().split()[0]}"
    )


def _delete_a_blob(place: Place) -> None:
    oid = (
        place.git("rev-parse", f"refs/ckpt/trees/{_newest(place)}:files/fresh/bytes")
        .decode()
        .strip()
    )
    (place.project / ".git/objects" / oid[:2] / oid[2:]).unlink()


def _swap_the_files(place: Place) -> None:
    other = (
        place.git("rev-parse", f"refs/ckpt/trees/{(place.beside / 'known').read_text().split()[0]}")
        .decode()
        .strip()
    )
    place.git("update-ref", f"refs/ckpt/trees/{_newest(place)}", other)


def _change_the_state(place: Place) -> None:
    ref = f"refs/checkpoints/{_newest(place)}"
    changed = place.git("cat-file", "blob", ref).replace(b"step = 3", b"step = 4")
    place.git(
        "update-ref", ref, place.git("hash-object", "-w", "--stdin", data=changed).decode().strip()
    )


def _write(name: str, text: str = "odd\n") -> Callable[[Place], None]:
    def write(place: Place) -> None:
        path = place.project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    return write


def _git(*args: str) -> Callable[[Place], None]:
    def call(place: Place) -> None:
        place.git(*args)

    return call


def _replace_private_directory(place: Place) -> None:
    private = place.project / ".git" / "ckpt"
    private.rename(private.with_name("elsewhere"))
    private.symlink_to("elsewhere")


PLANTED: dict[str, tuple[Callable[[Place], None], str]] = {
    "the newest is gone": (_delete_the_newest, LOST),
    "an older one is gone": (_delete_an_older_one, LOST),
    "an object is gone": (_delete_a_blob, LOST),
    "other files": (_swap_the_files, LOST),
    "another state": (_change_the_state, f"{LOST}.* has another state than was saved"),
    "a file of the user's": (_write("file-1"), "files are not what they were: file-1"),
    "an ignored file": (_write("ignored"), "ignored is not what it was"),
    "the index": (_git("add", "fresh"), "the index is not what it was, byte for byte"),
    "a branch": (_git("branch", "--force", "other", "HEAD"), "refs is not what it was"),
    "HEAD": (_git("symbolic-ref", "HEAD", "refs/heads/other"), "refs is not what it was"),
    "the stash": (_git("stash", "drop", "--quiet"), "refs is not what it was|stopped"),
    "a setting": (
        _git("config", "core.editor", "x"),
        "config are not what they were: core.editor=x",
    ),
    "a hook": (
        _write(".git/hooks/pre-commit", "#!/bin/sh\nexit 1\n"),
        "afterwards, git commit .* ends with 1",
    ),
    "litter": (_write(".git/objects/pack/tmp_odd"), "objects/pack/tmp_odd is left"),
    "a lock that doctor does not see": (
        _write(".git/odd/config.lock"),
        "doctor does not name odd/config.lock",
    ),
    "a directory of ours": (_replace_private_directory, "afterwards, git ckpt save .* ends with"),
}


LATER = ("a hook", "litter", "a directory of ours")
"""Violations that only a try judged in full finds."""


BRIEFLY = [f"{name}, briefly" for name in PLANTED if name not in LATER]


@pytest.mark.long(spare=BRIEFLY)
@pytest.mark.parametrize("name", [*PLANTED, *BRIEFLY])
def test_what_is_planted_is_found(trial: Trial, name: str) -> None:
    name, _, is_brief = name.partition(", ")
    plant, expected = PLANTED[name]

    def strike(place: Place, operation: object, instant: str) -> Ended:
        ended = processes.run(place, SAVE.command(place))
        plant(place)
        return ended

    fault = Fault("planted", lambda *_: [], strike, quick=1, long=1)
    verdict = trial.attempt(fault, SAVE, "once", is_brief=bool(is_brief))
    assert any(re.search(expected, sentence) for sentence in verdict.wrong), verdict
    assert Path(verdict.kept, "project/.git").is_dir()
    if expected == LOST:
        assert verdict.lost


@pytest.mark.long
def test_whoever_fails_says_so(trial: Trial) -> None:
    judge = Judge(SAVE, trial.known(SAVE))
    for ended, expected in (
        (Ended(1, "", ""), "no word of an error"),
        (Ended(1, "", "error: x\n"), "said not what to do next"),
        (
            Ended(3, "", "error: this is a bug in gitckpt: x\nhint: y\n"),
            "as after an unexpected error",
        ),
        (
            Ended(1, "", "Traceback (most recent call last):\nerror: x\nhint: y\n"),
            "as after an unexpected error",
        ),
        (Ended(-11, "", ""), "died of signal 11"),
        (Ended(0, "", ""), None),
        (Ended(None, "", ""), None),
        (Ended(1, "", "error: x\nhint: y\n"), None),
    ):
        found = judge._complaints(ended)
        assert [expected in sentence for sentence in found if expected] == (
            [True] if expected else []
        ), ended
        assert bool(found) == bool(expected), ended


@pytest.mark.long
def test_a_save_that_names_nothing_and_a_phase_done_twice_are_wrong(trial: Trial) -> None:
    known = trial.known(SAVE)
    place = trial.make(SAVE)
    assert SAVE.promised(place, Ended(0, "", ""), known.before, known.after).wrong
    (place.beside / "calls").write_text("one\none\ntwo\n")
    assert OPERATIONS["run"].promised(place, Ended(0, "", ""), known.before, known.after).wrong


@pytest.mark.long
def test_what_was_removed_is_not_to_come_back(trial: Trial) -> None:
    remove = OPERATIONS["remove"]
    place = trial.make(remove)
    doomed = (place.beside / "doomed").read_text().strip()
    known = trial.known(remove)
    said = remove.promised(place, Ended(0, f"{doomed}\n", ""), known.before, known.after)
    assert Judge(remove, known)._lost(place, said, {}) == [f"{LOST}{doomed} is there again"]


class TestTheChoiceOfInstants:
    FAULT = replace(FAULTS["descriptors"], drawn=None)
    INSTANTS: ClassVar = [
        ("f/a", [str(number) for number in range(10)]),
        ("f/b", ["x"]),
        ("f/c", []),
    ]

    def test_it_is_that_of_the_seed(self) -> None:
        first, second, third = (
            list(prove.chosen(self.INSTANTS, self.FAULT, 8, random.Random(seed)))
            for seed in (1, 1, 2)
        )
        assert first == second != third

    def test_each_operation_has_its_turn_and_each_instant_before_any_comes_again(self) -> None:
        found = list(prove.chosen(self.INSTANTS, self.FAULT, 20, random.Random(1)))
        assert [name for name, _ in found] == ["f/a", "f/b"] * 10
        assert sorted(instant for name, instant in found if name == "f/a") == sorted(
            self.INSTANTS[0][1]
        )

    def test_each_fourth_is_drawn(self) -> None:
        found = list(
            prove.chosen(
                self.INSTANTS, replace(self.FAULT, drawn="{:.0f}".format), 40, random.Random(1)
            )
        )
        assert (
            len([instant for name, instant in found if name == "f/a" and len(instant) == 1]) >= 10
        )


@pytest.fixture
def _no_other_faults(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    known = dict(FAULTS)
    yield
    FAULTS.clear()
    FAULTS.update(known)


@pytest.mark.long
@pytest.mark.usefixtures("_no_other_faults")
def test_a_violation_is_printed_kept_and_ends_with_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def strike(place: Place, operation: object, instant: str) -> Ended:
        ended = processes.run(place, SAVE.command(place))
        if instant == "late":
            _delete_the_newest(place)
        return ended

    FAULTS["descriptors"] = Fault(
        "descriptors", lambda *_: ["early", "late"], strike, quick=2, long=2
    )
    FAULTS["clocks"] = replace(
        FAULTS["descriptors"], name="clocks", obstacle=lambda: "there is none here"
    )
    arguments = [
        "descriptors/save",
        "clocks/save",
        "--tries",
        "2",
        "--seed",
        "7",
        "--jobs",
        "1",
        "--keep",
        str(tmp_path / "kept"),
    ]
    assert prove.main(arguments) == 1
    said = capsys.readouterr().out
    assert "repeat it with: ./dev prove 'descriptors/save/late'" in said
    assert f"what the fault left is in {tmp_path}/kept/descriptors_save_late" in said
    row = next(line for line in said.splitlines() if line.startswith("| descriptors"))
    assert [cell.strip() for cell in row.split("|")[2:4]] == ["1", "2"]
    assert int(row.split("|")[4]) >= 1
    assert "| clocks | | | | | skipped: there is none here |" in said
    assert "seed 7" in said
    assert (tmp_path / "kept/descriptors_save_late/project/.git").is_dir()
    assert prove.main(["descriptors/save/early", "--jobs", "1"]) == 0


def test_names_that_there_are_not(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("nothing", "kills/nothing", "power/save"):
        with pytest.raises(SystemExit) as caught:
            prove.parsed([name])
        assert caught.value.code == 2
    assert "no such fault: nothing" in capsys.readouterr().err


def test_a_row_counts_what_is_lost_and_what_is_wrong_else() -> None:
    row = prove.Row("x", operations=2)
    row.add(Verdict("x/a/1", [f"{LOST}a", "b", "c"], 1.4))
    row.add(Verdict("x/a/2", [], 1.2, tries=3))
    assert row.line() == "| x | 2 | 4 | 1 | 2 | 3 |"


def test_the_page_names_every_fault_and_every_operation() -> None:
    page = (PROJECT / "docs/evidence.md").read_text()
    table = page.partition("| fault | action |")[2].partition("\n\n")[0]
    assert re.findall(r"^\| `([a-z-]+)` \|", table, re.MULTILINE) == [*FAULTS, prove.POWER]
    named = page.partition("## The operations")[2].partition("## The faults")[0]
    assert [name for name in OPERATIONS if f"`{name}`" not in named] == []
