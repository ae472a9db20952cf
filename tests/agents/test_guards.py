"""Guards keep all that is not ignored before a command that may destroy it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from gitckpt import Store
from gitckpt.agents import guards, shell_command
from tests.conftest import Checkout

READERS = """
ls -la src
cat README
grep -rn TODO src
git status
git status --short
git diff HEAD~1 -- README
git log --oneline -5
head -20 README
pwd
"""
DESTROYERS = """
git reset --hard
git reset --hard HEAD && git clean -fd
git reset --merge
git reset -q
git checkout -- .
git checkout -f
git checkout HEAD -- README
git checkout . && echo done
git switch -f main
git restore .
git restore --staged .
git restore --source=HEAD --staged --worktree .
git clean -fd
git clean -fdx
git stash
git stash -u
git stash push -- README
git stash && git stash drop
git rm -qf README
git rm -q --cached README
git read-tree -u --reset HEAD
git checkout-index -f -a
git -c core.pager=cat checkout -f
git --no-pager reset --hard
(git reset --hard)
true; git reset --hard
if true; then git checkout -- .; fi
sh -c "git reset --hard"
bash -c 'git clean -fd && git checkout .'
cd src && git checkout -- ..
cd src; rm -rf ../draft.txt
rm README
rm -rf src
rm -f *.txt
rm -rf .
find . -name "*.txt" -delete
find . -name "*.txt" -exec rm {} +
find src -type f | xargs rm
ls *.txt | xargs rm -f
mv draft.txt README
mv -f src/app.py README
cp draft.txt README
cp /dev/null README
ln -sf /etc/hostname README
install -m 644 draft.txt README
sed -i s/a/b/g README
perl -pi -e s/a/b/ README
awk '{print $1}' README > README
dd if=/dev/null of=README
truncate -s 0 README
> README
: > README
echo gone > README
echo gone >| README
cat > README <<EOF
cat draft.txt > README
tee README < /dev/null
printf x | tee README
sort -o README README
split -b 1 README README && rm README
unlink draft.txt
shred -u draft.txt
rsync -a --delete src/ copy/ && rm -rf src
tar xf ../archive.tar
tar cf all.tar src --remove-files
python3 -c "open('README','w').close()"
python3 fix.py
python3 - <<EOF
node -e "require('fs').writeFileSync('README','')"
eval "rm README"
X=rm; $X README
`echo rm` README
$(echo rm) README
make clean
./build.sh
black .
ruff check --fix .
prettier --write .
eslint --fix .
cargo fmt
go generate ./...
npm install
pytest
patch -p0 < change.diff
git apply -R change.diff
env rm README
nohup rm README
timeout 5 rm README
xargs rm < list.txt
"""


@pytest.mark.parametrize("command", READERS.strip().splitlines())
def test_readers_are_let_through(command: str) -> None:
    assert shell_command.only_reads(command)


@pytest.mark.parametrize(
    "command",
    [
        "git diff --output=README",
        "git log --outp README",
        "git grep -O rm",
        "git show --ext-diff",
        "ls && rm README",
        "cat a > README",
        "echo `rm README`",
        "ls $(rm README)",
        "ls\nrm README",
        "./ls",
        "A=1 ls",
        "git",
        "git -C . status",
        "git grep -nOrm x",
        "git grep --op=rm x",
        "git log --ext",
    ],
)
def test_readers_with_a_side_effect_are_no_readers(command: str) -> None:
    assert not shell_command.only_reads(command)


def prepare(checkout: Checkout) -> dict[str, bytes]:
    """Leave staged, unstaged and untracked work, and return all files."""
    checkout.write("src/app.py", "print('app')\n")
    checkout.git("add", "src/app.py")
    checkout.write("src/app.py", "print('newer')\n")
    checkout.write("README", "a changed readme\n")
    checkout.write("draft.txt", "draft\n")
    return {
        path.relative_to(checkout.path).as_posix(): path.read_bytes()
        for path in checkout.path.rglob("*")
        if path.is_file() and ".git" not in path.parts
    }


@pytest.mark.sampled(2)
@pytest.mark.parametrize("command", DESTROYERS.strip().splitlines())
def test_all_that_was_there_is_in_a_checkpoint(
    checkout: Checkout, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    files = prepare(checkout)
    staged = checkout.git("write-tree")
    monkeypatch.chdir(checkout.path)
    with Store.open() as store:
        guarded = guards.guard(store, command)
        assert guarded is not None
        environment = {**os.environ, "PATH": f"{os.environ['PATH']}:/nowhere"}
        subprocess.run(
            ["bash", "-c", command],
            check=False,
            capture_output=True,
            timeout=20,
            stdin=subprocess.DEVNULL,
            env=environment,
        )
        os.makedirs(checkout.path, exist_ok=True)
        monkeypatch.chdir(checkout.path)
        store.restore(guarded.id)
    for name, content in files.items():
        assert (checkout.path / name).read_bytes() == content
    assert checkout.git("write-tree") == staged


@pytest.mark.parametrize(
    "command",
    [
        "git -C {other} reset --hard",
        "cd {other} && git checkout -- .",
        "cd {other}; rm README",
        "rm -rf {other}",
        "rm {other}/README",
        "git worktree remove --force {other}",
        "git --work-tree={other} checkout -f",
        'bash -c "cd {other} && git clean -fd"',
        "find {other} -delete",
        "pushd {other} && git stash -u",
        "git worktree remove --force other",
        "rm -rf {other}/..",
        "rm -rf {other}*",
        "make -C{other} clean",
        "git commit -m closes#12; rm -rf {other}",
        "cat <<END\nit's\nEND\nrm -rf {other}; true",
    ],
)
def test_the_worktree_that_a_command_names_is_captured(
    main_checkout: Checkout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    other = tmp_path / "other"
    main_checkout.git("worktree", "add", "-q", "--detach", str(other))
    (other / "README").write_text("work in the other worktree\n")
    monkeypatch.chdir(main_checkout.path)
    with Store.open() as store:
        guards.guard(store, command.format(other="../other" if "../" in command else other))
        saved = [store.diff_commit(entry.id) for entry in store.list()]
        assert sum(b"work in the other worktree" in patch for patch in saved) == 1


@pytest.mark.parametrize(
    "command",
    [
        "git branch -D feature",
        "git branch -f feature HEAD",
        "git update-ref -d refs/heads/feature",
        "git stash drop",
        "git stash clear",
    ],
)
def test_commits_without_another_ref_are_kept(
    main_checkout: Checkout, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    main_checkout.git("checkout", "-q", "-b", "feature")
    main_checkout.git("commit", "-q", "--allow-empty", "-m", "feature")
    main_checkout.git("checkout", "-q", "-")
    main_checkout.write("README", "stashed\n")
    main_checkout.git("stash")
    lost = main_checkout.git("rev-parse", "refs/stash" if "stash" in command else "feature")
    monkeypatch.chdir(main_checkout.path)
    with Store.open() as store:
        guards.guard(store, command)
        guards.guard(store, command)
        assert len(store.list()) == 1  # the same commits are linked once
    subprocess.run(["bash", "-c", command], check=True, capture_output=True)
    main_checkout.git("reflog", "expire", "--expire=now", "--all")
    main_checkout.git("gc", "-q", "--prune=now")
    assert main_checkout.git("cat-file", "-t", lost) == "commit"


def test_worktrees_inside_of_the_current_one_are_captured(
    main_checkout: Checkout, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = main_checkout.path / ".claude/worktrees/agent"
    main_checkout.git("worktree", "add", "-q", "--detach", str(inner))
    (inner / "README").write_text("work of an agent\n")
    monkeypatch.chdir(main_checkout.path)
    with Store.open() as store:
        guards.guard(store, "rm -rf .claude")
        assert any(b"work of an agent" in store.diff_commit(entry.id) for entry in store.list())


def test_commits_of_a_detached_worktree_are_kept_before_it_is_removed(
    main_checkout: Checkout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other"
    main_checkout.git("worktree", "add", "-q", "--detach", str(other))
    Checkout(other).git("commit", "-q", "--allow-empty", "-m", "detached")
    lost = Checkout(other).head()
    monkeypatch.chdir(main_checkout.path)
    with Store.open() as store:
        guards.guard(store, "git worktree remove ../other")
    main_checkout.git("worktree", "remove", "--force", str(other))
    main_checkout.git("gc", "-q", "--prune=now")
    assert main_checkout.git("cat-file", "-t", lost) == "commit"


def test_a_file_that_git_status_hides_is_captured(
    main_checkout: Checkout, monkeypatch: pytest.MonkeyPatch
) -> None:
    main_checkout.git("update-index", "--assume-unchanged", "README")
    main_checkout.write("README", "hidden work\n")
    monkeypatch.chdir(main_checkout.path)
    with Store.open() as store:
        guarded = guards.guard(store, "rm README")
        assert guarded is not None
        assert b"hidden work" in store.diff_commit(guarded.id)


def test_what_only_reflogs_have_is_kept_before_they_expire(
    main_checkout: Checkout, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = []
    for name in ("one", "two"):
        main_checkout.git("commit", "-q", "--allow-empty", "-m", name)
        lost.append(main_checkout.head())
        main_checkout.git("reset", "-q", "--hard", "HEAD~1")
    monkeypatch.chdir(main_checkout.path)
    with Store.open() as store:
        guards.guard(store, "git reflog expire --expire=now --all && git gc --prune=now")
    main_checkout.git("reflog", "expire", "--expire=now", "--all")
    main_checkout.git("gc", "-q", "--prune=now")
    assert [main_checkout.git("cat-file", "-t", oid) for oid in lost] == ["commit"] * 2
