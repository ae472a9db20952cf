"""Decide which files a snapshot omits, by the table `[snapshot]` of gitckpt.toml."""

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
from gitckpt.git.contents.attributes import ConversionSettings
from gitckpt.model.arguments import as_command_words, require_number, require_seconds, require_type
from gitckpt.model.values import dataclass, field, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gitckpt.git.contents.conversion import RawStorageRules
    from gitckpt.git.repository import Repository

MB = 1000 * 1000

_AUTOMATIC = 500 * MB  # of untracked files in a checkpoint by a hook, an autosave or an agent
EXCESS = "an automatic checkpoint captures at most"  # start of the reason to omit a file
MORE_TIME = "to allow more time: git config ckpt.snapshotTimeout 5m"
LARGER_BUDGET = "to allow more time: git config ckpt.snapshotBudget 30s"


def _split_words(text: str) -> tuple[str, ...]:
    lines = (line for line in text.splitlines() if not line.lstrip().startswith("#"))
    return tuple(" ".join(lines).split())


# Names of untracked files that look like secrets; one with a slash includes directories. From the
# manuals of the clients, the templates of github/gitignore, and the paths that gitleaks,
# detect-secrets and gitrob look for. Names that end like source code or a document are never
# secrets: an omitted file is lost, and a secret in a captured file is reported by its content.
_FIRST_SECRETS = """
    # what coding agents log in with: their manuals, and what they write
    .claude/.credentials.json .claude.json .codex/auth.json .gemini/oauth_creds.json
    .gemini/mcp-oauth-tokens*.json .qwen/oauth_creds.json .config/github-copilot/*.json
    opencode/auth.json opencode/mcp-auth.json crush/crush.json .factory/auth.json
    .kimi/credentials/* huggingface/token .huggingface/token
    # environments and settings: templates of github/gitignore, Rails, Django, Terraform, Ansible
    .env* *.env .flaskenv secret secrets *.secret *.secrets master.key *.tfstate *.tfstate.*
    *.tfvars *.tfvars.json .terraformrc terraform.rc .vault_pass* .vault-token *.agekey
"""
# These names with each ending of `_DATA`.
_NAMES = """
    secret secrets *-secret *-secrets *_secret *_secrets creds password passwords *-credentials
    *_credentials
"""
_DATA = "yml yaml json toml ini env xml properties txt conf cfg enc bak"
_FURTHER_SECRETS = """
    # keys, and certificates with keys: gitleaks, detect-secrets, gitrob
    id_rsa* id_dsa* id_ecdsa* id_ed25519* id_xmss* *.pem *.key *.p12 *.pfx *.p8 *.pkcs12 *.pk8 *.jks
    *.keystore *.bks *.ppk *.asc *.kdb *.kdbx *.ovpn *.keychain *.keychain-db *.agilekeychain
    *.opvault *.psafe3 otr.private_key ssh_host_*_key *_rsa *_dsa *_ecdsa *_ed25519 secring.* *.jwk
    *.jwks *.cscfg *.publishsettings wallet.dat *.wallet key.properties keystore.properties
    sops/age/keys.txt
    # what clients keep to log in: their manuals
    credentials* .netrc _netrc .git-credentials .npmrc .pypirc .pgpass pgpass.conf .my.cnf
    .mylogin.cnf .htpasswd htpasswd .dockercfg .dockerconfigjson kubeconfig kubeconfig.*
    *.kubeconfig .s3cfg .boto .aws/* .azure/* .kube/config .docker/config.json .config/gh/hosts.yml
    .config/gcloud/* .ssh/* .gnupg/* service-account*.json service_account*.json
    serviceaccount*.json client_secret*.json gha-creds-*.json application_default_credentials.json
    *firebase-adminsdk*.json .tugboat .composer/auth.json .m2/settings.xml settings-security.xml
    .remote-sync.json sftp-config.json sftp.json .ftpconfig filezilla.xml recentservers.xml .esmtprc
    .msmtprc .fetchmailrc .muttrc rclone.conf .yarnrc.yml kaggle.json .databrickscfg .snowsql/config
    .oci/* .config/glab-cli/* .config/doctl/* .config/stripe/* .config/netlify/* .config/hub
    .config/configstore/* .wrangler/config/* .fly/config.yml ngrok/ngrok.yml containers/auth.json
    com.vercel.cli/auth.json oauth_creds*.json wg[0-9]*.conf token*.json *_token.json *-token.json
    cookies cookies.* .auth/*
    # what was typed, with passwords in it: shells, and clients of databases
    .bash_history .zsh_history .sh_history .ash_history fish_history .psql_history .mysql_history
    .sqlite_history .rediscli_history .dbshell .irb_history .python_history .node_repl_history
"""
_WITH_DATA = (f"{name}.{ending}" for name in _split_words(_NAMES) for ending in _split_words(_DATA))
SECRETS = (*_split_words(_FIRST_SECRETS), *_WITH_DATA, *_split_words(_FURTHER_SECRETS))

# Endings of source code and documents. Names that begin with `.env` are secrets all the same.
_ENDINGS = """
    adoc asm astro awk bash bat c cc cjs clj cljc cljs cmake cmd cpp cs css cts cu cxx dart ejs elm
    erb erl ex exs f90 fish fs fsx go gql gradle graphql groovy h handlebars hbs hcl hh hpp hrl hs
    htm html hxx ipynb java jl js jsx kt kts less lhs liquid lua m md mdx mjs ml mli mm mts nim nix
    org php phtml pl pm proto ps1 psm1 pug py pyi pyx r rake rb rkt rs rst sass scala scm scss sh
    sol sql styl sv svelte swift t tcl tex tf thrift ts tsx v vb vhd vhdl vue xhtml zig zsh
"""
_SOURCES = frozenset(_split_words(_ENDINGS))

# Names that match `SECRETS` but are no secrets: templates to fill in, and public keys.
_PUBLIC = (".env*.example", ".env*.sample", ".env*.template", ".env*.dist", "*.pub")


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits on the untracked files, the submodules and the time of a capture."""

    # In bytes: larger untracked files are omitted. None sets no limit.
    max_file_size: int | None = 50 * MB
    # Shell patterns, regardless of case: untracked files whose names match are omitted. A pattern
    # with N slashes is compared with the last N + 1 parts of the path.
    secrets: tuple[str, ...] = SECRETS
    # Patterns as in `.gitignore`: untracked files that match are captured although they are
    # ignored or look like secrets.
    include: tuple[str, ...] = ()
    # Whether checked-out submodules are captured, each in its own repository.
    submodules: bool = True
    # In seconds: a capture that takes longer is aborted.
    timeout: float = 60.0
    # The same for captures by the hooks of agents, guards and `git ckpt watch`.
    budget: float = 5.0
    # In bytes, of all untracked files: the largest are omitted until the rest fit. None: no limit.
    max_total_size: int | None = None
    # git's settings for line ends and filters; None if they were not read yet.
    configured: ConversionSettings | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        require_number("max_file_size", self.max_file_size, may_be_none=True)
        require_number("max_total_size", self.max_total_size, may_be_none=True)
        for name in ("secrets", "include"):
            object.__setattr__(self, name, as_command_words(name, getattr(self, name)))
        require_type("submodules", self.submodules, bool, "True or False")
        require_seconds("timeout", self.timeout)
        require_seconds("budget", self.budget)

    def automatic(self) -> Limits:
        return replace(self, max_total_size=_AUTOMATIC)

    def within_budget(self) -> Limits:
        """Return the limits for a capture that an agent or a command waits for."""
        return replace(self.automatic(), timeout=min(self.timeout, self.budget))

    def find_excess(self, sizes: Mapping[bytes, int]) -> list[bytes]:
        if self.max_total_size is None:
            return []
        excess_size = sum(sizes.values()) - self.max_total_size
        omitted_paths = []
        for path in sorted(sizes, key=lambda path: (-sizes[path], path)):
            if excess_size <= 0:
                break
            excess_size -= sizes[path]
            omitted_paths.append(path)
        return omitted_paths

    def include_command(self) -> list[str]:
        options = (option for pattern in self.include for option in ("-x", pattern))
        return ["ls-files", "--others", "--ignored", "-z", *options]

    def deadline(self) -> float | None:
        return None if self.timeout == float("inf") else time.monotonic() + self.timeout

    def reason_to_omit(self, path: bytes, *, included: bool) -> tuple[str, int | None] | None:
        """Return why to omit an untracked file; None to capture the file.

        For a file that is too large, also return its size. `included` files may look secret.
        """
        pattern = self.secret_pattern(path) if not included else None
        if pattern is not None:
            return f"its name looks like a secret ({pattern})", None
        try:
            status = os.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            return None  # the file is gone, or a parent directory was replaced by a file
        limit = self.max_file_size
        if limit is not None and stat.S_ISREG(status.st_mode) and status.st_size > limit:
            return f"larger than {format_size(limit)}", status.st_size
        return None

    def git_settings(self, repository: Repository) -> ConversionSettings:
        if self.configured is not None:
            return self.configured
        values = config.read_settings(repository, f"^({attributes.SETTINGS})")
        return ConversionSettings.from_git_settings(values)

    def terms(self, included: Collection[bytes], regardless: Collection[bytes]) -> RawStorageRules:
        """Return the conditions for keeping the raw bytes of files that git converts.

        Files in `regardless` are always kept, files that look like secrets only if in `included`.
        """
        from gitckpt.git.contents.conversion import RawStorageRules  # only if git converts files

        return RawStorageRules(
            self.max_file_size,
            is_secret=lambda path: path not in included and self.secret_pattern(path) is not None,
            text=f"{self.max_file_size} {self.secrets} {self.include}",
            always=regardless,
        )

    def secret_pattern(self, path: bytes) -> str | None:
        """Return the pattern of `secrets` that matches a path; None without a match."""
        parts = os.fsdecode(path).lower().split("/")
        name = parts[-1]
        _, dot, ending = name[1:].rpartition(".")
        is_default = self.secrets == SECRETS
        if is_default and dot and ending in _SOURCES and not name.startswith(".env"):
            return None
        pattern = self._match_pattern(parts)
        if is_default and pattern and any(fnmatch.fnmatchcase(name, form) for form in _PUBLIC):
            return None
        return pattern

    def _match_pattern(self, parts: Sequence[str]) -> str | None:
        patterns_by_name, patterns_by_ending, wildcard_patterns = _group_patterns(self.secrets)
        for pattern, slashes in patterns_by_name.get(parts[-1], ()):
            if "/".join(parts[-slashes - 1 :]) == pattern.lower():
                return pattern
        _, dot, ending = parts[-1].rpartition(".")
        if dot and ending in patterns_by_ending:
            return patterns_by_ending[ending]
        for pattern, slashes, literal_start, literal_end in wildcard_patterns:
            path = "/".join(parts[-slashes - 1 :])
            # Compare start and end first: `fnmatch` would take 4 ms to compile all patterns.
            has_literal_ends = path.startswith(literal_start) and path.endswith(literal_end)
            if has_literal_ends and fnmatch.fnmatchcase(path, pattern.lower()):
                return pattern
        return None


_SPECIAL = re.compile(r"[*?[\]]")
_ENDING = re.compile(r"\*\.[^*?[/.]*")


@functools.lru_cache(maxsize=8)
def _group_patterns(
    patterns: tuple[str, ...],
) -> tuple[dict[str, list[tuple[str, int]]], dict[str, str], list[tuple[str, int, str, str]]]:
    by_name: dict[str, list[tuple[str, int]]] = {}
    by_ending: dict[str, str] = {}
    wildcard_patterns = []
    for pattern in patterns:
        lowercase_pattern, slashes = pattern.lower(), pattern.count("/")
        if not any(c in lowercase_pattern for c in "*?["):
            by_name.setdefault(lowercase_pattern.rpartition("/")[2], []).append((pattern, slashes))
        elif _ENDING.fullmatch(lowercase_pattern):
            by_ending[lowercase_pattern[2:]] = pattern
        else:
            literal_parts = _SPECIAL.split(lowercase_pattern)
            wildcard_patterns.append((pattern, slashes, literal_parts[0], literal_parts[-1]))
    return by_name, by_ending, wildcard_patterns


def format_size(size: int) -> str:
    for unit, factor in (("GB", 1000 * MB), ("MB", MB), ("kB", 1000)):
        if size >= factor and size % factor == 0:
            return f"{size // factor} {unit}"
    return f"{size} bytes"


def require_ordinary_worktree(repository: Repository) -> None:
    """Raise WorktreeError if the worktree is the home directory or `/`."""
    top = os.path.realpath(repository.worktree or "")
    kinds = {os.path.realpath(os.path.expanduser("~")): "the home directory", "/": "all files"}
    if top in kinds:
        from gitckpt.model.errors import WorktreeError

        problem = f"the worktree {top} is {kinds[top]}, with private data and many large files"
        raise WorktreeError(problem, hint="to save it all the same: git ckpt save --yes")


# Predict whether a snapshot would capture a file, for paths that documents or settings name.

IGNORED = "git ignores it"


def reason_not_captured(repository: Repository, limits: Limits, path: str) -> str | None:
    """Return why a snapshot would omit a file; None if it would capture the file."""
    top = os.path.realpath(repository.worktree or os.devnull)
    real_path = os.path.realpath(path)
    if not real_path.startswith(f"{top}/"):
        return "the file lies outside of the worktree"
    tag = _list_tracked_and_untracked(repository, os.path.relpath(real_path, top)).get(real_path)
    if tag == b"H":
        return None
    is_included = False
    if limits.include:
        listing = repository.git.run(*limits.include_command()).out.split(b"\0")
        is_included = os.fsencode(os.path.relpath(real_path, top)) in listing
    if tag is None and not is_included:
        return IGNORED
    reason = limits.reason_to_omit(os.fsencode(real_path), included=is_included)
    return reason[0] if reason is not None else None


def captured_below(repository: Repository, limits: Limits, directory: str) -> set[str] | None:
    top = os.path.realpath(repository.worktree or os.devnull)
    if directory != top and not directory.startswith(f"{top}/"):
        return None
    tags_by_path = _list_tracked_and_untracked(repository, os.path.relpath(directory, top))
    paths = {
        path
        for path, tag in tags_by_path.items()
        if tag == b"H" or limits.reason_to_omit(os.fsencode(path), included=False) is None
    }
    return paths or None


def _list_tracked_and_untracked(repository: Repository, relative: str) -> dict[str, bytes]:
    top = os.path.realpath(repository.worktree or "")
    options = ("ls-files", "-t", "-z", "--cached", "--others", "--exclude-standard", "--", relative)
    listing = repository.git.run("--literal-pathspecs", *options, ok=(0, 128)).out
    entries = (entry.split(b" ", 1) for entry in listing.split(b"\0")[:-1])
    return {f"{top}/{os.fsdecode(path)}": b"?" if tag == b"?" else b"H" for tag, path in entries}
