"""``bkctl bookies replace-id``: a bookie that was given another id, and one that only claims to be it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from bkctl.client.settings import ClientSettings
from bkctl.client.sync import BookKeeperSync
from bkctl.metadata.api import MetadataStore
from bkctl.metadata.uri import open_metadata_store
from bkctl.server.life.embedded import LocalCluster
from tests.support.rows import from_ndjson

Run = Callable[..., Any]


def pretend_old_name(store: MetadataStore, ledger: int, bookie: str, old: str) -> None:
    """Have a ledger name a bookie by an id that it has no more."""
    stored = store.ledgers.read_ledger(ledger)
    segments = [
        replace(one, bookies=tuple(old if name == bookie else name for name in one.bookies))
        for one in stored.metadata.segments
    ]
    store.ledgers.update_ledger(ledger, replace(stored.metadata, segments=tuple(segments)), stored.version)


def test_the_id_is_replaced_where_the_bookie_has_the_entries_and_back(run_cli: Run, tmp_path: Path) -> None:
    with (
        LocalCluster(3, tmp_path / "cluster") as cluster,
        open_metadata_store(cluster.metadata_uri) as store,
        BookKeeperSync(cluster.metadata_uri, ClientSettings()) as client,
    ):
        handles = [client.create(2, 2, 2) for _ in range(3)]
        for handle in handles:
            handle.append_all([b"x" * 50] * 4)
        for handle in handles[:2]:
            handle.close()
        good, claimed, still_open = (handle.ledger for handle in handles)

        def members(ledger: int) -> tuple[str, ...]:
            return store.ledgers.read_ledger(ledger).metadata.segments[0].bookies

        new = members(good)[0]
        other = next(one.bookie_id for one in cluster.bookies if one.bookie_id not in members(claimed))
        pretend_old_name(store, good, new, "old:3181")
        # Of this one the new id has no entry, unless it is another member.
        pretend_old_name(store, claimed, members(claimed)[1], "gone:3181")
        uri = ("--metadata", cluster.metadata_uri)
        command = ("bookies", "replace-id", "old:3181", new, *uri)
        assert run_cli(*command).exit_code == 4
        planned = run_cli(*command, "--dry-run")
        assert planned.exit_code == 0, planned.stderr
        (row,) = from_ndjson(planned.stdout)
        assert (row["ledger"], row["segments"], row["replaced"]) == (good, [0], True)
        assert "old:3181" in members(good)
        undo = tmp_path / "undo"
        done = run_cli(*command, "--yes", "--undo-file", undo)
        assert done.exit_code == 0, done.stderr
        assert "old:3181" not in members(good)
        assert new in members(good)
        assert undo.read_text() == f'{{"ledger": {good}, "segments": [0]}}\n'
        assert from_ndjson(run_cli(*command, "--yes").stdout) == [], "nothing is left to do"

        refused = run_cli("bookies", "replace-id", "gone:3181", other, "--yes", *uri)
        assert refused.exit_code == 3
        (row,) = from_ndjson(refused.stdout)
        assert not row["replaced"]
        assert "does not prove entry" in row["reason"]
        assert "gone:3181" in members(claimed)

        pretend_old_name(store, still_open, members(still_open)[0], "former:3181")
        kept = run_cli("bookies", "replace-id", "former:3181", new, "--yes", *uri)
        assert kept.exit_code == 3
        assert "not closed" in from_ndjson(kept.stdout)[0]["reason"]
        assert run_cli("bookies", "replace-id", new, "old:3181", "--yes", *uri).exit_code == 4
        assert run_cli("bookies", "replace-id", new, new, *uri).exit_code == 2


def test_an_undo_file_names_the_only_places_to_change(run_cli: Run, tmp_path: Path) -> None:
    with LocalCluster(2, tmp_path / "cluster") as cluster, open_metadata_store(cluster.metadata_uri) as store:
        with BookKeeperSync(cluster.metadata_uri, ClientSettings()) as client:
            ledgers = []
            for _ in range(2):
                with client.create(2, 2, 2) as handle:
                    handle.append_all([b"x"])
                ledgers.append(handle.ledger)
        new = cluster.bookies[0].bookie_id
        for ledger in ledgers:
            pretend_old_name(store, ledger, new, "old:3181")
        file = tmp_path / "undo"
        file.write_text(f'{{"ledger": {ledgers[0]}, "segments": [0]}}\n')
        uri = ("--metadata", cluster.metadata_uri)
        command = ("bookies", "replace-id", "old:3181", new, "--yes", *uri)
        done = run_cli(*command, "--undo", file, "--undo-file", tmp_path / "second")
        assert [row["ledger"] for row in from_ndjson(done.stdout)] == ledgers[:1]
        assert "old:3181" in store.ledgers.read_ledger(ledgers[1]).metadata.segments[0].bookies
        file.write_text("no\n")
        assert run_cli(*command, "--undo", file).exit_code == 2
