"""What the doctor says of a database that does not open."""

from __future__ import annotations

from tests.cli.test_doctor_command import Run, examined, unreadable_database
from tests.cli.test_doctor_command import bookie as bookie
from tests.support.doctored_bookie import DoctoredBookie


def test_the_path_of_a_database_stands_once(run_cli: Run, bookie: DoctoredBookie) -> None:
    unreadable_database(bookie)
    _, rows, _ = examined(run_cli, bookie.root, "--only", "databases")
    (row,) = rows
    assert row["path"] == f"{bookie.ledgers}/locations"
    assert row["found"].startswith("locations: RocksDB CURRENT at offset 0: expected ")
