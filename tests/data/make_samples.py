"""Copy the small hand-made directories of the corpora to ``tests/data/samples``.

    python tests/data/make_samples.py [CORPORA]        (default ../shared/corpora)

Entry logs, journals, index files and small files as they are, except that the zeros at the end of a
preallocated journal are cut to the next multiple of 16 KiB. Of RocksDB directories LOCK and OPTIONS are left
out, which no reader here uses. ``jr`` and ``el`` are damaged files; ``*.expected.txt`` is what Java's readers
made of them.
"""

from __future__ import annotations

import shutil
import sys
import tarfile
from pathlib import Path

SAMPLES = Path(__file__).with_name("samples")

NAMES = {
    "a": "DbLedgerStorage, four digests",
    "d": "DirectIO entry logger",
    "el": "damaged entry logs",
    "g": "metadata-cache after transactional compaction",
    "i": "SortedLedgerStorage, idx version 1",
    "i0": "InterleavedLedgerStorage, idx version 0, journal version 5",
    "jr": "damaged journals",
    "m": "three journals, two ledger and two index directories",
    "pd": "padding of 512",
    "pd4": "padding of 4096",
    "pl": "entry log per ledger",
    "r": "rolled log with its map",
    "st": "BOOKIE_STATUS",
    "v4": "journal version 4",
}
JOURNAL_BLOCK_BYTES = 16 << 10


def main(archive: Path) -> None:
    """Replace the directory ``samples`` beside this file."""
    shutil.rmtree(SAMPLES, ignore_errors=True)
    with tarfile.open(archive) as bundle:
        for member in bundle:
            # ./el.expected.txt, ./a/a/l/current/0.log
            sample, _, rest = member.name.removeprefix("./").partition("/")
            name = rest.partition("/")[2]
            last = name.rpartition("/")[2]
            if not member.isfile() or sample.partition(".")[0] not in NAMES:
                continue
            if last == "LOCK" or last.startswith("OPTIONS-"):
                continue
            source = bundle.extractfile(member)
            assert source is not None
            target = SAMPLES / sample / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(cut(last, source.read()))


def cut(name: str, data: bytes) -> bytes:
    """The bytes that are kept of a file."""
    if not name.endswith(".txn") or len(data) < 1 << 20:
        return data
    used = len(data.rstrip(b"\0"))
    # A padding record may end in zeros, of one block of alignment at most.
    return data[: (used + 4096 + JOURNAL_BLOCK_BYTES) // JOURNAL_BLOCK_BYTES * JOURNAL_BLOCK_BYTES]


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "../shared/corpora") / "samples.tar.xz")
