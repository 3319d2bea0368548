"""The bookie's HTTP admin: Java's paths and JSON forms.

``docs/http.md`` has a row for each path, with its methods, parameters and answer; a test compares it with the
running admin. The handlers are in the modules ``X_pages``, and ``admin`` puts them together.

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
