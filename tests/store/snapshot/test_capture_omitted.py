"""A capture names each file that it omits, and the reason.

The reasons: the size, the name, a nested repository, no permission to read, or not a regular file.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from gitckpt import Limits, Store, Worktree
from tests.conftest import Checkout, allow
from tests.store.conftest import Denied, MakeStore
from tests.stores import LeftOut, left_out

NESTED = "an embedded repository: not captured"
SUBMODULE = "a submodule: its files stay in it"
DIRTY = "a submodule with uncommitted changes: its files stay in it"
DENIED = "cannot be read: permission denied"


def names(checkout: Checkout, files: Worktree) -> list[str]:
    """Return the paths of the files in a snapshot."""
    return checkout.git("ls-tree", "-r", "--name-only", "-z", f"{files.tree}:files").split("\0")[
        :-1
    ]


def omitted(files: Worktree) -> list[tuple[str, str]]:
    return [(entry.path, entry.reason) for entry in files.omitted]


@pytest.fixture
def adapter(checkout: Checkout) -> str:
    """Use libgit2 in the main worktree and plumbing in the linked one.

    Two of the four combinations suffice.
    """
    return "libgit2" if checkout.path == checkout.main else "plumbing"


class TestSize:
    def test_an_untracked_file_that_is_too_large_is_named_with_its_size(
        self, store: Store, checkout: Checkout
    ) -> None:
        checkout.commit("tracked", tracked="x")
        checkout.write("tracked", "x" * 2000)
        checkout.write("exact", "x" * 1000)
        checkout.write("deep/large", "x" * 1001)
        (checkout.path / "link").symlink_to("deep/large")
        files = store.capture(Limits(max_file_size=1000))
        assert left_out(files) == (LeftOut("deep/large", "larger than 1 kB", size=1001),)
        assert names(checkout, files) == ["README", "exact", "link", "tracked"]
        made = store.record("a-complete", {}, worktree=files)
        assert store.read(made.id).worktree == files
        assert store.resume(made).remarks == (
            f"1 path was not captured: git ckpt show {made.id[:8]}",
        )

    def test_one_that_is_staged_is_no_longer_untracked(
        self, plain: Store, main_checkout: Checkout
    ) -> None:
        main_checkout.write("large", "x" * 1001)
        main_checkout.git("add", "--intent-to-add", "large")
        files = plain.capture(Limits(max_file_size=1000))
        assert (files.omitted, names(main_checkout, files)) == ((), ["README", "large"])

    def test_the_largest_are_left_out_where_all_together_are_too_much(
        self, plain: Store, main_checkout: Checkout
    ) -> None:
        main_checkout.commit("tracked", tracked="x")
        main_checkout.write("tracked", "x" * 5000)
        for name, size in {"a": 400, "b": 500, "c": 300, "d": 400}.items():
            main_checkout.write(name, "x" * size)
        files = plain.capture(Limits(max_total_size=800))
        reason = (
            "an automatic checkpoint captures at most 800 bytes of untracked files, "
            "the smallest first"
        )
        assert left_out(files) == (LeftOut("a", reason, size=400), LeftOut("b", reason, size=500))
        assert names(main_checkout, files) == ["README", "c", "d", "tracked"]
        assert plain.capture(Limits(max_total_size=1600)).omitted == ()

    def test_of_any_size_where_no_limit_is_set(self, plain: Store, main_checkout: Checkout) -> None:
        main_checkout.write("large", "x" * 1001)
        assert plain.capture(Limits(max_file_size=None)).omitted == ()

    @pytest.mark.parametrize("source", ["gitckpt.toml", "git config"])
    def test_as_the_settings_say(self, plain: Store, main_checkout: Checkout, source: str) -> None:
        main_checkout.write("large", "x" * 1001)
        if source == "gitckpt.toml":
            main_checkout.commit(
                "settings",
                **{"gitckpt.toml": '[snapshot]\nmax_file_size = "1 kB"\n', "README": "hello\n"},
            )
            main_checkout.git("rm", "--quiet", "--cached", "large")
            main_checkout.git("commit", "--quiet", "--message", "not this")
        else:
            main_checkout.write("gitckpt.toml", '[snapshot]\nmax_file_size = "1 GB"\n')
            main_checkout.git("config", "ckpt.maxFileSize", "1 kB")
        assert left_out(plain.capture()) == (LeftOut("large", "larger than 1 kB", size=1001),)


class TestSecrets:
    NAMES = (
        *(
            ".env",
            ".env.local",
            "deep/.ENV",
            "server.pem",
            "id_rsa",
            "a.key",
            ".netrc",
            "_netrc",
            "credentials.json",
            ".git-credentials",
        ),
        *(
            ".npmrc",
            ".pypirc",
            ".pgpass",
            "a.P12",
            "a.pfx",
            "a.jks",
            "a.keystore",
            "a.kdbx",
            "prod.env",
            "secrets.yml",
            ".kube/config",
        ),
        *(
            ".docker/config.json",
            "terraform.tfstate",
            "service-account.json",
            "a.ppk",
            "a.asc",
            ".bash_history",
            "app-secrets.JSON",
        ),
        *(
            "prod.tfvars",
            ".my.cnf",
            ".htpasswd",
            ".dockercfg",
            "kubeconfig",
            "deep/.aws/config",
            "db_credentials.yml",
            "host_ed25519",
        ),
        *(
            "client_secret_1.json",
            "app-firebase-adminsdk-x.json",
            ".ssh/config",
            "secrets.json",
            ".vault_pass.txt",
            "AuthKey.p8",
        ),
        *(
            ".claude/.credentials.json",
            ".codex/auth.json",
            ".gemini/oauth_creds.json",
            ".config/gh/hosts.yml",
        ),
        *(
            ".local/share/opencode/auth.json",
            ".config/gcloud/credentials.db",
            ".aws/credentials",
            ".qwen/oauth_creds.json",
        ),
        *(
            ".yarnrc.yml",
            ".config/rclone/rclone.conf",
            "token.json",
            "tokens_1.json",
            "cookies.sqlite",
            "home/.claude.json",
        ),
        *("credentials.csv", "id_ecdsa_sk", ".env.sh", ".playwright/.auth/user.json"),
    )

    OTHERS = (
        "environment",
        "keys",
        "pem",
        "secrets.py",
        "test_secret.py",
        "config.json",
        "id_rsa.pub",
        ".env.sample",
        "kube/config",
        "history",
        "credentials.py",
        "id_map.py",
        "id_map.csv",
        "credentials_provider.go",
        "secrets.ts",
        "id_rsa_test.go",
        "src/.aws/deploy.sh",
        "local_settings.py",
        "db.secrets.md",
        "cookies.test.tsx",
        "config/auth.json",
    )
    """Sources about secrets, public examples, and names secret in other directories."""

    def test_untracked_files_whose_names_look_like_secrets(
        self, store: Store, checkout: Checkout
    ) -> None:
        checkout.commit("tracked", **{".env.example": "x"})
        checkout.write(".env.example", "changed")
        for name in (*self.NAMES, *self.OTHERS):
            checkout.write(name, "x")
        files = store.capture()
        assert [path for path, _ in omitted(files)] == sorted(self.NAMES)
        patterns = {
            reason.removeprefix("its name looks like a secret (").removesuffix(")")
            for _, reason in omitted(files)
        }
        assert patterns <= set(Limits().secrets)
        assert names(checkout, files) == sorted([".env.example", "README", *self.OTHERS])

    @pytest.mark.parametrize("source", ["gitckpt.toml", "git config"])
    def test_as_the_settings_say(self, plain: Store, main_checkout: Checkout, source: str) -> None:
        if source == "gitckpt.toml":
            main_checkout.write("gitckpt.toml", '[snapshot]\nsecrets = ["*.private", "vault"]\n')
            allow(main_checkout)
        else:
            main_checkout.write("gitckpt.toml", "[snapshot]\nsecrets = []\n")
            main_checkout.git("config", "--add", "ckpt.secrets", "*.private")
            main_checkout.git("config", "--add", "ckpt.secrets", "vault")
        for name in (".env", "a.private", "deep/vault", "vaults"):
            main_checkout.write(name, "x")
        files = plain.capture()
        assert omitted(files) == [
            ("a.private", "its name looks like a secret (*.private)"),
            ("deep/vault", "its name looks like a secret (vault)"),
        ]
        assert names(main_checkout, files) == [".env", "README", "gitckpt.toml", "vaults"]

    @pytest.mark.parametrize("source", ["gitckpt.toml", "git config"])
    def test_what_is_included_is_captured_though_ignored_or_secret(
        self, plain: Store, main_checkout: Checkout, source: str
    ) -> None:
        main_checkout.commit("rules", **{".gitignore": "build/\n*.log\n.env\n"})
        if source == "gitckpt.toml":
            main_checkout.write(
                "gitckpt.toml", '[snapshot]\ninclude = ["/build/report", ".env", "*.pem"]\n'
            )
            allow(main_checkout)
        else:
            for pattern in ("/build/report", ".env", "*.pem"):
                main_checkout.git("config", "--add", "ckpt.include", pattern)
        for name in ("build/report", "build/a.o", "deep/.env", "a.log", "a.pem", "b.key"):
            main_checkout.write(name, "x")
        files = plain.capture()
        assert omitted(files) == [("b.key", "its name looks like a secret (*.key)")]
        assert [name for name in names(main_checkout, files) if name != "gitckpt.toml"] == [
            *(".gitignore", "README", "a.pem", "build/report", "deep/.env")
        ]

    def test_what_is_included_has_to_be_small_enough(
        self, plain: Store, main_checkout: Checkout
    ) -> None:
        main_checkout.commit("rules", **{".gitignore": "*.log\n"})
        main_checkout.write("a.log", "x" * 1001)
        files = plain.capture(Limits(include=("*.log",), max_file_size=1000))
        assert left_out(files) == (LeftOut("a.log", "larger than 1 kB", size=1001),)


class TestOtherRepositories:
    def test_nested_ones(
        self, store: Store, checkout: Checkout, make_checkout: Callable[..., Checkout]
    ) -> None:
        inner = make_checkout("inner")
        head = inner.commit("first")
        inner.path.rename(checkout.path / "nested dir")
        checkout.git("init", "--quiet", "deep/empty")
        checkout.write("deep/file", "x")
        files = store.capture()
        assert left_out(files) == (
            LeftOut("deep/empty/", NESTED),
            LeftOut("nested dir/", NESTED, oid=head),
        )
        assert names(checkout, files) == ["README", "deep/file"]
        made = store.record("a-complete", {}, worktree=files)
        assert store.read(made.id).worktree == files

    def test_ignored_ones_are_not_named(self, plain: Store, main_checkout: Checkout) -> None:
        main_checkout.commit("rules", **{".gitignore": "nested/\n"})
        main_checkout.git("init", "--quiet", "nested")
        assert plain.capture() == Worktree(dirty=False)

    def test_a_linked_worktree_inside_of_the_main_one(
        self, plain: Store, main_checkout: Checkout
    ) -> None:
        main_checkout.git("worktree", "add", "--quiet", "inside")
        Checkout(main_checkout.path / "inside").write("new", "x")
        head = main_checkout.git("rev-parse", "HEAD")
        files = plain.capture()
        assert files == Worktree(dirty=False, omitted=files.omitted)
        assert left_out(files) == (LeftOut("inside/", NESTED, oid=head),)


class TestSubmodules:
    @pytest.fixture
    def sub(self, main_checkout: Checkout, make_checkout: Callable[..., Checkout]) -> Checkout:
        """A committed submodule of `main_checkout`, which captures no submodules."""
        main_checkout.git("config", "ckpt.submodules", "none")
        inner = make_checkout("inner")
        inner.commit("first", inside="x\n")
        main_checkout.git("submodule", "--quiet", "add", str(inner.path), "sub dir")
        main_checkout.git("commit", "--quiet", "--message", "with a submodule")
        return Checkout(main_checkout.path / "sub dir")

    def test_clean(self, plain: Store, sub: Checkout) -> None:
        oid = sub.git("rev-parse", "HEAD")
        files = plain.capture()
        assert files == Worktree(dirty=False, omitted=files.omitted)
        assert left_out(files) == (LeftOut("sub dir", SUBMODULE, oid=oid, dirty=False),)

    @pytest.mark.sampled(2)
    @pytest.mark.parametrize("kind", ["changed", "staged", "untracked"])
    def test_dirty(self, plain: Store, sub: Checkout, kind: str) -> None:
        sub.write("new" if kind == "untracked" else "inside", "changed\n")
        if kind == "staged":
            sub.git("add", "inside")
        oid = sub.git("rev-parse", "HEAD")
        files = plain.capture()
        assert files == Worktree(dirty=False, omitted=files.omitted)
        assert left_out(files) == (LeftOut("sub dir", DIRTY, oid=oid, dirty=True),)

    @pytest.mark.parametrize("dirty", [True, False])
    def test_moved(self, plain: Store, main_checkout: Checkout, sub: Checkout, dirty: bool) -> None:
        oid = sub.commit("second")
        if dirty:
            sub.write("inside", "changed\n")
        files = plain.capture()
        assert left_out(files) == (
            LeftOut("sub dir", DIRTY if dirty else SUBMODULE, oid=oid, dirty=dirty),
        )
        assert main_checkout.git("ls-tree", f"{files.tree}:files", "sub dir").split()[:3] == [
            "160000",
            "commit",
            oid,
        ]

    def test_one_that_is_not_checked_out(
        self, plain: Store, main_checkout: Checkout, sub: Checkout
    ) -> None:
        main_checkout.git("submodule", "--quiet", "deinit", "--force", "sub dir")
        assert plain.capture() == Worktree(dirty=False)
        assert list(sub.path.iterdir()) == []


CAPTURE = """
import sys
from gitckpt import Store
with Store.open(sys.argv[1], adapter="plumbing") as store:
    files = store.save("a-complete", {}).worktree
print([(entry.path, entry.reason) for entry in files.omitted])
"""


def test_what_cannot_be_read(
    main_checkout: Checkout, make_store: MakeStore, denied: Denied, tmp_path: Path
) -> None:
    main_checkout.commit(
        "rules",
        **{
            ".gitignore": "ignored*\n",
            "deep/tracked": "kept\n",
            "tracked": "kept\n",
            "same": "same\n",
        },
    )
    for name in (
        "tracked",
        "new",
        "locked/inside",
        "deep/locked/inside",
        "ignored",
        "ignored directory/inside",
        "empty/file",
    ):
        main_checkout.write(name, "secret\n")
    (main_checkout.path / "empty/file").unlink()
    main_checkout.write("fresh", "x\n")
    closed = (
        "tracked",
        "new",
        "locked",
        "deep/locked",
        "ignored",
        "ignored directory",
        "empty",
        "same",
    )
    for name in closed:
        (main_checkout.path / name).chmod(0)
    (tmp_path / "elsewhere").mkdir()
    done = denied(tmp_path / "elsewhere", CAPTURE, str(main_checkout.path))
    for name in closed:
        (main_checkout.path / name).chmod(0o755 if (main_checkout.path / name).is_dir() else 0o644)
    expected = [
        (name, DENIED) for name in ("deep/locked/", "empty/", "locked/", "new", "same", "tracked")
    ]
    assert (done.stdout, done.stderr) == (f"{expected}\n", "")
    files = (
        make_store(main_checkout)
        .read(next(iter(main_checkout.refs("refs/checkpoints"))).rpartition("/")[2])
        .worktree
    )
    assert files is not None
    assert names(main_checkout, files) == [
        ".gitignore",
        "README",
        "deep/tracked",
        "fresh",
        "same",
        "tracked",
    ]
    assert main_checkout.git("cat-file", "blob", f"{files.tree}:files/tracked") == "kept"


class TestNoFiles:
    @staticmethod
    def bind(path: Path) -> None:
        with socket.socket(socket.AF_UNIX) as server:
            here = os.open(path.parent, os.O_RDONLY)  # the name of a socket is short
            server.bind(
                f"/proc/self/fd/{here}/{path.name}" if Path("/proc/self/fd").exists() else str(path)
            )
            os.close(here)

    def test_sockets_and_fifos_are_named(self, store: Store, checkout: Checkout) -> None:
        checkout.commit("more", **{"deep/tracked": "x\n", "was a file": "x\n"})
        self.bind(checkout.path / "socket")
        os.mkfifo(checkout.path / "deep/fifo")
        (checkout.path / "new/er").mkdir(parents=True)
        os.mkfifo(checkout.path / "new/er/fifo")
        (checkout.path / "was a file").unlink()
        os.mkfifo(checkout.path / "was a file")
        checkout.write("new/file", "x\n")
        files = store.capture()
        instead = "a fifo; replaces a tracked file, whose staged content is in the checkpoint"
        others = [("deep/fifo", "a fifo"), ("new/er/fifo", "a fifo"), ("socket", "a socket")]
        assert omitted(files) == [*others, ("was a file", instead)]
        assert names(checkout, files) == [
            "README",
            "deep/tracked",
            "new/file",
            "was a file",
        ]  # as the index has it
        made = store.record("a-complete", {}, worktree=files)
        assert store.read(made.id).worktree == files
        assert store.resume(made).made

    def test_ignored_ones_are_not_named(self, plain: Store, main_checkout: Checkout) -> None:
        main_checkout.commit(
            "rules",
            **{".gitignore": "*.sock\nignored/\n", "kept/README": "x\n", "kept/.gitignore": "*\n"},
        )
        main_checkout.git("add", "--force", "kept")
        main_checkout.git("commit", "--quiet", "--amend", "--no-edit")
        for directory in ("ignored/deep", "kept", "kept/deep"):
            (main_checkout.path / directory).mkdir(parents=True, exist_ok=True)
            os.mkfifo(main_checkout.path / directory / "fifo")
        self.bind(main_checkout.path / "a.sock")
        assert plain.capture() == Worktree(dirty=False)
