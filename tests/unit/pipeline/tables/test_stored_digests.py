"""Digests of all ledgers in a file, looked up one by one."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from bkctl.codec.digest import Digester
from bkctl.errors import StorageError
from bkctl.pipeline.locations import located
from bkctl.pipeline.tables.known_digests import KnownDigests
from bkctl.pipeline.tables.stored_digests import StoredDigests, store_digests
from bkctl.types import DigestType
from tests.support.s3_server import s3_bucket


def test_what_is_stored_is_found_and_nothing_else(tmp_path: Path) -> None:
    digesters = {ledger: Digester(DigestType.CRC32C) for ledger in range(0, 9000, 3)}
    digesters[7] = Digester.of(DigestType.MAC, b"secret")
    path = str(tmp_path / "all.digests")
    assert store_digests(KnownDigests.of(digesters), path) == len(digesters)
    found = pickle.loads(pickle.dumps(StoredDigests(path)))
    assert dict(found) == digesters
    assert found[7].key == digesters[7].key
    assert found.get(8) is None
    assert found.get(1 << 60) is None
    assert len(pickle.dumps(found)) < 200


def test_a_file_with_keys_is_its_makers_alone(tmp_path: Path) -> None:
    path = tmp_path / "all.digests"
    store_digests(KnownDigests.of({1: Digester.of(DigestType.MAC, b"secret")}), str(path))
    assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(StorageError):
        store_digests(KnownDigests(), str(path))


def test_in_an_object_store_keys_are_sealed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What opens them goes with the reader; without it no key is written."""
    digesters = {1: Digester(DigestType.CRC32C)}
    digesters |= {ledger: Digester.of(DigestType.MAC, b"secret") for ledger in (7, 8)}
    key = digesters[7].key
    with s3_bucket("audits", monkeypatch) as parameters:
        folder = located(f"s3://audits/d?{parameters}")
        sealed, without = folder.text_of("sealed"), folder.text_of("without")
        store_digests(KnownDigests.of(digesters), sealed, b"s" * 32)
        found = pickle.loads(pickle.dumps(StoredDigests(sealed, b"s" * 32)))
        assert dict(found) == digesters
        assert len({StoredDigests(sealed)[7].key, StoredDigests(sealed)[8].key, key}) == 3
        assert StoredDigests(sealed, b"t" * 32)[7].key != key
        store_digests(KnownDigests.of(digesters), without)
        assert [StoredDigests(without)[ledger].key for ledger in (1, 7, 8)] == [b"", b"", b""]
        for name in ("sealed", "without"):
            assert key not in folder.read(name, 1 << 20)
        with pytest.raises(StorageError):
            StoredDigests(folder.text_of("nothing")).get(1)


def test_a_file_that_is_cut_short_is_an_error_and_not_a_ledger_without_a_digest(tmp_path: Path) -> None:
    path = tmp_path / "all.digests"
    store_digests(KnownDigests.of({1: Digester(DigestType.CRC32)}), str(path))
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(StorageError):
        StoredDigests(str(path)).get(1)
