"""Traces of repairs in a directory: logs that were quarantined, and repairs that were killed."""

from __future__ import annotations

from collections.abc import Iterator

from bkctl.admin.doctor.examination import Examination
from bkctl.admin.doctor.finding import Finding, Kind, Severity
from bkctl.admin.next_step import bkctl_line, ended_by, not_ended
from bkctl.admin.repairs.repair_records import read_records
from bkctl.admin.repairs.repair_undo import unfinished
from bkctl.codec.repair_record import RepairState
from bkctl.scan.quarantined_logs import quarantined_logs


def quarantined(exam: Examination, directory: str) -> Iterator[Finding]:
    """Report the logs in quarantine."""
    for each in quarantined_logs(exam.filesystem, directory):
        reason = each.manifest.reason if each.manifest is not None else "its manifest cannot be read"
        said = f" ({reason})" if reason else ""
        if each.is_salvaged:
            found, severity = "a log that was salvaged; it is only kept, and takes room", Severity.NOTE
            instead = "remove it when its entries are back from the other replicas; no command does"
        else:
            found, severity = "a log in quarantine: reads of its entries fail", Severity.WARNING
            log = f"{each.log.log_id:x}.log"
            release = bkctl_line("entrylog", "quarantine", log, directory, "--release")
            salvage = bkctl_line("entrylog", "salvage", log, directory)
            instead = f"'{release}' brings it back; '{salvage}' copies what proves itself to another log"
        yield Finding(
            "leftovers",
            Kind.LOG_IN_QUARANTINE,
            severity,
            f"{found}{said}",
            "no log in quarantine",
            not_ended(instead, "entrylog", "quarantine", directory, "--list"),
            dir=directory,
            path=each.log.path,
            log_id=each.log.log_id,
        )


def cut_off(exam: Examination, directory: str) -> Iterator[Finding]:
    """Report repairs, and undos of repairs, that were killed, and records that cannot be read."""
    records = read_records(exam.filesystem, [directory])
    for damaged in records.damaged:
        yield Finding(
            "leftovers",
            Kind.DAMAGED_REPAIR_RECORD,
            Severity.WARNING,
            f"a record of a repair that cannot be read ({damaged.reason}): no repair is made here",
            "every record of a repair can be read",
            not_ended(
                f"save what was kept beside the record, if you need it, and remove it: {damaged.command}",
                "repair",
                "log",
                directory,
            ),
            dir=directory,
            path=damaged.folder,
        )
    for repair in unfinished(exam.filesystem, records.found):
        is_undo = repair.record.state is RepairState.UNDOING
        what = "an undo of a repair that was cut off: no bookie starts here"
        what = what if is_undo else "a repair that was cut off"
        yield Finding(
            "leftovers",
            Kind.UNFINISHED_REPAIR,
            Severity.ERROR if is_undo else Severity.WARNING,
            f"{what} ({repair.record.made_by}, {repair.record.detail})",
            "no unfinished repair",
            ended_by(("repair", "undo", *repair.directories, "--yes")),
            dir=directory,
            path=repair.folder,
        )
