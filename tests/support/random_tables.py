"""Tables of all kinds with random rows, for comparing what two engines make of them."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from tests.support.audit_cases import BOOKIES, random_case
from tests.support.pipeline_tables import given, write_tables

Rows = list[dict[str, Any]]

_LEDGERS = (*range(12), 2**31 + 5, 2**40 + 1)
_NAMES = (*BOOKIES[:3], None)


def random_tables(chance: random.Random, folder: Path) -> Path:
    """A table set: ids are few, so that much of it meets in joins; bookies without a name are among it."""
    places = [(name, f"/{name}/{number}") for name in _NAMES for number in range(2)]
    logs = [(place, log_id) for place in places for log_id in range(4) if chance.random() < 0.8]
    case = random_case(chance, ledgers=8)
    return write_tables(
        folder,
        bookies=given(*BOOKIES[:4]) + given(BOOKIES[4], ledger_dirs=3),
        ledgers=[_ledger(chance, ledger) for ledger in _LEDGERS if chance.random() < 0.7],
        fragments=case.fragment_rows(),
        logs=[_log(chance, *log) for log in logs],
        log_ledgers=[
            {**_place(*log), "ledger": ledger, "bytes": chance.randint(1, 10**12), "source": "map"}
            for log in logs
            for ledger in chance.sample(_LEDGERS, 5)
        ],
        runs=[row for log in logs for row in _runs(chance, *log)],
        index_runs=[row for log in logs for row in _runs(chance, *log)],
        index_ledgers=[
            {"bookie": name, "dir": path, "ledger": ledger}
            for name, path in places[:-1]
            for ledger in chance.sample(_LEDGERS, 8)
        ],
        unflushed=[
            {
                "bookie": chance.choice(_NAMES),
                "ledger": chance.choice(_LEDGERS),
                "entry": chance.randint(0, 30),
            }
            for _ in range(30)
        ],
        journal_entries=[_record(chance, number) for number in range(150)],
        suspect_entries=[row for log in logs for row in _entries(chance, *log)],
        suspect_locations=[row for log in logs for row in _entries(chance, *log)],
        replicas=[row for log in logs for row in _entries(chance, *log)],
        verification=[{"part": "checks", **row} for log in logs for row in _checks(chance, *log)]
        + [
            {
                "part": "damage",
                "bookie": name,
                "dir": path,
                "path": f"{path}/0.log",
                "kind": "entry_log",
                "offset": 5,
                "bytes": 7,
            }
            for name, path in places[:3]
        ],
    )


def _place(place: tuple[str | None, str], log_id: int) -> dict[str, Any]:
    return {"bookie": place[0], "dir": place[1], "log_id": log_id}


def _ledger(chance: random.Random, ledger: int) -> dict[str, Any]:
    size = chance.randint(1, 5)
    return {
        "ledger": ledger,
        "state": chance.choice(("OPEN", "CLOSED", "CLOSED")),
        "digest": chance.choice(("crc32", "crc32c", None)),
        "ensemble_size": size,
        "write_quorum": size,
        "ack_quorum": 1,
        "length": chance.choice((0, 1, 1023, 1024, 4096, 10**7, 2**50)),
        "last_entry": chance.randint(-1, 100),
        "ctime_ms": chance.choice((None, 0, 1_700_000_000_000, 1_790_000_000_000)),
        "application": chance.choice((None, "pulsar", "pulsar", "other")),
        "topic": chance.choice((None, "persistent://a/b/c", "persistent://a/b/d")),
    }


def _log(chance: random.Random, place: tuple[str | None, str], log_id: int) -> dict[str, Any]:
    return {
        **_place(place, log_id),
        "path": f"{place[1]}/{log_id:x}.log",
        "bytes": chance.randint(1024, 10**13),
        "has_ledgers_map": chance.random() < 0.7,
        "mtime_ms": chance.randint(1, 10**12),
        "damaged": chance.random() < 0.1,
    }


def _runs(chance: random.Random, place: tuple[str | None, str], log_id: int) -> Rows:
    rows = []
    for ledger in chance.sample(_LEDGERS, 4):
        for _ in range(3):
            first = chance.randint(0, 30)
            last = first + chance.choice((0, 0, 1, 9))
            rows.append(
                {
                    **_place(place, log_id),
                    "ledger": ledger,
                    "first": first,
                    "last": last,
                    "entries": last - first + 1,
                    "bytes": chance.randint(1, 10**9),
                    "max_lac": chance.choice((None, -1, first)),
                    "ids_hash": chance.choice((1, 2**44 - 1)),
                }
            )
    return rows


def _entries(chance: random.Random, place: tuple[str | None, str], log_id: int) -> Rows:
    return [
        {
            **_place(place, log_id),
            "offset": 1028 + 100 * number,
            "ledger": chance.choice(_LEDGERS[:3]),
            "entry": chance.randint(0, 9),
            "lac": chance.choice((-1, 3)),
            "ledger_length": 8,
            "payload_bytes": 5,
            "payload_crc": chance.choice((None, 17, 17, 17, 18)),
            "digest_ok": chance.choice((None, True, False)),
        }
        for number in range(8)
    ]


def _record(chance: random.Random, number: int) -> dict[str, Any]:
    return {
        "bookie": chance.choice(_NAMES),
        "journal_id": chance.randint(1, 2),
        "path": "/j/1.txn",
        "offset": 512 + 64 * number,
        "ledger": chance.choice(_LEDGERS),
        "entry": chance.randint(0, 40),
        "after_mark": chance.random() < 0.4,
    }


def _checks(chance: random.Random, place: tuple[str | None, str], log_id: int) -> Rows:
    rows = []
    for ledger in chance.sample(_LEDGERS, 4):
        ok = chance.choice((None, True, True, False))
        rows.append(
            {
                **_place(place, log_id),
                "ledger": ledger,
                "digest": None if ok is None else "crc32c",
                "digest_ok": ok,
                "bad_entry": chance.randint(0, 9) if ok is False else None,
                "bad_offset": 1028 if ok is False else None,
                "entries": 1 if ok is False else chance.randint(1, 10**9),
                "bytes": chance.randint(1, 10**12),
            }
        )
    return rows
