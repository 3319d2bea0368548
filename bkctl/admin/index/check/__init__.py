"""``index check``: does the index say where the entries are, and does it name all of them?

=====================  ================================================================================
module                 holds
=====================  ================================================================================
``finding``            what is reported, and how bad each kind is
``premises``           what is not known before, so that some questions cannot be asked
``absent_index``       an index that is not there: lost, or not made yet
``indexed_ledgers``    the ledgers an index knows
``log_entries``        every entry of the logs, as rows; damage as findings
``replay``             what the journals will bring back at the next start
``row_judge``          rows that no entry confirms, and entries without a row
``places``             what really stands at a location that no entry of the logs has
``journal_key_check``  master keys in the journals against the rows and the metadata
``strange_ledgers``    findings about ledgers that have no ledger row
``check``              all of it, in order
=====================  ================================================================================

``bkctl.admin.index.rows`` sorts them and lays them beside each other.

An entry of the logs is (ledger, entry, location). The logs are read once, front to back; their entries are
sorted and laid beside the rows of the index, which come sorted. A row of the index with an equal among the
entries is right; the place that any other row names is looked at. An entry for which the index has no row at
all is missing, if its ledger is one that the index knows.
"""
