"""Rows of entries: one object per entry for tables, whole blocks of text for NDJSON.

NDJSON is what scripts and pipes get, hundreds of thousands of rows a second, so its lines are made by one
format operation each instead of a dictionary and an encoder.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Iterator
from typing import Any

from bkctl.codec.digest import DIGEST_BYTES
from bkctl.codec.entry import HEADER_BYTES
from bkctl.commands.frame.output import Key, Schema, row_line
from bkctl.scan.checked import CheckedBatch

PAYLOAD_FORMS: dict[str, Callable[[bytes], str]] = {
    "sha256": lambda payload: hashlib.sha256(payload).hexdigest(),
    "hex": bytes.hex,
    "base64": lambda payload: base64.b64encode(payload).decode("ascii"),
    "text": lambda payload: payload.decode("utf-8", "backslashreplace"),
}

ENTRY_KEYS: Schema = (
    Key("ledger", "int", "ledger id"),
    Key("entry", "int", "entry id"),
    Key("lac", "int or null", "last add confirmed in the entry's header"),
    Key("ledger_length", "int or null", "payload bytes of the ledger up to this entry, from its header"),
    Key("payload_bytes", "int or null", "length of the payload, null when the digest's type is not known"),
    Key("digest", "string or null", "crc32c, crc32, mac, dummy; null when not known"),
    Key("digest_ok", "bool or null", "whether the digest checks; null when that is unknown"),
    Key("payload", "string or null", "the payload in the form asked for with --payload"),
)


class EntryRows:
    """Makes rows of one file's entries. ``head`` are the keys that are the same in all of them.

    ``offset_shift`` is added to the offset of the size word; ``kind`` puts a ``kind`` key behind ``size``.
    """

    def __init__(
        self, head: dict[str, Any], *, offset_shift: int = 0, kind: str | None = None, payload: str = "none"
    ) -> None:
        self._head = head
        self._shift = offset_shift
        self._kind = kind
        self._form = PAYLOAD_FORMS.get(payload)
        constant = json.dumps(head, separators=(",", ":"))[:-1].replace("%", "%%")
        middle = f',"kind":"{kind}"' if kind else ""
        self._template = (
            constant
            + ',"offset":%d,"size":%d'
            + middle
            + ',"ledger":%d,"entry":%d,"lac":%s,"ledger_length":%s,"payload_bytes":%s'
            + ',"digest":%s,"digest_ok":%s'
        )

    def ndjson(self, entries: CheckedBatch) -> str:
        """Return all rows of a batch as lines of JSON."""
        batch, check = entries.batch, entries.check
        if check.others:
            return "".join(map(row_line, self.rows(entries)))
        template = self._template
        shift = batch.base + self._shift
        facts = {
            ledger: (f'"{digester.type.value}"', HEADER_BYTES + DIGEST_BYTES[digester.type])
            for ledger, digester in check.digesters.items()
        }
        unknown = ("null", None)
        oks = self._oks(entries)
        lines = []
        for start, size, ledger, entry, (lac, length), ok in zip(
            batch.starts, batch.sizes, batch.ledgers, batch.entries, batch.headers(), oks, strict=True
        ):
            digest, front = facts.get(ledger, unknown)
            data = "null" if front is None or size < front else size - front
            if lac is None:
                lac = length = "null"
            lines.append(template % (start + shift, size, ledger, entry, lac, length, data, digest, ok))
        if self._form is not None:
            payloads = self._payloads(entries)
            lines = [
                f'{line},"payload":{json.dumps(payload)}'
                for line, payload in zip(lines, payloads, strict=True)
            ]
        lines.append("")
        return "}\n".join(lines)

    @staticmethod
    def _oks(entries: CheckedBatch) -> list[str]:
        """Return ``digest_ok`` of every entry as JSON."""
        batch, check = entries.batch, entries.check
        words = {None: "null", True: "true", False: "false"}
        of_ledger = {ledger: words[check.ok(-1, ledger)] for ledger in set(batch.ledgers)}
        oks = [of_ledger[ledger] for ledger in batch.ledgers]
        if check.checked:
            for index in check.failing | check.strangers.keys():
                oks[index] = "false"
        return oks

    def _payloads(self, entries: CheckedBatch) -> Iterator[str | None]:
        batch, check = entries.batch, entries.check
        assert self._form is not None
        for index, ledger in enumerate(batch.ledgers):
            digester = check.digester(index, ledger)
            front = None if digester is None else HEADER_BYTES + digester.size_bytes
            if front is None or batch.sizes[index] < front:
                yield None
            else:
                yield self._form(batch.body(index)[front:])

    def rows(self, entries: CheckedBatch) -> Iterator[dict[str, Any]]:
        """Yield all rows of a batch as dictionaries, the same keys and values as :meth:`ndjson`."""
        batch, check = entries.batch, entries.check
        payloads = self._payloads(entries) if self._form is not None else None
        for index, (lac, length) in enumerate(batch.headers()):
            ledger, size = batch.ledgers[index], batch.sizes[index]
            digester = check.digester(index, ledger)
            front = None if digester is None else HEADER_BYTES + digester.size_bytes
            row = {**self._head, "offset": batch.offset(index) + self._shift, "size": size}
            if self._kind:
                row["kind"] = self._kind
            row |= {
                "ledger": ledger,
                "entry": batch.entries[index],
                "lac": lac,
                "ledger_length": length,
                "payload_bytes": None if front is None or size < front else size - front,
                "digest": None if digester is None else digester.type.value,
                "digest_ok": check.ok(index, ledger),
            }
            if payloads is not None:
                row["payload"] = next(payloads)
            yield row
