"""Which bookies a rebuild of many finds in the paths that it is given."""

from __future__ import annotations

from pathlib import Path

import pytest

from bkctl.pipeline.index_rebuild import placements
from bkctl.storage_kinds import IDX
from bkctl.vfs import PosixFileSystem
from tests.support.convertible_bookie import ConvertibleBookie


def test_a_bookie_is_rebuilt_once_however_its_directories_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bookie = ConvertibleBookie.make(tmp_path / "bookie", IDX, 3).root
    monkeypatch.chdir(bookie)
    (found,) = placements(PosixFileSystem(), [str(bookie / "l1"), "l0", str(bookie / "l2")])
    dirs = {Path(pair.ledger_dir).resolve() for pair in found.directories}
    assert dirs == {bookie / name / "current" for name in ("l0", "l1", "l2")}
