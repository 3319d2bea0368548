r"""Cookie: which bookie a directory belongs to, and with which directories it was formatted.

The same bytes stand in ``current/VERSION`` of every journal, ledger and index directory and in the metadata
store at ``cookies/<bookie id>``. Line 1 is the layout version in decimal, the rest depends on it::

    5\n
    bookieHost: "127.0.0.1:3181"\n
    journalDir: "/data/journal"\n
    ledgerDirs: "2\t/data/ledgers1\t/data/ledgers2"\n
    instanceId: "fa87576b-d669-49ea-828f-74da609a8c26"\n
    indexDirs: "2\t/data/index1\t/data/index2"\n

======== =====================================================================================
layout   what follows line 1
======== =====================================================================================
below 3  nothing that counts: a cookie without fields, which matches no bookie
3        three plain lines: bookie id, journal directories, ledger directories (real TABs)
4, 5     protobuf text of ``CookieFormat`` (``codec.protobuf_text``); 4 has no ``indexDirs``
above 5  read like 5
======== =====================================================================================

``journalDir`` joins the directories with commas and has no count; ``ledgerDirs`` and ``indexDirs`` are a
count and then a TAB before each directory (``\t`` in the text). ``instanceId`` and ``indexDirs`` are
omitted when unset; an empty one reads as unset.

Java prints a cookie object of layout 3 or less under a ``5`` header in a form that nothing reads; here every
cookie with fields is written as proper layout 5, and one without fields is refused. An unknown field is
accepted, as 4.18.0 does; 4.17.3 refuses it. A layout-3 cookie with fewer lines is damage here; Java takes
the missing ones as null.

Source: ``org.apache.bookkeeper.bookie.Cookie``, ``DataFormats.proto``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from bkctl.codec.protobuf_text import merge_text, quote
from bkctl.errors import CorruptionError, UsageError
from bkctl.reporting import counted

#: The layout that is written.
LAYOUT_VERSION = 5

#: Bound on a cookie's size; real ones have some hundred bytes.
COOKIE_BYTES_MAX = 1 << 20

_FIRST_LAYOUT_WITH_FIELDS = 3
_FIRST_LAYOUT_WITH_TEXT = 4
_LAYOUT = re.compile(rb"[+-]?[0-9]{1,10}\Z")
_LINE_END = re.compile(rb"\r\n|\r|\n")
_I32_LIMIT = 2**31

#: Characters that Java's ``String.trim`` takes off.
_TRIMMED = bytes(range(33))


@dataclass(frozen=True, slots=True)
class Cookie:
    """A cookie's fields as stored; a layout below 3 has empty ones (``has_fields`` is false).

    ``journal_dirs`` is ``/a,/b``; ``ledger_dirs`` and ``index_dirs`` are ``2<TAB>/a<TAB>/b``.
    """

    layout_version: int
    bookie_host: str
    journal_dirs: str
    ledger_dirs: str
    instance_id: str | None = None
    index_dirs: str | None = None

    @property
    def has_fields(self) -> bool:
        """False for the layouts that store nothing but their number."""
        return self.layout_version >= _FIRST_LAYOUT_WITH_FIELDS

    @property
    def journal_paths(self) -> tuple[str, ...]:
        """The journal directories, in the order of the configuration."""
        return tuple(self.journal_dirs.split(",")) if self.journal_dirs else ()

    @property
    def ledger_paths(self) -> tuple[str, ...]:
        """The ledger directories in order. Raises CorruptionError when the count is wrong."""
        return split_dirs(self.ledger_dirs) if self.has_fields else ()

    @property
    def index_paths(self) -> tuple[str, ...]:
        """The index directories in order, the ledger directories when none are stored.

        Raises CorruptionError when the count is wrong.
        """
        if self.index_dirs is None or not self.index_dirs.strip():
            return self.ledger_paths
        return split_dirs(self.index_dirs)

    @property
    def paths(self) -> tuple[str, ...]:
        """All that it names: journal, ledger, then index directories. Raises CorruptionError."""
        return (*self.journal_paths, *self.ledger_paths, *self.index_paths)


def split_dirs(stored: str) -> tuple[str, ...]:
    """Split the directories of ``2<TAB>/a<TAB>/b``. Raises CorruptionError when the count is not theirs."""
    count, *paths = stored.split("\t")
    if not (count.isascii() and count.isdigit() and count.lstrip("0") == str(len(paths)).lstrip("0")):
        raise CorruptionError(
            "directories of a cookie",
            expected="their count, then a TAB before each",
            found=f"{count[:20]!r} and {counted(len(paths), 'directory', 'directories')}",
        )
    return tuple(paths)


def join_dirs(paths: Sequence[str]) -> str:
    """Return the stored form ``2<TAB>/a<TAB>/b``. Raises UsageError when a path holds a TAB."""
    for path in paths:
        if "\t" in path:
            raise UsageError(f"directory {path!r} holds a TAB")
    return "\t".join([str(len(paths)), *paths])


def decode_cookie(data: bytes) -> Cookie:
    """Return the cookie in a VERSION file or znode. Raises CorruptionError when it does not parse."""
    if len(data) > COOKIE_BYTES_MAX:
        raise CorruptionError(
            "cookie",
            offset=COOKIE_BYTES_MAX,
            expected=f"at most {COOKIE_BYTES_MAX} bytes",
            found=f"{len(data)}",
        )
    end = _LINE_END.search(data)
    first, rest_at = (data[: end.start()], end.end()) if end else (data, len(data))
    layout = _layout(first)
    if layout < _FIRST_LAYOUT_WITH_FIELDS:
        return Cookie(layout, "", "", "")
    if layout < _FIRST_LAYOUT_WITH_TEXT:
        return _decode_plain(layout, data[rest_at:], rest_at)
    return _decode_text(layout, data[rest_at:], rest_at)


def encode_cookie(cookie: Cookie) -> bytes:
    """Return the bytes that Java writes for these fields, always in layout 5.

    Raises UsageError for a cookie without fields, or when a field is no Unicode text.
    """
    if not cookie.has_fields:
        raise UsageError(f"a cookie of layout {cookie.layout_version} has no fields to write")
    fields = [
        ("bookieHost", cookie.bookie_host),
        ("journalDir", cookie.journal_dirs),
        ("ledgerDirs", cookie.ledger_dirs),
        ("instanceId", cookie.instance_id),
        ("indexDirs", cookie.index_dirs),
    ]
    try:
        lines = [f"{name}: {quote(value.encode())}\n" for name, value in fields if value is not None]
    except UnicodeEncodeError:
        raise UsageError("a field of the cookie is no Unicode text") from None
    return f"{LAYOUT_VERSION}\n{''.join(lines)}".encode("ascii")


def _layout(line: bytes) -> int:
    digits = line.strip(_TRIMMED)
    if _LAYOUT.match(digits):
        layout = int(digits)
        if -_I32_LIMIT <= layout < _I32_LIMIT:
            return layout
    raise CorruptionError("cookie", expected="a layout version on line 1", found=f"{len(line)} other bytes")


def _decode_plain(layout: int, rest: bytes, base: int) -> Cookie:
    try:
        text = rest.decode("utf-8")
    except UnicodeDecodeError as error:
        raise CorruptionError("cookie", offset=base + error.start, expected="UTF-8 text") from None
    lines = re.split(r"\r\n|\r|\n", text)
    if not lines[-1]:
        lines.pop()
    if len(lines) < 3:
        raise CorruptionError(
            "cookie of layout 3", offset=base + len(rest), expected="3 more lines", found=f"{len(lines)}"
        )
    return Cookie(layout, lines[0], lines[1], lines[2])


def _decode_text(layout: int, rest: bytes, base: int) -> Cookie:
    from bkctl.codec.proto.bookkeeper_pb2 import CookieFormat

    message = CookieFormat()
    merge_text(message, rest, what="cookie", base=base)
    for name in ("bookieHost", "journalDir", "ledgerDirs"):
        if not message.HasField(name):
            raise CorruptionError("cookie", offset=base, expected=f"field {name}", found="none")
    return Cookie(
        layout,
        message.bookieHost,
        message.journalDir,
        message.ledgerDirs,
        message.instanceId or None,
        message.indexDirs or None,
    )
