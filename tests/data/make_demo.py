"""Cut ``tests/data/demo`` out of the corpora: a small bookie that was killed during a flush.

    python tests/data/make_demo.py [CORPORA]        (default ../shared/corpora)

The source is ``crash/bookie1`` of ``db.tar.xz``: DbLedgerStorage of released BookKeeper jars after
``kill -9``. A flush appends to the entry log, then to the index, then moves the last mark, and all of these
files only grow. Prefixes of them are therefore what the same bookie had on disk earlier, here in the middle
of its second flush:

* ``0.log`` is whole, with its ledgers map: the first flush, ledgers 0 to 3 (one of each digest type);
* ``1.log`` ends behind its first 133 records (ledgers 4 and 5), without a map and not yet in the index;
* ``locations`` and ``ledgers`` end behind the batches of the first flush, so that the index names exactly
  the entries of ``0.log`` and nothing dangles;
* the journal ends in front of a 900 KB entry, and has zeros behind; ledgers 8589934610 and 123456800 are in
  it alone. (The real one was further ahead of its flush, and longer.)

One file is not a prefix: ``lastMark`` is overwritten in place, so it is written here as it must have been
behind the first flush, at the end of the last batch of ledger 3.

``manifest.json`` lists exactly the entries that this bookie holds, ``zk.json`` the ledgers they belong to.
"""

from __future__ import annotations

import base64
import json
import shutil
import sys
import tarfile
from pathlib import Path
from typing import Any

from bkctl.codec.ledger_metadata import decode_ledger_metadata

DEMO = Path(__file__).with_name("demo")
BOOKIE = "crash/bookie1"

#: Bytes kept from the front of a file; the ends of records and batches.
PREFIXES = {
    "ledgers/current/1.log": 25_249,
    "ledgers/current/locations/000004.log": 14_383,
    "ledgers/current/ledgers/000004.log": 243,
    "journal/current/1a1fe14808f.txn": 447_488,
}
#: Preallocated zeros behind the journal's records, up to this length.
JOURNAL_BYTES = 448 << 10
LAST_MARK = (0x1A1FE14808F, 341_504)

LEDGERS = (0, 1, 2, 3, 4, 5, 6, 123_456_800, 8_589_934_610)
#: This bookie's place in the ensemble of every ledger (E = 3, Qw = 2).
BOOKIE_ID = "127.0.0.1:4100"


def main(corpora: Path) -> None:
    """Replace the directory ``demo`` beside this file."""
    shutil.rmtree(DEMO, ignore_errors=True)
    with tarfile.open(corpora / "db.tar.xz") as archive:
        members = {member.name.removeprefix("./"): member for member in archive if member.isfile()}

        def content(name: str) -> bytes:
            source = archive.extractfile(members[name])
            assert source is not None
            return source.read()

        for name in sorted(members):
            if name.startswith(f"{BOOKIE}/"):
                rest = name.removeprefix(f"{BOOKIE}/")
                write(DEMO / "bookie1" / rest, cut(rest, content(name)))
        dump = json.loads(content("zk-crash.json"))
        manifest = json.loads(content("manifest.json"))
    write(DEMO / "zk.json", as_json(cut_dump(dump)))
    write(DEMO / "manifest.json", as_json(cut_manifest(manifest, dump)))


def cut(name: str, data: bytes) -> bytes:
    """What is kept of one file."""
    data = data[: PREFIXES.get(name, len(data))]
    if name.endswith(".txn"):
        return data.ljust(JOURNAL_BYTES, b"\0")
    if name.endswith("lastMark"):
        return b"".join(number.to_bytes(8, "big") for number in LAST_MARK)
    return data


def ledger_path(ledger: int) -> str:
    """The znode of a ledger in the hierarchical layout."""
    if ledger < 2**31 - 1:
        digits = f"{ledger:010d}"
        return f"/ledgers/{digits[:2]}/{digits[2:6]}/L{digits[6:]}"
    digits = f"{ledger:019d}"
    return f"/ledgers/{digits[:3]}/{digits[3:7]}/{digits[7:11]}/{digits[11:15]}/L{digits[15:]}"


def cut_dump(dump: dict[str, Any]) -> dict[str, Any]:
    """The kept ledgers, the nodes above them, and everything that is no ledger's."""
    kept = {ledger_path(ledger) for ledger in LEDGERS}

    def wanted(path: str) -> bool:
        if path in kept or any(name.startswith(f"{path}/") for name in kept):
            return True
        return not path.removeprefix("/ledgers/")[:2].isdigit()

    return {path: node for path, node in dump.items() if wanted(path)}


def cut_manifest(manifest: dict[str, Any], dump: dict[str, Any]) -> dict[str, Any]:
    """The kept ledgers with the entries that the ensemble's order gives to this bookie."""
    ledgers = {}
    for ledger in LEDGERS:
        facts = manifest["ledgers"][str(ledger)]
        metadata = decode_ledger_metadata(base64.b64decode(dump[ledger_path(ledger)]["data"]))
        (segment,) = metadata.segments
        place = segment.bookies.index(BOOKIE_ID)
        size, quorum = metadata.ensemble_size, metadata.write_quorum
        held = {
            entry: payload
            for entry, payload in facts["entries"].items()
            if (place - int(entry)) % size < quorum
        }
        ledgers[str(ledger)] = {**facts, "entries": held}
    return {**manifest, "ledgers": ledgers, "deleted_between_crash_and_clean": []}


def as_json(value: object) -> bytes:
    """One form for one value."""
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"


def write(path: Path, data: bytes) -> None:
    """Write a file and the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "../shared/corpora"))
