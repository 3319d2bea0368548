"""``bookie convert`` as a command: what it prints, what it says of the configuration, whom it keeps out."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bkctl.admin.conversion import switch
from bkctl.directories.bookie_directories import directory_facts
from bkctl.errors import RefusedError
from bkctl.scan.directory import OLD_INDEX_PREFIX
from bkctl.storage_kinds import DB, IDX, INTERLEAVED_LEDGER_STORAGE, SORTED_LEDGER_STORAGE, StorageKind
from bkctl.vfs import PosixFileSystem
from tests.support.convertible_bookie import ConvertibleBookie

Cli = Callable[..., Any]
Make = Callable[[StorageKind], ConvertibleBookie]


class StoppedError(Exception):
    pass


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """A bookie with two ledger directories, and its configuration, which names no storage."""

    def made(kind: StorageKind) -> ConvertibleBookie:
        bookie = ConvertibleBookie.make(tmp_path / "bookie", kind, 2)
        lines = [
            f"journalDirectories={bookie.root / 'j'}",
            f"ledgerDirectories={','.join(map(str, bookie.homes()))}",
            f"metadataServiceUri=embedded://{tmp_path}/metadata.db",
        ]
        (tmp_path / "bk.conf").write_text("\n".join(lines) + "\n")
        return bookie

    return made


def test_it_says_which_line_of_the_configuration_is_to_change(
    make: Make, run_cli: Cli, tmp_path: Path
) -> None:
    bookie, conf = make(DB), tmp_path / "bk.conf"
    planned = run_cli("bookie", "convert", "--conf", conf, "--to", "sorted", "--dry-run")
    assert planned.exit_code == 0, planned.stderr
    assert f"once it is converted, say ledgerStorageClass={SORTED_LEDGER_STORAGE} in {conf}" in planned.stderr
    done = run_cli("bookie", "convert", "--conf", conf, "--to", "interleaved", "--yes", "-o", "json")
    assert done.exit_code == 0, done.stderr
    assert f"say ledgerStorageClass={INTERLEAVED_LEDGER_STORAGE} in {conf}" in done.stderr
    assert "1 ledger in limbo" in done.stderr
    rows = json.loads(done.stdout)
    assert [row["dir"] for row in rows] == [str(bookie.current(0)), str(bookie.current(1))]
    assert {row["state"] for row in rows} == {"converted"}
    assert all(Path(row["kept"]).is_dir() for row in rows)
    bookie.check(IDX)
    with conf.open("a") as file:
        file.write(f"ledgerStorageClass={INTERLEAVED_LEDGER_STORAGE}\n")
    again = run_cli("bookie", "convert", "--conf", conf, "--to", "interleaved", "--yes")
    assert again.exit_code == 0
    assert "nothing was changed" in again.stderr
    assert "say ledgerStorageClass" not in again.stderr


def test_a_kept_index_is_removed_only_when_it_is_asked_for(make: Make, run_cli: Cli, tmp_path: Path) -> None:
    bookie, conf = make(IDX), tmp_path / "bk.conf"
    assert run_cli("bookie", "convert", "--conf", conf, "--to", "db", "--yes").exit_code == 0
    kept = list(bookie.root.glob(f"*/current/{OLD_INDEX_PREFIX}*"))
    assert len(kept) == 2
    assert run_cli("index", "rebuild", bookie.root, "--drop-old", "--yes").exit_code == 0
    assert all(path.is_dir() for path in kept), "of another kind, and not this command's"
    told = json.loads(run_cli("doctor", "--conf", conf, "--notes", "-o", "json").stdout)
    notes = [row for row in told if row["kind"] == "old_index"]
    assert {row["path"] for row in notes} == set(map(str, kept))
    assert all(row["commands"][0][:3] == ["bkctl", "bookie", "convert"] for row in notes)
    named = run_cli("bookie", "convert", "--conf", conf, "--drop-old", "--dry-run")
    assert all(str(path) in named.stderr for path in kept)
    assert all(path.is_dir() for path in kept)
    assert run_cli("bookie", "convert", "--conf", conf, "--drop-old", "--yes").exit_code == 0
    assert not any(path.exists() for path in kept)
    bookie.check(DB)


@pytest.mark.parametrize("back", [False, True])
def test_what_is_cut_off_is_refused_to_others_and_goes_on(
    make: Make, run_cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, back: bool
) -> None:
    bookie, conf = make(DB), tmp_path / "bk.conf"

    def stop(*_: object) -> None:
        raise StoppedError

    with monkeypatch.context() as patch:
        patch.setattr(switch, "_return_cookie", stop)
        assert run_cli("bookie", "convert", "--conf", conf, "--to", "interleaved", "--yes").exit_code == 7
    for words in (("index", "rebuild", bookie.root, "--yes"), ("gc", "run", bookie.root, "--yes")):
        refused = run_cli(*words)
        assert refused.exit_code == 4, refused.stderr
        assert (
            "'bkctl bookie convert --to interleaved' finishes it, '--to db' undoes it"
            in refused.stderr.replace("\n", " ")
        )
    told = {row["kind"] for row in json.loads(run_cli("doctor", bookie.root, "-o", "json").stdout)}
    assert "unfinished_conversion" in told
    assert not told & {"missing_cookie", "unfinished_rebuild"}, "a cookie put there would let it start"
    for path in bookie.homes():
        with pytest.raises(RefusedError, match="was interrupted"):
            directory_facts(PosixFileSystem(), str(path), holds_index=True)
    went_on = run_cli(
        "bookie", "convert", "--conf", conf, "--to", "db" if back else "sorted", "--yes", "-o", "json"
    )
    assert went_on.exit_code == 0, went_on.stderr
    assert {row["state"] for row in json.loads(went_on.stdout)} == {"rolled_back" if back else "resumed"}
    bookie.check(DB if back else IDX)


@pytest.mark.parametrize(
    "words", [(), ("--to", "db", "--drop-old"), ("--to", "rocks"), ("--to", "db", "--jobs", "0")]
)
def test_wrong_calls_are_told(make: Make, run_cli: Cli, tmp_path: Path, words: tuple[str, ...]) -> None:
    make(DB)
    assert run_cli("bookie", "convert", "--conf", tmp_path / "bk.conf", *words).exit_code == 2
