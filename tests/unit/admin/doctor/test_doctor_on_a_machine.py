"""Checks that ask the machine: disks, inodes, owners, memory, filters that do not fit the block cache."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from bkctl.admin.doctor.checks.configuration import read_configuration
from bkctl.admin.doctor.checks.directories import check_permissions
from bkctl.admin.doctor.checks.disks import check_disks
from bkctl.admin.doctor.checks.memory import check_memory, shard_bytes
from bkctl.admin.doctor.doctor import _findings as examined
from bkctl.admin.doctor.doctor import run_checks, this_system
from bkctl.admin.doctor.examination import DiskFacts, Examination, Ownership, System
from bkctl.admin.doctor.finding import Finding, Severity
from bkctl.admin.doctor.subject import configured_subject
from bkctl.admin.next_step import NextStep
from bkctl.directories.holders import Holder
from bkctl.errors import StorageError
from bkctl.kvstore.synced_log import SyncedLogs, write_note
from bkctl.vfs import PosixFileSystem

GIB = 1 << 30
ROOMY = DiskFacts(1, 100 * GIB, 60 * GIB, 1_000_000, 900_000)


@pytest.fixture
def exam(tmp_path: Path) -> Examination:
    for name in ("j", "l1", "l2"):
        (tmp_path / name / "current").mkdir(parents=True)
        (tmp_path / name / "current" / "VERSION").write_text("5\n")
    conf = tmp_path / "conf"
    conf.write_text(
        f"journalDirectories={tmp_path}/j\nledgerDirectories={tmp_path}/l1,{tmp_path}/l2\n"
        "metadataServiceUri=zk://host/ledgers\n"
    )
    read = read_configuration(str(conf), {}, {}, None, ("--conf", str(conf)))
    assert read.config is not None
    filesystem = PosixFileSystem()
    subject = configured_subject(filesystem, read.config.directories)
    system = System(lambda _: ROOMY, lambda _: Ownership(1000, 0o40755), 64 * GIB)
    return Examination(filesystem, system, subject, read.config, command_options=("--conf", str(conf)))


def disk_of(exam: Examination, **spaces: DiskFacts) -> None:
    """The disk of each directory, by the directory's name."""
    exam.system = replace(exam.system, disk=lambda path: spaces[Path(path).parent.name])


def disks(count: int) -> dict[str, DiskFacts]:
    return {name: replace(ROOMY, device=min(at, count - 1)) for at, name in enumerate(("j", "l1", "l2"))}


def told(found: Iterator[Finding]) -> list[tuple[str, str]]:
    return [(finding.severity.value, finding.found) for finding in found]


def test_roomy_disks_of_their_own(exam: Examination) -> None:
    disk_of(exam, **disks(3))
    assert told(check_disks(exam)) == []


def test_a_shared_disk_is_a_note(exam: Examination) -> None:
    (finding,) = check_disks(exam)
    assert finding.severity is Severity.NOTE
    assert "are on one disk" in finding.found


def test_full_and_nearly_full_disks(exam: Examination) -> None:
    spaces = disks(3)
    spaces["l1"] = replace(spaces["l1"], free_bytes=4 * GIB)
    spaces["l2"] = replace(spaces["l2"], free_bytes=8 * GIB)
    disk_of(exam, **spaces)
    full, nearly = check_disks(exam)
    assert (full.severity, full.dir, full.next.line) == (
        Severity.ERROR,
        exam.subject.ledgers[0].path,
        f"bkctl gc plan {exam.subject.ledgers[0].path}",
    )
    assert "96.0% of the disk are in use, 4096 MiB are free" in full.found
    assert (nearly.severity, nearly.expected) == (Severity.WARNING, "at most 90.0% (diskUsageWarnThreshold)")


@pytest.mark.parametrize(("free", "severity"), [(0, Severity.ERROR), (9_000, Severity.WARNING)])
def test_inodes_run_out_before_room_does(exam: Examination, free: int, severity: Severity) -> None:
    spaces = disks(3)
    spaces["j"] = replace(spaces["j"], inodes_free=free)
    disk_of(exam, **spaces)
    (finding,) = check_disks(exam)
    assert (finding.severity, finding.dir) == (severity, exam.subject.journals[0].path)
    assert f"{free} of 1000000 inodes are free" in finding.found


def test_a_file_system_that_does_not_count_inodes(exam: Examination) -> None:
    disk_of(exam, **{name: replace(facts, inodes_total=0, inodes_free=0) for name, facts in disks(3).items()})
    assert told(check_disks(exam)) == []


def test_directories_on_one_partition_where_that_is_forbidden(exam: Examination) -> None:
    assert exam.config is not None
    exam.config = replace(
        exam.config, directories=replace(exam.config.directories, allow_same_partition=False)
    )
    disk_of(exam, **disks(2))
    (finding,) = check_disks(exam)
    assert finding.severity is Severity.ERROR
    assert "allowMultipleDirsUnderSameDiskPartition=false" in finding.found


def test_a_disk_that_fails_is_a_finding_of_its_check_alone(exam: Examination) -> None:
    def broken(path: str) -> DiskFacts:
        raise StorageError(f"{path}: Input/output error", path=path)

    exam.system = replace(exam.system, disk=broken)
    found = list(run_checks(exam, frozenset({"disks", "permissions"})))
    assert [(finding.check, finding.severity) for finding in found] == [("disks", Severity.ERROR)]
    assert "Input/output error; the rest of this check was not done" in found[0].found


def test_owners(exam: Examination) -> None:
    def owner(path: str) -> Ownership:
        if path.endswith("l2/current"):
            return Ownership(0, 0o40777)
        return Ownership(1000, 0o100444 if path.endswith("l1/current/VERSION") else 0o40755)

    exam.system = replace(exam.system, owner=owner)
    texts = told(check_permissions(exam))
    assert ("note", "mode 0777: every user may write here") in texts
    assert any("VERSION: not the directory's owner's (user 1000)" in text for _, text in texts)
    assert any("VERSION: not the directory's owner's (user 0)" in text for _, text in texts)
    assert texts[-1][0] == "error"
    assert "the directories have different owners" in texts[-1][1]


def test_this_machine_answers(tmp_path: Path) -> None:
    system = this_system()
    facts = system.disk(str(tmp_path))
    assert 0 <= facts.free_bytes <= facts.total_bytes
    assert facts.device == os.stat(tmp_path).st_dev
    assert system.owner(str(tmp_path)).user == os.getuid()
    with pytest.raises(StorageError):
        system.disk(str(tmp_path / "none"))


def test_caches_of_more_than_the_machine(exam: Examination) -> None:
    assert told(check_memory(exam)) == []
    exam.system = replace(exam.system, memory_bytes=100 << 20)
    (finding,) = check_memory(exam)
    assert finding.found.startswith("the caches take up to ")
    exam.system = replace(exam.system, memory_bytes=None)
    assert told(check_memory(exam)) == []


@pytest.mark.parametrize(
    ("cache_mib", "shard_kib"),
    [(1, 512), (8, 512), (16, 512), (32, 512), (64, 1024), (100, 1600)],
)
def test_shards_of_a_block_cache(cache_mib: int, shard_kib: int) -> None:
    assert shard_bytes(cache_mib << 20) == shard_kib << 10


@pytest.fixture
def large_filter(exam: Examination) -> Path:
    """A location index with a table of 64 MiB: about 9.6 million keys, and a filter of 11.4 MiB."""
    database = Path(exam.subject.indexes[0].path) / "locations"
    database.mkdir()
    (database / "CURRENT").write_text("MANIFEST-1\n")
    with (database / "000007.sst").open("wb") as file:
        file.truncate(64 << 20)
    assert exam.config is not None
    exam.subject = configured_subject(exam.filesystem, exam.config.directories)
    return database


@pytest.mark.usefixtures("large_filter")
def test_a_filter_that_fits_no_shard(exam: Examination) -> None:
    assert exam.config is not None
    (finding,) = check_memory(exam)
    assert (finding.severity, finding.dir) == (Severity.WARNING, exam.subject.indexes[0].path)
    assert finding.expected.startswith("dbStorage_rocksDB_blockCacheSize=")
    needed = int(finding.expected.split("=")[1].split(" ")[0])
    storage = replace(exam.config.storage, index_block_cache_bytes=needed)
    exam.config = replace(exam.config, storage=storage)
    assert told(check_memory(exam)) == []


def test_a_filter_that_fits_no_shard_of_java_is_only_noted_where_bkctl_serves(
    exam: Examination, large_filter: Path
) -> None:
    write_note(str(large_filter), SyncedLogs("MANIFEST-1"))
    (finding,) = check_memory(exam)
    assert finding.severity is Severity.NOTE
    (large_filter / "CURRENT").write_text("MANIFEST-2\n")  # somebody else has opened it since
    (finding,) = check_memory(exam)
    assert finding.severity is Severity.WARNING


@pytest.mark.parametrize("in_use", [False, True])
def test_what_a_running_bookie_changes_must_be_there_at_a_second_look(
    exam: Examination, in_use: bool
) -> None:
    """A mark that moves while it is compared is no fault; without a bookie one look is enough."""
    bookie = Holder(4242, "java", exam.subject.ledgers[0].path, "open file")
    exam.users = {place.path: [bookie] if in_use else [] for place in exam.subject.places}
    listed: list[object] = []

    def run(looked_at: Examination) -> Iterator[Finding]:
        listed.append(looked_at.subject.ledgers[0].found)
        if len(listed) == 1:
            log = Path(looked_at.subject.ledgers[0].path) / "1.log"
            log.touch()
            yield Finding("marks", "k", Severity.ERROR, "passing", "x", NextStep(), path=str(log))
        yield Finding("marks", "k", Severity.ERROR, "lasting", "x", NextStep())

    found = [finding.found for finding in examined(exam, "marks", run)]
    assert found == (["lasting"] if in_use else ["passing", "lasting"])
    if in_use:
        assert listed[0] != listed[1], "the directories were listed again in between"
        listed.clear()
        once = [finding.found for finding in examined(exam, "cookies", run)]
        assert once == ["passing", "lasting"], "cookies stand still"
