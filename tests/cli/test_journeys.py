"""Complete journeys, from `init` to the restored work."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from gitckpt import Store
from tests.cli.conftest import Ckpt, Outcome, Spawn, normal
from tests.conftest import Checkout
from tests.stores import HOOKS

Save = Callable[..., str]
NAMES = (
    "with space",
    'it\'s "quoted"',
    "größe/日本語",
    "new\nline",
    "-dash",
    "tab\there",
    "back\\slash",
    "*?[glob]",
)


def files_of(path: Path) -> dict[str, bytes]:
    """Map each file of a worktree to its content."""
    return {
        str(file.relative_to(path)): file.read_bytes()
        for file in sorted(path.rglob("*"))
        if file.is_file() and not {".git", ".ckpt"} & set(file.relative_to(path).parts)
    }


def place_of(checkout: Checkout, name: str) -> Path:
    return checkout.main / ".ckpt/worktrees" / name


def test_init_tells_what_it_did_and_a_second_time_does_nothing(
    ckpt: Ckpt, checkout: Checkout
) -> None:
    done = ckpt("init", "--hooks", "files", at=checkout)
    hooks = checkout.main / ".git/hooks"
    assert done == Outcome(
        0,
        "".join(f"{event}: wrote {hooks / event}\n" for event in HOOKS)
        + "added notes.rewriteRef = refs/notes/checkpoint[s] to the configuration\n"
        + "added notes.rewriteMode = cat_sort_uniq to the configuration\n"
        + "added gc.cruftPacks = true to the configuration\n"
        + f"wrote {checkout.path}/gitckpt.toml: commit it to share the settings\n",
        "every commit records a checkpoint now; to list checkpoints: git ckpt list\n",
    )
    before = checkout.fingerprint()
    again = ckpt("init", at=checkout)
    assert again.out == "already initialized; nothing changed\n"
    assert checkout.fingerprint() == before
    assert ckpt("doctor", at=checkout).out.splitlines()[-1] == "nothing is wrong"


@pytest.mark.long
def test_an_amended_commit_survives_gc_and_comes_back(
    ckpt: Ckpt, checkout: Checkout, git_ckpt: Path
) -> None:
    assert git_ckpt.exists()
    checkout.git("ckpt", "init", "--hooks", "files")
    checkout.commit("first thoughts", **{"a.txt": "first\n", "b.txt": "kept\n"})
    lost = checkout.git("rev-parse", "HEAD")
    expected = files_of(checkout.path)
    (id_,) = (name.rpartition("/")[2] for name in checkout.refs("refs/checkpoints"))
    assert normal(ckpt("list", at=checkout).out) == (
        f"ID\tTIME\t-\tcommit-complete\tOID\t{checkout.git('branch', '--show-current')}\t-\t"
        "first thoughts\n"
    )
    checkout.write("a.txt", "second\n")
    checkout.git("commit", "--quiet", "--all", "--amend", "--message", "second thoughts")
    assert [line.rpartition("\t")[2] for line in ckpt("list", at=checkout).out.splitlines()] == [
        "second thoughts",
        "first thoughts",
    ]
    checkout.git("reflog", "expire", "--expire=now", "--expire-unreachable=now", "--all")
    checkout.git("gc", "--quiet", "--prune=now")
    done = ckpt("resume", id_, at=checkout)
    place = place_of(checkout, id_)
    assert done == Outcome(0, f"{place}\n", f"made the worktree of {id_[:8]} (commit-complete)\n")
    assert files_of(place) == expected
    resumed = Checkout(place)
    assert resumed.git("rev-parse", "HEAD") == lost
    assert resumed.git("status", "--porcelain") == ""
    assert resumed.git("symbolic-ref", "--quiet", "HEAD", ok=(1,)) == ""
    assert f"locked gitckpt {id_}" in checkout.git("worktree", "list", "--porcelain")
    assert checkout.git("status", "--porcelain") == ""


def make_a_mess(checkout: Checkout) -> None:
    """Make changes of every kind, to files with every kind of name."""
    for name in NAMES:
        checkout.write(f"tracked/{name}", "committed\n")
    checkout.write("gone", "gone\n")
    checkout.commit("before the mess")
    for name in NAMES:
        checkout.write(f"tracked/{name}", "changed\n")
        checkout.write(f"new/{name}", "untracked\n")
    (checkout.path / "gone").unlink()
    checkout.write("staged", "staged\n")
    checkout.git("add", "staged")
    checkout.write("staged", "and changed since\n")
    (checkout.path / "link").symlink_to("nowhere")
    script = checkout.write("script", "#!/bin/sh\n")
    script.chmod(0o755)


def test_uncommitted_work_comes_back_after_the_worktree_was_wrecked(
    ckpt: Ckpt, checkout: Checkout
) -> None:
    make_a_mess(checkout)
    status, expected = (
        checkout.git("status", "--porcelain=v2", "-z", "--untracked-files=all"),
        files_of(checkout.path),
    )
    saved = ckpt("save", "--state", "-", at=checkout, stdin='{"step": 3}')
    id_ = saved.out.strip()
    checkout.git("reset", "--quiet", "--hard", "HEAD~1")
    checkout.git("clean", "--quiet", "-d", "-x", "--force")
    done = ckpt("resume", "latest", at=checkout)
    place = place_of(checkout, id_)
    assert done == Outcome(
        0,
        f"{place}\n",
        (
            f"made the worktree of {id_[:8]} (manual-complete)\n"
            f"to see the state: git ckpt show {id_[:8]} --state\n"
        ),
    )
    assert files_of(place) == expected
    assert os.readlink(place / "link") == "nowhere"
    assert os.access(place / "script", os.X_OK)
    assert Checkout(place).git("status", "--porcelain=v2", "-z", "--untracked-files=all") == status
    assert json.loads(ckpt("show", id_, "--state", at=checkout).out) == {"step": 3}
    assert checkout.git("status", "--porcelain") == ""


def test_a_worktree_that_is_there_is_returned_as_it_stands(
    ckpt: Ckpt, checkout: Checkout, save: Save
) -> None:
    checkout.write("README", "saved\n")
    id_ = save(checkout)
    place = place_of(checkout, id_)
    assert ckpt("--quiet", "resume", id_, at=checkout) == Outcome(0, f"{place}\n", "")
    resumed = Checkout(place, checkout.main)
    resumed.write("README", "unsaved work\n")
    resumed.write("more", "of it\n")
    resumed.git("add", "more")
    before = resumed.fingerprint()
    again = ckpt("resume", id_, at=checkout)
    assert again == Outcome(
        0,
        f"{place}\n",
        (
            f"the worktree of {id_[:8]} (manual-complete) existed already, and nothing in "
            "it was changed\n"
        ),
    )
    assert ckpt("resume", id_[:8], at=place).out == f"{place}\n", "from within it, too"
    assert resumed.fingerprint() == before


@pytest.mark.long
def test_the_newest_of_a_run_opens_the_run_s_worktree_in_which_commits_extend_the_run(
    ckpt: Ckpt, checkout: Checkout, git_ckpt: Path
) -> None:
    assert git_ckpt.exists()
    with Store.open(checkout.path) as store:
        first = store.record("research-complete", {"step": 1}, start="add login")
        second = store.record("plan-complete", None, run=first.run, worktree=store.capture())
    assert first.run is not None
    place = place_of(checkout, first.run)
    assert ckpt("-q", "resume", first.run[:17], at=checkout) == Outcome(0, f"{place}\n", "")
    resumed = Checkout(place, checkout.main)
    resumed.git("ckpt", "init", "--hooks", "files")
    resumed.commit("in the run")
    assert ckpt("-q", "save", "--phase", "build", at=place).code == 0
    done = ckpt("list", "--run", first.run, at=checkout)
    assert [line.split("\t")[3] for line in done.out.splitlines()] == [
        *("build-complete", "commit-complete", "plan-complete", "research-complete")
    ]
    newest = json.loads(ckpt("show", first.run, "--json", at=checkout).out)
    assert (newest["sequence"], newest["state"]) == (4, {"step": 1})
    assert ckpt("-q", "resume", first.run, at=checkout).out == f"{place}\n"
    older = ckpt("-q", "resume", second.id, "--no-run", at=checkout)
    assert older.out == f"{place_of(checkout, second.id)}\n", "an older one has its own"
    refused = ckpt("resume", second.id, at=checkout)
    assert (refused.code, refused.err.splitlines()[0]) == (
        2,
        f"error: checkpoint {second.id[:8]} is not the newest of run {first.run}",
    )


@pytest.mark.long
def test_uninit_leaves_every_checkpoint_and_everybody_s_text(
    ckpt: Ckpt, checkout: Checkout, git_ckpt: Path
) -> None:
    assert git_ckpt.exists()
    hook = checkout.main / ".git/hooks/post-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\necho mine\n")
    hook.chmod(0o755)
    config = (checkout.main / ".git/config").read_bytes()
    checkout.git("ckpt", "init", "--hooks", "files")
    checkout.write("README", "one\n")
    checkout.git("commit", "--quiet", "--all", "--message", "one")
    assert len(checkout.refs("refs/checkpoints")) == 1
    listed = ckpt("list", at=checkout)  # which writes the notes
    refs = checkout.refs()
    done = ckpt("uninit", at=checkout)
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines()[-1] == f"removed {checkout.path}/gitckpt.toml"
    assert hook.read_text() == "#!/bin/sh\necho mine\n"
    assert sorted(path.name for path in hook.parent.iterdir() if path.suffix != ".sample") == [
        "post-commit"
    ]
    assert (checkout.main / ".git/config").read_bytes() == config
    assert checkout.refs() == refs
    assert ckpt("list", at=checkout) == listed
    checkout.commit("without a checkpoint")
    assert ckpt("list", at=checkout) == listed
    assert ckpt("uninit", at=checkout) == Outcome(0, "not initialized; nothing changed\n", "")


@pytest.mark.parametrize("committed", [True, False])
def test_uninit_leaves_settings_that_are_not_only_its_own(
    ckpt: Ckpt, checkout: Checkout, committed: bool
) -> None:
    assert ckpt("init", "--hooks", "files", at=checkout).code == 0
    path = checkout.path / "gitckpt.toml"
    if committed:
        checkout.git("add", "gitckpt.toml")
    else:
        path.write_text(path.read_text().replace("30d", "60d"))
    text = path.read_bytes()
    done = ckpt("uninit", at=checkout)
    why = "committed, and other clones may use it" if committed else "changed"
    assert (done.code, done.err) == (
        0,
        f"{path} stays: the file {'is' if committed else 'was'} {why}\n",
    )
    assert path.read_bytes() == text


def test_from_a_subdirectory_everything_is_as_at_the_top(ckpt: Ckpt, checkout: Checkout) -> None:
    checkout.write("sub/dir/file", "text\n")
    id_ = ckpt("-q", "save", at=checkout.path / "sub/dir").out.strip()
    assert ckpt("diff", id_, at=checkout) == Outcome(0, "", ""), (
        "all of the worktree was saved, not the subdirectory alone"
    )
    for args in (["list"], ["show"], ["diff", "HEAD"]):
        assert ckpt(*args, at=checkout.path / "sub") == ckpt(*args, at=checkout)
    assert (
        ckpt("-q", "resume", "latest", at=checkout.path / "sub").out
        == f"{place_of(checkout, id_)}\n"
    )
    assert (place_of(checkout, id_) / "sub/dir/file").read_text() == "text\n"
    relative = ckpt(
        "-q", "resume", "latest", "--into", "../../../elsewhere", at=checkout.path / "sub/dir"
    )
    assert relative.out == f"{checkout.path.parent}/elsewhere\n"


def test_git_itself_finds_the_command(checkout: Checkout, git_ckpt: Path, tmp_path: Path) -> None:
    assert git_ckpt.exists()
    id_ = checkout.git("ckpt", "--quiet", "save")
    assert Checkout(tmp_path).git("-C", str(checkout.path), "ckpt", "list").startswith(id_)
    assert checkout.git("ckpt", "show", id_, "--state") == "{}"
    git_dir = checkout.git("rev-parse", "--absolute-git-dir")
    outside = Checkout(tmp_path)
    assert outside.git(
        f"--git-dir={git_dir}", f"--work-tree={checkout.path}", "ckpt", "list"
    ).startswith(id_)


def test_git_dir_and_work_tree_are_respected(
    spawn: Spawn, checkout: Checkout, tmp_path: Path
) -> None:
    checkout.write("README", "dirty\n")
    git_dir = checkout.git("rev-parse", "--absolute-git-dir")
    env = {"GIT_DIR": git_dir, "GIT_WORK_TREE": str(checkout.path)}
    saved = spawn("--quiet", "save", at=tmp_path, env=env)
    assert (saved.code, saved.err) == (0, "")
    id_ = saved.out.strip()
    assert spawn("show", id_, at=tmp_path, env=env).out.splitlines()[-2:] == [
        "     README | 2 +-",
        "     1 file changed, 1 insertion(+), 1 deletion(-)",
    ]
    assert spawn("list", at=tmp_path, env=env).out == spawn("list", at=checkout).out


def test_the_environment_of_a_hook_does_not_lead_astray(checkout: Checkout, git_ckpt: Path) -> None:
    """Git sets GIT_DIR and GIT_INDEX_FILE for hooks, which may call any command."""
    assert git_ckpt.exists()
    hook = checkout.main / ".git/hooks/pre-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(
        "#!/bin/sh\necho new > new\n"
        "git ckpt --quiet save > ../saved && git ckpt --quiet resume latest > ../place\n"
    )
    hook.chmod(0o755)
    checkout.write("README", "staged\n")
    checkout.git("commit", "--quiet", "--all", "--message", "with a hook")
    place = Path((checkout.path.parent / "place").read_text().strip())
    assert place == place_of(checkout, (checkout.path.parent / "saved").read_text().strip())
    assert files_of(place) == {"README": b"staged\n", "new": b"new\n"}
    assert checkout.git("status", "--porcelain") == "?? new"


def test_a_bare_repository(
    ckpt: Ckpt, main_checkout: Checkout, make_checkout: Callable[..., Checkout], tmp_path: Path
) -> None:
    bare = make_checkout("bare", "--bare")
    main_checkout.git("push", "--quiet", str(bare.path), "main:main")
    refused = ckpt("save", at=bare)
    assert refused == Outcome(
        14,
        "",
        (
            "error: this repository has no worktree to save files from\n"
            "hint: save without files: git ckpt save --no-worktree\n"
        ),
    )
    assert bare.refs("refs/checkpoints", "refs/ckpt") == {}
    saved = ckpt("save", "--no-worktree", "-m", "bare", at=bare)
    assert normal(saved.err) == "saved manual-complete with no files on commit SHORT\n"
    id_ = saved.out.strip()
    assert ckpt("list", at=bare).out.startswith(id_)
    assert ckpt("diff", id_, at=bare) == Outcome(
        14,
        "",
        (
            "error: there is no worktree here to compare with\n"
            "hint: compare two checkpoints: git ckpt diff ID ID\n"
        ),
    )
    assert ckpt("diff", id_, id_, at=bare) == Outcome(0, "", "")
    assert ckpt("resume", "latest", at=bare) == Outcome(
        14,
        "",
        f"error: no directory for worktrees: {bare.path} is bare\n"
        "hint: choose a directory: git config ckpt.worktreeDir DIR, or git ckpt "
        "resume ID --into DIR\n",
    )
    assert ckpt("resume", "latest", "--into", "../there", at=bare).out == f"{tmp_path}/there\n"
    assert files_of(tmp_path / "there") == {"README": b"hello\n"}
    bare.git("config", "ckpt.worktreeDir", "../others")
    assert ckpt("-q", "resume", "latest", at=bare) == Outcome(0, f"{tmp_path}/others/{id_}\n", "")
    assert ckpt("init", "--hooks", "files", at=bare).code == 0
    assert ckpt("doctor", at=bare).out.splitlines()[-1] == "nothing is wrong"
    assert ckpt("uninit", at=bare).code == 0


def test_an_unborn_branch(ckpt: Ckpt, make_checkout: Callable[..., Checkout]) -> None:
    unborn = make_checkout("unborn")
    unborn.write("first thoughts", "text\n")
    saved = ckpt("save", at=unborn)
    assert (saved.code, saved.err) == (
        0,
        "saved manual-complete with uncommitted changes on an unborn branch\n",
    )
    id_ = saved.out.strip()
    assert normal(ckpt("list", at=unborn).out) == "ID\tTIME\t-\tmanual-complete\t-\tmain\t1\t-\n"
    assert "commit:      none yet\n" in ckpt("show", at=unborn).out
    (unborn.path / "first thoughts").unlink()
    place = place_of(unborn, id_)
    assert ckpt("resume", "latest", at=unborn).out == f"{place}\n"
    assert files_of(place) == {"first thoughts": b"text\n"}
    assert Checkout(place).git("status", "--porcelain") == '?? "first thoughts"'
    assert (
        ckpt("diff", id_, at=unborn).out.splitlines()[0]
        == "diff --git a/first thoughts b/first thoughts"
    )


def test_a_detached_head(ckpt: Ckpt, checkout: Checkout) -> None:
    checkout.git("checkout", "--quiet", "--detach")
    assert ckpt("save", at=checkout).code == 0
    assert ckpt("list", at=checkout).out.split("\t")[5] == "-"
    assert "branch:      detached\n" in ckpt("show", at=checkout).out


def test_a_repository_with_sha256(ckpt: Ckpt, make_checkout: Callable[..., Checkout]) -> None:
    checkout = make_checkout("new", "--object-format=sha256")
    checkout.commit("first", README="hello\n")
    assert ckpt("init", "--hooks", "files", at=checkout).code == 0
    checkout.write("README", "dirty\n")
    saved = ckpt("save", "--state", "-", at=checkout, stdin='{"a": 1}')
    id_ = saved.out.strip()
    assert len(ckpt("list", at=checkout).out.split("\t")[4]) == 64
    assert ckpt("resume", "latest", at=checkout).out == f"{place_of(checkout, id_)}\n"
    assert files_of(place_of(checkout, id_))["README"] == b"dirty\n"
    assert ckpt("diff", "latest", at=checkout).out == ""
    report = json.loads(ckpt("doctor", "--json", at=checkout).out)
    assert (report["object_format"], report["findings"]) == ("sha256", [])
    assert ckpt("remove", id_, at=checkout).out == f"{id_}\n"


@pytest.mark.long
def test_paths_of_every_kind(
    ckpt: Ckpt, make_checkout: Callable[..., Checkout], git_ckpt: Path
) -> None:
    assert git_ckpt.exists()
    checkout = make_checkout('it\'s a "project" / größe\n日本'.replace("/", "-"))
    make_a_mess(checkout)
    checkout.git("ckpt", "init", "--hooks", "files")
    assert checkout.git("commit", "--quiet", "--all", "--message", "with hooks") == ""
    assert len(checkout.refs("refs/checkpoints")) == 1
    expected = files_of(checkout.path)
    id_ = checkout.git("ckpt", "--quiet", "save")
    assert ckpt("-q", "resume", id_, at=checkout) == Outcome(0, f"{place_of(checkout, id_)}\n", "")
    assert files_of(place_of(checkout, id_)) == expected
    page = ckpt("show", id_, at=checkout)
    assert page.code == 0
    assert ckpt("diff", id_, "--", "new/with space", at=checkout) == Outcome(0, "", "")
    assert ckpt("doctor", at=checkout).out.splitlines()[-1] == "nothing is wrong"


def test_a_worktree_that_was_deleted_by_hand_is_made_again(
    ckpt: Ckpt, checkout: Checkout, save: Save
) -> None:
    checkout.write("README", "dirty\n")
    id_ = save(checkout)
    place = place_of(checkout, id_)
    for _ in range(2):
        assert ckpt("-q", "resume", "latest", at=checkout) == Outcome(0, f"{place}\n", "")
        assert files_of(place)["README"] == b"dirty\n"
        shutil.rmtree(place)
    assert ckpt("-q", "resume", "latest", at=checkout).code == 0
    checkout.git("worktree", "remove", "-f", "-f", str(place))
    assert not place.exists(), "the way out that the help names"
    assert ckpt("-q", "resume", "latest", at=checkout).code == 0


def test_the_whole_through_processes(spawn: Spawn, checkout: Checkout) -> None:
    """The journey works end to end in processes; other tests run in this process."""
    assert spawn("init", "--hooks", "files", at=checkout).code == 0
    checkout.write("README", "dirty\n")
    saved = spawn("save", "-m", "end to end", "--state", "-", at=checkout, stdin='{"n": null}')
    assert (saved.code, normal(saved.out), normal(saved.err)) == (
        0,
        "ID\n",
        "saved manual-complete with uncommitted changes on commit SHORT\n",
    )
    assert spawn("show", "--state", at=checkout) == Outcome(0, '{\n  "n": null\n}\n', "")
    assert spawn("show", "nope", at=checkout).code == 12
    assert spawn("frobnicate", at=checkout).code == 2
    assert spawn("hook", "post-commit", at=checkout) == Outcome(0, "", "")
    assert spawn("hook", "no-such-event", at=checkout).code == 0
    assert spawn("remove", "latest", at=checkout).code == 0


def test_only_what_was_not_asked_for_has_a_limit_for_all_files_together(
    ckpt: Ckpt, checkout: Checkout, git_ckpt: Path
) -> None:
    checkout.git("ckpt", "init", "--hooks", "files")
    checkout.git("config", "ckpt.maxFileSize", "1 GB")
    there = Checkout(Path(ckpt("start", "hand", at=checkout).out.strip()), checkout.main)
    with (there.path / "large").open("wb") as file:
        file.truncate(501 * 1000 * 1000)
    there.git("commit", "--quiet", "--allow-empty", "--message", "work")
    assert ckpt("step", "start", "PLAN", "--files", at=there).code == 0
    for entry in json.loads(ckpt("list", "-n", "2", "--json", at=there).out)["checkpoints"]:
        newest = json.loads(ckpt("show", entry["id"], "--json", at=there).out)
        assert [(one["path"], one["size"]) for one in newest["worktree"]["omitted"]] == [
            ("large", 501_000_000)
        ], newest["phase"]
