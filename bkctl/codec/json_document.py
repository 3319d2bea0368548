"""Small documents of bkctl's own, in JSON, that name their kind and their version.

::

    {
        "kind": "bkctl losses",
        "version": 1,
    }

Each kind has further members, which are checked one by one.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from bkctl.errors import CorruptionError

#: Within so many bytes a document names its kind.
_BEGIN_BYTES = 256


@dataclass(frozen=True, slots=True)
class DocumentKind:
    """One kind of document; errors call it by its ``title``."""

    title: str
    kind: str
    version: int

    def is_one(self, data: bytes) -> bool:
        """Return whether bytes begin as a document of this kind does, whole or damaged."""
        return f'"{self.kind}"'.encode() in data[:_BEGIN_BYTES]

    def members(self, data: bytes) -> Any:
        """Return the JSON object of a document. Raises CorruptionError for any other kind or version."""
        try:
            document = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise self._corrupt("a JSON document", str(error)[:80]) from None
        self.expect(isinstance(document, dict), "a JSON object", document)
        self.expect(document.get("kind") == self.kind, f'kind "{self.kind}"', document.get("kind"))
        version = document.get("version")
        self.expect(type(version) is int and version == self.version, f"version {self.version}", version)
        return document

    def expect(self, holds: bool, expected: str, found: Any) -> None:
        """Raise CorruptionError, with what was ``expected`` and ``found``, unless a condition holds."""
        if not holds:
            raise self._corrupt(expected, repr(found)[:80])

    def _corrupt(self, expected: str, found: str) -> CorruptionError:
        return CorruptionError(self.title, offset=0, expected=expected, found=found)
