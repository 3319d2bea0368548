"""Hot loops: a buffer in, columns out. Reached through codec, and by who handles millions of rows.

There are two twins with the same results: ``_python``, the reference, and ``_native``, compiled when the
package was installed with a compiler at hand. ``IMPL`` names the one that runs. ``BKCTL_KERNELS=python``
chooses the reference, ``native`` insists on the compiled one, ``auto`` (the default) takes what is there.
"""

import os
from typing import TYPE_CHECKING

from bkctl._kernels import _python
from bkctl._kernels._api import Kernels


def _chosen(wanted: str) -> Kernels:
    """Return the twin to use.

    Raises ImportError when the compiled one is wanted and missing or out of date.
    """
    if wanted not in ("auto", "native", "python"):
        raise ImportError(f"BKCTL_KERNELS={wanted}: is neither auto nor native nor python")
    if wanted == "python":
        return _python
    try:
        from bkctl._kernels import _native

        if _native.API != _python.API:
            raise ImportError("the compiled kernels are of another version; install again")  # noqa: TRY301
    except ImportError:
        if wanted == "native":
            raise
        return _python
    return _native


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
answer_frames = _twin.answer_frames
scan_reads = _twin.scan_reads
read_answers = _twin.read_answers
read_records = _twin.read_records
leading_records = _twin.leading_records
scan_v3_reads = _twin.scan_v3_reads
v3_read_answers = _twin.v3_read_answers
gather_entries = _twin.gather_entries
# A build that is older than these does not have them, and is right in everything else.
write_and_sync = _twin.write_and_sync if hasattr(_twin, "write_and_sync") else _python.write_and_sync
send_pieces = _twin.send_pieces if hasattr(_twin, "send_pieces") else _python.send_pieces
records_but = _twin.records_but if hasattr(_twin, "records_but") else _python.records_but
gather_at = _twin.gather_at if hasattr(_twin, "gather_at") else _python.gather_at
shifted = _twin.shifted if hasattr(_twin, "shifted") else _python.shifted
pieces_of = _twin.pieces_of if hasattr(_twin, "pieces_of") else _python.pieces_of
size_bounds = _twin.size_bounds if hasattr(_twin, "size_bounds") else _python.size_bounds
ledger_sums = _twin.ledger_sums if hasattr(_twin, "ledger_sums") else _python.ledger_sums
table_block = _twin.table_block if hasattr(_twin, "table_block") else _python.table_block
table_rows = _twin.table_rows if hasattr(_twin, "table_rows") else _python.table_rows
if TYPE_CHECKING:
    from bkctl._kernels._counters import Histogram, LedgerCounter, LedgerUse, note_adds
else:
    # Those that count belong together.
    _counting = _twin if hasattr(_twin, "note_adds") else _python
    Histogram = _counting.Histogram
    LedgerCounter = _counting.LedgerCounter
    LedgerUse = _counting.LedgerUse
    note_adds = _counting.note_adds
run_columns = getattr(_twin, "run_columns", None)
digest_words = getattr(_twin, "digest_words", None)
#: Whether tables are read fast: in Python they are not, and RocksDB reads them faster.
TABLES_COMPILED = IMPL == "native" and hasattr(_twin, "table_rows")
EntryTable = _twin.EntryTable
SortedEntries = _twin.SortedEntries

__all__ = [
    "IMPL",
    "TABLES_COMPILED",
    "EntryTable",
    "Histogram",
    "LedgerCounter",
    "LedgerUse",
    "SortedEntries",
    "answer_frames",
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
    "note_adds",
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
    "table_block",
    "table_rows",
    "v3_read_answers",
    "walk_columns",
    "walk_entries",
    "write_and_sync",
]
