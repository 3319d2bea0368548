"""`make sbom`: what the two lists say, checked against CycloneDX's own schema."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def lists(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Both documents by their file names."""
    directory = tmp_path_factory.mktemp("sbom") / "new"
    command = [sys.executable, str(REPOSITORY / ".ci" / "sbom.py"), str(directory)]
    subprocess.run(command, check=True, timeout=120, capture_output=True)
    return {path.name: path.read_text() for path in directory.iterdir()}


def names(document: dict[str, Any]) -> set[str]:
    """Return the names of the components."""
    return {component["name"] for component in document["components"]}


def test_the_lists_are_valid(lists: dict[str, str]) -> None:
    # Here, since the import takes a second or two, and every worker of a run imports this module.
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    assert lists.keys() == {"bkctl-plain.cdx.json", "bkctl-all.cdx.json"}
    for text in lists.values():
        assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None


def test_a_list_has_the_packages_of_its_installation(lists: dict[str, str]) -> None:
    plain, everything = (json.loads(lists[f"bkctl-{name}.cdx.json"]) for name in ("plain", "all"))
    assert {"aiohttp", "numpy", "rocksdict", "yarl"} <= names(plain) < names(everything)
    extras = {"kazoo", "pure-sasl", "textual", "prometheus-client", "pyarrow", "duckdb", "pyspark", "grpcio"}
    assert extras <= names(everything) - names(plain)
    assert not {"bkctl", "pytest", "ruff", "cyclonedx-python-lib"} & names(everything)


def test_a_component_has_a_version_a_licence_and_a_place_in_the_graph(lists: dict[str, str]) -> None:
    document = json.loads(lists["bkctl-plain.cdx.json"])
    root = document["metadata"]["component"]
    assert (root["name"], root["type"]) == ("bkctl", "application")
    needs = {item["ref"]: item.get("dependsOn", []) for item in document["dependencies"]}
    reached, left = set(), [root["bom-ref"]]
    while left:
        reference = left.pop()
        if reference not in reached:
            reached.add(reference)
            left += needs[reference]
    assert reached == {root["bom-ref"], *(component["bom-ref"] for component in document["components"])}
    for component in document["components"]:
        assert component["purl"] == f"pkg:pypi/{component['name']}@{component['version']}"
        assert component["licenses"], component["name"]
