"""``bkctl journal salvage`` where size words alone are damaged: every acknowledged entry is served then."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from bkctl.codec.cookie import Cookie, encode_cookie
from bkctl.codec.entry import frame
from bkctl.engine.add_run import SingleAdd
from bkctl.errors import LedgerLimboError, RefusedError
from bkctl.types import DigestType
from tests.support.cluster_dump import metadata_of
from tests.support.cluster_dumps import dump_file
from tests.support.damaged_journal import body_of
from tests.support.engine_rig import KEY, Answers
from tests.support.rows import from_ndjson
from tests.support.truthful_bookie import HOST, INSTANCE, bookie_on, started

Run = Callable[..., Any]
TYPES = {1: DigestType.CRC32C, 3: DigestType.MAC}
BODIES = {
    (ledger, entry): body_of(ledger, entry, f"<{ledger}:{entry}>".encode() * 12, kind)
    for entry in range(16)
    for ledger, kind in TYPES.items()
}
GROWS, SHRINKS = 1 << 16, 1 << 5


@dataclass(frozen=True)
class Damaged:
    root: Path
    dump: Path

    def change(self, ledger: int, bit: int, entry: int = 9) -> None:
        """Flip a bit in the size word of an entry that only a journal has."""
        record = frame(BODIES[ledger, entry])
        (path,) = (path for path in self.root.glob("j/current/*.txn") if record in path.read_bytes())
        content = bytearray(path.read_bytes())
        at = content.find(record)
        (size,) = struct.unpack_from(">i", content, at)
        struct.pack_into(">i", content, at, size ^ bit)
        path.write_bytes(content)

    def salvage(self, run_cli: Run, how: str) -> list[dict[str, Any]]:
        """Salvage the journals; what the command says. The copy is in their place then."""
        words = (*self.words(how), "--metadata", self.dump, "--yes")
        done = run_cli("journal", "salvage", self.root, *words)
        assert done.exit_code == 0, done.stderr
        self.swap(how)
        return from_ndjson(done.stdout)

    def words(self, how: str) -> tuple[object, ...]:
        return ("--in-place",) if how == "in place" else ("--out", self.root / "fresh")

    def swap(self, how: str) -> None:
        """Put the copy in the place of the journals, if it is not there."""
        if how != "in place":
            shutil.rmtree(self.root / "j")
            (self.root / "fresh").rename(self.root / "j")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Damaged:
    root = tmp_path_factory.mktemp("made") / "bookie"
    for name in ("j", "l0"):
        (root / name / "current").mkdir(parents=True)
        cookie = Cookie(5, HOST, "/data/somewhere/j", "1\t/data/somewhere/l0", INSTANCE)
        (root / name / "current" / "VERSION").write_bytes(encode_cookie(cookie))
    bookie = bookie_on(root, 1)
    bookie.start()
    try:
        answers = Answers()
        for (_, entry), body in BODIES.items():
            bookie.writes.add(SingleAdd(body, KEY, answers, entry))
        answers.wait(len(BODIES))
        assert not answers.bad
    finally:
        bookie.abort()
    metadata = {
        ledger: replace(metadata_of(HOST, b"secret"), digest_type=kind) for ledger, kind in TYPES.items()
    }
    return Damaged(root, dump_file(root.parent / "zk.json", metadata, instance_id=INSTANCE))


@pytest.fixture
def damaged(made: Damaged, tmp_path: Path) -> Damaged:
    shutil.copytree(made.root, tmp_path / "bookie")
    return replace(made, root=tmp_path / "bookie")


@pytest.mark.parametrize("how", ["in place", "out"])
@pytest.mark.parametrize(
    ("victims", "bit"), [((1,), GROWS), ((3,), GROWS), ((3,), SHRINKS), ((1, 3), SHRINKS)], ids=str
)
def test_what_was_acknowledged_is_served(
    run_cli: Run, damaged: Damaged, how: str, victims: tuple[int, ...], bit: int
) -> None:
    for ledger in victims:
        damaged.change(ledger, bit)
    verify = ("journal", "verify", damaged.root / "j", "--metadata", damaged.dump)
    assert run_cli(*verify).exit_code == 1
    rows = damaged.salvage(run_cli, how)
    details = [row["detail"] for row in rows if row["kind"] == "damage"]
    assert details == ["record size; the record in it is copied"] * len(victims)
    assert run_cli(*verify).exit_code == 0
    with started(damaged.root, 1) as bookie:
        assert {ids: bytes(bookie.reads.read(*ids)) for ids in BODIES} == BODIES


def test_without_the_metadata_a_mac_record_is_a_loss(run_cli: Run, damaged: Damaged) -> None:
    damaged.change(3, GROWS)
    with pytest.raises(RefusedError, match="record size"), started(damaged.root, 1):
        pass
    done = run_cli("journal", "salvage", damaged.root, "--in-place", "--yes")
    assert done.exit_code == 1
    assert {row["ledger"] for row in from_ndjson(done.stdout) if row["kind"] == "lost"} == {1, 3}
    with started(damaged.root, 1) as bookie, pytest.raises(LedgerLimboError):
        bookie.reads.read(3, 9)


@pytest.mark.parametrize("how", ["in place", "out"])
def test_less_than_the_head_of_a_padding_between_two_records(
    run_cli: Run, damaged: Damaged, how: str
) -> None:
    """Without the password a MAC entry whose size has lost 4 is whole, and 4 bytes stand behind it."""
    assert len(BODIES[3, 10]) & 4
    damaged.change(3, 4, entry=10)
    with pytest.raises(RefusedError, match="record size"), started(damaged.root, 1):
        pass
    done = run_cli("journal", "salvage", damaged.root, *damaged.words(how), "--yes")
    assert done.exit_code == 1, done.stderr
    damaged.swap(how)
    with started(damaged.root, 1) as bookie:
        for ids, body in BODIES.items():
            assert bytes(bookie.reads.read(*ids)) == (body[:-4] if ids == (3, 10) else body)
        with pytest.raises(LedgerLimboError):
            bookie.reads.read(3, 16)


def test_one_plan_of_repairs_ends_it(run_cli: Run, damaged: Damaged, tmp_path: Path) -> None:
    damaged.change(3, GROWS)
    plan = tmp_path / "plan.json"
    words = ("repair", "plan", damaged.root, "--deep", "--metadata", damaged.dump)
    assert run_cli(*words, "--out", plan).exit_code == 1
    assert run_cli("repair", "run", plan, "--yes").exit_code == 0
    assert run_cli(*words).exit_code == 0, "nothing is left to do"
