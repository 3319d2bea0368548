"""Make the directories beside this file from an archive of small real bookies.

    python tests/data/index/make.py [CORPORA]

The archive holds directories that released BookKeeper jars wrote, ``./<sample>/<sample>/<dir>/current/...``.
Taken are the indexes alone: the RocksDB databases ``ledgers``, ``locations`` and ``metadata-cache`` and the
``.idx`` files, to ``<sample>/<dir>/current/...``. Left out are entry logs and journals, what tools left
behind (``ledgers.PREV-<time>``), and of a database LOCK and OPTIONS, which no reader here uses.
"""

from __future__ import annotations

import re
import shutil
import sys
import tarfile
from pathlib import Path

SAMPLES = {
    "a": "DbLedgerStorage, rows only in write-ahead logs",
    "b": "after both of Java's index rebuilds: 16-byte keys",
    "g": "metadata-cache after transactional compaction",
    "i": "SortedLedgerStorage, idx version 1",
    "i0": "InterleavedLedgerStorage, idx version 0",
    "m": "two index directories",
    "s": "limbo and the integrity flag",
}
NAME = re.compile(
    r"\./(?P<sample>\w+)/(?P=sample)/(?P<rest>\w+/current/"
    r"(?:(?:ledgers|locations|metadata-cache)/(?!LOCK|OPTIONS)[^/]+|[0-9a-f]+/[0-9a-f]+/[0-9a-f]+\.idx))"
)


def main(archive: Path) -> None:
    """Replace the sample directories beside this file."""
    here = Path(__file__).parent
    for sample in SAMPLES:
        shutil.rmtree(here / sample, ignore_errors=True)
    with tarfile.open(archive) as tar:
        for member in tar:
            match = NAME.fullmatch(member.name)
            source = tar.extractfile(member) if match and match["sample"] in SAMPLES else None
            if match and source:
                target = here / match["sample"] / match["rest"]
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(source.read())


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "../shared/corpora") / "samples.tar.xz")
