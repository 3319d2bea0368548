"""A case for each verdict of ``entrylog verify`` and ``journal verify``, each row of ``cookie diff``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from bkctl.codec.cookie import Cookie, encode_cookie
from bkctl.metadata.uri import open_metadata_store
from bkctl.scan.damage import Verdict
from tests.support.closure import Bench, Case, Do
from tests.support.closure_of_doctor import (
    bring_back,
    conf_back,
    conf_with,
    cookies_again,
    damaged_journal,
    damaged_log,
    journal_back,
    ledgers_away,
    remove,
    start,
    the_journal,
    unsynced_journal,
)


def logs(bench: Bench) -> tuple[object, ...]:
    return (bench.bookie.ledgers, *_dump(bench))


def journals(bench: Bench) -> tuple[object, ...]:
    return (bench.bookie.root, *_dump(bench))


def _dump(bench: Bench) -> tuple[object, ...]:
    """The metadata of all ledgers, unless the case is that they are not given."""
    return () if "no dump" in bench.kept else ("--metadata", bench.bookie.dump)


def without_dump(bench: Bench) -> None:
    bench.kept["no dump"] = True


def with_dump(bench: Bench) -> None:
    del bench.kept["no dump"]


def torn_log(bench: Bench) -> None:
    """A log without a map ends within a record."""
    path = bench.bookie.ledgers / "1.log"
    path.write_bytes(path.read_bytes()[:-5])


def torn_journal(bench: Bench) -> None:
    path = the_journal(bench)
    data = path.read_bytes().rstrip(b"\0")
    path.write_bytes(data[:-700])


VERDICTS_OF_LOGS: tuple[Case, ...] = (
    Case(Verdict.UNCHECKED.value, without_dump, logs, mend=with_dump, instead="--metadata"),
    Case(Verdict.TORN_TAIL.value, torn_log, logs, lasting=True, instead="nothing to do"),
    Case(Verdict.DAMAGED.value, damaged_log, logs, lasting=True, instead="other replicas"),
)

VERDICTS_OF_JOURNALS: tuple[Case, ...] = (
    Case(Verdict.UNCHECKED.value, without_dump, journals, mend=with_dump, instead="--metadata"),
    Case(Verdict.TORN_TAIL.value, torn_journal, journals, lasting=True, instead="nothing to do"),
    Case(Verdict.UNSYNCED_TAIL.value, unsynced_journal, journals, mend=start, instead="nothing to do"),
    Case(Verdict.DAMAGED.value, damaged_journal, journals, mend=journal_back, instead="from a copy"),
)


def stamped(change: Callable[[Cookie], Cookie]) -> Do:
    return lambda bench: bench.bookie.stamp("ledgers", change(bench.bookie.cookie))


def old_cookie(bench: Bench) -> None:
    (bench.bookie.ledgers / "VERSION").write_text("2\n")


def not_stored(bench: Bench) -> None:
    bench.bookie.change_store(lambda _: None)


def emptied(bench: Bench) -> None:
    """The ledger directory is an empty disk."""
    ledgers_away(bench)
    bench.bookie.ledgers.mkdir(parents=True)


def other_order(bench: Bench) -> None:
    conf_with(f"ledgerDirectories={bench.bookie.root}/ledgers,{bench.bookie.root}/journal\n")(bench)


def every_cookie(change: Callable[[Cookie], Cookie]) -> Do:
    def do(bench: Bench) -> None:
        for name in ("journal", "ledgers"):
            bench.bookie.stamp(name, change(bench.bookie.cookie))

    return do


def instance_of_store(bench: Bench) -> None:
    with open_metadata_store(bench.bookie.uri) as store:
        cookie = replace(bench.bookie.cookie, instance_id=store.layout.instance_id())
    for name in ("journal", "ledgers"):
        (bench.bookie.root / name / "current/VERSION").write_bytes(encode_cookie(cookie))


#: The kind is the field; of a missing cookie also where it is missing.
COOKIE_DIFF: tuple[Case, ...] = (
    Case("layout_version", old_cookie, mend=cookies_again, instead="upgrade"),
    Case(
        "bookie_host",
        stamped(lambda cookie: replace(cookie, bookie_host="10.0.0.9:3181")),
        mend=cookies_again,
        instead="mount the right disk",
    ),
    Case("journal_dirs", stamped(lambda cookie: replace(cookie, journal_dirs="/j")), mend=cookies_again),
    Case("ledger_dirs", other_order, mend=conf_back, instead="name them in the configuration"),
    Case("index_dirs", stamped(lambda cookie: replace(cookie, index_dirs="1\t/i")), mend=cookies_again),
    Case(
        "instance_id",
        every_cookie(lambda cookie: replace(cookie, instance_id="another")),
        mend=instance_of_store,
        instead="if metadataServiceUri names another cluster",
    ),
    Case("cookie in file", remove("VERSION")),
    Case("cookie in file", emptied, mend=bring_back, instead="mount the right disk"),
    Case("cookie in znode", not_stored),
)
