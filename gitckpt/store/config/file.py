"""A file such as `gitckpt.toml`: read once, table by table, and all that is wrong with it said at once."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection

from gitckpt.git.files import premises, regular
from gitckpt.model import toml
from gitckpt.model.errors import UsageError, WorktreeError
from gitckpt.model.format import budget
from gitckpt.store.config.table import Mistake, Mistakes, Table, name_problem

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeVar

    T = TypeVar("T")

OBEYED = "gitckpt.toml"
"""The file of a worktree, which a branch may have made a link; those that come with gitckpt are found as Python finds them."""


class ConfigError(UsageError):
    """A file has mistakes.

    Args:
        path: of the file, or what it is called.
        mistakes: what is wrong, one at the least.
        cure: what to do about it, where that is more than to correct the file.

    Attributes:
        mistakes: by line.
        candidates: a line for each mistake where there are several.
    """

    def __init__(self, path: str, mistakes: Collection[Mistake], cure: str | None = None) -> None:
        found = sorted(mistakes, key=lambda mistake: mistake.line)
        name = os.path.basename(path)
        self.mistakes = found
        self.candidates: list[str] = []
        if len(found) == 1:
            # With the path: a file of that name is in every worktree.
            more = f" ({found[0].hint})" if found[0].hint else ""
            super().__init__(f"{name}:{found[0].line}: {found[0].text}", hint=(cure or f"correct it: {path}") + more)
            return
        super().__init__(f"{name}: {len(found)} mistakes", hint=cure or f"correct them: {path}")
        self.candidates = [f"{name}:{each.line}: {each.text}" + (f" ({each.hint})" if each.hint else "") for each in found]


class ConfigFile:
    """The tables of a file.

    Args:
        text: of the file.
        path: what messages call it.

    Attributes:
        document: all that is in it, unchecked.

    Raises:
        ConfigError: it is not TOML.
    """

    def __init__(self, text: str, path: str) -> None:
        self._path = path
        self._mistakes = Mistakes(text)
        self.document = _document(text, path)

    @property
    def whole(self) -> Table:
        """The top of the document."""
        return Table(self.document, (), "the file", self._mistakes)

    def table(self, key: str, label: str = "", hint: str | None = None) -> Table:
        """Returns a table at the top; an empty one where there is none, or something else has its name.

        Args:
            key: its name.
            label: what messages call it; by default as its name.
            hint: for whoever wrote something else; by default that it holds tables, `[key.NAME]`.
        """
        value = self.document.get(key, {})
        if not isinstance(value, dict):
            self.whole.complain(f"{key} must be a table", key, hint=hint or f"write [{key}.NAME]")
            value = {}
        return Table(value, (key,), label or key, self._mistakes)

    def each(self, key: str, kind: str, read: Callable[[str, Table], T]) -> dict[str, T]:
        """Returns what the tables `[key.NAME]` say, by name, in order.

        Args:
            key: the table that they are in.
            kind: what messages call one of them.
            read: makes what is returned of a name and its table.

        Raises:
            ConfigError: anything that was read of the file until now is a mistake.
        """
        around = self.table(key)
        found = {}
        for name in around.values:
            problem = name_problem(name)
            if problem:
                around.complain(f"the name of {kind} {name!r} {problem}", name)
            table = around.inner(name, f"{kind} {name!r}")
            if table is not None:
                found[name] = read(name, table)
        self.require_correct()
        return found

    def require_correct(self) -> None:
        """Raises `ConfigError` if anything that was read until now is a mistake."""
        if self._mistakes.found:
            raise ConfigError(self._path, self._mistakes.found)


def read_file(path: str) -> ConfigFile:
    """Returns a file; one that does not exist is empty.

    Raises:
        UsageError: it cannot be read.
        ConfigError: it is not TOML.
    """
    return ConfigFile(text_of(path), path)


def text_of(path: str) -> str:
    """Returns the text of a file; "" where there is none.

    Raises:
        UsageError: it cannot be read, is no regular file, or is larger than such a file may be.
    """
    try:
        read = premises.content if os.path.basename(path) == OBEYED else regular.content
        return read(path, budget.FILE.size).decode("utf-8", "surrogateescape")
    except WorktreeError as error:
        raise UsageError(error.message, hint=error.hint) from None
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None


def _document(text: str, path: str) -> dict[str, object]:
    if not text:
        return {}  # where there is no file, the reader of TOML need not be imported
    try:
        return toml.loads(text, budget.FILE)
    except budget.Excess as error:
        raise ConfigError(path, [Mistake(1, str(error))]) from None
    except ValueError as error:
        import re

        where = re.search(r" \(at (?:line (\d+), column \d+|end of document)\)$", str(error))
        line = int(where[1]) if where and where[1] else text.count("\n") + (not text.endswith("\n")) if where else 1
        said = str(error)[: where.start()] if where else str(error)
        raise ConfigError(path, [Mistake(max(line, 1), f"not TOML: {said}")]) from None
