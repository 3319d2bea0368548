"""A scrape of a bookie: BookKeeper's names, types, labels and units where it has them.

Numbers are read when a scrape asks, from the counters that the stages bump once per batch; a scrape costs the
hot path nothing. Names that BookKeeper does not have begin with ``bkctl_``.

Labels. ``thread`` and ``threadPool`` name Java's pools: here each pool has one queue, so its number is 0.
``ledgerDir`` and ``indexDir`` end in ``current``, as Java's do. A metric that a storage over all ledger
directories has once carries the first of them; its collectors, one for each ledger directory, carry their own
``ledgerDir``.

Of batches. A run of adds, a chunk of reads and a group of the journal are measured once and counted with the
number of entries in them; so counts and sums are those of the entries, and quantiles of sizes are those of
the batches' averages. ``CHANNEL_WRITE`` counts writes to a connection, each of which carries many answers.

Metrics that Java has and this bookie has not:

===================================== ================================================================
name                                  why
===================================== ================================================================
bookie_SERVER_SANITY                  ``/api/v1/bookie/sanity`` tests on request
bookie_bookie_zk_*, _watcher_state_*  the metadata store's client has no such counters
replication_bookkeeper_client_*       the client of autorecovery has no metrics of its own
jvm_memory_pool_*, _init, _committed  the Java process's pools; ``process_*`` has what is used
jvm_threads_peak, _deadlocked, ...    Python does not know
names of Sorted/InterleavedStorage    these storages have the caches of DbLedgerStorage, and its names
===================================== ================================================================

Of ``jvm_*`` there are the metrics that dashboards ask for and that have an equal here.
``jvm_memory_direct_bytes_used`` and ``_max`` are the memory of the caches and the journals' queues, and the
bound that ``--memory`` gives them. ``jvm_memory_bytes_used`` is the other memory of the process (``heap``)
and mapped code (``nonheap``), ``jvm_gc_collection_seconds`` is Python's cycle collector by generation,
``jvm_threads_current`` its threads.

Source: ``BookKeeperServerStats``, ``BookieStats``, ``JournalStats``, ``DbLedgerStorageStats``,
``GarbageCollectorStats``, ``RequestStats``, ``PrometheusMetricsProvider``.
"""
