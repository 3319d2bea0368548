"""The declaration of a configuration key, from which reading, checking and documents derive.

Names, types, defaults and meanings are those of BookKeeper 4.17.3 (``ServerConfiguration``,
``AbstractConfiguration``, ``ClientConfiguration``, ``DbLedgerStorage``, ``KeyValueStorageRocksDB``), so that
a ``bk_server.conf`` means the same here. The declarations are in ``bkctl.config.server_keys``.

How a text becomes a value is Java's way too: integers take a sign and the prefixes ``0x`` and ``0b``,
truth values are ``true yes on y t 1`` and ``false no off n f 0`` in any case.
"""

from __future__ import annotations

import enum
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, TypedDict, Unpack

from bkctl.errors import UsageError

Value = bool | int | float | str | tuple[str, ...] | None

_INTEGER = re.compile(r"([+-]?)(0[xX][0-9a-fA-F]+|0[bB][01]+|[0-9]+)\Z")
_FLOAT = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[fFdD]?\Z")
_TRUE = frozenset({"true", "yes", "on", "y", "t", "1"})
#: Settings are bytes and milliseconds.
_FACTORS = {"MiB": 1 << 20, "KiB": 1 << 10, "s": 1000}
_METADATA = "bkctl.setting"
_UNSET = object()
_FALSE = frozenset({"false", "no", "off", "n", "f", "0"})


class Kind(enum.Enum):
    """Type of a value; the enum's value is the word that documents use."""

    INT = "int"
    LONG = "long"
    BOOL = "bool"
    FLOAT = "float"
    STRING = "string"
    LIST = "list"
    PATH = "path"
    CLASS = "class"
    URI = "uri"


class Area(enum.Enum):
    """The subject of a key, in the order of the documents; the value is the heading."""

    IDENTITY = "Identity and start"
    NETWORK = "Network, threads, back-pressure"
    SECURITY = "Authentication and TLS"
    JOURNAL = "Journal"
    DIRECTORIES = "Directories"
    ENTRY_LOG = "Entry logs and flushing"
    DB_STORAGE = "Ledger storage: caches and index"
    SORTED_STORAGE = "Sorted and interleaved storage"
    GARBAGE = "Garbage collection and compaction"
    DISKS = "Disks and read-only mode"
    METADATA = "Metadata"
    AUTORECOVERY = "Autorecovery"
    CLIENT = "Placement and embedded client"
    HTTP = "HTTP admin"
    STATISTICS = "Statistics"
    MEMORY = "Memory of the Java process"
    STREAM = "Stream storage and other"


class State(enum.Enum):
    """The way in which this bookie treats a key."""

    HONOURED = "honoured"
    #: A later release will honour it.
    PLANNED = "planned"
    #: Has no meaning here; ``reason`` says why.
    IGNORED = "ignored"
    #: Asks for something whose silent absence would be unsafe: the bookie does not start with it.
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """One key.

    ``default`` is the value that counts without the key; None means unset, and ``default_text`` says what
    that amounts to. When our default is not Java's, ``java_default`` is Java's. ``lower`` and ``upper`` are
    inclusive,
    in ``unit``. ``use_instead`` makes the key a deprecated twin. ``or_else`` is the key that counts while
    this one is not set. ``sample`` is an active line of the generated ``bk_server.conf``. ``secret`` values
    are never shown.
    """

    name: str
    kind: Kind
    default: Value
    doc: str
    area: Area
    state: State
    reason: str = ""
    unit: str = ""
    lower: float | None = None
    upper: float | None = None
    choices: tuple[str, ...] = ()
    default_text: str = ""
    java_default: str = ""
    use_instead: str = ""
    or_else: str = ""
    sample: str = ""
    secret: bool = False

    @property
    def allowed(self) -> str:
        """Describe the values of a key in a phrase: ``an int from 1 to 65535 (bytes)``."""
        if self.choices:
            return "one of " + ", ".join(self.choices)
        if self.kind is Kind.BOOL:
            return "true or false"
        word = self.kind.value
        text = f"an {word}" if word[0] in "aeiou" and word != "uri" else f"a {word}"
        if self.lower is not None and self.upper is not None:
            text += f" from {_number_text(self.lower)} to {_number_text(self.upper)}"
        elif self.lower is not None:
            text += f" of at least {_number_text(self.lower)}"
        elif self.upper is not None:
            text += f" of at most {_number_text(self.upper)}"
        return f"{text} ({self.unit})" if self.unit else text

    def parse(self, items: Sequence[str], where: str) -> Value:
        """Return the value that ``items`` (the text split at commas) stand for.

        A scalar takes the first item, as Java does. An empty text means that the key is not set, and gives
        None: Pulsar's own ``bookkeeper.conf`` leaves the sizes of the caches empty. ``where``
        (``bk_server.conf:12``) opens the message of the UsageError that a bad value raises.
        """
        if self.kind is Kind.LIST:
            return tuple(item for item in items if item)
        text = items[0] if items else ""
        if not text:
            return None
        if self.choices:
            return self._choice(text, where)
        match self.kind:
            case Kind.BOOL:
                return self._truth(text, where)
            case Kind.INT | Kind.LONG:
                return self._integer(text, where)
            case Kind.FLOAT:
                return self._float(text, where)
            case _:
                return text

    def text_of(self, value: Value) -> str:
        """Return a value as it would stand in a file."""
        if value is None:
            return ""
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, tuple):
            return ",".join(value)
        return _number_text(value) if isinstance(value, float) else str(value)

    def _choice(self, text: str, where: str) -> Value:
        for choice in self.choices:
            # A class may be named without its package.
            if text in (choice, choice.rpartition(".")[2]):
                return choice
        raise self._bad(text, where)

    def _truth(self, text: str, where: str) -> bool:
        if text.lower() in _TRUE:
            return True
        if text.lower() in _FALSE:
            return False
        raise self._bad(text, where)

    def _integer(self, text: str, where: str) -> int:
        match = _INTEGER.match(text)
        if match is None or len(text) > 80:
            raise self._bad(text, where)
        sign, digits = match.groups()
        prefix = digits[:2].lower()
        number = int(digits[2:], 16 if prefix == "0x" else 2) if prefix in ("0x", "0b") else int(digits)
        number = -number if sign == "-" else number
        limit = 2**31 if self.kind is Kind.INT else 2**63
        if not -limit <= number < limit:
            raise self._bad(text, where)
        return int(self._bounded(number, text, where))

    def _float(self, text: str, where: str) -> float:
        if _FLOAT.match(text) is None:
            raise self._bad(text, where)
        number = float(text.rstrip("fFdD"))
        if not math.isfinite(number):
            raise self._bad(text, where)
        return self._bounded(number, text, where)

    def _bounded(self, number: float, text: str, where: str) -> float:
        too_low = self.lower is not None and number < self.lower
        if too_low or (self.upper is not None and number > self.upper):
            raise self._bad(text, where)
        return number

    def _bad(self, text: str, where: str) -> UsageError:
        shown = "a secret" if self.secret else repr(text[:100])
        return UsageError(f"{where}: {self.name}: expected {self.allowed}, found {shown}")


def _number_text(number: float) -> str:
    return str(int(number)) if number == int(number) and abs(number) >= 1 else f"{number:g}"


@dataclass(frozen=True, slots=True)
class Setting:
    """How the value of a key becomes the value of a field of settings."""

    key: ConfigKey
    factor: int
    none_below: float | None = None
    below: Value = None
    meaning: Mapping[Value, object] = field(default_factory=dict)

    def of(self, value: Value) -> Any:
        """Return the field's value for a value of the key; None is "not set", or "no bound".

        A value below ``none_below`` counts as ``below``; one of those in ``meaning`` has the value there.
        """
        if value in self.meaning:
            return self.meaning[value]
        if isinstance(value, bool) or not isinstance(value, int | float):
            return value
        if self.none_below is not None and value < self.none_below:
            return self.below
        return value * self.factor


def field_of(
    key: ConfigKey,
    *,
    unset: object = _UNSET,
    none_below: float | None = None,
    below: Value = None,
    factor: int | None = None,
    meaning: Mapping[Value, object] | None = None,
) -> Any:
    """Declare the field of a key that had to be declared before; else as :meth:`Declare.setting`.

    ``meaning`` has the field's value for each value of the key that stands for something else.
    """
    scale = _FACTORS.get(key.unit, 1) if factor is None else factor
    made = Setting(key, scale, none_below, below, meaning or {})
    found = made.of(key.default) if unset is _UNSET else unset
    return field(default=found, metadata={_METADATA: made})


def settings_of(kind: type[Any]) -> Iterator[tuple[str, Setting | tuple[type[Any], Mapping[str, Setting]]]]:
    """Yield the fields of ``kind`` that keys fill, and how; of a section its class and its parts."""
    for one in fields(kind):
        if _METADATA in one.metadata:
            yield one.name, one.metadata[_METADATA]


def require_least(settings: object, name: str, least: int) -> None:
    """Refuse a field below ``least``, with the name of its key. Raises UsageError."""
    value = getattr(settings, name)
    if value < least:
        one = dict(settings_of(type(settings))).get(name)
        key = f"{one.key.name}: " if isinstance(one, Setting) else ""
        raise UsageError(f"{key}{name} must be at least {least}, not {value}")


class _Options(TypedDict, total=False):
    unit: str
    lower: float | None
    upper: float | None
    choices: tuple[str, ...]
    default_text: str
    java_default: str
    use_instead: str
    or_else: str
    sample: str
    secret: bool


@dataclass(frozen=True, slots=True)
class Declare:
    """Declares keys of one area; each method is one state. ``keys`` has them in the order of the calls."""

    area: Area
    keys: list[ConfigKey] = field(default_factory=list)

    def setting(
        self,
        name: str,
        kind: Kind,
        default: Value,
        doc: str,
        *,
        unset: object = _UNSET,
        none_below: float | None = None,
        below: Value = None,
        factor: int | None = None,
        **options: Unpack[_Options],
    ) -> Any:
        """Declare the key and, in the body of a dataclass of settings, the field that it fills.

        The field is in bytes or milliseconds, whatever the key's unit is; ``factor`` replaces that of the
        unit. A value below ``none_below`` counts as none, or as ``below``. ``unset`` is the field's default
        where the loader computes what the absent key comes to.
        """
        key = self.honoured(name, kind, default, doc, **options)
        return field_of(key, unset=unset, none_below=none_below, below=below, factor=factor)

    def part(
        self,
        name: str,
        kind: Kind,
        default: Value,
        doc: str,
        *,
        none_below: float | None = None,
        **options: Unpack[_Options],
    ) -> Setting:
        """Declare a key that fills a field of a :func:`section`."""
        key = self.honoured(name, kind, default, doc, **options)
        return Setting(key, _FACTORS.get(key.unit, 1), none_below)

    @staticmethod
    def section(kind: type[Any], **parts: Setting) -> Any:
        """Declare a field that is itself a dataclass of settings, with the keys that fill its fields."""
        default = kind(**{name: one.of(one.key.default) for name, one in parts.items()})
        return field(default=default, metadata={_METADATA: (kind, parts)})

    def honoured(
        self, name: str, kind: Kind, default: Value, doc: str, **options: Unpack[_Options]
    ) -> ConfigKey:
        """Declare a key that this bookie honours."""
        return self._declared(ConfigKey(name, kind, default, doc, self.area, State.HONOURED, **options))

    def planned(
        self, name: str, kind: Kind, default: Value, doc: str, **options: Unpack[_Options]
    ) -> ConfigKey:
        """Declare a key of a part that arrives later."""
        reason = "arrives with a later release"
        return self._declared(
            ConfigKey(name, kind, default, doc, self.area, State.PLANNED, reason, **options)
        )

    def ignored(
        self, name: str, kind: Kind, default: Value, reason: str, *, unit: str = "", secret: bool = False
    ) -> ConfigKey:
        """Declare a key that has no meaning here; ``reason`` is one line."""
        state = State.IGNORED
        return self._declared(
            ConfigKey(name, kind, default, "", self.area, state, reason, unit=unit, secret=secret)
        )

    def refused(self, name: str, kind: Kind, default: Value, doc: str, reason: str) -> ConfigKey:
        """Declare a key whose silent absence would be unsafe; ``reason`` names the way out."""
        return self._declared(ConfigKey(name, kind, default, doc, self.area, State.REFUSED, reason))

    def _declared(self, key: ConfigKey) -> ConfigKey:
        self.keys.append(key)
        return key
