"""Live bookies over real sockets: those that answer, hang, lie, go away and come back."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pytest
from aiohttp import web

from bkctl.admin.top import live as live_module
from bkctl.admin.top.discovery import Target, target_of_url
from bkctl.admin.top.live import LiveBookies
from bkctl.admin.top.sample import BookieSample, ClusterSample, Mode, Source, Stage
from bkctl.admin.top.source import Replay, SampleSource
from bkctl.errors import (
    BkctlError,
    ConnectionFailedError,
    NotFoundError,
    RefusedError,
)
from tests.support.manual_clock import ManualClock

_Result = TypeVar("_Result")
TIMEOUT_S = 5.0


@dataclass
class FakeBookie:
    """An HTTP server on loopback that answers as it is told to."""

    name: str
    adds: int = 1000
    seconds: float = 10.0
    answer: Callable[[web.Request], Awaitable[web.StreamResponse]] | None = None
    asked: list[str] = field(default_factory=list)
    port: int = 0
    _runner: web.AppRunner | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def work(self, adds: int, seconds: float = 1.0) -> None:
        self.adds += adds
        self.seconds += seconds

    async def start(self) -> None:
        application = web.Application()
        application.router.add_get("/{path:.*}", self._serve)
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request.path_qs)
        if self.answer is not None:
            return await self.answer(request)
        if request.path == "/api/v1/bkctl/gc/logs":
            return web.json_response([{"directory": "/d", "logs": [{"log_id": 1, "file_bytes": 10}]}])
        if request.path != "/api/v1/bkctl/snapshot":
            return web.Response(status=404)
        return web.json_response(self.snapshot())

    def snapshot(self) -> dict[str, Any]:
        return {
            "bookie": self.name,
            "ready": True,
            "adds": {"done": self.adds},
            "process": {"monotonic_s": self.seconds, "cpu_s": self.seconds / 10},
        }

    async def java(self, request: web.Request) -> web.StreamResponse:
        """Answer as a Java bookie does."""
        if request.path != "/metrics":
            return web.Response(status=404)
        return web.Response(
            text=f'bookie_SERVER_STATUS 1\nbookkeeper_server_ADD_ENTRY_count{{success="true"}} {self.adds}\n'
        )


def says(status: int = 200, text: str = "") -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def answer(_: web.Request) -> web.StreamResponse:
        return web.Response(status=status, text=text)

    return answer


@contextlib.asynccontextmanager
async def bookies(*names: str) -> AsyncIterator[list[FakeBookie]]:
    fakes = [FakeBookie(name) for name in names]
    async with contextlib.AsyncExitStack() as stack:
        for fake in fakes:
            await fake.start()
            stack.push_async_callback(fake.stop)
        yield fakes


def run(scenario: Coroutine[Any, Any, _Result]) -> _Result:
    return asyncio.run(asyncio.wait_for(scenario, 30))


def watching(*fakes: FakeBookie, timeout_s: float = TIMEOUT_S, **more: Any) -> LiveBookies:
    targets = [target_of_url(fake.url) for fake in fakes]
    return LiveBookies("test", targets, timeout_s=timeout_s, **more)


def rows(sample: ClusterSample) -> dict[str, BookieSample]:
    return {bookie.bookie: bookie for bookie in sample.bookies}


def test_it_is_a_source_and_no_recording() -> None:
    source: SampleSource = LiveBookies("cluster", [])
    assert source.title == "cluster"
    assert not isinstance(source, Replay)
    asyncio.run(source.close())


def test_rates_come_with_the_second_sample_and_rows_by_id() -> None:
    async def scenario() -> None:
        clock = ManualClock()
        async with bookies("b2", "b1") as (second, first):
            live = watching(second, first, clock=clock)
            before = await live.sample()
            first.work(500)
            second.work(70)
            clock.advance(1.5)
            after = await live.sample()
            await live.close()
        assert [bookie.bookie for bookie in after.bookies] == ["b1", "b2"]
        assert (before.interval_s, after.interval_s) == (0.0, 1.5)
        assert [bookie.adds_per_s for bookie in before.bookies] == [None, None]
        assert [bookie.adds_per_s for bookie in after.bookies] == [500.0, 70.0]
        assert after.taken_at_ms == clock.time_ms() == after.bookies[0].answered_at_ms

    run(scenario())


def test_a_java_bookie_is_found_out_and_asked_for_its_metrics_alone_from_then_on() -> None:
    async def scenario() -> None:
        clock = ManualClock()
        async with bookies("java") as (java,):
            java.answer = java.java
            live = watching(java, clock=clock)
            await live.sample()
            java.work(300)
            clock.advance(2)
            (found,) = (await live.sample()).bookies
            with pytest.raises(RefusedError, match="entrylog list"):
                await live.logs(found.bookie, "/d")
            await live.close()
        assert (found.source, found.adds_per_s, found.mode) == (Source.JAVA, 150.0, Mode.WRITABLE)
        assert found.bookie == f"127.0.0.1:{java.port}"
        assert java.asked == ["/api/v1/bkctl/snapshot", "/metrics", "/metrics"]

    run(scenario())


def test_a_bookie_that_hangs_costs_the_others_nothing() -> None:
    async def scenario() -> None:
        release = asyncio.Event()

        async def hang(_: web.Request) -> web.StreamResponse:
            await release.wait()
            return web.Response()

        async with bookies("good", "hanging") as (good, hanging):
            hanging.answer = hang
            live = watching(good, hanging, timeout_s=0.2)
            found = rows(await live.sample())
            release.set()
            await live.close()
        lost = found[f"127.0.0.1:{hanging.port}"]
        assert lost.error == "no answer within 0.2 s"
        assert lost.bottleneck.stage is Stage.UNKNOWN
        assert found["good"].error is None

    run(scenario())


def test_a_bookie_that_goes_away_and_comes_back() -> None:
    async def scenario() -> None:
        clock = ManualClock()
        async with bookies("b") as (bookie,):
            live = watching(bookie, clock=clock)
            await live.sample()
            answered_at_ms = clock.time_ms()
            await bookie.stop()
            clock.advance(1)
            (lost,) = (await live.sample()).bookies
            assert lost.bookie == "b", "its id is known"
            assert lost.error == "cannot connect: Connection refused"
            assert (lost.answered_at_ms, lost.source, lost.adds_per_s) == (answered_at_ms, None, None)
            await bookie.start()
            bookie.work(900, seconds=3.0)
            clock.advance(2)
            (back,) = (await live.sample()).bookies
            assert (back.error, back.adds_per_s) == (None, 300.0), "over the time that it was not seen too"
            await live.close()

    run(scenario())


def test_a_java_bookie_becomes_one_of_ours() -> None:
    async def scenario() -> None:
        async with bookies("b") as (bookie,):
            bookie.answer = bookie.java
            live = watching(bookie)
            await live.sample()
            bookie.answer = says(404)
            assert (await live.sample()).bookies[0].error is not None
            bookie.answer = None
            (found,) = (await live.sample()).bookies
            await live.close()
        assert (found.source, found.bookie) == (Source.BKCTL, "b")

    run(scenario())


async def endless(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    with contextlib.suppress(ConnectionError):
        for _ in range(100):
            await response.write(b"x" * (1 << 16))
    return response


@pytest.mark.parametrize(
    ("answer", "what"),
    [
        (says(500), "HTTP status 500"),
        (says(302), "HTTP status 302"),
        (says(404), "statsProviderClass PrometheusMetricsProvider"),
        (says(200, "<html>"), "not with JSON"),
        (says(200, "[" * 100_000), "not with JSON"),
        (says(200, "[]"), "not as a bookie does"),
        (says(200, '{"bookie": 3}'), "not as a bookie does"),
        (endless, "more than 1,000,000 bytes"),
    ],
    ids=["500", "302", "404", "html", "deep", "list", "number", "endless"],
)
def test_what_does_not_answer_as_a_bookie_is_a_row_with_an_error(
    monkeypatch: pytest.MonkeyPatch,
    answer: Callable[[web.Request], Awaitable[web.StreamResponse]],
    what: str,
) -> None:
    monkeypatch.setattr(live_module, "ANSWER_BYTES_MAX", 1_000_000)

    async def scenario() -> None:
        async with bookies("b") as (bookie,):
            bookie.answer = answer
            live = watching(bookie)
            (found,) = (await live.sample()).bookies
            await live.close()
        assert found.error is not None
        assert what in found.error
        assert bookie.url in found.error

    run(scenario())


def test_metrics_that_are_no_bookies() -> None:
    async def scenario() -> None:
        async with bookies("b") as (bookie,):

            async def other(request: web.Request) -> web.StreamResponse:
                if request.path == "/metrics":
                    return web.Response(text="go_goroutines 9\n")
                return web.Response(status=404)

            bookie.answer = other
            live = watching(bookie)
            (found,) = (await live.sample()).bookies
            await live.close()
        assert "not with a bookie's metrics" in str(found.error)

    run(scenario())


def test_two_ways_to_one_bookie_are_one_row() -> None:
    async def scenario() -> None:
        async with bookies("b", "other") as (bookie, broken):
            broken.answer = says(500)
            registered = Target("b", (broken.url,))
            live = LiveBookies("t", [registered, target_of_url(bookie.url)], timeout_s=TIMEOUT_S)
            (found,) = (await live.sample()).bookies
            await live.close()
        assert (found.bookie, found.error, found.url) == ("b", None, bookie.url)

    run(scenario())


def test_the_first_of_several_urls_that_answers_counts() -> None:
    async def scenario() -> None:
        async with bookies("admin", "b") as (admin, metrics):
            admin.answer = says(404)  # Java's admin without a Prometheus provider
            metrics.answer = metrics.java
            live = LiveBookies("t", [Target("b:3181", (admin.url, metrics.url))], timeout_s=TIMEOUT_S)
            (first,) = (await live.sample()).bookies
            admin.asked.clear()
            (second,) = (await live.sample()).bookies
            await live.close()
        assert (first.bookie, first.url, first.error) == ("b:3181", metrics.url, None)
        assert second.error is None
        assert admin.asked == [], "what has answered once is asked"

    run(scenario())


def test_a_bookie_that_is_not_the_one_that_was_registered_there() -> None:
    """A loopback address that was registered on another machine is somebody else's here."""

    async def scenario() -> None:
        async with bookies("mine", "java", "right") as (mine, java, right):
            java.answer = java.java
            right.answer = right.java
            targets = [
                Target("theirs:3181", (mine.url,), here_only=True),
                Target("moved:3181", (mine.url,)),
                Target("java:3181", (java.url,), here_only=True),
                Target("both:3181", (mine.url, right.url)),
            ]
            live = LiveBookies("t", targets, timeout_s=TIMEOUT_S)
            found = rows(await live.sample())
            await live.close()
        assert "bookie mine answers there: it has registered a loopback" in str(found["theirs:3181"].error)
        assert str(found["moved:3181"].error).endswith("bookie mine answers there")
        assert "may be another bookie" in str(found["java:3181"].error)
        assert (found["both:3181"].error, found["both:3181"].url) == (None, right.url)

    run(scenario())


def test_a_bookie_without_an_endpoint_says_so() -> None:
    async def scenario() -> None:
        live = LiveBookies("t", [Target("b:3181", (), "it has registered no HTTP endpoint")])
        (found,) = (await live.sample()).bookies
        await live.close()
        assert (found.bookie, found.error) == ("b:3181", "it has registered no HTTP endpoint")

    run(scenario())


def test_the_logs_of_a_directory() -> None:
    async def scenario() -> None:
        async with bookies("b") as (bookie,):
            live = watching(bookie)
            await live.sample()
            (log,) = await live.logs("b", "/d")
            assert (log.log_id, log.bytes) == (1, 10)
            with pytest.raises(NotFoundError, match="b: has no ledger directory /e"):
                await live.logs("b", "/e")
            with pytest.raises(NotFoundError, match="no such bookie"):
                await live.logs("c", "/d")
            bookie.answer = says(404)
            with pytest.raises(RefusedError, match="does not list its entry logs"):
                await live.logs("b", "/d")
            await bookie.stop()
            with pytest.raises(ConnectionFailedError, match="b: cannot connect"):
                await live.logs("b", "/d")
            await live.close()
            await live.close()

    run(scenario())


class Directory:
    """A metadata store that names bookies, fails or hangs."""

    def __init__(self) -> None:
        self.answer: Sequence[Target] | BkctlError = ()
        self.asked = 0
        self.begun = threading.Event()
        self.room = threading.Event()
        self.room.set()

    def __call__(self) -> Sequence[Target]:
        self.asked += 1
        self.begun.set()
        assert self.room.wait(30)
        if isinstance(self.answer, BkctlError):
            raise self.answer
        return self.answer


def test_registered_bookies_come_and_go() -> None:
    async def scenario() -> None:
        clock = ManualClock()
        directory = Directory()
        async with bookies("b1", "b2") as (one, two):
            directory.answer = [Target("b1", (one.url,))]
            live = LiveBookies("t", discover=directory, clock=clock, timeout_s=TIMEOUT_S)
            assert list(rows(await live.sample())) == ["b1"]
            directory.answer = [Target("b1", (one.url,)), Target("b2", (two.url,))]
            clock.advance(1)
            assert list(rows(await live.sample())) == ["b1"], "the list is not renewed every second"
            clock.advance(live_module.DISCOVERY_INTERVAL_S)
            one.work(100)
            found = rows(await live.sample())
            assert list(found) == ["b1", "b2"]
            assert found["b1"].adds_per_s == 100.0, "what was known of it is kept"
            directory.answer = [Target("b2", (two.url,))]
            clock.advance(live_module.DISCOVERY_INTERVAL_S)
            assert list(rows(await live.sample())) == ["b2"]
            await live.close()
        assert directory.asked == 3

    run(scenario())


def test_a_metadata_store_that_fails_leaves_the_bookies_it_named_before() -> None:
    async def scenario() -> None:
        clock = ManualClock()
        directory = Directory()
        directory.answer = ConnectionFailedError("zk://a: no connection")
        async with bookies("b1") as (one,):
            live = LiveBookies("t", discover=directory, clock=clock, timeout_s=TIMEOUT_S)
            first = await live.sample()
            assert (first.bookies, first.discovery_error) == ((), "zk://a: no connection")
            directory.answer = [Target("b1", (one.url,))]
            clock.advance(live_module.DISCOVERY_INTERVAL_S)
            good = await live.sample()
            assert (len(good.bookies), good.discovery_error) == (1, None)
            directory.answer = ConnectionFailedError("zk://a: gone")
            clock.advance(live_module.DISCOVERY_INTERVAL_S)
            bad = await live.sample()
            assert (len(bad.bookies), bad.discovery_error) == (1, "zk://a: gone")
            await live.close()

    run(scenario())


def test_a_metadata_store_that_hangs_is_not_waited_for_and_not_asked_twice() -> None:
    async def scenario() -> None:
        clock = ManualClock()
        directory = Directory()
        async with bookies("b1") as (one,):
            directory.answer = [Target("b1", (one.url,))]
            live = LiveBookies("t", discover=directory, clock=clock, timeout_s=0.2)
            await live.sample()
            directory.room.clear()
            for _ in range(3):
                clock.advance(live_module.DISCOVERY_INTERVAL_S)
                slow = await live.sample()
                assert "has not answered" in str(slow.discovery_error)
                assert len(slow.bookies) == 1
            assert directory.asked == 2
            directory.room.set()
            good = await live.sample()
            assert good.discovery_error is None
            await live.close()

    run(scenario())


def test_a_closed_source_leaves_a_hanging_question_behind() -> None:
    async def scenario() -> None:
        directory = Directory()
        directory.room.clear()
        live = LiveBookies("t", discover=directory, timeout_s=0.05)
        sampling = asyncio.create_task(live.sample())
        assert await asyncio.to_thread(directory.begun.wait, 30)
        sampling.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await sampling
        await live.close()
        directory.room.set()

    run(scenario())


def test_at_most_so_many_bookies_are_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_module, "BOOKIES_MAX", 2)

    async def scenario() -> None:
        live = LiveBookies("t", [Target(f"b{number}", (), "no endpoint") for number in range(5)])
        found = await live.sample()
        await live.close()
        assert len(found.bookies) == 2
        assert found.discovery_error == "3 more bookies are registered; 2 are watched"

    run(scenario())
