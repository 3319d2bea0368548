"""Fixtures that the tests beside Java share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.java_client import JavaLedgerClient


@pytest.fixture(scope="module")
def java() -> Iterator[JavaLedgerClient]:
    """A JVM with the released client; a module with another kind of JVM has a fixture of the same name."""
    with JavaLedgerClient() as running:
        yield running
