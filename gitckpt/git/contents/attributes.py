"""Find out what git converts: line ends, filters, encodings and `$Id$`.

The attribute files alone tell, without a process, whether nothing is converted.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence

from gitckpt.git import config
from gitckpt.git.files import regular
from gitckpt.git.objects.encoding import object_hash
from gitckpt.git.process import git_executable
from gitckpt.model.values import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gitckpt.git.repository import Repository
    from gitckpt.git.worktree.index import PrivateIndex

# The settings that `Configured.of` reads, as a regular expression on their names.
SETTINGS = r"core\.(autocrlf|eol|attributesfile|filemode|symlinks|ignorecase|precomposeunicode)$|attr\.tree$|filter\."

FILE = b".gitattributes"
# The name of git-annex's filter.
ANNEX = "annex"

# In bytes: the largest attribute file that git reads.
_LARGEST = 100 << 20

# An attribute that is set and may convert; `-text` and `binary` only switch conversions off.
# Git treats a carriage return as a space, and needs no space after a quoted pattern
# (`parse_attr_line` in its attr.c).
_CONVERTING = re.compile(rb"^(?![ \t]*#).*[ \t\r\"](?:text|crlf|eol|filter|ident|working-tree-encoding)(?:[ \t\r=]|$)", re.MULTILINE)

_ASKED = ("text", "crlf", "eol", "filter", "ident", "working-tree-encoding")
_AS_IS = {"filemode": "true", "symlinks": "true", "ignorecase": "false", "precomposeunicode": "false"}
_COMMANDS = ("clean", "smudge", "process")

_AUTOCRLF, _EOL, _DIGEST = "core.autocrlf=true", "core.eol=crlf", "attributes="
# For each setting that makes CRLF of line ends: the settings under which git does the same.
_LINE_ENDS = {
    "": ("core.autocrlf=false", "core.eol=lf"),
    _AUTOCRLF: (_AUTOCRLF,),
    _EOL: ("core.autocrlf=false", _EOL),
}


@dataclass(frozen=True, slots=True)
class Configured:
    # `core.autocrlf`: "true", "input", or "" for neither.
    autocrlf: str = ""
    eol: str = ""
    # `core.attributesFile`; None for git's default.
    attributes: str | None = None
    # Drivers that do something: name, whether required, and their commands joined by newlines.
    filters: tuple[tuple[str, bool, str], ...] = ()
    # `attr.tree`: from 2.43 on, git reads attributes from it instead of the worktree.
    tree: str = ""
    # Whether git takes names, modes and links from the file system unchanged.
    takes_as_is: bool = True

    @property
    def line_ends(self) -> str:
        """The setting that makes git write CRLF where a blob has LF; "" for none."""
        if self.autocrlf:
            return _AUTOCRLF if self.autocrlf == "true" else ""
        return _EOL if self.eol == "crlf" else ""

    @classmethod
    def of(cls, settings: Mapping[str, Sequence[str]]) -> Configured:
        last = {name: values[-1] for name, values in settings.items()}
        drivers = sorted({name[7:].rpartition(".")[0] for name in last if name.startswith("filter.")})
        filters = []
        for name in drivers:
            commands = [last.get(f"filter.{name}.{command}", "") for command in _COMMANDS]
            required = config.is_on(last.get(f"filter.{name}.required", ""))
            if required or any(commands):
                filters.append((name, required, "\n".join(commands)))
        autocrlf = last.get("core.autocrlf", "").lower()
        return cls(
            autocrlf="input" if autocrlf == "input" else "true" if config.is_on(autocrlf) else "",
            eol=last.get("core.eol", "").lower(),
            attributes=last.get("core.attributesfile"),
            tree=last.get("attr.tree", ""),
            filters=tuple(filters),
            takes_as_is=all(config.is_on(last.get(f"core.{name}", usual)) == config.is_on(usual) for name, usual in _AS_IS.items()),
        )


@dataclass(frozen=True, slots=True)
class Treatment:
    # The filter; "" for none.
    driver: str = ""
    # Whether the filter is required (`filter.*.required`), as those of git-crypt and LFS are.
    is_required: bool = False
    # Whether a filter, an encoding or `$Id$` may change more than line ends.
    is_rewritten: bool = False
    # Whether line ends are converted.
    is_text: bool = False
    # Whether git looks at the content first: with a NUL, it is binary.
    is_guessed: bool = False
    # Whether LF may come back as CRLF.
    gives_crlf: bool = False

    @property
    def is_annex(self) -> bool:
        return self.driver == ANNEX

    def may_change(self, data: bytes) -> bool:
        """Return whether content may come back changed: True means: compare it."""
        if self.is_rewritten:
            return True
        if not self.is_text or (self.is_guessed and b"\0" in data):
            return False
        return b"\r" in data or (self.gives_crlf and b"\n" in data)


UNTOUCHED = Treatment()


@dataclass(frozen=True, slots=True)
class AttributeRules:
    configured: Configured
    # The attribute files: path and content.
    sources: tuple[tuple[str, bytes], ...]

    def digest(self, besides: Iterable[bytes]) -> str:
        parts = [repr(self.configured).encode("utf-8", "surrogateescape")]
        for path, content in self.sources:
            parts += [os.fsencode(path), content]
        return object_hash("sha1", b"\0".join(b"%d %s" % (len(part), part) for part in [*parts, *besides])).hexdigest()


def rules(repository: Repository, configured: Configured, directories: Iterable[bytes], unseen: Iterable[bytes]) -> AttributeRules | None:
    """Return the rules for conversions, or None if nothing is converted.

    Args:
        directories: all directories in which git may look for attributes, relative to the top.
        unseen: paths in the index that have no file; git reads attributes from there, too.
    """
    top = os.fsencode(repository.worktree or "")
    sources = [(path, content) for path in _outside(repository, configured) if (content := _content(path)) is not None]
    for directory in sorted(directories):
        path = os.path.join(top, directory, FILE)
        if (content := _content(path)) is not None:
            sources.append((os.fsdecode(path), content))
    is_unseen = any(os.path.basename(path) == FILE for path in unseen)
    is_elsewhere = bool(configured.tree)
    if is_elsewhere and "\n" not in configured.tree and (tree := repository.cat_file.info(f"{configured.tree}^{{tree}}")) is not None:
        sources.append((configured.tree, tree[0].encode("ascii")))
    if not configured.autocrlf and not is_unseen and not is_elsewhere and not any(_CONVERTING.search(content) for _, content in sources):
        return None
    return AttributeRules(configured, tuple(sources))


def settings(repository: Repository, configured: Configured) -> bytes:
    """Return the conversion settings outside the worktree; b"" if nothing converts.

    Filters are left out: LFS is usually configured for all repositories at once.
    """
    contents = map(_content, _outside(repository, configured))
    sources = [content for content in contents if content and _CONVERTING.search(content)]
    if configured.tree:
        sources.append(os.fsencode(configured.tree))
    lines = [configured.line_ends] if configured.line_ends else []
    if sources:
        joined = b"".join(b"%d %s" % (len(source), source) for source in sources)
        lines.append(_DIGEST + object_hash("sha1", joined).hexdigest())
    return "".join(f"{line}\n" for line in lines).encode("ascii")


def line_end_options(settings: bytes) -> tuple[str, ...]:
    """Return git options that write line ends as under these `settings`."""
    first = settings.partition(b"\n")[0].decode("ascii", "replace")
    words = _LINE_ENDS.get(first, _LINE_ENDS[""])
    return tuple(word for setting in words for word in ("-c", setting))


def have_same_attributes(settings: bytes, others: bytes) -> bool:
    return _digest(settings) == _digest(others)


def _digest(settings: bytes) -> bytes:
    return settings.partition(_DIGEST.encode())[2]


def treatments(index: PrivateIndex, configured: Configured, paths: Collection[bytes]) -> dict[bytes, Treatment]:
    if not paths:
        return {}
    fields = index.git("check-attr", "-z", "--stdin", *_ASKED, data=b"".join(path + b"\0" for path in paths)).split(b"\0")
    known: dict[tuple[bytes, ...], Treatment] = {}
    by_path = {}
    width = 3 * len(_ASKED)
    for start in range(0, len(fields) - 1, width):
        values = tuple(fields[start + 2 : start + width : 3])
        treatment = known.get(values)
        if treatment is None:
            treatment = known[values] = _treatment(dict(zip(_ASKED, map(os.fsdecode, values), strict=True)), configured)
        by_path[fields[start]] = treatment
    return by_path


def _treatment(said: Mapping[str, str], configured: Configured) -> Treatment:
    driver = next((entry for entry in configured.filters if entry[0] == said["filter"]), None)
    text = said["text"] if said["text"] != "unspecified" else said["crlf"]
    eol = said["eol"] if said["eol"] in ("lf", "crlf") else ""
    is_named = text not in ("unset", "unspecified", "auto") or (text == "unspecified" and bool(eol))
    is_guessed = text == "auto" or (text == "unspecified" and not eol and bool(configured.autocrlf))
    otherwise = configured.autocrlf == "true" or (not configured.autocrlf and configured.eol == "crlf") or os.linesep == "\r\n"
    encoding = said["working-tree-encoding"] not in ("unset", "unspecified")
    return Treatment(
        driver=driver[0] if driver is not None else "",
        is_required=driver is not None and driver[1],
        is_rewritten=driver is not None or encoding or said["ident"] == "set",
        is_text=is_named or is_guessed,
        is_guessed=is_guessed,
        gives_crlf=eol == "crlf" or (not eol and otherwise),
    )


def _outside(repository: Repository, configured: Configured) -> list[str]:
    # gitattributes(5)
    shared = os.environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    own = os.path.expanduser(configured.attributes) if configured.attributes else os.path.join(shared, "git", "attributes")
    places = ("", *os.environ.get("PATH", "").split(os.pathsep))
    git = next((path for place in places if os.path.isfile(path := os.path.join(place, git_executable()))), "")
    of_system = ["/etc/gitattributes", os.path.join(os.path.dirname(os.path.dirname(git)), "etc", "gitattributes")]
    paths = [*of_system, os.path.join(repository.worktree or "", own), os.path.join(repository.common_dir, "info", "attributes")]
    return list(dict.fromkeys(paths))


def _content(path: str | bytes) -> bytes | None:
    try:
        return regular.content(path, _LARGEST)
    except OSError:  # missing, or not a regular file: git ignores it as well
        return None
