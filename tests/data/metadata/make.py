"""Cut ``zk-sample.json`` out of the dumps in ``../shared/corpora``.

    python tests/data/metadata/make.py

Run from the top of the repository. Keeps one ledger of each kind (digest types, states, custom metadata, both
trees of the hierarchical layout), the cookies, and the nodes above them.
"""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

CORPORA = Path("../shared/corpora")
SAMPLE = Path(__file__).with_name("zk-sample.json")

KEPT = (
    "/ledgers/00/0000/L0000",  # CRC32
    "/ledgers/00/0000/L0001",  # CRC32C
    "/ledgers/00/0000/L0002",  # MAC
    "/ledgers/00/0000/L0003",  # DUMMY, empty password
    "/ledgers/00/0000/L0005",  # custom metadata
    "/ledgers/00/0000/L0006",  # closed empty
    "/ledgers/00/0000/L0029",  # closed by recovery
    "/ledgers/00/0000/L0031",  # open
    "/ledgers/000/0000/0085/8993/L4610",
    "/ledgers/01/2345/L6800",
    "/ledgers/INSTANCEID",
    "/ledgers/LAYOUT",
    "/ledgers/available/readonly",
    "/ledgers/available/127.0.0.1:4100",
    "/ledgers/cookies/127.0.0.1:4100",
    "/ledgers/cookies/127.0.0.1:4101",
)


def main() -> None:
    with tarfile.open(CORPORA / "db.tar.xz") as archive:
        member = next(m for m in archive if m.name.endswith("zk-crash.json"))
        file = archive.extractfile(member)
        assert file is not None
        tree = json.load(file)
    sample = {p: node for p, node in tree.items() if any(k == p or k.startswith(p + "/") for k in KEPT)}
    SAMPLE.write_text(json.dumps(sample, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
