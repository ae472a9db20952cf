"""Find out which files git converts by line ends, filters, encodings and `$Id$`."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence

from gitckpt.git import config
from gitckpt.git.command import GitRunner, config_options, encode_paths
from gitckpt.git.files import regular
from gitckpt.git.objects.encoding import object_hash
from gitckpt.git.process import git_executable
from gitckpt.git.repository import Repository
from gitckpt.model.values import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gitckpt.git.worktree.index import PrivateIndex

# The settings that `ConversionSettings.of` reads, as a regular expression on their names.
SETTINGS = (
    r"core\.(autocrlf|eol|attributesfile|filemode|symlinks|ignorecase|precomposeunicode)$"
    r"|attr\.tree$|filter\."
)

FILE = b".gitattributes"
ANNEX = "annex"  # the name of git-annex's filter

_LARGEST = 100 << 20  # bytes: git reads no larger attribute file

# An attribute that is set and may convert; `-text` and `binary` only switch conversions off.
# Git treats a carriage return as a space, and needs no space after a quoted pattern
# (`parse_attr_line` in its attr.c).
_CONVERTING = re.compile(
    rb"^(?![ \t]*#).*[ \t\r\"](?:text|crlf|eol|filter|ident|working-tree-encoding)(?:[ \t\r=]|$)",
    re.MULTILINE,
)

_ATTRIBUTES = ("text", "crlf", "eol", "filter", "ident", "working-tree-encoding")
_AS_IS = {"filemode": True, "symlinks": True, "ignorecase": False, "precomposeunicode": False}
_COMMANDS = ("clean", "smudge", "process")

_AUTOCRLF, _EOL, _DIGEST = "core.autocrlf=true", "core.eol=crlf", "attributes="
# For each setting that makes CRLF of line ends: the settings under which git does the same.
_LINE_ENDS = {
    "": ("core.autocrlf=false", "core.eol=lf"),
    _AUTOCRLF: (_AUTOCRLF,),
    _EOL: ("core.autocrlf=false", _EOL),
}


@dataclass(frozen=True, slots=True)
class ConversionSettings:
    autocrlf: str = ""  # "true", "input", or "" for neither
    eol: str = ""
    attributes: str | None = None  # `core.attributesFile`; None for git's default
    # Drivers that do something: name, whether required, and their commands joined by newlines.
    filters: tuple[tuple[str, bool, str], ...] = ()
    # `attr.tree`: from 2.43 on, git reads attributes from it instead of the worktree.
    tree: str = ""
    # Whether git takes names, modes and links from the file system unchanged.
    takes_as_is: bool = True

    @property
    def crlf_setting(self) -> str:
        """The setting that makes git write CRLF where a blob has LF; "" for none."""
        if self.autocrlf:
            return _AUTOCRLF if self.autocrlf == "true" else ""
        return _EOL if self.eol == "crlf" else ""

    @classmethod
    def from_git_settings(cls, settings: Mapping[str, Sequence[str]]) -> ConversionSettings:
        value_of = {name: values[-1] for name, values in settings.items()}
        drivers = {name[7:].rpartition(".")[0] for name in value_of if name.startswith("filter.")}
        filters = []
        for name in sorted(drivers):
            commands = [value_of.get(f"filter.{name}.{command}", "") for command in _COMMANDS]
            is_required = config.is_true(value_of.get(f"filter.{name}.required", ""))
            if is_required or any(commands):
                filters.append((name, is_required, "\n".join(commands)))
        autocrlf = value_of.get("core.autocrlf", "").lower()
        are_defaults = (
            config.is_true(value_of.get(f"core.{name}", str(default))) == default
            for name, default in _AS_IS.items()
        )
        return cls(
            autocrlf="input" if autocrlf == "input" else "true" if config.is_true(autocrlf) else "",
            eol=value_of.get("core.eol", "").lower(),
            attributes=value_of.get("core.attributesfile"),
            tree=value_of.get("attr.tree", ""),
            filters=tuple(filters),
            takes_as_is=all(are_defaults),
        )


@dataclass(frozen=True, slots=True)
class FileConversion:
    driver: str = ""  # the filter
    is_required: bool = False  # `filter.*.required`, as for git-crypt and LFS
    is_rewritten: bool = False  # a filter, an encoding or `$Id$` may change more than line ends
    is_text: bool = False  # line ends are converted
    is_guessed: bool = False  # git looks at the content first: with a NUL, it is binary
    gives_crlf: bool = False  # git may write LF as CRLF

    def may_change(self, data: bytes) -> bool:
        if self.is_rewritten:
            return True
        if not self.is_text or (self.is_guessed and b"\0" in data):
            return False
        return b"\r" in data or (self.gives_crlf and b"\n" in data)


UNTOUCHED = FileConversion()


@dataclass(frozen=True, slots=True)
class AttributeRules:
    configured: ConversionSettings
    sources: tuple[tuple[str, bytes], ...]  # path and content of the attribute files

    def digest(self, extra: Iterable[bytes]) -> str:
        # A stored key: the class's former name keeps the verdicts of older versions valid.
        settings = repr(self.configured).replace(type(self.configured).__name__, "Configured", 1)
        parts = [settings.encode("utf-8", "surrogateescape")]
        for path, content in self.sources:
            parts += [os.fsencode(path), content]
        data = b"\0".join(b"%d %s" % (len(part), part) for part in [*parts, *extra])
        return object_hash("sha1", data).hexdigest()


def read_attribute_rules(
    repository: Repository,
    configured: ConversionSettings,
    directories: Iterable[bytes],
    unseen: Iterable[bytes],
) -> AttributeRules | None:
    """Return the rules by which git converts files; None if git converts no file.

    `directories`, relative to the top, may have attribute files. `unseen` are paths in the index
    that the worktree lacks; attribute files among them apply, too.
    """
    top = repository.worktree or ""
    inner_paths = [os.path.join(top, os.fsdecode(path), os.fsdecode(FILE)) for path in directories]
    paths = [*_list_attribute_files(repository, configured), *sorted(inner_paths)]
    sources = [(path, content) for path in paths if (content := _read_file(path)) is not None]
    is_unseen = any(os.path.basename(path) == FILE for path in unseen)
    if configured.tree and "\n" not in configured.tree:
        tree = repository.cat_file.info(f"{configured.tree}^{{tree}}")
        if tree is not None:
            sources.append((configured.tree, tree[0].encode("ascii")))
    may_convert = configured.autocrlf or is_unseen or configured.tree
    if may_convert or any(_CONVERTING.search(content) for _, content in sources):
        return AttributeRules(configured, tuple(sources))
    return None


def describe_conversion(repository: Repository, configured: ConversionSettings) -> bytes:
    """Encode git's conversion settings and attributes outside the worktree as text."""
    # Without filters: LFS is usually configured for all repositories at once.
    contents = map(_read_file, _list_attribute_files(repository, configured))
    sources = [content for content in contents if content and _CONVERTING.search(content)]
    if configured.tree:
        sources.append(os.fsencode(configured.tree))
    lines = [configured.crlf_setting] if configured.crlf_setting else []
    if sources:
        joined_sources = b"".join(b"%d %s" % (len(source), source) for source in sources)
        lines.append(_DIGEST + object_hash("sha1", joined_sources).hexdigest())
    return "".join(f"{line}\n" for line in lines).encode("ascii")


def make_line_end_options(settings: bytes) -> tuple[str, ...]:
    first_line = settings.partition(b"\n")[0].decode("ascii", "replace")
    return config_options(*_LINE_ENDS.get(first_line, _LINE_ENDS[""]))


def have_same_attributes(settings: bytes, other_settings: bytes) -> bool:
    prefix = _DIGEST.encode()
    return settings.partition(prefix)[2] == other_settings.partition(prefix)[2]


def find_conversions(
    index: PrivateIndex, configured: ConversionSettings, paths: Collection[bytes]
) -> dict[bytes, FileConversion]:
    if not paths:
        return {}
    words = ("check-attr", "-z", "--stdin", *_ATTRIBUTES)
    fields = index.git(*words, data=encode_paths(paths)).split(b"\0")
    cache: dict[tuple[bytes, ...], FileConversion] = {}
    treatment_by_path = {}
    width = 3 * len(_ATTRIBUTES)
    for start in range(0, len(fields) - 1, width):
        values = tuple(fields[start + 2 : start + width : 3])
        if values not in cache:
            settings = dict(zip(_ATTRIBUTES, map(os.fsdecode, values), strict=True))
            cache[values] = _make_conversion(settings, configured)
        treatment_by_path[fields[start]] = cache[values]
    return treatment_by_path


def _make_conversion(settings: Mapping[str, str], configured: ConversionSettings) -> FileConversion:
    driver = next((entry for entry in configured.filters if entry[0] == settings["filter"]), None)
    text = settings["text"] if settings["text"] != "unspecified" else settings["crlf"]
    eol = settings["eol"] if settings["eol"] in ("lf", "crlf") else ""
    is_text = text not in ("unset", "unspecified", "auto") or (text == "unspecified" and bool(eol))
    is_guessed = text == "auto" or (text == "unspecified" and not eol and bool(configured.autocrlf))
    is_crlf_default = configured.crlf_setting != "" or os.linesep == "\r\n"
    has_encoding = settings["working-tree-encoding"] not in ("unset", "unspecified")
    return FileConversion(
        driver=driver[0] if driver is not None else "",
        is_required=driver is not None and driver[1],
        is_rewritten=driver is not None or has_encoding or settings["ident"] == "set",
        is_text=is_text or is_guessed,
        is_guessed=is_guessed,
        gives_crlf=eol == "crlf" or (not eol and is_crlf_default),
    )


def _list_attribute_files(repository: Repository, configured: ConversionSettings) -> list[str]:
    # gitattributes(5)
    user_file = os.path.expanduser(configured.attributes or f"{config.config_dir()}/attributes")
    directories = ("", *os.environ.get("PATH", "").split(os.pathsep))
    candidates = (os.path.join(directory, git_executable()) for directory in directories)
    git_path = next(filter(os.path.isfile, candidates), "")
    paths = [
        "/etc/gitattributes",
        os.path.join(os.path.dirname(os.path.dirname(git_path)), "etc", "gitattributes"),
        os.path.join(repository.worktree or "", user_file),
        os.path.join(repository.common_dir, "info", "attributes"),
    ]
    return list(dict.fromkeys(paths))


def find_filters(git: GitRunner | PrivateIndex, paths: Collection[bytes]) -> dict[bytes, str]:
    output = git.run("check-attr", "-z", "--stdin", "filter", data=encode_paths(paths)).out
    fields = output.split(b"\0")
    return {path: os.fsdecode(name) for path, name in zip(fields[::3], fields[2::3], strict=False)}


def _read_file(path: str) -> bytes | None:
    try:
        return regular.read_content(path, _LARGEST)
    except OSError:  # missing, or not a regular file: git ignores it as well
        return None
