"""The configuration: every key by itself, the keys together, and values that make no sense."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from bkctl.admin.doctor.finding import Finding, Kind, Severity
from bkctl.admin.next_step import NextStep, not_ended
from bkctl.config.bookie import BookieConfig
from bkctl.config.checks import check
from bkctl.config.keys import State
from bkctl.config.loader import build
from bkctl.config.properties import ReadBytes, load_properties, read_bytes
from bkctl.config.server_keys import SERVER_KEYS
from bkctl.config.values import Given, GivenValues, Notice, gather
from bkctl.errors import BkctlError, UsageError

CHECK = "configuration"
_USAGE_THRESHOLD_SENSIBLE = 0.98
_INSTEAD = (
    "no command changes a configuration: change the key in the file (or the -X), and run the check again"
)
_FLUSH_INTERVAL_SENSIBLE_MS = 600_000


@dataclass(frozen=True, slots=True)
class ReadConfiguration:
    """A configuration with what is wrong in it.

    ``config`` is made of the keys that can be read, None when it cannot be made of them; ``given`` are the
    keys that are set.
    """

    path: str
    config: BookieConfig | None
    given: frozenset[str]
    findings: tuple[Finding, ...]


def read_configuration(
    path: str,
    overrides: Mapping[str, str],
    environment: Mapping[str, str],
    memory_bytes: int | None,
    command_options: tuple[str, ...],
    read: ReadBytes = read_bytes,
) -> ReadConfiguration:
    """Read ``bk_server.conf``, going on over keys that are wrong.

    Raises NotFoundError when there is no such file, UsageError when it is no properties file.
    """
    reader = _Reader(path, _step(command_options))
    properties = load_properties(path, environment, read)
    given = gather(properties, {}, environment, overrides)
    for place in properties.beyond_ascii:
        reader.add(
            Severity.WARNING, f"{place}: not ASCII: read as ISO-8859-1, as Java does", "\\uXXXX instead"
        )
    usable = reader.usable(given, environment)
    values = GivenValues(usable, environment)
    config = reader.config(values, memory_bytes)
    if config is not None:
        reader.sense(config)
    return ReadConfiguration(path, config, frozenset(given), tuple(reader.findings))


def _step(command_options: tuple[str, ...]) -> NextStep:
    return not_ended(_INSTEAD, "doctor", *command_options, "--only", CHECK)


def identity_finding(error: BkctlError, path: str, command_options: tuple[str, ...]) -> Finding:
    """Report that no id can be made of the configuration."""
    return Finding(
        CHECK,
        Kind.NO_BOOKIE_ID,
        Severity.ERROR,
        str(error),
        "an id for the bookie: bookieId, advertisedAddress, or an address that is no loopback",
        _step(command_options),
        path=path,
    )


class _Reader:
    def __init__(self, path: str, following: NextStep) -> None:
        self._path = path
        self._following = following
        self.findings: list[Finding] = []

    def add(self, severity: Severity, found: str, expected: str) -> None:
        self.findings.append(
            Finding(
                CHECK, Kind.CONFIGURATION_KEY, severity, found, expected, self._following, path=self._path
            )
        )

    def usable(self, given: Mapping[str, Given], environment: Mapping[str, str]) -> dict[str, Given]:
        """Pick the keys that are known and have a valid value; the others are findings."""
        values = GivenValues(given, environment)
        usable: dict[str, Given] = {}
        for name, one in given.items():
            key = SERVER_KEYS.get(name)
            if key is None:
                (notice,) = GivenValues({name: one}, environment).notices()
                self.add(Severity.WARNING, str(notice), "a key of BookKeeper's; an unknown one has no effect")
                continue
            try:
                value = values.value(name)
            except UsageError as error:
                if key.state is not State.IGNORED:
                    self.add(Severity.ERROR, str(error), f"{name}: {key.allowed}")
                continue
            if key.state is State.REFUSED and value not in (None, (), key.default):
                found = f"{one.where}: {name} is not supported: {key.reason}"
                self.add(Severity.ERROR, found, "a configuration without it; a bookie does not start with it")
                continue
            usable[name] = one
        return usable

    def config(self, values: GivenValues, memory_bytes: int | None) -> BookieConfig | None:
        """Make the settings, if they can be made, and report keys that contradict each other."""
        notices = values.notices()
        try:
            config = build(values, memory_bytes, loopback_only=False, notices=notices)
        except UsageError as error:
            self.add(Severity.ERROR, str(error), "a configuration with which a bookie starts")
            return None
        try:
            notices += check(config, values, memory_given=memory_bytes is not None)
        except UsageError as error:
            self.add(Severity.ERROR, str(error), "keys that do not contradict each other")
        without_effect = {
            values.where(name)
            for name, key in SERVER_KEYS.items()
            if key.state is not State.HONOURED and values.is_given(name)
        }
        for notice in notices:
            self._notice(notice, note=notice.where in without_effect)
        return config

    def _notice(self, notice: Notice, *, note: bool) -> None:
        severity = Severity.WARNING if notice.warning and not note else Severity.NOTE
        self.add(severity, str(notice), "nothing to be said of the key")

    def sense(self, config: BookieConfig) -> None:
        """Report values that are allowed and mostly a mistake."""
        for severity, found, expected in _sense(config):
            self.add(severity, found, expected)


def _sense(config: BookieConfig) -> Iterator[tuple[Severity, str, str]]:
    journal, disks, gc = config.journal, config.disks, config.gc
    if not journal.write_data:
        yield (
            Severity.WARNING,
            "journalWriteData=false: what was not flushed yet is lost when the process ends",
            "journalWriteData=true, unless every entry has copies that outlive this bookie",
        )
    elif not journal.sync_data:
        yield (
            Severity.WARNING,
            "journalSyncData=false: acknowledged entries are lost with the power",
            "journalSyncData=true",
        )
    if config.directories.allow_expansion:
        yield (
            Severity.WARNING,
            "allowStorageExpansion=true: a Java bookie takes another order or number of directories, and "
            "then finds no ledger",
            "false, except for the one start that adds directories",
        )
    if disks.usage_max > _USAGE_THRESHOLD_SENSIBLE:
        yield (
            Severity.NOTE,
            f"diskUsageThreshold={disks.usage_max:g}: hardly any room is left for compaction when the "
            "bookie turns read-only",
            f"at most {_USAGE_THRESHOLD_SENSIBLE:g}",
        )
    if disks.force_read_only:
        yield Severity.WARNING, "forceReadOnlyBookie=true: the bookie takes no adds", "false"
    kinds = (gc.minor, gc.major)
    if all(kind.interval_ms <= 0 or kind.threshold <= 0 for kind in kinds):
        yield (
            Severity.WARNING,
            "minor and major compaction are both off: a log with one living entry keeps all of its room",
            "minorCompactionInterval and majorCompactionInterval above 0, thresholds above 0",
        )
    elif 0 < gc.major.threshold < gc.minor.threshold and gc.major.interval_ms > 0:
        yield (
            Severity.WARNING,
            f"majorCompactionThreshold={gc.major.threshold:g} is below minorCompactionThreshold="
            f"{gc.minor.threshold:g}: the major compaction has nothing to do",
            "a major threshold above the minor one",
        )
    if config.entry_log.flush_interval_ms > _FLUSH_INTERVAL_SENSIBLE_MS:
        yield (
            Severity.NOTE,
            f"flushInterval={config.entry_log.flush_interval_ms}: journals are kept for so long, and a start "
            "replays all of it",
            f"at most {_FLUSH_INTERVAL_SENSIBLE_MS}",
        )
    yield from _shared_directories(config)


def _shared_directories(config: BookieConfig) -> Iterator[tuple[Severity, str, str]]:
    directories = config.directories
    both = sorted(set(directories.journals) & set(directories.ledgers))
    if both:
        yield (
            Severity.NOTE,
            f"{', '.join(both)}: is a journal and a ledger directory at once",
            "a directory, better a disk, of its own for the journal",
        )
