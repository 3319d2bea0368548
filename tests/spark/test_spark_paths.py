"""How Spark is given the paths and URLs of tables."""

from __future__ import annotations

import pytest

from bkctl.spark.queries import bucket_options, spark_path


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/a/b", "file:/a/b"),
        ("file:///a/b", "file:/a/b"),
        ("hdfs://h:1/a", "hdfs://h:1/a"),
        ("s3://audits/a/b", "s3a://audits/a/b"),
        ("s3://audits/a?region=eu-1&scheme=http", "s3a://audits/a"),
        ("gs://audits/a", "gs://audits/a"),
    ],
)
def test_every_path_has_its_scheme(path: str, expected: str) -> None:
    assert spark_path(path) == expected


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("/a?region=x", {}),
        ("hdfs://h/a?region=x", {}),
        ("s3://audits/a", {}),
        ("s3://audits/a?region=eu-1", {"endpoint.region": "eu-1"}),
        (
            "s3://audits/a?endpoint_override=127.0.0.1:9&scheme=http",
            {"endpoint": "http://127.0.0.1:9", "path.style.access": "true"},
        ),
        (
            "s3://audits?endpoint_override=store.example&force_virtual_addressing=true",
            {"endpoint": "https://store.example", "path.style.access": "false"},
        ),
    ],
)
def test_parameters_of_a_bucket_are_hadoops_options_of_that_bucket(
    url: str, expected: dict[str, str]
) -> None:
    assert bucket_options(url) == {f"fs.s3a.bucket.audits.{key}": value for key, value in expected.items()}
