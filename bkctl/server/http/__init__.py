"""The bookie's HTTP admin: Java's paths and JSON forms. Paths without ``/api/v1`` in front are below it.

============================================= ============= ==================================================
path                                          method        answer
============================================= ============= ==================================================
``/heartbeat``                                any           ``OK``
``/metrics``                                  GET           Prometheus text (``bkctl.server.prometheus``)
config/server_config                          GET, PUT      what was set, as texts; PUT changes a few keys
ledger/list                                   GET           ids; ``print_metadata``, ``decode_meta``, ``page``
ledger/metadata                               GET           ``ledger_id``; a ledger's metadata
ledger/read                                   GET           ``ledger_id``, ``start_entry_id``,
                                                            ``end_entry_id``, ``page``; payloads as ASCII
ledger/delete                                 DELETE        ``ledger_id``
bookie/list_bookies                           GET           ``type`` (rw, ro), ``print_hostnames``
bookie/list_bookie_info                       GET           room of every bookie, as a text
bookie/last_log_mark                          GET           the mark of every journal
bookie/list_disk_file                         GET           ``file_type`` (journal, entrylog, index)
bookie/gc, gc_details, gc/suspend_compaction, GET, PUT      garbage collection (``gc_pages``)
gc/resume_compaction
bookie/is_ready                               GET           200 ``OK`` once it serves, else 503
bookie/state                                  GET           running, readOnly, shuttingDown,
                                                            availableForHighPriorityWrites
bookie/state/readonly                         GET, PUT      ``{"readOnly": bool}``
bookie/sanity                                 PUT           writes and reads a ledger on this bookie
bookie/info                                   GET           freeSpace, totalSpace (bytes)
bookie/cluster_info                           GET           bookies by mode, auditor, under-replication
autorecovery/status                           GET, PUT      ``enabled``
autorecovery/list_under_replicated_ledger     GET           ``missingreplica``, ``excludingmissingreplica``,
                                                            ``printmissingreplica``
autorecovery/who_is_auditor                   GET           ``Auditor: id``
autorecovery/trigger_audit                    PUT           makes the elected auditor look now
autorecovery/lost_bookie_recovery_delay       GET, PUT      ``{"delay_seconds": n}``
autorecovery/bookie                           GET, PUT      ``{"bookie_src": [...], "bookie_dest": [...],
                                                            "delete_cookie": bool}``; GET: what became of it
autorecovery/decommission                     GET, PUT      ``{"bookie_src": "...", "delete_cookie": bool}``
bkctl/snapshot                                GET           every stage's queue, bound and counters
bkctl/gc, bkctl/gc/logs,                      GET; PUT      reports that Java's collection does not have
bkctl/gc/confirm_deletions
bkctl/ledger/limbo                            GET, DELETE   ``ledger_id``; takes a whole ledger out of limbo
============================================= ============= ==================================================

Of Java's paths these are answered with 501 and the way to go instead:

===================================== ========================================================================
bookie/expand_storage                 add to ``ledgerDirectories``, say ``allowStorageExpansion=true``,
                                      restart
bookie/entry_location_compact         RocksDB compacts the index by itself
===================================== ========================================================================

Where answers differ from Java's on purpose: a method that a path does not take is 405 (Java: 404), a ledger
that does not exist 404 (Java: 500), parameters and bodies that are wrong are 400 with the reason (Java: 404
or 500), and answers have a Content-Type. Passwords are null unless the token is sent. Entries of an open
ledger are read up to the last add confirmed, which Java does not ask for. Every page of ``ledger/list`` has
100 ledgers (Java: the first has 99). ``list_disk_file`` names entry logs, and no files of RocksDB. The texts
that report suspended and resumed compactions are others.

Permissions. With ``bkctlHttpAdminTokenFile``, requests that change state, the sanity test (it writes) and
requests that show entries need ``Authorization: Bearer TOKEN``. Without a token they are refused unless the
admin listens on the loopback, where requests of other sites' pages and requests that a proxy passed on are
refused (``guard``). Java serves the sanity test by GET; here GET needs the token.

Source: ``org.apache.bookkeeper.server.http.service``. aiohttp is imported when an admin is started.
"""
