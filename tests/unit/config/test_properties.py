"""What ``ServerConfiguration.loadConf`` of 4.17.3 printed, except where a test says otherwise."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from bkctl.config.properties import load_properties, resolve
from bkctl.errors import NotFoundError, UsageError


class Files:
    """Files in memory, by path."""

    def __init__(self, files: Mapping[str, str | bytes]) -> None:
        self._files = files

    def __call__(self, path: str) -> bytes:
        try:
            content = self._files[path]
        except KeyError:
            raise NotFoundError(f"{path}: no such file") from None
        return content.encode("latin-1") if isinstance(content, str) else content


def items(text: str | bytes, key: str, **more: str) -> tuple[str, ...]:
    files = {"a.conf": text} | {name.replace("_", "."): content for name, content in more.items()}
    found = load_properties("a.conf", {"HOME": "/root"}, Files(files)).by_key()
    known = {name: tuple(x for one in ones for x in one.items) for name, ones in found.items()}
    return resolve(known[key], known, {"HOME": "/root"}, "a.conf:1")


@pytest.mark.parametrize(
    ("text", "key", "expected"),
    [
        ("a=x,y , z", "a", ("x", "y", "z")),
        ("bookiePort = 2", "bookiePort", ("2",)),
        ("c: colon", "c", ("colon",)),
        ("d blank value", "d", ("blank value",)),
        ("cm\t v", "cm", ("v",)),
        ("e=", "e", ("",)),
        ("f", "f", ("",)),
        ("g = cont \\\n    inued \\\n  value", "g", ("cont inued value",)),
        ("h=tab\\there", "h", ("tab\there",)),
        ("w=a\\nb", "w", ("a\nb",)),
        ("i=\\u0041bc", "i", ("Abc",)),
        ("j=C\\:\\\\dir\\\\x", "j", ("C:\\dir\\x",)),
        ("v=a\\qb", "v", ("a\\qb",)),
        ("l\\:m = keycolon", "l:m", ("keycolon",)),
        ("n\\ o = keyspace", "n o", ("keyspace",)),
        ("cn\\\\=x=y", "cn\\", ("x=y",)),
        (" =novalue", "", ("novalue",)),
        ("n\\ =trimmed", "n", ("trimmed",)),
        ("p=val#notcomment", "p", ("val#notcomment",)),
        ("q=  lead and trail   ", "q", ("lead and trail",)),
        ("ab==x", "ab", ("=x",)),
        ("ac:=x", "ac", ("=x",)),
        ("ad = = x", "ad", ("= x",)),
        ("aa=\\ lead", "aa", ("\\ lead",)),
        ("ae=line1\\\\\naf=ok", "ae", ("line1\\",)),
        ("y=a,,b", "y", ("a", "", "b")),
        ("z=,", "z", ("", "")),
        ("t=1,2\nt=3", "t", ("1", "2", "3")),
        ("ag=é ü", "ag", ("é ü",)),
        ("  # indented\n! other\n\n x = 1", "x", ("1",)),
        ("be=2\rbf=3", "bf", ("3",)),
        ("bd=1\r\nbe=2", "be", ("2",)),
        # a comment and a blank line within a continued line
        ("ba=x\\\n# not comment\n\nbb=y", "ba", ("xbb=y",)),
        ("zi=x\\\n , y", "zi", ("x", "y")),
    ],
)
def test_a_line_means_what_java_makes_of_it(text: str, key: str, expected: tuple[str, ...]) -> None:
    assert items(text, key) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("k=x\\,y", ("x", "y")),
        ("k=a\\,b,c", ("a", "b", "c")),
        ("k=a\\\\,b", ("a", "b")),
        ("k=\\\\,b", ("", "b")),
        ("k=a\\\\\\,b", ("a\\", "b")),
        ("k=a\\\\\\\\b", ("a\\b",)),
        ('k="a,b"', ('"a', 'b"')),
    ],
)
def test_an_escaped_comma_separates_all_the_same(text: str, expected: tuple[str, ...]) -> None:
    """The value is split when the file is read and again when ServerConfiguration takes it over."""
    assert items(text, "k") == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=1\nk=${a}/x", ("1/x",)),
        ("a=1\nb=0x10\nk=${a}${b}", ("10x10",)),
        ("k=${env:HOME}", ("/root",)),
        ("k=${nope:-dflt}", ("dflt",)),
        ("a=1\nk=${a:-dflt}", ("1",)),
        ("a=1,2\nk=${a}", ("1", "2")),
        ("a=1,2\nk=x${a}", ("x1",)),
        ("a=1\nk=pre$${a}post", ("pre1post",)),
        ("a=1\nk=$${a}", ("1",)),
        ("a=${b}\nb=deep\nk=${a}", ("deep",)),
    ],
)
def test_references(text: str, expected: tuple[str, ...]) -> None:
    assert items(text, "k") == expected


@pytest.mark.parametrize("value", ["${nope}/x", "${env:NOPE_X}", "${a", "${${y}}"])
def test_a_reference_that_nothing_answers_is_refused(value: str) -> None:
    """Java leaves the text as it is, and makes a directory of that name."""
    with pytest.raises(UsageError, match=r"a\.conf:1: "):
        items(f"k={value}\ny=a\na.b=1", "k")


def test_a_reference_that_leads_back_to_itself_is_refused() -> None:
    with pytest.raises(UsageError, match="leads back to itself"):
        items("cj=${ck}\nck=${cj}", "cj")


def test_an_include_is_read_where_it_stands() -> None:
    files = {
        "/etc/bk/a.conf": "x=before\nInclude = sub/other.conf\nx=after\nincludeoptional=nope.conf",
        "/etc/bk/sub/other.conf": "x=inc",
    }
    settings = load_properties("/etc/bk/a.conf", {}, Files(files)).settings
    assert [(one.items, one.where) for one in settings] == [
        (("before",), "/etc/bk/a.conf:1"),
        (("inc",), "/etc/bk/sub/other.conf:1"),
        (("after",), "/etc/bk/a.conf:3"),
    ]


def test_a_missing_include_names_its_line() -> None:
    with pytest.raises(NotFoundError, match=r"a\.conf:2: include of nope\.conf"):
        load_properties("a.conf", {}, Files({"a.conf": "x=1\ninclude=nope.conf"}))


def test_an_include_that_no_file_can_be_called_names_its_line() -> None:
    for line in ("include=a\\u0000b", "includeOptional=a\0b"):
        with pytest.raises(UsageError, match=r"a\.conf:2: include of .*no file has such a name"):
            load_properties("a.conf", {}, Files({"a.conf": f"x=1\n{line}"}))


def test_files_that_include_each_other_are_refused() -> None:
    files = {"a.conf": "include=b.conf", "b.conf": "\ninclude=a.conf"}
    with pytest.raises(UsageError, match=r"b\.conf:2: .*include each other"):
        load_properties("a.conf", {}, Files(files))


@pytest.mark.parametrize("text", ["bg=\\u12", "bg=\\u00zz", "bg=a\\ub"])
def test_a_short_unicode_escape_is_refused(text: str) -> None:
    """Java reads ``\\u12`` as an empty value without a word."""
    with pytest.raises(UsageError, match=r"a\.conf:2: .*four hexadecimal digits"):
        load_properties("a.conf", {}, Files({"a.conf": f"# first\n{text}"}))


def test_a_continued_line_at_the_end_is_refused() -> None:
    """Java drops the key."""
    with pytest.raises(UsageError, match=r"a\.conf:2: "):
        load_properties("a.conf", {}, Files({"a.conf": "x=1\nak=a\\\n"}))


def test_lines_are_counted_from_the_first_of_a_continued_one() -> None:
    text = "# c\nx=1\\\n 2\n\ny=3"
    assert [one.where for one in load_properties("f", {}, Files({"f": text})).settings] == ["f:2", "f:5"]


def test_utf8_is_read_as_latin1_and_said_so() -> None:
    found = load_properties("f", {}, Files({"f": "x=1\ny=/data/é".encode()}))
    assert found.by_key()["y"][0].items == ("/data/\u00c3\u00a9",)
    assert found.beyond_ascii == ("f:2",)


def test_an_oversized_file_is_refused() -> None:
    with pytest.raises(UsageError, match="not a configuration file"):
        load_properties("f", {}, Files({"f": b"#" * ((4 << 20) + 1)}))
