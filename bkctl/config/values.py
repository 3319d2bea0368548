"""The texts that were given for keys, where they came from, and their typed values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from bkctl.config.keys import ConfigKey, Kind, Setting, State, Value, settings_of
from bkctl.config.properties import Properties, items_of, resolve
from bkctl.config.server_keys import SERVER_KEYS
from bkctl.errors import UsageError

_LIKENESS_MIN = 0.75

#: Deprecated twins by the key that counts.
_TWINS = {
    key.use_instead: key for key in SERVER_KEYS.values() if key.use_instead and key.state is State.HONOURED
}
_S = TypeVar("_S")


@dataclass(frozen=True, slots=True)
class Notice:
    """Something about the configuration that does not stop the start; ``warning`` or only for information."""

    warning: bool
    where: str
    text: str

    def __str__(self) -> str:
        return f"{self.where}: {self.text}"


@dataclass(frozen=True, slots=True)
class Given:
    """The value given for one key: items with references unresolved, and a place for messages."""

    items: tuple[str, ...]
    where: str
    #: How often the key stands in files.
    times: int = 1


class GivenValues:
    """Typed access to what was given, over the keys' defaults; notes which keys were asked for.

    Every method raises UsageError naming the place, the key and what is allowed.
    """

    def __init__(self, given: Mapping[str, Given], environment: Mapping[str, str]) -> None:
        self._given = dict(given)
        self._items = {name: one.items for name, one in given.items()}
        self._environment = environment
        #: Keys that something was made of.
        self.asked: set[str] = set()

    def where(self, name: str) -> str:
        """Return ``file:line`` of a key, or that it is a default."""
        return self._given[name].where if name in self._given else "default"

    def is_given(self, name: str) -> bool:
        """Return whether the key is set to something; an empty text is not set."""
        self.asked.add(name)
        return name in self._given and any(self.items(name))

    def items(self, name: str) -> tuple[str, ...]:
        """Return the given items with their references replaced; empty when there are none."""
        if name not in self._given:
            return ()
        one = self._given[name]
        return resolve(one.items, self._items, self._environment, one.where)

    def value(self, name: str) -> Value:
        """Return the key's value, or its default when it is not given."""
        self.asked.add(name)
        key = SERVER_KEYS[name]
        if name not in self._given:
            return key.default
        parsed = key.parse(self.items(name), self.where(name))
        # An empty text leaves every key at its default.
        return key.default if parsed is None or parsed == () else parsed

    def integer(self, name: str) -> int:
        """Return a key's whole number."""
        value = self.value(name)
        assert isinstance(value, int), name
        return value

    def integer_or_none(self, name: str) -> int | None:
        """Return a key's whole number, None when it is not set."""
        value = self.value(name)
        assert value is None or isinstance(value, int), name
        return value

    def number(self, name: str) -> float:
        """Return a key's number."""
        value = self.value(name)
        assert isinstance(value, int | float), name
        return float(value)

    def truth(self, name: str) -> bool:
        """Return a key's truth value."""
        value = self.value(name)
        assert isinstance(value, bool), name
        return value

    def text(self, name: str) -> str | None:
        """Return a key's text, None when it is not set."""
        value = self.value(name)
        assert value is None or isinstance(value, str), name
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        """Return a key's list."""
        value = self.value(name)
        assert isinstance(value, tuple), name
        return value

    def fill(self, kind: type[_S], **unset: object) -> _S:
        """Make settings of class ``kind`` out of the keys of its fields.

        ``unset`` has values of fields without a key, and what an absent key comes to where it is computed. A
        key that is not given takes the value of its deprecated twin, or of the key that counts instead.
        Raises UsageError.
        """
        made = dict(unset)
        for name, one in settings_of(kind):
            if isinstance(one, Setting):
                value = self._current_or_old(one.key)
                if value is not None:
                    made[name] = one.of(value)
            else:
                inner, parts = one
                made[name] = inner(
                    **{each: part.of(self.value(part.key.name)) for each, part in parts.items()}
                )
        return kind(**made)

    def require_pem(self, name: str) -> None:
        """Refuse a store in another form than PEM; the key of the form is the store's with ``Type`` behind.

        Raises UsageError.
        """
        form = self.text(f"{name}Type")
        if form != "PEM":
            where = self.where(f"{name}Type" if self.is_given(f"{name}Type") else name)
            raise UsageError(
                f"{where}: {name}Type: TLS wants PEM here, found {form}; convert the store (keytool to "
                f"PKCS12, then openssl pkcs12) and set {name}Type=PEM"
            )

    def _current_or_old(self, key: ConfigKey) -> Value:
        value, twin = self.value(key.name), _TWINS.get(key.name)
        old = None if twin is None else self.value(twin.name)
        if value is None and old is None and key.or_else:
            return self.value(key.or_else)
        if old is None or self.is_given(key.name):
            return value
        return (old,) if key.kind is Kind.LIST and isinstance(old, str) else old

    def shown(self) -> dict[str, str | None]:
        """Return every given key as a text: several items as Java prints a list, a secret as None."""
        shown: dict[str, str | None] = {}
        for name in self._given:
            key, items = SERVER_KEYS.get(name), self.items(name)
            if key is None or key.secret:
                # Of an unknown key nobody knows whether it is one.
                shown[name] = None
            else:
                shown[name] = items[0] if len(items) == 1 else f"[{', '.join(items)}]" if items else ""
        return shown

    def notices(self) -> list[Notice]:
        """Return the notices about the given keys. Raises UsageError for a key that is refused."""
        found: list[Notice] = []
        for name, one in self._given.items():
            key = SERVER_KEYS.get(name)
            if key is None:
                found.append(Notice(True, one.where, f"{name!r} is not a known key{_nearest(name)}"))
                continue
            found += self._about(key, one)
        return found

    def _about(self, key: ConfigKey, one: Given) -> Iterable[Notice]:
        if one.times > 1 and key.kind is not Kind.LIST:
            text = f"{key.name} is given {one.times} times; the first counts, as in Java"
            yield Notice(True, one.where, text)
        if key.state is State.HONOURED:
            if key.use_instead:
                yield Notice(False, one.where, f"{key.name} is deprecated: use {key.use_instead}")
            return
        if not self._differs(key, one):
            return
        if key.state is State.REFUSED:
            raise UsageError(f"{one.where}: {key.name} is not supported: {key.reason}")
        if key.use_instead:
            yield Notice(False, one.where, f"{key.name} is deprecated: use {key.use_instead}")
        if key.state is State.PLANNED:
            yield Notice(False, one.where, f"{key.name} has no effect yet: it {key.reason}")
        else:
            yield Notice(True, one.where, f"{key.name} has no effect here: {key.reason}")

    def _differs(self, key: ConfigKey, one: Given) -> bool:
        """Return whether leaving the key out would be the same for Java; what does not parse differs."""
        try:
            parsed = key.parse(self.items(key.name), one.where)
        except UsageError:
            if key.state is State.IGNORED:
                return any(one.items)
            raise
        return parsed not in (None, (), key.default)


class OptionText(str):
    """The value of a key that an option of its own gave; ``where`` names the option in messages."""

    where: str

    def __new__(cls, text: str, where: str) -> OptionText:
        """Make a text that knows its option."""
        made = super().__new__(cls, text)
        made.where = where
        return made


def gather(
    properties: Properties,
    defaults: Mapping[str, tuple[str, ...]],
    from_environment: Mapping[str, str],
    overrides: Mapping[str, str],
) -> dict[str, Given]:
    """Gather the value of every key: from overrides, then the environment, then files, then ``defaults``.

    A key that a file gives several times is one list, as in Java.
    """
    found = {name: Given(items, "no configuration file") for name, items in defaults.items()}
    for name, settings in properties.by_key().items():
        items = tuple(item for setting in settings for item in setting.items)
        found[name] = Given(items, settings[0].where, len(settings))
    for variable, (name, text) in _by_variable(from_environment).items():
        found[name] = Given(items_of(text), f"${variable}")
    for name, text in overrides.items():
        where = text.where if isinstance(text, OptionText) else f"-X {name}"
        found[name] = Given(items_of(text), where)
    return found


#: Variables of the environment and the keys they stand for.
VARIABLES = {"BKCTL_METADATA_URI": "metadataServiceUri"}
#: A variable that has the prefix of others, which are keys without it: ``BK_`` makes ``BK_bookiePort`` one.
PREFIX_VARIABLE = "BKCTL_KEY_PREFIX"


def _by_variable(environment: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    found = {
        variable: (name, environment[variable])
        for variable, name in VARIABLES.items()
        if environment.get(variable)
    }
    prefix = environment.get(PREFIX_VARIABLE)
    if prefix:
        found |= {
            variable: (variable.removeprefix(prefix), text)
            for variable, text in sorted(environment.items())
            if variable.startswith(prefix) and len(variable) > len(prefix) and variable not in found
        }
    return found


def check_known(name: str, where: str) -> None:
    """Refuse a key that is not known, with the one that was meant: for keys that somebody has just typed.

    Raises UsageError.
    """
    if name not in SERVER_KEYS:
        raise UsageError(f"{where}: {name!r} is not a known key{_nearest(name)}")


def _nearest(name: str) -> str:
    import difflib

    lowered = {known.lower(): known for known in SERVER_KEYS}
    close = difflib.get_close_matches(name.lower(), lowered, n=1, cutoff=_LIKENESS_MIN)
    return f"; did you mean {lowered[close[0]]}?" if close else ""
