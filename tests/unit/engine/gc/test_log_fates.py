"""Results of logs, and logs in quarantine."""

from __future__ import annotations

import pytest

from bkctl.engine.gc.log_fates import LogFates
from bkctl.engine.gc.pace import StoppedError
from bkctl.engine.gc.reports import PassReport
from bkctl.errors import CorruptionError, StorageError
from tests.support.manual_clock import ManualClock


def fates(results_max: int = 10) -> LogFates:
    return LogFates("/l/current", ManualClock(), results_max)


def report() -> PassReport:
    return PassReport(1, forced=False, started_ms=0)


def test_only_damage_is_quarantined_and_every_failure_is_a_result() -> None:
    found, passed = fates(), report()
    found.set_aside(passed, 1, CorruptionError("entry log", expected="a size", found="-1", path="1.log"))
    found.set_aside(passed, 2, StorageError("2.log: not now"))
    assert list(found.aside) == [1]
    assert [(each.log_id, each.action) for each in found.results] == [(1, "set_aside"), (2, "set_aside")]
    assert passed.set_aside_logs == 2


def test_a_stop_is_no_failure_of_a_log() -> None:
    found, passed = fates(), report()
    with pytest.raises(StoppedError):
        found.set_aside(passed, 1, StoppedError("stopped"))
    assert (found.aside, list(found.results), passed.set_aside_logs) == ({}, [], 0)


def test_a_log_that_is_gone_leaves_the_quarantine() -> None:
    found = fates()
    for log_id in (1, 2, 3):
        found.aside[log_id] = "damaged"
    found.keep_aside([4, 2])
    assert found.aside == {2: "damaged"}


def test_results_are_bounded() -> None:
    found = fates(results_max=2)
    for log_id in range(5):
        found.note(log_id, "deleted", "no live ledger")
    assert [each.log_id for each in found.results] == [3, 4]
