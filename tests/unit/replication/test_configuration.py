"""An auditor's and a worker's settings from BookKeeper's keys."""

from __future__ import annotations

import pytest

from bkctl.config.server_keys.autorecovery import AuditorSettings
from bkctl.config.values import Given, GivenValues
from bkctl.errors import UsageError
from bkctl.replication.configuration import auditor_settings, worker_settings
from bkctl.replication.settings import WorkerSettings


def settings_of(**keys: str) -> AuditorSettings:
    return auditor_settings(
        GivenValues({name: Given((text,), f"conf:{name}") for name, text in keys.items()}, {})
    )


def test_without_keys_the_settings_are_javas() -> None:
    assert settings_of() == AuditorSettings()


@pytest.mark.parametrize("reads_max", ["-1", "8"])
def test_a_worker_of_a_configuration_asks_a_silent_bookie_again(reads_max: str) -> None:
    given = {"inFlightReadEntryNumInLedgerChecker": Given((reads_max,), "conf:1")}
    check = worker_settings(GivenValues(given, {})).repair.check
    assert check.ask_again_ms == 1_000
    assert check.reads_max == (8 if reads_max == "8" else WorkerSettings().repair.check.reads_max)


def test_a_worker_reads_as_many_entries_of_a_fragment_as_the_auditor() -> None:
    given = {"auditorLedgerVerificationPercentage": Given(("50",), "conf:1")}
    assert worker_settings(GivenValues(given, {})).repair.check.percentage == 50


def test_without_keys_a_worker_is_the_default_one() -> None:
    assert worker_settings(GivenValues({}, {})) == WorkerSettings()


def test_every_key_arrives() -> None:
    assert settings_of(
        lostBookieRecoveryDelay="60",
        auditorPeriodicBookieCheckInterval="1",
        auditorPeriodicCheckInterval="2",
        auditorPeriodicPlacementPolicyCheckInterval="3",
        auditorReplicasCheckInterval="4",
        auditorLedgerVerificationPercentage="50",
        auditorMaxNumberOfConcurrentOpenLedgerOperations="6",
        storeSystemTimeAsLedgerUnderreplicatedMarkTime="false",
        underreplicatedLedgerRecoveryGracePeriod="7",
        repairedPlacementPolicyNotAdheringBookieEnabled="true",
        inFlightReadEntryNumInLedgerChecker="8",
    ) == AuditorSettings(
        lost_bookie_recovery_delay_s=60,
        bookie_check_interval_s=1,
        ledger_check_interval_s=2,
        placement_check_interval_s=3,
        replicas_check_interval_s=4,
        verification_percentage=50,
        open_ledgers_max=6,
        store_mark_time=False,
        recovery_grace_period_s=7,
        repair_placement=True,
        reads_max=8,
    )


def test_what_is_below_0_is_off_and_reads_always_have_a_bound() -> None:
    found = settings_of(auditorPeriodicCheckInterval="-1", inFlightReadEntryNumInLedgerChecker="-1")
    assert (found.ledger_check_interval_s, found.reads_max) == (0, AuditorSettings().reads_max)


def test_a_percentage_above_100_is_refused() -> None:
    with pytest.raises(UsageError, match="auditorLedgerVerificationPercentage"):
        settings_of(auditorLedgerVerificationPercentage="101")


@pytest.mark.parametrize(
    "wrong",
    [
        {"bookie_check_interval_s": -1},
        {"verification_percentage": 101},
        {"open_ledgers_max": 0},
        {"marks_max": 0},
        {"doubt_s": -0.5},
    ],
)
def test_settings_have_bounds(wrong: dict[str, int]) -> None:
    with pytest.raises(UsageError, match=next(iter(wrong))):
        AuditorSettings(**wrong)  # type: ignore[arg-type]
