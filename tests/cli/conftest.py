"""The bookie on which commands that repair are tried, unless a file of tests has one of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.truthful_bookie import TruthfulBookie

#: Ledger directories of the bookie.
DIRECTORIES = 2


@pytest.fixture(scope="module", params=["db", "idx"])
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> TruthfulBookie:
    """A stopped bookie of each kind of storage, whose history is known; nobody changes it."""
    return TruthfulBookie.make(tmp_path_factory.mktemp("made") / "bookie", request.param, DIRECTORIES)


@pytest.fixture
def bookie(made: TruthfulBookie, tmp_path: Path) -> TruthfulBookie:
    """A copy of it for one test."""
    return made.copy(tmp_path / "bookie")
