"""Rows to stdout, as a table, JSON, NDJSON or CSV.

A command declares its keys once (:data:`Schema`); they are the columns of a table, the header of CSV, and
what ``--schema`` prints. Without ``-o`` a terminal gets a table; a pipe gets NDJSON for many rows and JSON
for one. Rows are dictionaries or dataclasses, pass through one at a time, and a key that a row lacks is
left out of JSON, empty in CSV and ``-`` in a table, as null is; a key that the schema does not know is our
bug.

A table is for people: its sizes, shares and times are rounded (:mod:`human_values`), verdicts have colours
on a terminal, and keys that a schema calls ``wide`` stand only in ``-o wide``. Everything else is exact.
Which rows and columns are written at all is the command line's choice (:mod:`view_options`).

Only a table holds rows back: up to :data:`PAGE_ROWS` of them, for the widths of its columns; then the page
is drawn and the next one starts with its own header. On a terminal that is too narrow, where numbers would be
cut and columns vanish, a page is written row by row, key by key, as one thing always is.
"""

from __future__ import annotations

import dataclasses
import enum
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, NamedTuple, TextIO

from bkctl.commands.frame.human_values import colour_of, coloured, heading, human, plain_text, wants_colour
from bkctl.commands.frame.terminal_text import escaped
from bkctl.commands.frame.view_options import ViewOptions, current_view

if TYPE_CHECKING:
    from rich.console import Console

PAGE_ROWS = 500
#: The least width of a column of text. A table that needs narrower columns is not drawn.
TEXT_WIDTH_MIN = 12
_GAP = 3
_NOTHING = "nothing to show"

Row = Mapping[str, Any]

_COMPACT = json.JSONEncoder(separators=(",", ":"), default=lambda value: _plain(value)).encode


class Format(enum.StrEnum):
    """Values of ``-o``."""

    TABLE = "table"
    JSON = "json"
    NDJSON = "ndjson"
    CSV = "csv"
    WIDE = "wide"


class Key(NamedTuple):
    """One key of a command's rows. ``type`` is a phrase for people: ``int``, ``string or null``.

    ``wide`` leaves it out of a table that is not asked for all of its columns.
    """

    key: str
    type: str
    meaning: str
    wide: bool = False


Schema = tuple[Key, ...]

_SCHEMA_KEYS: Schema = (
    Key("key", "string", "name of the key"),
    Key("type", "string", "type of its value"),
    Key("meaning", "string", "what it says"),
)


def chosen_format(wanted: Format | None, *, one: bool = False) -> Format:
    """Return the format in effect: what ``-o`` said, or what suits where stdout goes."""
    if wanted is not None:
        return Format.TABLE if wanted is Format.WIDE else wanted
    if sys.stdout.isatty():
        return Format.TABLE
    return Format.JSON if one else Format.NDJSON


def write_rows(
    rows: Iterable[object],
    schema: Schema,
    wanted: Format | None = None,
    *,
    nothing: str = _NOTHING,
    clean: Callable[[], str] | None = None,
    folds: bool = True,
) -> int:
    """Write many rows and return how many there were, those included that the line does not want to see.

    ``nothing`` is said on stderr in place of an empty table. Rows of a check are what it found: where there
    are none ``clean`` says in every format what was checked, because silence could as well mean that nothing
    was; it is called behind the last row. ``folds``: a table on a terminal folds long text into its column;
    else it is written row by row where it does not fit as it is, which suits columns of long paths.
    """
    writers: dict[Format, Callable[[Iterator[Row], Schema, TextIO], int]] = {
        Format.TABLE: partial(_write_table, folds=folds),
        Format.JSON: _write_array,
        Format.NDJSON: _write_ndjson,
        Format.CSV: _write_csv,
    }
    form, view, count = chosen_format(wanted), current_view(), 0

    def counted() -> Iterator[Row]:
        nonlocal count
        for row in _checked((as_row(row) for row in rows), schema):
            count += 1
            yield row

    written = writers[form](view.rows(counted()), _shown(schema, view, form, wanted), sys.stdout)
    sys.stdout.flush()
    if clean is not None and not count:
        sys.stderr.write(f"bkctl: {clean()}\n")
    elif form is Format.TABLE and not written:
        sys.stderr.write(f"({_NOTHING if count else nothing})\n")
    return count


def _shown(schema: Schema, view: ViewOptions, form: Format, wanted: Format | None) -> Schema:
    """Return the keys that are written, in their order."""
    names = view.names()
    if names is not None:
        by_name = {key.key: key for key in schema}
        return tuple(by_name[name] for name in names if name in by_name)
    if form is Format.TABLE and wanted is not Format.WIDE:
        return tuple(key for key in schema if not key.wide)
    return schema


def streams_lines(wanted: Format | None) -> bool:
    """Return whether rows go out as NDJSON, each as it comes and whole, so that :func:`write_lines` does."""
    return chosen_format(wanted) is Format.NDJSON and current_view().is_plain


def write_one(row: object, schema: Schema, wanted: Format | None = None) -> None:
    """Write the answer of a command that is about one thing; as a table it stands key by key."""
    form = chosen_format(wanted, one=True)
    if form in (Format.NDJSON, Format.CSV):
        write_rows([row], schema, form)
        return
    (checked,) = _checked(iter([as_row(row)]), schema)
    names = current_view().names()
    if names is not None:
        checked = {name: checked[name] for name in names if name in checked}
    if form is Format.JSON:
        sys.stdout.write(json.dumps(checked, indent=2, default=_plain) + "\n")
    else:
        _write_fields(checked, sys.stdout)
    sys.stdout.flush()


def write_lines(lines: Iterable[bytes | str]) -> None:
    """Write ready-made NDJSON: items are whole lines, or blocks of them, with their newlines.

    For bulk rows, where an object per row would cost more than reading it. Ask :func:`streams_lines` first.
    """
    sys.stdout.flush()
    raw: BinaryIO = sys.stdout.buffer
    for block in lines:
        raw.write(block.encode() if isinstance(block, str) else block)
    raw.flush()


def row_line(row: Row) -> str:
    """Return a row as a line of NDJSON, for :func:`write_lines`."""
    return _COMPACT(row) + "\n"


def write_schema(schema: Schema, wanted: Format | None = None) -> None:
    """Write the keys of a command's rows: what ``--schema`` is for."""
    rows = [{"key": key.key, "type": key.type, "meaning": key.meaning} for key in schema]
    write_rows(rows, _SCHEMA_KEYS, wanted)


def as_row(value: object) -> Row:
    """Return a dataclass as a dictionary of its fields, one level deep; a mapping as it is."""
    if isinstance(value, Mapping):
        return value
    return {name: getattr(value, name) for name in _field_names(type(value))}


_names_by_class: dict[type, tuple[str, ...]] = {}


def _field_names(kind: type) -> tuple[str, ...]:
    names = _names_by_class.get(kind)
    if names is None:
        names = tuple(field.name for field in dataclasses.fields(kind))
        _names_by_class[kind] = names
    return names


def _plain(value: Any) -> Any:
    """Convert a value that json does not know by itself: dataclasses, enums and paths inside a row."""
    if dataclasses.is_dataclass(value):
        return as_row(value)
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Iterable) and not isinstance(value, bytes | bytearray | memoryview):
        return list(value)
    raise TypeError(f"{type(value).__name__} has no JSON form; the command must choose one")


def _checked(rows: Iterator[Row], schema: Schema) -> Iterator[Row]:
    """Yield the rows with their keys in the schema's order, refusing one that it does not name."""
    names = [key.key for key in schema]
    known = set(names)
    for row in rows:
        if not known.issuperset(row):
            raise ValueError(f"keys not in the schema: {', '.join(sorted(set(row) - known))}")
        yield {name: row[name] for name in names if name in row}


def _write_ndjson(rows: Iterator[Row], schema: Schema, stream: TextIO) -> int:
    count = 0
    for row in rows:
        stream.write(_COMPACT(row) + "\n")
        count += 1
    return count


def _write_array(rows: Iterator[Row], schema: Schema, stream: TextIO) -> int:
    count = 0
    for count, row in enumerate(rows, 1):
        stream.write(("[\n" if count == 1 else ",\n") + _COMPACT(row))
    stream.write("\n]\n" if count else "[]\n")
    return count


def _write_csv(rows: Iterator[Row], schema: Schema, stream: TextIO) -> int:
    """Write the rows as CSV.

    The header holds the first row's keys, so optional ones show only where they were asked for.
    """
    import csv

    out = csv.writer(stream, lineterminator="\n")
    first = next(rows, None)
    names = [key.key for key in schema if first is None or key.key in first]
    if not current_view().no_headers:
        out.writerow(names)
    count = 0
    for row in chain([] if first is None else [first], rows):
        out.writerow([escaped(_exact(row.get(name))) for name in names])
        count += 1
    return count


def _write_table(rows: Iterator[Row], schema: Schema, stream: TextIO, *, folds: bool) -> int:
    count = 0
    while page := list(islice(rows, PAGE_ROWS)):
        names = [key.key for key in schema if any(key.key in row for row in page)]
        cells = [[escaped(human(name, row.get(name))) for name in names] for row in page]
        # Rows that have nothing in a column do not say which kind of column it is.
        filled = {name: row[name] for row in reversed(page) for name in names if row.get(name) is not None}
        if not _drawn(names, cells, stream, filled, folds=folds):
            for number, row in enumerate(page, count):
                stream.write("\n" if number else "")
                # A key that is empty here, and filled in other rows, belongs to rows of another kind.
                shown = [
                    name for name in names if name in row and (row[name] is not None or name not in filled)
                ]
                _write_fields({name: row[name] for name in shown}, stream)
        count += len(page)
    return count


def _exact(value: Any) -> str:
    text = plain_text(value)
    return _COMPACT(value) if text is None else text


def _write_fields(row: Row, stream: TextIO) -> None:
    """Write a row key by key, each item of a list on its line.

    A long line is not folded: it may be a command.
    """
    headings = {name: heading(name, value) for name, value in row.items()}
    width = max(map(len, headings.values()), default=0)
    colours = wants_colour(stream.isatty())
    for name, value in row.items():
        items = value if isinstance(value, list | tuple) and value else [value]
        for number, item in enumerate(items):
            text = escaped(human(name, item, whole=True))
            text = coloured(name, text) if colours else text
            stream.write(f"{'' if number else headings[name]:<{width}}  {text}".rstrip() + "\n")


def _drawn(names: list[str], cells: list[list[str]], stream: TextIO, first: Row, *, folds: bool) -> bool:
    """Draw a table, unless the terminal is too narrow for it; ``first`` has a value of each column."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    headings = [heading(name, first.get(name)) for name in names]
    console = _console(stream, headings, cells)
    headed = not current_view().no_headers
    table = Table(
        box=SIMPLE_HEAD if headed else None,
        show_header=headed,
        show_edge=False,
        pad_edge=False,
        padding=(0, 1) if headed else (0, 2, 0, 0),
        header_style="bold",
    )
    needed = _GAP * (len(names) - 1)
    for name, title, column in zip(names, headings, zip(*cells, strict=True), strict=True):
        number = type(first.get(name)) in (int, float)
        longest = max(map(len, column))
        least = max(len(title), min(longest, TEXT_WIDTH_MIN) if folds and not number else longest)
        needed += least
        justify: Literal["right", "left"] = "right" if number else "left"
        table.add_column(title, justify=justify, no_wrap=number, overflow="fold", min_width=least)
    if stream.isatty() and needed > console.width:
        return False
    for line in cells:
        table.add_row(
            *(Text(text, style=colour_of(name, text) or "") for name, text in zip(names, line, strict=True))
        )
    console.print(table)
    return True


def _console(stream: TextIO, names: list[str], cells: list[list[str]]) -> Console:
    """Make the console of a stream.

    A terminal has its width and colour; a file gets every column as wide as it needs and no colour.
    """
    from rich.console import Console

    class TableConsole(Console):
        """A console that leaves it to its caller to end when nobody reads any more."""

        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    if stream.isatty():
        return TableConsole(file=stream, highlight=False, markup=False, emoji=False)
    widths = [max(map(len, column)) for column in zip(names, *cells, strict=True)]
    width = sum(widths) + 4 * len(widths) + 4
    return TableConsole(file=stream, width=width, no_color=True, force_terminal=False, highlight=False)
