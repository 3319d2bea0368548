"""The fate of every key of a configuration, one row for each setting."""

from __future__ import annotations

from pathlib import Path

import pytest

from bkctl.admin.configuration.key_fates import Fate, KeyFate, ReadFates, read_fates
from bkctl.admin.doctor.finding import Severity
from bkctl.config.keys import State
from bkctl.config.server_keys import SERVER_KEYS
from tests.support.stock_configurations import STOCK_CONFIGURATIONS, stock_ids

BASE = "journalDirectories=/j\nledgerDirectories=/l\nmetadataServiceUri=zk://host/ledgers\n"


def fates_of(lines: str, *, environment: dict[str, str] | None = None, **overrides: str) -> ReadFates:
    text = (BASE + lines).encode()
    return read_fates("f", overrides, environment or {}, None, (), read=lambda _path: text)


def of_key(read: ReadFates, key: str) -> KeyFate:
    [found] = [one for one in read.fates if one.key == key]
    return found


def test_a_sound_configuration_is_honoured_with_what_counts() -> None:
    read = fates_of("gcWaitTime=0x1000\n")
    assert {one.fate for one in read.fates} == {Fate.HONOURED}
    assert {one.severity for one in read.fates} == {None}
    one = of_key(read, "gcWaitTime")
    assert (one.given, one.effective, one.where) == ("0x1000", "4096", "f:4")
    assert read.config is not None


@pytest.mark.parametrize(
    ("line", "fate", "severity", "says"),
    [
        ("gcWaitTme=1", Fate.UNKNOWN, Severity.WARNING, "did you mean gcWaitTime?"),
        ("entirelyElse=1", Fate.UNKNOWN, Severity.WARNING, "not a known key"),
        ("numReadWorkerThreads=-7", Fate.INVALID, Severity.ERROR, "an int from 0 to 256"),
        ("journalMaxSizeMB=much", Fate.INVALID, Severity.ERROR, "found 'much'"),
        ("bookiePort=${nothing}", Fate.INVALID, Severity.ERROR, "nothing is known for ${nothing}"),
        ("journalAlignmentSize=1000", Fate.INVALID, Severity.ERROR, "a multiple of 512"),
        ("numChannelsPerBookie=2", Fate.HONOURED, None, "Connections to each bookie"),
        ("addEntryTimeoutSec=0", Fate.INVALID, Severity.ERROR, "an int from 1 to 3600 (s)"),
        ("speculativeReadTimeout=7", Fate.IGNORED, Severity.NOTE, "the client here has no such setting"),
        ("enableBusyWait=true", Fate.IGNORED, Severity.NOTE, "spinning threads"),
        ("httpServerTlsEnable=true", Fate.REFUSED, Severity.ERROR, "in the clear"),
        ("httpServerTlsEnable=false", Fate.IGNORED, None, "asks for nothing"),
        ("dbStorage_writeCacheMaxSizeMb=", Fate.EMPTY, None, "leaves the default"),
        ("bookiePort=3181\nbookiePort=3182", Fate.HONOURED, Severity.WARNING, "the first counts"),
        ("journalDirectory=/old", Fate.OVERRULED, Severity.NOTE, "journalDirectories (f:1) counts"),
        ("journalSyncData=false", Fate.HONOURED, None, ""),
    ],
)
def test_every_fate(line: str, fate: Fate, severity: Severity | None, says: str) -> None:
    one = of_key(fates_of(line + "\n"), line.partition("=")[0])
    assert (one.fate, one.severity) == (fate, severity)
    assert says in one.says


def test_an_old_name_is_honoured_where_the_new_one_is_not_set() -> None:
    text = BASE.replace("journalDirectories", "journalDirectory").encode()
    read = read_fates("f", {}, {}, None, (), read=lambda _path: text)
    one = of_key(read, "journalDirectory")
    assert (one.fate, one.effective) == (Fate.DEPRECATED, "/j")
    assert "use journalDirectories" in one.says


def test_the_command_line_and_the_environment_overrule_the_file() -> None:
    read = fates_of(
        "gcWaitTime=1000\n", environment={"BKCTL_METADATA_URI": "zk://other/x"}, gcWaitTime="2000"
    )
    names = ("gcWaitTime", "metadataServiceUri")
    told = [(one.key, one.fate, one.given, one.where) for one in read.fates if one.key in names]
    assert sorted(told) == [
        ("gcWaitTime", Fate.HONOURED, "2000", "-X gcWaitTime"),
        ("gcWaitTime", Fate.OVERRULED, "1000", "f:4"),
        ("metadataServiceUri", Fate.HONOURED, "zk://other/x", "$BKCTL_METADATA_URI"),
        ("metadataServiceUri", Fate.OVERRULED, "zk://host/ledgers", "f:3"),
    ]


def test_no_secret_is_shown() -> None:
    secrets = [key.name for key in SERVER_KEYS.values() if key.secret]
    read = fates_of("".join(f"{name}=hunter22,hunter33\n" for name in secrets))
    assert {of_key(read, name).given for name in secrets} == {None}
    assert "hunter" not in repr(list(read.fates))


def test_keys_that_contradict_each_other_are_an_error_of_the_first() -> None:
    read = fates_of("diskUsageThreshold=0.5\ndiskUsageWarnThreshold=0.9\n")
    one = of_key(read, "diskUsageWarnThreshold")
    assert (one.fate, one.severity) == (Fate.INVALID, Severity.ERROR)
    assert "must not be above diskUsageThreshold" in one.says


def test_what_concerns_no_one_key_stands_for_itself() -> None:
    read = fates_of("journalWriteData=false\n")
    [one] = [one for one in read.fates if one.key is None]
    assert one.severity is Severity.WARNING
    assert "journalWriteData=false" in one.says


@pytest.mark.parametrize("path", STOCK_CONFIGURATIONS, ids=stock_ids)
def test_the_files_that_are_shipped_hold_nothing_wrong(path: Path) -> None:
    """Each active line has one row, and its fate is that of the key's declaration."""
    read = read_fates(str(path), {}, {}, None, ())
    lines = [line.partition("=")[0] for line in path.read_text().splitlines() if line[0] != "#"]
    assert [one.key for one in read.fates if one.key is not None] == lines
    assert not [one for one in read.fates if one.severity is Severity.ERROR]
    for one in read.fates:
        if one.key is not None and SERVER_KEYS[one.key].state is State.IGNORED:
            assert (one.fate, one.severity) == (Fate.IGNORED, Severity.NOTE)
    assert read.config is not None
