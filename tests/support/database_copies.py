"""RocksDB databases for tests, each distinct content written once in a process and copied from then on.

A database takes RocksDB some tens of milliseconds to make and to sync; its copy takes two.
"""

from __future__ import annotations

import atexit
import hashlib
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bkctl.kvstore.base import Put
from bkctl.kvstore.profile import StoreProfile
from bkctl.kvstore.rocksdb_store import open_store

_templates: Path | None = None


def write_database(folder: Path, profile: StoreProfile, rows: Sequence[Put]) -> None:
    """Make a new database with the rows."""
    template = _folder() / _name(profile, rows)
    if not template.exists():
        with open_store(str(template), profile, create=True) as store:
            store.write(rows, sync=True)
    shutil.copytree(template, folder)


def _folder() -> Path:
    global _templates
    if _templates is None:
        _templates = Path(tempfile.mkdtemp(prefix="bkctl-databases-"))
        atexit.register(shutil.rmtree, _templates, ignore_errors=True)
    return _templates


def _name(profile: StoreProfile, rows: Sequence[Put]) -> str:
    digest = hashlib.sha256(repr(profile).encode())
    for row in rows:
        for part in (row.key, row.value):
            digest.update(len(part).to_bytes(8) + part)
    return digest.hexdigest()
