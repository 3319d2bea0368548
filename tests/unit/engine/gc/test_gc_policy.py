"""What garbage collection decides, tried exhaustively on small worlds."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pytest

from bkctl.config.server_keys.garbage import CompactionSettings, GcSettings
from bkctl.engine.gc.log_usage import LogUsage
from bkctl.engine.gc.policy import (
    LEDGER_MAX,
    Due,
    IncompleteListingError,
    Kind,
    RateLimit,
    Request,
    absent,
    choose,
    compaction_order,
    fits,
    too_many,
)
from bkctl.errors import ConnectionFailedError, UsageError


@dataclass
class Part:
    first: int
    last: int
    ledgers: Sequence[int]


def listing(live: Iterable[int], borders: Iterable[int]) -> list[Part]:
    """A complete listing, cut before each border."""
    edges = [0, *sorted(borders), LEDGER_MAX + 1]
    live = sorted(live)
    return [
        Part(first, stop - 1, [each for each in live if first <= each < stop])
        for first, stop in itertools.pairwise(edges)
    ]


IDS = (0, 1, 2, 5, LEDGER_MAX)


def subsets(ids: Sequence[int]) -> Iterator[tuple[int, ...]]:
    for count in range(len(ids) + 1):
        yield from itertools.combinations(ids, count)


def test_absent_is_the_difference_however_the_listing_is_cut() -> None:
    for local, live, borders in itertools.product(subsets(IDS), subsets(IDS), subsets((1, 2, 3, LEDGER_MAX))):
        assert list(absent(local, listing(live, borders))) == sorted(set(local) - set(live))


def test_any_range_left_out_doubled_or_swapped_deletes_nothing() -> None:
    parts = listing((1, 5), (2, 4, 100))
    for count in range(len(parts)):
        for chosen in itertools.permutations(parts, count):
            with pytest.raises(IncompleteListingError):
                absent(IDS, chosen)
    for order in itertools.permutations(parts):
        if list(order) != parts:
            with pytest.raises(IncompleteListingError):
                absent(IDS, order)
    for at in range(len(parts)):
        with pytest.raises(IncompleteListingError):
            absent(IDS, [*parts[: at + 1], *parts[at:]])


def test_ids_in_the_order_of_their_digits_delete_nothing() -> None:
    """YBK#15: "10" sorts before "9", so everything from 10 on seemed gone."""
    names = sorted(map(str, range(20)))
    ranges = [Part(0, LEDGER_MAX, [int(name) for name in names])]
    with pytest.raises(IncompleteListingError):
        absent(range(20), ranges)
    leaves = sorted((Part(at, at + 4, [at]) for at in range(0, 20, 5)), key=lambda part: str(part.first))
    with pytest.raises(IncompleteListingError):
        absent(range(20), leaves)


def mutant_of_15(local: Sequence[int], ranges: Iterable[Part]) -> list[int]:
    """As Java walks: local ids up to a range's end that the range does not list; no proof of completeness."""
    missing: list[int] = []
    rest = list(local)
    for part in ranges:
        missing += [each for each in rest if each <= part.last and each not in part.ledgers]
        rest = [each for each in rest if each > part.last]
    return missing + rest


def test_the_mutant_that_believes_a_listing_that_ends_early_deletes_live_ledgers() -> None:
    parts = listing((1, 5), (2, 4))
    assert 5 in mutant_of_15((1, 5), parts[:1])
    with pytest.raises(IncompleteListingError):
        absent((1, 5), parts[:1])


def test_ids_outside_their_range_delete_nothing() -> None:
    with pytest.raises(IncompleteListingError):
        absent((1,), [Part(0, 3, [4]), Part(4, LEDGER_MAX, [])])
    with pytest.raises(IncompleteListingError):
        absent((1,), [Part(0, LEDGER_MAX, [2, 2])])


def test_what_the_listing_raises_is_passed_on() -> None:
    def broken() -> Iterator[Part]:
        yield Part(0, 3, [])
        raise ConnectionFailedError("gone")

    with pytest.raises(ConnectionFailedError):
        absent((1,), broken())


def test_a_pass_is_held_only_beyond_both_bounds() -> None:
    settings = GcSettings(deletions_share_max=0.5, deletions_ledgers_max=10)
    for deletions, ledgers in itertools.product(range(40), range(40)):
        assert too_many(deletions, ledgers, settings) == (deletions > ledgers / 2 and deletions > 10)


ON = CompactionSettings(0.5, 1000)
NO_INTERVAL = CompactionSettings(0.5, 0)
NO_THRESHOLD = CompactionSettings(0.0, 1000)


def test_which_compaction_runs() -> None:
    """Every state of both kinds, held against a plain reading of the rules."""
    states = [
        Due(settings, since_ms, suspended)
        for settings in (ON, NO_INTERVAL, NO_THRESHOLD)
        for since_ms in (0.0, 1000.0)
        for suspended in (False, True)
    ]
    requests = [None, *itertools.starmap(Request, itertools.product((False, True), repeat=3))]
    for minor, major, request, off in itertools.product(states, states, requests, (False, True)):
        kind, reason = choose(minor, major, request, compact_when_off=off)
        assert reason
        wanted = None
        for each, due in ((Kind.MAJOR, major), (Kind.MINOR, minor)):
            asked = request is not None and (request.major if each is Kind.MAJOR else request.minor)
            overridden = asked and request is not None and request.overrides
            may = (overridden or not due.suspended) and due.settings.has_threshold
            by_itself = due.settings.interval_ms > 0 and due.since_last_ms >= due.settings.interval_ms
            on_request = asked and (off or due.settings.interval_ms > 0)
            if wanted is None and may and (by_itself or on_request):
                wanted = each
        assert kind is wanted


def test_requests_add_up() -> None:
    assert Request(major=True).joined(Request(minor=True)) == Request(True, True)
    assert Request().joined(None) == Request()


def usage(log_id: int, live: int, total: int, file_bytes: int | None = None) -> LogUsage:
    ledgers = {1: live} if live else {}
    return LogUsage(
        log_id, ledgers, file_bytes=total if file_bytes is None else file_bytes, total_bytes=total
    )


def test_the_emptiest_log_goes_first() -> None:
    logs = [usage(1, 79, 100), usage(2, 80, 100), usage(3, 5, 100), usage(4, 5, 100), usage(5, 30, 300)]
    assert [each.log_id for each in compaction_order(logs, 0.8)] == [3, 4, 5, 1]


def test_usage_relative_to_the_size_a_log_should_have() -> None:
    small = usage(1, 10, 10)
    assert compaction_order([small], 0.8) == []
    assert compaction_order([small], 0.8, log_size_bytes=100) == [small]


def test_on_a_scarce_disk_the_cheapest_bytes_go_first() -> None:
    # The second is a file with room allocated ahead: it gives back 890 bytes for 10 copied.
    logs = [usage(1, 5, 100), usage(2, 10, 100, file_bytes=900), usage(3, 70, 100)]
    assert [each.log_id for each in compaction_order(logs, 0.8, scarce=True)] == [2, 1, 3]
    worthless = usage(4, 50, 100, file_bytes=50)
    assert compaction_order([worthless, logs[2]], 0.8, scarce=True) == [logs[2], worthless]


def test_a_copy_must_fit_before_its_source_goes() -> None:
    settings = GcSettings(free_bytes_min=100)
    assert fits(50, 150, settings)
    assert not fits(51, 150, settings)


def test_the_rate_is_kept_on_average() -> None:
    limit = RateLimit(100)
    now_s = 0.0
    for _ in range(50):
        now_s += limit.wait_s(10, now_s)
    assert now_s == pytest.approx(4.9)
    # What was not used is not saved up.
    assert limit.wait_s(10, 100.0) == 0
    assert limit.wait_s(10, 100.0) == pytest.approx(0.1)
    assert RateLimit(None).wait_s(1 << 40, 0.0) == 0


def test_absent_ids_come_in_order_each_once_and_are_not_negative() -> None:
    assert list(absent([3, -1, 3, LEDGER_MAX, 0], listing((), ()))) == [0, 3, LEDGER_MAX]


def test_settings_that_cannot_be() -> None:
    for wrong in ({"metadata_reads_per_s": 0}, {"bytes_per_s": 0}, {"entries_unflushed_max": 0}):
        with pytest.raises(UsageError):
            GcSettings(**wrong)  # type: ignore[arg-type]
    with pytest.raises(UsageError):
        GcSettings(minor=CompactionSettings(0.9, 1), major=CompactionSettings(0.5, 1)).check()
