"""Decide what a snapshot leaves out: the table `[snapshot]` of the settings."""

from __future__ import annotations

import fnmatch
import functools
import os
import re
import stat
import time
from collections.abc import Collection, Mapping, Sequence

from gitckpt.git import config
from gitckpt.git.contents import attributes
from gitckpt.git.contents.attributes import Configured
from gitckpt.model.arguments import require, require_number, require_seconds, words
from gitckpt.model.values import dataclass, field, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gitckpt.git.contents.conversion import Terms
    from gitckpt.git.repository import Repository

MB = 1000 * 1000

_AUTOMATIC = 500 * MB  # all untracked files of a hook, an autosave or an agent's step

MORE_TIME = "to allow more time: git config ckpt.snapshotTimeout 5m"

_DATA = ("yml", "yaml", "json", "toml", "ini", "env", "xml", "properties", "txt", "conf", "cfg", "enc", "bak")

# Names of untracked files that look like secrets; one with a slash includes directories. From the
# manuals of the clients, the templates of github/gitignore, and the paths that gitleaks,
# detect-secrets and gitrob look for. Names that end like source code or a document are never
# secrets: work left out is lost, and a secret in a captured file is reported by its content.
SECRETS = (
    # what coding agents log in with: their manuals, and what they write
    *(".claude/.credentials.json", ".claude.json", ".codex/auth.json", ".gemini/oauth_creds.json"),
    *(".gemini/mcp-oauth-tokens*.json", ".qwen/oauth_creds.json", ".config/github-copilot/*.json"),
    *("opencode/auth.json", "opencode/mcp-auth.json", "crush/crush.json", ".factory/auth.json"),
    *(".kimi/credentials/*", "huggingface/token", ".huggingface/token"),
    # environments and settings: the templates of github/gitignore, Rails, Django, Terraform, Ansible
    *(".env*", "*.env", ".flaskenv", "secret", "secrets", "*.secret", "*.secrets", "master.key"),
    *("*.tfstate", "*.tfstate.*", "*.tfvars", "*.tfvars.json", ".terraformrc", "terraform.rc", ".vault_pass*", ".vault-token", "*.agekey"),
    *(f"{name}.{data}" for name in ("secret", "secrets", "*-secret", "*-secrets", "*_secret", "*_secrets") for data in _DATA),
    *(f"{name}.{data}" for name in ("creds", "password", "passwords", "*-credentials", "*_credentials") for data in _DATA),
    # keys, and certificates with keys: gitleaks, detect-secrets, gitrob
    *("id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*", "id_xmss*"),
    *("*.pem", "*.key", "*.p12", "*.pfx", "*.p8", "*.pkcs12", "*.pk8", "*.jks", "*.keystore"),
    *("*.bks", "*.ppk", "*.asc"),
    *("*.kdb", "*.kdbx", "*.ovpn", "*.keychain", "*.keychain-db", "*.agilekeychain", "*.opvault", "*.psafe3", "otr.private_key"),
    *("ssh_host_*_key", "*_rsa", "*_dsa", "*_ecdsa", "*_ed25519", "secring.*", "*.jwk", "*.jwks", "*.cscfg", "*.publishsettings"),
    *("wallet.dat", "*.wallet", "key.properties", "keystore.properties", "sops/age/keys.txt"),
    # what clients keep to log in: their manuals
    *("credentials*", ".netrc", "_netrc", ".git-credentials", ".npmrc", ".pypirc", ".pgpass", "pgpass.conf", ".my.cnf", ".mylogin.cnf"),
    *(".htpasswd", "htpasswd", ".dockercfg", ".dockerconfigjson", "kubeconfig", "kubeconfig.*", "*.kubeconfig", ".s3cfg", ".boto"),
    *(".aws/*", ".azure/*", ".kube/config", ".docker/config.json", ".config/gh/hosts.yml", ".config/gcloud/*", ".ssh/*", ".gnupg/*"),
    *("service-account*.json", "service_account*.json", "serviceaccount*.json", "client_secret*.json", "gha-creds-*.json"),
    *("application_default_credentials.json", "*firebase-adminsdk*.json", ".tugboat", ".composer/auth.json", ".m2/settings.xml"),
    *("settings-security.xml", ".remote-sync.json", "sftp-config.json", "sftp.json", ".ftpconfig", "filezilla.xml", "recentservers.xml"),
    *(".esmtprc", ".msmtprc", ".fetchmailrc", ".muttrc"),
    *("rclone.conf", ".yarnrc.yml", "kaggle.json", ".databrickscfg", ".snowsql/config", ".oci/*"),
    *(".config/glab-cli/*", ".config/doctl/*", ".config/stripe/*", ".config/netlify/*"),
    *(".config/hub", ".config/configstore/*", ".wrangler/config/*", ".fly/config.yml", "ngrok/ngrok.yml"),
    *("containers/auth.json", "com.vercel.cli/auth.json", "oauth_creds*.json", "wg[0-9]*.conf"),
    *("token*.json", "*_token.json", "*-token.json", "cookies", "cookies.*", ".auth/*"),
    # what was typed, with passwords in it: shells, and clients of databases
    *(".bash_history", ".zsh_history", ".sh_history", ".ash_history", "fish_history", ".psql_history", ".mysql_history"),
    *(".sqlite_history", ".rediscli_history", ".dbshell", ".irb_history", ".python_history", ".node_repl_history"),
)

# Endings of source code and documents. Names that begin with `.env` are secrets all the same.
_SOURCES = frozenset(
    """
    adoc asm astro awk bash bat c cc cjs clj cljc cljs cmake cmd cpp cs css cts cu cxx dart
    ejs elm erb erl ex exs f90 fish fs fsx go gql gradle graphql groovy h handlebars hbs hcl
    hh hpp hrl hs htm html hxx ipynb java jl js jsx kt kts less lhs liquid lua m md mdx mjs ml
    mli mm mts nim nix org php phtml pl pm proto ps1 psm1 pug py pyi pyx r rake rb rkt rs rst
    sass scala scm scss sh sol sql styl sv svelte swift t tcl tex tf thrift ts tsx v vb vhd
    vhdl vue xhtml zig zsh
    """.split()  # noqa: SIM905 - a list of them takes a line for each
)

# Names among `SECRETS` that are made to be shown: forms to fill in, public keys.
_FORMS = (".env*.example", ".env*.sample", ".env*.template", ".env*.dist", "*.pub")


@dataclass(frozen=True, slots=True)
class Limits:
    """What a snapshot leaves out. Tracked files are always captured."""

    # In bytes: a larger untracked file is left out. None sets no limit.
    max_file_size: int | None = 50 * MB
    # Shell patterns, regardless of case: an untracked file whose name matches one is left out. A
    # pattern with slashes is compared with as many of the last parts of the path.
    secrets: tuple[str, ...] = SECRETS
    # Patterns as in `.gitignore`: untracked files that match are captured although they are
    # ignored or look like secrets.
    include: tuple[str, ...] = ()
    # Whether checked-out submodules are captured, each in its own repository.
    submodules: bool = True
    # In seconds: a snapshot that takes longer is given up.
    timeout: float = 60.0
    # In bytes: the largest untracked files beyond it are left out. None sets no limit.
    max_total_size: int | None = None
    # What git's configuration says of conversions; None if it was not read yet.
    configured: Configured | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        require_number("max_file_size", self.max_file_size, may_be_none=True)
        require_number("max_total_size", self.max_total_size, may_be_none=True)
        for name in ("secrets", "include"):
            object.__setattr__(self, name, words(name, getattr(self, name)))
        require("submodules", self.submodules, bool, "True or False")
        require_seconds("timeout", self.timeout)

    def automatic(self) -> Limits:
        return replace(self, max_total_size=_AUTOMATIC)

    def excess(self, sizes: Mapping[bytes, int]) -> list[bytes]:
        """Return the largest files to leave out so that the others fit."""
        left = sum(sizes.values()) - (self.max_total_size or 0)
        if self.max_total_size is None or left <= 0:
            return []
        found = []
        for path in sorted(sizes, key=lambda path: (-sizes[path], path)):
            if left <= 0:
                break
            left -= sizes[path]
            found.append(path)
        return found

    def deadline(self) -> float | None:
        """Return the deadline of a snapshot that begins now, by `time.monotonic`."""
        return None if self.timeout == float("inf") else time.monotonic() + self.timeout

    def reason_to_omit(self, path: bytes, *, included: bool) -> tuple[str, int | None] | None:
        """Return why an untracked file is left out, and its size if that is why, or None."""
        pattern = self.looks_secret(path) if not included else None
        if pattern is not None:
            return f"its name looks like a secret ({pattern})", None
        try:
            status = os.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            return None  # it is gone, or a directory above it is a file by now
        if self.max_file_size is not None and stat.S_ISREG(status.st_mode) and status.st_size > self.max_file_size:
            return f"larger than {size_text(self.max_file_size)}", status.st_size
        return None

    def conversions(self, repository: Repository) -> Configured:
        if self.configured is not None:
            return self.configured
        return Configured.of(config.read(repository, f"^({attributes.SETTINGS})"))

    def terms(self, named: Collection[bytes], regardless: Collection[bytes]) -> Terms:
        """Return which bytes to keep besides what git stores of a file.

        Args:
            named: paths that are captured though they may look like secrets.
            regardless: paths that are kept in any case.
        """
        from gitckpt.git.contents.conversion import Terms  # most worktrees do without

        return Terms(
            self.max_file_size,
            refuses=lambda path: path not in named and self.looks_secret(path) is not None,
            text=f"{self.max_file_size} {self.secrets} {self.include}",
            regardless=regardless,
        )

    def looks_secret(self, path: bytes) -> str | None:
        """Return the pattern of `secrets` that the name of a file matches, or None."""
        *above, name = os.fsdecode(path).lower().split("/")
        if _is_source(name) and self.secrets == SECRETS:
            return None
        found = self._secret(above, name)
        if found is not None and self.secrets == SECRETS and any(fnmatch.fnmatchcase(name, form) for form in _FORMS):
            return None
        return found

    def _secret(self, above: Sequence[str], name: str) -> str | None:
        names, endings, rest = _sorted(self.secrets)
        for pattern, depth, whole in names.get(name, ()):
            if not depth or "/".join([*above[-depth:], name]) == whole:
                return pattern
        dot = name.rfind(".")
        if dot >= 0 and name[dot:] in endings:
            return endings[name[dot:]]
        for pattern, depth, first, last in rest:
            there = "/".join([*above[-depth:], name]) if depth else name
            # First the ends: `fnmatch` compiles each pattern, which takes 4 ms for all of them.
            if there.startswith(first) and there.endswith(last) and fnmatch.fnmatchcase(there, pattern.lower()):
                return pattern
        return None


def _is_source(name: str) -> bool:
    return name.rpartition(".")[2] in _SOURCES and "." in name[1:] and not name.startswith(".env")


_SPECIAL = re.compile(r"[*?[\]]")


@functools.lru_cache(maxsize=8)
def _sorted(
    patterns: tuple[str, ...],
) -> tuple[dict[str, list[tuple[str, int, str]]], dict[str, str], list[tuple[str, int, str, str]]]:
    """Return patterns by name, by ending, and others; each with its number of slashes."""
    names: dict[str, list[tuple[str, int, str]]] = {}
    endings: dict[str, str] = {}
    rest = []
    for pattern in patterns:
        folded = pattern.lower()
        if not any(c in folded for c in "*?["):
            name = folded.rpartition("/")[2]
            names.setdefault(name, []).append((pattern, pattern.count("/"), folded))
        elif folded.startswith("*.") and not any(c in folded[2:] for c in "*?[/."):
            endings[folded[1:]] = pattern
        else:
            parts = _SPECIAL.split(folded)
            rest.append((pattern, pattern.count("/"), parts[0], parts[-1]))
    return names, endings, rest


def size_text(size: int) -> str:
    for unit, factor in (("GB", 1000 * MB), ("MB", MB), ("kB", 1000)):
        if size >= factor and size % factor == 0:
            return f"{size // factor} {unit}"
    return f"{size} bytes"


# Whether a snapshot would capture a file: for callers that read what other files name.

IGNORED = "git ignores it"


def reason_to_leave(repository: Repository, limits: Limits, path: str) -> str | None:
    """Return why a snapshot would leave a file out, or None; `path` is absolute."""
    top = os.path.realpath(repository.worktree or os.devnull)
    real = os.path.realpath(path)
    if not real.startswith(f"{top}/"):
        return "it lies outside of the worktree"
    tag = _listed(repository, os.path.relpath(real, top)).get(real)
    if tag == b"H":
        return None
    is_included = _is_included(repository, limits, real, top)
    if tag is None and not is_included:
        return IGNORED
    reason = limits.reason_to_omit(os.fsencode(real), included=is_included)
    return reason[0] if reason is not None else None


def below(repository: Repository, limits: Limits, directory: str) -> set[str] | None:
    """Return the absolute paths that a snapshot would capture below a directory."""
    top = os.path.realpath(repository.worktree or os.devnull)
    if directory != top and not directory.startswith(f"{top}/"):
        return None
    listed = _listed(repository, os.path.relpath(directory, top))
    return {path for path, tag in listed.items() if tag == b"H" or not _omits(limits, path)} or None


def _omits(limits: Limits, path: str) -> bool:
    return limits.reason_to_omit(os.fsencode(path), included=False) is not None


def _listed(repository: Repository, relative: str) -> dict[str, bytes]:
    """Return tracked (`H`) and untracked, not ignored (`?`) files."""
    top = os.path.realpath(repository.worktree or "")
    words = ("ls-files", "-t", "-z", "--cached", "--others", "--exclude-standard", "--", relative)
    listing = repository.git.run("--literal-pathspecs", *words, ok=(0, 128)).out
    entries = (entry.split(b" ", 1) for entry in listing.split(b"\0")[:-1])
    return {f"{top}/{os.fsdecode(path)}": b"?" if tag == b"?" else b"H" for tag, path in entries}


def _is_included(repository: Repository, limits: Limits, real: str, top: str) -> bool:
    if not limits.include:
        return False
    patterns = [option for pattern in limits.include for option in ("-x", pattern)]
    listing = repository.git.run("ls-files", "--others", "--ignored", "-z", *patterns).out
    return os.fsencode(os.path.relpath(real, top)) in listing.split(b"\0")
