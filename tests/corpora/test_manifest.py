"""Every acknowledged entry of the full corpora is found where it must be, and nothing else is."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bkctl.scan.damage import Verdict
from tests.support.manifest import CORPORA, IMAGES, Found, Image, ImageOf, index_rows

pytestmark = pytest.mark.corpora


#: Entries of ``crash`` that were not flushed on Qa bookies yet: only journals have them on enough.
UNFLUSHED = {"db": 285, "sorted": 2609, "interleaved": 3, "perledger": 30}

#: A crash cut the record of ledger 32, entry 87 at the end of this log; the log keeps that tail.
TORN = {("interleaved", "crash"): {"0.log"}, ("interleaved", "clean"): {"0.log"}}


def all_wrong(found: dict[str, Found]) -> list[str]:
    return [f"{bookie}: {wrong}" for bookie, one in found.items() for wrong in one.wrong]


def misplaced(image: Image, found: dict[str, Found]) -> list[str]:
    """Entries on a bookie that their fragment does not name."""
    return [
        f"{bookie}: {key}"
        for bookie, one in found.items()
        for key in sorted(one.entries)
        if bookie not in image.holders(*key)
    ]


@pytest.mark.parametrize(("corpus", "state"), IMAGES)
def test_journals_alone_cover_every_entry(image_of: ImageOf, corpus: str, state: str) -> None:
    image = image_of(corpus, state)
    found = image.in_journals()
    assert len(found) == image.metadata[0].ensemble_size
    assert not all_wrong(found)
    assert not misplaced(image, found)
    assert not image.short_of_quorum(found)


@pytest.mark.parametrize("corpus", CORPORA)
def test_entry_logs_of_a_clean_stop_cover_every_ledger_not_deleted(image_of: ImageOf, corpus: str) -> None:
    image = image_of(corpus, "clean")
    found = image.in_logs()
    assert not all_wrong(found)
    assert not misplaced(image, found)
    short = image.short_of_quorum(found)
    assert {ledger for ledger, _ in short} <= image.manifest.deleted


@pytest.mark.parametrize("corpus", CORPORA)
def test_entry_logs_after_a_crash_lack_exactly_what_was_not_flushed(image_of: ImageOf, corpus: str) -> None:
    image = image_of(corpus, "crash")
    found = image.in_logs()
    assert not all_wrong(found)
    assert not misplaced(image, found)
    assert len(image.short_of_quorum(found)) == UNFLUSHED[corpus]


@pytest.mark.parametrize("corpus", CORPORA)
def test_the_index_of_a_clean_stop_points_at_exactly_its_entries(image_of: ImageOf, corpus: str) -> None:
    image = image_of(corpus, "clean")
    indexed = image.indexed()
    assert not all_wrong(indexed)
    for bookie, one in indexed.items():
        assert set(one.entries.values()) == {1}
        held = image.held_by(bookie)
        assert one.entries.keys() <= held
        missing = held - one.entries.keys()
        assert {ledger for ledger, _ in missing} == image.manifest.deleted & {ledger for ledger, _ in held}


@pytest.mark.parametrize(("corpus", "state"), IMAGES)
def test_verify_finds_no_damage(image_of: ImageOf, corpus: str, state: str) -> None:
    torn = TORN.get((corpus, state), set())
    verdicts = image_of(corpus, state).verdicts()
    assert verdicts
    for verdict in verdicts:
        expected = Verdict.TORN_TAIL if Path(verdict.path).name in torn else Verdict.CLEAN
        assert verdict.verdict is expected, verdict
        assert (verdict.damages, verdict.damage, verdict.first_bad_offset) == (0, (), None)
        assert verdict.unchecked == 0


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.parametrize("noun", ["entrylog", "journal"])
def test_the_command_line_lists_what_the_manifest_says(
    image_of: ImageOf, run_cli: Callable[..., Any], noun: str
) -> None:
    image = image_of("db", "clean")
    for bookie, folder in image.bookies().items():
        result = run_cli(
            noun,
            "scan",
            folder,
            "--metadata",
            image.metadata_file,
            "--payload",
            "sha256",
            "-o",
            "ndjson",
        )
        assert (result.exit_code, result.stderr) == (0, "")
        rows = [row for row in lines(result.stdout) if row.get("kind", "entry") == "entry"]
        assert all(row["digest_ok"] is True for row in rows)
        assert all(row["digest"] == image.manifest.digests[row["ledger"]] for row in rows)
        for row in rows:
            key = row["ledger"], row["entry"]
            assert (row["payload_bytes"], row["payload"]) == image.manifest.entries[key]
        expected = image.held_by(bookie)
        if noun == "entrylog":
            present = {(row["ledger"], row["entry"]) for row in rows}
            assert present <= expected
            assert {ledger for ledger, _ in expected - present} <= image.manifest.deleted
        else:
            assert {(row["ledger"], row["entry"]) for row in rows} == expected


def test_the_command_line_verifies_a_whole_cluster(image_of: ImageOf, run_cli: Callable[..., Any]) -> None:
    image = image_of("db", "crash")
    for noun, files in (("entrylog", 11), ("journal", 3)):
        result = run_cli(noun, "verify", image.path, "--metadata", image.metadata_file, "-o", "ndjson")
        rows = lines(result.stdout)
        assert (result.exit_code, result.stderr, len(rows)) == (0, "", files)
        assert {row["verdict"] for row in rows} == {"clean"}
        assert {row["unchecked"] for row in rows} == {0}


def test_the_mac_ledger_checks_with_the_manifests_password(
    image_of: ImageOf, run_cli: Callable[..., Any]
) -> None:
    image = image_of("sorted", "clean")
    (ledger,) = [ledger for ledger, digest in image.manifest.digests.items() if digest == "mac"]
    entries = sum(key[0] == ledger for key in image.manifest.entries)
    command = ("entrylog", "scan", image.path, "--ledger", ledger, "-o", "ndjson")
    for mode in ("auto", "mac"):
        password = image.manifest.passwords[ledger].hex()
        result = run_cli(*command, "--digest", mode, "--password-hex", password)
        rows = lines(result.stdout)
        assert result.exit_code == 0
        assert {row["entry"] for row in rows} == set(range(entries))
        assert {(row["digest"], row["digest_ok"]) for row in rows} == {("mac", True)}
    result = run_cli(*command, "--digest", "mac", "--password-hex", "00")
    assert result.exit_code == 1
    assert {row["digest_ok"] for row in lines(result.stdout)} == {False}


def test_the_index_command_lists_the_rows_of_the_index(
    image_of: ImageOf, run_cli: Callable[..., Any]
) -> None:
    image = image_of("db", "clean")
    for folder in image.bookies().values():
        current = folder / "ledgers/current"
        result = run_cli("index", "scan", folder, "-o", "ndjson")
        assert (result.exit_code, result.stderr) == (0, "")
        rows = [(row["ledger"], row["entry"], row["log_id"], row["offset"]) for row in lines(result.stdout)]
        assert rows == list(index_rows(current))
