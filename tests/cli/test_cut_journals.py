"""An older journal that was cut, zeroed or emptied behind the last mark: no command calls it clean."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bkctl.codec.last_mark import decode_last_mark
from bkctl.errors import LedgerLimboError, NoEntryError, RefusedError
from tests.support.truthful_bookie import TruthfulBookie, dumps, started

Run = Callable[..., Any]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> TruthfulBookie:
    return TruthfulBookie.make(tmp_path_factory.mktemp("made") / "bookie", "db", 1)


def lost_end(bookie: TruthfulBookie, how: str) -> Path:
    """Damage the journal of the last mark, which is not the newest one; its path."""
    mark = decode_last_mark((bookie.current() / "lastMark").read_bytes())
    path = bookie.journal / f"{mark.journal_id:x}.txn"
    assert path in bookie.journals()[:-1]
    content = path.read_bytes()
    assert mark.offset < len(content)
    left = {"within": content[: mark.offset + 256], "between": content[: mark.offset], "empty": b""}
    path.write_bytes(left.get(how, content[: mark.offset].ljust(len(content), b"\0")))
    return path


def rows(result: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.mark.parametrize("how", ["within", "between", "zeros", "empty"])
def test_every_check_names_it_and_the_salvage_puts_its_ledgers_into_limbo(
    run_cli: Run, made: TruthfulBookie, tmp_path: Path, how: str
) -> None:
    bookie = made.copy(tmp_path / "bookie")
    path = lost_end(bookie, how)
    metadata = ("--metadata", str(dumps(tmp_path)["whole"]))
    doctor = run_cli("doctor", bookie.root, "--deep", *metadata)
    assert doctor.exit_code == 1
    assert {"damaged_journal", "cut_journal"} <= {row["kind"] for row in rows(doctor)}
    verify = run_cli("journal", "verify", bookie.root, *metadata)
    verified = rows(verify)
    assert verify.exit_code == 1
    assert [row["path"] for row in verified if row["verdict"] == "damaged"] == [str(path)]
    check = run_cli("index", "check", bookie.root, *metadata)
    damage = [row["kind"] for row in rows(check) if row["severity"] == "damage"]
    assert (check.exit_code, damage) == (1, ["cut_journal"]), check.stdout
    with pytest.raises(RefusedError, match="cut journal"), started(bookie.root, 1):
        pass
    assert run_cli("journal", "salvage", bookie.root, "--in-place", "--yes", *metadata).exit_code == 1
    assert {row["verdict"] for row in rows(run_cli("journal", "verify", bookie.root, *metadata))} == {"clean"}
    check = run_cli("index", "check", bookie.root, *metadata)
    assert check.exit_code == 0
    assert "limbo" in {row["kind"] for row in rows(check)}
    known = bookie.known_ledgers()
    assert known is not None
    answers = []
    with started(bookie.root, 1) as engine:
        for (ledger, entry), body in bookie.truth.bodies.items():
            if ledger not in known:
                continue
            try:
                assert engine.reads.read(ledger, entry) == body
            except LedgerLimboError:
                answers.append((ledger, entry))
            except NoEntryError:
                pytest.fail(f"entry {entry} of ledger {ledger} is gone without a word")
    assert answers
    assert set(answers) <= bookie.truth.journaled


@pytest.mark.usefixtures("half_full_disks")
def test_a_whole_one_is_clean_to_every_check(run_cli: Run, made: TruthfulBookie, tmp_path: Path) -> None:
    metadata = ("--metadata", str(dumps(tmp_path)["whole"]))
    for words in (("doctor",), ("journal", "verify"), ("index", "check")):
        deep = ("--deep",) if words == ("doctor",) else ()
        result = run_cli(*words, made.root, *deep, *metadata)
        assert result.exit_code == 0
        assert [row for row in rows(result) if row.get("verdict", "clean") != "clean"] == []
