"""Settings of auditors and workers from BookKeeper's keys, as a ``bk_server.conf`` has them.

The keys and the fields that they fill are declared in :mod:`bkctl.config.server_keys.autorecovery`.

Source: ``org.apache.bookkeeper.conf.ServerConfiguration``.
"""

from __future__ import annotations

from dataclasses import replace

from bkctl.config.server_keys.autorecovery import AuditorSettings
from bkctl.config.values import GivenValues
from bkctl.replication.ledger_repair import RepairSettings
from bkctl.replication.settings import WorkerSettings


def auditor_settings(values: GivenValues) -> AuditorSettings:
    """Return the settings. Raises UsageError naming the key that cannot be used."""
    return values.fill(AuditorSettings)


def worker_settings(values: GivenValues) -> WorkerSettings:
    """Return the bounds of a replication worker. Raises UsageError naming the key that cannot be used."""
    reads_max = values.integer("inFlightReadEntryNumInLedgerChecker")
    password = values.text("passwd")
    percentage = values.integer("auditorLedgerVerificationPercentage")
    check = replace(RepairSettings().check, percentage=percentage)
    repair = values.fill(
        RepairSettings,
        check=check if reads_max < 1 else replace(check, reads_max=reads_max),
        password=None if password is None else password.encode(),
    )
    return values.fill(WorkerSettings, repair=repair)
