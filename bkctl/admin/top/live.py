"""Live bookies as a source of samples: all of them asked side by side, each within a bounded time.

A bookie that is slow, gone, or not understood is a row with an error and costs the others nothing. Its
earlier answer is kept: when it is back, its next rates are over the whole time since then, or, when it was
started again, wait for a second answer.

=================== ==========================================================================================
bound               answer when it is reached
=================== ==========================================================================================
TIMEOUT_S           the row has an error
ANSWER_BYTES_MAX    the same
ASKED_AT_ONCE       the others wait for their turn
BOOKIES_MAX         further bookies are not asked; ``discovery_error`` says how many
DISCOVERY_TIMEOUT_S the bookies known so far are asked; ``discovery_error`` says so
=================== ==========================================================================================
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from bkctl.admin.http_json import GC_LOGS, SNAPSHOT, object_of, objects_of
from bkctl.admin.top.bkctl_bookie import bkctl_sample, log_states
from bkctl.admin.top.bottleneck import bottleneck
from bkctl.admin.top.counters import Object
from bkctl.admin.top.discovery import BOOKIES_MAX, METRICS, Target
from bkctl.admin.top.java_bookie import STATUS, java_sample
from bkctl.admin.top.sample import AutorecoveryState, BookieSample, ClusterSample, EntryLogState, Mode, Source
from bkctl.admin.top.scrape import Scrape, parse_scrape
from bkctl.clock import Clock, SystemClock
from bkctl.errors import (
    BkctlError,
    ConnectionFailedError,
    MissingPackageError,
    NotFoundError,
    RefusedError,
)
from bkctl.metadata.http_address import is_loopback

if TYPE_CHECKING:
    from aiohttp import ClientSession

#: For one answer, connecting included.
TIMEOUT_S = 3.0
ANSWER_BYTES_MAX = 16 << 20
ASKED_AT_ONCE = 128
#: How old the list of registered bookies gets.
DISCOVERY_INTERVAL_S = 5.0
DISCOVERY_TIMEOUT_S = 10.0

#: Asks the metadata store; blocks, and raises BkctlError.
Discover = Callable[[], Sequence[Target]]


class LiveBookies:
    """Samples of the bookies at ``targets``, and of those that ``discover`` finds.

    ``title`` says what is watched. ``autorecovery`` is asked whenever ``discover`` is. Used
    by one event loop; :meth:`close` ends it.
    """

    def __init__(
        self,
        title: str,
        targets: Sequence[Target] = (),
        discover: Discover | None = None,
        *,
        autorecovery: Callable[[], AutorecoveryState] | None = None,
        clock: Clock | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self._title = title
        self._clock = clock or SystemClock()
        self._timeout_s = timeout_s
        self._fixed = list(targets)
        self._discovered: Sequence[Target] = ()
        self._discover = discover
        self._look_at_autorecovery = autorecovery
        self._autorecovery: AutorecoveryState | None = None
        self._discovery: asyncio.Future[Sequence[Target]] | None = None
        self._discovered_s: float | None = None
        self._discovery_error: str | None = None
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="top-discovery")
        self._watched: dict[Target, _Watched] = {}
        self._session: ClientSession | None = None
        self._sampled_s: float | None = None
        self._room = asyncio.Semaphore(ASKED_AT_ONCE)

    @property
    def title(self) -> str:
        """The title of what is watched."""
        return self._title

    async def sample(self) -> ClusterSample:
        """Ask everybody now."""
        await self._look_for_bookies()
        targets = list(dict.fromkeys([*self._fixed, *self._discovered]))
        session = self._open_session()
        self._watched = {
            target: self._watched.get(target) or _Watched(target, self._clock)
            for target in targets[:BOOKIES_MAX]
        }
        now_s = self._clock.monotonic()
        interval_s = 0.0 if self._sampled_s is None else now_s - self._sampled_s
        self._sampled_s = now_s
        answers = await asyncio.gather(*(self._ask(session, each) for each in self._watched.values()))
        return ClusterSample(
            taken_at_ms=self._clock.time_ms(),
            interval_s=round(interval_s, 3),
            bookies=_one_row_each(answers),
            discovery_error=self._discovery_error or _too_many(len(targets)),
            autorecovery=self._autorecovery,
        )

    async def logs(self, bookie: str, ledger_dir: str) -> tuple[EntryLogState, ...]:
        """Get the entry logs of a ledger directory; see ``SampleSource``."""
        watched = next((each for each in self._watched.values() if each.name == bookie), None)
        if watched is None:
            raise NotFoundError(f"{bookie}: no such bookie is watched")
        return await watched.logs(self._open_session(), ledger_dir, self._timeout_s)

    async def close(self) -> None:
        """Close the connections; a question to the metadata store that is under way is not waited for."""
        if self._discovery is not None:
            self._discovery.cancel()
        self._threads.shutdown(wait=False, cancel_futures=True)
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def _open_session(self) -> ClientSession:
        from aiohttp import ClientSession, ClientTimeout, TCPConnector

        if self._session is None:
            self._session = ClientSession(
                connector=TCPConnector(limit=ASKED_AT_ONCE), timeout=ClientTimeout(total=None)
            )
        return self._session

    async def _ask(self, session: ClientSession, watched: _Watched) -> BookieSample:
        async with self._room:
            return await watched.ask(session, self._timeout_s)

    def _ask_the_store(self, discover: Discover) -> Sequence[Target]:
        """Ask the metadata store for the bookies; this runs in a thread.

        A store whose nodes of autorecovery cannot be read may still have those of bookies.
        """
        if self._look_at_autorecovery is not None:
            try:
                self._autorecovery = self._look_at_autorecovery()
            except BkctlError:
                self._autorecovery = None
        return discover()

    async def _look_for_bookies(self) -> None:
        """Renew the list of registered bookies; only the first one is waited for longer than a moment."""
        if self._discover is None:
            return
        now_s = self._clock.monotonic()
        if self._discovery is None:
            if self._discovered_s is not None and now_s - self._discovered_s < DISCOVERY_INTERVAL_S:
                return
            loop = asyncio.get_running_loop()
            self._discovery = loop.run_in_executor(self._threads, self._ask_the_store, self._discover)
            self._discovered_s = now_s
        patience_s = DISCOVERY_TIMEOUT_S if not self._discovered else self._timeout_s
        asked = self._discovery
        await asyncio.wait([asked], timeout=patience_s)
        if not asked.done():
            self._discovery_error = f"the metadata store has not answered within {patience_s:g} s"
            return
        self._discovery = None
        try:
            self._discovered = asked.result()
            self._discovery_error = None
        except BkctlError as error:
            self._discovery_error = str(error)


class _Watched:
    """One bookie between two questions."""

    def __init__(self, target: Target, clock: Clock) -> None:
        self.name = target.name
        self._target = target
        self._clock = clock
        self._url: str | None = None
        self._source: Source | None = None
        self._snapshot: Object | None = None
        self._scrape: Scrape | None = None
        self._scraped_s = 0.0
        self._answered_at_ms: int | None = None

    async def ask(self, session: ClientSession, timeout_s: float) -> BookieSample:
        """Ask for the bookie's sample; it has an error when the bookie does not answer as one does."""
        import aiohttp

        if not self._target.urls:
            return self._failed(self._target.reason or "no URL")
        try:
            sample = await self._ask_somewhere(session, timeout_s)
        except MissingPackageError:
            raise  # no fault of the bookie's, and the next sample would not be better
        except (aiohttp.ClientError, OSError, TimeoutError, BkctlError) as error:
            return self._failed(_reason(error, timeout_s))
        self.name = sample.bookie
        self._answered_at_ms = sample.answered_at_ms
        return sample

    async def logs(
        self, session: ClientSession, ledger_dir: str, timeout_s: float
    ) -> tuple[EntryLogState, ...]:
        """Return the entry logs of a ledger directory; see ``SampleSource``."""
        import aiohttp

        if self._source is not Source.BKCTL or self._url is None:
            raise RefusedError(
                f"{self.name}: only a bkctl bookie that answers can list its entry logs;"
                " 'bkctl entrylog list' reads them on its machine"
            )
        try:
            async with asyncio.timeout(timeout_s):
                body = await _get(session, self._url + GC_LOGS)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise ConnectionFailedError(f"{self.name}: {_reason(error, timeout_s)}") from error
        if body is None:
            raise RefusedError(f"{self.name}: this version of the bookie does not list its entry logs")
        states = log_states(objects_of(_json(body, self._url)), ledger_dir)
        if states is None:
            raise NotFoundError(f"{self.name}: has no ledger directory {ledger_dir}")
        return states

    async def _ask_somewhere(self, session: ClientSession, timeout_s: float) -> BookieSample:
        """Ask the URL that has answered before, else each; a bookie is what the first to answer says."""
        import aiohttp

        failure: Exception | None = None
        urls = self._target.urls if self._url is None else (self._url,)
        for url in urls:
            try:
                async with asyncio.timeout(timeout_s / len(urls)):
                    sample = await self._ask_at(session, url)
            except MissingPackageError:
                raise
            except (aiohttp.ClientError, OSError, TimeoutError, BkctlError) as error:
                # Another URL may answer: metrics may have a port of their own.
                self._url, self._source = None, None
                failure = error
                continue
            self._url = url
            return sample
        assert failure is not None
        raise failure

    async def _ask_at(self, session: ClientSession, url: str) -> BookieSample:
        if self._source is not Source.JAVA:
            body = await _get(session, url + SNAPSHOT)
            if body is not None:
                return self._from_snapshot(body, url)
        body = await _get(session, url + METRICS)
        if body is None:
            raise ConnectionFailedError(
                f"{url}: has neither {SNAPSHOT} nor {METRICS}; a Java bookie needs the statsProviderClass"
                " PrometheusMetricsProvider"
            )
        return self._from_scrape(body, url)

    def _from_snapshot(self, body: bytes, url: str) -> BookieSample:
        now = object_of(_json(body, url))
        if not isinstance(now.get("bookie"), str):
            raise ConnectionFailedError(f"{url}: answers, but not as a bookie does")
        if self._target.bookie not in (None, now["bookie"]):
            raise ConnectionFailedError(f"{url}: bookie {now['bookie']} answers there{self._elsewhere()}")
        sample = bkctl_sample(self._snapshot, now, url=url, answered_at_ms=self._clock.time_ms())
        self._source, self._snapshot, self._scrape = Source.BKCTL, now, None
        return sample

    def _from_scrape(self, body: bytes, url: str) -> BookieSample:
        now_s = self._clock.monotonic()
        scrape = parse_scrape(body.decode("utf-8", "replace"), url)
        if scrape.total(STATUS) is None:
            raise ConnectionFailedError(f"{url}{METRICS}: answers, but not with a bookie's metrics")
        if self._target.here_only and is_loopback(urlsplit(url).hostname or ""):
            # Metrics do not say whose they are.
            raise ConnectionFailedError(f"{url}: may be another bookie{self._elsewhere()}")
        sample = java_sample(
            self._scrape,
            scrape,
            now_s - self._scraped_s,
            bookie=self._target.name,
            url=url,
            answered_at_ms=self._clock.time_ms(),
        )
        self._source, self._scrape, self._scraped_s, self._snapshot = Source.JAVA, scrape, now_s, None
        return sample

    def _elsewhere(self) -> str:
        if not self._target.here_only:
            return ""
        return (
            ": it has registered a loopback address for HTTP (httpServerHost); ask with --url on its machine,"
            " or name its metrics with --metrics-port"
        )

    def _failed(self, error: str) -> BookieSample:
        failed = BookieSample(
            bookie=self.name,
            source=self._source,
            mode=Mode.DOWN if self._target.down else None,
            url=self._url or next(iter(self._target.urls), None),
            error=error,
            answered_at_ms=self._answered_at_ms,
        )
        return replace(failed, bottleneck=bottleneck(failed))


def _reason(error: Exception, timeout_s: float) -> str:
    """Say why a bookie is not there, in a few words."""
    import aiohttp

    if isinstance(error, TimeoutError):
        return f"no answer within {timeout_s:g} s"
    if isinstance(error, aiohttp.ClientConnectorError):
        number = error.os_error.errno
        return f"cannot connect: {os.strerror(number) if number else error.os_error}"
    return str(error) or type(error).__name__


async def _get(session: ClientSession, url: str) -> bytes | None:
    """Get the body; None for 404. Raises aiohttp.ClientError, ConnectionFailedError for other statuses."""
    async with session.get(url, allow_redirects=False) as answer:
        if answer.status == 404:
            return None
        if answer.status != 200:
            raise ConnectionFailedError(f"{url}: HTTP status {answer.status}")
        body = bytearray()
        async for piece in answer.content.iter_chunked(1 << 16):
            body += piece
            if len(body) > ANSWER_BYTES_MAX:
                raise ConnectionFailedError(f"{url}: an answer of more than {ANSWER_BYTES_MAX:,} bytes")
        return bytes(body)


def _json(body: bytes, url: str) -> object:
    try:
        found: object = json.loads(body)
    except (ValueError, RecursionError):
        raise ConnectionFailedError(f"{url}: answers, but not with JSON") from None
    return found


def _one_row_each(answers: Sequence[BookieSample]) -> tuple[BookieSample, ...]:
    """Sort rows ascending by id; of two ways to the same bookie the one that answers counts."""
    rows: dict[str, BookieSample] = {}
    for answer in answers:
        if answer.bookie not in rows or rows[answer.bookie].error is not None:
            rows[answer.bookie] = answer
    return tuple(rows[bookie] for bookie in sorted(rows))


def _too_many(count: int) -> str | None:
    if count <= BOOKIES_MAX:
        return None
    return f"{count - BOOKIES_MAX:,} more bookies are registered; {BOOKIES_MAX} are watched"
