"""``bkctl cookie diff | generate | create | update | delete``: in directories and in the metadata store."""

from __future__ import annotations

import shutil
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bkctl.admin.cookies import changes
from bkctl.admin.cookies import in_metadata as online_cookies
from bkctl.admin.cookies.changes import Action
from bkctl.codec.cookie import decode_cookie, encode_cookie
from bkctl.directories.half_rebuilt import MARKER_NAME, encode_marker
from bkctl.directories.holders import DirectoryLock
from bkctl.errors import RefusedError
from bkctl.metadata.api import RegistrationMode
from bkctl.metadata.uri import open_metadata_store
from tests.support.doctored_bookie import DoctoredBookie
from tests.support.rows import from_csv, from_ndjson

DEMO = Path(__file__).parents[1] / "data" / "demo" / "bookie1"
BOOKIE = "127.0.0.1:4100"

Run = Callable[..., Any]


@pytest.fixture
def bookie(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DoctoredBookie:
    monkeypatch.delenv("BKCTL_METADATA_URI", raising=False)
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    return DoctoredBookie.of(DEMO, tmp_path / "bookie1")


def stored(bookie: DoctoredBookie, name: str = BOOKIE) -> bytes | None:
    with open_metadata_store(bookie.uri) as store:
        found = store.cookies.read_cookie(name)
    return None if found is None else found.data


def written(tmp_path: Path, bookie: DoctoredBookie, **fields: str) -> Path:
    path = tmp_path / "a-cookie"
    path.write_bytes(encode_cookie(replace(bookie.cookie, **fields)))  # type: ignore[arg-type]
    return path


def test_get_from_the_store(run_cli: Run, bookie: DoctoredBookie) -> None:
    (row,) = from_ndjson(run_cli("cookie", "get", BOOKIE, "--metadata", bookie.uri).stdout)
    assert (row["path"], row["source"]) == (f"/ledgers/cookies/{BOOKIE}", "znode")
    assert row["ledger_dirs"] == [str(bookie.root / "ledgers")]
    assert [row] == from_ndjson(run_cli("cookie", "get", "--conf", bookie.conf).stdout)
    result = run_cli("cookie", "get", "bookie-9", "--metadata", bookie.uri)
    assert (result.exit_code, "bookie bookie-9 has no cookie" in result.stderr) == (6, True)
    both = from_ndjson(run_cli("cookie", "get", bookie.root, BOOKIE, "--conf", bookie.conf).stdout)
    assert [row["source"] for row in both] == ["file", "file", "znode"]


def test_the_store_in_the_data_directory_here_is_the_default(
    run_cli: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bkctl-data").mkdir()
    with open_metadata_store(f"embedded://{tmp_path}/bkctl-data/metadata.db") as store:
        store.layout.initialise_cluster()
        store.cookies.create_cookie(
            "b:3181", b'5\nbookieHost: "b:3181"\njournalDir: "/j"\nledgerDirs: "1\\t/l"\n'
        )
    monkeypatch.chdir(tmp_path)
    env = {"BKCTL_METADATA_URI": None}
    for words in ((), ("b:3181",)):
        result = run_cli("cookie", "get", *words, env=env)
        assert [row["bookie_host"] for row in from_ndjson(result.stdout)] == ["b:3181"], result.stderr
    assert run_cli("cookie", "diff", "b:3181", "b:3181", env=env).exit_code == 0


def test_diff_of_what_agrees(run_cli: Run, bookie: DoctoredBookie) -> None:
    left_out = "; the metadata store and the instance id were left out (--no-metadata)"
    for words, checked in (
        (("--conf", bookie.conf), f"3 cookies compared with {bookie.conf}, nothing found"),
        (("--conf", bookie.conf, "--no-metadata"), f"compared with {bookie.conf}, nothing found{left_out}"),
        ((bookie.journal, bookie.ledgers), f"1 cookie compared with {bookie.journal}/VERSION, nothing found"),
        ((BOOKIE, bookie.root, "--metadata", bookie.uri), "2 cookies compared with /"),
    ):
        result = run_cli("cookie", "diff", *words)
        assert (result.exit_code, result.stdout) == (0, ""), words
        assert checked in result.stderr
        assert run_cli("--quiet", "cookie", "diff", *words) == (0, "", "")


def test_diff_explains_every_field(run_cli: Run, bookie: DoctoredBookie) -> None:
    changed = replace(
        bookie.cookie,
        bookie_host="10.1.2.3:4100",
        journal_dirs="/elsewhere/journal",
        ledger_dirs="2\t/a\t/b",
        index_dirs="1\t/i",
        instance_id="other",
    )
    bookie.stamp("ledgers", changed)
    result = run_cli("cookie", "diff", "--conf", bookie.conf)
    assert result.exit_code == 1
    rows = {row["field"]: row for row in from_ndjson(result.stdout)}
    assert list(rows) == ["bookie_host", "journal_dirs", "ledger_dirs", "index_dirs", "instance_id"]
    assert {row["path"] for row in rows.values()} == {f"{bookie.ledgers}/VERSION"}
    assert rows["bookie_host"]["cause"].startswith("the address changed")
    assert rows["journal_dirs"]["cause"].startswith("moved or mounted elsewhere")
    assert (rows["ledger_dirs"]["expected"], rows["ledger_dirs"]["found"]) == (
        str(bookie.root / "ledgers"),
        "/a,/b",
    )
    assert rows["instance_id"]["cause"].startswith("the cluster was formatted since")


def test_diff_tells_of_missing_cookies(run_cli: Run, bookie: DoctoredBookie) -> None:
    (bookie.ledgers / "VERSION").unlink()
    bookie.change_store(lambda _: None)
    rows = from_ndjson(run_cli("cookie", "diff", "--conf", bookie.conf).stdout)
    assert [(row["source"], row["field"], row["found"]) for row in rows] == [
        ("file", "cookie", None),
        ("znode", "cookie", None),
    ]
    result = run_cli("cookie", "diff", bookie.journal)
    assert (result.exit_code, "one cookie alone" in result.stderr) == (2, True)


def test_generate_of_a_configuration_and_of_options(run_cli: Run, bookie: DoctoredBookie) -> None:
    expected = encode_cookie(bookie.cookie).decode()
    result = run_cli("cookie", "generate", "--conf", bookie.conf)
    assert (result.exit_code, result.stdout) == (0, expected)
    dirs = ("--journal-dir", bookie.root / "journal", "--ledger-dir", bookie.root / "ledgers")
    result = run_cli("cookie", "generate", BOOKIE, *dirs, "--metadata", bookie.uri)
    assert result.stdout == expected
    result = run_cli("cookie", "generate", "my.bookie-7", *dirs, "--instance-id", "abc")
    cookie = decode_cookie(result.stdout.encode())
    assert (cookie.bookie_host, cookie.instance_id) == ("my.bookie-7", "abc")
    result = run_cli("cookie", "generate", "my.bookie-7", *dirs)
    assert "no instance id" in result.stderr
    assert decode_cookie(result.stdout.encode()).instance_id is None


def test_generate_into_a_new_file(run_cli: Run, bookie: DoctoredBookie, tmp_path: Path) -> None:
    out = tmp_path / "made"
    result = run_cli("cookie", "generate", "--conf", bookie.conf, "--out", out, "-o", "ndjson")
    assert [row["path"] for row in from_ndjson(result.stdout)] == [str(out)]
    assert out.read_bytes() == encode_cookie(bookie.cookie)
    assert run_cli("cookie", "generate", "--conf", bookie.conf, "--out", out).exit_code == 4


@pytest.mark.parametrize(
    "words",
    [
        ("b:1",),
        ("b:1", "--journal-dir", "/j"),
        ("b:1", "--journal-dir", "j", "--ledger-dir", "/l"),
        ("no blanks", "--journal-dir", "/j", "--ledger-dir", "/l"),
        ("b:1", "--conf", "x"),
    ],
)
def test_generate_needs_who_and_where(run_cli: Run, bookie: DoctoredBookie, words: tuple[str, ...]) -> None:
    assert run_cli("cookie", "generate", *words).exit_code == 2


def test_a_lost_cookie_is_created_again(run_cli: Run, bookie: DoctoredBookie) -> None:
    (bookie.ledgers / "VERSION").unlink()
    bookie.change_store(lambda _: None)
    words = (bookie.root / "ledgers", BOOKIE, "--file", bookie.journal / "VERSION", "--conf", bookie.conf)
    dry = from_ndjson(run_cli("cookie", "create", *words, "--dry-run").stdout)
    assert [(row["target"], row["action"], row["done"]) for row in dry] == [
        (f"{bookie.ledgers}/VERSION", "create", False),
        (BOOKIE, "create", False),
    ]
    assert not (bookie.ledgers / "VERSION").exists()
    assert run_cli("cookie", "create", *words).exit_code == 4, "nobody can be asked"
    done = run_cli("cookie", "create", *words, "--yes")
    assert [row["done"] for row in from_ndjson(done.stdout)] == [True, True]
    assert (bookie.ledgers / "VERSION").read_bytes() == encode_cookie(bookie.cookie) == stored(bookie)
    again = from_ndjson(run_cli("cookie", "create", *words, "--yes").stdout)
    assert [(row["action"], row["done"]) for row in again] == [("keep", True)] * 2


def test_create_never_replaces(run_cli: Run, bookie: DoctoredBookie, tmp_path: Path) -> None:
    other = written(tmp_path, bookie, instance_id="other")
    for target in (bookie.ledgers, BOOKIE):
        result = run_cli(
            "cookie", "create", target, "--file", other, "--conf", bookie.conf, "--yes", "--force"
        )
        assert (result.exit_code, "there is a cookie already" in result.stderr) == (4, True)


def test_update_keeps_what_was_there(run_cli: Run, bookie: DoctoredBookie, tmp_path: Path) -> None:
    before = encode_cookie(bookie.cookie)
    new = written(tmp_path, bookie, ledger_dirs=f"2\t{bookie.root}/ledgers\t{bookie.root}/ledgers2")
    targets = (bookie.root / "journal", bookie.root / "ledgers", BOOKIE)
    keep = tmp_path / "kept"
    keep.mkdir()
    words = (*targets, "--file", new, "--conf", bookie.conf, "--yes", "--backup-dir", keep)
    rows = from_ndjson(run_cli("cookie", "update", *words).stdout)
    assert [row["action"] for row in rows] == ["update"] * 3
    assert stored(bookie) == new.read_bytes() == (bookie.ledgers / "VERSION").read_bytes()
    backups = [Path(row["backup"]) for row in rows]
    assert len(set(backups)) == 3
    for backup in backups:
        assert backup.parent == keep
        assert backup.read_bytes() == before
        assert stat.S_IMODE(backup.stat().st_mode) == 0o600
    result = run_cli("cookie", "update", tmp_path / "bookie1/nothing", *words[1:])
    assert result.exit_code == 6


def test_delete_keeps_what_was_there(run_cli: Run, bookie: DoctoredBookie) -> None:
    words = (bookie.root / "ledgers", BOOKIE, "--conf", bookie.conf)
    dry = from_ndjson(run_cli("cookie", "delete", *words, "--dry-run").stdout)
    assert [(row["action"], row["backup"]) for row in dry] == [("delete", None)] * 2
    assert stored(bookie) is not None
    rows = from_ndjson(run_cli("cookie", "delete", *words, "--yes").stdout)
    assert all(Path(row["backup"]).read_bytes() == encode_cookie(bookie.cookie) for row in rows)
    assert stored(bookie) is None
    assert not (bookie.ledgers / "VERSION").exists()
    result = run_cli("cookie", "delete", BOOKIE, "--conf", bookie.conf, "--yes")
    assert (result.exit_code, "no cookie" in result.stderr) == (6, True)
    restored = run_cli(
        "cookie", "create", BOOKIE, "--file", rows[1]["backup"], "--conf", bookie.conf, "--yes"
    )
    assert restored.exit_code == 0
    assert stored(bookie) == encode_cookie(bookie.cookie)


def test_a_name_that_is_a_directory_and_a_bookie_is_asked_about(
    run_cli: Run, bookie: DoctoredBookie, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(bookie.root)
    result = run_cli("cookie", "delete", "ledgers", "--conf", bookie.conf, "--yes")
    assert (result.exit_code, "say ./ledgers" in result.stderr) == (2, True)
    assert (bookie.ledgers / "VERSION").exists()
    assert run_cli("cookie", "delete", "./ledgers", "--conf", bookie.conf, "--yes").exit_code == 0
    assert run_cli("cookie", "delete", "journal", "--yes").exit_code == 0, "no store is named: a path"
    assert stored(bookie) is not None


def test_a_registered_bookie_is_left_alone(run_cli: Run, bookie: DoctoredBookie, tmp_path: Path) -> None:
    new = written(tmp_path, bookie, journal_dirs="/x")
    with open_metadata_store(bookie.uri) as store:
        store.registration.register(BOOKIE, RegistrationMode.WRITABLE, b"")
        for words in (("delete", BOOKIE), ("update", BOOKIE, "--file", new)):
            result = run_cli("cookie", *words, "--conf", bookie.conf, "--yes")
            assert (result.exit_code, "is registered: it runs" in result.stderr) == (4, True)
        forced = run_cli("cookie", "update", BOOKIE, "--file", new, "--conf", bookie.conf, "--yes", "--force")
        assert forced.exit_code == 0
    assert stored(bookie) == new.read_bytes()


def test_a_directory_in_use_is_left_alone(run_cli: Run, bookie: DoctoredBookie) -> None:
    with DirectoryLock(str(bookie.ledgers)):
        result = run_cli("cookie", "delete", bookie.root / "ledgers", "--yes")
        assert (result.exit_code, "in use by" in result.stderr) == (4, True)
        assert (bookie.ledgers / "VERSION").exists()
        assert run_cli("cookie", "delete", bookie.root / "ledgers", "--yes", "--force").exit_code == 0


def test_a_bookie_that_uses_another_of_its_directories_is_left_alone(
    run_cli: Run, bookie: DoctoredBookie
) -> None:
    """An idle bookie may hold its journal alone; the cookie says which one that is."""
    with DirectoryLock(str(bookie.journal)):
        result = run_cli("cookie", "delete", bookie.root / "ledgers", "--yes")
        assert (result.exit_code, "in use by" in result.stderr) == (4, True)
    assert (bookie.ledgers / "VERSION").exists()


@pytest.mark.parametrize("step", ["apply_to_store", "apply_to_file"])
def test_what_is_half_done_keeps_a_bookie_from_starting(
    run_cli: Run, bookie: DoctoredBookie, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Deleting begins with the store, creating ends with it."""

    def refused(*_: object) -> None:
        raise RefusedError("not now")

    of_store = step == "apply_to_store"
    if not of_store:
        (bookie.ledgers / "VERSION").unlink()
        bookie.change_store(lambda _: None)
    monkeypatch.setattr(online_cookies if of_store else changes, step, refused)
    file = () if of_store else ("--file", bookie.journal / "VERSION")
    words = ("delete" if of_store else "create", bookie.root / "ledgers", BOOKIE, *file)
    assert run_cli("cookie", *words, "--conf", bookie.conf, "--yes").exit_code == 4
    assert (bookie.ledgers / "VERSION").exists() is of_store
    assert (stored(bookie) is not None) is of_store


@pytest.mark.parametrize("action", [Action.CREATE, Action.UPDATE, Action.DELETE])
def test_a_stored_cookie_that_changed_since_it_was_looked_at_stays(
    bookie: DoctoredBookie, action: Action
) -> None:
    new = encode_cookie(replace(bookie.cookie, journal_dirs="/x"))
    theirs = encode_cookie(replace(bookie.cookie, journal_dirs="/theirs"))
    if action is Action.CREATE:
        bookie.change_store(lambda _: None)
    with open_metadata_store(bookie.uri) as store:
        content = None if action is Action.DELETE else new
        (change,) = online_cookies.plan_stored(store, [BOOKIE], action, content, force=False)
        if action is Action.CREATE:
            store.cookies.create_cookie(BOOKIE, theirs)
        else:
            assert change.version is not None
            store.cookies.update_cookie(BOOKIE, theirs, change.version)
        with pytest.raises(RefusedError, match="was changed in the metadata store in the meantime"):
            online_cookies.apply_to_store(store, change)
    assert stored(bookie) == theirs


def test_a_cookie_that_does_not_fit_is_refused(run_cli: Run, bookie: DoctoredBookie, tmp_path: Path) -> None:
    for fields, target, text in (
        ({"bookie_host": "other:1"}, bookie.ledgers, "is the cookie of bookie 127.0.0.1:4100"),
        ({"bookie_host": "other:1"}, BOOKIE, "is that of bookie other:1, not of"),
        ({"instance_id": "other"}, BOOKIE, "is of cluster instance other"),
        ({"ledger_dirs": "1\t/elsewhere"}, bookie.ledgers, f"({bookie.root}/journal, /elsewhere)"),
    ):
        new = written(tmp_path, bookie, **fields)
        result = run_cli("cookie", "update", target, "--file", new, "--conf", bookie.conf, "--yes")
        assert (result.exit_code, text in result.stderr) == (4, True), result.stderr
    (tmp_path / "junk").write_text("no cookie")
    for target in (bookie.ledgers, BOOKIE):
        words = (target, "--file", tmp_path / "junk", "--conf", bookie.conf, "--yes", "--force")
        result = run_cli("cookie", "update", *words)
        assert (result.exit_code, f"{tmp_path}/junk" in result.stderr) == (2, True), result.stderr
    assert stored(bookie) == encode_cookie(bookie.cookie)


def test_an_emptied_directory_gets_no_cookie(run_cli: Run, bookie: DoctoredBookie) -> None:
    """It would pass for one that has its data."""
    shutil.rmtree(bookie.ledgers)
    words = (bookie.root / "ledgers", "--file", bookie.journal / "VERSION", "--yes")
    result = run_cli("cookie", "create", *words)
    assert (result.exit_code, "a lost disk would pass" in result.stderr) == (4, True)
    assert run_cli("cookie", "create", *words, "--force").exit_code == 0
    assert (bookie.ledgers / "VERSION").read_bytes() == encode_cookie(bookie.cookie)


def test_a_half_rebuilt_directory_gets_no_cookie(run_cli: Run, bookie: DoctoredBookie) -> None:
    """The bookie would deny what has no row yet."""
    cookie = bookie.ledgers / "VERSION"
    cookie.unlink()
    (bookie.ledgers / MARKER_NAME).write_bytes(encode_marker(()))
    words = (bookie.root / "ledgers", "--file", bookie.journal / "VERSION", "--yes")
    result = run_cli("cookie", "create", *words)
    assert (result.exit_code, "bkctl bookie rebuild` was cut off here" in result.stderr) == (4, True)
    assert not cookie.exists()
    assert run_cli("cookie", "create", *words, "--force").exit_code == 0
    assert cookie.exists()


def test_schemas(run_cli: Run) -> None:
    for verb in ("create", "update", "delete"):
        keys = [row["key"] for row in from_csv(run_cli("cookie", verb, "--schema", "-o", "csv").stdout)]
        assert keys == ["target", "source", "action", "bookie_host", "backup", "done"]
    keys = [row["key"] for row in from_csv(run_cli("cookie", "diff", "--schema", "-o", "csv").stdout)]
    assert keys == ["path", "source", "field", "expected", "found", "cause", "next", "commands", "instead"]
