"""The fate of every key of a ``bk_server.conf``: honoured, overruled, ignored, unknown, out of bounds."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from bkctl.admin.doctor.checks.configuration import read_configuration
from bkctl.admin.doctor.finding import Finding, Severity
from bkctl.config.bookie import BookieConfig
from bkctl.config.keys import ConfigKey, Kind, State, Value
from bkctl.config.properties import Properties, ReadBytes, load_properties, read_bytes
from bkctl.config.server_keys import SERVER_KEYS
from bkctl.config.values import Given, GivenValues, gather
from bkctl.errors import UsageError


class Fate(enum.StrEnum):
    """The fates of a key; the value is the word in JSON."""

    HONOURED = "honoured"
    #: Honoured under a name that another key has taken over.
    DEPRECATED = "deprecated"
    #: Something else that is set counts in its place.
    OVERRULED = "overruled"
    #: Set to nothing, which leaves the default.
    EMPTY = "empty"
    PLANNED = "planned"
    IGNORED = "ignored"
    REFUSED = "refused"
    UNKNOWN = "unknown"
    INVALID = "invalid"


@dataclass(frozen=True, slots=True)
class KeyFate:
    """One setting. ``given`` is None for a secret, ``effective`` where nothing comes of the key.

    ``key`` is None for what is wrong with several keys together.
    """

    key: str | None
    fate: Fate
    severity: Severity | None
    where: str | None
    given: str | None
    effective: str | None
    says: str


@dataclass(frozen=True, slots=True)
class ReadFates:
    """The fates, in the order of the file, and the configuration that can be made of it."""

    fates: tuple[KeyFate, ...]
    config: BookieConfig | None
    given: frozenset[str]


def read_fates(
    path: str,
    overrides: Mapping[str, str],
    environment: Mapping[str, str],
    memory_bytes: int | None,
    command_options: tuple[str, ...],
    read: ReadBytes = read_bytes,
) -> ReadFates:
    """Read ``bk_server.conf`` and say what becomes of each key, going on over keys that are wrong.

    Raises NotFoundError when there is no such file, UsageError when it is no properties file.
    """
    properties = load_properties(path, environment, read)
    given = gather(properties, {}, environment, overrides)
    values = GivenValues(given, environment)
    fates = [_fate(name, one, values, environment) for name, one in given.items()]
    fates += _overruled(properties, given)
    whole = read_configuration(path, overrides, environment, memory_bytes, command_options, read)
    told = {f"{fate.where}: {fate.says}" for fate in fates}
    for finding in whole.findings:
        if finding.found not in told:
            _tell(fates, finding)
    return ReadFates(tuple(fates), whole.config, whole.given)


def _fate(name: str, one: Given, values: GivenValues, environment: Mapping[str, str]) -> KeyFate:
    """Return what becomes of one key that is set."""
    key = SERVER_KEYS.get(name)
    if key is None:
        (notice,) = GivenValues({name: one}, environment).notices()
        return KeyFate(name, Fate.UNKNOWN, Severity.WARNING, one.where, None, None, notice.text)
    try:
        value = values.value(name)
        empty = not any(values.items(name))
    except UsageError as error:
        if key.state is State.IGNORED:
            return _without_effect(key, one)
        says = str(error).removeprefix(f"{one.where}: ")
        return KeyFate(name, Fate.INVALID, Severity.ERROR, one.where, _shown(key, one), None, says)
    if key.state is not State.HONOURED:
        return _without_effect(key, one, value)
    effective = None if key.secret else key.text_of(value)
    fate, severity, says = Fate.HONOURED, None, key.doc
    if key.use_instead:
        fate, severity = Fate.DEPRECATED, Severity.NOTE
        says = f"{name} is deprecated: use {key.use_instead}"
        if values.is_given(key.use_instead):
            fate, effective = Fate.OVERRULED, None
            says = f"{name} is deprecated, and {key.use_instead} ({values.where(key.use_instead)}) counts"
    elif empty:
        fate, says = Fate.EMPTY, "set to nothing, which leaves the default"
    elif one.times > 1 and key.kind is not Kind.LIST:
        severity = Severity.WARNING
        says = f"{name} is given {one.times} times; the first counts, as in Java"
    return KeyFate(name, fate, severity, one.where, _shown(key, one), effective, says)


def _without_effect(key: ConfigKey, one: Given, value: Value = None) -> KeyFate:
    """Return the fate of a key that this bookie does not act upon; ``value`` None where it does not parse."""
    name, shown = key.name, _shown(key, one)
    if key.state is State.REFUSED:
        if value in (None, (), key.default):
            says = f"asks for nothing; any other value is refused: {key.reason}"
            return KeyFate(name, Fate.IGNORED, None, one.where, shown, None, says)
        says = f"{name} is not supported: {key.reason}"
        return KeyFate(name, Fate.REFUSED, Severity.ERROR, one.where, shown, None, says)
    if key.state is State.PLANNED:
        says = f"{name} has no effect yet: it {key.reason}"
        return KeyFate(name, Fate.PLANNED, Severity.NOTE, one.where, shown, None, says)
    says = f"{name} has no effect here: {key.reason}"
    return KeyFate(name, Fate.IGNORED, Severity.NOTE, one.where, shown, None, says)


def _overruled(properties: Properties, given: Mapping[str, Given]) -> Iterator[KeyFate]:
    """Yield the settings of the file in whose place the command line or the environment counts."""
    for name, settings in properties.by_key().items():
        key, counts = SERVER_KEYS.get(name), given[name].where
        if counts != settings[0].where:
            items = tuple(item for setting in settings for item in setting.items)
            one = Given(items, settings[0].where)
            shown = None if key is None else _shown(key, one)
            says = f"{counts} counts in its place"
            yield KeyFate(name, Fate.OVERRULED, Severity.NOTE, one.where, shown, None, says)


def _tell(fates: list[KeyFate], finding: Finding) -> None:
    """Put a finding about keys together to the key that it opens with, or to the whole."""
    says = finding.found
    at = next((at for at, one in enumerate(fates) if says.startswith(f"{one.where}: ")), None)
    severe = finding.severity is Severity.ERROR
    if at is None:
        fate = Fate.INVALID if severe else Fate.HONOURED
        fates.append(KeyFate(None, fate, finding.severity, None, None, None, says))
        return
    one = fates[at]
    if finding.severity is Severity.NOTE and one.severity is not None:
        return  # the row says it more exactly
    says = says.removeprefix(f"{one.where}: ")
    if one.severity is not None and one.severity is not Severity.NOTE:
        says = f"{one.says}; {says}"
    weights = list(Severity)
    severity = min((finding.severity, one.severity or finding.severity), key=weights.index)
    fates[at] = replace(one, fate=Fate.INVALID if severe else one.fate, severity=severity, says=says)


def _shown(key: ConfigKey, one: Given) -> str | None:
    return None if key.secret else ",".join(one.items)
