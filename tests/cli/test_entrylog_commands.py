"""``bkctl entrylog`` on files that a real bookie wrote."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.rows import from_csv, from_ndjson, same_in_every_format
from tests.support.stored_metadata import embedded_metadata

DATA = Path(__file__).parents[1] / "data"
DEMO = DATA / "demo"
LOGS = DEMO / "bookie1/ledgers/current"
SAMPLES = DATA / "samples"
ZK = DEMO / "zk.json"

Run = Callable[..., Any]

SCAN_KEYS = [
    "dir", "log_id", "path", "offset", "size", "ledger", "entry", "lac", "ledger_length", "payload_bytes",
    "digest", "digest_ok",
]  # fmt: skip
WITH_LOGS = sorted({path.parents[2] for path in SAMPLES.rglob("l*/current/*.log")})


# ---------------------------------------------------------------------------------------------------- list


def test_list(run_cli: Run) -> None:
    rows = same_in_every_format(run_cli, "entrylog", "list", DEMO)
    assert [tuple(row.items()) for row in rows] == [
        tuple(
            {
                "dir": str(LOGS),
                "log_id": log_id,
                "path": str(LOGS / f"{log_id:x}.log"),
                "bytes": size,
                "version": version,
                "has_ledgers_map": ledgers is not None,
                "ledgers": ledgers,
            }.items()
        )
        for log_id, size, version, ledgers in ((0, 125_874, 1, 4), (1, 25_249, 1, None), (2, 0, None, None))
    ]


def test_list_as_a_table(run_cli: Run) -> None:
    table = run_cli("entrylog", "list", DEMO, "-o", "table").stdout.splitlines()
    assert table[0].split() == ["dir", "log_id", "path", "bytes", "version", "has_ledgers_map", "ledgers"]
    assert table[2].split() == [str(LOGS), "0", str(LOGS / "0.log"), "125874", "1", "true", "4"]
    assert len(table) == 5


def test_list_names_the_directory_of_every_log(run_cli: Run) -> None:
    """Two ledger directories have two logs 0."""
    rows = from_ndjson(run_cli("entrylog", "list", SAMPLES / "m").stdout)
    assert [(Path(row["dir"]).parent.name, row["log_id"]) for row in rows] == [
        ("l1", 0), ("l1", 1), ("l2", 0), ("l2", 1),
    ]  # fmt: skip


# ---------------------------------------------------------------------------------------------------- scan


def test_scan_keys_and_values(run_cli: Run) -> None:
    result = run_cli("entrylog", "scan", SAMPLES / "a", "--password", "secret")
    rows = from_ndjson(result.stdout)
    assert result.exit_code == 0
    assert [list(row) for row in rows] == [SCAN_KEYS] * 6
    current = SAMPLES / "a/l/current"
    assert rows[1] == {
        "dir": str(current), "log_id": 0, "path": str(current / "0.log"), "offset": 1078, "size": 46,
        "ledger": 5, "entry": 1, "lac": 0, "ledger_length": 20, "payload_bytes": 10, "digest": "crc32c",
        "digest_ok": True,
    }  # fmt: skip
    digests = {row["ledger"]: (row["digest"], row["digest_ok"], row["payload_bytes"]) for row in rows}
    assert digests == {
        5: ("crc32c", True, 10),
        7: ("mac", True, 5),
        8: (None, None, None),  # DUMMY is not known without metadata
        19088743: ("crc32", True, 5),
    }


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


def test_payload_forms(run_cli: Run) -> None:
    def payloads(form: str) -> list[str | None]:
        rows = from_ndjson(
            run_cli("entrylog", "scan", SAMPLES / "a", "--ledger", 5, "--payload", form).stdout
        )
        assert [list(row) for row in rows] == [[*SCAN_KEYS, "payload"]] * 3
        return [row["payload"] for row in rows]

    data = b"abcdefghij"
    assert payloads("text") == ["abcdefghij"] * 3
    assert payloads("hex") == [data.hex()] * 3
    assert payloads("base64") == [b64encode(data).decode()] * 3
    assert payloads("sha256") == [hashlib.sha256(data).hexdigest()] * 3


def test_a_payload_whose_digest_is_not_known_is_null(run_cli: Run) -> None:
    (row,) = from_ndjson(run_cli("entrylog", "scan", SAMPLES / "a", "--ledger", 8, "--payload", "hex").stdout)
    assert [row[key] for key in ("digest", "digest_ok", "payload", "payload_bytes")] == [None] * 4


@pytest.mark.parametrize("spelling", ["1", "0x1", "1.log", "0X1"])
def test_a_log_has_three_spellings(run_cli: Run, spelling: str) -> None:
    rows = from_ndjson(run_cli("entrylog", "scan", DEMO, "--log", spelling).stdout)
    assert {row["log_id"] for row in rows} == {1}
    assert len(rows) == 133


@pytest.mark.parametrize("spelling", ["28", "0x1c", "1c.log"])
def test_a_hexadecimal_log_has_three_spellings(run_cli: Run, tmp_path: Path, spelling: str) -> None:
    shutil.copy(LOGS / "0.log", tmp_path / "1c.log")
    shutil.copy(LOGS / "1.log", tmp_path / "28.log")
    for command in (("scan", tmp_path, "--log", spelling), ("show", spelling, tmp_path, "--walk")):
        (answer,) = {
            row["log_id"] for row in from_ndjson(run_cli("entrylog", *command, "-o", "ndjson").stdout)
        }
        assert answer == 0x1C


def test_filters(run_cli: Run) -> None:
    def keys(*filters: object) -> list[tuple[int, int]]:
        result = run_cli("entrylog", "scan", DEMO, *filters)
        assert result.exit_code == 0
        return [(row["ledger"], row["entry"]) for row in from_ndjson(result.stdout)]

    assert keys("--ledger", 2, "--entry", "10-13") == [(2, 10), (2, 11), (2, 13)]
    assert keys("--ledger", 3, "--entry", "6") == [(3, 6)]
    assert keys("--entry", "199") == [(0, 199), (1, 199), (2, 199)]
    assert len(keys("--ledger", 4)) == 100
    assert keys("--ledger", 99) == []
    assert keys("--log", 0, "--ledger", 4) == []


def test_digest_modes(run_cli: Run) -> None:
    def digests(*options: object) -> tuple[int, set[tuple[str | None, bool | None]]]:
        result = run_cli("entrylog", "scan", DEMO, "--ledger", 0, *options)
        return result.exit_code, {(row["digest"], row["digest_ok"]) for row in from_ndjson(result.stdout)}

    assert digests() == (0, {("crc32", True)})
    assert digests("--digest", "crc32") == (0, {("crc32", True)})
    assert digests("--digest", "crc32c") == (1, {("crc32c", False)})
    assert digests("--digest", "off") == (0, {(None, None)})
    assert digests("--digest", "off", "--ledger-metadata", ZK) == (0, {("crc32", None)})
    assert digests("--digest", "dummy") == (0, {("dummy", True)})


def test_ledger_metadata_gives_types_and_passwords(run_cli: Run) -> None:
    result = run_cli("entrylog", "scan", DEMO, "--ledger-metadata", ZK)
    found = {row["ledger"]: (row["digest"], row["digest_ok"]) for row in from_ndjson(result.stdout)}
    types = {0: "crc32", 1: "crc32c", 2: "mac", 3: "dummy", 4: "crc32c", 5: "crc32c"}
    assert result.exit_code == 0
    assert found == {ledger: (digest, True) for ledger, digest in types.items()}


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
        result = run_cli("entrylog", verb, DEMO, "--ledger-metadata", ZK)
        assert not [secret for secret in secrets if secret in result.stdout + result.stderr]


# ---------------------------------------------------------------------------------------------------- show


def test_show_by_map_and_by_walk_agree(run_cli: Run) -> None:
    by_map, walked = (
        json.loads(run_cli("entrylog", "show", "0", DEMO, *options).stdout) for options in ((), ("--walk",))
    )
    assert list(by_map) == ["dir", "log_id", "path", "bytes", "entries", "ledgers", "source", "damage"]
    assert (by_map["source"], by_map["entries"], walked["source"], walked["entries"]) == (
        "map",
        None,
        "walk",
        532,
    )
    assert by_map["ledgers"] == [{**share, "entries": None} for share in walked["ledgers"]]
    assert walked["ledgers"] == [
        {"ledger": 0, "bytes": 24_941, "entries": 133},
        {"ledger": 1, "bytes": 28_528, "entries": 133},
        {"ledger": 2, "bytes": 35_604, "entries": 133},
        {"ledger": 3, "bytes": 35_689, "entries": 133},
    ]
    assert walked["damage"] == []


def test_show_walks_a_log_without_a_map(run_cli: Run) -> None:
    shown = json.loads(run_cli("entrylog", "show", LOGS / "1.log").stdout)
    assert (shown["source"], shown["entries"], len(shown["ledgers"])) == ("walk", 133, 2)


def test_show_in_every_format(run_cli: Run) -> None:
    command = ("entrylog", "show", "0", DEMO)
    shown = json.loads(run_cli(*command, "-o", "json").stdout)
    assert from_ndjson(run_cli(*command, "-o", "ndjson").stdout) == [shown]
    (row,) = from_csv(run_cli(*command, "-o", "csv").stdout)
    assert json.loads(row["ledgers"]) == shown["ledgers"]
    table = run_cli(*command, "-o", "table").stdout
    assert "log 0 (0x0), 125874 bytes, 4 ledgers by map" in table
    assert [line.split() for line in table.splitlines()[3:]] == [
        ["0", "24941"], ["1", "28528"], ["2", "35604"], ["3", "35689"],
    ]  # fmt: skip


def test_show_wants_one_log(run_cli: Run) -> None:
    many = run_cli("entrylog", "show", "0", SAMPLES / "m")
    assert (many.exit_code, many.stdout) == (2, "")
    assert "2 logs fit" in many.stderr
    assert run_cli("entrylog", "show", "0", "1", DEMO).exit_code == 2
    assert run_cli("entrylog", "show", "7", DEMO).exit_code == 6


def test_show_falls_back_to_a_walk_when_the_map_is_bad(run_cli: Run) -> None:
    result = run_cli("entrylog", "show", SAMPLES / "el/l/current/c.log")
    shown = json.loads(result.stdout)
    assert result.exit_code == 1
    assert (shown["source"], shown["ledgers"]) == ("walk", [{"ledger": 5, "bytes": 100, "entries": 2}])
    assert [(damage["offset"], damage["reason"]) for damage in shown["damage"]] == [(1124, "ledgers map")]
    assert "c.log: damage at 1124" in result.stderr


# -------------------------------------------------------------------------------------------------- verify


def test_verify_a_clean_bookie(run_cli: Run) -> None:
    rows = same_in_every_format(run_cli, "entrylog", "verify", DEMO, "--ledger-metadata", ZK)
    assert rows[0] == {
        "path": str(LOGS / "0.log"), "verdict": "clean", "tail": "clean", "records": 532, "entries": 532,
        "unchecked": 0, "unchecked_ledgers": [], "first_bad_offset": None, "bytes_salvageable": 124_850,
        "damages": 0, "damage": [], "next": None, "commands": [], "instead": None,
    }  # fmt: skip
    assert [(row["verdict"], row["records"]) for row in rows] == [
        ("clean", 532),
        ("clean", 133),
        ("clean", 0),
    ]


def test_verify_says_what_it_could_not_check(run_cli: Run) -> None:
    """Nothing is wrong with what could be checked, but that is not all: the verdict is not 'clean'."""
    result = run_cli("entrylog", "verify", LOGS / "0.log", LOGS / "1.log")
    row, other = from_ndjson(result.stdout)
    assert result.exit_code == 3
    assert (row["verdict"], row["tail"], row["unchecked"]) == ("unchecked", "clean", 266)
    assert (row["entries"], row["unchecked_ledgers"]) == (532, [2, 3])
    assert (other["verdict"], other["unchecked"]) == ("clean", 0)
    assert result.stderr == (
        "bkctl: unchecked: 266 of 665 entries could not be checked (ledgers 2, 3): their digest types are "
        "not known: give --metadata-uri URI or --ledger-metadata FILE; for a ledger with MAC digests its "
        "password does, too\n"
    )


def test_verify_takes_digest_types_from_a_metadata_store(run_cli: Run, tmp_path: Path) -> None:
    """A MAC needs the password of the metadata; DUMMY has nothing to check."""
    uri = embedded_metadata(ZK, tmp_path)
    result = run_cli("entrylog", "verify", LOGS / "0.log", "--metadata-uri", uri)
    (row,) = from_ndjson(result.stdout)
    assert (result.exit_code, row["verdict"], row["unchecked"], result.stderr) == (0, "clean", 0, "")
    absent = run_cli("entrylog", "verify", LOGS, "--metadata-uri", f"embedded://{tmp_path}/none/m.db")
    assert absent.exit_code not in (0, 1, 3)


def test_verify_says_what_each_kind_of_metadata_leaves_open(run_cli: Run, tmp_path: Path) -> None:
    """The remedy depends on what is lacking: the type, the password, or the wish to check at all."""
    znodes = json.loads(ZK.read_text())
    for ledger in (2, 3):
        del znodes[f"/ledgers/00/0000/L000{ledger}"]
    dump = tmp_path / "zk.json"
    dump.write_text(json.dumps(znodes))
    deleted = run_cli("entrylog", "verify", LOGS / "0.log", "--ledger-metadata", dump)
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
    result = run_cli("entrylog", "verify", alone, "--ledger-metadata", ZK)
    (row,) = from_ndjson(result.stdout)
    assert (result.exit_code, row["verdict"], row["unchecked"]) == (1, "damaged", 0)


def test_damage_beside_unchecked_entries_is_listed(run_cli: Run) -> None:
    """Of both exit codes 3 counts: more damage may be among the entries that were not checked."""
    path = SAMPLES / "el/l/current/14.log"
    result = run_cli("entrylog", "verify", path)
    (row,) = from_ndjson(result.stdout)
    assert (result.exit_code, row["verdict"], row["damages"]) == (3, "damaged", 1)
    assert row["unchecked"] == row["entries"] > 0
    assert result.stderr.splitlines()[-1] == "bkctl: 1 of 1 file is damaged"


def test_verify_names_damage(run_cli: Run) -> None:
    path = SAMPLES / "el/l/current/14.log"
    result = run_cli("entrylog", "verify", path, "--digest", "dummy")
    (row,) = from_ndjson(result.stdout)
    assert result.exit_code == 1
    assert (row["verdict"], row["first_bad_offset"], row["damages"]) == ("damaged", 1124, 1)
    (damage,) = row["damage"]
    assert list(damage) == ["offset", "bytes", "reason", "expected", "found", "missing"]
    assert (damage["offset"], damage["bytes"], damage["reason"]) == (1124, 512, "zeros")
    table = run_cli("entrylog", "verify", path, "-o", "table", "--digest", "dummy")
    assert table.exit_code == 1
    assert f"{path}: damage at 1124, 512 bytes: zeros, expected a record, found zeros" in table.stderr
    assert "damaged" in table.stdout


def test_verify_names_what_damage_took(run_cli: Run, tmp_path: Path) -> None:
    """By the index beside the log, by the neighbours, by the map."""
    bookie = shutil.copytree(DEMO / "bookie1", tmp_path / "bookie1")
    log = bookie / "ledgers/current/0.log"
    data = bytearray(log.read_bytes())
    data[40_000:44_000] = bytes(4_000)
    log.write_bytes(data)
    result = run_cli("entrylog", "verify", log, "--ledger-metadata", ZK)
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
    rows = from_ndjson(run_cli("entrylog", "scan", path, "--ledger-metadata", ZK).stdout)
    return {(row["ledger"], row["entry"]) for row in rows if row["digest_ok"]}


def test_scan_tells_damage_on_stderr_and_goes_on(run_cli: Run) -> None:
    path = SAMPLES / "el/l/current/7.log"
    result = run_cli("entrylog", "scan", path)
    assert result.exit_code == 1
    assert [row["offset"] for row in from_ndjson(result.stdout)] == [1028, 1078, 1132]
    assert result.stderr == (
        f"bkctl: {path}: damage at 1124, 4 bytes: record size, expected 16 to 134217728, found 2147483647\n"
    )


def test_a_torn_tail_is_no_finding(run_cli: Run) -> None:
    result = run_cli("entrylog", "verify", SAMPLES / "el/l/current/2.log", "--digest", "dummy")
    (row,) = from_ndjson(result.stdout)
    assert (result.exit_code, result.stderr, row["verdict"], row["damage"]) == (0, "", "torn_tail", [])


# ---------------------------------------------------------------------------------------------- exit codes


@pytest.mark.parametrize("verb", ["list", "scan", "verify"])
def test_exit_codes(run_cli: Run, tmp_path: Path, verb: str) -> None:
    (tmp_path / "loop.log").symlink_to("loop.log")
    (tmp_path / "empty").mkdir()
    (tmp_path / "note.txt").write_text("no entry log")
    os.mkfifo(tmp_path / "f.log")
    for path, code, word in (
        (tmp_path / "none.log", 6, "none.log: no such file"),
        (tmp_path / "none", 6, "none: no such file"),
        (tmp_path / "empty", 2, "empty: no journal, entry log, index or cookie"),
        (tmp_path / "note.txt", 2, "note.txt: is not an entry log"),
        (SAMPLES / "jr", 2, "jr: no entry log and no ledger directory in it"),
        (tmp_path / "loop.log", 7, "loop.log: Too many levels"),
        (tmp_path / "f.log", 7, "f.log: not a regular file"),
    ):
        result = run_cli("entrylog", verb, path)
        assert (result.exit_code, result.stdout) == (code, ""), path
        assert word in result.stderr
    assert run_cli("entrylog", verb).exit_code == 2


def test_wrong_usage(run_cli: Run) -> None:
    for options in (
        ("--log", "xyz"),
        ("--log", "1c"),
        ("--entry", "9-3"),
        ("--ledger", "x"),
        ("--digest", "md5"),
        ("--payload", "png"),
        ("--password", "a", "--password-hex", "00"),
        ("--password-hex", "0"),
        ("-o", "xml"),
    ):
        result = run_cli("entrylog", "scan", DEMO, *options)
        assert (result.exit_code, result.stdout) == (2, ""), options
    assert run_cli("entrylog", "scan", DEMO, "--log", "7").exit_code == 6
    assert run_cli("entrylog", "scan", DEMO, "--ledger-metadata", DEMO / "none.json").exit_code == 6
    bad = run_cli("entrylog", "scan", DEMO, "--ledger-metadata", DEMO / "bookie1/bk_server.conf")
    assert bad.exit_code == 1
    assert "bk_server.conf" in bad.stderr


def test_a_bookie_that_never_flushed_has_no_logs_and_that_is_no_mistake(run_cli: Run, tmp_path: Path) -> None:
    """SortedLedgerStorage makes its first log at the first flush; until then all is in the journal."""
    bookie = shutil.copytree(DEMO / "bookie1", tmp_path / "bookie1")
    for log in (bookie / "ledgers/current").glob("*.log"):
        log.unlink()
    for verb in ("list", "scan", "verify"):
        result = run_cli("entrylog", verb, bookie, "-o", "ndjson")
        assert (result.exit_code, result.stdout) == (0, ""), (verb, result.stderr)


@pytest.mark.parametrize("verb", ["list", "scan", "verify", "show"])
def test_schema_names_the_keys(run_cli: Run, verb: str) -> None:
    keys = [row["key"] for row in from_csv(run_cli("entrylog", verb, "--schema", "-o", "csv").stdout)]
    target = ("0", DEMO) if verb == "show" else (DEMO,)
    payload = ("--payload", "hex") if verb == "scan" else ()
    first = run_cli("entrylog", verb, *target, *payload, "-o", "ndjson").stdout.splitlines()[0]
    assert list(json.loads(first)) == keys
