r"""Java properties, as BookKeeper's ``ServerConfiguration.loadConf`` reads them.

::

    # a comment, ! another; blank lines count as comments
    key=value          separators are =, : and blanks
    key = a long \
          value        a backslash at the end of a line continues it; comments between are skipped
    list=/a,/b         commas make lists, items are trimmed
    include=more.conf  relative to the including file; includeoptional may be missing
    other=${key}/x     also ${env:NAME} and ${key:-default}

Surprises, which are the same in Java (commons-configuration 2.12):

* a key given twice is one list; a scalar takes its **first** value;
* lists are split twice, so an escaped comma splits after all: a value can hold no comma;
* files are ISO-8859-1: other characters are written ``\uXXXX``;
* a backslash before anything but ``b f n r t u : # = ! \ ' "`` stays.

Where Java drops text silently this reader raises: a file that ends in a continued line, ``\u`` without four
hexadecimal digits, and a reference ``${...}`` that nothing answers.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from bkctl.errors import NotFoundError, UsageError

#: Bound on a file, and on files that include each other.
FILE_BYTES_MAX = 4 << 20
INCLUDE_DEPTH_MAX = 20

#: Characters that Java's ``String.trim`` takes off.
_TRIMMED = "".join(map(chr, range(33)))
_LINE_END = re.compile(r"\r\n|\r|\n")
_PROPERTY = re.compile(r"((?:[^\s\\=:]|\\.)*+)(\s*(?:\s+|[=:])\s*)?(.*)", re.ASCII | re.DOTALL)
_ESCAPE = re.compile(r"\\(u(?:[0-9a-fA-F]{4})?|.|\Z)", re.DOTALL)
_LETTERS = {"r": "\r", "f": "\f", "t": "\t", "n": "\n", "b": "\b"}
_UNESCAPED = frozenset(":#=!\\'\"")
# Java takes a second dollar sign before a reference along.
_REFERENCE = re.compile(r"\$?\$\{([^${}]*)\}")
_ENVIRONMENT = "env:"

ReadBytes = Callable[[str], bytes]


@dataclass(frozen=True, slots=True)
class Setting:
    """One ``key=value`` of a file; ``items`` is the value split at commas, references unresolved."""

    key: str
    items: tuple[str, ...]
    path: str
    line: int

    @property
    def where(self) -> str:
        """``file:line``."""
        return f"{self.path}:{self.line}"


@dataclass(frozen=True, slots=True)
class Properties:
    """The settings of a file and of what it includes, in order."""

    settings: tuple[Setting, ...] = ()
    #: Places with bytes beyond ASCII, which are read as ISO-8859-1.
    beyond_ascii: tuple[str, ...] = ()

    def by_key(self) -> dict[str, list[Setting]]:
        """Return every key with its settings, in order of appearance."""
        found: dict[str, list[Setting]] = {}
        for setting in self.settings:
            found.setdefault(setting.key, []).append(setting)
        return found


def read_bytes(path: str) -> bytes:
    """Read a file's bytes. Raises NotFoundError, and UsageError when the file cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read(FILE_BYTES_MAX + 1)
    except FileNotFoundError:
        raise NotFoundError(f"{path}: no such file") from None
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error


def load_properties(
    path: str, environment: Mapping[str, str] | None = None, read: ReadBytes = read_bytes
) -> Properties:
    """Load the settings of a file. Raises NotFoundError and UsageError, both naming file and line."""
    loader = _Loader(environment or {}, read)
    loader.load(path, ())
    return Properties(tuple(loader.settings), tuple(loader.beyond_ascii))


def split_list(text: str) -> list[str]:
    """Split a text once as ``DefaultListDelimiterHandler(',')`` does: ``\\,`` and ``\\\\`` are escapes."""
    items: list[str] = []
    token: list[str] = []
    escaped = False
    for character in text:
        if escaped:
            if character not in ",\\":
                token.append("\\")
            token.append(character)
            escaped = False
        elif character == "\\":
            escaped = True
        elif character == ",":
            items.append("".join(token).strip(_TRIMMED))
            token = []
        else:
            token.append(character)
    if escaped:
        token.append("\\")
    items.append("".join(token).strip(_TRIMMED))
    return items


def items_of(text: str) -> tuple[str, ...]:
    """Split a value into items as a bookie sees them: when the file is read, and when it is taken over."""
    return tuple(item for once in split_list(text) for item in split_list(once))


def resolve(
    items: tuple[str, ...],
    settings: Mapping[str, tuple[str, ...]],
    environment: Mapping[str, str],
    where: str,
) -> tuple[str, ...]:
    """Return the items with their references replaced.

    An item that is one reference takes all items of what it names; within a text the first one counts.
    Raises UsageError for a reference that nothing answers, and for one that leads back to itself.
    """
    found: list[str] = []
    for item in items:
        found += _resolve(item, settings, environment, where, ())
    return tuple(found)


def _resolve(
    text: str,
    settings: Mapping[str, tuple[str, ...]],
    environment: Mapping[str, str],
    where: str,
    seen: tuple[str, ...],
) -> list[str]:
    if "${" not in text:
        return [text]
    whole = _REFERENCE.fullmatch(text)
    if whole is not None:
        return _answer(whole[1], settings, environment, where, seen)
    replaced = _REFERENCE.sub(lambda match: _answer(match[1], settings, environment, where, seen)[0], text)
    if "${" in replaced:
        raise UsageError(f"{where}: {text!r}: a reference within a reference or without its end")
    return [replaced]


def _answer(
    reference: str,
    settings: Mapping[str, tuple[str, ...]],
    environment: Mapping[str, str],
    where: str,
    seen: tuple[str, ...],
) -> list[str]:
    name, has_default, default = reference.partition(":-")
    if name in seen:
        raise UsageError(f"{where}: ${{{name}}} leads back to itself")
    if len(seen) >= INCLUDE_DEPTH_MAX:
        raise UsageError(f"{where}: more than {INCLUDE_DEPTH_MAX} references behind each other")
    if name.startswith(_ENVIRONMENT) and name.removeprefix(_ENVIRONMENT) in environment:
        return [environment[name.removeprefix(_ENVIRONMENT)]]
    if name in settings:
        found: list[str] = []
        for item in settings[name]:
            found += _resolve(item, settings, environment, where, (*seen, name))
        return found or [""]
    if has_default:
        return [default]
    raise UsageError(
        f"{where}: nothing is known for ${{{name}}}; it can name another key, env:NAME, or have a default "
        f"(${{{name}:-value}})"
    )


class _Loader:
    """Collects settings over files that include each other."""

    def __init__(self, environment: Mapping[str, str], read: ReadBytes) -> None:
        self._environment = environment
        self._read = read
        self.settings: list[Setting] = []
        self.beyond_ascii: list[str] = []

    def load(self, path: str, seen: tuple[str, ...]) -> None:
        content = self._read(path)
        if len(content) > FILE_BYTES_MAX:
            raise UsageError(f"{path}: more than {FILE_BYTES_MAX} bytes; not a configuration file")
        for line, text in _logical_lines(content.decode("latin-1"), path):
            if not text.isascii():
                self.beyond_ascii.append(f"{path}:{line}")
            where = f"{path}:{line}"
            match = _PROPERTY.fullmatch(text)
            assert match is not None, "the pattern takes every text"
            key = _unescape(match[1].strip(_TRIMMED), where, name=True)
            items = items_of(_unescape(match[3].strip(_TRIMMED), where))
            if key.lower() in ("include", "includeoptional"):
                self._include(items, path, line, seen, optional=key.lower() == "includeoptional")
            else:
                self.settings.append(Setting(key, items, path, line))

    def _include(
        self, items: tuple[str, ...], path: str, line: int, seen: tuple[str, ...], *, optional: bool
    ) -> None:
        where = f"{path}:{line}"
        known = {key: _joined(found) for key, found in Properties(tuple(self.settings)).by_key().items()}
        chain = (*seen, os.path.realpath(path))
        for name in filter(None, resolve(items, known, self._environment, where)):
            if "\0" in name:
                raise UsageError(f"{where}: include of {name!r}: no file has such a name")
            target = os.path.join(os.path.dirname(path), name)
            if os.path.realpath(target) in chain or len(chain) > INCLUDE_DEPTH_MAX:
                raise UsageError(f"{where}: include of {name}: the files include each other")
            try:
                self.load(target, chain)
            except NotFoundError as error:
                if not optional:
                    raise NotFoundError(f"{where}: include of {name}: {error}") from None


def _joined(settings: list[Setting]) -> tuple[str, ...]:
    return tuple(item for setting in settings for item in setting.items)


def _logical_lines(text: str, path: str) -> Iterator[tuple[int, str]]:
    """Yield the lines with continuations joined and comments left out; the number is that of the first."""
    parts: list[str] = []
    start = 0
    for number, raw in enumerate(_LINE_END.split(text), 1):
        line = raw.strip(_TRIMMED)
        if not line or line[0] in "#!":
            continue
        if not parts:
            start = number
        slashes = len(line) - len(line.rstrip("\\"))
        if slashes % 2:
            parts.append(line[:-1])
            continue
        parts.append(line)
        yield start, "".join(parts)
        parts = []
    if parts:
        raise UsageError(f"{path}:{start}: the line goes on (\\ at its end) past the end of the file")


def _unescape(text: str, where: str, *, name: bool = False) -> str:
    """Unescape a text like ``unescapeJava``; a backslash before an other character stays but in names."""
    if "\\" not in text:
        return text

    def one(match: re.Match[str]) -> str:
        what = match[1]
        if not what:
            return "" if name else "\\"
        if what[0] == "u":
            if len(what) != 5:
                raise UsageError(f"{where}: \\u wants four hexadecimal digits behind it")
            return chr(int(what[1:], 16))
        if what in _LETTERS:
            return _LETTERS[what]
        return what if name or what in _UNESCAPED else match[0]

    return _ESCAPE.sub(one, text)
