"""Name each command of ``bookkeeper shell`` as it is called here, for those who type its name.

The names are the same as docs/coming-from-bookkeeper-shell.md says, which a test compares. Beside them stand
verbs that are guessed and have another name or another noun here, and those that nothing here is called.
"""

from __future__ import annotations

SHELL_COMMANDS: dict[str, tuple[str, ...]] = {
    "initnewcluster": ("cluster init",),
    "metaformat": (),
    "nukeexistingcluster": (),
    "initbookie": ("bookie init",),
    "bookieformat": ("bookie format",),
    "whatisinstanceid": ("metadata show",),
    "simpletest": ("ledger write", "ledger read", "ledger delete"),
    "bookiesanity": ("bookies probe",),
    "listbookies": ("bookies list",),
    "bookieinfo": ("bookies info",),
    "clusterinfo": ("cluster info",),
    "endpointinfo": ("bookies list",),
    "decommissionbookie": ("bookies drain",),
    "recover": ("bookies recover", "ledger recover"),
    "updateledgers": ("bookies replace-id",),
    "updateBookieInLedger": ("bookies replace-id",),
    "listledgers": ("ledger list",),
    "ledgermetadata": ("ledger show",),
    "readledger": ("ledger read",),
    "deleteledger": ("ledger delete",),
    "activeledgers": ("entrylog show",),
    "lastmark": ("lastmark show",),
    "listfilesondisc": ("inspect",),
    "readjournal": ("journal scan",),
    "readlog": ("entrylog scan",),
    "readlogmetadata": ("entrylog show",),
    "ledger": ("index scan", "index get"),
    "localconsistencycheck": ("index check",),
    "check-db-ledgers-index": ("index ledgers", "doctor"),
    "rebuild-db-ledger-locations-index": ("index rebuild",),
    "rebuild-db-ledgers-index": ("index rebuild",),
    "regenerate-interleaved-storage-index-file": ("index rebuild",),
    "convert-to-db-storage": ("bookie convert",),
    "convert-to-interleaved-storage": ("bookie convert",),
    "cookie_get": ("cookie get",),
    "cookie_create": ("cookie create",),
    "cookie_update": ("cookie update",),
    "cookie_delete": ("cookie delete",),
    "cookie_generate": ("cookie generate",),
    "updatecookie": ("cookie diff", "cookie update", "cookie delete"),
    "autorecovery": ("autorecovery enable",),
    "whoisauditor": ("autorecovery auditor",),
    "listunderreplicated": ("autorecovery list",),
    "queryautorecoverystatus": ("autorecovery status",),
    "lostbookierecoverydelay": ("autorecovery delay",),
    "triggeraudit": ("autorecovery trigger",),
    "forceauditchecks": ("autorecovery trigger",),
}

#: Lines that are guessed, as far as their words for a command go, and the commands that are meant.
GUESSED_COMMANDS: dict[str, str] = {
    "underreplicated": "autorecovery list",
    "under-replicated": "autorecovery list",
    "decommission": "bookies drain",
    "ledgers": "ledger list",
    "entries": "entrylog scan",
    "bookie list": "bookies list",
    "bookie info": "bookies info",
    "bookie probe": "bookies probe",
    "bookie drain": "bookies drain",
    "bookie decommission": "bookies drain",
    "bookies status": "bookie status",
    "bookies decommission": "bookies drain",
    "bookies remove": "bookies drain",
    "bookies rename": "bookies replace-id",
    "cluster list": "bookies list",
    "cookie show": "cookie get",
    "cookie list": "cookie get",
    "entrylog dump": "entrylog scan",
    "entrylog read": "entrylog scan",
    "entrylog check": "entrylog verify",
    "entrylog repair": "entrylog salvage",
    "journal dump": "journal scan",
    "journal read": "journal scan",
    "journal check": "journal verify",
    "journal repair": "journal salvage",
    "journal replay": "lastmark set",
    "index list": "index ledgers",
    "index fix": "index repair",
    "index verify": "index check",
    "index show": "index get",
    "ledger info": "ledger show",
    "ledger get": "ledger show",
    "ledger metadata": "ledger show",
    "ledger check": "ledger compare",
    "ledger verify": "ledger compare",
    "ledger open": "ledger doctor",
    "ledger close": "ledger recover",
    "ledger explain": "ledger doctor",
    "ledger dump": "metadata dump",
    "metadata get": "metadata show",
    "metadata restore": "ledger restore",
    "autorecovery on": "autorecovery enable",
    "autorecovery off": "autorecovery disable",
    "maintenance start": "maintenance begin",
    "maintenance stop": "maintenance end",
    "gc status": "gc explain",
    "gc compact": "bookie compact",
    "gc trigger": "bookie gc",
    "lastmark get": "lastmark show",
}

_STOP = (
    "A bookie is stopped with Ctrl-C or SIGTERM (kill PID, or systemctl stop UNIT); "
    "'bkctl maintenance begin' before that keeps autorecovery from copying what it holds"
)
_RESTART = f"{_STOP}, and 'bkctl maintenance end' after the start lets it copy again"

#: Lines that are guessed and that no command is meant by, and what is done instead.
ADVICE: dict[str, str] = {
    "stop": _STOP,
    "kill": _STOP,
    "shutdown": _STOP,
    "restart": _RESTART,
    "bookie stop": _STOP,
    "bookie kill": _STOP,
    "bookie shutdown": _STOP,
    "bookie restart": _RESTART,
    "bookies stop": _STOP,
    "bookies restart": _RESTART,
    "autorecovery stop": (
        "Autorecovery that was started with 'bkctl autorecovery start' is stopped with Ctrl-C or SIGTERM; "
        "'bkctl autorecovery disable' switches it off for all of the cluster"
    ),
}
