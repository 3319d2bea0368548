"""What the doctor says of a ``bk_server.conf``: all of it at once, going on over what is wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from bkctl.admin.doctor.checks.configuration import ReadConfiguration, read_configuration
from bkctl.admin.doctor.finding import Severity
from bkctl.errors import NotFoundError, UsageError
from bkctl.storage_kinds import IDX

Read = Callable[..., ReadConfiguration]

BASE = "journalDirectories=/j\nledgerDirectories=/l\nmetadataServiceUri=zk://host/ledgers\n"


@pytest.fixture
def read(tmp_path: Path) -> Read:
    def reading(lines: str = "", base: str = BASE, **overrides: str) -> ReadConfiguration:
        (tmp_path / "conf").write_text(base + lines)
        return read_configuration(str(tmp_path / "conf"), overrides, {}, None, ("--conf", "conf"))

    return reading


def told(read: ReadConfiguration, severity: Severity) -> list[str]:
    return [finding.found for finding in read.findings if finding.severity is severity]


def test_a_sound_configuration(read: Read) -> None:
    found = read()
    assert found.findings == ()
    assert found.config is not None
    assert found.config.directories.ledgers == ("/l",)


def test_everything_wrong_is_told_at_once(read: Read) -> None:
    found = read("numReadWorkerThreads=-7\njournalMaxSizeMB=much\nnoSuchKey=1\njournalAlignmentSize=1000\n")
    errors = told(found, Severity.ERROR)
    assert [next(name for name in NAMES if name in text) for text in errors] == list(NAMES)
    assert [finding.expected for finding in found.findings if "numRead" in finding.found] == [
        "numReadWorkerThreads: an int from 0 to 256"
    ]
    assert ["'noSuchKey' is not a known key" in text for text in told(found, Severity.WARNING)] == [True]
    assert found.config is not None, "made of the keys that can be read"
    assert all(
        finding.next.line == "bkctl doctor --conf conf --only configuration" for finding in found.findings
    )


NAMES = ("numReadWorkerThreads", "journalMaxSizeMB", "journalAlignmentSize")


def test_without_a_metadata_store_there_is_no_configuration(read: Read) -> None:
    found = read(base="journalDirectories=/j\nledgerDirectories=/l\n")
    assert found.config is None
    assert ["metadataServiceUri is not set" in text for text in told(found, Severity.ERROR)] == [True]


def test_an_override_counts(read: Read) -> None:
    assert told(read("journalSyncData=false\n"), Severity.WARNING) != []
    assert read("journalSyncData=false\n", journalSyncData="true").findings == ()


def test_java_storages_are_known(read: Read) -> None:
    found = read("ledgerStorageClass=org.apache.bookkeeper.bookie.SortedLedgerStorage\n")
    assert found.config is not None
    assert found.config.storage_kind is IDX
    assert told(found, Severity.ERROR) == []
    assert "ledgerStorageClass" in found.given


def test_keys_without_effect_are_notes(read: Read) -> None:
    found = read("prometheusStatsHttpPort=8001\nnettyMaxFrameSizeBytes=5242880\n")
    assert {finding.severity for finding in found.findings} <= {Severity.NOTE}


@pytest.mark.parametrize(
    ("lines", "severity", "text"),
    [
        ("journalWriteData=false\n", Severity.WARNING, "journalWriteData=false"),
        ("allowStorageExpansion=true\n", Severity.WARNING, "finds no ledger"),
        ("forceReadOnlyBookie=true\n", Severity.WARNING, "takes no adds"),
        (
            "minorCompactionInterval=0\nmajorCompactionInterval=0\n",
            Severity.WARNING,
            "minor and major compaction are both off",
        ),
        (
            "minorCompactionThreshold=0.8\nmajorCompactionThreshold=0.2\n",
            Severity.WARNING,
            "is below minorCompactionThreshold",
        ),
        ("flushInterval=3600000\n", Severity.NOTE, "flushInterval=3600000"),
        ("diskUsageThreshold=0.99\n", Severity.NOTE, "hardly any room"),
        ("bookiePort=3181\nbookiePort=3182\n", Severity.WARNING, "is given 2 times"),
    ],
)
def test_what_is_allowed_and_mostly_a_mistake(read: Read, lines: str, severity: Severity, text: str) -> None:
    found = read(lines)
    assert [text in one for one in told(found, severity)] == [True], found.findings


def test_a_directory_of_two_kinds(read: Read) -> None:
    found = read(base=BASE.replace("=/j\n", "=/l\n"))
    assert told(found, Severity.NOTE) == ["/l: is a journal and a ledger directory at once"]


def test_files_that_are_none(read: Read, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        read_configuration(str(tmp_path / "none"), {}, {}, None, ())
    with pytest.raises(UsageError, match="goes on"):
        read("key=value \\")
