"""Tables, as Arrow batches, of what bookies have on disk and what their metadata says.

``registry.TABLES`` names them. Every table is planned into :class:`~bkctl.pipeline.tables.split.Split`, which
can be pickled, and read split by split, in this process, in others, or on other machines that see the same
paths.
"""
