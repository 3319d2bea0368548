"""``doctor`` on real bookies, configuration and cookies adapted to where they lie: silent."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.doctored_bookie import DoctoredBookie
from tests.support.grades import every_value, one_kept
from tests.support.manifest import CORPORA

pytestmark = [pytest.mark.corpora, pytest.mark.usefixtures("half_full_disks")]


@pytest.mark.parametrize(
    "corpus", ["db", *one_kept("index files as of the others", "sorted", "perledger", "interleaved")]
)
def test_a_clean_bookie_is_silent(
    corpora: Callable[[str], Path], run_cli: Any, tmp_path: Path, corpus: str
) -> None:
    root = corpora(corpus)
    for source in sorted((root / "clean").iterdir()):
        metadata = root / "zk-clean.json"
        bookie = DoctoredBookie.of(source, tmp_path / source.name, metadata)
        dump = ("--metadata", bookie.dump)
        for words in (
            ("--conf", bookie.conf, "--deep"),
            ("--deep", *dump, bookie.root),
            (*dump, bookie.root),
        ):
            result = run_cli("doctor", *words, env={"BKCTL_METADATA_URI": None})
            assert (result.exit_code, result.stdout) == (0, ""), result.stderr
            assert "checks, nothing found" in result.stderr


@every_value("another state of the same corpus", state=("crash", "clean"), corpus=CORPORA)
def test_copies_are_silent_where_they_lie(
    corpora: Callable[[str], Path], run_cli: Any, corpus: str, state: str
) -> None:
    """What a kill leaves is natural, and so is a copy whose cookies name other places: notes at most."""
    root = corpora(corpus)
    dump = ("--metadata", root / f"zk-{state}.json")
    result = run_cli("doctor", root / state, *dump, env={"BKCTL_METADATA_URI": None})
    assert (result.exit_code, result.stdout) == (0, ""), result.stdout
