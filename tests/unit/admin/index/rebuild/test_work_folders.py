"""What a rebuild that fails leaves of its work folders."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from bkctl.admin.index.rebuild.options import nothing
from bkctl.admin.index.rebuild.work_folders import removed_on_failure
from bkctl.errors import BkctlError, RefusedError


def left(
    folder: Path,
    *,
    earlier: bool = False,
    has_begun: bool = False,
    marker: bool = False,
    recheck: Callable[[], None] = nothing,
    error: BaseException,
) -> bool:
    """Whether the folder stays when what works in it fails."""
    work = folder / "work"
    if earlier:
        work.mkdir()

    def fails() -> None:
        with removed_on_failure([str(work), str(folder / "other")], lambda: has_begun, recheck):
            work.mkdir(exist_ok=True)
            (work / "run").write_bytes(b"rows")
            if marker:
                (work / "swap.json").write_bytes(b"{}")
            raise error

    with pytest.raises(type(error)) as raised:
        fails()
    assert raised.value is error
    return work.exists()


def used() -> None:
    raise RefusedError("in use by another process")


def test_a_rebuild_that_changed_nothing_leaves_nothing(tmp_path: Path) -> None:
    assert not left(tmp_path, error=BkctlError("refused"))
    assert not list(tmp_path.iterdir())


def test_what_a_rerun_goes_on_with_stays(tmp_path: Path) -> None:
    kept = [
        {"earlier": True},
        {"has_begun": True},
        {"marker": True},
    ]
    for number, why in enumerate(kept):
        folder = tmp_path / str(number)
        folder.mkdir()
        assert left(folder, **why, error=BkctlError("refused")), why  # type: ignore[arg-type]


def test_a_folder_stays_while_others_use_the_directories(tmp_path: Path) -> None:
    assert left(tmp_path, recheck=used, error=BkctlError("the disk is full"))


def test_a_kill_is_no_failure(tmp_path: Path) -> None:
    assert left(tmp_path, error=KeyboardInterrupt())
