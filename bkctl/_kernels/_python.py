"""Reference kernels in Python; ``_api`` says what each of them does."""

from __future__ import annotations

from bkctl._kernels._api import API as API
from bkctl._kernels._compaction import gather_at as gather_at
from bkctl._kernels._compaction import ledger_sums as ledger_sums
from bkctl._kernels._compaction import pieces_of as pieces_of
from bkctl._kernels._compaction import records_but as records_but
from bkctl._kernels._compaction import shifted as shifted
from bkctl._kernels._compaction import size_bounds as size_bounds
from bkctl._kernels._counters import Histogram as Histogram
from bkctl._kernels._counters import LedgerCounter as LedgerCounter
from bkctl._kernels._counters import LedgerUse as LedgerUse
from bkctl._kernels._descriptors import read_records as read_records
from bkctl._kernels._descriptors import send_pieces as send_pieces
from bkctl._kernels._descriptors import write_and_sync as write_and_sync
from bkctl._kernels._frames import read_answers as read_answers
from bkctl._kernels._frames import scan_adds as scan_adds
from bkctl._kernels._frames import scan_reads as scan_reads
from bkctl._kernels._frames import scan_v3_adds as scan_v3_adds
from bkctl._kernels._frames import scan_v3_reads as scan_v3_reads
from bkctl._kernels._frames import v3_read_answers as v3_read_answers
from bkctl._kernels._grants import GrantTable as GrantTable
from bkctl._kernels._parts import split_records as split_records
from bkctl._kernels._tables import table_block as table_block
from bkctl._kernels._tables import table_rows as table_rows
from bkctl._kernels._walks import columns_failing_crc32 as columns_failing_crc32
from bkctl._kernels._walks import columns_failing_crc32c as columns_failing_crc32c
from bkctl._kernels._walks import failing_crc32 as failing_crc32
from bkctl._kernels._walks import failing_crc32c as failing_crc32c
from bkctl._kernels._walks import failing_mac as failing_mac
from bkctl._kernels._walks import join_rows as join_rows
from bkctl._kernels._walks import leading_records as leading_records
from bkctl._kernels._walks import walk_columns as walk_columns
from bkctl._kernels._walks import walk_entries as walk_entries

IMPL = "python"

#: The caches in Python are their twins.
EntryTable = None
SortedEntries = None
gather_entries = None
#: The pipeline has these over numpy.
run_columns = None
digest_words = None
