"""Hot loops: a buffer in, columns out. Reached through codec, and by who handles millions of rows.

There are two twins with the same results: ``_python``, the reference, and ``_native``, compiled when the
package was installed with a compiler at hand. ``IMPL`` names the one that runs. ``BKCTL_KERNELS=python``
chooses the reference, ``native`` insists on the compiled one, ``auto`` (the default) takes what is there.

A subject has its place in both: ``frames.h`` is the C of what ``frames.pxi`` makes functions of Python, and
``_frames.py`` the reference. ``_api`` says what each function does.
"""

import os
from typing import TYPE_CHECKING

from bkctl._kernels import _api
from bkctl._kernels._api import Kernels


def _chosen(wanted: str) -> Kernels:
    """Return the twin to use; the other one is not loaded.

    Raises ImportError when the compiled one is wanted and missing or out of date.
    """
    if wanted not in ("auto", "native", "python"):
        raise ImportError(f"BKCTL_KERNELS={wanted}: is neither auto nor native nor python")
    if wanted != "python":
        try:
            from bkctl._kernels import _native

            if _native.API != _api.API:
                raise ImportError("the compiled kernels are of another version; install again")  # noqa: TRY301
        except ImportError:
            if wanted == "native":
                raise
        else:
            return _native
    from bkctl._kernels import _python

    return _python


_twin = _chosen(os.environ.get("BKCTL_KERNELS", "auto"))

IMPL = _twin.IMPL
walk_entries = _twin.walk_entries
walk_columns = _twin.walk_columns
failing_crc32c = _twin.failing_crc32c
failing_crc32 = _twin.failing_crc32
failing_mac = _twin.failing_mac
columns_failing_crc32c = _twin.columns_failing_crc32c
columns_failing_crc32 = _twin.columns_failing_crc32
join_rows = _twin.join_rows
scan_adds = _twin.scan_adds
scan_v3_adds = _twin.scan_v3_adds
scan_reads = _twin.scan_reads
read_answers = _twin.read_answers
read_records = _twin.read_records
leading_records = _twin.leading_records
scan_v3_reads = _twin.scan_v3_reads
v3_read_answers = _twin.v3_read_answers
gather_entries = _twin.gather_entries
write_and_sync = _twin.write_and_sync
send_pieces = _twin.send_pieces
records_but = _twin.records_but
gather_at = _twin.gather_at
split_records = _twin.split_records
shifted = _twin.shifted
pieces_of = _twin.pieces_of
size_bounds = _twin.size_bounds
ledger_sums = _twin.ledger_sums
table_block = _twin.table_block
table_rows = _twin.table_rows
if TYPE_CHECKING:
    from bkctl._kernels._counters import Histogram, LedgerCounter, LedgerUse
    from bkctl._kernels._grants import GrantTable
else:
    Histogram = _twin.Histogram
    LedgerCounter = _twin.LedgerCounter
    LedgerUse = _twin.LedgerUse
    GrantTable = _twin.GrantTable
run_columns = getattr(_twin, "run_columns", None)
digest_words = getattr(_twin, "digest_words", None)
#: Whether tables are read fast: in Python they are not, and RocksDB reads them faster.
TABLES_COMPILED = IMPL == "native"
EntryTable = _twin.EntryTable
SortedEntries = _twin.SortedEntries

__all__ = [
    "IMPL",
    "TABLES_COMPILED",
    "EntryTable",
    "GrantTable",
    "Histogram",
    "LedgerCounter",
    "LedgerUse",
    "SortedEntries",
    "columns_failing_crc32",
    "columns_failing_crc32c",
    "digest_words",
    "failing_crc32",
    "failing_crc32c",
    "failing_mac",
    "gather_at",
    "gather_entries",
    "join_rows",
    "leading_records",
    "ledger_sums",
    "pieces_of",
    "read_answers",
    "read_records",
    "records_but",
    "run_columns",
    "scan_adds",
    "scan_reads",
    "scan_v3_adds",
    "scan_v3_reads",
    "send_pieces",
    "shifted",
    "size_bounds",
    "split_records",
    "table_block",
    "table_rows",
    "v3_read_answers",
    "walk_columns",
    "walk_entries",
    "write_and_sync",
]
