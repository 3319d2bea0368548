"""The pictures of ``docs/pictures`` are those that ``docs/make_top.py`` draws."""

from __future__ import annotations

import importlib.util
import re
import xml.etree.ElementTree as ElementTree  # of our own files
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
_spec = importlib.util.spec_from_file_location("make_top", REPOSITORY / "docs" / "make_top.py")
assert _spec is not None
assert _spec.loader is not None
make_top = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(make_top)

pytestmark = pytest.mark.usefixtures("utc")


def words(picture: str) -> list[str]:
    """The text of a picture; how the library lays it out is its own affair."""
    return re.findall(r">([^<\s]+)</tspan>", picture)


def test_every_picture_is_current_and_asks_nobody_for_a_font() -> None:
    drawn = make_top.pictures()
    assert {path.name for path in make_top.FOLDER.glob("top-*.svg")} == set(drawn)
    for name, picture in drawn.items():
        kept = (make_top.FOLDER / name).read_text(encoding="utf-8")
        assert any(word.startswith("bookie-3:3181") for word in words(kept))
        assert words(kept) == words(picture), f"{name}: python docs/make_top.py draws it anew"
        assert "@font-face" not in kept
        ElementTree.fromstring(kept)


@pytest.mark.parametrize("argument", ["--help", "--check", "elsewhere"])
def test_an_argument_is_refused_before_anything_is_drawn(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, argument: str
) -> None:
    monkeypatch.setattr(make_top, "FOLDER", tmp_path / "pictures")
    assert make_top.main([argument]) == 2
    assert argument in capsys.readouterr().err
    assert not (tmp_path / "pictures").exists()
