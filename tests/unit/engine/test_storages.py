"""Which storage a bookie is started with, and what of its index is lost."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from bkctl.config.loader import load
from bkctl.engine.db_storage import opening as db_storage_opening
from bkctl.engine.ledger_storage import IndexPlace
from bkctl.engine.lost_index import find_lost_indexes
from bkctl.engine.storages import storage_of
from bkctl.errors import UsageError
from bkctl.server.life.engine_settings import bookie_settings
from bkctl.storage_kinds import DB, DB_LEDGER_STORAGE, IDX, INTERLEAVED_LEDGER_STORAGE, StorageKind
from bkctl.vfs.memory import MemoryFileSystem
from tests.support.log_builder import EntryLogBuilder, entry_body


def test_the_configuration_chooses_the_storage(tmp_path: Path) -> None:
    chosen = {"ledgerStorageClass": DB_LEDGER_STORAGE}
    config, _ = load(None, chosen, {}, working_directory=str(tmp_path))
    settings = bookie_settings(config)
    assert storage_of(settings) is db_storage_opening.CHOICE
    other = replace(config, storage=replace(config.storage, storage_class="another.LedgerStorage"))
    with pytest.raises(UsageError, match=r"ledgerStorageClass=another\.LedgerStorage: is none of .*DbLedger"):
        storage_of(bookie_settings(other))


def test_only_the_storage_that_is_chosen_is_imported() -> None:
    program = (
        "import sys; from types import SimpleNamespace as S; from bkctl.engine.storages import storage_of;"
        f"storage_of(S(storage=S(storage_class={INTERLEAVED_LEDGER_STORAGE!r})));"
        "print([name for name in sys.modules if name.endswith('_storage.opening')])"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "['bkctl.engine.interleaved_storage.opening']"


def filesystem_with(**logs: bytes) -> MemoryFileSystem:
    """Ledger directories by their names, each with one log."""
    files = MemoryFileSystem()
    for name, data in logs.items():
        files.make_directories(f"/{name}/current")
        writer = files.create(f"/{name}/current/0.log")
        writer.write_at(0, data)
        writer.close()
    return files


@pytest.mark.parametrize("kind", [DB, IDX])
def test_an_index_over_several_directories_is_lost_when_any_of_them_has_records(kind: StorageKind) -> None:
    log = EntryLogBuilder()
    log.add(entry_body(7, 3))
    files = filesystem_with(first=EntryLogBuilder().build().data, second=log.build().data)
    place = IndexPlace(("/first/current", "/second/current"), "/first/current", kind)
    (lost,) = find_lost_indexes(files, [place], list, lambda number: {"ledgers": "empty"})
    assert (lost.log, lost.ledger, lost.entry) == ("/second/current/0.log", 7, 3)
    assert lost.rebuild(files) == ("index", "rebuild", "/first", "--storage", kind.name)
    assert not find_lost_indexes(files, [place], list, lambda number: {})
