"""The shells' scripts call `git ckpt complete`, which offers completions."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from gitckpt import Store
from tests.cli.conftest import COMMANDS, Ckpt, Outcome
from tests.conftest import Checkout

Save = Callable[..., str]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ([], COMMANDS),
        ([""], COMMANDS),
        (["s"], ["save", "show", "status", "start", "step"]),
        (["-q", "re"], ["resume", "restore", "redo", "review", "rescue", "report", "remove"]),
        (["-C", "show", "un"], ["unpin", "undo", "uninit"]),
        (["--"], ["--quiet", "--version", "--help"]),
        (["list", "--s"], ["--status", "--since"]),
        (["-C", "x", "show", "--r"], ["--raw"]),
        (
            ["save", "--"],
            [
                "--message",
                "--phase",
                "--state",
                "--agent",
                "--error",
                "--run",
                "--track",
                "--if-changed",
                "--yes",
                "--no-worktree",
                "--help",
            ],
        ),
        (["completion", ""], ["bash", "zsh", "fish"]),
        (["completion", "z"], ["zsh"]),
        (["frobnicate", ""], []),
        (["frobnicate", "--"], []),
        (["list", ""], []),
        (["-C", ""], []),
        (["diff", "a", "--", ""], []),
    ],
)
@pytest.mark.parametrize("inside", [True, False])
def test_words_are_completed_inside_and_outside_a_repository(
    ckpt: Ckpt,
    main_checkout: Checkout,
    tmp_path: Path,
    words: list[str],
    offered: list[str],
    inside: bool,
) -> None:
    done = ckpt("complete", "--", *words, at=main_checkout if inside else tmp_path)
    assert done == Outcome(0, "".join(f"{each}\n" for each in offered), "")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("command", ["show", "diff", "resume", "restore", "remove"])
def test_ids_and_runs_are_completed(ckpt: Ckpt, checkout: Checkout, command: str) -> None:
    with Store.open(checkout.path) as store:
        made = store.record("a-complete", {}, start="work")
        other = store.record("b-complete", {})
    ids = ["latest", "latest:any", made.run, other.id, made.id]
    assert ckpt("complete", "--", command, "", at=checkout) == Outcome(
        0, "".join(f"{each}\n" for each in ids), ""
    )
    assert ckpt("complete", "--", command, other.id[:9], at=checkout) == Outcome(
        0, f"{other.id}\n", ""
    )
    assert ckpt("complete", "--", command, "lat", at=checkout) == Outcome(
        0, "latest\nlatest:any\n", ""
    )
    assert ckpt("-C", "/", "complete", "--", command, "", at=checkout) == Outcome(0, "", "")


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["list", "--status", "s"], ["started", "skipped"]),
        (["runs", "--status", "s"], ["stalled"]),
        (["list", "--date", "i"], ["iso"]),
        (["export", "latest", "--format", "r"], ["rlm-act"]),
        (["loop", "plan.md", "--agent", "c"], ["claude", "codex"]),
        (["agent", "in"], ["install"]),
        (["agent", "install", "c"], ["claude", "codex"]),
        (["step", "s"], ["start", "skip", "show"]),
        (["resume", "--autonomy", "b"], ["batch"]),
        (["help", "unin"], ["uninit"]),
        (["run", ""], ["ci", "plan-to-pr", "rlm-act", "loop", "review", ":files"]),
        (["list", "--run", ""], ["work\topen"]),
        (["status", ""], ["work\topen"]),
        (["status", "2"], ["RUN\topen"]),
        (["turns", ""], []),
        (["show", "ID"], ["ID\tone"]),
        (["save", "--state", ""], [":files"]),
        (["save", "-m", ""], []),
        (["list", "--since", ""], []),
        (["-C", ""], [":directories"]),
        (["resume", "--into", ""], [":directories"]),
        (["loop", ""], [":files"]),
        (["restore", "ID", "--", ""], [":paths", "README", "gitckpt.toml", "sub/"]),
        (["restore", "ID", "--", "sub/f"], [":paths", "sub/file"]),
        (["diff", "ID", "--", "R"], [":paths", "README"]),
        (["ls", "ID", "s"], [":paths", "sub/"]),
        (["restore", "nonsense", "--", ""], []),
        (["guard", "--", ""], [":files"]),
    ],
)
def test_values_are_completed_with_descriptions(
    ckpt: Ckpt, main_checkout: Checkout, words: list[str], offered: list[str]
) -> None:
    main_checkout.write("gitckpt.toml", "[[pipelines.ci.phases]]\nname = 'a'\nrun = 'true'\n")
    main_checkout.write("sub/file", "x\n")
    with Store.open(main_checkout.path) as store:
        run = store.record("a-started", {}, start="work").run
        name = store.save("b-complete", {}, message="one").id
    words = [name[:8] if word == "ID" else word for word in words]
    done = ckpt("complete", "--for", "zsh", "--", *words, at=main_checkout)
    said = re.sub(r"(now|\d+s), |, (now|\d+s)", "", done.out).replace(name[:8], "ID")
    lines = said.replace(str(run), "RUN").splitlines()
    assert (done.code, lines, done.err) == (0, offered, "")
    piped = ckpt("complete", "--", *words, at=main_checkout).out
    assert ":" not in piped.replace("latest:any", "")


def test_tags_and_paths_in_an_address_are_completed(ckpt: Ckpt, main_checkout: Checkout) -> None:
    main_checkout.write("sub/file", "x\n")
    with Store.open(main_checkout.path) as store:
        saved = store.save("b-complete", {}, message="one")
        store.tag(saved, "works")
    name = saved.id[:8]
    for last_word, offered in {
        "wor": ["works\tnow, one"],
        "works:": [":paths", "works:README", "works:sub/"],
        "latest:s": [":paths", "latest:sub/"],
        "latest:a": [":paths", "latest:any"],
        f"{name}:sub/f": [":paths", f"{name}:sub/file"],
        f"{name}:../": [],
        "none:": [],
    }.items():
        done = ckpt("complete", "--for", "zsh", "--", "show", last_word, at=main_checkout)
        lines = re.sub(r"\t\d+s,", "\tnow,", done.out).splitlines()
        assert (lines, done.err) == (offered, ""), last_word
    assert ckpt("complete", "--", "restore", "works:", at=main_checkout).out == ""


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_is_printed_and_its_shell_can_read_it(
    ckpt: Ckpt, shell: str, tmp_path: Path
) -> None:
    done = ckpt("completion", shell)
    assert (done.code, done.err) == (0, "")
    assert f"git-ckpt complete --for {shell} -- " in done.out
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} here to read it")
    script = tmp_path / "script"
    script.write_text(done.out)
    assert (
        subprocess.run([shell, "-n", str(script)], capture_output=True, check=False).stderr == b""
    )


@pytest.mark.long
@pytest.mark.sampled(2)
@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
@pytest.mark.parametrize(
    ("line", "offered"),
    [
        (["git-ckpt", "sh"], ["show"]),
        (["git", "ckpt", "sh"], ["show"]),
        (["git", "-C", "/", "ckpt", "resu"], ["resume"]),
        (["git", "ckpt", "show", "--"], ["--json", "--raw", "--state", "--help"]),
        (["git-ckpt", "show", "lat"], ["latest", "latest:any"]),
        (["git", "ckpt", "list", "--status", "s"], ["started", "skipped"]),
        (["git-ckpt", "show", "latest", ":"], ["README", "any"]),
        (["git-ckpt", "show", "latest", ":", "R"], ["README"]),
        (["git-ckpt", "show", "latest", ":", "an"], ["any"]),
        (["git-ckpt", "save", "--state", "READ"], ["README"]),
        (["git", "ckpt", "restore", "latest", "--", "R"], ["README"]),
        (["git", "ckpt", "completion", ""], ["bash", "zsh", "fish"]),
        (["git-ckpt", ""], COMMANDS),
        (["git", "ckpt", ""], COMMANDS),
    ],
)
def test_bash_completes(
    ckpt: Ckpt,
    main_checkout: Checkout,
    save: Save,
    git_ckpt: Path,
    tmp_path: Path,
    line: list[str],
    offered: list[str],
) -> None:
    assert git_ckpt.exists()
    save(main_checkout)
    script = tmp_path / "script"
    script.write_text(ckpt("completion", "bash").out)
    program = (
        f'. "{script}"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _git_ckpt; printf "%s\\n" '
        f'"${{COMPREPLY[@]}}"'
    )
    done = subprocess.run(
        ["bash", "-c", program, "bash", *line],
        cwd=main_checkout.path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert (done.stdout.split(), done.stderr) == (offered, "")


@pytest.mark.long(but=["git-ckpt show lat"])
@pytest.mark.skipif(shutil.which("fish") is None, reason="no fish here")
@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("git-ckpt show lat", ["latest\tin this worktree", "latest:any"]),
        ("git ckpt list --status s", ["started", "skipped"]),
        ("git ckpt save --state READ", ["README"]),
        ("git ckpt save -m READ", []),
        ("git-ckpt restore latest -- R", ["README"]),
    ],
)
def test_fish_completes(
    ckpt: Ckpt,
    main_checkout: Checkout,
    save: Save,
    git_ckpt: Path,
    tmp_path: Path,
    line: str,
    offered: list[str],
) -> None:
    assert git_ckpt.exists()
    save(main_checkout)
    script = tmp_path / "script"
    script.write_text(ckpt("completion", "fish").out)
    done = subprocess.run(
        ["fish", "--no-config", "-c", f'source {script}; complete -C "{line}"'],
        cwd=main_checkout.path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == offered


@pytest.mark.long(but=["words1"])
@pytest.mark.skipif(shutil.which("zsh") is None, reason="no zsh here")
@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["sh"], "-V ckpt -d shown -a found|show|show"),
        (["show", "latest:"], "-V ckpt -S  -d shown -a found|latest:README latest:any|"),
        (["show", "late"], "-V ckpt -l -d shown -a found|latest latest:any|latest  -- in this"),
        (["save", "--state", ""], "_files"),
        (["-C", ""], "_files -/"),
        (["save", "-m", ""], ""),
        (["restore", "latest", "--", "R"], "-V ckpt -S  -d shown -a found|README|README"),
    ],
)
def test_zsh_completes(
    ckpt: Ckpt,
    main_checkout: Checkout,
    save: Save,
    git_ckpt: Path,
    tmp_path: Path,
    words: list[str],
    offered: str,
) -> None:
    assert git_ckpt.exists()
    save(main_checkout)
    script = tmp_path / "script"
    script.write_text(ckpt("completion", "zsh").out)
    program = (
        'compadd() { print -r -- "$*|$found|$shown" }; _files() { print -r -- _files $* }; '
        f'words=(git-ckpt "$@"); CURRENT=$#words; . "{script}"'
    )
    done = subprocess.run(
        ["zsh", "-f", "-c", program, "zsh", *words],
        cwd=main_checkout.path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.strip().startswith(offered)
    assert bool(done.stdout.strip()) == bool(offered)
