"""The doctor and a plan where all ledger directories were emptied: the cluster alone knows what is lost."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bkctl.metadata.store import TreeMetadataStore
from bkctl.metadata.uri import open_metadata_store
from tests.support.audited_cluster import ledger_metadata
from tests.support.doctored_bookie import DoctoredBookie
from tests.support.rows import from_ndjson

DEMO = Path(__file__).parents[1] / "data" / "demo" / "bookie1"

pytestmark = pytest.mark.usefixtures("half_full_disks")

Run = Callable[..., Any]


def examined(run_cli: Run, *words: object) -> tuple[int, list[dict[str, Any]]]:
    result = run_cli("doctor", *words, "-o", "ndjson", env={"BKCTL_METADATA_URI": None})
    return result.exit_code, from_ndjson(result.stdout)


def test_emptied_ledger_directories_beside_a_journal_are_told_as_a_start_does(
    run_cli: Run, tmp_path: Path
) -> None:
    """A start is refused, for the cluster places ledgers here; a bookie that is new has none."""
    bookie = DoctoredBookie.of(DEMO, tmp_path / "bookie1")
    for path in bookie.ledgers.iterdir():
        if path.name != "VERSION":
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    for words in (("--conf", bookie.conf), (bookie.root, "--metadata", bookie.uri)):
        code, rows = examined(run_cli, *words)
        (row,) = (row for row in rows if row["kind"] == "lost_index")
        assert (code, row["severity"], row["commands"]) == (1, "error", [])
        assert ".txn is there, and the cluster places ledger" in row["found"]
        assert "with what it had of 9 ledgers of the cluster, the first: 0)" in row["found"]
    with open_metadata_store(bookie.uri) as store:
        # A ledger of which nobody knows where it is counts as one of this bookie's, as at a start.
        assert isinstance(store, TreeMetadataStore)
        store.ledgers.create_ledger(77, ledger_metadata(("elsewhere:3181",)))
        damaged = f"{store.root}/00/0000/L0077"
        store._tree.set(damaged, b"garbage", 0)
    result = run_cli("doctor", "--conf", bookie.conf)
    assert "with what it had of 10 ledgers of the cluster, the first: 0)" in result.stdout
    assert "ledger 77" in result.stderr
    assert "may be placed on this bookie and counts as such" in result.stderr
    with open_metadata_store(bookie.uri) as store:
        store.ledgers.delete_ledger(77, 1)
    planned = run_cli("repair", "plan", bookie.root, "--conf", bookie.conf)
    assert planned.exit_code == 1, planned.stdout + planned.stderr
    with open_metadata_store(bookie.uri) as store:
        for ledger in list(store.ledgers.ledgers()):
            stored = store.ledgers.read_ledger(ledger)
            store.ledgers.delete_ledger(ledger, stored.version)
    assert examined(run_cli, "--conf", bookie.conf)[0] == 0
