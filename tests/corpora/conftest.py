"""The full directories of real bookies with what is known of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from tests.support.manifest import Image, ImageOf


@pytest.fixture(scope="module")
def image_of(corpora: Callable[[str], Path]) -> ImageOf:
    @cache
    def image(corpus: str, state: str) -> Image:
        root = corpora(corpus)
        return Image.load(
            root / state, root / "manifest.json", root / "zk-crash.json", root / "zk-clean.json"
        )

    return image
