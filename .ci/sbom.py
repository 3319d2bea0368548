"""Write which packages an installation of bkctl consists of, as CycloneDX: without extras, and with all.

Versions are those of the environment that this runs in, which `.ci/constraints.txt` pins; what another
platform or Python would need besides is not in the lists.

    python .ci/sbom.py DIRECTORY
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from importlib.metadata import Distribution, PackageMetadata, distribution
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

REPOSITORY = Path(__file__).resolve().parents[1]
BKCTL = "bkctl"


@dataclass
class Package:
    """A package of an installation: its metadata, and the names of the packages that it needs."""

    name: str
    version: str
    metadata: PackageMetadata
    needs: set[str] = field(default_factory=set)


def project() -> dict[str, Any]:
    """Return the table ``project`` of pyproject.toml."""
    found: dict[str, Any] = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    return found


def requirements_of_bkctl(extras: Iterable[str]) -> Iterator[Requirement]:
    """Yield what pyproject.toml asks for, extras of bkctl's own resolved."""
    table = project()
    yield from map(Requirement, table["dependencies"])
    left, seen = list(extras), set()
    while left:
        extra = left.pop()
        if extra in seen:
            continue
        seen.add(extra)
        for requirement in map(Requirement, table["optional-dependencies"][extra]):
            if requirement.name == BKCTL:
                left.extend(requirement.extras)
            else:
                yield requirement


def installation(*extras: str) -> tuple[set[str], dict[str, Package]]:
    """Return the names that bkctl with these extras asks for, and all packages that come with them."""
    packages: dict[str, Package] = {}
    seen: set[tuple[str, str]] = set()

    def add(wanted: Iterable[Requirement], for_extra: str) -> set[str]:
        names = set()
        for requirement in wanted:
            if requirement.marker is not None and not requirement.marker.evaluate({"extra": for_extra}):
                continue
            found = distribution(requirement.name)
            name = canonicalize_name(requirement.name)
            names.add(name)
            package = packages.setdefault(name, Package(name, found.version, found.metadata))
            for extra in ("", *requirement.extras):
                if (name, extra) not in seen:
                    seen.add((name, extra))
                    package.needs |= add(_requirements(found), extra)
        return names

    return add(requirements_of_bkctl(extras), ""), packages


def _requirements(found: Distribution) -> list[Requirement]:
    return [Requirement(text) for text in found.requires or ()]


def document(*extras: str) -> str:
    """Return the CycloneDX document of an installation. Raises ValueError when it would not be valid."""
    from cyclonedx.model.bom import Bom
    from cyclonedx.model.component import Component, ComponentType
    from cyclonedx.output.json import JsonV1Dot6
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    table = project()
    root_name = BKCTL + (f"[{','.join(extras)}]" if extras else "")
    root = Component(
        name=BKCTL, version=table["version"], type=ComponentType.APPLICATION, bom_ref=root_name,
        description=table["description"],
    )  # fmt: skip
    asked, packages = installation(*extras)
    components = {name: _component(package) for name, package in packages.items()}
    bom = Bom(components=components.values())
    bom.metadata.component = root
    bom.register_dependency(root, [components[name] for name in asked])
    for name, package in packages.items():
        bom.register_dependency(components[name], [components[other] for other in package.needs - {name}])
    text = JsonV1Dot6(bom).output_as_string(indent=2)
    error = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    if error is not None:
        raise ValueError(f"{root_name}: {error}")
    return text


def _component(package: Package) -> Any:
    from cyclonedx.contrib.license.factories import LicenseFactory
    from cyclonedx.model.component import Component, ComponentType
    from packageurl import PackageURL

    metadata = package.metadata
    said = _license(metadata)
    return Component(
        name=package.name,
        version=package.version,
        type=ComponentType.LIBRARY,
        bom_ref=f"{package.name}=={package.version}",
        description=metadata.get("Summary"),
        purl=PackageURL("pypi", name=package.name, version=package.version),
        licenses=[LicenseFactory().make_from_string(said)] if said else (),
    )


def _license(metadata: PackageMetadata) -> str:
    """Return what a package says of its licence; older ones do in fields of free text, or in a classifier."""
    classifiers = (
        text.rpartition(" :: ")[2] for text in metadata.get_all("Classifier") or () if "License ::" in text
    )
    free_text: str = (metadata.get("License") or "").strip().partition("\n")[0]
    return metadata.get("License-Expression") or free_text or next(classifiers, "")


def main(directory: str) -> None:
    """Write both lists into a directory, and say which."""
    folder = Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    for name, extras in (("plain", ()), ("all", ("all",))):
        path = folder / f"{BKCTL}-{name}.cdx.json"
        path.write_text(document(*extras) + "\n")
        print(f"{path}: {len(installation(*extras)[1])} packages")


if __name__ == "__main__":
    main(*sys.argv[1:])
