"""What each key of ``bkctl top`` does, pressed on the real application."""

from __future__ import annotations

import pytest

from bkctl.admin.top.sample import ClusterSample
from bkctl.errors import BkctlError, ConnectionFailedError, CorruptionError
from bkctl.tui.bookie_screen import BookieScreen
from bkctl.tui.cluster_screen import ClusterScreen
from bkctl.tui.directory_screen import DirectoryScreen, LogScreen
from bkctl.tui.help_screen import HelpScreen
from tests.support.top_samples import FakeReplay, FakeSource, bookie_sample, cluster_sample, java_sample
from tests.support.top_screen import Operator, operating, run


def bookies(operator: Operator) -> list[str]:
    """The bookies in the cluster's table, from above."""
    end = next(at for at, row in enumerate(operator.rows) if row.startswith(" adds/s"))
    return [row[1:].split()[0] for row in operator.rows[:end] if row[1:].startswith("bookie-")]


def chosen(operator: Operator) -> str:
    return operator.row_with("▸")[1:].split()[0]


def test_enter_goes_down_from_cluster_to_log_and_escape_comes_back() -> None:
    async def test() -> None:
        source = FakeSource()
        async with operating(source) as operator:
            app = operator.app
            assert isinstance(app.screen, ClusterScreen)
            await operator.press("down", "enter")
            assert isinstance(app.screen, BookieScreen)
            assert "bookie-2:3181" in operator.rows[0]
            await operator.press("7")
            assert chosen(operator) == "journal"
            await operator.press("down", "enter")
            await operator.until(lambda: "20 logs, 9.01G" not in operator.text and "20 logs" in operator.text)
            assert isinstance(app.screen, DirectoryScreen)
            assert operator.rows[1].strip() == "/data/bookie-2/ledgers"
            assert chosen(operator) == "28"
            await operator.press("down", "down", "enter")
            assert isinstance(app.screen, LogScreen)
            assert "ENTRY LOG  26 (1a.log)" in operator.text
            assert "bkctl entrylog show 26" in operator.text
            for screen in (DirectoryScreen, BookieScreen, ClusterScreen):
                await operator.press("escape")
                assert isinstance(app.screen, screen)
            assert chosen(operator) == "bookie-2:3181"

    run(test)


def test_a_journal_is_a_directory_too() -> None:
    async def test() -> None:
        async with operating(FakeSource()) as operator:
            await operator.press("enter", "7", "enter")
            assert "JOURNAL  /data/bookie-1/journal" in operator.text
            assert "18c2f00d123.txn" in operator.text

    run(test)


def test_one_bookie_is_opened_at_once() -> None:
    async def test() -> None:
        async with operating(FakeSource(bookies=1)) as operator:
            await operator.until(lambda: isinstance(operator.app.screen, BookieScreen))
            assert "bookie-1:3181" in operator.rows[0]
            await operator.press("escape")
            assert isinstance(operator.app.screen, ClusterScreen)
            await operator.sample()
            assert isinstance(operator.app.screen, ClusterScreen)

    run(test)


def test_sorting_goes_through_the_columns_and_turns_round() -> None:
    async def test() -> None:
        async with operating(FakeSource()) as operator:
            assert bookies(operator) == ["bookie-1:3181", "bookie-2:3181", "bookie-3:3181"]
            await operator.press("down", "s")
            assert "MODE" not in operator.rows[1]
            assert "MOD▴" in operator.rows[1]
            assert bookies(operator)[0] == "bookie-2:3181"
            await operator.press("s")
            assert "ADD/S▾" in operator.rows[1]
            assert bookies(operator) == ["bookie-1:3181", "bookie-2:3181", "bookie-3:3181"]
            await operator.press("r")
            assert "ADD/S▴" in operator.rows[1]
            assert bookies(operator) == ["bookie-3:3181", "bookie-2:3181", "bookie-1:3181"]
            assert chosen(operator) == "bookie-2:3181"
            await operator.press("S", "S", "S")
            assert "BOTTLENECK▴" in operator.rows[1]

    run(test)


def test_a_click_on_a_title_sorts_by_it() -> None:
    async def test() -> None:
        async with operating(FakeSource()) as operator:
            column = operator.rows[1].index("READ/S") + 2
            await operator.pilot.click("#columns", offset=(column, 0))
            assert "READ/▾" in operator.rows[1] or "READ/S▾" in operator.rows[1]
            await operator.pilot.click("#columns", offset=(column, 0))
            assert bookies(operator)[0] == "bookie-3:3181"

    run(test)


def test_a_click_chooses_a_row_and_one_more_opens_it() -> None:
    async def test() -> None:
        async with operating(FakeSource()) as operator:
            await operator.pilot.click("#bookies", offset=(5, 2))
            assert chosen(operator) == "bookie-3:3181"
            await operator.pilot.click("#bookies", offset=(5, 2))
            assert isinstance(operator.app.screen, BookieScreen)
            await operator.pilot.click("#tabs", offset=(15, 0))
            assert "[2 Queues]" in operator.rows[1]

    run(test)


def test_filter_works_while_it_is_typed_and_escape_takes_it_back() -> None:
    async def test() -> None:
        async with operating(FakeSource()) as operator:
            await operator.press("slash", *"disk_f")
            assert bookies(operator) == ["bookie-2:3181"]
            assert "filter: disk_f" in operator.rows[-1]
            await operator.press("enter")
            assert bookies(operator) == ["bookie-2:3181"]
            assert "1 shown, filter disk_f" in operator.rows[0]
            await operator.sample()
            assert bookies(operator) == ["bookie-2:3181"]
            await operator.press("slash", "x", "escape")
            assert "filter disk_f" in operator.rows[0]
            await operator.press("slash", *"zz", "enter")
            assert bookies(operator) == []
            assert "no bookie has disk_fzz" in operator.text
            await operator.press("enter")
            assert isinstance(operator.app.screen, ClusterScreen)
            await operator.press("escape")
            assert len(bookies(operator)) == 3

    run(test)


class FortyBookies(FakeSource):
    def at(self, moment: int) -> ClusterSample:
        return cluster_sample(moment, *(bookie_sample(f"bookie-{n:02}:3181", moment) for n in range(40)))


def test_the_table_scrolls_with_the_cursor_and_back_when_it_gets_short() -> None:
    async def test() -> None:
        async with operating(FortyBookies()) as operator:
            await operator.press("pagedown")
            assert chosen(operator) == bookies(operator)[-1]
            await operator.press("end")
            assert bookies(operator)[-1] == "bookie-39:3181"
            assert chosen(operator) == "bookie-39:3181"
            await operator.press("slash", *"-3", "enter")
            assert bookies(operator) == [f"bookie-3{n}:3181" for n in range(10)]
            await operator.press("escape", "home")
            assert bookies(operator)[0] == chosen(operator) == "bookie-00:3181"
            await operator.press("up")
            assert chosen(operator) == "bookie-00:3181"

    run(test)


def test_ledgers_by_rate_of_all_bookies_or_of_one() -> None:
    async def test() -> None:
        async with operating(FakeSource()) as operator:
            await operator.sample(10)
            await operator.press("l")
            of_all = operator.row_with("4711")[1:].split()
            assert of_all[4:] == ["40%", "bookie-1:3181,", "book…"]
            await operator.press("down")
            assert "ledger 4712: bookie-1:3181 4.92k/s, bookie-2:3181 1.23k/s" in operator.text
            assert "ADD/S▾" in operator.rows[1]
            await operator.press("s")
            assert "MB/S▾" in operator.rows[1]
            await operator.pilot.click("#columns", offset=(22, 0))
            assert "ADD/S▾" in operator.rows[1]
            await operator.press("escape", "down", "enter", "l")
            assert "bookie-2:3181 > ledgers by rate" in operator.rows[0]
            assert operator.row_with("4711")[1:].split()[5:] == ["bookie-2:3181"]
            await operator.press("l")
            assert isinstance(operator.app.screen, BookieScreen)
            await operator.press("escape", "l", "enter")
            assert "bookie-1:3181" in operator.rows[0], "the one that takes most of it"
            assert isinstance(operator.app.screen, BookieScreen)

    run(test)


class JavaBookie(FakeSource):
    def at(self, moment: int) -> ClusterSample:
        return cluster_sample(moment, java_sample("java:3181", moment))


class IdleBookie(FakeSource):
    def at(self, moment: int) -> ClusterSample:
        return cluster_sample(moment, bookie_sample("idle:3181", moment, load=0.0))


@pytest.mark.parametrize(
    ("source", "words"),
    [(JavaBookie, "Java's bookies do not tell of ledgers"), (IdleBookie, "no ledger got an entry")],
)
def test_no_ledgers_are_explained(source: type[FakeSource], words: str) -> None:
    async def test() -> None:
        async with operating(source()) as operator:
            await operator.sample()
            await operator.press("l")
            await operator.until(lambda: words in operator.text)

    run(test)


def test_pause_stands_still_while_samples_are_taken() -> None:
    async def test() -> None:
        async with operating(FakeSource()) as operator:
            await operator.sample()
            await operator.press("p")
            before = operator.text
            assert "PAUSED" in operator.rows[0]
            await operator.sample(3)
            assert operator.text == before
            await operator.press("space")
            assert "PAUSED" not in operator.text
            assert operator.rows[0].endswith(":00:04")

    run(test)


def test_interval_keys_and_their_bounds() -> None:
    async def test() -> None:
        async with operating(FakeSource()) as operator:
            assert "every 1 s" in operator.rows[0]
            await operator.press("plus")
            assert "every 2 s" in operator.rows[0]
            await operator.press(*["equals_sign"] * 9)
            assert "every 60 s" in operator.rows[0]
            await operator.press(*["minus"] * 9)
            assert "every 0.5 s" in operator.rows[0]

    run(test)


def test_a_shorter_interval_is_kept_to_at_once() -> None:
    async def test() -> None:
        source = FakeSource()
        async with operating(source, interval_s=60.0) as operator:
            source.allow()
            await operator.press(*["minus"] * 9)
            await operator.until(lambda: operator.app.watched.samples_taken == 2)

    run(test)


def test_help_opens_over_every_screen_and_closes() -> None:
    async def test() -> None:
        async with operating(FakeSource()) as operator:
            await operator.press("question_mark")
            assert isinstance(operator.app.screen, HelpScreen)
            assert "g   " not in operator.text
            await operator.press("end")
            assert "Figures" in operator.text
            await operator.press("escape", "enter", "h", "q")
            assert isinstance(operator.app.screen, BookieScreen)

    run(test)


@pytest.mark.parametrize("key", ["q", "ctrl+c"])
def test_quit_gives_the_source_back(key: str) -> None:
    async def test() -> None:
        source = FakeSource()
        async with operating(source) as operator:
            await operator.press(key)
        assert source.closed
        assert operator.app.return_code == 0
        assert operator.app.failure is None

    run(test)


def test_a_bookie_that_is_lost_says_so_ages_and_recovers_by_itself() -> None:
    async def test() -> None:
        source = FakeSource()
        async with operating(source) as operator:
            source.lose("bookie-2:3181")
            await operator.sample(5)
            row = operator.row_with("bookie-2")
            assert "LOST last data 5s ago: connection refused" in row
            assert "1 LOST" in operator.rows[0]
            await operator.sample(2)
            assert "last data 7s ago" in operator.row_with("bookie-2")
            await operator.press("down", "enter")
            assert operator.row_with("LOST  last").strip() == "LOST  last data 7s ago: connection refused"
            assert "adds/s" in operator.text
            source.find("bookie-2:3181")
            await operator.sample()
            assert "LOST" not in operator.text
            await operator.press("escape")
            assert " RO " in operator.row_with("bookie-2")

    run(test)


def test_a_bookie_that_never_answered() -> None:
    async def test() -> None:
        source = FakeSource()
        source.lose("bookie-3:3181")
        async with operating(source) as operator:
            await operator.sample()
            assert "LOST never answered: connection refused" in operator.row_with("bookie-3")
            await operator.press("end", "enter")
            for tab in "1234567":
                await operator.press(tab)
                assert "never answered" in operator.text

    run(test)


def test_a_bookie_that_is_watched_no_more_leaves_its_screen_standing() -> None:
    async def test() -> None:
        source = FakeSource()
        async with operating(source) as operator:
            await operator.press("end", "enter", "7", "down", "enter")
            source.bookies_max = 2
            await operator.sample()
            assert "last data 1s ago: not registered any more" in operator.text
            source.moment += 600
            await operator.sample()
            assert "GONE" in operator.rows[0]
            await operator.press("escape")
            assert "bookie-3:3181 is not among the bookies that are watched any more" in operator.text
            await operator.press("escape")
            assert bookies(operator) == ["bookie-1:3181", "bookie-2:3181"]

    run(test)


def test_logs_that_cannot_be_asked_for_are_a_line_not_an_end() -> None:
    async def test() -> None:
        source = FakeSource()
        async with operating(source) as operator:
            source.lose("bookie-1:3181")
            await operator.press("enter", "7", "down", "enter")
            await operator.until(lambda: "bookie-1:3181: connection refused" in operator.text)
            source.find("bookie-1:3181")
            await operator.press("u")
            await operator.until(lambda: "20 logs" in operator.text)
            assert source.asked_for_logs == 2

    run(test)


def test_what_the_source_cannot_go_on_from_ends_it() -> None:
    async def test() -> None:
        source = FakeSource()
        error = ConnectionFailedError("the metadata store is gone")
        async with operating(source) as operator:
            source.fails_with = error
            source.allow()
            operator.app.action_update()
            await operator.until(lambda: operator.app.failure is not None)
        assert operator.app.failure is error
        assert source.closed

    run(test)


def test_a_recording_is_played_paused_stepped_and_sought() -> None:
    async def test() -> None:
        replay = FakeReplay(100)
        async with operating(replay, interval_s=0.05) as operator:
            assert "replay 1/100 playing" in operator.rows[0]
            replay.allow()
            await operator.until(lambda: "2/100 playing" in operator.rows[0])
            await operator.press("p")
            assert "2/100 PAUSED" in operator.rows[0]
            await operator.press("full_stop")
            assert "3/100 PAUSED" in operator.rows[0]
            await operator.press("comma", "comma", "comma")
            assert "1/100" in operator.rows[0]
            await operator.press("greater_than_sign", "less_than_sign", "greater_than_sign", "full_stop")
            assert "12/100" in operator.rows[0]
            history = operator.app.watched.history.series("bookie-1:3181", "adds_per_s")
            assert len(history) == 12
            for text, position in (("50", 50), ("50%", 51), ("+9", 60), ("-60", 1), ("100%", 100)):
                await operator.press("g", *text, "enter")
                assert f"{position}/100" in operator.rows[0]
            await operator.press("p")
            assert "100/100 at end" in operator.rows[0]
            await operator.press("g", *"99", "enter", "p")
            replay.allow()
            await operator.until(lambda: "100/100 at end" in operator.rows[0])

    run(test)


def test_a_place_that_is_none_is_answered_with_what_is() -> None:
    async def test() -> None:
        async with operating(FakeReplay()) as operator:
            await operator.press("g", *"later", "enter")
            assert "go to later: expected number, +N, -N, 50%, or HH:MM:SS" in operator.text
            await operator.press("full_stop")
            assert "go to later" not in operator.text

    run(test)


def test_a_damaged_sample_is_named_and_can_be_stepped_over() -> None:
    class Damaged(FakeReplay):
        def seek(self, position: int) -> ClusterSample:
            if position == 3:
                raise damage()
            return super().seek(position)

    def damage() -> BkctlError:
        return CorruptionError("recording", expected="a sample", found="{", path="night.ndjson", offset=77)

    async def test() -> None:
        replay = Damaged()
        async with operating(replay, interval_s=0.05) as operator:
            for _ in range(3):
                replay.allow()
            await operator.until(lambda: "3/100 PAUSED" in operator.rows[0])
            assert "offset 77" in operator.row_with("a sample")
            await operator.press("full_stop")
            assert "3/100 PAUSED" in operator.rows[0]
            await operator.press("full_stop")
            assert "5/100 PAUSED" in operator.rows[0]
            assert "offset 77" not in operator.text
            await operator.press("greater_than_sign", "comma")
            assert "14/100 PAUSED" in operator.rows[0]
            assert len(operator.app.watched.history.series("bookie-1:3181", "adds_per_s")) == 13

    run(test)


@pytest.mark.parametrize("size", [(20, 5), (40, 10), (80, 1), (300, 100)])
def test_any_size_of_terminal_is_drawn(size: tuple[int, int]) -> None:
    async def test() -> None:
        async with operating(FakeSource(), size=size) as operator:
            for key in ("down", "enter", "2", "3", "4", "5", "6", "7", "down", "enter"):
                await operator.press(key)
                await operator.sample()
                assert len(operator.rows) == size[1]
            await operator.pilot.resize_terminal(80, 24)
            await operator.until(lambda: "every 1 s" in operator.rows[0])

    run(test)


def test_more_lines_than_fit_are_announced_and_reached() -> None:
    async def test() -> None:
        async with operating(FakeSource(), size=(80, 15)) as operator:
            await operator.press("enter")
            assert "more lines below" in operator.text
            await operator.press("pagedown", "pagedown")
            assert "more lines below" not in operator.text
            assert "PROCESS" in operator.text
            await operator.press("home")
            assert "adds/s" in operator.text

    run(test)


def test_a_wide_terminal_shows_the_chosen_bookie_beside_the_list_and_a_click_opens_it() -> None:
    async def test() -> None:
        async with operating(FakeSource(), size=(200, 60)) as operator:
            await operator.sample(3)
            assert "bookie-1:3181  rw  http://bookie-1:8080" in operator.rows[1]
            assert "GARBAGE COLLECTION" not in operator.rows[1]
            await operator.press("down")
            assert "bookie-2:3181  RO  http://bookie-2:8080" in operator.rows[1]
            assert "ALARMS" in operator.text
            await operator.pilot.click("#beside", offset=(5, 5))
            assert isinstance(operator.app.screen, BookieScreen)

    run(test)


def test_a_tall_terminal_shows_it_below_and_a_lost_bookie_with_what_it_said_last() -> None:
    async def test() -> None:
        source = FakeSource()
        async with operating(source, size=(120, 40)) as operator:
            await operator.sample(2)
            source.lose("bookie-1:3181")
            await operator.sample(4)
            assert "bookie-1:3181  LOST  http://bookie-1:8080" in operator.text
            assert "WRITE CACHE" in operator.text
            assert " lost: connection refused" in operator.text

    run(test)


def test_alarms_have_a_screen_and_their_history_stays() -> None:
    async def test() -> None:
        source = FakeSource()
        async with operating(source) as operator:
            await operator.sample(2)
            source.lose("bookie-3:3181")
            await operator.sample(4)
            await operator.press("a")
            assert "lost: connection refused" in operator.row_with("bookie-3")
            assert " now " in operator.row_with("bookie-3")
            source.find("bookie-3:3181")
            await operator.sample(2)
            assert " over " in operator.row_with("bookie-3")
            await operator.press("escape")
            assert isinstance(operator.app.screen, ClusterScreen)

    run(test)
