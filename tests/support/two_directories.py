"""A bookie of one ledger directory, taken apart into one of two."""

from __future__ import annotations

import shutil
from pathlib import Path

from bkctl.codec.location import Location, encode_key, encode_value
from bkctl.kvstore.base import Put
from bkctl.kvstore.profile import LEDGERS_PROFILE, LOCATIONS_PROFILE
from bkctl.kvstore.rocksdb import open_read_only
from bkctl.kvstore.rocksdb_store import open_store
from bkctl.scan.entrylog import EntryLogScan
from tests.support.log_builder import EntryLogBuilder
from tests.support.manifest import FILES, logs_of


def split_in_two(source: Path, target: Path) -> dict[int, dict[tuple[int, int], tuple[int, int]]]:
    """A bookie with two ledger directories that holds the entries of ``source``; the index of each."""
    ledgers = open_read_only(str(source / "ledgers/current/ledgers"))
    rows = list(ledgers.iterate())
    ledgers.close()
    expected: dict[int, dict[tuple[int, int], tuple[int, int]]] = {0: {}, 1: {}}
    alive = {int.from_bytes(key, "big") for key, _ in rows}
    cookie = (source / "ledgers/current/VERSION").read_text()
    old = 'ledgerDirs: "1\\t/data/bookkeeper/' + source.name + '/ledgers"'
    assert old in cookie
    cookie = cookie.replace(old, 'ledgerDirs: "2\\t/data/x/ledgers1\\t/data/x/ledgers2"')
    for half in (0, 1):
        current = target / f"ledgers{half + 1}/current"
        current.mkdir(parents=True)
        (current / "VERSION").write_text(cookie)
        for log in logs_of(source):
            builder = EntryLogBuilder()
            with EntryLogScan(FILES, log.path) as scan:
                for batch in scan.batches():
                    for index, key in enumerate(zip(batch.ledgers, batch.entries, strict=True)):
                        if key[0] % 2 == half:
                            entry = builder.add(batch.body(index))
                            if key[0] in alive:
                                expected[half][key] = (log.log_id, entry.offset + 4)
            built = builder.roll() if builder.totals() else builder.build()
            (current / f"{log.log_id:x}.log").write_bytes(built.data)
        mine = [(key, value) for key, value in rows if int.from_bytes(key, "big") % 2 == half]
        with open_store(str(current / "ledgers"), LEDGERS_PROFILE, create=True) as store:
            store.write([Put(*row) for row in mine], sync=True)
        with open_store(str(current / "locations"), LOCATIONS_PROFILE, create=True) as store:
            stale = Put(encode_key(half, 999), encode_value(Location(0, 1028)))
            store.write([stale], sync=True)
    shutil.copytree(source / "journal", target / "journal")
    (target / "journal/current/VERSION").write_text(cookie)
    return expected
