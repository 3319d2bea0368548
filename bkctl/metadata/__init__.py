"""The cluster's metadata: layout, bookies' registrations, cookies, ledgers.

:func:`bkctl.metadata.uri.open_metadata_store` opens what a ``metadataServiceUri`` names and returns a
:class:`bkctl.metadata.api.MetadataStore`. Everything above :mod:`bkctl.metadata.tree` is written once, over a
tree of nodes; ZooKeeper, a SQLite file and memory are three such trees.
"""
