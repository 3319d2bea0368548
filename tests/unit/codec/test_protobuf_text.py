import pytest

from bkctl.codec import protobuf_text
from bkctl.codec.proto.bookkeeper_pb2 import CookieFormat, LedgerMetadataFormat
from bkctl.codec.protobuf_text import merge_text, quote
from bkctl.errors import CorruptionError


def host(text: str) -> str:
    message = CookieFormat()
    merge_text(message, text.encode(), what="test")
    return message.bookieHost


def test_quote_escapes_like_java() -> None:
    every = bytes(range(14)) + b" \"'\\~\x7f\xc3\xa9"
    assert quote(every) == (r'"\000\001\002\003\004\005\006\a\b\t\n\v\f\r' + r" \"\'\\~\177\303\251" + '"')


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("bookieHost: 'a\"b'", 'a"b'),
        ('bookieHost: "a\tb"', "a\tb"),
        (r'bookieHost: "\303\251\xe2\x82\xac\u00e9\U0001F600"', "é€é😀"),
        (r'bookieHost: "\?\a\b\f\v\1"', "?\a\b\f\v\1"),
        (r'bookieHost: "C:\\users\\xa\\u0041"', r"C:\users\xa\u0041"),
        ('bookieHost: "é"', "é"),
        ('bookieHost: "a" "b"\n\'c\'', "abc"),
        ('# first\nbookieHost: "#no" # last', "#no"),
        ('bookieHost: "a"; journalDir: "j", ledgerDirs: "l"', "a"),
        ('bookieHost: "a" bookieHost: "b"', "b"),
        ('new { a: 1 b < c: [1, 2] > } newer: "x" bookieHost: "a"', "a"),
    ],
)
def test_spellings(text: str, value: str) -> None:
    assert host(text) == value


@pytest.mark.parametrize(
    ("text", "offset"),
    [
        ('bookieHost: "a\n"', 12),
        (r'journalDir: "é" bookieHost: "\q"', 29),
        (r'bookieHost: "\ud800"', 12),
        (r'bookieHost: "\777"', 12),
        (r'bookieHost: "\377"', 12),
        ("bookieHost: 3", 12),
        ('journalDir: "é"\nbookieHost: }', 29),
        ("a {", 2),
        ("a " + "{ a " * 50, 130),
    ],
)
def test_damage_with_its_offset(text: str, offset: int) -> None:
    with pytest.raises(CorruptionError) as caught:
        host(text)
    assert caught.value.offset == offset


def test_not_utf8() -> None:
    with pytest.raises(CorruptionError) as caught:
        merge_text(CookieFormat(), b"ab\xff", what="test", base=10)
    assert caught.value.offset == 12


def test_words_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protobuf_text, "WORDS_MAX", 5)
    with pytest.raises(CorruptionError):
        host("a: 1 " * 3)


def test_literals_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protobuf_text, "LITERAL_CHARACTERS_MAX", 5)
    assert host('bookieHost: "abc"') == "abc"
    with pytest.raises(CorruptionError):
        host('bookieHost: "abcd"')


@pytest.mark.parametrize("number", ["9" * 5000, "0x" + "f" * 5000, "99999999999", "1.5", "é"])
def test_bad_numbers(number: str) -> None:
    with pytest.raises(CorruptionError):
        merge_text(LedgerMetadataFormat(), f"quorumSize: {number}".encode(), what="test")


def test_long_runs_take_linear_time() -> None:
    assert host('bookieHost: "' + "\\\\" * 200_000 + '"') == "\\" * 200_000
    with pytest.raises(CorruptionError):
        host("bookieHost: " + "a" * 500_000)


def test_errors_do_not_repeat_the_text() -> None:
    with pytest.raises(CorruptionError) as caught:
        merge_text(LedgerMetadataFormat(), b'password: "sesame', what="test")
    assert "sesame" not in str(caught.value)
    with pytest.raises(CorruptionError) as caught:
        merge_text(LedgerMetadataFormat(), b'password: "sesame" state: WRONG', what="test")
    assert "sesame" not in str(caught.value)
    assert caught.value.__suppress_context__
