"""conf/container and conf/kubernetes: their keys, pages, ports and files are those of the bookie."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from bkctl.config.values import check_known

ROOT = Path(__file__).resolve().parents[2]
MANIFEST = (ROOT / "conf/kubernetes/bookies.yaml").read_text()
DOCKERFILE = (ROOT / "conf/container/Dockerfile").read_text()

#: The schemas of the last versions of Kubernetes, and of older ones that clusters still run.
KUBERNETES = ("1.28", "1.32", "1.37")


def refused_by_schema(manifest: str, version: str) -> list[str]:
    """Return what Kubernetes' schemas refuse of a manifest; keys that they do not know are refused, too."""
    if os.environ.get("CI") != "true":
        pytest.importorskip("kubernetes_validate")
    import kubernetes_validate
    import yaml

    refused = []
    for document in yaml.safe_load_all(manifest):
        try:
            kubernetes_validate.validate(document, version, strict=True)
        except kubernetes_validate.ValidationError as error:
            refused.append(f"{document['kind']}: {error.message}")
    return refused


def test_every_key_of_the_manifest_is_one_of_the_bookie() -> None:
    keys = re.findall(r"\bBK_(\w+)", MANIFEST)
    assert len(keys) > 5
    for key in keys:
        check_known(key, "conf/kubernetes/bookies.yaml")
    known = (ROOT / "man/bkctl.1").read_text().replace("\\_", "_").replace("\\-", "-")
    for variable in re.findall(r"name: (BKCTL_\w+)", MANIFEST):
        assert variable in known


def test_probes_ask_pages_that_the_bookie_has() -> None:
    pages = (ROOT / "docs/http.md").read_text()
    paths = set(re.findall(r"path: (/[\w/]+), port", MANIFEST))
    assert paths == {"/heartbeat", "/api/v1/bookie/is_ready"}
    assert all(f"`{path.removeprefix('/api/v1/')}`" in pages for path in paths)


def test_ports_and_user_are_the_same_in_image_and_manifest() -> None:
    exposed = re.search(r"^EXPOSE (.+)$", DOCKERFILE, re.MULTILINE)
    assert exposed is not None
    assert exposed[1].split() == re.findall(r"containerPort: (\d+)", MANIFEST)
    assert "--uid 10000" in DOCKERFILE
    assert "runAsUser: 10000" in MANIFEST


def test_what_the_image_copies_is_there() -> None:
    for source in re.findall(r"^COPY (?!--from)(\S+) ", DOCKERFILE, re.MULTILINE):
        assert (ROOT / source).exists(), source


def test_the_manifest_has_no_tabs_and_one_kind_a_document() -> None:
    documents = MANIFEST.split("\n---\n")
    assert [re.findall(r"^kind: (\w+)$", each, re.MULTILINE) for each in documents] == [
        ["Service"],
        ["PodDisruptionBudget"],
        ["StatefulSet"],
    ]
    assert "\t" not in MANIFEST
    assert all(not (len(line) - len(line.lstrip())) % 2 for line in MANIFEST.splitlines())


@pytest.mark.parametrize("version", KUBERNETES)
def test_the_schema_of_kubernetes_knows_every_key_of_the_manifest(version: str) -> None:
    assert refused_by_schema(MANIFEST, version) == []


@pytest.mark.parametrize(
    ("right", "wrong", "kind", "message"),
    [
        ("publishNotReadyAddresses:", "publishNotReadyAdresses:", "Service", "publishNotReadyAdresses"),
        ("maxUnavailable:", "maxUnavailble:", "PodDisruptionBudget", "maxUnavailble"),
        ("periodSeconds: 5", "periodSecond: 5", "StatefulSet", "periodSecond"),
        ("{secretKeyRef: {name:", "{secretKeyRef: {nam:", "StatefulSet", "nam"),
        ("replicas: 3", "replicas: three", "StatefulSet", "'three' is not of type"),
    ],
)
def test_the_schema_refuses_what_a_hand_gets_wrong(right: str, wrong: str, kind: str, message: str) -> None:
    assert MANIFEST.count(right) == 1
    refused = refused_by_schema(MANIFEST.replace(right, wrong), KUBERNETES[-1])
    assert len(refused) == 1
    assert refused[0].startswith(f"{kind}: ")
    assert message in refused[0]
