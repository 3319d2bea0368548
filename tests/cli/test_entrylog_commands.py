"""``bkctl entrylog`` on files of a real bookie; see also ``tests/transcripts/entrylog.txt``."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.rows import from_csv, from_ndjson
from tests.support.stored_metadata import embedded_metadata

DATA = Path(__file__).parents[1] / "data"
DEMO = DATA / "demo"
LOGS = DEMO / "bookie1/ledgers/current"
SAMPLES = DATA / "samples"
ZK = DEMO / "zk.json"

Run = Callable[..., Any]

WITH_LOGS = sorted({path.parents[2] for path in SAMPLES.rglob("l*/current/*.log")})


def test_scan_stores_the_offset_of_the_index(run_cli: Run) -> None:
    places = {
        (row["ledger"], row["entry"], row["log_id"], row["offset"])
        for row in from_ndjson(run_cli("entrylog", "scan", LOGS / "0.log").stdout)
    }
    index = {
        (row["ledger"], row["entry"], row["log_id"], row["offset"])
        for row in from_ndjson(run_cli("index", "scan", DEMO).stdout)
    }
    assert places == index
    assert len(places) == 532


@pytest.mark.parametrize("payload", ["none", "sha256", "hex", "base64", "text"])
@pytest.mark.parametrize("folder", [*WITH_LOGS, DEMO], ids=lambda path: path.name)
def test_the_fast_path_says_what_the_slow_one_says(run_cli: Run, folder: Path, payload: str) -> None:
    """NDJSON is formatted in bulk, JSON object by object."""
    command = ("entrylog", "scan", folder, "--payload", payload, "--password", "secret")
    fast, slow = run_cli(*command, "-o", "ndjson"), run_cli(*command, "-o", "json")
    assert [list(row.items()) for row in from_ndjson(fast.stdout)] == [
        list(row.items()) for row in json.loads(slow.stdout)
    ]
    assert fast.stdout
    assert (fast.exit_code, fast.stderr) == (slow.exit_code, slow.stderr)


def test_scan_shows_what_touches_some_bytes_of_the_file(run_cli: Run) -> None:
    log = LOGS / "0.log"
    rows = from_ndjson(run_cli("entrylog", "scan", log).stdout)
    third, fourth = rows[2], rows[3]
    begin, end = third["offset"] - 4, third["offset"] + third["size"] - 1

    def touching(text: str) -> list[tuple[int, int]]:
        found = from_ndjson(run_cli("entrylog", "scan", log, "--bytes", text, "-o", "ndjson").stdout)
        return [(row["ledger"], row["entry"]) for row in found]

    one, other = ((row["ledger"], row["entry"]) for row in (third, fourth))
    assert touching(f"{begin}-{end}") == [one]
    assert touching(str(end)) == [one]
    assert touching(f"{end}-{end + 1}") == [one, other]
    assert touching("0-1023") == [], "the header"
    assert run_cli("entrylog", "scan", log, "--bytes", "9-1").exit_code == 2


def test_passwords_from_everywhere(run_cli: Run, tmp_path: Path) -> None:
    (tmp_path / "password").write_text("secret\n")
    (tmp_path / "password").chmod(0o600)
    for options, env in (
        (("--password", "secret"), None),
        (("--password-file", tmp_path / "password"), None),
        (("--password-hex", b"secret".hex()), None),
        ((), {"BKCTL_LEDGER_PASSWORD": "secret"}),
    ):
        result = run_cli("entrylog", "scan", SAMPLES / "a", "--ledger", 7, *options, env=env)
        (row,) = from_ndjson(result.stdout)
        assert (row["digest"], row["digest_ok"]) == ("mac", True)
    (row,) = from_ndjson(run_cli("entrylog", "scan", SAMPLES / "a", "--ledger", 7).stdout)
    assert (row["digest"], row["digest_ok"]) == (None, None)


def test_no_output_shows_a_password(run_cli: Run) -> None:
    passwords = [
        facts["password_hex"]
        for facts in json.loads((DEMO / "manifest.json").read_text())["ledgers"].values()
    ]
    secrets = [text for text in passwords if len(text) >= 8]
    assert len(secrets) >= 3
    for verb in ("scan", "verify"):
        result = run_cli("entrylog", verb, DEMO, "--metadata", ZK)
        assert not [secret for secret in secrets if secret in result.stdout + result.stderr]


def test_verify_takes_digest_types_from_a_metadata_store(run_cli: Run, tmp_path: Path) -> None:
    """A MAC needs the password of the metadata; DUMMY has nothing to check."""
    uri = embedded_metadata(ZK, tmp_path)
    result = run_cli("entrylog", "verify", LOGS / "0.log", "--metadata", uri)
    (row,) = from_ndjson(result.stdout)
    assert (result.exit_code, row["verdict"], row["unchecked"], result.stderr) == (0, "clean", 0, "")
    absent = run_cli("entrylog", "verify", LOGS, "--metadata", f"embedded://{tmp_path}/none/m.db")
    assert absent.exit_code not in (0, 1, 3)


def test_verify_says_what_each_kind_of_metadata_leaves_open(run_cli: Run, tmp_path: Path) -> None:
    """The remedy depends on what is lacking: the type, the password, or the wish to check at all."""
    znodes = json.loads(ZK.read_text())
    for ledger in (2, 3):
        del znodes[f"/ledgers/00/0000/L000{ledger}"]
    dump = tmp_path / "zk.json"
    dump.write_text(json.dumps(znodes))
    deleted = run_cli("entrylog", "verify", LOGS / "0.log", "--metadata", dump)
    assert deleted.exit_code == 3
    assert "the metadata that was read has no such ledger" in deleted.stderr
    off = run_cli("entrylog", "verify", LOGS / "1.log", "--digest", "off")
    (row,) = from_ndjson(off.stdout)
    assert (off.exit_code, row["verdict"], row["unchecked"]) == (3, "unchecked", 133)
    assert off.stderr.endswith(": --digest off checks none; leave it away\n")
    mac = run_cli("entrylog", "verify", LOGS / "1.log", "--digest", "mac")
    assert mac.exit_code == 3
    assert "their digests are MACs: give the ledgers' password" in mac.stderr
    dummy = run_cli("entrylog", "verify", LOGS / "1.log", "--digest", "dummy")
    assert (dummy.exit_code, dummy.stderr) == (0, "")


def test_an_entry_that_is_corrupt_and_alone_is_not_called_clean(run_cli: Run, tmp_path: Path) -> None:
    """Of a ledger with one entry, and that one corrupt, the entries cannot show the digest type."""
    bookie = shutil.copytree(DEMO / "bookie1", tmp_path / "bookie1")
    rows = from_ndjson(run_cli("entrylog", "scan", bookie, "--ledger", "0").stdout)
    first, second = rows[0], rows[1]
    log = Path(first["path"])
    data = log.read_bytes()
    alone = tmp_path / "alone" / "0.log"
    alone.parent.mkdir()
    body = bytearray(data[first["offset"] - 4 : first["offset"] + first["size"]])
    body[-1] ^= 1
    assert second["offset"] > first["offset"]
    alone.write_bytes(b"BKLO" + bytes([0, 0, 0, 1]) + bytes(1016) + body)
    result = run_cli("entrylog", "verify", alone)
    (row,) = from_ndjson(result.stdout)
    assert (result.exit_code, row["verdict"], row["unchecked_ledgers"]) == (3, "unchecked", [0])
    result = run_cli("entrylog", "verify", alone, "--metadata", ZK)
    (row,) = from_ndjson(result.stdout)
    assert (result.exit_code, row["verdict"], row["unchecked"]) == (1, "damaged", 0)


def test_verify_names_what_damage_took(run_cli: Run, tmp_path: Path) -> None:
    """By the index beside the log, by the neighbours, by the map."""
    bookie = shutil.copytree(DEMO / "bookie1", tmp_path / "bookie1")
    log = bookie / "ledgers/current/0.log"
    data = bytearray(log.read_bytes())
    data[40_000:44_000] = bytes(4_000)
    log.write_bytes(data)
    result = run_cli("entrylog", "verify", log, "--metadata", ZK)
    (row,) = from_ndjson(result.stdout)
    assert (result.exit_code, row["verdict"]) == (1, "damaged")
    lost = {
        entry
        for damage in row["damage"]
        for gap in damage["missing"]
        if gap["ledger"] == 1 and gap["first_entry"] is not None
        for entry in range(gap["first_entry"], gap["last_entry"] + 1)
    }
    before = {key for key in scanned(run_cli, DEMO) if key[0] == 1}
    after = {key for key in scanned(run_cli, bookie) if key[0] == 1}
    gone = {entry for ledger, entry in before - after}
    assert gone
    assert gone <= lost
    table = run_cli("entrylog", "verify", log, "-o", "table")
    assert "lost: ledger 1 entr" in table.stderr


def scanned(run_cli: Run, path: Path) -> set[tuple[int, int]]:
    rows = from_ndjson(run_cli("entrylog", "scan", path, "--metadata", ZK).stdout)
    return {(row["ledger"], row["entry"]) for row in rows if row["digest_ok"]}


@pytest.mark.parametrize("verb", ["list", "scan", "verify", "show"])
def test_schema_names_the_keys(run_cli: Run, verb: str) -> None:
    keys = [row["key"] for row in from_csv(run_cli("entrylog", verb, "--schema", "-o", "csv").stdout)]
    target = ("0", DEMO) if verb == "show" else (DEMO,)
    payload = ("--payload", "hex") if verb == "scan" else ()
    first = run_cli("entrylog", verb, *target, *payload, "-o", "ndjson").stdout.splitlines()[0]
    assert list(json.loads(first)) == keys


def test_what_to_do_about_several_logs_is_said_once_and_behind_their_damage(
    run_cli: Run, tmp_path: Path
) -> None:
    logs = [tmp_path / f"{number}.log" for number in (20, 21)]
    for log in logs:
        shutil.copy(SAMPLES / "el/l/current/14.log", log)
    done = run_cli("entrylog", "verify", *logs, "--digest", "dummy", "-o", "table")
    assert done.exit_code == 1
    said = done.stderr.splitlines()
    (advice,) = (line for line in said if "has to come from other replicas" in line)
    assert said.index(advice) == len(said) - 1 > 1
    assert all(str(log) in advice for log in logs)
    assert advice.count("bkctl index check " + str(tmp_path)) == 1
