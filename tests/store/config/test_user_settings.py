"""Under any user settings, captured files come back byte for byte.

Hooks and filters of the user do not run on the files.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import pytest

from gitckpt import Store
from tests.conftest import Checkout
from tests.store import kinds
from tests.store.conftest import MakeStore
from tests.store.kinds import PLAIN, SUBMODULES, Cell

T = TypeVar("T")

WITH_SUBMODULES = next(kind for kind in kinds.KINDS if kind.name == "submodules")

SETTINGS = [
    "submodule.recurse=true",
    "submodule.active=sub",
    "submodule.sub/dirty.ignore=all",
    "submodule.sub/dirty.update=rebase",
    "submodule.propagateBranches=true",
    "fetch.recurseSubmodules=true",
    "diff.ignoreSubmodules=all",
    "diff.submodule=log",
    "status.submoduleSummary=true",
    "status.showUntrackedFiles=no",
    "status.relativePaths=true",
    "status.branch=true",
    "status.showStash=true",
    "status.renames=copies",
    "diff.renames=copies",
    "diff.external=false",
    "diff.noprefix=true",
    "diff.mnemonicPrefix=true",
    "diff.orderFile=/dev/null",
    "diff.autoRefreshIndex=false",
    "diff.algorithm=patience",
    "diff.statGraphWidth=1",
    "checkout.workers=16",
    "checkout.thresholdForParallelism=1",
    "checkout.guess=false",
    "checkout.defaultRemote=x",
    "core.preloadIndex=false",
    "core.splitIndex=true",
    "core.untrackedCache=true",
    "core.untrackedCache=keep",
    "core.checkStat=minimal",
    "core.trustctime=false",
    "core.ignoreStat=true",
    "core.ignoreCase=true",
    "core.symlinks=false",
    "core.precomposeUnicode=true",
    "core.protectNTFS=true",
    "core.protectHFS=true",
    "core.quotePath=false",
    "core.abbrev=4",
    "core.bigFileThreshold=1",
    "core.compression=0",
    "core.looseCompression=9",
    "core.sharedRepository=group",
    "core.logAllRefUpdates=always",
    "core.preferSymlinkRefs=true",
    "core.fsync=none",
    "core.fsyncMethod=batch",
    "core.safecrlf=true",
    "core.whitespace=trailing-space,cr-at-eol",
    "core.commentChar=%",
    "core.createObject=rename",
    "core.multiPackIndex=false",
    "core.sparseCheckout=false",
    "core.pager=false",
    "core.editor=false",
    "core.askPass=false",
    "core.attributesFile=/dev/null",
    "attr.tree=HEAD",
    "core.excludesFile=/dev/null",
    "core.notesRef=refs/notes/mine",
    "index.version=4",
    "index.threads=true",
    "index.skipHash=true",
    "index.sparse=true",
    "index.recordEndOfIndexEntries=true",
    "index.recordOffsetTable=true",
    "feature.manyFiles=true",
    "feature.experimental=true",
    "color.ui=always",
    "color.status=always",
    "column.ui=always",
    "pager.status=true",
    "advice.detachedHead=false",
    "alias.read-tree=!false",
    "alias.update-index=!false",
    "apply.whitespace=error",
    "merge.conflictStyle=zdiff3",
    "merge.renormalize=true",
    "merge.ff=only",
    "merge.autoStash=true",
    "rebase.autoStash=true",
    "rebase.updateRefs=true",
    "rerere.enabled=true",
    "rerere.autoUpdate=true",
    "commit.gpgSign=true",
    "tag.gpgSign=true",
    "log.showSignature=true",
    "log.showRoot=false",
    "log.decorate=full",
    "gpg.program=false",
    "gc.auto=1",
    "gc.pruneExpire=now",
    "gc.worktreePruneExpire=now",
    "gc.reflogExpire=now",
    "maintenance.auto=true",
    "pack.threads=1",
    "pack.writeReverseIndex=true",
    "transfer.fsckObjects=true",
    "transfer.hideRefs=refs/checkpoints",
    "uploadpack.hideRefs=refs/ckpt",
    "receive.fsckObjects=true",
    "worktree.guessRemote=true",
    "worktree.useRelativePaths=true",
    "push.followTags=true",
    "i18n.commitEncoding=ISO-8859-1",
    "i18n.logOutputEncoding=ISO-8859-1",
    "user.useConfigOnly=true",
    "safe.bareRepository=explicit",
    "trace2.normalTarget=1",
    "stash.showIncludeUntracked=true",
    "grep.column=true",
    "blame.ignoreRevsFile=none",
    "notes.displayRef=refs/notes/*",
    "notes.rewriteRef=refs/notes/*",
    "init.defaultRefFormat=reftable",
]
"""Settings of the repository, which override those of the user and the system."""

VARIABLES = {
    "GIT_LITERAL_PATHSPECS": "1",
    "GIT_GLOB_PATHSPECS": "1",
    "GIT_ICASE_PATHSPECS": "1",
    "GIT_FLUSH": "0",
    "GIT_PAGER": "false",
    "GIT_EDITOR": "false",
    "GIT_EXTERNAL_DIFF": "false",
    "GIT_DIFF_OPTS": "--unified=0",
    "GIT_NOTES_REF": "refs/notes/theirs",
    "GIT_DEFAULT_HASH": "sha256",
    "GIT_INDEX_VERSION": "4",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_MERGE_VERBOSITY": "5",
    "GIT_REDIRECT_STDERR": "off",
    "GIT_NAMESPACE": "theirs",
    "GIT_CEILING_DIRECTORIES": "/",
    "GIT_COMMITTER_DATE": "no date",
    "GIT_AUTHOR_NAME": "",
    "GIT_OPTIONAL_LOCKS": "1",
    "GIT_ATTR_SOURCE": "HEAD~1",
    "GIT_ATTR_NOSYSTEM": "0",
    "GIT_CONFIG_PARAMETERS": "'submodule.recurse'='true'",
    "LC_ALL": "de_DE.UTF-8",
    "LANGUAGE": "de",
    "TZ": "Asia/Tokyo",
    "CDPATH": "/",
}


def there_and_back(here: Checkout, make_store: MakeStore, submodules: tuple[str, ...]) -> None:
    """Save, wreck, restore, undo and resume; compare the contents each time."""
    expected = kinds.seen(here)
    store = make_store(here, "auto")
    before, refs = kinds.kept(here), kinds.own_refs(here)
    made = store.save("a-complete", {})
    assert (kinds.kept(here), kinds.own_refs(here)) == (before, refs)
    assert made.worktree is not None
    assert (made.worktree.degraded, made.worktree.converted, made.worktree.omitted) == (
        None,
        (),
        (),
    )
    assert [each.path for each in made.worktree.submodules] == list(submodules)
    assert kinds.seen(here) == expected
    kinds.reset(here)
    kinds.wreck(here)
    wrecked = kinds.seen(here)
    assert wrecked["files"] != expected["files"]
    store.restore(made)
    assert kinds.seen(here) == expected
    store.undo()
    assert kinds.seen(here)["files"] == wrecked["files"]
    store.redo()
    assert kinds.seen(here) == expected
    kinds.require_resumed(here, store, made, submodules)
    assert kinds.own_refs(here) == refs


def build(tmp_path: Path, *, has_submodules: bool, place: str) -> tuple[Checkout, tuple[str, ...]]:
    kind = WITH_SUBMODULES if has_submodules else PLAIN
    here = kinds.build(Cell(kind, place, "sha1", "files"), tmp_path)
    kinds.enrich(here, kind)
    return here, SUBMODULES if has_submodules else ()


def apply(here: Checkout, setting: str) -> None:
    name, _, value = setting.partition("=")
    here.git("config", name, value)


def lots(names: Sequence[str], size: int) -> list[Sequence[str]]:
    """Return the names in groups of `size`: one setting seldom hides another."""
    return [names[at : at + size] for at in range(0, len(names), size)]


@pytest.mark.long
@pytest.mark.parametrize("setting", ["submodule.recurse=true", "core.ignoreStat=true"])
def test_a_setting(setting: str, tmp_path: Path, make_store: MakeStore) -> None:
    here, submodules = build(tmp_path, has_submodules=True, place="main")
    apply(here, setting)
    there_and_back(here, make_store, submodules)


@pytest.mark.long
@pytest.mark.sampled(2)
@pytest.mark.parametrize("some", lots(SETTINGS, 10), ids=" ".join)
def test_settings(some: Sequence[str], tmp_path: Path, make_store: MakeStore) -> None:
    here, submodules = build(tmp_path, has_submodules=True, place="main")
    for setting in some:
        apply(here, setting)
    there_and_back(here, make_store, submodules)


@pytest.mark.long
@pytest.mark.parametrize("names", lots([*VARIABLES], 7), ids=" ".join)
def test_variables(
    names: Sequence[str], tmp_path: Path, make_store: MakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, submodules = build(tmp_path, has_submodules=True, place="linked")
    expected = kinds.seen(here)

    def call(function: Callable[[], T]) -> T:
        with monkeypatch.context() as theirs:
            for name in names:
                theirs.setenv(name, VARIABLES[name])
            return function()

    store = call(lambda: make_store(here, "auto"))
    made = call(lambda: store.save("a-complete", {}))
    assert kinds.seen(here) == expected
    assert made.worktree is not None
    assert [each.path for each in made.worktree.submodules] == list(submodules)
    kinds.reset(here)
    kinds.wreck(here)
    call(lambda: store.restore(made))
    assert kinds.seen(here) == expected
    opened = call(lambda: store.resume(made))
    expected = kinds.seen(here, without=("sub",), ignored=False)
    assert kinds.seen(Checkout(Path(opened.path)), without=("sub",)) == expected


@pytest.mark.long
@pytest.mark.parametrize("number", range(4))
def test_a_mix_of_them(number: int, tmp_path: Path, make_store: MakeStore) -> None:
    chance = random.Random(number)
    here, submodules = build(
        tmp_path, has_submodules=number % 2 == 0, place="linked" if number % 3 == 0 else "main"
    )
    for setting in chance.sample(SETTINGS, 15):
        apply(here, setting)
    there_and_back(here, make_store, submodules)


HOOKS = (
    "post-checkout",
    "post-index-change",
    "pre-commit",
    "post-commit",
    "post-merge",
    "pre-auto-gc",
)
"""Hooks that act on files.

`reference-transaction` is not among them: git runs it for every transaction, and users want that.
"""


@pytest.mark.long
@pytest.mark.sampled(3)
@pytest.mark.parametrize("how", ["directory", "core.hooksPath", "configuration"])
def test_hooks_of_theirs_do_not_run(
    how: str, tmp_path: Path, make_store: MakeStore, request: pytest.FixtureRequest
) -> None:
    if how == "configuration":
        request.getfixturevalue("newer_git")
    here, submodules = build(tmp_path, has_submodules=False, place="main")
    directory = here.path / ".git" / "hooks" if how == "directory" else tmp_path / "theirs"
    directory.mkdir(exist_ok=True)
    log = tmp_path / "ran"
    if how == "core.hooksPath":
        here.git("config", "core.hooksPath", str(directory))
    made = make_store(here, "auto").save("first-complete", {})
    for name in HOOKS if how == "configuration" else ():
        here.git("config", f"hook.{name}-of-theirs.event", name)
        here.git("config", f"hook.{name}-of-theirs.command", f"echo {name} >>'{log}'; false")
    for name in HOOKS if how != "configuration" else ():
        (directory / name).write_text(f"#!/bin/sh\necho {name} >>'{log}'\nexit 1\n")
        (directory / name).chmod(0o755)
    store = make_store(here, "auto")
    store.save("a-complete", {})
    (here.path / "in/text").write_text("other\n")
    store.restore(made)
    store.undo()
    store.resume(made)
    assert not log.exists(), log.read_text()
    assert submodules == ()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("replaced", ["HEAD:README", "HEAD:d", "HEAD^{tree}", "HEAD", "HEAD~1"])
def test_what_replaces_an_object_does_not_come_back(
    store: Store, checkout: Checkout, replaced: str
) -> None:
    """Replacement objects of git-replace(1) are not captured or restored."""
    checkout.commit("more", **{"d/x": "x\n", "other": "o\n"})
    checkout.write("other", "changed\n")
    made = store.save("a-complete")
    expected = kinds.files(checkout.path)
    kind = checkout.git("cat-file", "-t", replaced)
    blob = checkout.git("hash-object", "-w", "--stdin", data="another\n")
    tree = checkout.git("mktree", data=f"100644 blob {blob}\tREADME\n")
    other = {
        "blob": blob,
        "tree": tree,
        "commit": checkout.git("commit-tree", "-m", "another", tree),
    }[kind]
    checkout.git("replace", checkout.git("rev-parse", replaced), other)
    opened = store.resume(made)
    assert kinds.files(Path(opened.path)) == expected
    assert store.restore(made).changes == []
    for name in ("README", "d/x", "other"):
        (checkout.path / name).unlink()
    store.restore(made)
    assert kinds.files(checkout.path) == expected
    again = store.save("b-complete")
    assert (again.worktree, again.git_sha) == (made.worktree, made.git_sha)
    assert store.verify().findings == []


@pytest.mark.long
def test_where_git_is_not_to_make_links_those_that_are_there_come_back(
    checkout: Checkout, make_store: MakeStore
) -> None:
    """With `core.symlinks` off, links come back as links, files as files.

    Both have the same blob, so the blob does not tell them apart.
    """
    for name in ("link", "file"):
        (checkout.path / name).symlink_to("README")
    checkout.git("add", "--all")
    checkout.git("commit", "--quiet", "--message", "links")
    checkout.git("config", "core.symlinks", "false")
    (checkout.path / "file").unlink()
    checkout.write("file", "README")
    assert checkout.git("status", "--porcelain") == ""
    with make_store(checkout, "plumbing") as store:
        first = store.save("a-complete", {})
        (checkout.path / "link").unlink()
        (checkout.path / "link").symlink_to("elsewhere")
        second = store.save("a-complete", {})
        made = Path(store.resume(first).path)
        assert (
            os.readlink(made / "link"),
            (made / "file").is_symlink(),
            (made / "file").read_text(),
        ) == ("README", False, "README")
        assert Checkout(made).git("status", "--porcelain") == ""
        store.restore(first.id)
        assert (os.readlink(checkout.path / "link"), (checkout.path / "file").is_symlink()) == (
            "README",
            False,
        )
        assert checkout.git("status", "--porcelain") == ""
        store.undo()
        assert (os.readlink(checkout.path / "link"), (checkout.path / "file").is_symlink()) == (
            "elsewhere",
            False,
        )
        assert store.restore(second.id).changes == []
