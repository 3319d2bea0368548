"""The packages that a plain installation leaves out, and the extra of bkctl that brings each of them."""

from __future__ import annotations

from importlib.util import find_spec

from bkctl.errors import MissingPackageError

#: The names of the package and of its extra, by the module that is imported.
_HOMES = {
    "kazoo": ("kazoo", "zookeeper"),
    "puresasl": ("pure-sasl", "zookeeper-sasl"),
    "textual": ("textual", "top"),
    "prometheus_client": ("prometheus-client", "top"),
    "pyarrow": ("pyarrow", "pipeline"),
    "duckdb": ("duckdb", "pipeline"),
    "pyspark": ("pyspark", "spark"),
    "hdfs_native": ("hdfs-native", "hdfs"),
}


def packages_of_extras() -> set[tuple[str, str]]:
    """Return the names of the packages and of the extras that bring them."""
    return set(_HOMES.values())


def need(what: str, *modules: str) -> None:
    """Check that modules of extras can be imported, without importing them; ``what`` needs them.

    Raises MissingPackageError, whose message names the packages that are missing and the extra to install.
    """
    missing = [module for module in modules if find_spec(module) is None]
    if not missing:
        return
    packages = [_HOMES[module][0] for module in missing]
    extra = _HOMES[missing[0]][1]
    noun = "package" if len(packages) == 1 else "packages"
    raise MissingPackageError(f"{what} needs the {noun} {' and '.join(packages)}: {_next_step(extra)}")


def incomplete(what: str, extra: str, error: ImportError) -> MissingPackageError:
    """Return the error for a package that is there and cannot import what it needs itself."""
    return MissingPackageError(f"{what} is not complete ({error}): {_next_step(extra)}")


def _next_step(extra: str) -> str:
    return f'install "bkctl[{extra}]" (in a checkout: pip install ".[{extra}]")'
