"""A ledger whose metadata does not decode: the others are listed, and the exit code says that one is not."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bkctl.codec.ledger_metadata import LedgerMetadata, Segment
from bkctl.codec.ledger_path import ledger_path
from bkctl.metadata.store import TreeMetadataStore
from bkctl.metadata.uri import open_metadata_store
from bkctl.types import LedgerState
from tests.support.rows import from_ndjson

Run = Callable[..., Any]

CLOSED = LedgerMetadata(3, 1, 1, 1, 0, -1, LedgerState.CLOSED, (Segment(0, ("a:1",)),))


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    uri = f"embedded://{tmp_path}/metadata.db"
    with open_metadata_store(uri) as store:
        assert isinstance(store, TreeMetadataStore)
        store.layout.initialise_cluster()
        for ledger in (0, 7):
            store.ledgers.create_ledger(ledger, CLOSED)
        store._tree.set(store.root + ledger_path(7, store.layout.layout()), b"garbage", 0)
    return {"BKCTL_METADATA_URI": uri}


def test_list_names_it_and_fails(run_cli: Run, env: dict[str, str]) -> None:
    result = run_cli("ledger", "list", env=env)
    assert (result.exit_code, [row["ledger"] for row in from_ndjson(result.stdout)]) == (1, [0])
    assert "bkctl: ledger 7: " in result.stderr


def test_when_a_ledger_was_made_is_known_where_its_metadata_does_not_say_it(
    run_cli: Run, env: dict[str, str]
) -> None:
    """As Pulsar's: then it is the time of its node, which --older-than goes by as well."""
    with open_metadata_store(env["BKCTL_METADATA_URI"]) as store:
        created_ms = store.ledgers.read_ledger(0).created_ms
    (row,) = from_ndjson(run_cli("ledger", "list", env=env).stdout)
    assert (row["ctime_ms"], created_ms > 0) == (created_ms, True)
    assert json.loads(run_cli("ledger", "show", "0", env=env).stdout)["ctime_ms"] == created_ms
    assert from_ndjson(run_cli("ledger", "list", "--older-than", "1h", env=env).stdout) == []


def test_recover_does_not_take_it_for_closed(run_cli: Run, env: dict[str, str]) -> None:
    result = run_cli("ledger", "recover", "--all-open", "--yes", env=env)
    assert (result.exit_code, result.stdout) == (3, "")
    assert "bkctl: ledger 7: " in result.stderr
    assert "1 ledger is left out, as the metadata does not decode" in result.stderr


def test_a_bookie_that_nobody_knows_is_no_bookie_without_ledgers(run_cli: Run, env: dict[str, str]) -> None:
    """A name typed wrongly must not say that a bookie can go."""
    assert [
        row["ledger"] for row in from_ndjson(run_cli("ledger", "list", "--bookie", "a:1", env=env).stdout)
    ] == [0]
    with open_metadata_store(env["BKCTL_METADATA_URI"]) as store:
        store.cookies.create_cookie("bookie-2:3181", b"5\n")
    done = run_cli("ledger", "list", "--bookie", "bookie-2:3182", env=env)
    assert (done.exit_code, "did you mean bookie-2:3181?" in done.stderr) == (6, True)
    assert run_cli("ledger", "list", "--bookie", "bookie-2:3181", env=env).exit_code == 1, (
        "ledger 7 is unreadable"
    )
