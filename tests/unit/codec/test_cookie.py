from dataclasses import replace
from pathlib import Path

import pytest

from bkctl.codec.cookie import Cookie, decode_cookie, encode_cookie, join_dirs, split_dirs
from bkctl.errors import CorruptionError, UsageError

JAVA = Path(__file__).parents[2] / "data" / "metadata" / "java-serialized.txt"

WORKED = (
    b'5\nbookieHost: "127.0.0.1:2191"\njournalDir: "/x/j"\nledgerDirs: "2\\t/x/l1\\t/x/l2"\n'
    b'instanceId: "b7114ab1-fa83-474e-a494-fa2be1fb647e"\nindexDirs: "2\\t/x/i1\\t/x/i2"\n'
)
PLAIN = b'5\nbookieHost: "h"\njournalDir: "/j"\nledgerDirs: "1\\t/l"\n'
FIELDS = PLAIN[2:]
COOKIE = Cookie(5, "h", "/j", "1\t/l")


def test_worked_example_both_ways() -> None:
    cookie = decode_cookie(WORKED)
    assert cookie == Cookie(
        layout_version=5,
        bookie_host="127.0.0.1:2191",
        journal_dirs="/x/j",
        ledger_dirs="2\t/x/l1\t/x/l2",
        instance_id="b7114ab1-fa83-474e-a494-fa2be1fb647e",
        index_dirs="2\t/x/i1\t/x/i2",
    )
    assert cookie.journal_paths == ("/x/j",)
    assert cookie.ledger_paths == ("/x/l1", "/x/l2")
    assert cookie.index_paths == ("/x/i1", "/x/i2")
    assert encode_cookie(cookie) == WORKED


def test_optional_fields_stay_absent() -> None:
    assert decode_cookie(PLAIN) == COOKIE
    assert encode_cookie(COOKIE) == PLAIN
    assert COOKIE.index_paths == ("/l",)


def test_every_escape_that_java_writes() -> None:
    lines = dict(line.split("\t") for line in JAVA.read_text().splitlines())
    data = bytes.fromhex(lines["cookie"])
    cookie = decode_cookie(data)
    assert cookie.bookie_host == "".join(map(chr, range(1, 128))) + "é€"
    assert cookie.journal_paths == ("/j1", "/j2")
    assert encode_cookie(cookie) == data


def test_empty_optional_fields_read_as_absent_like_in_java() -> None:
    assert decode_cookie(PLAIN + b'instanceId: ""\nindexDirs: ""\n') == COOKIE


@pytest.mark.parametrize("head", [b"5\n", b" 5 \r\n", b"+5\n", b"05\n"])
def test_line_one_spellings(head: bytes) -> None:
    assert decode_cookie(head + FIELDS) == COOKIE


@pytest.mark.parametrize("layout", [4, 6, 99])
def test_other_text_layouts_are_read_and_written_as_5(layout: int) -> None:
    cookie = decode_cookie(b"%d\n" % layout + FIELDS)
    assert cookie == replace(COOKIE, layout_version=layout)
    assert encode_cookie(cookie) == PLAIN


@pytest.mark.parametrize("data", [b"2", b"2\n", b"1\n", b"0\nx", b"-1\n"])
def test_layouts_without_fields(data: bytes) -> None:
    cookie = decode_cookie(data)
    assert not cookie.has_fields
    assert cookie.ledger_paths == cookie.index_paths == cookie.journal_paths == ()
    with pytest.raises(UsageError):
        encode_cookie(cookie)


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b""])
def test_layout_3_is_rewritten_as_proper_5(end: bytes) -> None:
    cookie = decode_cookie(b"3\nh\n/j\n1\t/l" + end)
    assert cookie == replace(COOKIE, layout_version=3)
    assert encode_cookie(cookie) == PLAIN


def test_unknown_field_is_accepted() -> None:
    assert decode_cookie(PLAIN + b'newField: 3 other { x: "y" }\n') == COOKIE


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\n",
        b"x\n",
        b"5x\n" + FIELDS,
        b"99999999999\n",
        b"5\n",
        b'5\nbookieHost: "h"\njournalDir: "/j"\n',
        b"3\nh\n/j\n",
        b"3\nh\n/j\n\xff",
        b"5\n\xff",
        PLAIN + b"}",
        b"5\n" + b" " * (1 << 20),
    ],
)
def test_damage(data: bytes) -> None:
    with pytest.raises(CorruptionError):
        decode_cookie(data)


def test_offset_counts_from_the_first_byte() -> None:
    with pytest.raises(CorruptionError) as caught:
        decode_cookie(b"5\nbookieHost: 7\n")
    assert caught.value.offset == 14


def test_dirs() -> None:
    assert join_dirs(["/a", "/b"]) == "2\t/a\t/b"
    assert split_dirs("2\t/a\t/b") == ("/a", "/b")
    assert split_dirs(join_dirs([])) == ()
    with pytest.raises(UsageError):
        join_dirs(["/a\tb"])


@pytest.mark.parametrize("stored", ["", "/a", "1\t/a\t/b", "x\t/a", "2\t/a", "²\t/a\t/b"])
def test_count_that_is_not_theirs(stored: str) -> None:
    with pytest.raises(CorruptionError):
        split_dirs(stored)


def test_encode_refuses_what_is_no_text() -> None:
    with pytest.raises(UsageError):
        encode_cookie(replace(COOKIE, bookie_host="\ud800"))


def test_a_file_that_is_no_cookie_is_not_shown() -> None:
    """VERSION may be a link to a file that only root can read."""
    for content in (b"SECRETSECRETSECRET\nmore", b"SECRET", b"12SECRET\n"):
        with pytest.raises(CorruptionError) as caught:
            decode_cookie(content)
        assert "SECRET" not in str(caught.value)
