"""Dependencies: bounded, pinned with hashes, and named by the message for an extra that is missing."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from bkctl.extras import packages_of_extras

REPOSITORY = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
EXTRAS: dict[str, list[str]] = PROJECT["project"]["optional-dependencies"]
BUILD: list[str] = PROJECT["build-system"]["requires"]
ALL = [*PROJECT["project"]["dependencies"], *BUILD, *(text for extra in EXTRAS.values() for text in extra)]
OTHERS = [requirement for requirement in map(Requirement, ALL) if requirement.name != "bkctl"]
LISTS = ("site/constraints.txt", "build-constraints.txt", "constraints.txt")
PIN = re.compile(
    r"^(?P<name>[a-z0-9-]+)==(?P<version>\S+)(?: ; .+?)? \\\n(?P<hashes>(?: {4}--hash=.*\n)+)", re.M
)


def pinned(name: str) -> dict[str, list[str]]:
    """Return the versions of the packages that a list pins; every one has hashes."""
    text = (REPOSITORY / ".ci" / name).read_text()
    found: dict[str, list[str]] = {}
    for pin in PIN.finditer(text):
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", pin["hashes"])
        found.setdefault(pin["name"], []).append(pin["version"])
    assert sum(map(len, found.values())) == len(re.findall(r"^[^ #\n]", text, re.M))
    return found


@pytest.mark.parametrize("requirement", OTHERS, ids=str)
def test_a_new_major_is_taken_on_purpose(requirement: Requirement) -> None:
    assert {">=", "<"} <= {bound.operator for bound in requirement.specifier}


def test_a_plain_installation_has_only_what_bookies_and_files_need() -> None:
    names = {Requirement(text).name for text in PROJECT["project"]["dependencies"]}
    assert names == {"typer", "rich", "rocksdict", "crc32c", "numpy", "protobuf", "aiohttp", "uvloop"}


def test_all_is_every_extra_that_is_not_for_development() -> None:
    left, reached = ["all"], set()
    while left:
        extra = left.pop()
        reached.add(extra)
        left += [name for text in EXTRAS[extra] for name in Requirement(text).extras if "bkctl[" in text]
    assert reached == EXTRAS.keys() - {"dev", "docs", "sbom"}


def test_the_message_names_an_extra_that_brings_the_package() -> None:
    named = packages_of_extras()
    assert len(named) > 6
    for package, extra in named:
        assert package in {Requirement(text).name for text in EXTRAS[extra]}


def test_everything_is_pinned_with_hashes() -> None:
    pins = {name: versions for pins in LISTS for name, versions in pinned(pins).items()}
    for requirement in OTHERS:
        versions = pins[canonicalize_name(requirement.name)]
        assert [version for version in versions if not requirement.specifier.contains(version)] == []


def test_pins_name_no_registry() -> None:
    for name in LISTS:
        text = (REPOSITORY / ".ci" / name).read_text()
        assert "://" not in text
        assert not re.search(r"^-", text, re.M)


def test_nothing_is_downloaded_unchecked() -> None:
    calls = re.findall(r"^pip_install (.*)", (REPOSITORY / ".ci" / "install").read_text(), re.M)
    assert len(calls) == 3
    for call in calls:
        assert ("--require-hashes" in call) != ("--no-deps --no-build-isolation --editable ." in call)
