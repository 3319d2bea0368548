"""The configuration files that released bookies are shipped with, below ``tests/data/stock_conf``."""

from __future__ import annotations

from pathlib import Path

STOCK_CONFIGURATIONS = tuple(
    sorted((Path(__file__).resolve().parents[1] / "data" / "stock_conf").glob("*.conf"))
)


def stock_ids(path: Path) -> str:
    """Name a file in a test's id."""
    return path.stem
