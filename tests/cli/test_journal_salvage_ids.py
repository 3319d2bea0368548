"""``bkctl journal salvage`` where ids are damaged: nothing that is lost is answered as "no such entry"."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bkctl.codec.losses import Loss, decode_losses
from bkctl.errors import LedgerLimboError
from tests.support.cluster_dump import write_dump
from tests.support.grades import every_value, one_kept
from tests.support.truthful_bookie import DELETED, HOST, INSTANCE, LIVE, NEXT_LEDGER, TruthfulBookie, started

Run = Callable[..., Any]
Change = Callable[[bytearray, int], None]
IDS = struct.Struct(">qq")
#: The payload is behind the ids, the last add confirmed, the length and the digest.
PAYLOAD_AT = 48


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    path = tmp_path / "zk.json"
    write_dump(path, LIVE, bookie=HOST, instance_id=INSTANCE, next_ledger=NEXT_LEDGER, password=b"secret")
    return path


def change(bookie: TruthfulBookie, ledger: int, entry: int, how: Change) -> None:
    """Change the record of an entry that only a journal has; ``how`` is given where its ids begin."""
    for path in bookie.journals():
        content = bytearray(path.read_bytes())
        at = content.find(IDS.pack(ledger, entry))
        if at >= 0:
            how(content, at)
            path.write_bytes(content)
            return
    raise AssertionError("no journal has it")


def salvaged(
    run_cli: Run, bookie: TruthfulBookie, losses: Path, *more: object
) -> tuple[int, dict[int, Loss]]:
    words = ("journal", "salvage", bookie.root, "--in-place", "--losses", losses, "--yes", *more)
    done = run_cli(*words)
    assert done.exit_code in (0, 1), done.stderr
    assert run_cli("journal", "verify", bookie.root).exit_code in (0, 3)
    return done.exit_code, {loss.ledger: loss for loss in decode_losses(losses.read_bytes()).losses}


def served(bookie: TruthfulBookie) -> Iterator[tuple[int, int]]:
    """Start the bookie and yield the entries that it does not know of; every other one has its body."""
    with started(bookie.root, bookie.directories) as running:
        for (ledger, entry), body in bookie.truth.bodies.items():
            if ledger == DELETED:
                continue
            try:
                assert running.reads.read(ledger, entry) == body
            except LedgerLimboError:
                yield ledger, entry


def other_ledger(ledger: int) -> Change:
    def write(content: bytearray, at: int) -> None:
        content[at : at + 8] = struct.pack(">q", ledger)

    return write


def other_ledger_and_payload(ledger: int) -> Change:
    def write(content: bytearray, at: int) -> None:
        other_ledger(ledger)(content, at)
        content[at + PAYLOAD_AT] ^= 1

    return write


@pytest.mark.parametrize("named", one_kept("as another id", 6, DELETED, 15, 7 | 1 << 40))
def test_a_record_under_another_ledgers_id_gets_its_own_back(
    run_cli: Run, bookie: TruthfulBookie, tmp_path: Path, dump: Path, named: int
) -> None:
    change(bookie, 7, 43, other_ledger(named))
    assert run_cli("journal", "verify", bookie.root, "--metadata", dump).exit_code == 1
    code, losses = salvaged(run_cli, bookie, tmp_path / "losses.json", "--metadata", dump)
    assert (code, losses) == (0, {}), "its digest proves whose entry it is"
    assert run_cli("journal", "verify", bookie.root, "--metadata", dump).exit_code == 0
    assert not list(served(bookie))


def other_entry(entry: int) -> Change:
    def write(content: bytearray, at: int) -> None:
        content[at + 8 : at + 16] = struct.pack(">q", entry)

    return write


@pytest.mark.parametrize("named", one_kept("as another id", 42, 41, 43 | 1 << 20, 43 | 1 << 40))
def test_a_record_under_another_entrys_id_gets_its_own_back(
    run_cli: Run, bookie: TruthfulBookie, tmp_path: Path, dump: Path, named: int
) -> None:
    """Also where that one is there already, under which a start would find the damaged bytes."""
    change(bookie, 7, 43, other_entry(named))
    found = run_cli("journal", "verify", bookie.root, "--metadata", dump)
    assert found.exit_code == 1
    assert "entry id" in found.stdout
    code, losses = salvaged(run_cli, bookie, tmp_path / "losses.json", "--metadata", dump)
    assert (code, losses) == (0, {}), "its digest proves which entry it is"
    assert run_cli("journal", "verify", bookie.root, "--metadata", dump).exit_code == 0
    assert not list(served(bookie))


@every_value("as another id", named=(6, DELETED, 0x1234567), with_metadata=(True, False))
def test_where_nothing_proves_whose_entry_it_was_every_ledger_is_in_limbo(
    run_cli: Run, bookie: TruthfulBookie, tmp_path: Path, dump: Path, named: int, with_metadata: bool
) -> None:
    change(bookie, 7, 43, other_ledger_and_payload(named))
    more = ("--metadata", dump) if with_metadata else ()
    code, losses = salvaged(run_cli, bookie, tmp_path / "losses.json", *more)
    assert code == 1
    assert losses.keys() >= set(LIVE)
    assert all(loss.maybe_more for loss in losses.values())
    assert 0x1234567 not in losses
    assert list(served(bookie)) == [(7, 43)]


def test_a_ledger_that_began_in_the_damaged_bytes_is_in_limbo_when_the_metadata_name_it(
    run_cli: Run, bookie: TruthfulBookie, tmp_path: Path, dump: Path
) -> None:
    journal = next(path for path in bookie.journals() if IDS.pack(7, 36) in path.read_bytes())
    content = bytearray(journal.read_bytes())
    at = content.find(IDS.pack(1, 36)) - 4
    end = content.rfind(IDS.pack(7, 43)) + 200
    content[at:end] = b"\xff" * (end - at)
    journal.write_bytes(content)
    code, losses = salvaged(run_cli, bookie, tmp_path / "losses.json", "--metadata", dump)
    assert code == 1
    assert 7 in losses, "no record of it is left, but its metadata place it here"
    assert set(served(bookie)) == bookie.truth.journaled


def test_without_metadata_the_command_says_what_it_cannot_know(run_cli: Run, bookie: TruthfulBookie) -> None:
    change(bookie, 7, 43, other_ledger_and_payload(6))
    done = run_cli("journal", "salvage", bookie.root, "--in-place", "--yes")
    assert done.exit_code == 1
    assert "a ledger that began in the damaged bytes is not known here" in done.stderr
    assert list(served(bookie)) == [(7, 43)]
