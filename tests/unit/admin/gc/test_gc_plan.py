"""``gc plan`` of very many logs: what it decides, and how little of each log it keeps."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from random import Random
from types import SimpleNamespace
from typing import cast

from bkctl.admin.gc.log_facts import LogFacts
from bkctl.admin.gc.plan import COMPACT, REMOVE, THRESHOLDS, candidates
from bkctl.admin.gc.survey import Survey
from bkctl.engine.gc.log_usage import LogUsage
from bkctl.engine.gc.policy import compaction_order
from bkctl.scan.directory import LogFile

_LOGS = 400


class _Ledgers(dict[int, int]):
    """Live ledgers of a log whose end can be watched."""


def _survey() -> Survey:
    """A space in which nothing stands against any log."""
    return cast(Survey, SimpleNamespace(space=SimpleNamespace(dir="/d"), obstacle=lambda facts: None))


def _facts(log_id: int, live: dict[int, int], *, dead_bytes: int = 0) -> LogFacts:
    live_bytes = sum(live.values())
    facts = LogFacts(LogFile(f"/d/{log_id:x}.log", log_id, live_bytes + dead_bytes + 1024), 5)
    facts.live, facts.live_ledgers, facts.ledgers = live, len(live), len(live) + 1
    facts.record_bytes = live_bytes + dead_bytes
    return facts


def test_the_ledgers_of_a_log_are_forgotten_once_it_is_judged() -> None:
    watched: list[weakref.ref[_Ledgers]] = []
    most = 0

    def logs() -> Iterator[LogFacts]:
        nonlocal most
        for log_id in range(_LOGS):
            live = _Ledgers({ledger: 1000 + ledger for ledger in range(50)})
            watched.append(weakref.ref(live))
            most = max(most, sum(each() is not None for each in watched))
            yield _facts(log_id, live)

    found = candidates(_survey(), logs())
    assert len(found.others) == _LOGS
    assert most <= 2  # the log that is judged, and the one that is being read
    assert all(each() is None for each in watched[:-1])


def test_the_plan_is_that_of_the_ledgers_themselves() -> None:
    random = Random(7)
    logs = []
    for log_id in range(_LOGS):
        live = {
            ledger: random.randrange(1, 5000) for ledger in random.sample(range(9999), random.randrange(9))
        }
        logs.append(_facts(log_id, live, dead_bytes=random.randrange(40_000)))
    usages = [
        LogUsage(each.log.log_id, each.live, file_bytes=each.log.size_bytes, total_bytes=each.record_bytes)
        for each in logs
        if each.live
    ]
    found = candidates(_survey(), iter(logs))
    curve = found.curve()
    assert [row.threshold for row in curve] == list(THRESHOLDS)
    for row in curve:
        chosen = compaction_order(usages, row.threshold)
        assert row.garbage_logs == sum(not each.live for each in logs)
        assert (row.logs, row.copied_bytes) == (len(chosen), sum(each.remaining_bytes for each in chosen))
        assert row.freed_bytes == sum(each.file_bytes - each.remaining_bytes for each in chosen)
    for scarce in (False, True):
        steps = found.steps(0.7, 1 << 40, scarce=scarce)
        compacted = [step for step in steps if step.action == COMPACT]
        chosen = compaction_order(usages, 0.7, scarce=scarce)
        assert [step.log_id for step in compacted] == [each.log_id for each in chosen]
        assert [step.copied_bytes for step in compacted] == [each.remaining_bytes for each in chosen]
        removed = [step.bytes for step in steps if step.action == REMOVE]
        assert removed == sorted(removed, reverse=True)
