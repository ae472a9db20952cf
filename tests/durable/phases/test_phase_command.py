"""Files of a phase command: full disks, links, pipes, and large files."""

from __future__ import annotations

import os
import resource
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gitckpt import CkptError, Store
from gitckpt.durable.phases import command
from tests import planted
from tests.durable.stage import Stage, stage
from tests.planted import plant
from tests.stores import private_dir

__all__ = ["stage"]


def exchange_in(directory: Path) -> command._StateExchangeFiles:
    run: Any = SimpleNamespace(files=SimpleNamespace(path=str(directory)), state={"a": 1})
    phase: Any = SimpleNamespace(name="one")
    return command._StateExchangeFiles(run, phase)


@pytest.mark.parametrize("name", ["state.json", "set"])
def test_a_full_disk_is_told_with_the_file(tmp_path: Path, name: str) -> None:
    if name == "set":  # `set` gets no content: a directory makes its creation fail
        (tmp_path / name).mkdir()
    exchange = exchange_in(tmp_path)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limits[0] if name == "set" else 0, limits[1]))
    try:
        with pytest.raises(CkptError, match=f"^cannot write {tmp_path / name}: "):
            exchange.write_state_files()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.mark.parametrize("name", ["state.json", "set"])
def test_nothing_is_written_through_a_link_that_was_left(tmp_path: Path, name: str) -> None:
    (tmp_path / "theirs").write_text("theirs")
    (tmp_path / name).symlink_to("theirs")
    exchange_in(tmp_path).write_state_files()
    assert (tmp_path / "theirs").read_text() == "theirs"
    assert not (tmp_path / name).is_symlink()


def test_the_same_is_said_of_each_try_to_copy_the_index(
    plain: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, os.strerror(28))

    plant(monkeypatch, planted.COPY_INDEX, fail)
    said = set()
    for _ in range(2):
        with pytest.raises(CkptError) as caught:
            plain.capture()
        said.add(caught.value.message)
    assert said == {f"cannot copy the index into {private_dir(plain)}: No space left on device"}


SECRET = "hunter2-hunter2"
LEFT = "rm -f {path}; ln -s {target} {path}"


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A file outside of the repository."""
    path = tmp_path / "secret.json"
    path.write_text(f'{{"password": "{SECRET}"}}\n')
    return path


def failed(stage: Stage, *phases: str) -> str:
    """Run a pipeline that fails, and return its message; the secret is not stored."""
    stage.pipeline(*phases)
    done = stage.ckpt("run", "ci")
    assert done.code == 20, done.err
    assert SECRET not in str(stage.newest(stage.run()).state)
    return done.err


class TestFilesOfAnExchange:
    @pytest.mark.parametrize("target", ["secret", "/dev/zero"])
    @pytest.mark.parametrize("name", ["CKPT_STATE", "CKPT_SET"])
    def test_no_link_is_followed(self, stage: Stage, secret: Path, name: str, target: str) -> None:
        target = str(secret) if target == "secret" else target
        said = failed(stage, f"one: {LEFT.format(path=f'${name}', target=target)}")
        assert "not a regular file" in said

    @pytest.mark.long
    @pytest.mark.parametrize("left", ["mkfifo $FILE", "mkdir $FILE", "mkdir -p $FILE/a"])
    @pytest.mark.parametrize("name", ["CKPT_STATE", "CKPT_SET"])
    def test_neither_pipe_nor_directory_is_read(self, stage: Stage, name: str, left: str) -> None:
        said = failed(stage, f"one: rm ${name}; {left.replace('FILE', name)}")
        assert "cannot read " in said
        stage.pipeline("one: true")
        assert stage.ckpt("resume", "--accept-changes").code == 0

    @pytest.mark.long
    @pytest.mark.parametrize("name", ["CKPT_STATE", "CKPT_SET"])
    def test_one_that_is_too_large_is_not_read(self, stage: Stage, name: str) -> None:
        assert "larger than" in failed(stage, f"one: truncate -s 100M ${name}")

    @pytest.mark.parametrize(
        "name",
        ["link", "dir/secret.json", "../../../../secret.json", "/dev/zero", "pipe", "{secret}"],
    )
    def test_no_value_is_read_from_outside(self, stage: Stage, secret: Path, name: str) -> None:
        make = f"ln -s {secret} link; ln -s {secret.parent} dir; mkfifo pipe"
        said = failed(stage, f'one: {make}; echo "key<{name.format(secret=secret)}" >> "$CKPT_SET"')
        assert "in CKPT_SET: " in said
        assert "cannot read " in said

    def test_a_value_is_read_from_the_worktree_or_the_output(self, stage: Stage) -> None:
        sets = ["a<file", "b<link", "c<$CKPT_OUTPUT/file", "d<$PWD/file"]
        lines = "; ".join(f'echo "{line}" >> "$CKPT_SET"' for line in sets)
        files = 'echo x > file; ln -s file link; echo x > "$CKPT_OUTPUT/file"'
        stage.pipeline(f"one: {files}; {lines}")
        assert stage.ckpt("run", "ci").code == 0
        assert stage.newest(stage.run()).state == dict.fromkeys("abcd", "x\n")

    @pytest.mark.long
    @pytest.mark.parametrize("left", ["ln -s {there} $CKPT_OUTPUT", "mkfifo $CKPT_OUTPUT"])
    def test_an_output_behind_a_link_is_omitted(
        self, stage: Stage, secret: Path, left: str
    ) -> None:
        (secret.parent / "empty").mkdir()
        for there in (secret.parent, secret.parent / "empty"):
            stage.pipeline(f"one: rm -rf $CKPT_OUTPUT; {left.format(there=there)}")
            done = stage.ckpt("run", "ci")
            assert done.code == 0, done.err
            assert secret.exists()
            assert (secret.parent / "empty").exists()


AGENT = """
[pipelines.ask]
[[pipelines.ask.phases]]
name = "ask"
use = "agent"
with = { agent = "cat", prompt = "task.md" }
"""


class TestFilesThatAPipelineNames:
    """A branch may track such a file as a link to one of the user's files."""

    @pytest.fixture(autouse=True)
    def linked(self, stage: Stage, secret: Path) -> None:
        for name in ("task.md", "plan.md"):
            (stage.checkout.path / name).symlink_to(secret)
        stage.checkout.write("gitckpt.toml", AGENT)
        stage.checkout.commit("links")

    def test_an_input_is_not_read_through_it(self, stage: Stage, secret: Path) -> None:
        done = stage.ckpt("run", "plan.md")
        assert (done.code, "plan.md, the input plan: outside of" in done.err) == (2, True)

    def test_a_prompt_is_not_read_through_it(self, stage: Stage) -> None:
        done = stage.ckpt("run", "ask")
        assert (done.code, "task.md: outside of" in done.err) == (20, True), done.err
        assert SECRET not in done.err

    @pytest.mark.long
    def test_a_path_outside_that_a_person_names_is_read(self, stage: Stage, secret: Path) -> None:
        stage.program("claude", "cat > asked")
        stage.program("gh", "echo https://example.org/pull/7")
        done = stage.ckpt("run", str(secret.rename(secret.with_suffix(".md"))))
        assert "cannot read" not in done.err
        assert "claude" in stage.calls
