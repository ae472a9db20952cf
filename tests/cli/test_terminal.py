"""Commands print for a person on a real terminal."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import struct
import termios
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from unicodedata import east_asian_width

import pytest

from gitckpt import Limits, Store, UsageError
from gitckpt.cli import terminal
from gitckpt.cli.driver import TerminalObserver
from tests import forked
from tests.cli import conftest as cli
from tests.cli.conftest import Ckpt, Spawn, document, normal, store_text
from tests.conftest import Checkout, git_program
from tests.durable.stage import Stage, stage
from tests.system.hostile.escapes import strange

__all__ = ["stage"]

BOLD, RESET = "\x1b[1m", "\x1b[0m"


def on_terminal(
    *args: str, at: Checkout, columns: int = 80, env: Mapping[str, str | None] | None = None
) -> tuple[int, str]:
    """Return exit code and output of `git ckpt` on a terminal, with both streams."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    clean = {
        name: value
        for name, value in os.environ.items()
        if name not in ("NO_COLOR", "COLUMNS", "TERM", "PAGER")
    }
    variables = {**clean, "TERM": "xterm", "GIT_PAGER": "cat", **(env or {})}
    said: list[bytes] = []
    reader = threading.Thread(target=lambda: said.extend(_chunks(leader)))
    reader.start()
    done = forked.git_ckpt(
        *args,
        directory=at.path,
        env={name: value for name, value in variables.items() if value is not None},
        terminal=os.ttyname(follower),
    )
    os.close(follower)
    reader.join()
    os.close(leader)
    return done.code, b"".join(said).decode().replace("\r\n", "\n")


def _chunks(leader: int) -> Iterator[bytes]:
    """Yield the output on a terminal until the last process closes it."""
    try:
        while chunk := os.read(leader, 65536):
            yield chunk
    except OSError:  # the other side is closed
        pass


def columns_of(line: str) -> int:
    return sum(2 if east_asian_width(c) in "WF" else 1 for c in line)


@pytest.fixture
def busy(main_checkout: Checkout) -> Checkout:
    """Return a repository with a run, a long message and an empty checkpoint."""
    with Store.open(main_checkout.path) as store:
        first = store.record("research-complete", {"step": 1}, start="add login")
        main_checkout.write("README", "changed\n")
        store.record(
            "build-failed",
            {},
            run=first.run,
            worktree=store.capture(),
            message="a message that is " + "very " * 20 + "long",
        )
    main_checkout.write("README", "changed again\n")
    return main_checkout


def test_list_is_a_table(busy: Checkout) -> None:
    code, said = on_terminal("list", at=busy, columns=140)
    head, *rows = said.splitlines()
    assert code == 0
    assert head == f"{BOLD}   ID        AGE  PHASE         FILES  MESSAGE{RESET}"
    first, second = (re.sub(r"\x1b\[\d+(;\d+)*m", "", row) for row in rows)
    assert re.fullmatch(
        r"@  [0-9a-f]{8}  (now|\d+s) +build-failed  1      a message that is( very)+( v?e?r?)?…",
        first,
    )
    assert re.fullmatch(r"   [0-9a-f]{8}  (now|\d+s) +research", second)
    assert len(first) == 140


def test_list_colors_the_unique_part_of_an_id_and_the_status(busy: Checkout) -> None:
    name = _newest_first(busy)[0]
    first, second = on_terminal("list", at=busy, columns=140)[1].splitlines()[1:]
    assert f"\x1b[1;95m{name[:4]}{RESET}\x1b[2m{name[4:8]}{RESET}" in first
    assert f"\x1b[31mbuild-failed{RESET}" in first
    assert f"\x1b[32mresearch{RESET}" in second


def test_list_marks_where_the_worktree_is(busy: Checkout) -> None:
    newest, oldest = _newest_first(busy)
    with Store.open(busy.path) as store:
        assert store.here() == newest
        store.restore(oldest)
        assert store.here() == oldest
        store.restore(newest, ["README"])  # some files are no whole checkpoint
        assert store.here() == oldest
    busy.git("worktree", "add", "--quiet", "../other")
    with Store.open(busy.path.parent / "other") as store:
        assert store.here() is None
    _, said = on_terminal("list", at=busy, env={"NO_COLOR": "1"})
    assert [line[3:11] for line in said.splitlines() if line.startswith("@")] == [oldest[:8]]


def test_list_and_runs_show_the_name_of_a_run(busy: Checkout) -> None:
    with Store.open(busy.path) as store:
        store.record("plan-complete", {}, start="fix typos", message="m" * 100)
    _, said = on_terminal("list", at=busy, env={"NO_COLOR": "1"})
    newest, first, _ = said.splitlines()[1:]
    assert ("fix-typos " in newest, " build-failed" in first) == (True, True)
    assert "PHASE" not in said.splitlines()[0]
    _, said = on_terminal("runs", at=busy, env={"NO_COLOR": "1"})
    assert [row.split()[0] for row in said.splitlines()] == ["RUN", "fix-typos", "add-login"]


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("relative", r"now|\d+s ago"),
        ("iso", r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d [+-]\d{4}"),
        ("local", r"\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \d{4}"),
        ("short", r"\d{4}-\d\d-\d\d"),
        ("unix", r"\d{10}"),
        ("format:on %F", r"on \d{4}-\d\d-\d\d"),
    ],
)
def test_dates_are_as_asked_for(busy: Checkout, ckpt: Ckpt, name: str, shown: str) -> None:
    assert re.fullmatch(shown, ckpt("list", "--date", name, at=busy).out.split("\t")[1])
    assert re.fullmatch(shown, ckpt("runs", "--date", name, at=busy).out.split("\t")[3])


def test_a_date_format_that_is_unknown(busy: Checkout, ckpt: Ckpt) -> None:
    said = ckpt("list", "--date", "x", at=busy)
    assert (said.code, "there is no date format 'x'" in said.err) == (2, True)


def test_list_marks_a_checkpoint_without_its_files(main_checkout: Checkout) -> None:
    main_checkout.write("README", "changed\n")
    with Store.open(main_checkout.path) as store:
        store.record("one-complete", worktree=store.capture(Limits(timeout=0)))
        store.record("two-complete", worktree=store.capture())
        store.record("three-complete")
        degraded = [entry.is_degraded for entry in store.list()]
        assert degraded == [False, False, True]
    _, said = on_terminal("list", at=main_checkout, columns=140, env={"NO_COLOR": "1"})
    assert [("not captured" in row) for row in said.splitlines()[1:]] == degraded
    _, said = on_terminal("list", "--json", at=main_checkout)
    captured = [row["files"]["captured"] for row in json.loads(said)["checkpoints"]]
    assert captured == [False, True, False]


@pytest.mark.parametrize("columns", [100, 80, 60, 30])
def test_no_line_is_wider_than_the_terminal(busy: Checkout, columns: int) -> None:
    busy.git(
        "checkout",
        "--quiet",
        "-b",
        "a-branch-with-a-name-that-goes-on-and-on/日本語のとても長い名前",
    )
    with Store.open(busy.path) as store:
        store.record("plan-complete", {}, message="日本語" * 40)
    code, said = on_terminal("list", at=busy, columns=columns, env={"NO_COLOR": "1"})
    lines = said.splitlines()
    assert code == 0
    assert len(lines) == 4
    assert max(map(columns_of, lines)) <= columns
    assert "…" in lines[1]
    assert [line[3:11] for line in lines[1:]] == [
        name.rpartition("/")[2][:8] for name in _newest_first(busy)
    ]


def _newest_first(checkout: Checkout) -> list[str]:
    with Store.open(checkout.path) as store:
        return [entry.id for entry in store.list()]


def test_columns_stay_aligned_whatever_the_script(busy: Checkout) -> None:
    busy.git("checkout", "--quiet", "-b", "日本")
    with Store.open(busy.path) as store:
        store.record("plan-complete", {}, message="x")
    _, said = on_terminal("list", at=busy, columns=200, env={"NO_COLOR": "1"})
    head, newest, *_ = said.splitlines()
    assert columns_of(newest[: newest.index("日本")]) == head.index("BRANCH")
    assert columns_of(newest[: newest.rindex("x")]) == head.index("MESSAGE")


def test_a_column_without_anything_is_left_out(main_checkout: Checkout) -> None:
    with Store.open(main_checkout.path) as store:
        store.record("plan-complete", {})
    _, said = on_terminal("list", at=main_checkout, env={"NO_COLOR": "1"})
    assert said.splitlines()[0].split() == ["ID", "AGE", "COMMIT", "BRANCH", "MESSAGE"]
    _, said = on_terminal("list", at=main_checkout, columns=30, env={"NO_COLOR": "1"})
    assert said.splitlines()[0].split() == ["ID", "AGE", "MESSAGE"]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "args", [["list"], ["show"], ["doctor"], ["diff", "HEAD"], ["nonsense"], ["show", "nothing"]]
)
def test_colour_only_on_a_terminal_that_wants_it(busy: Checkout, args: list[str]) -> None:
    code, coloured = on_terminal(*args, at=busy)
    assert "\x1b[" in coloured
    for env in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        plain = on_terminal(*args, at=busy, env=env)
        assert (plain[0], "\x1b" in plain[1]) == (code, False), env
    piped = forked.git_ckpt(
        *args, directory=busy.path, env=os.environ | {"NO_COLOR": "", "TERM": "xterm"}
    )
    assert piped.code == code
    assert "\x1b" not in piped.out + piped.err


def test_an_empty_no_color_counts_as_not_set(busy: Checkout) -> None:
    assert BOLD in on_terminal("list", at=busy, env={"NO_COLOR": ""})[1]


def test_a_stored_document_is_harmless_on_a_terminal(main_checkout: Checkout, spawn: Spawn) -> None:
    name = "11111111-1111-4111-8111-111111111111"
    text = document(message='"\u009b31m"') + "k = 1\n"
    store_text(main_checkout, f"refs/checkpoints/{name}", text)
    _, said = on_terminal("show", name, "--raw", at=main_checkout)
    assert said == text.replace("\u009b", "\\x9b")
    assert spawn("show", name, "--raw", at=main_checkout).out == text


def test_a_path_with_escape_sequences_is_harmless_on_a_terminal_and_exact_in_a_pipe(
    main_checkout: Checkout, tmp_path: Path, spawn: Spawn
) -> None:
    with Store.open(main_checkout.path) as store:
        store.record("plan-complete", {})
    place = os.fsdecode(os.fsencode(tmp_path / "a\x1b[31m\n") + b"\xff")
    _, said = on_terminal("--quiet", "resume", "latest", "--into", place, at=main_checkout)
    assert said == f"{tmp_path}/a\\x1b[31m\\n\\u{{dcff}}\n"
    assert spawn("--quiet", "resume", "latest", "--into", place, at=main_checkout) == (
        0,
        f"{place}\n",
        "",
    )


def test_expire_is_a_table(busy: Checkout) -> None:
    code, said = on_terminal("expire", "--dry-run", at=busy, columns=120, env={"NO_COLOR": "1"})
    assert code == 0
    assert normal(said) == (
        "WHAT   ID                         PHASE         WHY\n"
        "stays  STAMP-add-login  build-failed  unfinished: failed\n"
        "0 of 2 checkpoints would expire; 0 of 1 run\n"
    )


@pytest.mark.long
def test_a_capture_that_takes_long_says_so(main_checkout: Checkout) -> None:
    main_checkout.commit("rules", **{".gitattributes": "slow filter=slow\n"})
    main_checkout.git("config", "filter.slow.clean", "sleep 1.5; cat")
    main_checkout.write("slow", "x\n")
    code, said = on_terminal("save", at=main_checkout)
    assert code == 0
    assert "\r\x1b[K… capturing the files: 1s\r\x1b[K" in said


@pytest.mark.long(but=["list"])
@pytest.mark.parametrize(
    "words",
    [["du"], ["verify"], ["expire", "--dry-run"], ["list"], ["doctor"]],
    ids=lambda words: words[0],
)
def test_what_takes_longer_than_a_second_says_so_at_a_terminal_alone(
    busy: Checkout, tmp_path: Path, spawn: Spawn, words: list[str]
) -> None:
    """Git answers late, once."""
    slow, slept = tmp_path / "slow git", tmp_path / "slept"
    waits = (
        f"case \" $* \" in *' for-each-ref '*) [ -e '{slept}' ] || {{ : >'{slept}'; sleep "
        f"1.4; }};; esac"
    )
    slow.write_text(f"#!/bin/sh\n{waits}\nexec '{git_program()}' \"$@\"\n")
    slow.chmod(0o755)
    (busy.main / ".git/ckpt/index.sqlite").unlink(missing_ok=True)
    code, said = on_terminal(*words, at=busy, env={"GITCKPT_GIT": str(slow), "NO_COLOR": "1"})
    assert code in (0, 1)  # doctor finds no hooks
    assert slept.exists()
    assert re.search("\r\x1b\\[K… [a-z, ]+: 1s\r\x1b\\[K", said), said
    slept.unlink()
    (busy.main / ".git/ckpt/index.sqlite").unlink(missing_ok=True)
    done = spawn(*words, at=busy, env={"GITCKPT_GIT": str(slow)})
    assert slept.exists()
    assert "…" not in done.out + done.err


# Waits before git reads the rest of the paths, or after git's first progress line.
SLOW_GIT = """#!/bin/sh
case " $* " in
*" update-index --add "*) {{ head -c 18000; sleep $READS; cat; }} | '{git}' "$@"; exit;;
*" read-tree "*" -v "*|*" reset --no-quiet "*)
    printf 'Updating files:  24%% (240/1000)\\rUpdating files:  30%% (300/1000)\\r' >&2
    sleep $WRITES;;
esac
exec '{git}' "$@"
"""


@pytest.mark.long(but=["restore"])
@pytest.mark.parametrize("command", ["save", "restore", "redo", "resume", "resume a commit"])
def test_many_files_are_counted_at_a_terminal_alone(
    main_checkout: Checkout, tmp_path: Path, spawn: Spawn, command: str
) -> None:
    git = tmp_path / "slow git"
    git.write_text(SLOW_GIT.format(git=git_program()))
    git.chmod(0o755)
    env = {"GITCKPT_GIT": str(git), "NO_COLOR": "1", "READS": "0", "WRITES": "0"}
    for content in ("committed", "changed"):
        for number in range(1000):
            main_checkout.write(f"directory/a file {number:06}", f"{content} {number}\n")
        if content == "committed":
            main_checkout.commit("many files")
    words = [command]
    with Store.open(main_checkout.path) as store:
        saved = store.record("a") if command == "resume a commit" else store.save("a")
        if command in ("restore", "redo"):
            main_checkout.git("stash")
            words += [saved.id] if command == "restore" else []
        if command == "redo":
            store.restore(saved)
            store.undo()
    if command.startswith("resume"):
        words = ["resume", "--no-run", saved.id]
    pattern, slow = r"restoring files: 300 of 1,000", {"WRITES": "1.4"}
    if command == "save":
        pattern = r"reading files: \d+ of 1,000 \([\d,]+/s, \d+s left\)"
        slow = {"READS": "1.4"}
    code, said = on_terminal(*words, at=main_checkout, env=env | slow)
    assert code == 0, said
    assert re.search(rf"\r\x1b\[K… {pattern}[^\r\n]*\r\x1b\[K", said), said
    assert "Updating" not in said
    if command in ("save", "restore"):
        words = ["undo"] if command == "restore" else words
        done = spawn(*words, at=main_checkout, env=env | slow)
        assert done.code == 0
        assert "…" not in done.out + done.err


@pytest.mark.parametrize(
    ("numbers", "seconds", "text"),
    [
        ([(0, 50_000), (12_345, 50_000)], 3, "12,345 of 50,000 (4,115/s, 10s left)"),
        ([(5000, 50_000), (20_000, 50_000)], 5, "20,000 of 50,000 (3,000/s, 11s left)"),
        ([(0, 100), (3, 100)], 10, "3 of 100 (0.3/s, 5m left)"),
        ([(0, 100)], 10, "0 of 100"),
        ([(90, 100), (10, 100)], 10, "10 of 100"),  # git begins again
        ([(90, 100), (10, 200)], 10, "10 of 200"),
        ([(0, 100), (100, 100)], 10, None),
    ],
)
def test_a_rate_and_the_remaining_time(
    monkeypatch: pytest.MonkeyPatch,
    numbers: list[tuple[int, int]],
    seconds: int,
    text: str | None,
) -> None:
    monkeypatch.setattr(terminal.TerminalState, "counter", None)
    monkeypatch.setattr("time.monotonic", lambda: 1000.0)
    for count, total in numbers:
        terminal.count_progress("restoring files", count, total)
    counter = terminal.TerminalState.counter
    shown = None if counter is None else counter.text(1000.0 + seconds)
    assert shown == (None if text is None else f"restoring files: {text}")


@pytest.mark.parametrize("columns", [1, 2, 7, 12])
def test_a_terminal_that_is_too_narrow_for_a_table_gets_what_fits(
    busy: Checkout, columns: int
) -> None:
    code, said = on_terminal("list", at=busy, columns=columns, env={"NO_COLOR": "1"})
    assert (code, len(said.splitlines())) == (0, 3)


def test_a_style_cannot_be_put_into_a_text() -> None:
    with pytest.raises(TypeError, match="a text cannot contain styled text"):
        f"{terminal.heading('x')}: y"


def test_a_patch_is_coloured_line_by_line_and_harmless(
    main_checkout: Checkout, spawn: Spawn
) -> None:
    with Store.open(main_checkout.path) as store:
        first = store.record("a-complete", {})
    main_checkout.write("README", "new\x1b[35m\u202e\ttext\r\n")
    _, said = on_terminal("diff", first.id, at=main_checkout)
    assert "\x1b[31m-hello\x1b[0m" in said.splitlines()
    assert "\x1b[32m+new\\x1b[35m\\u{202e}\ttext\\r\x1b[0m" in said.splitlines()
    assert "+new\x1b[35m\u202e\ttext\r\n" in spawn("diff", first.id, at=main_checkout).out


def test_what_git_pages_is_harmless_and_else_as_in_a_pipe(
    main_checkout: Checkout,
    ckpt: Ckpt,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`git -p ckpt diff` escapes text, because a pager passes it to the terminal."""
    with Store.open(main_checkout.path) as store:
        first = store.record("a-complete", {}, message="one")
    main_checkout.write("README", "new\x1b]0;t\x07\u202e\ttext\r\n")
    piped = {words: ckpt(*words, at=main_checkout).out for words in (("list",), ("diff", first.id))}
    monkeypatch.setenv("GIT_PAGER_IN_USE", "1")
    paged = {words: ckpt(*words, at=main_checkout).out for words in piped}
    assert paged["list",] == piped["list",]
    assert "+new\x1b]0;t\x07\u202e\ttext\r\n" in piped["diff", first.id]
    assert "+new\\x1b]0;t\\x07\\u{202e}\ttext\\r\n" in paged["diff", first.id]
    assert "\x1b" not in paged["diff", first.id]


UNSEEN = "\u202e\u2066\u200f\u061c\u200b\ufeff\u00ad\u2028\U000e0041"


class TestWhatACommandPrints:
    def test_nothing_unseen_passes(self, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
        text = f"a\x1b[1mb\xff\u00e9\u5d4c{UNSEEN}".encode() + b"\xff\xe2\x80"
        for size in (1, 2, 3, 1000):  # a character may come in parts
            person = TerminalObserver()
            for start in range(0, len(text), size):
                person.output(text[start : start + size])
            person.ended("one", "complete", None)
            said = capfdbinary.readouterr().err.partition(b"\n")[0]
            escaped = "".join(terminal.escape_text(character) for character in UNSEEN)
            assert said == f"a\x1b[1mb\xff\u00e9\u5d4c{escaped}".encode() + b"\xff\xe2\x80"

    @pytest.mark.long
    @pytest.mark.parametrize("client", ["claude", "talker"])
    def test_nor_in_the_words_of_an_agent(self, stage: Stage, client: str) -> None:
        words = f"x{UNSEEN}\x1b]0;t\x07y"
        message = {"role": "assistant", "content": [{"type": "text", "text": words}]}
        says = [{"type": "assistant", "message": message}, {"type": "result", "result": "done"}]
        answer = "\n".join(map(json.dumps, says)) if client == "claude" else words
        (stage.checkout.path / "answer").write_text(answer)
        stage.program(client, "cat answer; echo")
        phase = f"use = 'agent'\nwith = {{ agent = '{client}', prompt = 'README' }}\n"
        stage.checkout.write("gitckpt.toml", f"[[pipelines.ci.phases]]\nname = 'ask'\n{phase}")
        stage.checkout.commit("a pipeline")
        said = stage.ckpt("run", "ci").err
        escaped = "".join(terminal.escape_text(character) for character in UNSEEN)
        assert f"x{escaped}" in said
        assert strange(said) == []
        _, shown = on_terminal("run", "ci", at=stage.checkout, env=stage.env)
        assert f"x{escaped}" in shown
        assert strange(shown) == []


def test_a_person_is_told_the_beginning_of_a_long_word(capsys: pytest.CaptureFixture[str]) -> None:
    path = "p" * 4096
    terminal.warn(f"a {'b' * 5001} c {path}\x1b")
    terminal.remark("word " * 4000)
    terminal.print_error(UsageError("m" * 10**6, hint="h" * 10**6))
    longest = "word " * 2000
    assert capsys.readouterr().err == (
        f"warning: a {'b' * 200}… c {path}\\x1b\n{longest}…\nerror: {'m' * 200}…\n"
        f"hint: {'h' * 200}…\n"
    )


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0 bytes"),
        (1, "1 byte"),
        (999, "999 bytes"),
        (1000, "1.0 kB"),
        (999_949, "999.9 kB"),
        (999_950, "1.0 MB"),
        (2_002_944, "2.0 MB"),
        (999_999_999, "1.0 GB"),
        (1_234_567_890_123_456, "1234.6 TB"),
    ],
)
def test_sizes_are_as_people_read_them(number: int, text: str) -> None:
    assert terminal.size_text(number) == cli.size(number) == text


class TestPager:
    def test_it_gets_the_output_with_colors(self, busy: Checkout) -> None:
        _, said = on_terminal("list", "--all", at=busy, env={"GIT_PAGER": "sed 's/^/| /'"})
        head, *rows = said.splitlines()
        assert head.startswith(f"| {BOLD}   ID ")
        assert [row[:2] for row in rows] == ["| ", "| "]

    @pytest.mark.parametrize("name", ["core.pager", "pager.ckpt", "PAGER"])
    def test_git_finds_it(self, busy: Checkout, name: str) -> None:
        env: dict[str, str | None] = {"GIT_PAGER": None, "PAGER": "cat"}
        if name == "PAGER":
            env["PAGER"] = "sed 's/^/| /'"
        else:
            busy.git("config", name, "sed 's/^/| /'")
        assert on_terminal("list", "--all", at=busy, env=env)[1].startswith("| ")

    @pytest.mark.parametrize("pager", ["cat", ""])
    def test_cat_is_none(self, busy: Checkout, pager: str) -> None:
        env = {"GIT_PAGER": pager}
        assert on_terminal("list", "--all", at=busy, env=env)[1].startswith(BOLD)

    def test_a_missing_pager_hides_nothing(self, busy: Checkout) -> None:
        code, said = on_terminal("list", "--all", at=busy, env={"GIT_PAGER": "no-such-pager"})
        assert code == 0
        assert "no pager: cannot start no-such-pager" in said
        assert "build-failed" in said

    @pytest.mark.long
    def test_quitting_it_ends_quietly(self, main_checkout: Checkout) -> None:
        with Store.open(main_checkout.path) as store:
            for number in range(400):
                store.record("a-complete", {}, message=f"{number} {'x' * 900}")
        env = {"GIT_PAGER": "head -n 1", "NO_COLOR": "1"}
        code, said = on_terminal("list", "--all", at=main_checkout, env=env, columns=1000)
        assert (code, len(said.splitlines())) == (0, 1)

    def test_no_color_in_it_where_git_has_none(self, busy: Checkout) -> None:
        busy.git("config", "color.pager", "false")
        _, said = on_terminal("list", "--all", at=busy, env={"GIT_PAGER": "sed 's/^/| /'"})
        assert "\x1b" not in said

    def test_a_pager_of_git_gets_a_table(self, busy: Checkout, git_ckpt: Path) -> None:
        assert git_ckpt.exists()
        _, said = on_terminal("list", at=busy, env={"GIT_PAGER_IN_USE": "true"})
        assert said.startswith(BOLD)


@pytest.mark.parametrize(
    ("settings", "is_colored"),
    [
        ({"color.ui": "false"}, False),
        ({"color.ui": "never"}, False),
        ({"color.ui": "always"}, True),
        ({"color.ui": "false", "color.ckpt": "auto"}, True),
        ({"color.ckpt": "never"}, False),
    ],
)
def test_git_settings_decide_on_colors(
    busy: Checkout, settings: dict[str, str], is_colored: bool
) -> None:
    for name, value in settings.items():
        busy.git("config", name, value)
    assert ("\x1b[" in on_terminal("list", at=busy)[1]) == is_colored


@pytest.mark.parametrize(
    ("text", "columns", "fitted"),
    [
        ("abc", 3, "abc"),
        ("abcd", 3, "ab…"),
        ("日本語", 5, "日本…"),
        ("日本語", 4, "日…"),
        ("ab", 0, ""),
    ],
)
def test_a_text_is_cut_to_columns(text: str, columns: int, fitted: str) -> None:
    assert terminal.fit(text, columns).text == fitted
    assert terminal.fit(terminal.EscapedText(f"{BOLD}{text}{RESET}"), columns).text == (
        f"{BOLD}{fitted}{RESET}"
    )
