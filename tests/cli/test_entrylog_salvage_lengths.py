"""``bkctl entrylog salvage`` of records whose length no digest proves: each is told, and 0 is not the end."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from bkctl.codec.digest import Digester
from tests.support.checked_bookie import HOST, CheckedBookie
from tests.support.cluster_dump import write_dump
from tests.support.log_builder import CRC32C, DUMMY, MAC, PASSWORD, entry_body, plain_payload
from tests.support.readable import readable

Run = Callable[..., Any]

SUMS, SECRET, PLAIN = 1, 2, 3
DIGESTERS = {SUMS: CRC32C, SECRET: MAC, PLAIN: DUMMY}


@dataclass
class MixedBookie(CheckedBookie):
    """Ledgers of several digest types in one log, entry by entry in turns."""

    digesters: dict[int, Digester] = field(default_factory=lambda: dict(DIGESTERS))

    def body(self, ledger: int, entry: int, payload_bytes: int = 60) -> bytes:
        return entry_body(
            ledger, entry, plain_payload(ledger, entry, payload_bytes), self.digesters.get(ledger, CRC32C)
        )

    @property
    def log(self) -> Path:
        return self.current() / "0.log"

    def start_of(self, ledger: int, entry: int) -> int:
        """Where the size word of an entry is."""
        return self.locations[0, ledger, entry][1] - 4

    def resize(self, ledger: int, entry: int, add: int) -> int:
        """Change a size word on disk; the size that it has then."""
        data, at = bytearray(self.log.read_bytes()), self.start_of(ledger, entry)
        size = int.from_bytes(data[at : at + 4], "big") + add
        data[at : at + 4] = size.to_bytes(4, "big")
        self.log.write_bytes(data)
        return size

    def overwrite(self, ledger: int, entry: int, size: int = 20) -> None:
        """Damage the head of a record."""
        data, at = bytearray(self.log.read_bytes()), self.start_of(ledger, entry)
        data[at : at + size] = b"\xee" * size
        self.log.write_bytes(data)


@pytest.fixture(params=["db", "idx"])
def mixed(request: pytest.FixtureRequest, tmp_path: Path) -> MixedBookie:
    made = MixedBookie(tmp_path / "bookie", storage=request.param)
    made.fill(DIGESTERS)
    return made.write()  # type: ignore[return-value]


def salvaged(run_cli: Run, log: Path, *words: object, code: int) -> list[dict[str, Any]]:
    done = run_cli("entrylog", "salvage", log, "--yes", "-o", "json", *words)
    assert done.exit_code == code, done.stderr + done.stdout
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def of_kind(rows: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [row for row in rows if row["kind"] == kind]


def dump_of(path: Path, password: bytes | None = None) -> Path:
    """The metadata of the ledgers."""
    digests = {ledger: digester.type for ledger, digester in DIGESTERS.items()}
    write_dump(
        path,
        DIGESTERS,
        bookie=HOST,
        instance_id="instance",
        next_ledger=9,
        password=password,
        digests=digests,
    )
    return path


@pytest.mark.parametrize("ledger", [SECRET, PLAIN])
def test_a_record_whose_size_has_shrunk_is_kept_and_told(
    run_cli: Run, mixed: MixedBookie, ledger: int
) -> None:
    """Copied as it is, it is what it was before; 0 would say that nothing of it is lost."""
    size = mixed.resize(ledger, 5, -32)
    before = readable(mixed.root)
    (told,) = of_kind(salvaged(run_cli, mixed.log, code=3), "unproved")
    assert (told["ledger"], told["entries"], told["bytes"]) == (ledger, "5", size)
    assert told["offset"] == mixed.start_of(ledger, 5)
    assert "give --metadata" in told["detail"]
    assert readable(mixed.root) == before


def test_a_password_proves_the_right_length(run_cli: Run, mixed: MixedBookie, tmp_path: Path) -> None:
    whole = readable(mixed.root)
    mixed.resize(SECRET, 5, -32)
    dump = dump_of(tmp_path / "zk.json")
    words = ("entrylog", "salvage", mixed.log, "--metadata", dump, "--dry-run", "-o", "json")
    (told,) = of_kind(json.loads(run_cli(*words).stdout), "unproved")
    assert "--password" in told["detail"]
    dump = dump_of(tmp_path / "with.json", password=PASSWORD)
    assert of_kind(salvaged(run_cli, mixed.log, "--metadata", dump, code=0), "unproved") == []
    assert readable(mixed.root) == whole


def test_of_a_ledger_without_digests_the_other_replicas_are_named(
    run_cli: Run, mixed: MixedBookie, tmp_path: Path
) -> None:
    mixed.resize(PLAIN, 5, -32)
    dump = dump_of(tmp_path / "zk.json", password=PASSWORD)
    done = salvaged(run_cli, mixed.log, "--metadata", dump, code=3)
    (told,) = of_kind(done, "unproved")
    assert "no digest" in told["detail"]
    assert "ledger compare" in told["detail"]
    (copy,) = of_kind(done, "copy")
    assert (copy["records"], copy["by_structure"]) == (60, 20)


def test_what_the_index_places_behind_a_record_proves_its_end(run_cli: Run, mixed: MixedBookie) -> None:
    """The head of the next record is gone, and its row says where it began."""
    mixed.overwrite(PLAIN, 5)
    done = salvaged(run_cli, mixed.log, code=1)
    assert of_kind(done, "unproved") == []
    assert [row["ledger"] for row in of_kind(done, "lost")] == [PLAIN]


def test_lost_entries_beside_one_that_is_not_proved_are_3(run_cli: Run, mixed: MixedBookie) -> None:
    mixed.overwrite(SUMS, 8)
    mixed.resize(PLAIN, 5, -32)
    done = salvaged(run_cli, mixed.log, code=3)
    assert [row["ledger"] for row in of_kind(done, "unproved")] == [PLAIN]
    assert [row["ledger"] for row in of_kind(done, "lost")] == [SUMS]


def test_a_second_copy_in_front_of_damage_is_told_too(run_cli: Run, tmp_path: Path) -> None:
    """Of a log in which the index has no place nothing but the chain says where a record ends."""
    mixed = MixedBookie(tmp_path / "bookie")
    for entry in range(8):
        mixed.store(PLAIN, entry, 0)
    mixed.fill([PLAIN], 8, log_id=1)
    mixed.write()
    first, second = (mixed.current() / name for name in ("0.log", "1.log"))
    framed = 4 + len(mixed.body(PLAIN, 0))
    data = bytearray(first.read_bytes())
    data[1024 + 3 * framed + 3] -= 32
    first.write_bytes(data)
    data = bytearray(second.read_bytes())
    data[1024 + 3 * framed : 1024 + 3 * framed + 20] = b"\xee" * 20
    second.write_bytes(data)
    (told,) = of_kind(salvaged(run_cli, second, code=3), "unproved")
    assert (told["path"], told["entries"]) == (str(first), "3")


def framed(mixed: MixedBookie, first: tuple[int, int], stop: tuple[int, int]) -> int:
    """How many bytes lie between two records."""
    return mixed.start_of(*stop) - mixed.start_of(*first)


def one_bit_longer(mixed: MixedBookie, ledger: int, entry: int) -> int:
    """Make a record swallow others whole by one bit of its size word; how many."""
    size = len(mixed.body(ledger, entry))
    ends = {mixed.start_of(*key[1:]): key[1:] for key in mixed.locations}
    start = mixed.start_of(ledger, entry)
    for bit in range(32):
        longer = size ^ (1 << bit)
        if longer > size and start + 4 + longer in ends:
            mixed.resize(ledger, entry, longer - size)
            return sum(start < at < start + 4 + longer for at in ends)
    raise AssertionError("no bit does")


@pytest.fixture(params=["db", "idx"])
def plain(request: pytest.FixtureRequest, tmp_path: Path) -> MixedBookie:
    """Records of a size to which one bit adds whole records: 4 + 60."""
    made = MixedBookie(
        tmp_path / "bookie", storage=request.param, digesters=dict.fromkeys((PLAIN, 4, 5), DUMMY)
    )
    made.body = lambda ledger, entry: entry_body(  # type: ignore[method-assign]
        ledger, entry, plain_payload(ledger, entry, 28), DUMMY
    )
    made.fill((PLAIN, 4, 5))
    return made.write()  # type: ignore[return-value]


@pytest.mark.parametrize("entry", [5, 16])
def test_what_one_bit_swallowed_is_salvaged_by_its_rows(run_cli: Run, plain: MixedBookie, entry: int) -> None:
    whole = readable(plain.root)
    assert one_bit_longer(plain, PLAIN, entry) >= 1
    checked = run_cli("index", "check", plain.root, "-o", "json")
    assert checked.exit_code == 1, checked.stdout
    found = json.loads(checked.stdout)
    assert {row["kind"] for row in found} == {"dangling_location"}
    assert all(f"lies inside the one at {plain.start_of(PLAIN, entry)}" in row["detail"] for row in found)
    assert {row["log_id"] for row in found} == {0}
    assert all(f"bkctl entrylog salvage {plain.log}" in json.dumps(row) for row in found)
    (copy,) = of_kind(salvaged(run_cli, plain.log, code=0), "copy")
    assert copy["records"] == 60
    assert readable(plain.root) == whole
    assert run_cli("index", "check", plain.root).exit_code == 0


def test_a_record_that_is_too_long_by_many_bits_is_cut_and_told(run_cli: Run, mixed: MixedBookie) -> None:
    """Its end is where the next one begins, which is right here, and which nothing proves."""
    whole = readable(mixed.root)
    mixed.resize(PLAIN, 5, framed(mixed, (SUMS, 6), (PLAIN, 8)))
    (told,) = of_kind(salvaged(run_cli, mixed.log, code=3), "unproved")
    assert (told["ledger"], told["entries"]) == (PLAIN, "5")
    assert readable(mixed.root) == whole


def test_a_size_word_that_leads_out_of_the_log_is_mended_by_the_rows(
    run_cli: Run, mixed: MixedBookie
) -> None:
    whole = readable(mixed.root)
    mixed.resize(PLAIN, 5, 1 << 26)
    assert of_kind(salvaged(run_cli, mixed.log, code=0), "lost") == []
    assert readable(mixed.root) == whole


def test_a_record_that_no_row_names_gives_way_to_the_rows_inside(run_cli: Run, tmp_path: Path) -> None:
    mixed = MixedBookie(tmp_path / "bookie", digesters={PLAIN: DUMMY, SECRET: MAC})
    mixed.fill([PLAIN], 4)
    garbage = mixed.store(PLAIN, 2)[1] - 4
    for entry in range(4, 9):
        mixed.add(PLAIN, entry)
    mixed.write()
    whole = readable(mixed.root)
    data = bytearray(mixed.log.read_bytes())
    size = mixed.start_of(PLAIN, 7) - garbage - 4
    data[garbage : garbage + 4] = size.to_bytes(4, "big")
    mixed.log.write_bytes(data)
    done = salvaged(run_cli, mixed.log, code=3)
    assert [row["entries"] for row in of_kind(done, "unproved")] == ["3"]
    assert of_kind(done, "damage")[0]["offset"] == garbage
    assert readable(mixed.root) == whole


def test_a_plan_salvages_a_log_whose_rows_lie_inside_a_record(
    run_cli: Run, plain: MixedBookie, tmp_path: Path
) -> None:
    whole = readable(plain.root)
    one_bit_longer(plain, PLAIN, 5)
    plan = tmp_path / "plan.json"
    planned = run_cli("repair", "plan", plain.root, "--deep", "--out", plan, "-o", "json")
    assert planned.exit_code in (1, 3), planned.stderr
    steps = [row["command"][1:3] for row in json.loads(planned.stdout) if row["number"]]
    assert steps == [["entrylog", "salvage"]]
    run = run_cli("repair", "run", plan, "--yes", "-o", "json")
    assert run.exit_code in (0, 3), run.stderr
    assert readable(plain.root) == whole
    assert run_cli("index", "check", plain.root).exit_code == 0


@pytest.mark.parametrize("ledger", [SECRET, PLAIN])
@pytest.mark.parametrize("at", [7, 19])
def test_ids_that_nothing_proves_make_no_entry(
    run_cli: Run, mixed: MixedBookie, ledger: int, at: int
) -> None:
    """The index has another entry in this place: a row for the damaged ids would serve what never was."""
    data, start = bytearray(mixed.log.read_bytes()), mixed.start_of(ledger, 5)
    data[start + at] ^= 32
    mixed.log.write_bytes(data)
    before = readable(mixed.root)
    (lost,) = of_kind(salvaged(run_cli, mixed.log, code=1), "lost")
    assert (lost["ledger"], lost["entries"]) == (ledger, "5")
    assert readable(mixed.root) == before


def test_a_record_that_swallowed_one_whose_ids_are_gone_is_told(run_cli: Run, plain: MixedBookie) -> None:
    """The row inside says that the record is too long, though nothing stands there any more."""
    swallowed = one_bit_longer(plain, PLAIN, 5)
    assert swallowed == 1
    data, start = bytearray(plain.log.read_bytes()), plain.start_of(4, 5)
    data[start + 4 : start + 20] = b"\xee" * 16
    plain.log.write_bytes(data)
    done = salvaged(run_cli, plain.log, code=3)
    assert [(row["ledger"], row["entries"]) for row in of_kind(done, "unproved")] == [(PLAIN, "5")]
    assert [(row["ledger"], row["entries"]) for row in of_kind(done, "lost")] == [(4, "5")]


def test_macs_without_a_password_are_kept(run_cli: Run, tmp_path: Path) -> None:
    """Beside ledgers of one other digest, with metadata that tell the types and no password."""
    mixed = MixedBookie(tmp_path / "bookie")
    mixed.fill([SUMS, SECRET])
    mixed.write()
    dump = dump_of(tmp_path / "zk.json")
    verified = run_cli("entrylog", "verify", mixed.log, "--metadata", dump, "-o", "json")
    assert verified.exit_code == 3, verified.stdout
    mixed.overwrite(SUMS, 5)
    before = readable(mixed.root)
    (lost,) = of_kind(salvaged(run_cli, mixed.log, "--metadata", dump, code=1), "lost")
    assert (lost["ledger"], lost["entries"]) == (SUMS, "5")
    assert readable(mixed.root) == before


def test_a_record_with_damaged_ids_is_no_second_copy(run_cli: Run, mixed: MixedBookie) -> None:
    """One bit makes it pass for an entry that is lost beside it."""
    data, start = bytearray(mixed.log.read_bytes()), mixed.start_of(PLAIN, 5)
    data[start + 19] ^= 2
    mixed.log.write_bytes(data)
    mixed.overwrite(PLAIN, 7)
    before = readable(mixed.root)
    (lost,) = of_kind(salvaged(run_cli, mixed.log, code=1), "lost")
    assert (lost["ledger"], lost["entries"]) == (PLAIN, "5, 7")
    assert readable(mixed.root) == before
