"""The folders of ``tests/unit`` are those of the package; a module in one is named after what it tries."""

from __future__ import annotations

from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
PACKAGE, UNIT = REPOSITORY / "bkctl", REPOSITORY / "tests/unit"


def without_a_package(unit: Path, package: Path) -> list[str]:
    """Folders with tests of which the package has no like."""
    folders = {path.parent.relative_to(unit) for path in unit.rglob("test_*.py")}
    return sorted(str(folder) for folder in folders if not (package / folder / "__init__.py").is_file())


def test_the_tests_of_a_part_stand_where_the_part_does() -> None:
    assert without_a_package(UNIT, PACKAGE) == []


def test_a_folder_of_its_own_is_seen(tmp_path: Path) -> None:
    for name in ("unit/scan", "unit/stories", "package/scan"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "test_x.py").touch()
    (tmp_path / "package/scan/__init__.py").touch()
    assert without_a_package(tmp_path / "unit", tmp_path / "package") == ["stories"]
