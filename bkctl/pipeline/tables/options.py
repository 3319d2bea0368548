"""The options of a reader of tables: which rows, how to check digests, what to do about damage."""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from itertools import accumulate

from bkctl.codec.entrylog import parse_log_name
from bkctl.config.byte_size import parse_byte_size
from bkctl.errors import UsageError
from bkctl.types import DigestType

DAMAGE_POLICIES = ("fail", "rows", "skip")
DIGEST_MODES = ("auto", "off", *(kind.value for kind in DigestType))

_RANGE = re.compile(r"([0-9]+)(?:-([0-9]+))?")
_ID_LIMIT = 1 << 63

Range = tuple[int, int]


@dataclass(frozen=True, slots=True)
class TableOptions:
    """How tables are planned and read; can be pickled.

    Rows: ``ledgers`` and ``entries`` are ranges, both ends included, ``log_ids`` are ids; empty means all.
    ``only_bad`` leaves of table ``entries`` only what fails its digest.

    Digests: ``digest`` is ``auto`` (from ``metadata``, else learnt from a log's entries), ``off`` or a type.
    ``metadata`` is a metadata URI or the path of a dump; with it digests are known, and it is where the
    tables ``ledgers`` and ``fragments`` come from. ``password`` is that of MAC ledgers whose metadata is not
    given.

    ``bookie`` names the bookie instead of the directories' cookies. ``without_indexes`` are directories whose
    index is left out, ``without_files`` entry logs and journals that are, ``unread_notes`` is the folder in
    which tasks note what they could not read of these. ``stored_digests`` is a file of digests that a job
    made of metadata, ``digest_secret`` opens the keys in it.
    ``damage``: ``fail`` raises CorruptionError at the first damage; ``rows`` delivers whole records, and
    table ``damage`` has the rest; ``skip`` leaves entries out as well whose digest fails.
    ``fail_on_data_loss``: whether a stream stops at a log that went away before it was read. ``secrets``
    shows master keys.

    Splits: ``split_bytes`` of small files make one, less where ``cores`` would have no work; logs above
    ``large_log_bytes`` are cut into pieces of about ``split_bytes``. ``batch_rows`` and
    ``payload_batch_bytes`` bound a batch.
    """

    ledgers: tuple[Range, ...] = ()
    entries: tuple[Range, ...] = ()
    log_ids: frozenset[int] = frozenset()
    digest: str = "auto"
    password: bytes | None = field(default=None, repr=False)
    metadata: str | None = None
    bookie: str | None = None
    without_indexes: frozenset[str] = frozenset()
    without_files: frozenset[str] = frozenset()
    unread_notes: str | None = None
    stored_digests: str | None = None
    digest_secret: bytes | None = field(default=None, repr=False)
    damage: str = "fail"
    only_bad: bool = False
    secrets: bool = False
    fail_on_data_loss: bool = True
    cores: int = 0
    split_bytes: int = 256 << 20
    large_log_bytes: int = 1 << 30
    batch_rows: int = 1 << 16
    payload_batch_bytes: int = 16 << 20

    def __post_init__(self) -> None:
        _one_of("digest", self.digest, DIGEST_MODES)
        _one_of("damage", self.damage, DAMAGE_POLICIES)
        for name in ("split_bytes", "large_log_bytes", "batch_rows", "payload_batch_bytes"):
            if getattr(self, name) < 1:
                raise UsageError(f"option {name}: at least 1 is needed, found {getattr(self, name)}")

    def wants_ledger(self, ledger: int) -> bool:
        """Return whether rows of a ledger are wanted."""
        if not self.ledgers:
            return True
        firsts, reached = bounds(self.ledgers)
        at = bisect_right(firsts, ledger) - 1
        return at >= 0 and ledger <= reached[at]

    def narrowed(
        self,
        *,
        ledgers: tuple[Range, ...] | None = None,
        entries: tuple[Range, ...] | None = None,
        log_ids: frozenset[int] | None = None,
    ) -> TableOptions | None:
        """Add further conditions to the options, all of which have to hold; None when nothing can be left."""
        both_ledgers = self.ledgers if ledgers is None else intersection(self.ledgers, ledgers)
        both_entries = self.entries if entries is None else intersection(self.entries, entries)
        logs = self.log_ids if log_ids is None else (self.log_ids & log_ids if self.log_ids else log_ids)
        empty = (ledgers is not None and not both_ledgers) or (entries is not None and not both_entries)
        if empty or (log_ids is not None and not logs):
            return None
        return replace(self, ledgers=both_ledgers, entries=both_entries, log_ids=logs)


@lru_cache(maxsize=64)
def bounds(ranges: tuple[Range, ...]) -> tuple[list[int], list[int]]:
    """Return the first ids of the ranges, ascending, and the highest id that the ranges up to each reach.

    An id is in one of the ranges when it is not above what the last one that begins before it reaches.
    """
    ordered = sorted(ranges)
    return [first for first, _ in ordered], list(accumulate((last for _, last in ordered), max))


def intersection(one: tuple[Range, ...], other: tuple[Range, ...]) -> tuple[Range, ...]:
    """Return what lies in ranges of both; in ``one`` no range at all means everything."""
    if not one:
        return other
    found = [(max(a[0], b[0]), min(a[1], b[1])) for a in one for b in other]
    return tuple(sorted({(first, last) for first, last in found if first <= last}))


def parse_ranges(name: str, text: str) -> tuple[Range, ...]:
    """Parse ``7,10-19`` as ranges with both ends. Raises UsageError."""
    ranges = []
    for part in text.split(","):
        found = _RANGE.fullmatch(part.strip())
        if found is None:
            raise UsageError(
                f"option {name}: expected ids and ranges such as 7,10-19, found {part.strip()!r}"
            )
        first = int(found[1])
        last = first if found[2] is None else int(found[2])
        if first > last or last >= _ID_LIMIT:
            raise UsageError(f"option {name}: {part.strip()!r} is no range of ids")
        ranges.append((first, last))
    return tuple(sorted(set(ranges)))


def parse_log_ids(text: str) -> frozenset[int]:
    """Parse ``28,0x1c,1c.log`` as log ids. Raises UsageError."""
    ids = set()
    for part in (part.strip() for part in text.split(",")):
        log_id = parse_log_name(part)
        if log_id is None:
            try:
                log_id = int(part, 16 if part.lower().startswith("0x") else 10)
            except ValueError:
                raise UsageError(f"option log: {part!r} is neither 28 nor 0x1c nor 1c.log") from None
        ids.add(log_id)
    return frozenset(ids)


def parse_size(name: str, text: str) -> int:
    """Parse ``256m`` or ``268435456`` in bytes. Raises UsageError."""
    try:
        return parse_byte_size(text)
    except ValueError as error:
        raise UsageError(f"option {name}: {error}") from None


def parse_flag(name: str, text: str) -> bool:
    """Parse ``true`` or ``false``. Raises UsageError."""
    _one_of(name, text.lower(), ("true", "false"))
    return text.lower() == "true"


def _bytes_of(name: str, text: str) -> bytes:
    """Return the bytes of a secret. Those that are no UTF-8 are surrogates in text. Raises UsageError."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise UsageError(f"option {name}: expected text or bytes of a command line") from None


def _parse_secret(name: str, text: str) -> bytes:
    """Parse the hexadecimal digits of a secret. Raises UsageError."""
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise UsageError(f"option {name}: expected hexadecimal digits") from None


def _parse_paths(name: str, text: str) -> frozenset[str]:
    """Parse a JSON list of paths. Raises UsageError."""
    try:
        paths = json.loads(text)
    except ValueError:
        paths = None
    if not isinstance(paths, list) or not all(isinstance(path, str) for path in paths):
        raise UsageError(f"option {name}: expected a JSON list of paths, found {text!r}")
    return frozenset(paths)


def parse_options(given: Mapping[str, str]) -> TableOptions:
    """Return the options given as text, as Spark gives them: names without regard to case and underscores.

    Raises UsageError for a value that has no meaning and for a name that is not known.
    """
    values: dict[str, object] = {}
    for key, text in given.items():
        name = _NAMES.get(key.lower().replace("_", ""))
        if name is None:
            raise UsageError(f"option {key}: is not known (known: {', '.join(sorted(_NAMES))})")
        if name in ("ledgers", "entries"):
            values[name] = parse_ranges(key, text)
        elif name == "log_ids":
            values[name] = parse_log_ids(text)
        elif name == "password":
            values[name] = _bytes_of(key, text)
        elif name == "digest_secret":
            values[name] = _parse_secret(key, text)
        elif name in ("without_indexes", "without_files"):
            values[name] = _parse_paths(key, text)
        elif name in ("only_bad", "secrets", "fail_on_data_loss"):
            values[name] = parse_flag(key, text)
        elif name in ("cores", "batch_rows", "split_bytes", "large_log_bytes", "payload_batch_bytes"):
            values[name] = parse_size(key, text)
        else:
            values[name] = text
    return replace(TableOptions(), **values)  # type: ignore[arg-type]


_NAMES = {item.name.replace("_", ""): item.name for item in fields(TableOptions)} | {
    "ledger": "ledgers",
    "entry": "entries",
    "log": "log_ids",
}


def _one_of(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise UsageError(f"option {name}: expected one of {', '.join(known)}, found {value!r}")
