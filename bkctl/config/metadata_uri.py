"""The metadata store's URI, also out of the keys that were used before there was one."""

from __future__ import annotations

from bkctl.config.values import GivenValues, Notice
from bkctl.errors import UsageError

#: Pulsar's form of a URI has no slashes behind its scheme.
_PULSAR = "metadata-store:"

#: Java's classes and the word each has in a URI.
_LAYOUTS = {
    "FlatLedgerManagerFactory": "flat",
    "HierarchicalLedgerManagerFactory": "hierarchical",
    "LongHierarchicalLedgerManagerFactory": "longhierarchical",
    "MSLedgerManagerFactory": "ms",
}


def metadata_uri(values: GivenValues, notices: list[Notice]) -> str:
    """Return the metadata URI that counts.

    Commas between servers, at which Java cuts the URI, are taken for semicolons, with a notice. Raises
    UsageError when there is no URI, or one without a scheme.
    """
    if not values.is_given("metadataServiceUri"):
        return _from_old_keys(values)
    where = values.where("metadataServiceUri")
    items = values.items("metadataServiceUri")
    uri = ";".join(items)
    if len(items) > 1:
        if not uri.startswith(("zk", _PULSAR)):
            uri = ",".join(items)
        text = "metadataServiceUri: separate servers with ; as Java cuts the URI at a comma"
        notices.append(Notice(True, where, text))
    if "://" not in uri and not uri.startswith(_PULSAR):
        named = where if where.startswith("-") else f"{where}: metadataServiceUri"
        raise UsageError(
            f"{named}: expected zk://host:2181/ledgers or embedded:///absolute/path, found {uri[:200]!r}"
        )
    return uri


def _from_old_keys(values: GivenValues) -> str:
    servers = values.texts("zkServers")
    root = values.text("zkLedgersRootPath")
    layout = _layout(values)
    if not servers:
        raise UsageError(
            "metadataServiceUri is not set: name the cluster's metadata, for example "
            "metadataServiceUri=zk+hierarchical://localhost:2181/ledgers, or start without a file"
        )
    return f"zk+{layout}://{';'.join(servers)}{root}"


def _layout(values: GivenValues) -> str:
    name = values.text("ledgerManagerFactoryClass")
    if name is not None:
        layout = _LAYOUTS.get(name.rpartition(".")[2])
        if layout is None:
            raise UsageError(
                f"{values.where('ledgerManagerFactoryClass')}: ledgerManagerFactoryClass: expected one of "
                f"{', '.join(_LAYOUTS)}, found {name[:200]!r}"
            )
        return layout
    return values.text("ledgerManagerType") or "null"
