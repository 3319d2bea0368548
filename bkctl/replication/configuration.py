"""Settings of auditors and workers from BookKeeper's keys, as a ``bk_server.conf`` has them.

The keys and the fields that they fill are declared in :mod:`bkctl.config.server_keys.autorecovery`.

Source: ``org.apache.bookkeeper.conf.ServerConfiguration``.
"""

from __future__ import annotations

from bkctl.config.server_keys.autorecovery import AuditorSettings
from bkctl.config.values import GivenValues
from bkctl.replication.fragment_check import CheckSettings
from bkctl.replication.ledger_repair import RepairSettings
from bkctl.replication.settings import WorkerSettings


def auditor_settings(values: GivenValues) -> AuditorSettings:
    """Return the settings. Raises UsageError naming the key that cannot be used."""
    return values.fill(AuditorSettings)


def worker_settings(values: GivenValues) -> WorkerSettings:
    """Return the bounds of a replication worker. Raises UsageError naming the key that cannot be used."""
    reads_max = values.integer("inFlightReadEntryNumInLedgerChecker")
    password = values.text("passwd")
    repair = values.fill(
        RepairSettings,
        check=CheckSettings() if reads_max < 1 else CheckSettings(reads_max=reads_max),
        password=None if password is None else password.encode(),
    )
    return values.fill(WorkerSettings, repair=repair)
