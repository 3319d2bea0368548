"""What a job tells its tables reaches them through Spark, which hands on texts."""

from __future__ import annotations

import pytest

from bkctl.errors import UsageError
from bkctl.pipeline.tables.options import TableOptions, parse_options
from bkctl.spark.engine import option_texts

GIVEN = [
    TableOptions(),
    TableOptions(ledgers=((3, 3), (7, 90)), damage="rows", digest="crc32c"),
    TableOptions(metadata="zk://host:2181/ledgers", bookie="b:1", password=b"secret"),
    TableOptions(without_indexes=frozenset({"/data/a, b/current", '/data/"c"/current'})),
    TableOptions(without_files=frozenset({"/data/a, b/current/0.log"})),
]


@pytest.mark.parametrize("options", GIVEN)
def test_options_come_back_from_their_texts(options: TableOptions) -> None:
    assert parse_options(option_texts(options)) == options


@pytest.mark.parametrize("text", ["/data/a", '{"a": 1}', "[1]"])
def test_what_is_no_list_of_paths_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="JSON list of paths"):
        parse_options({"without_indexes": text})
